# SPDX-License-Identifier: Apache-2.0
"""Files of torch.export.save: the network equals the exported program, and nothing in a file is executed."""

from __future__ import annotations

import concurrent.futures
import contextlib
import io
import json
import os
import pickle
import random
import shutil
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_support import randomize

import mpscnn
from architectures import build_small, example
from mpscnn.importing import mapped_files, pt2_files
from mpscnn.loading import read

AUTO = torch.export.Dim.AUTO
F = nn.functional

Files = dict[str, bytes]  # files of an archive, by name within its folder


class Small(nn.Module):
    """A convolution, a constant and two results."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.register_buffer("scale", torch.rand(4, 1, 1))

    def forward(self, x: torch.Tensor) -> Any:
        y = torch.relu(self.conv(x)) * self.scale + torch.arange(4.0).view(1, 4, 1, 1)
        return {"image": y, "mean": y.mean((2, 3))}


class Region(nn.Module):
    """A submodule under no_grad, arithmetic of extents, two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> Any:
        y = self.conv(x)
        with torch.no_grad():
            y = F.interpolate(F.max_pool2d(y, 2), size=(x.shape[2], x.shape[3]), mode="nearest")
        return torch.cat([y + other, F.gelu(other, approximate="tanh")], 1), y


class ChannelsLast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def exported(module: nn.Module, *inputs: torch.Tensor, dynamic: bool = False) -> torch.export.ExportedProgram:
    shapes = tuple({0: AUTO, 2: AUTO, 3: AUTO} for _ in inputs) if dynamic else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(module.eval(), inputs, dynamic_shapes=shapes)


def save(program: torch.export.ExportedProgram, path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(program, path)
    return path


def same(path: Path, program: torch.export.ExportedProgram, *inputs: torch.Tensor, **options: Any) -> None:
    """Assert that the file's network computes the program's results bit by bit."""
    net, reference = mpscnn.load(path, **options), mpscnn.load(program, **options)
    # A file's guards have no places in code, so conditions of PyTorch's own code are among those of a file.
    ours, theirs = ({name: replace(spec, sizes="") for name, spec in one.inputs.items()} for one in (net, reference))
    assert (ours, net.outputs) == (theirs, reference.outputs)
    assert [(n.kernel, n.name, n.origin) for n in net.graph.nodes] == [
        (n.kernel, n.name, n.origin) for n in reference.graph.nodes
    ]
    arrays = [x.numpy() for x in inputs]
    found, expected = (r if isinstance(r, tuple) else (r,) for r in (net(*arrays), reference(*arrays)))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


# ---- the same networks


@pytest.mark.parametrize(
    ("name", "dynamic"),
    [("mobilenet_v2", False), ("resnet18", False), ("unet_bilinear", True), ("style_transfer", True)],
)
def test_architectures(name: str, dynamic: bool, tmp_path: Path) -> None:
    module, x = build_small(name), example(name, batch=2)
    program = exported(module, x, dynamic=dynamic)
    same(save(program, tmp_path / "net.pt2"), program, x)


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "dynamic"])
def test_regions_and_several_inputs(dynamic: bool, tmp_path: Path) -> None:
    inputs = torch.rand(2, 3, 16, 12), torch.rand(2, 4, 16, 12)
    program = exported(randomize(Region()), *inputs, dynamic=dynamic)
    same(save(program, tmp_path / "net.pt2"), program, *inputs)


def test_names_of_results_and_constants(tmp_path: Path) -> None:
    x = torch.rand(2, 3, 16, 12)
    program = exported(randomize(Small()), x)
    path = save(program, tmp_path / "net.pt2")
    same(path, program, x)
    assert list(mpscnn.load(path).outputs) == ["image", "mean"]


