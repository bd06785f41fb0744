# SPDX-License-Identifier: Apache-2.0
"""Rows of gradient kernels for tests/objc/rows_test.mm; derivatives are finite differences of the float64 oracle.

gradient.class, .init, .arguments, .property.<name>   how the gradient kernel is made
seen                                                  the secondary image: source, second or y
upstream, gradient, gradient_bound                    arrays; gradientFor<...>: those of parameters, in the state
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cases import Case, Inputs, make, row
from oracle import expected as oracle
from oracle import normalized

from . import objc_forward
from .finite_differences import gradients
from .row_file import Row

Array = NDArray[np.float64]

LARGEST = 700
"""Max number of values of an image; fewer where each difference is a convolution."""
LARGEST_CONVOLVED = 400
LARGEST_OF_ALL = 300
"""Max number of values of all images, where the result depends on the image's index."""
LARGEST_WEIGHT = 150
RELATIVE = 2e-5
"""Relative to the largest derivative; upstream gradients are about 1."""

SEEN = {"SoftMax": ("y",), "LogSoftMax": ("y",), "Multiply": ("second", "source"), "Add": ("source", "second")}
SEEN["Subtract"] = SEEN["Add"]
WITHOUT = ("Divide", "Compare", "Slice", "Resize", "CropAndResize", "Reduce", "Binary", "Batch", "NeuronGradient")
PARAMETERS = {"gamma": "gradientForGamma", "beta": "gradientForBeta"}
COPIED = ("alpha", "beta", "delta", "p0", "pm", "ps", "zeroPadSizeX", "zeroPadSizeY", "accumulatorPrecisionOption")

# Sources that the forward kernel reads out of bounds, in addition to the cases of the forward kernels.
CLAMPED = {"offset": (-2, 3), "edge_mode": "clamp"}
BOTH = {"primary_offset": (1, -2), "secondary_offset": (-3, 4)}
BOTH |= {"primary_edge_mode": "clamp", "secondary_edge_mode": "clamp"}
MORE: dict[str, list[Case]] = {
    "MPSCNNDropout": [row("Dropout", x=(2, 4, 5, 6), seed=3, why="bits of their own", **CLAMPED)],
    "MPSCNNMath": [
        *[
            row(kernel, x=(2, 3, 4, 5), second=(2, 3, 4, 5), why="clamped", **BOTH)
            for kernel in SEEN
            if "Max" not in kernel
        ],
        *[
            row(kernel, x=(2, 3, 4, 5), second=(2, 3, 1, 1), why="repeated", **BOTH)
            for kernel in SEEN
            if "Max" not in kernel
        ],
        *[
            row(kernel, x=(1, 3, 4, 5), second=(1, 1, 1, 5), secondary_offset=offset, why="read from outside")
            for kernel in ("Add", "Subtract")
            for offset in ((0, 1), (-1, 0))
        ],
    ],
    "MPSCNNNormalization": [
        row(kernel, x=(1, 5, 6, 8), kernel_size=size, source_feature_channel_offset=4, why="clamped", **CLAMPED)
        for kernel in normalized.LOCAL
        for size in (2, 3)
    ],
    "MPSCNNSoftMax": [row(kernel, x=(1, 4, 5, 6), why="clamped", **CLAMPED) for kernel in ("SoftMax", "LogSoftMax")],
}


def _gradient_kernel(case: Case, settings: dict[str, Any], source: int) -> dict[str, Any]:
    """Return the settings that make the gradient kernel of a forward kernel."""
    kernel = case.kernel if not case.kernel.startswith("Neuron") else "Neuron"
    init, arguments = settings["init"], settings["arguments"]
    if case.kernel in SEEN and len(SEEN[case.kernel]) == 2:
        init, arguments = "initWithDevice:isSecondarySourceFilter:", f"device {source}"
    elif case.kernel in ("Pad", "InstanceNormalization", "GroupNormalization"):
        init, arguments = "initWithDevice:", "device"
    elif case.kernel == "UpsamplingBilinear":
        init, arguments = init.removesuffix("alignCorners:"), " ".join(arguments.split()[:3])
    made = {"class": objc_forward.apple_class(kernel) + "Gradient", "init": init, "arguments": arguments}
    made |= {f"property.{name}": settings[f"property.{name}"] for name in COPIED if f"property.{name}" in settings}
    if case.weight or case.kernel in ("Add", "Subtract", "Multiply"):
        made = {name: value for name, value in made.items() if not name.startswith("property.")}
    return {f"gradient.{name}": value for name, value in made.items()}


