# SPDX-License-Identifier: Apache-2.0
"""The training examples run as documented, reach the promised accuracy, and report errors."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import mpscnn
from support import SANITIZED

pytest.importorskip("sklearn")
pytest.importorskip("skimage")
pytest.importorskip("matplotlib")

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(EXAMPLES / program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def example(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return an example as a module."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # it sets this, and should not for other tests
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module(name)


def report_of(result: subprocess.CompletedProcess[str]) -> Any:
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(result.stdout)


# ---- train.py


def test_train(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits

    report = report_of(run("train.py", "--output", tmp_path / "out", "--check-pytorch", "--json"))
    assert report["accuracy"] >= 0.98
    assert (report["trained"], report["held_out"]) == (1438, 359)
    if not SANITIZED:  # the training takes a second of it; the rest depends on the machine's load
        assert report["processor_seconds"] < 20
    assert 0 <= report["difference_from_pytorch"] <= 1e-4
    assert len(report["epochs"]) == 16
    assert report["epochs"][-1]["validation_accuracy"] == pytest.approx(report["accuracy"])
    assert report["accuracy"] == pytest.approx(1 - len(report["mistakes"]) / 359)
    assert all(row["label"] != row["predicted"] for row in report["mistakes"])
    assert [Path(path).name for path in report["files"]] == [
        "checkpoint",
        "digits.mpscnn",
        "history.svg",
        "mistakes.png",
    ]

    digits = load_digits()
    held_out = np.random.default_rng(0).permutation(len(digits.images))[:359]
    network = mpscnn.load(report["files"][1])
    predicted = network((digits.images[held_out] / 16).astype(np.float32)[:, None]).argmax(1)
    wrong = np.flatnonzero(predicted != digits.target[held_out])
    assert [row["index"] for row in report["mistakes"]] == wrong.tolist()
    assert "validation" in Path(report["files"][2]).read_text()
    with Image.open(report["files"][3]) as picture:
        assert picture.width > 100 * min(8, len(wrong))


def test_train_in_words(tmp_path: Path) -> None:
    result = run("train.py", "--epochs", 2, "--batch-size", 100, "--seed", 3, "--output", tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith("1438 pictures to train with, 359 held out")
    assert lines[1].startswith("epoch   1/2: loss ")
    assert any(line.startswith("Accuracy    ") and line.endswith("of 359 that were held out") for line in lines)
    assert any(line == f"Checkpoint  {tmp_path / 'checkpoint'}" for line in lines)
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == [
        "model.safetensors",
        "optimizer.safetensors",
    ]


def test_train_says_what_is_wrong(tmp_path: Path) -> None:
    for arguments, message in (
        (["--epochs", "0"], "argument --epochs: 0 is less than the minimum (1)"),
        (["--batch-size", "1"], "argument --batch-size: 1 is less than the minimum (2)"),
        (["--learning-rate", "-1"], "argument --learning-rate: -1 is not a finite number greater than 0"),
    ):
        result = run("train.py", *arguments)
        assert result.returncode == 2, result.stdout
        assert message in result.stderr
    (tmp_path / "file").write_text("")
    result = run("train.py", "--epochs", 1, "--output", tmp_path / "file")
    assert result.returncode == 1
    assert "train: the results cannot be written: " in result.stderr
    assert "Traceback" not in result.stderr


# ---- detect.py


def test_detect(tmp_path: Path) -> None:
    output = tmp_path / "out" / "detect.png"
    found = report_of(
        run("detect.py", "--steps", 60, "--scenes", 40, "--threshold", 0.05, "--output", output, "--json")
    )
    assert found["loss"][1] < 0.75 * found["loss"][0]
    assert (found["steps"], found["scenes"]) == (60, 40)
    assert 40 * 1 < found["digits"] <= 40 * 5
    with Image.open(output) as picture:
        assert picture.size == (3 * 192 + 2 * 6, 2 * 192 + 6)


def test_boxes_of_detect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels and predictions of the same boxes describe each other; the measure counts errors."""
    detect = example("detect", monkeypatch)
    boxes = [detect.Box(8, 10, 30, 42, 7), detect.Box(40, 33, 52, 55, 2)]
    labels = detect.labels_of([boxes])
    values = np.full(labels.shape[1:], -9.0)
    for row, column in map(detect.cell_of, boxes):
        x, y, width, height = labels[0, row, column, :4]
        values[row, column, :2] = np.log((x, y) / (1 - np.array((x, y))))
        values[row, column, 2:4] = np.log(np.array((width, height)) / detect.ANCHOR)
        values[row, column, 4:] = np.where(labels[0, row, column, 4:], 9, -9)
    found = detect.boxes_of(values, 0.5)
    assert sorted(box.digit for box in found) == [2, 7]
    for box in found:
        (same,) = (one for one in boxes if one.digit == box.digit)
        np.testing.assert_allclose(box[:4], same[:4], atol=1e-4)
    assert detect.measure([found], [boxes]) == {"precision": 1, "recall": 1}
    wrong = [found[0]._replace(digit=3), *found]
    assert detect.measure([wrong], [boxes]) == {"precision": pytest.approx(2 / 3), "recall": 1}
    assert detect.measure([found[:1]], [boxes]) == {"precision": 1, "recall": 0.5}


