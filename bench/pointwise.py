# SPDX-License-Identifier: Apache-2.0
"""Rows of neurons, arithmetic and pooling for bench/images.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpscnn

from .rows import Row, Shape

SMALL: Shape = (1, 56, 56, 64)
LARGE: Shape = (8, 56, 56, 128)


def _neurons() -> dict[str, tuple[Callable[[], Any], Callable[..., Any]]]:
    """Return kernels by name, with PyTorch's functions of the module torch and x."""
    f = "nn.functional"

    def of(name: str, *numbers: float, **options: float) -> Callable[..., Any]:
        def run(torch: Any, x: Any) -> Any:
            function = torch
            for part in name.split("."):
                function = getattr(function, part)
            return function(x, *numbers, **options)

        return run

    return {
        "Neuron gelu": (lambda: mpscnn.Neuron("gelu"), of(f"{f}.gelu")),
        "NeuronAbsolute": (mpscnn.NeuronAbsolute, of("abs")),
        "NeuronELU": (mpscnn.NeuronELU, of(f"{f}.elu")),
        "NeuronExponential": (mpscnn.NeuronExponential, of("exp")),
        "NeuronHardSigmoid": (lambda: mpscnn.NeuronHardSigmoid(1 / 6, 0.5), of(f"{f}.hardsigmoid")),
        "NeuronLinear": (lambda: mpscnn.NeuronLinear(2.0, 1.0), lambda torch, x: torch.add(1.0, x, alpha=2.0)),
        "NeuronLogarithm": (lambda: mpscnn.NeuronLogarithm(1.0, 20.0), lambda torch, x: torch.log(x + 20.0)),
        "NeuronPReLU": (
            lambda: None,  # replaced later: needs one slope per channel
            lambda torch, x: torch.nn.functional.prelu(x, torch.full((x.shape[1],), 0.25)),
        ),
        "NeuronPower": (lambda: mpscnn.NeuronPower(1.0, 20.0, 1.5), lambda torch, x: torch.pow(x + 20.0, 1.5)),
        "NeuronReLU": (mpscnn.NeuronReLU, of("relu")),
        "NeuronReLUN": (lambda: mpscnn.NeuronReLUN(0.0, 6.0), of(f"{f}.relu6")),
        "NeuronSigmoid": (mpscnn.NeuronSigmoid, of("sigmoid")),
        "NeuronSoftPlus": (mpscnn.NeuronSoftPlus, of(f"{f}.softplus")),
        "NeuronSoftSign": (mpscnn.NeuronSoftSign, of(f"{f}.softsign")),
        "NeuronTanH": (mpscnn.NeuronTanH, of("tanh")),
    }


def _gradient(torch: Any, grad: Any, x: Any) -> Any:
    return torch.ops.aten.gelu_backward(grad, x)


def _operation(name: str) -> Callable[..., Any]:
    return lambda torch, a, b: getattr(torch, name)(a, b)


def _pool(name: str, *numbers: Any, **options: Any) -> Callable[..., Any]:
    return lambda torch, x: getattr(torch.nn.functional, name)(x, *numbers, **options)


def _less(torch: Any, a: Any, b: Any) -> Any:
    return torch.lt(a, b).to(a.dtype)


def _text(shape: Shape) -> str:
    return f"{shape[3]} at {shape[1]}, batch {shape[0]}"


def rows() -> list[Row]:
    found = []
    for name, (kernel, theirs) in _neurons().items():
        for shape in (SMALL, LARGE):
            made = (lambda c=shape[3]: mpscnn.NeuronPReLU([0.25] * c)) if name == "NeuronPReLU" else kernel
            found.append(Row(f"{name} {_text(shape)}", made, (shape,), theirs))
    for shape in (SMALL, LARGE):
        gradient = lambda: mpscnn.NeuronGradient("gelu")  # noqa: E731
        found.append(Row(f"NeuronGradient gelu {_text(shape)}", gradient, (shape, shape), _gradient))
        for kernel, function in (("Add", "add"), ("Subtract", "sub"), ("Multiply", "mul"), ("Divide", "div")):
            # Quotients of random numbers are unbounded, so results are not compared.
            found.append(
                Row(
                    f"{kernel} {_text(shape)}",
                    getattr(mpscnn, kernel),
                    (shape, shape),
                    _operation(function),
                    exact=kernel != "Divide",
                )
            )
        compare = lambda: mpscnn.Compare("less")  # noqa: E731
        found.append(Row(f"Compare less {_text(shape)}", compare, (shape, shape), _less))
    pooled: tuple[Shape, ...] = ((1, 112, 112, 64), (8, 56, 56, 64))
    for shape in pooled:
        found += [
            Row(
                f"PoolingMax 3/2 {_text(shape)}",
                lambda: mpscnn.PoolingMax(3, 2, 1),
                (shape,),
                _pool("max_pool2d", 3, 2, 1),
            ),
            Row(
                f"DilatedPoolingMax 3 {_text(shape)}",
                lambda: mpscnn.DilatedPoolingMax(3, 2, stride=1),
                (shape,),
                _pool("max_pool2d", 3, 1, 0, 2),
            ),
            Row(
                f"PoolingAverage 3/1 {_text(shape)}",
                lambda: mpscnn.PoolingAverage(3, 1, 1),
                (shape,),
                _pool("avg_pool2d", 3, 1, 1),
            ),
            Row(
                f"PoolingL2Norm 3/2 {_text(shape)}",
                lambda: mpscnn.PoolingL2Norm(3, 2),
                (shape,),
                _pool("lp_pool2d", 2.0, 3, 2),
            ),
        ]
    found.append(
        Row(
            "PoolingAverage global 512 at 14, batch 32",
            lambda: mpscnn.PoolingAverage(14),
            ((32, 14, 14, 512),),
            _pool("avg_pool2d", 14),
        )
    )
    return found
