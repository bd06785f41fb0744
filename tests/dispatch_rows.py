# SPDX-License-Identifier: Apache-2.0
"""Kernels, gradients, losses and optimizers on small images, for every list of implementations of the engine.

A server for test_dispatch.py; serve() describes the protocol.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mpscnn
from cases import make
from mpscnn.importing.builder import Builder
from mpscnn.importing.ops import general
from test_batch_gradient import Layer
from test_forward import CASES, build
from test_gradient import CASES as WITH_GRADIENTS
from test_gradient import encoded

Array = NDArray[Any]
MOST_ROWS = 12  # of a kernel


def spread(rows: list[Any]) -> list[Any]:
    """Return at most MOST_ROWS rows of each kernel, including the first and the last."""
    of_kernel: dict[str, list[Any]] = {}
    for row in rows:
        of_kernel.setdefault(row[0].kernel, []).append(row)
    chosen = []
    for group in of_kernel.values():
        count = min(MOST_ROWS, len(group))
        chosen += [group[i * (len(group) - 1) // max(1, count - 1)] for i in range(count)]
    return chosen


def forward() -> Iterator[tuple[str, Array]]:
    for case, dtype in spread([(row, dtype) for row in CASES for dtype in row.dtypes if not row.out]):
        inputs = make(case, dtype)
        yield f"{case}-{dtype}", build(case, inputs)(*inputs.sources, dtype=case.result_dtype)


def gradients() -> Iterator[tuple[str, Array]]:
    for (case,) in spread([(row,) for row in WITH_GRADIENTS]):
        given = encoded(case)
        for source, kernel in enumerate(given.kernel.gradients):
            if given.inputs.sources[source].dtype.kind == "f":
                yield f"{case} gradient {source}", kernel(given.grad, given.second(source), given.state)


def pooling() -> Iterator[tuple[str, Array]]:
    """Yield poolings with and without overlap, with more and less than one thread's work, with many columns."""
    x = np.random.default_rng(3).normal(size=(2, 16, 16, 70)).astype(np.float32)
    for size, stride in (((2, 2), (2, 2)), ((3, 3), (1, 1)), ((8, 8), (4, 4))):
        for kind in (mpscnn.PoolingMax, mpscnn.PoolingAverage):
            kernel = kind(size, stride=stride)
            y, state = kernel(x, with_state=True)
            yield f"{kind.__name__} {size}", y
            yield f"{kind.__name__} {size} gradient", kernel.gradients[0](np.ones_like(y), x, state)


def reductions() -> Iterator[tuple[str, Array]]:
    for dtype in ("float32", "float16"):
        for c in (3, 40):
            x = np.random.default_rng(4).normal(size=(2, 6, 8, c)).astype(dtype)
            for name in ("Row", "Column", "FeatureChannels"):
                yield f"{name} {dtype} {c}", getattr(mpscnn, f"Reduce{name}Sum")()(x)


def normalizations() -> Iterator[tuple[str, Array]]:
    for dtype, activation in (("float32", None), ("float32", "tanh"), ("float16", "relu")):
        layer = Layer((2, 5, 6, 64), activation, dtype)
        state = layer.statistics(layer.x)
        name = f"BatchNormalization {dtype} {activation}"
        yield name, layer.kernel(layer.x, state)
        layer.statistics_gradient(layer.grad, layer.x, state)
        yield f"{name} gradient", layer.kernel.gradient(layer.grad, layer.x, state)
        yield f"{name} gamma", state.grad_gamma


def gates() -> Iterator[tuple[str, Array]]:
    """Yield an image times its global average, which a plan makes of two reductions."""
    for dtype in ("float32", "float16"):
        graph = mpscnn.Graph()
        x = graph.input("x", channels=24)
        average = graph.add("ReduceColumnMean", graph.add("ReduceRowMean", x))
        graph.output(graph.add("Multiply", x, average), "y")
        image = np.random.default_rng(6).normal(size=(2, 5, 7, 24)).astype(dtype)
        yield f"gates {dtype}", mpscnn.Network(graph, dtype=dtype)(image)


