# SPDX-License-Identifier: Apache-2.0
"""bench/networks.py on a network of one convolution: its output, and the results that it refuses to time."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

import mpscnn  # noqa: E402
from mpscnn import benchmarking  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def networks(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import networks

    generator = torch.Generator().manual_seed(0)
    convolution = torch.nn.Conv2d(3, 4, 3)
    with torch.no_grad():
        convolution.weight.copy_(torch.randn(4, 3, 3, 3, generator=generator))
    module = torch.nn.Sequential(convolution, torch.nn.ReLU()).eval()
    monkeypatch.setattr(networks, "_module", lambda name: module)
    monkeypatch.setattr(networks, "NETWORKS", ("tiny",))
    monkeypatch.setattr(networks, "BATCHES", (1, 3))
    monkeypatch.setattr(networks, "SHAPE", (3, 6, 5))
    return networks


def run(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    from bench import __main__

    assert __main__.main(["networks", "--seconds", "0", *options]) == 0
    return capsys.readouterr().out


def test_fields(networks: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    found = json.loads(run(capsys, "--json"))
    assert set(found) == {"device", "version", "cpus", "networks"}
    assert (found["device"], found["version"]) == (mpscnn.Device().name, mpscnn.__version__)
    assert [(one["case"], one["batch"]) for one in found["networks"]] == [("tiny", 1), ("tiny", 3)]
    for one in found["networks"]:
        assert set(one) == {"case", "batch", "measured", "absent"}
        assert one["absent"] == {}
        names = [row["name"] for row in one["measured"]]
        assert names == ["mpscnn", "mpscnn, reduced", "torch", "onnxruntime", "openvino", "openvino, reduced"]
        ours = one["measured"][0]
        assert (ours["ratio"], ours["difference"], ours["precision"]) == (1, 0, "float32")
        for row in one["measured"]:
            assert 0 < row["least"] <= row["lower_quartile"] <= row["seconds"] <= row["upper_quartile"]
            assert row["ratio"] > 0
            assert row["images_per_second"] == pytest.approx(one["batch"] / row["seconds"])
            assert row["version"]
            assert row["difference"] < (1e-4 if row["precision"] == "float32" else 1e-1)


def test_one_case_as_text_and_as_a_picture(networks: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    written = run(capsys, "--case", "batch 3", "--plot", str(tmp_path / "times.svg"))
    assert "tiny, batch 3" in written
    assert "tiny, batch 1" not in written
    picture = (tmp_path / "times.svg").read_text()
    assert "<svg" in picture
    assert "<!-- torch -->" in picture
    assert "batch 3" in picture


def test_who_is_not_installed_is_named(
    networks: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setitem(sys.modules, "openvino", None)
    written = run(capsys, "--case", "batch 1")
    assert "without onnxruntime: ONNX Runtime needs the package onnxruntime, which is not installed" in written
    assert "without openvino: OpenVINO needs the package openvino" in written
    assert "\ntiny, batch 1" in written


def test_results_that_differ_are_not_timed(networks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ONNX file's weights differ from the module's."""
    pytest.importorskip("onnxruntime")
    import onnx

    export = networks._onnx

    def other(module: Any, shape: tuple[int, int, int]) -> bytes:
        model = onnx.load(io.BytesIO(export(module, shape)))
        for tensor in model.graph.initializer:
            array = onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array * np.float32(1.01), tensor.name))
        return bytes(model.SerializeToString())

    timed: list[Any] = []
    monkeypatch.setattr(networks, "_onnx", other)
    monkeypatch.setattr(benchmarking, "rounds", lambda *arguments, **named: timed.append(arguments))
    with pytest.raises(
        benchmarking.ResultsDifferError, match="tiny, batch 1: results of onnxruntime differ from those"
    ):
        networks.run(0.0)
    assert timed == []


def test_graphs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A network as a graph of nodes beside the network."""
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import __main__, graphs

    monkeypatch.setattr(graphs, "SHAPE", (3, 64, 64))
    assert __main__.main(["graphs", "--seconds", "0.01", "--case", "mobilenet", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["graphs"]
    assert row["case"] == "mobilenet_v2"
    for times in (row["seconds"], row["encode"]):
        assert times.keys() == {"graph", "network"}
        assert min(times.values()) > 0
    assert __main__.main(["graphs", "--seconds", "0.01", "--case", "mobilenet"]) == 0
    assert len(capsys.readouterr().out.splitlines()[-1].split()) == 8
