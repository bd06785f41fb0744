# SPDX-License-Identifier: Apache-2.0
"""Arbitrary shapes, strides, offsets and windows, against the float64 oracles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases import Case, make
from conftest import Guarded
from oracle import compare
from oracle.expected import expected
from test_forward import build

EXAMPLES = 40
SECONDS = 2.0  # deadline of one example, which a slow machine needs a tenth of

VIEWS = ("dense", "nchw", "channels", "steps", "reversed")
DTYPES = ("float32", "float16")
extent = st.integers(1, 9)
channels = st.one_of(st.integers(1, 9), st.sampled_from([16, 17, 31, 32, 33, 64, 70]))
small = st.integers(0, 3)
edge = st.sampled_from(["zero", "clamp"])


@st.composite
def shapes(draw: Any) -> tuple[int, int, int, int]:
    return draw(st.integers(1, 3)), draw(extent), draw(extent), draw(channels)


def pairs(low: int, high: int) -> Any:
    return st.tuples(st.integers(low, high), st.integers(low, high))


def placed(draw: Any, params: dict[str, Any]) -> dict[str, Any]:
    """Draw an offset and an edge mode for some examples."""
    if draw(st.booleans()):
        params |= {"offset": draw(pairs(-3, 3)), "edge_mode": draw(edge)}
    return params


def _neuron(draw: Any) -> Case:
    kernel = draw(st.sampled_from(["NeuronReLU", "NeuronSigmoid", "NeuronTanH", "NeuronAbsolute", "NeuronSoftPlus"]))
    return Case(kernel, draw(shapes()), "any", params=placed(draw, {}))


def _softmax(draw: Any) -> Case:
    return Case(draw(st.sampled_from(["SoftMax", "LogSoftMax"])), draw(shapes()), "any", params=placed(draw, {}))


def _pooling(draw: Any) -> Case:
    kernel = draw(st.sampled_from(["PoolingMax", "PoolingAverage", "PoolingL2Norm"]))
    size = draw(pairs(1, 4))
    params = {"kernel_size": size, "stride": draw(pairs(1, 3)), "padding": draw(pairs(0, 2)), "edge_mode": draw(edge)}
    n, h, w, c = draw(shapes())
    return Case(kernel, (n, h + size[0], w + size[1], c), "any", params=params)


def _convolution(draw: Any) -> Case:
    size, dilation = draw(pairs(1, 4)), draw(pairs(1, 2))
    params: dict[str, Any] = {"stride": draw(pairs(1, 3)), "padding": draw(pairs(0, 3)), "dilation": dilation}
    if draw(st.booleans()):
        params["edge_mode"] = "clamp"
    n, h, w, c = draw(shapes())
    reach = [(k - 1) * d for k, d in zip(size, dilation, strict=True)]
    weight = (draw(st.integers(1, 20)), c, *size)
    activation = draw(st.sampled_from([None, "relu", "sigmoid", "tanh"]))
    return Case(
        "Convolution", (n, h + reach[0], w + reach[1], c), "any", params=params, weight=weight, activation=activation
    )


def _transpose(draw: Any) -> Case:
    size, stride = draw(pairs(2, 4)), draw(pairs(1, 3))
    params = {"stride": stride, "padding": draw(pairs(0, 1))}
    n, h, w, c = draw(shapes())
    weight = (c, draw(st.integers(1, 9)), *size)
    return Case("ConvolutionTranspose", (n, h + 2, w + 2, c), "any", params=params, weight=weight)


def _binary_convolution(draw: Any) -> Case:
    size = draw(pairs(1, 3))
    params = {
        "type": draw(st.sampled_from(["xnor", "and", "binary_weights"])),
        "padding": draw(pairs(0, 2)),
        "stride": draw(pairs(1, 2)),
        "edge_mode": draw(edge),
        "beta_scaling": draw(st.booleans()),
    }
    n, h, w, c = draw(shapes())
    terms = ("scale", "input_bias", "input_scale") if draw(st.booleans()) else ()
    weight = (draw(st.integers(1, 20)), *size, c)
    return Case("BinaryConvolution", (n, h + 2, w + 2, c), "any", params=params, weight=weight, given=terms)


def _arithmetic(draw: Any) -> Case:
    x = draw(shapes())
    second = tuple(draw(st.sampled_from([1, n])) for n in x)
    params = {"primary_scale": draw(st.sampled_from([1.0, -0.5])), "bias": draw(st.sampled_from([0.0, 0.25]))}
    kernel = draw(st.sampled_from(["Add", "Subtract", "Multiply"]))
    return Case(kernel, x, "any", second=(second[0], second[1], second[2], second[3]), params=params)


def _upsampling(draw: Any) -> Case:
    kernel = draw(st.sampled_from(["UpsamplingNearest", "UpsamplingBilinear"]))
    params: dict[str, Any] = {"scale_factor": draw(pairs(1, 4))}
    if kernel == "UpsamplingBilinear":
        params["align_corners"] = draw(st.booleans())
    return Case(
        kernel, draw(shapes()), "any", params=placed(draw, params) if not params.get("align_corners") else params
    )


def _resize(draw: Any) -> Case:
    params = {"size": draw(pairs(1, 12)), "align_corners": draw(st.booleans())}
    return Case("ResizeBilinear", draw(shapes()), "any", params=params)


def _reduction(draw: Any) -> Case:
    axis = draw(st.sampled_from(["Row", "Column", "FeatureChannels"]))
    kinds = ["Max", "Min", "Mean", "Sum", *(["ArgumentMax", "ArgumentMin"] if axis == "FeatureChannels" else [])]
    return Case(f"Reduce{axis}{draw(st.sampled_from(kinds))}", draw(shapes()), "any")


def _pad(draw: Any) -> Case:
    sides = (draw(pairs(0, 3)), draw(pairs(0, 3)))
    n, h, w, c = draw(shapes())
    params = {"padding": sides, "edge_mode": draw(st.sampled_from(["constant", "clamp", "mirror"]))}
    return Case("Pad", (n, h + 3, w + 3, c), "any", params=params)


def _slice(draw: Any) -> Case:
    n, h, w, c = draw(shapes())
    return Case("Slice", (n, h + 2, w + 1, c), "any", params={"offset": draw(pairs(0, 1)), "size": (h, w)})


def _local(draw: Any) -> Case:
    kernel = draw(st.sampled_from(["CrossChannelNormalization", "SpatialNormalization", "LocalContrastNormalization"]))
    params = {"kernel_size": draw(st.integers(1, 6)), "alpha": 0.5, "beta": 0.75, "delta": 2.0}
    return Case(kernel, draw(shapes()), "any", params=placed(draw, params))


def _normalization(draw: Any) -> Case:
    kernel = draw(st.sampled_from(["InstanceNormalization", "BatchNormalization"]))
    values = ("gamma", "beta", "mean", "variance") if kernel == "BatchNormalization" else ("gamma", "beta")
    n, h, w, c = draw(shapes())
    return Case(kernel, (n, h + 1, w + 1, c), "any", given=values)


FAMILIES: dict[str, Callable[[Any], Case]] = {
    "arithmetic": _arithmetic,
    "binary convolution": _binary_convolution,
    "convolution": _convolution,
    "local normalization": _local,
    "neurons": _neuron,
    "normalization": _normalization,
    "padding": _pad,
    "pooling": _pooling,
    "reductions": _reduction,
    "resizing": _resize,
    "slices": _slice,
    "soft max": _softmax,
    "transposed convolution": _transpose,
    "upsampling": _upsampling,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_any(family: str) -> None:
    @st.composite
    def cases(draw: Any) -> tuple[Case, str, str]:
        case = FAMILIES[family](draw)
        view, out_view, second_view = (draw(st.sampled_from(VIEWS)) for _ in range(3))
        fields = {"x_view": view, "out_view": out_view} | ({"second_view": second_view} if case.second else {})
        return Case(**{**vars(case), **fields}), draw(st.sampled_from(DTYPES)), out_view

    @settings(
        max_examples=EXAMPLES,
        deadline=SECONDS * 1e3,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(cases())
    def check(drawn: tuple[Case, str, str]) -> None:
        case, dtype, out_view = drawn
        inputs = make(case, dtype)
        right = expected(case, inputs, dtype)
        if min(right.value.shape) == 0:
            return
        out = Guarded(right.shape, dtype, out_view)
        build(case, inputs)(*inputs.sources, out=out.array)
        out.check(right.region)
        compare.assert_close(compare.as_numbers(out.array[right.region]), right.value, right.bound, str(case))

    check()
