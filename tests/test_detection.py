# SPDX-License-Identifier: Apache-2.0
"""mpscnn.detection: non-max suppression and YOLO's predictions, against loops; examples/detect.py with a photograph."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import mpscnn
from mpscnn.detection import non_max_suppression, yolo_detections

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def random_boxes(rng: np.random.Generator, count: int, side: float = 100) -> np.ndarray:
    corner = rng.uniform(0, side, (count, 2))
    return np.concatenate([corner, corner + rng.uniform(1, side / 3, (count, 2))], 1).astype(np.float32)


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    width, height = (max(0.0, min(a[i + 2], b[i + 2]) - max(a[i], b[i])) for i in (0, 1))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return width * height / (sum(areas) - width * height)


def by_loop(boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray, threshold: float) -> list[int]:
    kept: list[int] = []
    for i in sorted(range(len(boxes)), key=lambda i: -scores[i]):
        if all(classes[i] != classes[j] or overlap(boxes[i], boxes[j]) <= threshold for j in kept):
            kept.append(i)
    return kept


@pytest.mark.parametrize("threshold", [0, 0.3, 0.5, 0.9, 1])
@pytest.mark.parametrize("classes", [1, 3])
def test_against_a_loop(threshold: float, classes: int) -> None:
    rng = np.random.default_rng(0)
    for count in (1, 2, 40, 300):
        boxes, kinds = random_boxes(rng, count), rng.integers(classes, size=count)
        scores = rng.integers(1, 40, count).astype(np.float32) / 40  # some are equal
        found = non_max_suppression(boxes, scores, kinds, iou_threshold=threshold, limit=count)
        assert found.tolist() == by_loop(boxes, scores, kinds, threshold)
        assert found.dtype == np.int64


def test_limit_and_nothing() -> None:
    boxes = np.array([[i, 0, i + 0.5, 1] for i in range(10)], np.float32)
    assert non_max_suppression(boxes, np.arange(10), limit=3).tolist() == [9, 8, 7]
    assert non_max_suppression(boxes, np.arange(10), limit=0).tolist() == []
    assert non_max_suppression(np.zeros((0, 4)), []).tolist() == []
    # Boxes without an area overlap nothing.
    assert non_max_suppression([[1, 1, 1, 1], [1, 1, 1, 1]], [1, 2], iou_threshold=0).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0, 0, 1]], [1]), r"boxes has shape \(1, 3\), not \(n, 4\)"),
        (([[0, 0, 1, 1]], [1, 2]), r"scores has shape \(2,\); boxes needs \(1,\)"),
        (([[0, 0, 1, 1]], [1], [1, 2]), r"classes has shape \(2,\); boxes needs \(1,\)"),
        (([[0, 0, 1, np.nan]], [1]), "boxes or scores has NaN"),
    ],
)
def test_refusals(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        non_max_suppression(*arguments)


def test_refused_thresholds_and_predictions() -> None:
    for value in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match=r"iou_threshold \(.*\) is not in \[0, 1\]"):
            non_max_suppression([[0, 0, 1, 1]], [1], iou_threshold=value)
    with pytest.raises(ValueError, match=r"limit \(-1\)"):
        non_max_suppression([[0, 0, 1, 1]], [1], limit=-1)
    with pytest.raises(ValueError, match=r'form \("v6"\) is neither "v8" nor "v5"'):
        yolo_detections(np.zeros((1, 5, 1)), form="v6")
    with pytest.raises(ValueError, match=r'shape \(1, 4, 9\); form "v8" needs \(n, 4 \+ classes, a\)'):
        yolo_detections(np.zeros((1, 4, 9)))
    with pytest.raises(ValueError, match=r'shape \(9, 5\); form "v5" needs \(n, a, 5 \+ classes\)'):
        yolo_detections(np.zeros((9, 5)), form="v5")
    with pytest.raises(ValueError, match="predictions has NaN"):
        yolo_detections(np.full((1, 6, 2), np.nan))


@pytest.mark.parametrize("form", ["v8", "v5"])
def test_predictions(form: str) -> None:
    """As many as YOLO11 has at 640 x 640, with COCO's classes; two images."""
    rng = np.random.default_rng(0)
    count, classes = 8400, 80
    boxes = random_boxes(rng, 2 * count, 640).reshape(2, count, 4)
    centred = np.concatenate([(boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]], 2)
    scores = rng.random((2, count, classes), np.float32) ** 40
    if form == "v8":
        predictions = np.concatenate([centred, scores], 2).transpose(0, 2, 1)
    else:
        objectness = rng.random((2, count, 1), np.float32)
        predictions = np.concatenate([centred, objectness, scores], 2)
        scores = scores * objectness
    found = yolo_detections(predictions, form=form, score_threshold=0.6, limit=10_000)
    for one, box, score in zip(found, boxes, scores, strict=True):
        best = np.flatnonzero(score.max(1) > 0.6)
        kept = best[by_loop(box[best], score.max(1)[best], score.argmax(1)[best], 0.45)]
        assert 10 < len(kept) < len(best)
        assert len(one) == len(kept)
        np.testing.assert_allclose(one.boxes, box[kept], atol=1e-3)
        np.testing.assert_array_equal(one.scores, score.max(1)[kept])
        np.testing.assert_array_equal(one.classes, score.argmax(1)[kept])
    assert [len(one) for one in yolo_detections(predictions, form=form, score_threshold=0.9, limit=7)] == [7, 7]
    assert [len(one) for one in yolo_detections(predictions, form=form, score_threshold=1)] == [0, 0]


# ---- examples/detect.py PICTURE


