# SPDX-License-Identifier: Apache-2.0
"""Generated pages are up to date, docstrings are complete, examples run, and links are valid."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import pydoc
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mpscnn
from mpscnn import _core

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/*.md"), *ROOT.glob("tools/*/*.md")]
)
PUBLIC = {name: getattr(mpscnn, name) for name in mpscnn.__all__ if name != "__version__"}
PUBLIC |= {
    f"{name}.{member}": getattr(module, member)
    for name, module in PUBLIC.items()
    if inspect.ismodule(module)
    for member in module.__all__
}
KERNELS = mpscnn.kernels.KERNELS
EXCEPTIONS = {name: kind for name, kind in PUBLIC.items() if inspect.isclass(kind) and issubclass(kind, BaseException)}


def tool(name: str) -> ModuleType:
    """Return a program of tools/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    return tool("gen_docs")


# ----------------------------------------------------------------------------------------------------- generated pages


def test_kernels_page_is_up_to_date(generator: ModuleType) -> None:
    common = _core.common_params(1), _core.common_params(2)
    wanted = generator.kernels_page(_core.kernel_table(), common, _core.neuron_names())
    assert generator.KERNELS.read_text() == wanted, "python tools/gen_docs.py writes it again"


def test_counts_of_the_readme_are_up_to_date(generator: ModuleType) -> None:
    present = generator.README.read_text()
    assert present == generator.readme(present, _core.kernel_table()), "python tools/gen_docs.py writes it again"
    stale = present.replace(f"[{len(KERNELS)} kernels]", "[9 kernels]")
    assert stale != present
    assert generator.readme(stale, _core.kernel_table()) == present


def test_speed_is_that_of_the_page() -> None:
    """README.md's tables and the pictures repeat docs/performance.md."""
    pytest.importorskip("matplotlib")
    speed = tool("gen_speed")
    present = speed.README.read_text()
    assert speed.readme(present) == present, "python tools/gen_speed.py writes it again"
    stale = re.sub(r"\| ResNet-50 \| 32 \| [\d.]+ ", "| ResNet-50 | 32 | 0.001 ", present)
    assert stale != present
    assert speed.readme(stale) == present
    shown = speed.texts(speed.PICTURE.read_text())
    assert shown == speed.texts(speed.picture()), "python tools/gen_speed.py draws it again"
    for row in speed.rows():
        assert any(text.startswith(row.ratio) for text in shown)
        assert f"{row.theirs / row.ours:.2f}" == row.ratio
    shown = speed.texts(speed.CPU_PICTURE.read_text())
    assert shown == speed.texts(speed.cpu_picture()), "python tools/gen_speed.py draws it again"
    for name, *_, ratio in speed.cpu_rows().rows[1:]:
        assert name in shown
        assert any(text.startswith(f"{ratio}: ") for text in shown)


def test_rows_of_speed_are_those_of_the_benchmarks() -> None:
    """Output of `python -m bench networks gpu --json` becomes the rows of docs/performance.md."""
    speed = tool("gen_speed")
    times = {"mpscnn": 4, "torch": 12, "onnxruntime": 5, "openvino": 6, "mpscnn, reduced": 2, "openvino, reduced": 3}
    rows = [{"name": name, "seconds": time / 300, "ratio": time / 4} for name, time in times.items()]
    cpu = [{"case": "resnet18", "batch": batch, "measured": rows, "absent": {}} for batch in (1, 8)]
    gpu = [{"case": "unet float16, batch 8", "seconds": {"ours": 0.001, "torch.compile": 0.0025}}]
    present = speed.PAGE.read_text()
    page = speed.measured_page(present, {"networks": cpu, "gpu": {"networks": gpu}})
    peers = "torch | ONNX Runtime | OpenVINO | best peer / mpscnn"
    header = f"network | mpscnn | {peers} | mpscnn, bfloat16 | OpenVINO | best peer / mpscnn"
    row = "ResNet-18 | 13.3 | 40.0 | 16.7 | 20.0 | 1.25 | 6.67 | 10.0 | 1.50"
    assert f"| {header} |\n{'|---' * 9}|\n| {row} |\n\n" in page
    assert page.count("| U-Net 256 | float16 | 8 | 1.000 | 2.500 | 2.50 |\n\n") == 1
    old = len(speed.cpu_rows().rows) - 1, len(speed.rows())
    assert len(present.splitlines()) - len(page.splitlines()) == sum(old) - 2  # the rows of each table are one now
    assert speed.measured_page(present, {}) == present
    assert {row[0] for row in speed.cpu_rows().rows[1:]} <= {case.title for case in speed.networks().NETWORKS.values()}
    absent = speed.measured_page(present, {"networks": [{**cpu[0], "measured": rows[:3] + rows[4:]}]})
    assert "| network | mpscnn | torch | ONNX Runtime | best peer / mpscnn | mpscnn, bfloat16 |" in absent


