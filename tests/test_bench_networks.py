# SPDX-License-Identifier: Apache-2.0
"""bench/networks.py on a network of one convolution: its output, and the results that it refuses to time."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
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
    monkeypatch.setattr(networks, "NETWORKS", {"tiny": networks.Case("Tiny", (3, 6, 5), (1, 3))})
    return networks


PEERS = "torch; onnxruntime; openvino; openvino, reduced"


def run(capsys: pytest.CaptureFixture[str], *options: str, peers: str = PEERS) -> str:
    from bench import __main__

    assert __main__.main(["networks", "--seconds", "0", "--peers", peers, *options]) == 0
    return capsys.readouterr().out


def test_fields(networks: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    found = json.loads(run(capsys, "--json"))
    assert set(found) == {"device", "version", "cpus", "networks"}
    assert (found["device"], found["version"]) == (mpscnn.Device().name, mpscnn.__version__)
    assert [(one["case"], one["batch"]) for one in found["networks"]] == [("tiny", 1), ("tiny", 3)]
    for one in found["networks"]:
        assert set(one) == {"case", "batch", "measured", "absent", "busy_loops"}
        assert one["absent"] == {}
        assert one["busy_loops"] == 0
        names = [row["name"] for row in one["measured"]]
        assert names == [*networks.OURS, *PEERS.split("; ")]
        ours = one["measured"][0]
        assert (ours["ratio"], ours["difference"], ours["precision"]) == (1, 0, "float32")
        for row in one["measured"]:
            assert 0 < row["least"] <= row["lower_quartile"] <= row["seconds"] <= row["upper_quartile"]
            assert row["ratio"] > 0
            assert row["processor"] > 0
            assert row["p90"] > 0
            assert row["images_per_second"] == pytest.approx(one["batch"] / row["seconds"])
            assert row["version"]
            assert row["difference"] < (1e-4 if row["precision"] == "float32" else 1e-1)


@pytest.mark.parametrize(
    ("peer", "packages"),
    [
        ("torch.compile", ()),
        ("ncnn", ("ncnn", "pnnx")),
        ("ncnn, reduced", ("ncnn", "pnnx")),
        ("litert", ("ai_edge_litert", "litert_torch")),
        ("mpscnn, throughput; mpscnn, reduced, throughput", ()),
        ("openvino, throughput; openvino, reduced, throughput", ("openvino",)),
    ],
)
def test_other_programs(
    networks: Any, capsys: pytest.CaptureFixture[str], peer: str, packages: tuple[str, ...]
) -> None:
    """Each computes what we compute, or its absence has a reason."""
    found = json.loads(run(capsys, "--json", "--case", "batch 3", peers=peer))["networks"][0]
    if all(importlib.util.find_spec(package) for package in packages) and found["absent"] == {}:
        assert [row["name"] for row in found["measured"]] == [*networks.OURS, *peer.split("; ")]
        for row in found["measured"]:
            assert row["difference"] < (1e-4 if row["precision"] == "float32" else 1e-1)
    else:
        assert list(found["absent"]) == peer.split("; ")
        assert all(found["absent"].values())


def test_one_case_as_text_and_as_a_picture(networks: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    written = run(capsys, "--case", "batch 3", "--plot", str(tmp_path / "times.svg"), peers="torch")
    assert "tiny, batch 3" in written
    assert "tiny, batch 1" not in written
    picture = (tmp_path / "times.svg").read_text()
    assert "<svg" in picture
    assert "<!-- torch -->" in picture
    assert "batch 3" in picture


def test_table_in_markdown(networks: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside busy loops. A peer's column is there if a process of it was."""
    from bench import contestants

    started: list[int] = []
    loops = contestants.busy_loops
    monkeypatch.setattr(contestants, "busy_loops", lambda count: started.append(count) or loops(count))
    written = run(capsys, "--busy", "--markdown", peers="torch; unknown")
    first, second = re.findall(r"\| network .*\n\|[-|]+\n\| Tiny .*\n", written)
    assert first.startswith("| network | mpscnn | torch | best peer / mpscnn |\n|---|---|---|---|\n| Tiny | ")
    assert re.search(r"Batch 1:\n\n\| .*\n.*\n.*\n\nfloat32: geometric mean (\d+\.\d\d), min \1\.\n", written)
    assert "Batch 3:" in written
    assert started == [contestants.processors()] * 2
    assert second != first


