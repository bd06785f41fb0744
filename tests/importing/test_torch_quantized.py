# SPDX-License-Identifier: Apache-2.0
"""Modules that PyTorch quantized after their export (pt2e), against PyTorch's own run of the quantized module."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mpscnn
from architectures import build_small, example

quantize_pt2e = pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e", reason="torchao is not installed")


def quantizer(name: str) -> Any:
    try:
        if name == "x86":
            from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

            return x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
        from torchao.testing.pt2e import _xnnpack_quantizer as xnnpack

        config = xnnpack.get_symmetric_quantization_config(is_per_channel=True)
        return xnnpack.XNNPACKQuantizer().set_global(config)
    except ImportError as error:
        pytest.skip(f"torchao has no quantizer {name}: {error}")


def quantized(module: nn.Module, x: torch.Tensor, name: str) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = quantize_pt2e.prepare_pt2e(torch.export.export(module.eval(), (x,)).module(), quantizer(name))
        with torch.no_grad():
            for seed in range(3):
                prepared(torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)))
        converted: nn.Module = quantize_pt2e.convert_pt2e(prepared)
    return converted


class Residual(nn.Module):
    """Convolutions with an activation, a sum, both kinds of pooling and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.second, self.third, self.last = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 24, 1), nn.Linear(24, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.first(x))), 2)
        x = torch.relu(self.second(x) + x)
        return self.last(self.third(x).mean((2, 3)))  # type: ignore[no-any-return]


def last_step(module: nn.Module) -> float:
    """Return the largest step of the module's values."""
    graph = module.graph
    assert isinstance(graph, torch.fx.Graph)
    return max(float(node.args[1]) for node in graph.nodes if "quantize_per_tensor" in node.name)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["x86", "xnnpack"])
def test_small_network(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 16, 16)
    module = quantized(Residual(), x, name)
    net = mpscnn.load(module, input_shapes=[tuple(x.shape)])
    kinds = [layer.kernel for layer in net.layers()]
    assert "MetalFunction" not in kinds  # no kernel rounds floats
    assert sum(node.result_dtype == "uint8" for node in net.graph.nodes) >= 4
    with torch.no_grad():
        expected = module(x).numpy()
    ours = net(x)
    assert ours.shape == expected.shape
    assert len(np.unique(np.rint(expected / last_step(module)))) > 10
    assert np.abs(ours - expected).max() < 1.01 * last_step(module)
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "net.pt2")
    np.testing.assert_array_equal(mpscnn.load(tmp_path / "net.pt2")(x), ours)


@pytest.mark.parametrize("name", ["x86", "xnnpack"])
@pytest.mark.parametrize("architecture", ["squeezenet1_1", "mobilenet_v2"])
def test_networks(architecture: str, name: str) -> None:
    """The result differs from PyTorch's by less than that of the network in float32 does."""
    x = example(architecture)[:1]
    given = build_small(architecture)
    module = quantized(given, x, name)
    net = mpscnn.load(module, input_shapes=[tuple(x.shape)])
    with torch.no_grad():
        expected, floats = module(x).numpy(), given(x).numpy()
    assert np.abs(net(x) - expected).max() < 0.7 * np.abs(floats - expected).max()


def test_numbers_of_seven_bits() -> None:
    """Limits other than those of a byte are clamped to."""

    class Module(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            operators = torch.ops.quantized_decomposed
            q = operators.quantize_per_tensor(x, 0.05, 60, 0, 127, torch.uint8)
            return operators.dequantize_per_tensor(q, 0.05, 60, 0, 127, torch.uint8)  # type: ignore[no-any-return]

    x = torch.linspace(-8, 8, 200).reshape(1, 2, 10, 10)
    ours, expected = mpscnn.load(Module(), input_shapes=[tuple(x.shape)])(x), Module()(x).numpy()
    np.testing.assert_allclose(ours, expected, atol=1e-5)
    assert expected.max() == pytest.approx(67 * 0.05)


def test_computed_scales_are_refused() -> None:
    class Module(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            operators = torch.ops.quantized_decomposed
            scale, zero = operators.choose_qparams.tensor(x, 0, 255, 1e-5, torch.uint8)
            q = operators.quantize_per_tensor.tensor(x, scale, zero, 0, 255, torch.uint8)
            return operators.dequantize_per_tensor.tensor(q, scale, zero, 0, 255, torch.uint8)  # type: ignore[no-any-return]

    with pytest.raises(mpscnn.UnsupportedOperatorError, match=r"quantized_decomposed.choose_qparams"):
        mpscnn.load(Module(), input_shapes=[(1, 3, 4, 4)])