def _differentiable(case: Case) -> bool:
    """As in test_gradient.py: values not on a kink, float32, no parts of a destination."""
    return not (
        case.kernel.startswith(WITHOUT)
        or case.dtypes[0] != "float32"
        or case.result_dtype
        or case.out
        or (case.second and case.x[0] != case.second[0])
        or "destination_feature_channel_offset" in case.params
        or (case.weight and (case.activation or case.batch_norm))
        or case.params.get("sub_pixel_scale_factor", 1) != 1
        or case.quantized
        or case.weight_dtype != "float32"
        or case.params.get("kernel_dtype") == "float16"
        or "allow_reduced_precision" in case.params
        or (case.values and ("Max" in case.kernel or "Norm" in case.kernel or case.kernel.startswith("Neuron")))
        or int(np.prod(case.x[1:])) > (LARGEST_CONVOLVED if case.weight else LARGEST)
        or (case.kernel == "Dropout" and int(np.prod(case.x)) > LARGEST_OF_ALL)
    )


def _forward(case: Case, inputs: Inputs) -> Any:
    def value(x: Array, second: Array | None = None) -> Array:
        return oracle.expected(case, replace(inputs, x=x, second=second), "float64").value

    return value


def _read(case: Case, gradient: Array, prefix: str) -> Array:
    """Only the channels that the forward kernel reads have a gradient."""
    first = case.params.get(f"{prefix}source_feature_channel_offset", 0)
    most = case.params.get(f"{prefix}source_feature_channel_max_count") or gradient.shape[3]
    return gradient[..., first : first + most]


def _summed(case: Case, gradient: Array, prefix: str) -> Array:
    """One value along an axis with a stride of 0, which reads one position; other derivatives are 0."""
    height, width = np.broadcast_to(case.params.get(f"{prefix}stride", 1), 2)
    channels = case.params.get(f"{prefix}stride_in_feature_channels", 1)
    axes = tuple(axis for axis, stride in ((1, height), (2, width), (3, channels)) if stride == 0)
    return gradient.sum(axis=axes, keepdims=True)


def _parameters(case: Case, inputs: Inputs, upstream: Array) -> dict[str, Array]:
    """Return derivatives by weights, bias, gamma and beta, by the names of the state's methods."""
    found: dict[str, Array] = {}
    if inputs.weight is not None and inputs.weight.size <= LARGEST_WEIGHT:
        bias = np.zeros(case.out_channels()) if inputs.bias is None else inputs.bias

        def with_weight(weight: Array, bias: Array) -> Array:
            return oracle.expected(case, replace(inputs, weight=weight, bias=bias), "float64").value

        values = [inputs.weight.astype("f8"), bias.astype("f8")]
        weight, biases = gradients(with_weight, values, upstream, by_image=False, step=0.5)
        found = {"gradientForWeights": oracle._ohwi(case, weight), "gradientForBiases": biases}
    if case.kernel in ("InstanceNormalization", "GroupNormalization"):
        gamma, beta = normalized.values(inputs, objc_forward.kernel(case, inputs).arrays["gamma"].size)

        def with_affine(gamma: Array, beta: Array) -> Array:
            given = {"gamma": gamma, "beta": beta}
            return oracle.expected(case, replace(inputs, given=given), "float64").value

        derivatives = gradients(with_affine, [gamma, beta], upstream, by_image=False, step=0.5)
        found = dict(zip(PARAMETERS.values(), derivatives, strict=True))
    return found


def rows(cases: list[Case]) -> list[Row]:
    """Return rows of every forward kernel with a gradient."""
    found = []
    for case in cases:
        if not _differentiable(case):
            continue
        inputs = make(case, "float32")
        right = oracle.expected(case, inputs, "float32")
        forms = objc_forward.forms(case, inputs, right)
        if not forms["returned"] or not all(np.isfinite(x).all() for x in (*inputs.sources, right.value)):
            continue
        upstream = np.random.default_rng(7).normal(size=right.value.shape).astype(np.float32)
        sources = [x.astype(np.float64) for x in inputs.sources]
        weight, by_image = upstream.astype(np.float64), case.kernel != "Dropout"
        derivatives = gradients(_forward(case, inputs), sources, weight, by_image=by_image)
        parameters = _parameters(case, inputs, upstream.astype(np.float64))
        for i, gradient in enumerate(derivatives):
            one = objc_forward.kernel(case, inputs)
            one.name = f"gradient of {case}" + (f", source {i}" if case.second else "")
            one.settings |= {"dtype": "float32", "destination": " ".join(map(str, right.shape)), **forms}
            one.settings |= {"seen": SEEN.get(case.kernel, ("source",))[i], **_gradient_kernel(case, one.settings, i)}
            part = _read(case, gradient, oracle.PREFIXES[i] if case.second else "")
            part = _summed(case, part, oracle.PREFIXES[i]) if case.second else part
            one.arrays |= {"upstream": upstream, "gradient": part, **parameters}
            one.arrays["gradient_bound"] = np.full(part.shape, RELATIVE * max(np.abs(part).max(initial=0.0), 5e-2))
            found.append(one)
    return found
