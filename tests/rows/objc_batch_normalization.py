# SPDX-License-Identifier: Apache-2.0
"""Rows of the gradients of batch normalization for tests/objc/rows_test.mm: statistics, normalization, sums and
gradient in one command buffer, in every encode form of the gradient. Settings as in objc_places.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from oracle.MPSCNNBatchNormalization import normalize, statistics
from oracle.MPSCNNNeuron import relu

from .finite_differences import gradients
from .objc_places import GRADIENT, Array, Arrays, called, properties, random, within
from .row_file import Row

EPSILON = 2.0**-9
CALLS = {
    "statistics": "encodeBatchToCommandBuffer:sourceImages:batchNormalizationState: commands {x} {state}",
    "layer": "encodeBatchToCommandBuffer:sourceImages:batchNormalizationState:destinationImages: "
    "commands {x} {state} empties:y",
    "sums": "encodeBatchToCommandBuffer:sourceGradients:sourceImages:batchNormalizationState: commands {e} {x} {state}",
}
BATCH = "encodeBatchToCommandBuffer:sourceGradients:sourceImages:batchNormalizationState:"
SINGLE = "encodeToCommandBuffer:sourceGradient:sourceImage:batchNormalizationState:"
FORMS = {
    BATCH: "views:e views:x {state}",
    BATCH + "destinationGradients:": "batch:e batch:x {state} empties:result",
    SINGLE: "image:e image:x {state}",
    SINGLE + "destinationGradient:": "image:e image:x {state} empty:result",
    GRADIENT: "image:e image:x {state} empty:result",
}


def parameters(channels: int) -> Arrays:
    arrays: Arrays = {name: random(channels, seed=i) for i, name in enumerate(("gamma", "beta", "mean", "variance"))}
    arrays["gamma"] += np.float32(1.5)
    arrays["variance"] = np.abs(arrays["variance"]) + np.float32(0.25)
    return arrays


KINDS = {"layer": "", "statistics": "Statistics", "sums": "StatisticsGradient", "gradient": "Gradient"}


def one(
    name: str, call: str, words: str, arrays: Arrays, after: Arrays, before: dict[str, str], slope: float, kind: str
) -> Row:
    """`before`: calls by the names of the objects; `kind`: kind of the kernel itself."""
    neuron = "none" if slope == 1 else "neuron"
    settings: dict[str, Any] = {"epsilon": EPSILON, "neuron": f"1 {slope} 0 0"}
    for place, (which, text) in enumerate(before.items()):
        init, given = "initWithDevice:", "device"
        if which != "statistics":
            data = which == "layer"
            init += "dataSource:" * data + "fusedNeuronDescriptor:"
            given += " normalization" * data + f" {neuron}"
        settings |= {f"{which}.class": f"MPSCNNBatchNormalization{KINDS[which]}", f"{which}.init": init}
        settings |= {f"{which}.arguments": given, f"before.{place}": f"{which} {text}"}
    init = f"initWithDevice:fusedNeuronDescriptor: {neuron}"
    made = called(name, f"MPSCNNBatchNormalization{KINDS[kind]}", init, call, words, arrays, after)
    made.settings |= settings
    return made


def forms() -> Iterator[Row]:
    x, e, affine = random(3, 4, 3, 5), random(3, 4, 3, 5, seed=1), parameters(5)
    gamma, beta, mean, variance = (values.astype(np.float64) for values in affine.values())
    for slope in (1.0, 0.5):
        for own in (True, False):

            def forward(x: Array, gamma: Array, beta: Array, own: bool = own, slope: float = slope) -> Array:
                moments = statistics(x) if own else (mean, variance)
                return relu(normalize(x, *moments, gamma, beta, EPSILON), slope)

            y, state = forward(x.astype("f8"), gamma, beta), "state:x,x"
            g, *sums = gradients(forward, [x.astype("f8"), gamma, beta], e.astype("f8"), by_image=False)
            for call, words in FORMS.items():
                given = {"x": "views:x" if "views" in words else "batch:x", "state": state}
                given["e"] = given["x"].replace("x", "e")
                before = {which: text.format(**given) for which, text in CALLS.items() if own or which != "statistics"}
                result = words.split()[-1] if "empt" in words else "returned"
                for with_sums in (True, False)[: 1 if own else 2]:
                    after = {result: g, "empties:y": y} | ({state: np.concatenate(sums)} if with_sums else {})
                    chosen = before if with_sums else {k: text for k, text in before.items() if k != "sums"}
                    name = f"slope {slope}, {'own' if own else 'constant'} moments{', sums' * with_sums}, {call}"
                    arrays, text = affine | {"x": x, "e": e}, words.format(state=state)
                    yield one(name, call, text, arrays, after, chosen, slope, "gradient")
            before = {which: text.format(x="views:x", state=state) for which, text in list(CALLS.items())[not own : 2]}
            call, _, text = CALLS["sums"].format(x="views:x", e="views:e", state=state).partition(" commands ")
            name, after = f"sums, slope {slope}, own moments {own}", {"empties:y": y, state: np.concatenate(sums)}
            yield one(name, call, text, affine | {"x": x, "e": e}, after, before, slope, "sums")


def places() -> Iterator[Row]:
    """Channels 4 to 7 of images 1 and 2 of the source; pixel (1, 1) of the gradient belongs to its pixel (0, 0)."""
    x, e, affine = random(3, 5, 6, 12), random(2, 4, 5, 9), parameters(4)
    part, upstream = x[1:, ..., 4:8].astype("f8"), e[..., 4:8].astype("f8")
    mean, variance = (values.reshape(-1) for values in statistics(part))
    inverse, count = 1 / np.sqrt(variance + EPSILON), 2 * 5 * 6
    # Beyond the source, a gradient is that of a normalized zero.
    z = (within((2, 6, 7, 4), (0, 1, 1, 0), part, 0)[:, :4, :5] - mean) * inverse
    beta, gamma = upstream.sum((0, 1, 2)), (upstream * z).sum((0, 1, 2))
    g = affine["gamma"] * inverse * (upstream - beta / count - z * gamma / count)
    state, arrays = "state:part,part", affine | {"x": x, "images": x[1:], "e": e, "part": part.astype(np.float32)}
    before = {which: text.format(x="views:part", state=state, e="") for which, text in CALLS.items()}
    before["sums"] = CALLS["sums"].format(e="batch:e", x="batch:images", state=state)
    after = {"empty:result": within((2, 4, 6, 10), (0, 1, 1, 4), g[:, 1:, 1:4]), state: np.concatenate([gamma, beta])}
    words = f"image:e image:x {state} empty:result"
    made = one("places", SINGLE + "destinationGradient:", words, arrays, after, before, 1.0, "gradient")
    channels = {"SourceFeatureChannelOffset": 4, "SourceFeatureChannelMaxCount": 4}
    both = properties(**{side + name: value for side in ("primary", "secondary") for name, value in channels.items()})
    both |= properties(primaryOffset="3,-1,0", kernelOffsetX=-2, kernelOffsetY=2)
    made.settings |= {"y": "2 5 6 4"} | both | {f"sums.{name}": value for name, value in both.items()}
    # The clip moves the result, but not the source pixel of its first pixel.
    made.settings |= properties(secondaryOffset="0,0,1", clipRect="1,1,0,3,1000,2", destinationFeatureChannelOffset=4)
    yield made


def rows() -> list[Row]:
    return [*forms(), *places()]
