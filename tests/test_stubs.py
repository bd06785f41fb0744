# SPDX-License-Identifier: Apache-2.0
"""The stubs match the extension and the table; a type checker distinguishes right from wrong programs."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mpscnn
from mpscnn import _core
from support import runtime_arguments

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "python"
PACKAGE = Path(mpscnn.__file__).parent
COMMON = (_core.common_params(1), _core.common_params(2))

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("LD_PRELOAD")), reason="a type checker under a preloaded sanitizer takes minutes"
)


def tool(name: str) -> ModuleType:
    """Import tools/<name>.py as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Lists packages without types.
CONFIG = ("--config-file", ROOT / "pyproject.toml")


def run_mypy(*arguments: str | Path, module: str = "mypy", cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("mypy")
    # Processes that write to one cache at the same time damage it.
    cache = ROOT / ".mypy_cache" / os.environ.get("PYTEST_XDIST_WORKER", "main")
    environment = os.environ | {
        "MYPYPATH": str(SOURCES),
        "PYTHONPATH": str(PACKAGE.parent),
        "MYPY_FORCE_COLOR": "0",
        "MYPY_CACHE_DIR": str(cache),
    }
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=600)


# ----------------------------------------------------------------------------------------- generated from the extension


def test_stubs_are_up_to_date() -> None:
    pytest.importorskip("pybind11_stubgen")
    generator = tool("gen_stubs")
    again = "python tools/gen_stubs.py writes it again"
    assert generator.TARGET.read_text() == generator.stub(_core.kernel_table(), COMMON), again
    assert generator.CORE.read_text() == generator.core_stub(), again


def test_a_stale_stub_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generator = tool("gen_stubs")
    table = _core.kernel_table()
    next(row for row in table if row["name"] == "Convolution")["params"][0]["name"] = "wait"
    stale = tmp_path / "kernels.pyi"
    stale.write_text(generator.TARGET.read_text())
    assert generator.update(stale, generator.stub(table, COMMON), check=True) == 1
    assert "+        wait: t.Array" in capsys.readouterr().out
    assert stale.read_text() == generator.TARGET.read_text()


def test_stubs_are_in_the_package() -> None:
    for name in ("py.typed", "_core.pyi", "kernels.pyi", "_typing.py"):
        assert (PACKAGE / name).exists(), f"{name} is not in {PACKAGE}: build again"


def test_types_can_be_imported_at_run_time() -> None:
    """Programs may refer to the types, also where annotations are evaluated."""
    spec = importlib.util.spec_from_file_location("mpscnn._typing", SOURCES / "mpscnn" / "_typing.py")
    assert spec is not None
    assert spec.loader is not None
    types = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(types)
    assert types.Array
    assert types.Row.__required_keys__ == set(_core.kernel_table()[0])
    assert types.NeuronName.__required_keys__ == set(_core.neuron_names()[0])
    assert types.Param.__required_keys__ == set(_core.common_params()[0])


def test_choices_are_those_of_the_extension() -> None:
    """Literal types written by hand: layouts and names of activations."""
    source = (SOURCES / "mpscnn" / "_typing.py").read_text()

    def choices(name: str) -> list[str]:
        (text,) = re.findall(
            rf"^{name}: TypeAlias = (?:NeuronType \| |\(\s*NeuronType \| )?Literal\[(.*?)\]",
            source,
            re.MULTILINE | re.DOTALL,
        )
        return re.findall(r'"(\w+)"', text)

    with pytest.raises(ValueError, match="is not one of") as layouts:
        mpscnn.reorder(mpscnn.empty((1, 1, 1, 1)), "?")  # type: ignore[call-overload]
    assert re.findall(r"\b[A-Z1]{4}\b", str(layouts.value)) == choices("WeightLayout")
    names = _core.neuron_names()
    assert list(dict.fromkeys(row["type"] for row in names)) == choices("NeuronType")
    assert [row["name"] for row in names if row["name"] != row["type"]] == choices("ActivationName")
    with pytest.raises(ValueError, match="layout") as orders:
        mpscnn.Image.from_array(mpscnn.empty((1, 1, 1, 1)), "?")  # type: ignore[arg-type]
    assert set(re.findall(r"\bN\w{3}\b", str(orders.value))) == set(choices("ImageLayout"))


# --------------------------------------------------------------------------------------- types against the extension


