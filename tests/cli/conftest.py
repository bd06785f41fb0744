# SPDX-License-Identifier: Apache-2.0
"""Small ONNX models and a way to run commands on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("typer")
pytest.importorskip("rich")


@dataclass
class Ran:
    """A command's exit status and output."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def message(self) -> str:
        """Return the text on stderr, without frames and line breaks."""
        return " ".join(self.err.replace("│", " ").split())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    from mpscnn.cli import main

    monkeypatch.setenv("COLUMNS", "300")  # do not break paths of temporary folders into lines

    def call(*arguments: object) -> Ran:
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return call


def save(path: Path, nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], **weights: np.ndarray) -> Path:
    helper = onnx.helper

    def values(shapes: dict[str, Any]) -> list[Any]:
        return [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()]

    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "small", values(inputs), values(outputs), tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return path


def node(operator: str, sources: str, result: str, **attributes: Any) -> Any:
    return onnx.helper.make_node(operator, sources.split(), [result], name=f"{result}_node", **attributes)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    """(N, 3, 16, 12) to (N, 10): two convolutions, a shortcut, global pooling, a linear layer. Any height and width."""
    return save(
        tmp_path / "classifier.onnx",
        [
            node("Conv", "x w1 b1", "a", pads=[1, 1, 1, 1]),
            node("Relu", "a", "b"),
            node("Conv", "b w2", "c", pads=[1, 1, 1, 1]),
            node("Add", "b c", "d"),
            node("Relu", "d", "e"),
            node("GlobalAveragePool", "e", "f"),
            node("Flatten", "f", "g"),
            node("Gemm", "g w3 b3", "y", transB=1),
        ],
        {"x": ["n", 3, 16, 12]},
        {"y": ["n", 10]},
        w1=normal(1, 8, 3, 3, 3),
        b1=normal(2, 8),
        w2=normal(3, 8, 8, 3, 3) / 8,
        w3=normal(4, 10, 8),
        b3=normal(5, 10),
    )


@pytest.fixture
def brighter(tmp_path: Path) -> Path:
    """(N, 3, H, W) to the same shape: x / 2 + 1 / 4, channels reversed."""
    weight = np.zeros((3, 3, 1, 1), np.float32)
    weight[[0, 1, 2], [2, 1, 0]] = 0.5
    return save(
        tmp_path / "brighter.onnx",
        [node("Conv", "x w b", "y")],
        {"x": ["n", 3, 8, 8]},
        {"y": ["n", 3, 8, 8]},
        w=weight,
        b=np.full(3, 0.25, np.float32),
    )


@pytest.fixture
def two_inputs(tmp_path: Path) -> Path:
    return save(
        tmp_path / "two.onnx",
        [node("Add", "p q", "y")],
        {"p": [1, 4, 5, 5], "q": [1, 4, 5, 5]},
        {"y": [1, 4, 5, 5]},
    )


@pytest.fixture
def unsupported(tmp_path: Path) -> Path:
    return save(tmp_path / "unsupported.onnx", [node("Det", "x", "y")], {"x": [1, 3, 4, 4]}, {"y": [1, 3]})


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder with two PNG files of one size, a larger one, and a text file."""
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path / "pictures"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name, size in (("a", (16, 12)), ("b", (16, 12)), ("c", (20, 30))):
        image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).save(folder / f"{name}.png")
    (folder / "notes.txt").write_text("not a picture")
    return folder