def test_each_kernel_is_in_the_table_of_platforms(generator: ModuleType) -> None:
    table = _core.kernel_table()
    text = generator.platform_table(table, generator.support(table))
    listed = set(re.findall(r"`(\w+)`", text.partition("|---")[2]))
    unlisted = {row["name"] for row in table} - listed
    assert {row["family"] for row in table if row["name"] in unlisted} == {"neuron", "reduction"}
    assert generator.KERNELS.read_text().count(text) == 1


def test_support_table_names_each_promised_class(generator: ModuleType) -> None:
    rows = generator.support(_core.kernel_table())
    assert sum(row["promised"] for row in rows) == 115
    assert len({row["name"] for row in rows}) == len(rows)
    assert all(row["python"] for row in rows if not row["promised"]), "what was not promised is there"
    assert {row["name"] for row in rows if row["openmps"]} & generator.not_implemented() == set()
    # The CUDA engine has kernels for all problems, so no class of openmps is missing there.
    assert generator.cuda_computes_all()
    assert [row["name"] for row in rows if row["cuda"] != row["openmps"]] == []
    # Every class available in Python is available on Linux, and every kernel of the table is on the page.
    assert [row["name"] for row in rows if row["python"] and not row["openmps"]] == []
    promised = {row["name"]: row["python"] for row in rows}
    assert [kind.apple_class for kind in KERNELS.values() if not promised.get(kind.apple_class, "beyond")] == []


def test_kernels_page_has_each_parameter(generator: ModuleType) -> None:
    page = generator.KERNELS.read_text()
    for row in _core.kernel_table():
        (section,) = re.findall(rf"^### {row['name']}\n(.*?)^##", page, re.MULTILINE | re.DOTALL)
        for text in (row["summary"], row["formula"], row["shape"], row["apple_class"], row["source"]):
            assert text in section
        assert re.findall(r"^\| `(\w+)`", section, re.MULTILINE) == [spec["name"] for spec in row["params"]]


# ----------------------------------------------------------------------------------------------------------- docstrings


def sections(text: str) -> set[str]:
    return set(re.findall(r"^([A-Z][A-Za-z ]+)\n-{3,}$", text, re.MULTILINE))


def wanted_sections(name: str) -> set[str]:
    value = PUBLIC[name]
    if inspect.ismodule(value):
        return set()  # its functions have their own
    if name in EXCEPTIONS:  # not made by users; test_exceptions_are_documented checks the functions that raise it
        return {"Attributes"} if "self." in inspect.getsource(value) else set()
    if value is mpscnn.Graph:
        return {"Attributes", "Source"}  # no arguments; its methods have them
    if value in (mpscnn.Kernel, mpscnn.UnaryKernel, mpscnn.BinaryKernel, mpscnn.GradientKernel):
        return {"Source"}  # made through its subclasses
    if value in (mpscnn.DeviceArray, mpscnn.GradientState, mpscnn.Optimizer, mpscnn.OptimizerState):
        return {"Raises", "Source"}  # made by other objects
    if value is mpscnn.Device:
        return {"Raises", "Source"}  # no arguments
    if value in (mpscnn.DataSource, mpscnn.NormalizationDataSource, mpscnn.PaddingPolicy):
        return {"Attributes", "Raises", "Source"}
    if value is mpscnn.get_num_threads:
        return {"Returns", "Raises", "Source"}  # no arguments
    wanted = {"Parameters", "Raises", "Source"}
    if name in KERNELS:
        wanted.add("Other Parameters")
    if not inspect.isclass(value) and returns_something(value):
        wanted.add("Returns")
    return wanted


