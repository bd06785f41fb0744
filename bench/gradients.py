# SPDX-License-Identifier: Apache-2.0
"""Gradient kernels against PyTorch's autograd of the operator (CPU, channels_last, the same threads).

``ours`` is ``kernel.gradient(grad, x, state, out=out)``, including image, command buffer, queue and wait; ``torch`` is
``torch.autograd.grad`` of an existing graph. A forward call, not timed, precedes each call, because a gradient kernel
uses a state only once. Rows of "training" time both calls. ``GB/s`` counts the incoming gradient, the other operand and
the result once each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import mpscnn
from mpscnn.kernels import row_of

from .rows import Shape
from .timing import Prepared, interleaved_prepared

Values = dict[str, np.ndarray]


class Row(NamedTuple):
    """The gradient of a forward kernel with respect to one source (N, H, W, C) and to its parameters."""

    kernel: str
    text: str
    shapes: tuple[Shape, ...]
    make: Callable[[Values], Any]  # the forward kernel
    theirs: Callable[..., Any]  # takes the module torch, the sources (N, C, H, W), and the values in order
    values: dict[str, tuple[int, ...]] = {}  # noqa: RUF012  (never written)
    of: int = 0  # index of the source
    exact: bool = True  # False: the results are random, or of another operator

    @property
    def name(self) -> str:
        return f"{self.kernel} {self.text}"


class BatchRow(NamedTuple):
    """Batch normalization in training: all four kernels, or the two gradient kernels."""

    kernel: str
    text: str
    shape: Shape
    whole: bool

    @property
    def name(self) -> str:
        return f"{self.kernel} {self.text}"


# Layers for a batch of 32 images of 64 x 64. An encode with a state takes one image object, which has 2048 slices.
RESNET: dict[str, tuple[Shape, tuple[int, ...], dict[str, int]]] = {
    "stem 7x7/2 3-64": ((32, 64, 64, 3), (64, 3, 7, 7), {"stride": 2, "padding": 3}),
    "3x3 64-64 at 16": ((32, 16, 16, 64), (64, 64, 3, 3), {"padding": 1}),
    "3x3/2 64-128 at 16": ((32, 16, 16, 64), (128, 64, 3, 3), {"stride": 2, "padding": 1}),
    "1x1/2 64-128 at 16": ((32, 16, 16, 64), (128, 64, 1, 1), {"stride": 2}),
    "3x3 128-128 at 8": ((32, 8, 8, 128), (128, 128, 3, 3), {"padding": 1}),
    "3x3 256-256 at 4": ((32, 4, 4, 256), (256, 256, 3, 3), {"padding": 1}),
    "3x3 512-512 at 2, batch 16": ((16, 2, 2, 512), (512, 512, 3, 3), {"padding": 1}),
}
DIGITS: dict[str, tuple[Shape, tuple[int, ...], dict[str, int]]] = {
    "3x3 1-16 at 8": ((64, 8, 8, 1), (16, 1, 3, 3), {"padding": 1}),
    "3x3 16-32 at 8": ((64, 8, 8, 16), (32, 16, 3, 3), {"padding": 1}),
    "depth-wise 3x3 32 at 8": ((64, 8, 8, 32), (32, 1, 3, 3), {"padding": 1, "groups": 32}),
}
TRANSPOSED: dict[str, tuple[Shape, tuple[int, ...], dict[str, int]]] = {
    "4x4/2 64-32 at 16, batch 8": ((8, 16, 16, 64), (64, 32, 4, 4), {"stride": 2, "padding": 1}),
    "2x2/2 128-64 at 16, batch 8": ((8, 16, 16, 128), (128, 64, 2, 2), {"stride": 2}),
}
LINEAR: dict[str, tuple[Shape, int]] = {
    "512-1000, batch 8": ((8, 1, 1, 512), 1000),
    "128-10, batch 64": ((64, 1, 1, 128), 10),
    "2048-1000, batch 4": ((4, 1, 1, 2048), 1000),
}
FEATURES: Shape = (32, 16, 16, 64)
LARGE: Shape = (8, 56, 56, 64)
EPSILON = 1e-5
ALEXNET: dict[str, Any] = {"alpha": 1e-4, "beta": 0.75}


def _with_weights() -> list[Row]:
    def convolve(torch: Any, x: Any, weight: Any, bias: Any, *, options: dict[str, int]) -> Any:
        return torch.nn.functional.conv2d(x, weight, bias, **options)

    def transpose(torch: Any, x: Any, weight: Any, bias: Any, *, options: dict[str, int]) -> Any:
        return torch.nn.functional.conv_transpose2d(x, weight, bias, **options)

    def linear(torch: Any, x: Any, weight: Any, bias: Any) -> Any:
        return torch.nn.functional.linear(x.flatten(1), weight, bias)[:, :, None, None]

    rows = []
    for network, layers in (("ResNet-18", RESNET), ("digits", DIGITS)):
        for text, (x, weight, options) in layers.items():
            rows.append(
                Row(
                    "ConvolutionGradient",
                    f"{network} {text}",
                    (x,),
                    lambda values, options=options: mpscnn.Convolution(**values, **options),
                    lambda *given, options=options: convolve(*given, options=options),
                    {"weight": weight, "bias": weight[:1]},
                )
            )
    for text, (x, weight, options) in TRANSPOSED.items():
        rows.append(
            Row(
                "ConvolutionTransposeGradient",
                text,
                (x,),
                lambda values, options=options: mpscnn.ConvolutionTranspose(**values, **options),
                lambda *given, options=options: transpose(*given, options=options),
                {"weight": weight, "bias": weight[1:2]},
            )
        )
    for text, (x, outputs) in LINEAR.items():
        rows.append(
            Row(
                "FullyConnectedGradient",
                text,
                (x,),
                lambda values: mpscnn.FullyConnected(**values),
                linear,
                {"weight": (outputs, x[3]), "bias": (outputs,)},
            )
        )
    return rows


def _normalizations() -> list[Row]:
    def average(torch: Any, x: Any, size: int) -> Any:
        return torch.nn.functional.avg_pool2d(x, size, 1, size // 2)

    def channels(torch: Any, x: Any) -> Any:
        return torch.nn.functional.local_response_norm(x, 5, **ALEXNET)

    def spatial(torch: Any, x: Any, *, size: int) -> Any:
        return x / (1 + ALEXNET["alpha"] * average(torch, x * x, size)) ** ALEXNET["beta"]

    def contrast(torch: Any, x: Any, *, size: int) -> Any:
        middle = average(torch, x, size)
        return (x - middle) / (1 / 1024 + average(torch, x * x, size) - middle * middle) ** 0.5

    def instances(torch: Any, x: Any, gamma: Any, beta: Any) -> Any:
        return torch.nn.functional.instance_norm(x, weight=gamma, bias=beta)

    def groups(torch: Any, x: Any, gamma: Any, beta: Any) -> Any:
        return torch.nn.functional.group_norm(x, 8, gamma, beta)

    rows = []
    for shape in (FEATURES, LARGE):
        text = _text(shape)
        trained = {"gamma": shape[3:], "beta": shape[3:]}
        rows += [
            Row(
                "CrossChannelNormalizationGradient",
                text,
                (shape,),
                lambda _: mpscnn.CrossChannelNormalization(kernel_size=5, **ALEXNET),
                channels,
            ),
            Row(
                "InstanceNormalizationGradient",
                text,
                (shape,),
                lambda values: mpscnn.InstanceNormalization(**values),
                instances,
                trained,
            ),
            Row(
                "GroupNormalizationGradient",
                text,
                (shape,),
                lambda values: mpscnn.GroupNormalization(**values, groups=8),
                groups,
                trained,
            ),
        ]
    for size, shape in ((3, FEATURES), (5, (1, 55, 55, 96))):
        rows += [
            Row(
                "SpatialNormalizationGradient",
                f"{size} {_text(shape)}",
                (shape,),
                lambda _, size=size: mpscnn.SpatialNormalization(kernel_size=size, **ALEXNET),
                lambda *given, size=size: spatial(*given, size=size),
            ),
            Row(
                "LocalContrastNormalizationGradient",
                f"{size} {_text(shape)}",
                (shape,),
                lambda _, size=size: mpscnn.LocalContrastNormalization(kernel_size=size, alpha=1.0),
                lambda *given, size=size: contrast(*given, size=size),
            ),
        ]
    return rows


def _text(shape: Shape) -> str:
    return f"{shape[3]} at {shape[1]}, batch {shape[0]}"


def _function(name: str, *numbers: Any, **options: Any) -> Callable[..., Any]:
    return lambda torch, x: getattr(torch.nn.functional, name)(x, *numbers, **options)


def _images() -> list[Row]:
    """Return the rows of pooling, resampling, padding and elementwise kernels."""
    rows = []

    def add(kernel: str, text: str, shape: Shape, make: Callable[[], Any], theirs: Any, *, exact: bool = True) -> None:
        what = f"{text} {_text(shape)}" if text else _text(shape)
        rows.append(Row(f"{kernel}Gradient", what, (shape,), lambda _: make(), theirs, exact=exact))

    pooled: tuple[Shape, ...] = ((32, 32, 32, 64), (64, 8, 8, 32))
    for shape in pooled:
        add("PoolingMax", "3/2", shape, lambda: mpscnn.PoolingMax(3, 2, 1), _function("max_pool2d", 3, 2, 1))
        add("PoolingMax", "2/2", shape, lambda: mpscnn.PoolingMax(2, 2), _function("max_pool2d", 2))
        add(
            "DilatedPoolingMax",
            "3",
            shape,
            lambda: mpscnn.DilatedPoolingMax(3, 2, stride=1),
            _function("max_pool2d", 3, 1, 0, 2),
        )
        add("PoolingAverage", "3/1", shape, lambda: mpscnn.PoolingAverage(3, 1, 1), _function("avg_pool2d", 3, 1, 1))
        add("PoolingL2Norm", "3/2", shape, lambda: mpscnn.PoolingL2Norm(3, 2), _function("lp_pool2d", 2.0, 3, 2))
    add("PoolingAverage", "global", (16, 2, 2, 512), lambda: mpscnn.PoolingAverage(2), _function("avg_pool2d", 2))
    for shape in (FEATURES, (1, 56, 56, 21)):
        twice = {"scale_factor": 2}
        add("UpsamplingNearest", "2", shape, lambda: mpscnn.UpsamplingNearest(2), _function("interpolate", **twice))
        add(
            "UpsamplingBilinear",
            "2",
            shape,
            lambda: mpscnn.UpsamplingBilinear(2, align_corners=True),
            _function("interpolate", **twice, mode="bilinear", align_corners=True),
        )
    for mode, theirs in (("constant", "constant"), ("clamp", "replicate"), ("mirror", "reflect")):
        pad = lambda mode=mode: mpscnn.Pad(3, edge_mode=mode)  # noqa: E731
        add("Pad", f"{mode} 3", FEATURES, pad, _function("pad", [3] * 4, mode=theirs))
    scores: tuple[Shape, ...] = ((1, 256, 256, 21), (8, 1, 1, 1000), (64, 1, 1, 10))
    for shape in scores:
        add("SoftMax", "", shape, mpscnn.SoftMax, _function("softmax", dim=1))
        add("LogSoftMax", "", shape, mpscnn.LogSoftMax, _function("log_softmax", dim=1))
    # PyTorch's gradient is a view and takes no time: compare with a negation, a pass over as many numbers.
    for shape, to in ((LARGE, (-1, 7, 32)), ((1, 256, 256, 32), (-1, 64, 8))):
        reshape = lambda to=to: mpscnn.Reshape(to)  # noqa: E731
        add("Reshape", "", shape, reshape, lambda torch, x: torch.neg(x), exact=False)
    for shape in (LARGE, (64, 8, 8, 32)):
        add("Dropout", "", shape, lambda: mpscnn.Dropout(0.5), _function("dropout", 0.5, training=True), exact=False)
    return rows


def _arithmetic() -> list[Row]:
    rows = []

    def add(kernel: str, text: str, second: Shape, theirs: Callable[..., Any], of: int = 1, **options: Any) -> None:
        make = lambda _: getattr(mpscnn, kernel)(**options)  # noqa: E731
        rows.append(Row(f"{kernel}Gradient", f"{text} {_text(LARGE)}", (LARGE, second), make, theirs, of=of))

    vector: Shape = (LARGE[0], 1, 1, LARGE[3])
    # For a plain sum, PyTorch returns the incoming gradient itself.
    add("Add", "scaled", LARGE, lambda torch, a, b: torch.add(a, b, alpha=2), secondary_scale=2.0)
    add("Add", "a vector", vector, lambda torch, a, b: a + b)
    add("Subtract", "from another", LARGE, lambda torch, a, b: a - b)
    add("Subtract", "a channel", (*LARGE[:3], 1), lambda torch, a, b: a - b)
    add("Multiply", "two", LARGE, lambda torch, a, b: a * b, of=0)
    add("Multiply", "a vector", vector, lambda torch, a, b: a * b)
    add("Multiply", "by a vector", vector, lambda torch, a, b: a * b, of=0)
    return rows


def _batch_rows() -> list[BatchRow]:
    return [
        BatchRow(
            "BatchNormalizationGradient" if whole else "BatchNormalizationStatisticsGradient",
            f"{'training' if whole else 'and BatchNormalizationGradient'} {_text(shape)}",
            shape,
            whole,
        )
        for whole in (True, False)
        for shape in ((32, 32, 32, 64), (32, 16, 16, 64), (32, 4, 4, 256), (64, 8, 8, 16))
    ]


ROWS: list[Row | BatchRow] = [*_with_weights(), *_batch_rows(), *_normalizations(), *_images(), *_arithmetic()]


def _close(found: np.ndarray, right: np.ndarray, what: str, limit: float = 1e-4) -> None:
    assert found.shape == right.shape, f"{what}: shape {found.shape}, not {right.shape}"
    difference = np.abs(found - right).max() / max(1e-3, np.abs(right).max())
    assert difference <= limit, f"{what} differs by {difference}"


def _random(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    made = mpscnn.empty(shape, np.float32)
    made[...] = rng.standard_normal(shape)
    return made


def _tensor(x: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(x).permute(0, 3, 1, 2)  # channels_last without a copy


def _in_order(row: Row, name: str, gradient: np.ndarray) -> np.ndarray:
    """Return PyTorch's gradient of a value in the layout of the state."""
    if name != "weight":
        return gradient
    if row.kernel.startswith("FullyConnected"):
        return gradient[:, None, None, :]
    if row.kernel.startswith("ConvolutionTranspose"):  # MPS rotates the filters
        return np.ascontiguousarray(gradient[:, :, ::-1, ::-1].transpose(1, 2, 3, 0))
    return mpscnn.reorder(np.ascontiguousarray(gradient), "OIHW")


