# SPDX-License-Identifier: Apache-2.0
"""Modules with odd arguments, and damaged programs of torch.export: PyTorch's result, or an mpscnn.ImportError.

tests/fuzzing.py describes long searches; they write failures into the corpus: a program of `PROGRAMS` and the changes
to it, as JSON.
"""

from __future__ import annotations

import contextlib
import functools
import json
import random
import time
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from layer_cases import Case, outcome
from torch import nn
from torch._subclasses import FakeTensorMode
from torch_support import RELATIVE, Function, core_aten, leaves, randomize

import mpscnn
from fuzzing import SECONDS, Fuzz, Seeds
from mpscnn.importing import torch_export

CORPUS = Path(__file__).with_name("corpus") / "torch"
SEEDS = Seeds(CORPUS.with_name("modules.txt"))
fuzz = Fuzz()
F = nn.functional


def close(found: list[np.ndarray], expected: list[torch.Tensor]) -> None:
    """Assert equal values, infinities and NaN included; within 1e-4 of the max in float32."""
    assert len(found) == len(expected)
    for y, reference in zip(found, expected, strict=True):
        assert y.shape == tuple(reference.shape)
        values = reference.float().numpy()
        finite = np.abs(values[np.isfinite(values)])
        if finite.size < values.size or finite.max(initial=0) > 1e30:
            return  # whether sums overflow depends on their order
        np.testing.assert_allclose(y, values, rtol=RELATIVE, atol=RELATIVE * float(finite.max(initial=1e-6)))


def results_of(net: mpscnn.Network, inputs: tuple[torch.Tensor, ...]) -> list[np.ndarray]:
    results = net(*(x.numpy() for x in inputs))
    return [results] if isinstance(results, np.ndarray) else list(results)


# ---- modules


def attempt_module(seed: int) -> str:
    case = Case(seed, is_damaged=False)
    if case.modules is None:
        return "unknown"
    try:
        net = mpscnn.load(nn.Sequential(*case.modules), input_shapes=case.shape)
    except mpscnn.ImportError:
        return "refused"
    return outcome(net, case)


@fuzz.seeds(25)
def test_modules(seed: int) -> None:
    with SEEDS.keep(seed):
        attempt_module(seed)


def test_corpus_of_modules() -> None:
    for seed in SEEDS:
        attempt_module(seed)


