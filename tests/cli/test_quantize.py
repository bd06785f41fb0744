# SPDX-License-Identifier: Apache-2.0
"""mpscnn quantize."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mpscnn

pytest.importorskip("PIL.Image")


@pytest.mark.parametrize("method", ["minmax", "percentile"])
def test_quantize(run, classifier: Path, pictures: Path, tmp_path: Path, method: str) -> None:
    out = tmp_path / "small.mpscnn"
    ran = run("quantize", classifier, pictures, "-o", out, "--method", method, "--json")
    assert ran.status == 0, ran.err
    result = ran.json
    assert result["images"] == 3
    assert result["method"] == method
    assert 0 < result["max_difference"] < 0.1 * result["max_result"]
    assert 0 <= result["same_top1"] <= 1
    small = mpscnn.load(out)
    assert any(node.result_dtype == "uint8" for node in small.graph.nodes)


def test_as_text(run, classifier: Path, pictures: Path, tmp_path: Path) -> None:
    ran = run("quantize", classifier, pictures, "-o", tmp_path / "small.mpscnn", "--images", 2)
    assert ran.status == 0, ran.err
    words = " ".join(ran.out.split())
    assert "pictures 2 max difference" in words
    assert "same first class" in words


def test_wrong_output(run, classifier: Path, pictures: Path, tmp_path: Path) -> None:
    ran = run("quantize", classifier, pictures, "-o", tmp_path / "small.onnx")
    assert ran.status == 2
    assert "small.onnx" in ran.message
    assert "does not end in .mpscnn" in ran.message


def test_empty_folder(run, classifier: Path, tmp_path: Path) -> None:
    folder = tmp_path / "none"
    folder.mkdir()
    ran = run("quantize", classifier, folder, "-o", tmp_path / "small.mpscnn")
    assert ran.status == 1
    assert "has no images" in ran.message


def test_not_finite(run, classifier: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((1, 3, 32, 32), np.inf, np.float32))
    ran = run("quantize", classifier, tmp_path / "x.npy", "-o", tmp_path / "small.mpscnn")
    assert ran.status == 1
    assert "is not finite" in ran.message