def returns_something(function: Any) -> bool:
    """Return whether it may return a value; for functions of the extension this is not declared."""
    return not inspect.isfunction(function) or inspect.signature(function).return_annotation != "None"


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_docstring_has_its_sections(name: str) -> None:
    text = inspect.getdoc(PUBLIC[name]) or ""
    first = text.splitlines()[0] if text else ""
    assert first.endswith("."), f"{name} begins with {first!r}"
    missing = wanted_sections(name) - sections(text)
    assert not missing, f"{name} lacks {missing}"


def methods_with_arguments() -> dict[str, Any]:
    """Return methods of the classes around networks."""
    from mpscnn.stream import Stream

    found = {}
    for kind in (mpscnn.Graph, mpscnn.Network, mpscnn.profile, Stream):
        for name, value in vars(kind).items():
            is_public = inspect.isfunction(value) and (name == "__call__" or not name.startswith("_"))
            if is_public and len(inspect.signature(value).parameters) > 1:
                found[f"{kind.__name__}.{name}"] = value
    return found


METHODS = methods_with_arguments()


@pytest.mark.parametrize("name", sorted(METHODS))
def test_methods_around_networks_have_their_sections(name: str) -> None:
    wanted = {"Parameters", "Raises"} | ({"Returns"} if returns_something(METHODS[name]) else set())
    assert wanted - sections(inspect.getdoc(METHODS[name]) or "") == set()


@pytest.mark.parametrize("name", sorted(EXCEPTIONS))
def test_exceptions_are_documented(name: str) -> None:
    """In the Raises section of a function that raises it; the base class in that of load()."""
    texts = [inspect.getdoc(value) or "" for value in [*PUBLIC.values(), *METHODS.values()]]
    raises = [text.partition("Raises\n------\n")[2] for text in texts]
    assert any(re.search(rf"\b{name}\b", text) for text in raises)


def shown_by_help(kind: type) -> str:
    """Return help() without the bar that pydoc draws next to the text of a class."""
    lines = pydoc.plain(pydoc.render_doc(kind)).splitlines()
    return "\n".join(line.removeprefix(" |").removeprefix("  ").rstrip() for line in lines)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_help_shows_the_docstring_and_the_arguments(name: str) -> None:
    shown = shown_by_help(KERNELS[name])
    arguments = str(inspect.signature(KERNELS[name])).removeprefix("(")
    assert f"\n\n{inspect.getdoc(KERNELS[name])}\n" in shown

    def in_one_line(text: str) -> str:  # later versions of Python wrap arguments, and name the defining class
        return re.sub(r"[\s,]+", "", text)

    assert in_one_line(f"\n{name}({arguments}") in in_one_line(shown)
    assert in_one_line(f"\n__init__(self, {arguments}") in in_one_line(shown)


def test_help_of_derived_classes() -> None:
    """The docstring and the arguments are those of the class, not those of its base class."""

    class Leaky(mpscnn.NeuronReLU):
        """A ReLU with a slope."""

        def __init__(self, slope: float) -> None:
            super().__init__(slope)

    assert "\nLeaky(slope: 'float') -> 'None'\n\nA ReLU with a slope.\n" in shown_by_help(Leaky)
    assert Leaky.__doc__ == Leaky(0.5).__doc__ == "A ReLU with a slope."
    Leaky.__doc__ = "Another."
    assert "\nAnother.\n" in shown_by_help(Leaky)
    assert (mpscnn.NeuronReLU.__doc__ or "").startswith("Rectified linear unit")


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - set(KERNELS)))
def test_members_are_documented(name: str) -> None:
    """At least one sentence for each method; the type is enough for a property."""
    value = PUBLIC[name]
    if not inspect.isclass(value):
        return
    bare = []
    for member, attribute in vars(value).items():
        if member.startswith("_") or not (callable(attribute) or isinstance(attribute, property | staticmethod)):
            continue
        text = inspect.getdoc(getattr(value, member)) or ""
        # The signature is pybind11's, the text after it ours.
        if not re.sub(r"^\w*\(.*\) -> .*$", "", text, flags=re.MULTILINE).strip():
            bare.append(member)
    assert bare == []


def test_number_of_units() -> None:
    """A parameter with a range has a unit."""
    specs = (
        [spec for row in _core.kernel_table() for spec in row["params"]]
        + _core.common_params(1)
        + _core.common_params(2)
    )
    assert {spec["name"] for spec in specs if spec["min"] is not None and not spec["unit"]} == set()


# ------------------------------------------------------------------------------------------------------------- examples