# ---- damaged programs


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, 2, 1)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding="same", groups=8)
        self.up = nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1)
        self.prelu = nn.PReLU(4)
        self.group = nn.GroupNorm(2, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = F.relu(self.norm(self.first(x)))
        y = self.up(self.depthwise(x) + x)
        return F.max_pool2d(self.group(self.prelu(y)), 3, 2, 1), F.avg_pool2d(y, 2, ceil_mode=True)


class Shapes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(24, 6)
        self.norm = nn.LayerNorm(6)

    def forward(self, x: torch.Tensor) -> Any:
        a, b = x.chunk(2, 1)
        y = torch.cat([a * 2, F.pad(b, (1, 0, 0, 0))[..., 1:]], 1).transpose(1, 2).permute(0, 2, 1, 3)
        z = self.norm(self.linear(F.adaptive_avg_pool2d(y, (3, 2)).flatten(1)))
        return {"z": z.softmax(1), "s": F.pixel_shuffle(x, 2), "u": F.interpolate(a, scale_factor=2.0), "m": x.mean(1)}


def arithmetic(x: torch.Tensor, y: torch.Tensor, c: torch.Tensor) -> Any:
    z = torch.clamp(x + c.reshape(1, 4, 1, 1) * 2, -1, 3).pow(2)
    z = torch.where(torch.ones(1) > 0, z, y) / (y.abs() + 1)
    parts = torch.split(z, [1, 3], 1)
    return parts[1].sum((2, 3)), z.squeeze(-1).unsqueeze(-1).reshape(x.shape[0], -1), z.amax(1, True), z[:, 1:3].flip(1)


def vectors(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = torch.addmm(torch.arange(5.0), x, w)
    y = F.gelu(y) - F.elu(y) + F.hardtanh(y, -0.5, 0.5)
    return y.reshape(-1, 1, 5).expand(-1, 3, -1), torch.stack([y, y.neg()], 1), y.index_select(1, torch.tensor([2, 0]))


def sequences(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = F.conv1d(x, w, None, 1, 1)
    return F.max_pool1d(F.leaky_relu(y), 2), F.instance_norm(y), y.var(2), F.adaptive_max_pool1d(y, 3)


@functools.cache
def programs() -> dict[str, tuple[torch.export.ExportedProgram, tuple[torch.Tensor, ...]]]:
    """Return small programs with many operators, and inputs for each."""
    torch.manual_seed(0)
    image, vector = torch.randn(2, 4, 6, 4), torch.randn(2, 3)
    made: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {
        "convolutions": (Convolutions(), (torch.randn(2, 3, 9, 8),)),
        "shapes": (Shapes(), (image,)),
        "arithmetic": (Function(arithmetic, c=torch.randn(4)), (image, torch.randn(2, 4, 6, 4))),
        "vectors": (Function(vectors, w=torch.randn(3, 5)), (vector,)),
        "sequences": (Function(sequences, w=torch.randn(6, 4, 3)), (torch.randn(2, 4, 9),)),
    }
    found = {}
    with torch_export.quiet():
        for name, (module, inputs) in made.items():
            program = torch.export.export(randomize(module), inputs)
            found[name] = program, inputs
            found[name + "_core"] = core_aten(program), inputs
    return found


NUMBERS = (0, 1, -1, 2, 3, 4, 5, 7, -2, 64, 255, 2**16, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
ODD: tuple[Any, ...] = (
    None, True, False, 0.0, -1.0, 0.5, 2.0, 1e-30, 1e30, "nan", "inf", "-inf", "", "same", "valid", "reflect", "x", [],
    [0], [1, 1], [2, 1], [-1, -1], [0, 2, 1, 3], [1, 2, 3], [[1, 2], [0, 1]], {"dtype": "float32"}, {"dtype": "int64"},
    {"dtype": "float64"}, {"dtype": "bool"}, {"huge": 100},
)  # fmt: skip


def changes(program: torch.export.ExportedProgram, rng: random.Random) -> list[dict[str, Any]]:
    """Return random changes to the program, as JSON."""
    found = []
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        node = rng.choice(nodes)
        kind = rng.choice(["argument"] * 8 + ["drop", "add", "target", "tensor", "meta", "output"])
        change: dict[str, Any] = {"node": node.name}
        if kind == "argument" and node.args:
            place = rng.randrange(len(node.args))
            change["argument"] = place
            change["value"] = value(node.args[place], nodes, rng)
            if isinstance(node.args[place], (list, tuple)) and node.args[place] and rng.random() < 0.6:
                change["part"] = rng.randrange(len(node.args[place]))
                change["value"] = value(node.args[place][change["part"]], nodes, rng)
        elif kind == "drop":
            change["drop"] = rng.randrange(len(node.args) + 1)
        elif kind == "add":
            change["add"] = value(None, nodes, rng)
        elif kind == "target":
            change["target"] = rng.choice(nodes).name
        elif kind == "tensor":
            change = {
                "tensor": rng.randrange(8),
                "shape": rng.choice([[], [0], [1], [4], [8], [3, 5], [5, 3], [0, 3], [8, 3, 3, 3], [4, 1, 1], [1] * 6]),
                "dtype": rng.choice(["float32", "float64", "float16", "bfloat16", "int64", "bool", "complex64"]),
                "fill": rng.choice([0, 1, -1, "nan", "inf", 1e30]),
            }
        elif kind == "meta":
            shape = [rng.choice(NUMBERS[:12]) for _ in range(rng.randrange(6))]
            change["meta"] = rng.choice([None, "int", [abs(extent) for extent in shape]])
        elif kind == "output":
            change = {"output": rng.choice([n.name for n in program.graph.nodes if n.op != "output"])}
        else:
            continue
        found.append(change)
    return found


def value(old: Any, nodes: list[torch.fx.Node], rng: random.Random) -> Any:
    choice = rng.random()
    if isinstance(old, (int, float)) and choice < 0.5:
        return rng.choice(NUMBERS)
    if isinstance(old, (list, tuple)) and choice < 0.5:
        return [rng.choice(NUMBERS[:9]) for _ in range(rng.randrange(5))]
    if choice < 0.75:
        return rng.choice([*NUMBERS, *ODD])
    return {"node": rng.choice(nodes).name}


class Tree:
    """The program with changes that can be undone."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self.program = program
        self.nodes = {node.name: node for node in program.graph.nodes}

    def decoded(self, text: Any) -> Any:
        if isinstance(text, dict):
            if "node" in text:
                return self.nodes[text["node"]]
            return 2 ** text["huge"] if "huge" in text else getattr(torch, text["dtype"])
        if isinstance(text, list):
            return [self.decoded(part) for part in text]
        return float(text) if text in ("nan", "inf", "-inf") else text

    def change(self, row: dict[str, Any]) -> None:
        if "tensor" in row:
            names = sorted(self.program.state_dict)
            if names:
                tensor = torch.full(row["shape"], self.decoded(row["fill"]), dtype=torch.float32)
                self.program.state_dict[names[row["tensor"] % len(names)]] = tensor.to(getattr(torch, row["dtype"]))
            return
        if "output" in row:
            output = self.program.graph.output_node()
            output.args = ((self.nodes[row["output"]], *output.args[0][1:]),)
            return
        node = self.nodes[row["node"]]
        if "argument" in row:
            args = list(node.args)
            if row["argument"] < len(args):
                old = args[row["argument"]]
                if "part" in row and isinstance(old, (list, tuple)) and row["part"] < len(old):
                    old = list(old)
                    old[row["part"]] = self.decoded(row["value"])
                    args[row["argument"]] = old
                else:
                    args[row["argument"]] = self.decoded(row["value"])
            node.args = tuple(args)
        elif "drop" in row:
            node.args = node.args[: row["drop"]]
        elif "add" in row:
            node.args = (*node.args, self.decoded(row["add"]))
        elif "target" in row:
            node.target = self.nodes[row["target"]].target
        elif row["meta"] is None:
            node.meta.pop("val", None)
        else:
            node.meta["val"] = 3 if row["meta"] == "int" else torch.empty(row["meta"], device="meta")

    def run(self, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor] | None:
        """Return PyTorch's results, and write their shapes into the nodes; None if PyTorch refuses."""
        state = {**self.program.state_dict, **self.program.constants}
        targets = [spec.target for spec in self.program.graph_signature.input_specs if spec.target is not None]
        given = [*(state[target] for target in targets), *inputs]
        try:
            with torch_export.quiet(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
                fakes = Recorder(self.program.graph_module)
                fakes.run(*map(mode.from_tensor, given))
            if any(f.numel() > 1 << 20 for f in leaves(list(fakes.found.values())) if isinstance(f, torch.Tensor)):
                return None
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = leaves(torch.fx.Interpreter(self.program.graph_module).run(*given))
        except Exception:
            return None
        for node, fake in fakes.found.items():
            node.meta["val"] = fake
        return result


class Recorder(torch.fx.Interpreter):
    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.found: dict[torch.fx.Node, Any] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        self.found[n] = super().run_node(n)
        return self.found[n]


@contextlib.contextmanager
def changed(program: torch.export.ExportedProgram, rows: list[dict[str, Any]]) -> Iterator[Tree]:
    tree = Tree(program)
    before = [(node, node.target, node.args, node.kwargs, dict(node.meta)) for node in program.graph.nodes]
    state = dict(program.state_dict)
    try:
        for row in rows:
            tree.change(row)
        yield tree
    finally:
        program.state_dict.update(state)
        for node, target, args, kwargs, meta in before:
            node.target, node.args, node.kwargs, node.meta = target, args, kwargs, meta


def attempt(name: str, rows: list[dict[str, Any]]) -> str:
    """Read and run the program; return "read", "refused", or "unknown" if PyTorch refuses a program that was read."""
    program, inputs = programs()[name]
    with changed(program, rows) as tree:
        is_damaged = any("meta" in row for row in rows)
        expected = None if is_damaged else tree.run(inputs)
        start = time.process_time()
        try:
            net = mpscnn.load(program)
        except mpscnn.ImportError:
            assert time.process_time() - start < 20
            return "refused"
        assert time.process_time() - start < 20
    if _has_great_numbers(rows) or expected is None or any(result.dtype != torch.float32 for result in expected):
        return "unknown"
    if any(result.numel() == 0 for result in expected):
        return "unknown"
    close(results_of(net, inputs), expected)
    return "read"


def _has_great_numbers(value: Any) -> bool:
    """Sums with them lose all other values in float32."""
    if isinstance(value, (list, dict)):
        return any(map(_has_great_numbers, value.values() if isinstance(value, dict) else value))
    return value in ("nan", "inf", "-inf") or (isinstance(value, (int, float)) and abs(value) > 1000)


def keep(name: str, rows: list[dict[str, Any]]) -> None:
    CORPUS.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"program": name, "changes": rows})
    (CORPUS / f"{zlib.crc32(text.encode()):08x}.json").write_text(text + "\n")


@pytest.mark.parametrize("name", ["convolutions", "shapes", "arithmetic", "vectors", "sequences"])
@pytest.mark.parametrize("form", ["", "_core"])
def test_the_programs_are_read(name: str, form: str) -> None:
    assert attempt(name + form, []) == "read"


@fuzz.seeds(400)
def test_damaged_programs(seed: int) -> None:
    rng = random.Random(seed)
    name = rng.choice(sorted(programs()))
    rows = changes(programs()[name][0], rng)
    try:
        attempt(name, rows)
    except Exception:
        if SECONDS:
            keep(name, rows)
        raise


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.json")), ids=lambda path: path.stem)
def test_corpus(path: Path) -> None:
    row = json.loads(path.read_text())
    attempt(row["program"], row["changes"])


def test_there_is_a_corpus() -> None:
    assert list(CORPUS.glob("*.json"))