def groups() -> Iterator[tuple[str, Array]]:
    """Yield convolutions that are computed together, whose results are images of their own or the source."""
    rng = np.random.default_rng(9)

    def convolution(inputs: int, outputs: int, size: int = 1, count: int = 1) -> mpscnn.Convolution:
        weight = rng.normal(size=(outputs, size, size, inputs // count)).astype(np.float32)
        return mpscnn.Convolution(weight, layout="OHWI", padding=size // 2, groups=count)

    expand, depthwise, project = convolution(8, 40), convolution(40, 40, 3, 40), convolution(40, 8)
    last, product = convolution(8, 8), mpscnn.Multiply()
    x, pixels = rng.normal(size=(2, 20, 12, 8)).astype(np.float32), rng.normal(size=(2, 1, 1, 8)).astype(np.float32)
    widen, narrow = convolution(1, 64, 3), convolution(64, 1)
    large = rng.normal(size=(1, 400, 400, 1)).astype(np.float32)  # 41 MB between the two
    for in_place in (False, True):
        image, gates = mpscnn.Image.from_array(x), mpscnn.Image.from_array(pixels)
        with mpscnn.CommandBuffer() as commands:
            expanded = expand.encode(commands, image, temporary=True)
            convolved = depthwise.encode(commands, expanded, temporary=True)
            y = project.encode(commands, convolved, out=image if in_place else None)
        yield f"chain, {in_place}", y.numpy().copy()
        image = mpscnn.Image.from_array(x)
        with mpscnn.CommandBuffer() as commands:
            gated = product.encode(commands, image, gates, temporary=True)
            y = last.encode(commands, gated, out=image if in_place else None)
        yield f"gated, {in_place}", y.numpy().copy()
        image = mpscnn.Image.from_array(large)
        with mpscnn.CommandBuffer() as commands:
            between = widen.encode(commands, image, temporary=True)
            y = narrow.encode(commands, between, out=image if in_place else None)
        yield f"bands, {in_place}", y.numpy()[:, ::7].copy()


def copies() -> Iterator[tuple[str, Array]]:
    x = np.arange(2 * 3 * 4 * 8, dtype=np.uint8).reshape(2, 3, 4, 8)
    yield "uint8 to float16", mpscnn.Slice()(x, dtype="float16")


def losses() -> Iterator[tuple[str, Array]]:
    for c in (5, 40):
        rng = np.random.default_rng([5, c])
        x, t = rng.normal(size=(2, 3, 4, c)).astype(np.float32), rng.uniform(size=(2, 3, 4, c)).astype(np.float32)
        for kind in ("softmax_cross_entropy", "mean_squared_error"):
            loss, gradient = mpscnn.Loss(kind)(x, mpscnn.LossLabels(t))
            yield f"{kind} {c}", np.asarray(loss)
            yield f"{kind} {c} gradient", gradient


def optimizers() -> Iterator[tuple[str, Array]]:
    values, gradient = mpscnn.Buffer(400), mpscnn.Buffer(400)
    values.numpy("float32")[:] = 1
    gradient.numpy("float32")[:] = np.arange(100)
    optimizer = mpscnn.OptimizerStochasticGradientDescent(0.01)
    state = optimizer.state_for(values)
    with mpscnn.CommandBuffer() as commands:
        optimizer.encode(commands, gradient, state)
    yield "SGD", values.numpy("float32").copy()


def quantized() -> Iterator[tuple[str, Array]]:
    """Yield networks on 8-bit numbers: convolutions with and without a border and a zero, sums, products, pooling."""
    rng = np.random.default_rng(7)

    def stored(x: mpscnn.Value, step: float, zero: int) -> mpscnn.Value:
        numbers = graph.add("NeuronLinear", x, a=1 / (255 * step), b=zero / 255, result_dtype="uint8")
        return graph.add("NeuronLinear", numbers, a=255 * step, b=-zero * step)

    def convolved(x: mpscnn.Value, size: int, multiples: bool = True) -> mpscnn.Value:
        weight = rng.integers(-9, 10, (24, 24, size, size)) / 64 + (0 if multiples else rng.random((24, 24, 1, 1)))
        return graph.add("Convolution", x, weight=weight.astype(np.float32), padding=size // 2)

    graph = mpscnn.Graph()
    x = stored(graph.input("x", channels=24), 1 / 32, 128)
    a = stored(convolved(x, 3), 1 / 4, 100)
    b = stored(convolved(x, 1), 1 / 4, 120)
    c = stored(graph.add("Add", a, b, minimum_value=0.0), 1 / 8, 0)
    d = stored(graph.add("PoolingMax", c, kernel_size=2), 1 / 8, 0)
    graph.output(stored(convolved(d, 3, multiples=False), 4, 30), "y")
    values = rng.normal(size=(2, 8, 8, 24)).astype(np.float32)
    # In steps of the result: one of them is no difference between two implementations.
    yield "quantized", np.rint(np.asarray(mpscnn.Network(graph)(values)) / 4 + 30).astype(np.uint8)
    numbers = (255 * rng.random((2, 8, 8, 16))).astype(np.uint8)
    yield "pool of bytes", mpscnn.PoolingMax(3)(numbers, dtype="uint8")

    # A depth-wise convolution, a function of its numbers, their means, products with these and with other numbers.
    graph = mpscnn.Graph()
    x = stored(graph.input("x", channels=16), 1 / 32, 128)
    weight = (rng.integers(-9, 10, (16, 1, 3, 3)) / 64).astype(np.float32)
    a = stored(graph.add("Convolution", x, weight=weight, groups=16, padding=1), 1 / 16, 100)
    b = stored(graph.add("NeuronSigmoid", a), 1 / 255, 0)
    mean = graph.add("ReduceRowMean", graph.add("ReduceColumnMean", b))
    gate = stored(graph.add("NeuronHardSigmoid", stored(mean, 1 / 255, 0), a=0.5, b=0.25), 1 / 255, 0)
    c = stored(graph.add("Multiply", b, gate), 1 / 255, 0)
    graph.output(stored(graph.add("Multiply", x, c), 1 / 64, 128), "y")
    weight = (rng.integers(-9, 10, (4, 16, 1, 1)) / 64).astype(np.float32)
    few = stored(graph.add("Convolution", x, weight=weight), 1 / 16, 128)
    graph.output(stored(graph.add("ReduceRowMean", graph.add("ReduceColumnMean", few)), 1 / 16, 128), "few")
    weight = (rng.integers(-9, 10, (16, 16, 1, 1)) / 64).astype(np.float32)
    sums = graph.add("Convolution", x, weight=weight)
    swish = graph.add("Multiply", sums, graph.add("NeuronSigmoid", sums))
    graph.output(stored(swish, 1 / 16, 10), "swish")
    y, means, gated = mpscnn.Network(graph)(values[..., :16])
    yield "products", np.rint(np.asarray(y) * 64 + 128).astype(np.uint8)
    yield "swish", np.rint(np.asarray(gated) * 16 + 10).astype(np.uint8)
    yield "means", np.rint(np.asarray(means) * 16 + 128).astype(np.uint8)


def functions() -> Iterator[tuple[str, Array]]:
    """Yield a product and permutations as Metal functions that say so, with and without channels in fours."""
    for extents in ((5, 9, 13, 7), (2, 8, 12, 16)):
        count, rows, inner, columns = extents
        rng = np.random.default_rng(8)
        a = rng.normal(size=(2, count, rows, inner)).astype(np.float32)
        b = rng.normal(size=(2, count, inner, columns)).astype(np.float32)
        builder = Builder()
        x = builder.input("a", a.shape[1:], "NHWC")
        y = builder.input("b", b.shape[1:], "NHWC")
        builder.fix_unless_constant(x)
        builder.fix_unless_constant(y)
        builder.output("product", general.matmul(builder, x, y))
        builder.output("permutation", general.permute(builder, x, (1, 0, 2)))
        builder.output("transpose", general.permute(builder, x, (2, 1, 0)))
        for name, result in zip(builder.graph.outputs, mpscnn.Network(builder.graph)(a, b), strict=True):
            yield f"{name} of a function {extents}", np.asarray(result)


PARTS = (
    *(forward, quantized, gradients, pooling, reductions, normalizations),
    *(gates, groups, copies, functions, losses, optimizers),
)


def save(path: str) -> None:
    np.savez(path, **{name.replace("/", "|"): array for part in PARTS for name, array in part()})  # type: ignore[arg-type]


def serve() -> None:
    """Answer each line "name path" with the exit status of a run that writes path.npz and path.trace.

    Importing PyTorch takes ten times as long as the rows: fork for each line, before the environment is read.
    """
    for line in sys.stdin:
        name, path = line.split()
        child = os.fork()
        if child == 0:
            os.environ |= {"MPSCNN_IMPL": name.removeprefix("-"), "MPSCNN_TRACE": "dispatch"}
            with open(f"{path}.trace", "w") as trace:
                os.dup2(trace.fileno(), 2)
            save(f"{path}.npz")
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