def test_other_order_of_axes(tmp_path: Path) -> None:
    x = torch.rand(2, 16, 12, 3)
    program = exported(randomize(ChannelsLast()), x)
    same(save(program, tmp_path / "net.pt2"), program, x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_two_bytes(dtype: torch.dtype, tmp_path: Path) -> None:
    x = torch.rand(2, 3, 16, 12)
    program = exported(randomize(Small()).to(dtype), x.to(dtype))
    same(save(program, tmp_path / "net.pt2"), program, x, dtype="float16")


def test_after_decompositions(tmp_path: Path) -> None:
    x = example("resnet18", batch=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = exported(build_small("resnet18"), x).run_decompositions()
    same(save(program, tmp_path / "net.pt2"), program, x)


def test_memory_that_is_not_written_is_zero(tmp_path: Path) -> None:
    class Unwritten(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.empty(3, 1, 1)

    x = torch.rand(2, 3, 16, 12)
    path = save(exported(Unwritten(), x), tmp_path / "net.pt2")
    np.testing.assert_array_equal(mpscnn.load(path)(x.numpy()), x.numpy())


def test_shared_and_transposed_weights(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(6, 5), nn.Linear(6, 5, bias=False)
            self.second.weight = self.first.weight
            self.register_buffer("table", torch.rand(5, 6).t())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.first(x) + self.second(x)) @ self.table.t()

    x = torch.rand(3, 6)
    program = exported(Tied(), x)
    same(save(program, tmp_path / "net.pt2"), program, x)


def test_a_program_of_another_device_is_read(small: Path, tmp_path: Path) -> None:
    def edit(files: Files) -> None:
        for name in (PROGRAM, WEIGHTS):
            files[name] = files[name].replace(b'"type": "cpu", "index": null', b'"type": "cuda", "index": 0')
            assert b"cuda" in files[name]

    x = np.random.default_rng(0).random((1, 3, 16, 12), np.float32)
    for one, other in zip(mpscnn.load(changed(small, tmp_path, edit))(x), mpscnn.load(small)(x), strict=True):
        np.testing.assert_array_equal(one, other)


def test_arguments_and_sentences(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match=r"input_shapes was given; exported programs take none\."):
        mpscnn.load(small, input_shapes=(1, 3, 16, 12))
    with pytest.raises(mpscnn.InvalidModelError, match="cannot be opened"):
        mpscnn.load(tmp_path / "none.pt2")
    other = tmp_path / "NET.PT2"
    shutil.copy(small, other)
    assert list(mpscnn.load(str(other)).inputs) == ["x"]
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(mpscnn.MissingPackageError, match="pip install torch"):
        mpscnn.load(small)


def test_mapped_weights_are_the_files(small: Path, tmp_path: Path) -> None:
    before = small.read_bytes()
    graph = read(small)
    weight = next(node.arguments["weight"] for node in graph.nodes if node.kernel == "Convolution")
    weight[:] = 0  # neither an error of the system nor a change of the file
    assert small.read_bytes() == before
    x = np.ones((1, 3, 16, 12), np.float32)
    expected = mpscnn.load(small)(x)
    net = mpscnn.load(small, mapped=False)
    small.write_bytes(bytes(len(before)))
    for one, other in zip(net(x), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_writable_pages_never_reach_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"unchanged")
    for mapped in (True, False):
        data = mapped_files.content(path, mapped=mapped, writable=True)
        data[:2] = b"xx"
        assert bytes(data) == b"xxchanged"
        assert path.read_bytes() == b"unchanged"


# ---- files that would run code


PROGRAM, INPUTS = "models/model.json", "data/sample_inputs/model.pt"
WEIGHTS, CONSTANTS = "data/weights/model_weights_config.json", "data/constants/model_constants_config.json"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return save(exported(randomize(Small()), torch.rand(2, 3, 16, 12), dynamic=True), tmp_path / "small.pt2")


def contents(path: Path) -> Files:
    with zipfile.ZipFile(path) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def changed(path: Path, folder: Path, edit: Callable[[Files], None], compression: int = zipfile.ZIP_STORED) -> Path:
    files = contents(path)
    edit(files)
    result = folder / "changed.pt2"
    with zipfile.ZipFile(result, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(f"changed/{name}", data)
    return result


def in_json(files: Files, name: str, edit: Callable[[Any], None]) -> None:
    table = json.loads(files[name])
    edit(table)
    files[name] = json.dumps(table).encode()


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (self.folder,)


def saved(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def code(folder: str) -> str:
    return f"__import__('os').mkdir('{folder}')"


def graph_of(table: Any) -> Any:
    return table["graph_module"]["graph"]


def expression(place: str) -> Callable[[Files, str], None]:
    def edit(table: Any, text: str) -> None:
        graph, value = graph_of(table), {"as_expr": {"expr_str": text, "hint": {"as_int": 2}}}
        if place in ("sizes", "strides"):
            graph["tensor_values"]["x"][place][0] = value
        elif place == "storage_offset":
            graph["tensor_values"]["x"][place] = value
        else:
            kind = place.removesuffix("_values").removeprefix("sym_")
            node = next(node for node in graph["nodes"] if "conv2d" in node["target"])
            graph["nodes"].insert(0, {**node, "target": "torch.ops.aten.sym_size.int", "name": "evil"})
            argument = {"name": "self", "arg": {"as_tensor": {"name": "x"}}, "kind": 1}
            graph["nodes"][0]["inputs"] = [argument, {"name": "dim", "arg": {"as_int": 0}, "kind": 1}]
            graph["nodes"][0]["outputs"] = [{f"as_sym_{kind}": {"as_name": "evil"}}]
            graph[place]["evil"] = {"as_expr": {"expr_str": text, "hint": None}}

    return lambda files, folder: in_json(files, PROGRAM, lambda table: edit(table, code(folder)))


def hidden_expression(files: Files, folder: str) -> None:
    """Code inside of an allowed term."""
    text = f"Add(Symbol('s0', positive=True, integer=True), Integer({code(folder)}))"
    in_json(
        files,
        PROGRAM,
        lambda table: graph_of(table)["tensor_values"]["x"]["sizes"].__setitem__(
            0, {"as_expr": {"expr_str": text, "hint": {"as_int": 2}}}
        ),
    )


def symbol_with_code(files: Files, folder: str) -> None:
    text = f"Symbol('s0', positive={code(folder)})"
    in_json(
        files,
        PROGRAM,
        lambda table: graph_of(table)["tensor_values"]["x"]["sizes"].__setitem__(
            0, {"as_expr": {"expr_str": text, "hint": {"as_int": 2}}}
        ),
    )


def pickled_inputs(files: Files, folder: str) -> None:
    files[INPUTS] = saved((((Evil(folder),)), {}))


def pickled_weight(files: Files, folder: str) -> None:
    def edit(table: Any) -> None:
        table["config"]["conv.bias"].update(use_pickle=True, tensor_meta=None)
        files["data/weights/" + table["config"]["conv.bias"]["path_name"]] = saved(Evil(folder))

    in_json(files, WEIGHTS, edit)


def constant_of(path_name: str, data: Callable[[Any], bytes]) -> Callable[[Files, str], None]:
    def edit(files: Files, folder: str) -> None:
        entry = {"path_name": path_name, "is_param": False, "use_pickle": True, "tensor_meta": None}
        in_json(files, CONSTANTS, lambda table: table["config"].update(evil=entry))
        files[f"data/constants/{path_name}"] = data(Evil(folder))

    return edit


def legacy(files: Files, folder: str) -> None:
    files["data/weights/model.pt"] = saved({"conv.weight": Evil(folder)})


def call_specification(
    kind: str, context: Callable[[str], Any], spec: str = "out_spec"
) -> Callable[[Files, str], None]:
    """`context` maps the name of a module that creates the folder on import."""

    def edit(files: Files, folder: str) -> None:
        module = Path(folder).parent / "modules" / f"{Path(folder).name}_module.py"
        module.parent.mkdir(exist_ok=True)
        module.write_text(f"import enum, os\nos.mkdir({folder!r})\nclass E(enum.Enum):\n    A = 1\n")
        root = {"type": kind, "context": context(module.stem), "children_spec": []}
        in_json(
            files,
            PROGRAM,
            lambda table: table["graph_module"]["module_call_graph"][0]["signature"].__setitem__(
                spec, json.dumps([1, root])
            ),
        )

    return edit


def renamed(value: Any, old: str, new: str) -> Any:
    if isinstance(value, dict):
        return {renamed(key, old, new): renamed(part, old, new) for key, part in value.items()}
    if isinstance(value, list):
        return [renamed(part, old, new) for part in value]
    return new if value == old else value


def named_input(files: Files, folder: str) -> None:
    """A default value in the source text that PyTorch generates from the program and compiles."""
    files[PROGRAM] = json.dumps(renamed(json.loads(files[PROGRAM]), "x", f"x={code(folder)}")).encode()


def named_node(files: Files, folder: str) -> None:
    files[PROGRAM] = json.dumps(renamed(json.loads(files[PROGRAM]), "conv2d", f"y={code(folder)}")).encode()


def named_argument(files: Files, folder: str) -> None:
    in_json(
        files,
        PROGRAM,
        lambda table: table["graph_module"]["module_call_graph"][0]["signature"].update(
            forward_arg_names=[f"x={code(folder)}"]
        ),
    )


def named_weight(files: Files, folder: str) -> None:
    for name in (PROGRAM, WEIGHTS):
        files[name] = json.dumps(renamed(json.loads(files[name]), "conv.bias", f"conv'{code(folder)}")).encode()


def operator(target: str) -> Callable[[Files, str], None]:
    def edit(files: Files, folder: str) -> None:
        def add(table: Any) -> None:
            graph = graph_of(table)
            node = next(node for node in graph["nodes"] if "conv2d" in node["target"])
            inputs = [
                {"name": "filename", "arg": {"as_string": folder}, "kind": 1},
                {"name": "shared", "arg": {"as_bool": True}, "kind": 2},
                {"name": "size", "arg": {"as_int": 4}, "kind": 2},
            ]
            evil = {**node, "target": target, "inputs": inputs, "outputs": [{"as_tensor": {"name": "evil"}}]}
            graph["nodes"].insert(0, {**evil, "name": "evil"})
            graph["tensor_values"]["evil"] = graph["tensor_values"]["conv2d"]

        in_json(files, PROGRAM, add)

    return edit


def guards(files: Files, folder: str) -> None:
    in_json(files, PROGRAM, lambda table: table.update(guards_code=[code(folder)]))


def metadata(files: Files, folder: str) -> None:
    def edit(table: Any) -> None:
        for node in graph_of(table)["nodes"]:
            node["metadata"].update(stack_trace=f"File\n{code(folder)}\n", source_fn_stack="a,torch.os.mkdir")
        table["graph_module"]["metadata"] = {"custom": "{"}

    in_json(files, PROGRAM, edit)


def library(files: Files, folder: str) -> None:
    files["data/aotinductor/model/model.so"] = b"\x7fELF" + folder.encode()


def verifier(files: Files, folder: str) -> None:
    in_json(files, PROGRAM, lambda table: table.update(verifiers=[code(folder)]))


def enumeration(module: str) -> str:
    return json.dumps([{"__enum__": True, "fqn": f"{module}:E", "name": "A"}])


def factory(module: str) -> Any:
    return {"default_factory_module": module, "default_factory_name": "E", "dict_context": []}


# By name: the change to a file, whether torch.export.load runs the code, and mpscnn's message; None: never read.
ATTACKS: dict[str, tuple[Callable[[Files, str], None], bool, str | None]] = {
    "size": (expression("sizes"), True, "is not an expression of sizes"),
    "stride": (expression("strides"), True, "is not an expression of sizes"),
    "offset": (expression("storage_offset"), False, "is not an expression of sizes"),
    "int": (expression("sym_int_values"), True, "is not an expression of sizes"),
    "bool": (expression("sym_bool_values"), True, "is not an expression of sizes"),
    "float": (expression("sym_float_values"), True, "is not an expression of sizes"),
    "within a term": (hidden_expression, True, "is not an expression of sizes"),
    "within a symbol": (symbol_with_code, True, "is not an expression of sizes"),
    "pickled inputs": (pickled_inputs, True, None),
    "pickled weight": (pickled_weight, True, "is pickled"),
    "pickled constant": (constant_of("tensor_0", saved), True, "is pickled"),
    "opaque object": (constant_of("opaque_obj_0", pickle.dumps), True, "is pickled"),
    "custom object": (constant_of("custom_obj_0", saved), False, "is pickled"),
    "pickled weights": (legacy, True, "by an earlier PyTorch"),
    "factory": (call_specification("collections.defaultdict", factory), True, "is packed as 'collections.defaultdict'"),
    "enumeration": (call_specification("builtins.dict", enumeration), True, "is not a key of letters"),
    "enumeration of arguments": (call_specification("builtins.dict", enumeration, "in_spec"), True, "is not a name"),
    "input": (named_input, True, "is not a name of letters, digits and _"),
    "node": (named_node, False, "is not a name of letters, digits and _"),
    "argument": (named_argument, False, "is not a name of letters, digits and _"),
    "name of a weight": (named_weight, False, "is not the name of a tensor"),
    "function of Python": (operator("torch.os.mkdir"), False, "torch.os.mkdir"),
    "operator on files": (operator("torch.ops.aten.from_file.default"), False, "aten.from_file"),
    "attribute": (operator("torch.ops.aten.add.__class__"), False, "aten.add"),
    "guards": (guards, False, None),
    "metadata": (metadata, False, None),
    "library": (library, False, None),
    "verifier": (verifier, False, "is not TRAINING or ATEN"),
}


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_in_a_file_is_run(name: str, small: Path, tmp_path: Path) -> None:
    edit, _, sentence = ATTACKS[name]
    made = tmp_path / f"made_{name.replace(' ', '_')}"
    path = changed(small, tmp_path, lambda files: edit(files, str(made)))
    if sentence is None:
        x = np.random.default_rng(0).random((1, 3, 16, 12), np.float32)
        for one, other in zip(mpscnn.load(path)(x), mpscnn.load(small)(x), strict=True):
            np.testing.assert_array_equal(one, other)
    else:
        with pytest.raises(mpscnn.ImportError) as error:
            mpscnn.load(path)
        assert sentence in str(error.value)
        assert "changed.pt2" in str(error.value)
    assert not made.exists()


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize("name", [name for name, (_, runs, _) in ATTACKS.items() if runs])
def test_pytorch_runs_it(name: str, small: Path, tmp_path: Path) -> None:
    """The files of the test above really run code in PyTorch."""
    made = tmp_path / f"by_pytorch_{name.replace(' ', '_')}"
    path = changed(small, tmp_path, lambda files: ATTACKS[name][0](files, str(made)))
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.load(path)
    assert made.exists()


def texts_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each text in JSON, keys included (their paths end in None)."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield (*path, key, None)
            yield from texts_of(part, (*path, key))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from texts_of(part, (*path, place))
    elif isinstance(value, str):
        yield path


def put(table: Any, path: tuple[Any, ...], text: str) -> None:
    is_key = path[-1] is None
    *way, last = path[:-1] if is_key else path
    for step in way:
        table = table[step]
    if is_key:
        table[text] = table.pop(last)
    else:
        table[last] = text


@pytest.mark.parametrize("name", [PROGRAM, WEIGHTS])
def test_code_in_place_of_each_text(name: str, tmp_path: Path) -> None:
    """Of several texts at the same position of lists, only one is tested."""
    small = save(exported(nn.Conv2d(3, 4, 1), torch.rand(2, 3, 6, 5), dynamic=True), tmp_path / "conv.pt2")
    made, seen = tmp_path / "made", set()
    for path in texts_of(json.loads(contents(small)[name])):
        place = tuple("*" if isinstance(step, int) else step for step in path)
        if place in seen:
            continue
        seen.add(place)
        edited = changed(
            small,
            tmp_path,
            lambda files, path=path: in_json(files, name, lambda table: put(table, path, code(str(made)))),
        )
        with contextlib.suppress(mpscnn.ImportError):
            read(edited)
        assert not made.exists(), path
    assert len(seen) > 20


def test_what_to_do_about_code(small: Path, tmp_path: Path) -> None:
    path = changed(small, tmp_path, lambda files: legacy(files, "none"))
    with pytest.raises(mpscnn.ImportError, match=r"If you trust .*mpscnn\.load\(torch\.export\.load\("):
        mpscnn.load(path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Pow(Pow(Pow(Integer(9), Integer(99)), Integer(99)), Integer(99))", "is too large an expression"),
        ("Pow(Symbol('s0', integer=True), Symbol('s1', integer=True))", "is not an expression"),
        ("Max(" + ", ".join(f"Symbol('s{i}')" for i in range(60)) + ")", "is too large an expression"),
        ("Add(" * 3000, "is not text of at most"),
        ("Not(" * 300 + "Integer(1)" + ")" * 300, "is not an expression"),
        ("9**9**9**9", "is not an expression"),
        ("Symbol('s0').__class__", "is not an expression"),
        ("Integer(True)", "is not an expression"),
        ("Integer(1); 2", "is not an expression"),
        ("Float('1e9999')", "is not an expression"),
        ("lambda: 0", "is not an expression"),
        ("", "is not an expression"),
    ],
)
def test_expressions(text: str, sentence: str, small: Path, tmp_path: Path) -> None:
    def edit(table: Any) -> None:
        graph_of(table)["tensor_values"]["x"]["sizes"][0] = {"as_expr": {"expr_str": text, "hint": None}}

    path = changed(small, tmp_path, lambda files: in_json(files, PROGRAM, edit))
    with pytest.raises(mpscnn.ImportError, match=sentence):
        mpscnn.load(path)


# ---- files that are damaged, or something else


def test_shorter_files(small: Path, tmp_path: Path) -> None:
    data, path = small.read_bytes(), tmp_path / "short.pt2"
    for length in [0, 1, 4, 30, *np.linspace(100, len(data) - 1, 20).astype(int)]:
        path.write_bytes(data[:length])
        with pytest.raises(mpscnn.InvalidModelError, match=r'"[^"]*short\.pt2"'):
            mpscnn.load(path)


def test_other_files(tmp_path: Path) -> None:
    path = tmp_path / "other.pt2"
    path.write_text("no archive")
    with pytest.raises(mpscnn.InvalidModelError, match="is not a ZIP archive"):
        mpscnn.load(path)
    torch.save({"weight": torch.ones(3)}, path)
    with pytest.raises(mpscnn.InvalidModelError, match=r"not one that torch\.export\.save writes"):
        mpscnn.load(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(mpscnn.InvalidModelError, match="is not a regular file"):
        mpscnn.load(path)


def without(name: str) -> Callable[[Files], None]:
    return lambda files: files.__delitem__(name)


def tensor(**changes: Any) -> Callable[[Files], None]:
    def edit(table: Any) -> None:
        entry = table["config"]["conv.weight"]
        for key, value in changes.items():
            (entry if key in entry else entry["tensor_meta"])[key] = value

    return lambda files: in_json(files, WEIGHTS, edit)


def ints(*values: int) -> list[dict[str, int]]:
    return [{"as_int": value} for value in values]


DAMAGED: dict[str, tuple[Callable[[Files], None], str]] = {
    "no program": (without(PROGRAM), "holds no exported program"),
    "no list of weights": (without(WEIGHTS), "has no member data/weights/model_weights_config.json"),
    "no weight": (without("data/weights/weight_0"), "which the archive has not"),
    "another format": (lambda files: files.update(archive_format=b"pt3"), "not one that torch.export.save writes"),
    "another byte order": (lambda files: files.update(byteorder=b"big"), "byte order"),
    "no JSON": (lambda files: files.update({PROGRAM: b"{"}), "is not JSON"),
    "deep JSON": (lambda files: files.update({PROGRAM: b'{"a":' * 100_000}), "is not JSON"),
    "a list": (lambda files: files.update({PROGRAM: b"[]"}), "not an object of JSON"),
    "nothing": (lambda files: files.update({PROGRAM: b"{}"}), "graph_module"),
    "another version": (
        lambda files: in_json(files, PROGRAM, lambda table: table["schema_version"].update(major=99)),
        "99",
    ),
    "behind the weight": (tensor(sizes=ints(8, 3, 3, 3)), "ends behind"),
    "offset": (tensor(storage_offset={"as_int": 1}), "ends behind"),
    "repeated values": (tensor(sizes=ints(1 << 40, 3, 3, 3), strides=ints(0, 0, 0, 0)), "has more values than"),
    "negative": (tensor(sizes=ints(-4, 3, 3, 3)), "no number of 0 or more"),
    "strides": (tensor(strides=ints(27, 9, 3)), "4 sizes and 3 strides"),
    "dtype": (tensor(dtype=99), "ScalarType 99"),
    "outside": (tensor(path_name="../../../secret"), "is not a name of letters"),
    "absolute": (tensor(path_name="/etc/passwd"), "is not a name of letters"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged(name: str, small: Path, tmp_path: Path) -> None:
    edit, sentence = DAMAGED[name]
    with pytest.raises(mpscnn.InvalidModelError) as error:
        mpscnn.load(changed(small, tmp_path, edit))
    assert sentence in str(error.value)
    assert "changed.pt2" in str(error.value)


def test_many_expressions(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pt2_files, "EXPRESSIONS_LIMIT", 1000)
    with pytest.raises(mpscnn.InvalidModelError, match=r"characters, more than the limit \(1000\)"):
        mpscnn.load(small)


def test_compressed_members_are_refused(small: Path, tmp_path: Path) -> None:
    """A megabyte would expand to a gigabyte."""
    path = changed(
        small, tmp_path, lambda files: files.update({PROGRAM: bytes(1 << 30)}), compression=zipfile.ZIP_DEFLATED
    )
    assert path.stat().st_size < 2 << 20
    with pytest.raises(mpscnn.InvalidModelError, match="compressed"):
        mpscnn.load(path)


def test_members_stay_within_the_archive(small: Path, tmp_path: Path) -> None:
    """Names of members are only names: no file of that name is written or read."""
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / "net.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in contents(small).items():
            archive.writestr(f"net/{name}", data)
        archive.writestr("net/../../outside", b"x")
    before = sorted(tmp_path.rglob("*"))
    assert list(mpscnn.load(path).inputs) == ["x"]
    assert sorted(tmp_path.rglob("*")) == before


def test_threads(small: Path) -> None:
    """PyTorch's reader is shared by the process."""
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        found = [pool.submit(read, small) for _ in range(6)]
    assert len({len(graph.result().nodes) for graph in found}) == 1


def test_names_that_stand_there_twice(small: Path, tmp_path: Path) -> None:
    path = tmp_path / "twice.pt2"
    shutil.copy(small, path)
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("small/models/model.json", b"{}")
    with pytest.raises(mpscnn.InvalidModelError, match="the same names"):
        mpscnn.load(path)


def test_flipped_bytes(small: Path, tmp_path: Path) -> None:
    """Reading gives a network or an mpscnn.ImportError."""
    data, path, generator = small.read_bytes(), tmp_path / "flipped.pt2", random.Random(0)
    for _ in range(60):
        flipped = bytearray(data)
        for _ in range(generator.randint(1, 3)):
            flipped[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        path.write_bytes(flipped)
        with contextlib.suppress(mpscnn.ImportError):
            read(path)


def values_of(table: Any) -> list[tuple[Any, Any]]:
    """Return each value in JSON with its position."""
    items = table.items() if isinstance(table, dict) else enumerate(table) if isinstance(table, list) else ()
    return [place for key, part in items for place in ((table, key), *values_of(part))]


def test_changed_values(small: Path, tmp_path: Path) -> None:
    """Any value of the program replaced by another one: a network, or an mpscnn.ImportError."""
    generator, others = random.Random(1), [None, True, -1, 1 << 70, 0.5, "x", "", "../x", [], {}, [[]], {"as_int": 3}]

    def edit(table: Any) -> None:
        holder, key = generator.choice(values_of(table))
        holder[key] = generator.choice(others)

    for number in range(80):
        name = (PROGRAM, PROGRAM, WEIGHTS, CONSTANTS)[number % 4]
        with contextlib.suppress(mpscnn.ImportError):
            read(changed(small, tmp_path, lambda files, name=name: in_json(files, name, edit)))
