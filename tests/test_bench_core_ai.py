# SPDX-License-Identifier: Apache-2.0
"""bench/core_ai.py on a network of one convolution, with a stand-in for Apple's packages, and without them."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parent.parent


class Array:
    """Stands in for coreai.runtime.NDArray."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def numpy(self) -> Any:
        return self.data


class Program:
    """Stands in for the converter, the program, its asset and its model: computes with PyTorch."""

    factor = 1.0

    def add_exported_program(self, program: Any, input_names: list[str], output_names: list[str]) -> Program:
        assert (input_names, output_names) == (["x"], ["y"])
        self.module = program.module()
        return self

    def to_coreai(self) -> Program:
        return self

    def save_asset(self, path: Path) -> Program:
        assert path.suffix == ".aimodel"
        self.folder = path.parent
        return self

    @asynccontextmanager
    async def executable(self) -> AsyncIterator[Program]:
        yield self

    def load_function(self, name: str) -> Any:
        assert name == "main"

        async def function(inputs: dict[str, Array]) -> dict[str, Array]:
            assert self.folder.is_dir()
            return {"y": Array(self.factor * self.module(torch.from_numpy(inputs["x"].data)).detach().numpy())}

        return function


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> type[Program]:
    """Return the stand-in's class; the network is one convolution."""
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import core_ai

    module = torch.nn.Conv2d(3, 4, 3).eval()
    torch.nn.init.normal_(module.weight, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(core_ai, "NETWORKS", ("tiny",))
    monkeypatch.setattr(core_ai.networks, "_module", lambda name: module)
    monkeypatch.setattr(core_ai.networks, "SHAPE", (3, 6, 5))
    for name in ("coreai", "coreai.runtime", "coreai_torch"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["coreai.runtime"].NDArray = Array  # type: ignore[attr-defined]
    sys.modules["coreai_torch"].TorchConverter = Program  # type: ignore[attr-defined]
    sys.modules["coreai_torch"].get_decomp_table = dict  # type: ignore[attr-defined]
    return Program


def run(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    from bench import __main__

    assert __main__.main(["core_ai", "--seconds", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (one,) = found["core_ai"]
    return dict(one)


def test_fields(program: type[Program], capsys: pytest.CaptureFixture[str]) -> None:
    one = run(capsys)
    assert (one["case"], one["batch"], one["absent"]) == ("tiny", 1, {})
    assert [row["name"] for row in one["measured"]] == ["mpscnn", "coreai", "torch"]
    assert all(row["seconds"] > 0 and row["difference"] < 1e-5 for row in one["measured"])


def test_wrong_results_are_not_timed(
    program: type[Program], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mpscnn import benchmarking

    monkeypatch.setattr(program, "factor", 1.1)
    with pytest.raises(benchmarking.ResultsDifferError, match="coreai differ"):
        run(capsys)


def test_without_the_packages(
    program: type[Program], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "coreai_torch", None)
    one = run(capsys)
    assert [row["name"] for row in one["measured"]] == ["mpscnn", "torch"]
    assert "pip install coreai-torch" in one["absent"]["coreai"]