def documented() -> dict[str, Any]:
    found: dict[str, Any] = {"mpscnn": mpscnn, "mpscnn.config": importlib.import_module("mpscnn.config")}
    detection = importlib.import_module("mpscnn.detection")
    found |= {f"mpscnn.detection.{name}": getattr(detection, name) for name in detection.__all__}
    for name, value in PUBLIC.items():
        found[name] = value
        if inspect.isclass(value) and name not in KERNELS:
            members = {member: one for member, one in vars(value).items() if not member.startswith("_")}
            found |= {f"{name}.{member}": getattr(value, member) for member in members}
    return found


EXAMPLES = {
    name: test
    for name, value in documented().items()
    if (test := doctest.DocTestParser().get_doctest(inspect.getdoc(value) or "", {}, name, name, 0)).examples
}


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_examples_in_docstrings(name: str) -> None:
    report: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(EXAMPLES[name], out=report.append)
    assert result.failed == 0, "".join(report)


def test_there_are_examples() -> None:
    assert {"Graph", "Network", "memory.current", "profile"} <= set(EXAMPLES)
    assert {"mpscnn", "reorder", "kernel", "DataSource", "PaddingPolicy", "map_weights"} <= set(EXAMPLES)


def examples_of_the_readme() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def test_onnx_model_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    onnx = pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    code, *_ = examples_of_the_readme()
    assert len([line for line in code.splitlines() if line.strip()]) == 5
    weight = np.random.default_rng(1).standard_normal((8, 3, 1, 1), dtype=np.float32)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Conv", ["x", "w"], ["c"]), onnx.helper.make_node("Relu", ["c"], ["y"])],
        "small",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 224, 224])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 8, 224, 224])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), "model.onnx")
    space: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), space)
    expected = np.maximum(np.einsum("oi,nihw->nohw", weight[:, :, 0, 0], space["x"]), 0)
    np.testing.assert_allclose(space["y"], expected, atol=1e-5)
    assert "(1, 8, 224, 224)" in capsys.readouterr().out


def test_network_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    _, code, _ = examples_of_the_readme()
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    space: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), space)
    assert space["y"].shape == (4, 8, 224, 224)
    with torch.no_grad():
        expected = space["module"].eval()(torch.from_numpy(space["x"]))
    np.testing.assert_allclose(space["y"], expected.numpy(), atol=1e-5)
    np.testing.assert_array_equal(mpscnn.load("net.mpscnn")(space["x"]), space["y"])


def test_kernels_of_the_readme() -> None:
    *_, code = examples_of_the_readme()
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    space: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), space)
    assert space["y"].shape == (1, 112, 112, 64)
    np.testing.assert_array_equal(space["z"], space["y"])
    # As the comments state: a ReLU, then tanh.
    assert space["y"].min() == 0
    assert 0.9 < space["y"].max() <= 1


def test_citation_and_changes_have_the_version() -> None:
    (version,) = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_commands_of_the_readme_are_targets() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        named = set(
            re.findall(r"\bmake ([a-z-]+)", "\n".join(re.findall(r"`make .*?`|^ {4}make .*$", page.read_text(), re.M)))
        )
        assert named - targets == set(), page.name


# ---------------------------------------------------------------------------------------------------------------- links


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub generates for headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        inside = target == ROOT or ROOT in target.parents
        if not (inside and target.exists()) or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A b\n[x](missing.md) [y](#a-b) [z](#c)\n")
    assert "missing.md" in broken_links(page)
    assert "#c" in broken_links(page)


def test_files_named_in_the_maps_exist() -> None:
    """CONTRIBUTING's "component to file" and the first column of tables in docs name files in backticks."""
    missing = []
    for page in PAGES:
        for path in re.findall(r"`((?:csrc|python|tests|tools|docs|cmake|examples|bench)/[\w/.-]+)`", page.read_text()):
            if not (ROOT / path).exists():
                missing.append(f"{page.name}: {path}")
    assert missing == []


# ------------------------------------------------------------------------------------------------------------- reprs


def test_repr_of_a_kernel_that_was_not_made() -> None:
    """Tracebacks and debuggers print it; access to the missing kernel would end the process."""
    kernel = mpscnn.NeuronReLU.__new__(mpscnn.NeuronReLU)
    assert repr(kernel) == "<mpscnn.NeuronReLU, not made>"
    assert repr(mpscnn.NeuronReLU(label="first")) == '<mpscnn.NeuronReLU "first">'