def test_scenes_of_detect(monkeypatch: pytest.MonkeyPatch) -> None:
    detect = example("detect", monkeypatch)
    scenes, boxes = detect.Scenes(held_out=True, seed=1).batch(20)
    assert (scenes.shape, scenes.dtype) == ((20, 64, 64, 1), np.float32)
    assert 0 <= scenes.min() < scenes.max() <= 1
    for scene, found in zip(scenes, boxes, strict=True):
        assert len({detect.cell_of(box) for box in found}) == len(found) >= 1
        for box in found:
            left, top, right, bottom = map(int, box[:4])
            assert scene[top:bottom, left:right].max() > 0.5  # ink


def test_labels_of_detect_do_not_cover_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    detect = example("detect", monkeypatch)
    boxes = [detect.Box(20, 30, 40, 50, 7), detect.Box(22, 30, 42, 50, 2), detect.Box(20, 0, 40, 20, 1)]
    size, side = (50, 16), 192
    places: list[tuple[float, float]] = []
    for box in boxes:
        places.append(detect.label_place(box, 3, size, side, places))
    assert places[:2] == [(60, 74), (66, 150)]  # above; below, since the first one is above
    assert places[2] != (60, 60)  # not below: the first one begins there
    for number, (x, y) in enumerate(places):
        assert 0 <= x <= side - size[0]
        assert 0 <= y <= side - size[1]
        for other_x, other_y in places[:number]:
            assert abs(x - other_x) >= size[0] or abs(y - other_y) >= size[1]


# ---- segment.py


def test_segment(tmp_path: Path) -> None:
    output = tmp_path / "segment.png"
    found = report_of(run("segment.py", "--epochs", 8, "--output", output, "--json"))
    assert 0.75 < found["iou"] <= 1
    with Image.open(output) as picture:
        assert picture.size == (3 * 192 + 2 * 6, 303 + 28)
        pixels = np.asarray(picture)
    assert np.ptp(pixels[40:, :192].astype(int), axis=2).max() == 0  # the photograph is grey
    assert np.ptp(pixels[40:, 198:390].astype(int), axis=2).max() > 50  # coins are coloured


# ---- upscale.py, super_resolution/fine_tune.py


def test_upscale_in_words(tmp_path: Path) -> None:
    """make demo."""
    result = run("upscale.py", "--images", 3, "--output", tmp_path / "demo.png")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "3/3" in result.stderr  # progress
    shown = dict(re.split(r" {2,}", line, maxsplit=1) for line in result.stdout.splitlines() if line)
    assert shown["Picture"] == "225 x 150 -> 450 x 300"
    assert re.fullmatch(r"bicubic 33\.8\d dB, mpscnn 35\.0\d dB \(\+1\.\d\d dB\)", shown["PSNR"])
    assert shown["Side by side"] == str(tmp_path / "demo.png")
    with Image.open(tmp_path / "demo.png") as picture:
        assert picture.size == (3 * 450 + 2 * 6, 300 + 64)  # captions in proportion


def test_fine_tune(tmp_path: Path) -> None:
    """The trained weights improve the image, also in the demo."""
    out = tmp_path / "weights.safetensors"
    figures = report_of(run("super_resolution/fine_tune.py", "--epochs", 1, "--steps", 30, "--output", out, "--json"))
    found, clean = figures["psnr_db"], figures["psnr_clean_db"]
    assert found["bicubic"] == pytest.approx(28.49, abs=0.05)
    assert found["before"] == pytest.approx(26.34, abs=0.05)
    assert found["after"] > found["before"] + 1
    assert (clean["before"], figures["held_out"]) == (pytest.approx(35.064, abs=0.01), "chelsea")
    assert len(figures["epochs"]) == 1
    assert figures["epochs"][0]["steps"] == figures["steps"] == 30
    with Image.open(figures["picture"]) as picture:
        assert picture.size == (4 * 450 + 3 * 6, 300 + 87)  # captions in proportion
    assert "<svg" in Path(figures["plot"]).read_text()

    shown = report_of(run("upscale.py", "--weights", out, "--images", 1, "--output", tmp_path / "demo.png", "--json"))
    assert shown["psnr_mpscnn_db"] == pytest.approx(clean["after"], abs=2e-3)
    assert shown["difference_from_pytorch"] <= 1e-4


def test_fine_tune_says_what_is_wrong(tmp_path: Path) -> None:
    result = run("super_resolution/fine_tune.py", "--noise", "nan")
    assert result.returncode == 2
    assert "argument --noise: nan is not a finite number greater than 0" in result.stderr
    result = run("super_resolution/fine_tune.py", "--weights", tmp_path / "none.safetensors")
    assert result.returncode == 1
    assert result.stderr.startswith("fine_tune: the weights ")
    result = run("upscale.py", "--weights", tmp_path / "none.safetensors")
    assert result.returncode == 2
    assert "is not a file" in result.stderr