def shape_of(arguments: ast.arguments) -> list[tuple[str, str, str | None]]:
    """Return (name, kind, default) of each argument but self, without names that cannot be used."""
    rows: list[tuple[str, str, str | None]] = []

    def add(argument: ast.arg, kind: str, default: ast.expr | None) -> None:
        text = None if default is None else value_text(default)
        unnamed = kind == "positional only" or re.fullmatch(r"arg\d+", argument.arg)
        rows.append(("-" if unnamed else argument.arg, "by position" if unnamed else kind, text))

    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    for index, (argument, default) in enumerate(zip(positional, defaults, strict=True)):
        kind = "positional only" if index < len(arguments.posonlyargs) else "positional"
        if not (index == 0 and argument.arg == "self"):
            add(argument, kind, default)
    for argument, keyword_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        add(argument, "keyword", keyword_default)
    if arguments.kwarg:
        rows.append(("**", "keyword", None))
    return rows


def value_text(default: ast.expr) -> str:
    """Return `...` for defaults that the stub omits; numbers in single precision, as in the extension."""
    try:
        value = ast.literal_eval(default)
    except ValueError:
        return ast.unparse(default)
    if value == []:
        return "..."
    if value is ...:
        return "..."
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def compare_function(where: str, function: Any, nodes: list[ast.stmt]) -> None:
    definitions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    name = definitions[0].name
    wanted = shape_of(runtime_arguments(function, name))
    for definition in definitions:
        found = shape_of(definition.args)
        if len(definitions) == 1:
            assert found == wanted, where
        else:  # an overload may make an argument required, or keyword-only
            assert sorted(row[0] for row in found) == sorted(row[0] for row in wanted), where
            for argument, kind, default in found:
                ((_, needed, expected),) = [row for row in wanted if row[0] == argument]
                assert default in (None, expected), f"{where}: {argument}"
                assert kind in (needed, "keyword"), f"{where}: {argument}"


C_FUNCTIONS = {
    "reorder": mpscnn.reorder,
    "reorder_linear": mpscnn.reorder_linear,
    "empty": mpscnn.empty,
    "__call__": mpscnn.Kernel.__call__,
    "encode": mpscnn.Kernel.encode,
}
"""Functions in C for speed; their types are declared in Python, for type checkers."""