class Detector(nn.Module):
    """As YOLO: boxes in pixels of the input and scores of two classes, here the same for every picture."""

    def __init__(self) -> None:
        super().__init__()
        self.names = {0: "cat", 1: "dog"}
        self.first = nn.Conv2d(3, 6, 1)
        nn.init.zeros_(self.first.weight)
        self.first.bias.data = torch.tensor([32.0, 40.0, 16.0, 20.0, 0.1, 0.75])  # centre, extents, scores

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(nn.functional.avg_pool2d(x, 16)).flatten(2)


@pytest.fixture
def detect(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "yolo", raising=False)
    specification = importlib.util.spec_from_file_location("detect", EXAMPLES / "detect.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    Image.new("RGB", (200, 100), "white").save(tmp_path / "picture.png")
    return tmp_path / "picture.png"


def test_a_photograph(
    detect: types.ModuleType, picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """64 pixels of the network are 200 of the picture, whose top is at 16."""
    mpscnn.load(Detector().eval(), input_shapes=(1, 3, 64, 64)).save(tmp_path / "net.mpscnn")
    output = tmp_path / "out" / "boxes.png"
    arguments = [picture, "--weights", tmp_path / "net.mpscnn", "--size", 64, "--output", output]
    assert detect.main([*map(str, arguments), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["objects"]
    assert found == {"class": 1, "name": "class 1", "score": 0.75, "box": [75.0, 43.8, 125.0, 100.0]}
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    assert detect.main([*map(str, arguments), "--classes", str(tmp_path / "names.txt")]) == 0
    assert "75.0%  dog" in capsys.readouterr().out
    with Image.open(output) as drawn:
        assert drawn.size == (200, 100)
        assert drawn.convert("RGB").getpixel((75, 70)) == detect.COLOURS[1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("is_free", [False, True])
def test_an_onnx_model(
    detect: types.ModuleType, picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], is_free: bool
) -> None:
    """A fixed size is that of the file; a free one is --size."""
    pytest.importorskip("onnx")
    torch.onnx.export(
        Detector().eval(),
        (torch.rand(1, 3, 64, 64),),
        tmp_path / "net.onnx",
        dynamo=False,
        input_names=["images"],
        output_names=["boxes"],
        dynamic_axes={"images": {2: "h", 3: "w"}, "boxes": {2: "a"}} if is_free else None,
    )
    arguments = [picture, "--weights", tmp_path / "net.onnx", "--output", tmp_path / "boxes.png", "--json"]
    assert detect.main([*map(str, arguments), *(["--size", "64"] if is_free else [])]) == 0
    (found,) = json.loads(capsys.readouterr().out)["objects"]
    assert (found["class"], found["box"]) == (1, [75.0, 43.8, 125.0, 100.0])


@pytest.fixture
def ultralytics(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of that name, whose only layer is Detector."""
    for name in ("ultralytics", "ultralytics.nn", "ultralytics.nn.tasks"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setattr(sys.modules["ultralytics.nn.tasks"], "Detector", Detector, raising=False)
    monkeypatch.setattr(sys.modules["ultralytics.nn.tasks"], "system", os.system, raising=False)
    monkeypatch.setattr(Detector, "__module__", "ultralytics.nn.tasks")


@pytest.mark.usefixtures("ultralytics")
def test_a_file_of_ultralytics(
    detect: types.ModuleType, picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"model": Detector().half(), "ema": None, "epoch": -1}, tmp_path / "net.pt")
    arguments = [picture, "--weights", tmp_path / "net.pt", "--size", 64, "--output", tmp_path / "boxes.png", "--json"]
    assert detect.main(list(map(str, arguments))) == 0
    (found,) = json.loads(capsys.readouterr().out)["objects"]
    assert (found["name"], found["score"]) == ("dog", 0.75)


class Attack:
    def __init__(self, function: Any, argument: str) -> None:
        self.call = function, (argument,)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.usefixtures("ultralytics")
def test_files_that_would_run_code(
    detect: types.ModuleType, picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A function of the system, and one that a module of ultralytics happens to have."""
    attack = f"touch {tmp_path / 'attacked'}"
    torch.save({"model": Attack(os.system, attack)}, tmp_path / "1.pt")
    own = (tmp_path / "1.pt").read_bytes().replace(b"posix\nsystem", b"ultralytics.nn.tasks\nsystem")
    (tmp_path / "2.pt").write_bytes(own)
    (tmp_path / "3.pt").write_bytes(pickle.dumps({"model": Attack(os.system, attack)}))
    (tmp_path / "4.pt").write_bytes(b"nonsense")
    torch.save({"weights": 3}, tmp_path / "5.pt")
    for number in range(1, 6):
        arguments = [picture, "--weights", tmp_path / f"{number}.pt", "--output", tmp_path / "boxes.png"]
        assert detect.main(list(map(str, arguments))) == 1
        message = capsys.readouterr().err
        assert f"{number}.pt" in message
        assert number > 1 or "has an object of posix.system, which is no layer" in message
    assert not (tmp_path / "attacked").exists()


def test_errors_of_the_photograph(
    detect: types.ModuleType, picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def message(*arguments: object) -> str:
        assert detect.main(list(map(str, arguments))) == 1
        return capsys.readouterr().err

    assert "There are no weights" in message(picture)
    assert 'the picture "nothing.png" cannot be read' in message("nothing.png", "--weights", "net.onnx")
    assert '"net.onnx" cannot be loaded' in message(picture, "--weights", "net.onnx")
    mpscnn.load(nn.Conv2d(3, 4, 1), input_shapes=(1, 3, 32, 32)).save(tmp_path / "net.mpscnn")
    found = message(picture, "--weights", tmp_path / "net.mpscnn", "--size", 32)
    assert "outputs of (1, 4, 32, 32), and none of shape (1, 4 + classes, boxes)" in found