def _contestants(row: Row) -> tuple[dict[str, Prepared], int]:
    """Return the contestants, and the number of bytes read and written."""
    rng = np.random.default_rng(0)
    sources = [_random(rng, shape) for shape in row.shapes]
    values = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in row.values.items()}
    forward = row.make(values)
    y = mpscnn.empty(forward.result_shape(*row.shapes), np.float32)
    grad = _random(rng, y.shape)
    kernel = forward.gradients[row.of]
    names = row_of(type(kernel))["sources"]
    seen = y if "y" in names else sources[1 - row.of if "other" in names else row.of]
    out = mpscnn.empty(row.shapes[row.of], np.float32)

    def prepare() -> Any:
        return forward(*sources, with_state=True, out=y)[1]

    def ours(state: Any) -> Any:
        kernel(grad, seen, state, out=out)
        return state

    found: dict[str, Prepared] = {"ours": (prepare, ours)}
    moved = grad.nbytes + seen.nbytes + out.nbytes
    try:
        import torch
    except ImportError:
        return found, moved
    tensors = [_tensor(source) for source in sources]
    trained = [torch.from_numpy(value) for value in values.values()]
    trained = [t.contiguous(memory_format=torch.channels_last) if t.ndim == 4 else t for t in trained]
    wanted = [tensors[row.of], *trained]
    for tensor in wanted:
        tensor.requires_grad_()
    incoming = _tensor(grad)
    if not row.exact:
        with torch.no_grad():
            incoming = torch.randn_like(row.theirs(torch, *tensors, *trained))

    def graph() -> Any:
        return row.theirs(torch, *tensors, *trained)

    def theirs(result: Any) -> Any:
        return torch.autograd.grad(result, wanted, incoming)

    found["torch"] = graph, theirs
    if row.exact:
        state, right = ours(prepare()), theirs(graph())
        _close(out, right[0].permute(0, 2, 3, 1).numpy(), row.name)
        for name, gradient in zip(values, right[1:], strict=True):
            _close(getattr(state, f"grad_{name}"), _in_order(row, name, gradient.numpy()), f"{row.name}, {name}")
    return found, moved