def test_cells_and_means(networks: Any) -> None:
    """Of made-up times: the ratio is to the fastest peer, that of bfloat16 to bfloat16."""
    times = {"mpscnn": 4.0, "mpscnn, reduced": 2.0, "torch": 9.0, "onnxruntime": 6.0, "openvino, reduced": 5.0}
    row = {
        "case": "tiny",
        "batch": 1,
        "measured": [{"name": name, "seconds": ms / 1e3, "ratio": ms / 4} for name, ms in times.items()],
    }
    header, line = networks.table([row])
    assert header[1:5] == ["mpscnn", "torch", "ONNX Runtime", "best peer / mpscnn"]
    assert line == ["Tiny", "4.00", "9.00", "6.00", "1.50", "2.00", "5.00", "2.50"]
    faster = {
        **row,
        "measured": [{**one, "ratio": one["ratio"] * (2 if one["ratio"] > 1 else 1)} for one in row["measured"]],
    }
    written = networks.markdown([row, faster])
    assert "float32: geometric mean 2.12, min 1.50." in written
    assert "bfloat16: geometric mean 3.54, min 2.50." in written


def test_table_of_bfloat16_alone(networks: Any) -> None:
    """Peers that all compute in bfloat16 are not compared with float32."""
    times = {"mpscnn": 4.0, "mpscnn, reduced": 2.0, "openvino, reduced": 5.0}
    measured = [{"name": name, "seconds": ms / 1e3, "ratio": ms / 4} for name, ms in times.items()]
    written = networks.markdown([{"case": "tiny", "batch": 1, "measured": measured}])
    assert "| network | mpscnn, bfloat16 | OpenVINO | best peer / mpscnn |\n" in written
    assert "| Tiny | 2.00 | 5.00 | 2.50 |\n\nbfloat16: geometric mean 2.50, min 2.50." in written


def test_who_is_not_installed_is_named(
    networks: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for package in ("onnxruntime", "openvino", "ncnn"):
        (tmp_path / f"{package}.py").write_text(f"raise ModuleNotFoundError(name={package!r})")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    written = run(capsys, "--case", "batch 1", peers="onnxruntime; openvino; ncnn; nothing")
    assert "without onnxruntime: ONNX Runtime needs the package onnxruntime, which is not installed" in written
    assert "without openvino: OpenVINO needs the package openvino" in written
    assert "without ncnn: ncnn needs the package ncnn" in written
    assert "without nothing: nothing is none of mpscnn, " in written
    assert "\ntiny, batch 1" in written


def test_a_process_that_dies_is_named(
    networks: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "onnxruntime.py").write_text(
        "import os, sys\nsys.stderr.write('it ends\\n')\nsys.stderr.flush()\nos._exit(3)"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    written = run(capsys, "--case", "batch 1", peers="onnxruntime")
    assert "without onnxruntime: The process ended with code 3: it ends" in written


def test_results_that_differ_are_not_timed(networks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ONNX file's weights differ from the module's."""
    pytest.importorskip("onnxruntime")
    import onnx
    from bench import contestants

    export = contestants.onnx

    def other(module: Any, shape: tuple[int, int, int]) -> bytes:
        model = onnx.load(io.BytesIO(export(module, shape)))
        for tensor in model.graph.initializer:
            array = onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array * np.float32(1.01), tensor.name))
        return bytes(model.SerializeToString())

    timed: list[Any] = []
    monkeypatch.setattr(contestants, "onnx", other)
    monkeypatch.setattr(benchmarking, "rounds", lambda *arguments, **named: timed.append(arguments))
    with pytest.raises(
        benchmarking.ResultsDifferError, match="tiny, batch 1: results of onnxruntime differ from those"
    ):
        networks.run(0.0, peers=["onnxruntime"])
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
