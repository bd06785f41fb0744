# SPDX-License-Identifier: Apache-2.0
"""Sections of the bench: fully connected layers by implementation, streams on several devices, 8-bit networks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import mpscnn
from support import ENGINE, PROCESSOR, only_openmps

ROOT = Path(__file__).resolve().parent.parent

pytestmark = [only_openmps("the bench compares implementations of openmps")]


@pytest.mark.skipif(ENGINE not in ("", "cpu"), reason="the implementations are the CPU engine's")
@pytest.mark.skipif("avx2" not in PROCESSOR, reason="the processor has no AVX2")
def test_fully_connected(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import __main__, fully_connected

    assert __main__.main(["fully_connected", "--seconds", "0.01", "--case", "96 x 4", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["fully_connected"]
    assert row["case"] == "96 x 4"
    assert set(row["seconds"]) == set(fully_connected.IMPLEMENTATIONS)
    assert all(1e-6 < seconds < 1 for seconds in row["seconds"].values())


def test_first(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnx")
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import __main__, first, networks

    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval()
    monkeypatch.setattr(networks, "_module", lambda name: module)
    monkeypatch.setitem(networks.NETWORKS, "tiny", networks.Case("Tiny", (3, 6, 5)))
    monkeypatch.setattr(first, "NETWORKS", ("tiny",))
    monkeypatch.setitem(first.PROGRAMS, "nothing", ("import nothing_of_that_name", "", ""))
    assert __main__.main(["first", "--seconds", "0", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["first"]
    ours = row["measured"]["mpscnn"]
    assert min(ours[key] for key in ("import", "load", "first")) > 1e-6
    assert 1e7 < ours["resident"] <= 1.1 * ours["peak"]
    assert row["absent"]["nothing"] == "ModuleNotFoundError: No module named 'nothing_of_that_name'"
    __main__._print_first([row])
    written = capsys.readouterr().out.splitlines()
    assert len(written[2].split()) == 8
    assert "without nothing: ModuleNotFoundError" in written[-1]


def test_calls(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import __main__, calls

    monkeypatch.setattr(calls, "NETWORK", "mobilenet_v2")
    assert __main__.main(["calls", "--seconds", "0.05", "--json"]) == 0
    found = {row["case"]: row["seconds"] for row in json.loads(capsys.readouterr().out)["calls"]}
    assert {"neuron(x)", "network of one layer (x)", "torch, relu(x)", "mobilenet_v2: encode again"} <= set(found)
    assert all(1e-7 < seconds < 1 for seconds in found.values())
    assert found["mobilenet_v2: encode again"] < found["mobilenet_v2: call"]
    assert __main__.main(["calls", "--seconds", "0.05", "--case", "neuron"]) == 0
    written = capsys.readouterr().out
    assert "neuron(x, out=y)" in written
    assert "mobilenet_v2" not in written


@pytest.mark.skipif(ENGINE not in ("", "cpu"), reason="the implementations are the CPU engine's")
def test_convolutions(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import __main__, convolutions

    found = {name: convolutions.shapes(name) for name in convolutions.NETWORKS}
    assert {name: len(shapes) for name, shapes in found.items()} == {"resnet50": 23, "mobilenet_v2": 30}

    assert found["resnet50"][0].flops == 2 * 112 * 112 * 64 * 3 * 49
    case = "depth-wise 3 x 3, stride 2, 14 x 14 x 576 to 576"
    options = ["convolutions", "--seconds", "0.01", "--case", case]
    assert __main__.main([*options, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["convolutions"]
    assert row["case"] == f"mobilenet_v2: {case}"
    assert row["gflops"]["mpscnn"] == pytest.approx(2 * 7 * 7 * 576 * 9 / row["seconds"]["mpscnn"] / 1e9)
    assert min(row["gflops"].values()) > 0.01
    assert __main__.main(options) == 0
    assert len(capsys.readouterr().out.splitlines()[-1].split()[-6:]) == 6


def test_streams(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each case has a rate per device, alone and together."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import __main__, gpu_streams

    name = mpscnn.Device().name
    monkeypatch.setattr(gpu_streams, "_module", lambda _: torch.nn.Conv2d(3, 4, 3, stride=32).eval())
    monkeypatch.setattr(gpu_streams, "device_names", lambda given: [name, name] if given == "all" else [given])
    for constant, value in (("BATCH", 2), ("BATCHES", 16), ("ROUNDS", 1)):
        monkeypatch.setattr(gpu_streams, constant, value)
    assert __main__.main(["gpu_streams", "--device", "all", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["gpu_streams"]
    assert result["gpus"] == [name, name]
    cases = [row["case"] for row in result["rows"]]
    assert len(cases) == len(set(cases)) == 2 * (1 + 2 * len(gpu_streams.IN_FLIGHT))
    assert sum(case.endswith(", together") for case in cases) == len(cases) // 2
    assert all(len(row["images_per_second"]) == 2 and min(row["images_per_second"]) > 1 for row in result["rows"])
    assert __main__.main(["gpu_streams", "--device", name]) == 0
    assert "N, C, H, W, 4 in flight" in capsys.readouterr().out


def test_quantized(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each program has times and, of the quantized ones, decibels."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import __main__, networks, quantized

    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.Hardswish(), torch.nn.Conv2d(8, 4, 3), torch.nn.Flatten()]
    monkeypatch.setattr(networks, "_module", lambda name: torch.nn.Sequential(*layers).eval())
    monkeypatch.setattr(networks, "SHAPE", (3, 12, 10))
    monkeypatch.setattr(quantized, "NETWORKS", ("tiny", "other"))
    assert __main__.main(["quantized", "--seconds", "0", "--case", "tiny", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["quantized"]
    assert row["case"] == "tiny"
    assert list(row["measured"]) == [
        "mpscnn, quantize_static",
        "mpscnn.quantize",
        "mpscnn float32",
        "onnxruntime, quantize_static",
        "onnxruntime float32",
    ]
    for name, one in row["measured"].items():
        assert 0 < one["least"] <= one["seconds"]
        if name.endswith("float32"):
            assert one["decibels"] is None
        else:
            assert 20 < one["decibels"] < 60
    float32 = row["measured"]["mpscnn float32"]
    assert (float32["speedup"], float32["least_speedup"]) == (1, 1)
    assert __main__.main(["quantized", "--seconds", "0"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[-10:]] == ["tiny"] * 5 + ["other"] * 5