def _batch_contestants(row: BatchRow) -> tuple[dict[str, Prepared], int]:
    rng = np.random.default_rng(0)
    x, grad = _random(rng, row.shape), _random(rng, row.shape)
    gamma, beta = rng.uniform(0.5, 2, (2, row.shape[3])).astype(np.float32)
    kernel = mpscnn.BatchNormalization(gamma, beta, epsilon=EPSILON)
    statistics, of_statistics = mpscnn.BatchNormalizationStatistics(), mpscnn.BatchNormalizationStatisticsGradient()
    state = mpscnn.BatchNormalizationState(row.shape[3])
    y, out = mpscnn.empty(row.shape, np.float32), mpscnn.empty(row.shape, np.float32)

    def forward() -> None:
        statistics(x, state)
        kernel(x, state, out=y)

    def backward(_: Any = None) -> None:
        of_statistics(grad, x, state)
        kernel.gradient(grad, x, state, out=out)

    def nothing() -> None:
        return None

    def training(_: Any) -> None:
        forward()
        backward()

    found: dict[str, Prepared] = {"ours": (nothing, training) if row.whole else (forward, backward)}
    moved = (5 if row.whole else 3) * x.nbytes
    try:
        import torch
    except ImportError:
        return found, moved
    wanted = [_tensor(x).requires_grad_(), *(torch.from_numpy(v.copy()).requires_grad_() for v in (gamma, beta))]
    incoming = _tensor(grad)

    def graph() -> Any:
        return torch.nn.functional.batch_norm(wanted[0], None, None, *wanted[1:], training=True, eps=EPSILON)

    def theirs(result: Any) -> Any:
        return torch.autograd.grad(result, wanted, incoming)

    found["torch"] = (nothing, lambda _: theirs(graph())) if row.whole else (graph, theirs)
    training(None)
    right = theirs(graph())
    _close(out, right[0].permute(0, 2, 3, 1).numpy(), row.name)
    _close(state.grad_gamma, right[1].numpy(), f"{row.name}, gamma")
    _close(state.grad_beta, right[2].numpy(), f"{row.name}, beta")
    return found, moved


def run(seconds: float = 1.0, case: str = "", best: bool = False) -> list[dict[str, Any]]:
    """Return rows with seconds per call and GB/s; each row takes about `seconds`."""
    results = []
    for row in ROWS:
        if case not in row.name:
            continue
        contestants, moved = _batch_contestants(row) if isinstance(row, BatchRow) else _contestants(row)
        times = interleaved_prepared(contestants, seconds, best=best)
        results.append({"case": row.name, "seconds": times, "gigabytes": moved / times["ours"] / 1e9})
    return results