@pytest.mark.parametrize("name", C_FUNCTIONS)
def test_types_of_a_function_in_c(name: str) -> None:
    file = "kernels.py" if name in ("__call__", "encode") else "weights.py"
    found = [
        node
        for node in ast.walk(ast.parse((SOURCES / "mpscnn" / file).read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == name and not node.args.kwarg
    ]
    assert found
    compare_function(name, C_FUNCTIONS[name], [node for node in found if len(found) == 1 or node.decorator_list])


def test_stubtest(tmp_path: Path) -> None:
    """Mypy's own comparison, which ignores the arguments of pybind11's functions."""
    config = tmp_path / "mypy.ini"
    # stubtest has no cache, and NumPy takes half a minute; without NumPy, types of overloads are equal.
    config.write_text("[mypy]\nfollow_imports = skip\ndisable_error_code = overload-cannot-match\n")
    modules = ("mpscnn._core", "mpscnn.kernels")
    result = run_mypy(*modules, "--concise", "--mypy-config-file", config, module="mypy.stubtest", cwd=tmp_path)
    known = (
        r".* is inconsistent, metaclass differs",  # pybind11's own
        r"mpscnn\._core\._\w+\.__init__ .*",  # classes made by other objects
        r"mpscnn\.kernels\.BatchNormalizationStatistics\w*\.(__call__|encode) .*",  # fewer parameters, returns a state
    )
    lines = (result.stdout + result.stderr).splitlines()
    assert [line for line in lines if not any(re.fullmatch(pattern, line) for pattern in known)] == []
    assert any("metaclass differs" in line for line in lines), "nothing was compared"


# ---------------------------------------------------------------------------------------------- through a type checker


def test_package_passes_mypy() -> None:
    """Including kernels.py, which its stub hides from a checker of the folder."""
    for target in (SOURCES / "mpscnn", SOURCES / "mpscnn" / "kernels.py"):
        result = run_mypy("--strict", *CONFIG, target)
        assert result.returncode == 0, result.stdout + result.stderr


def test_all_is_typed(tmp_path: Path) -> None:
    """A checker finds every name of mpscnn.__all__, with its own type."""
    names = [name for name in mpscnn.__all__ if name != "__version__"]
    program = tmp_path / "names.py"
    program.write_text("import mpscnn\n" + "".join(f"reveal_type(mpscnn.{name})\n" for name in names))
    result = run_mypy("--strict", *CONFIG, program)
    assert result.returncode == 0, result.stdout + result.stderr
    revealed = re.findall(r'Revealed type is "(.*)"', result.stdout)
    assert len(revealed) == len(names)
    assert [name for name, text in zip(names, revealed, strict=True) if text == "Any"] == []


GOOD = """
    from pathlib import Path
    from typing import Any, Literal

    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import assert_type

    import mpscnn

    x: NDArray[np.float32] = np.zeros((1, 8, 6, 4), np.float32)
    weight: NDArray[np.float32] = np.zeros((8, 4, 3, 3), np.float32)
    memory = memoryview(bytearray(4096))

    conv = mpscnn.Convolution(
        weight, [0.5] * 8, layout="OIHW", stride=(1, 2), padding=((1, 1), (0, 1)), activation="relu"
    )
    swish = mpscnn.NeuronDescriptor("hard_sigmoid", 0.2, 0.5)
    transpose = mpscnn.ConvolutionTranspose(
        mpscnn.empty((8, 4, 2, 2)), stride=2, padding=0, activation=swish, edge_mode="zero", device=mpscnn.Device()
    )
    relu = mpscnn.NeuronReLU(np.float64(0.25), label="leaky")
    prelu = mpscnn.NeuronPReLU(np.ones(8, np.float32))
    fused = mpscnn.Convolution(memory, activation=relu)
    assert_type(swish.a, float)
    mpscnn.NeuronDescriptor("relu6", b=None)
    mpscnn.Neuron("leaky_relu")
    mpscnn.Convolution(weight, activation="hard_sigmoid")
    described = mpscnn.ConvolutionDescriptor(3, 4, 8, activation="relu")
    assert_type(described.activation, mpscnn.NeuronDescriptor | None)
    assert_type(described.batch_norm, mpscnn.BatchNorm | None)
    again = mpscnn.NeuronDescriptor(swish.type, swish.a, swish.b, data=swish.data)

    # arrays in, arrays out; images in, images out; what is given as out comes back
    assert_type(conv(x), NDArray[Any])
    assert_type(conv(memory), NDArray[Any])
    image = mpscnn.Image.from_array(x, "NHWC", copy=False)
    assert_type(conv(image), mpscnn.Image)
    assert_type(relu(x, out=x), NDArray[np.float32])
    assert_type(conv.result_shape(image.shape), tuple[int, int, int, int])

    with mpscnn.CommandBuffer(label="one") as cb:
        cb.add_completed_handler(lambda: print("done"))
        hidden = conv.encode(cb, image, temporary=True)
        assert_type(relu.encode(cb, hidden, dtype="float16"), mpscnn.Image)
    assert_type(cb.gpu_time, float)
    if cb.status == "error":
        print(cb.error)

    out: NDArray[np.float16] = np.empty((1, 4, 8, 6), np.float16)
    assert_type(image.numpy(), NDArray[Any])
    assert_type(image.numpy("NCHW", out=out), NDArray[np.float16])
    view: NDArray[Any] = np.asarray(image)
    shared = mpscnn.Buffer(4096).numpy("float32", (32, 32))
    raw: NDArray[Any] = np.asarray(mpscnn.Buffer(4096))
    assert_type(memoryview(mpscnn.Buffer(4096)).nbytes, int)
    mpscnn.Buffer(mpscnn.empty(4096, "uint8")).numpy()

    # two sources
    add = mpscnn.Add(bias=1, minimum_value=0.0, secondary_stride=(0, 1), primary_edge_mode="clamp")
    assert_type(add(x, x), NDArray[Any])
    assert_type(add(x, x, out=x), NDArray[np.float32])
    assert_type(add(image, image), mpscnn.Image)
    assert_type(add.result_shape((1, 8, 6, 4), (1, 1, 1, 4)), tuple[int, int, int, int])
    gradient = mpscnn.NeuronGradient(relu)
    gradient.secondary_offset = (0, 1)
    assert_type(gradient(x, x), NDArray[Any])
    with mpscnn.CommandBuffer() as cb:
        assert_type(gradient.encode(cb, image, add.encode(cb, image, image, temporary=True)), mpscnn.Image)

    # attributes
    conv.offset = (1, 1)
    conv.clip_rect = ((0, 0, 0), (4, 4, 1))
    assert_type(conv.edge_mode, Literal["zero", "clamp"])
    conv.edge_mode = "clamp"
    conv.label = None
    assert_type(conv.source_feature_channel_max_count, int | None)
    assert_type(mpscnn.Convolution.apple_class, str)

    # weights
    assert_type(mpscnn.reorder(weight), NDArray[Any])
    assert_type(mpscnn.reorder(weight, "OIHW", "HWIO", out=weight), NDArray[np.float32])
    assert_type(mpscnn.reorder(weight, "OIHW", "HWIO", weight), NDArray[np.float32])
    mapped = mpscnn.map_weights(Path("conv1.bin"), (8, 4, 3, 3), np.float16)

    # a class by name: known where the name is
    assert_type(mpscnn.kernel("MPSCNNNeuronTanH"), type[mpscnn.NeuronTanH])
    kinds = [mpscnn.kernel(name) for name in ("Convolution", "FullyConnected")]
    kernels: list[mpscnn.Kernel] = [conv, relu, kinds[0](weight)]
    for kernel in kernels:
        print(kernel.label, kernel.apple_class, kernel.allow_reduced_precision)


    class Attributes(mpscnn.DataSource):
        def __init__(self, weights: NDArray[np.float32]) -> None:
            o, h, w, i = weights.shape
            self.descriptor = mpscnn.ConvolutionDescriptor((h, w), i, o, activation="relu")
            self.weights = weights


    class Methods(mpscnn.DataSource):
        @property
        def descriptor(self) -> mpscnn.ConvolutionDescriptor:
            return mpscnn.ConvolutionDescriptor(3, 4, 8, batch_norm=mpscnn.BatchNorm([0], [1], [1], [0]))

        def weights(self) -> NDArray[np.float32]:
            return np.zeros((8, 3, 3, 4), np.float32)

        def load(self) -> bool:
            return True


    class Stranger:
        descriptor = mpscnn.ConvolutionDescriptor(3, 4, 8)
        weights = np.zeros((8, 3, 3, 4), np.uint8)
        ranges = np.zeros((8, 2), np.float32)

        def load(self) -> None: ...
        def purge(self) -> None: ...


    for source in (Attributes(weight), Methods(), Stranger()):
        mpscnn.Convolution(source)
    mpscnn.Convolution(Attributes(weight))
    mpscnn.Convolution(Methods())
    mpscnn.FullyConnected(Stranger())

    # networks
    graph = mpscnn.Graph()
    value = graph.input("x", height=8, channels=4, layout="NCHW")
    value = graph.add("Convolution", value, name="conv", weight=weight, padding=1)
    value = graph.concatenate(value, graph.add(mpscnn.NeuronReLU, value))
    graph.output(value, "y", layout="NC", shape=(16,))
    assert_type(graph.node("conv").arguments, dict[str, Any])
    print(len(graph), [node.kernel for node in graph], graph.copy().inputs["x"].channels)
    net = mpscnn.Network(graph, dtype="float16", mean=0.5, std=[0.5] * 4, device=mpscnn.Device())
    net.input_layout = {"x": "NHWC"}
    assert_type(net.device, mpscnn.Device)
    assert_type(net.dtype, str)
    y = net(x, out=None)
    for y in net.stream([x, x], in_flight=2, progress=lambda done, total: print(done, total)):
        print(y.shape)
    with net.stream(x for _ in range(3)) as stream:
        print(next(stream))
    with mpscnn.CommandBuffer() as cb:
        net.encode(cb, image, out=[None])


    async def serve() -> None:
        print(await net.apredict(x=x))


    with mpscnn.profile(per_kernel=False) as profile:
        net(x)
    assert_type(profile.table(), str)
    assert_type(profile.events[0].duration, float)
    assert_type(mpscnn.memory.peak(net.device) - mpscnn.memory.current(), int)
    mpscnn.memory.reset()
    try:
        assert_type(mpscnn.load(Path("model.onnx"), input_shapes={"x": (1, 3, 224, 224)}), mpscnn.Network)
    except mpscnn.UnsupportedOperatorError as error:
        assert_type(error.nodes, list[tuple[str, str, str]])
    except mpscnn.ImportError as error:
        print(error)
    print(mpscnn.importing.read({"weight": x}, architecture="resnet18"))
"""

# One error per line.
BAD = """
    import numpy as np

    import mpscnn

    x = np.zeros((1, 8, 6, 4), np.float32)
    conv = mpscnn.Convolution(x)
    mpscnn.Convolution()  # [call-arg]
    mpscnn.Convolution(x, None, "OIHW")  # [call-arg, misc]
    mpscnn.Convolution(x, layout="OIWH")  # [arg-type]
    mpscnn.Convolution(x, stride=1.5)  # [arg-type]
    mpscnn.Convolution(x, stride=(1, 1, 1))  # [arg-type]
    mpscnn.Convolution(x, padding="full")  # [arg-type]
    mpscnn.Convolution(x, activation="selu")  # [arg-type]
    mpscnn.Convolution(x, dilatation=2)  # [call-arg]
    mpscnn.Convolution(object())  # [arg-type]
    mpscnn.Convolution([[1.0]])  # [arg-type]
    mpscnn.FullyConnected(x, stride=2)  # [call-arg]
    mpscnn.Neuron("selu")  # [arg-type]
    mpscnn.NeuronDescriptor("selu")  # [arg-type]
    mpscnn.NeuronReLU("0.1")  # [arg-type]
    mpscnn.PoolingMaximum  # [attr-defined]
    mpscnn.Add(offset=(0, 0))  # [call-arg]
    mpscnn.Add().offset = (0, 0)  # [attr-defined]
    mpscnn.NeuronGradient("selu")  # [arg-type]
    mpscnn.kernel(3)  # [call-overload]
    mpscnn.reorder(x, "OIHW", "WHIO")  # [call-overload]
    conv.edge_mode = "mirror"  # [assignment]
    conv.edgemode = "zero"  # [attr-defined]
    conv.clip_rect = (0, 0, 4, 4)  # [assignment]
    conv.encode(x, x)  # [call-overload]
    conv("x.npy")  # [call-overload]
    conv(x, y=x)  # [call-overload]
    mpscnn.Image(4)  # [arg-type]
    mpscnn.Image((4, 4, 4))  # [arg-type]
    mpscnn.Image.from_array(x, copy="yes")  # [arg-type]
    mpscnn.CommandBuffer().status = "completed"  # [misc]
    mpscnn.CommandBuffer().add_completed_handler(lambda buffer: None)  # [arg-type, misc]
    number: int = conv(x)  # [assignment]
    mpscnn.Buffer()  # [call-arg]
    mpscnn.ConvolutionDescriptor(3, 4, 8, 1)  # [call-arg, misc]
    graph = mpscnn.Graph()
    graph.input("x", channels="3")  # [arg-type]
    graph.input("x", layout=None)  # [arg-type]
    graph.add("NeuronReLU", "x")  # [arg-type]
    graph.add(3)  # [arg-type]
    graph.output("x")  # [arg-type]
    graph.outptu  # [attr-defined]
    mpscnn.Network()  # [call-arg]
    net = mpscnn.Network("model.onnx")  # [arg-type]
    net.predict(x)  # [attr-defined]
    net.device = None  # [misc]
    net.input_layout = 3  # [assignment]
    net.stream(3)  # [arg-type]
    net.encode(mpscnn.CommandBuffer(), x)  # [arg-type]
    mpscnn.load("x.onnx", architecture=3)  # [arg-type]
    mpscnn.memory.peak("gpu")  # [arg-type]
    mpscnn.profile(True)  # [call-arg, misc]
"""


def test_right_program_passes_mypy(tmp_path: Path) -> None:
    program = tmp_path / "right.py"
    program.write_text(textwrap.dedent(GOOD))
    result = run_mypy("--strict", *CONFIG, program)
    assert result.returncode == 0, result.stdout + result.stderr


def test_each_wrong_line_fails_mypy(tmp_path: Path) -> None:
    program = tmp_path / "wrong.py"
    text = textwrap.dedent(BAD)
    program.write_text(text)
    result = run_mypy("--strict", *CONFIG, program)
    found: dict[int, set[str]] = {}
    for line, code in re.findall(r"wrong\.py:(\d+): error: .*\[([\w-]+)\]$", result.stdout, re.MULTILINE):
        found.setdefault(int(line), set()).add(code)
    wanted = {
        number: set(comment[1].split(", "))
        for number, line in enumerate(text.splitlines(), 1)
        if (comment := re.search(r"# \[(.*)\]$", line))
    }
    source = dict(enumerate(text.splitlines(), 1))
    assert {source[line] for line in wanted if line not in found} == set(), "lines that a checker should refuse"
    assert {source[line] for line in found if line not in wanted} == set(), "lines that a checker should take"
    # The code of an error may depend on mypy's version.
    assert [source[line] for line, codes in found.items() if not codes & wanted[line]] == []
