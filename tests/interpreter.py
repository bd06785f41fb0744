# SPDX-License-Identifier: Apache-2.0
"""Runs a Graph one kernel at a time on arrays: slow, simple, and the oracle of mpscnn.Network.

Has no images between kernels, command buffers, placement or fusion.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

import mpscnn
from mpscnn._inputs import as_floats
from mpscnn.graph import ADAPTIVE_POOL, CONCATENATE, INTERPOLATE, METAL_FUNCTION, Graph
from mpscnn.verify import _run_function


def to_nhwc(array: NDArray, layout: str) -> NDArray:
    """Return the array as N, H, W, C: missing axes have extent 1."""
    missing = [letter for letter in "NHWC" if letter not in layout]
    array = array.reshape(array.shape + (1,) * len(missing))
    order = layout + "".join(missing)
    return np.ascontiguousarray(array.transpose([order.index(letter) for letter in "NHWC"]))


def from_nhwc(image: NDArray, layout: str, shape: tuple[int, ...] | None) -> NDArray:
    order = [*layout, *(letter for letter in "NHWC" if letter not in layout)]
    array = image.transpose(["NHWC".index(letter) for letter in order])
    array = np.ascontiguousarray(array).reshape(array.shape[: len(layout)])
    return array if shape is None else array.reshape(len(array), *shape)


def interpret(graph: Graph, **arrays: NDArray) -> dict[str, NDArray]:
    values = {
        name: to_nhwc(as_floats(arrays[name], spec) if spec.dtype else np.asarray(arrays[name]), spec.layout)
        for name, spec in graph.inputs.items()
    }
    by_name = {node.name: node for node in graph.nodes}
    for node in graph.nodes:
        sources = [values[name] for name in node.sources]
        if node.kernel == CONCATENATE:
            values[node.name] = np.concatenate(sources, axis=3)
        elif node.kernel in (ADAPTIVE_POOL, INTERPOLATE):
            values[node.name] = _by_torch(node.kernel, sources, **node.arguments)
        elif node.kernel == METAL_FUNCTION:
            values[node.name] = _run_function(sources, **node.arguments)
        else:
            kernel = mpscnn.KERNELS[node.kernel](**node.arguments)
            numbers = any(by_name[name].result_dtype for name in node.sources if name in by_name)
            values[node.name] = kernel(*sources, dtype=node.result_dtype or ("float32" if numbers else None))
    return {
        name: from_nhwc(values[output.source], output.layout, output.shape) for name, output in graph.outputs.items()
    }


def _by_torch(
    kernel: str,
    sources: list[NDArray],
    mode: str,
    align_corners: bool | None = None,
    output_size: tuple[int, int] | None = None,
) -> NDArray:
    x = torch.from_numpy(np.ascontiguousarray(sources[0].transpose(0, 3, 1, 2)))
    if kernel == INTERPOLATE:
        aligned = align_corners if mode == "bilinear" else None
        y = functional.interpolate(x, sources[1].shape[1:3], mode=mode, align_corners=aligned)
    else:
        y = (functional.adaptive_max_pool2d if mode == "max" else functional.adaptive_avg_pool2d)(x, output_size)
    return np.ascontiguousarray(y.numpy().transpose(0, 2, 3, 1))
