# SPDX-License-Identifier: Apache-2.0
"""Known networks with arbitrary shapes of tensors: a graph, or an exception derived from mpscnn.ImportError."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import mpscnn
from architectures import ARCHITECTURES
from fuzzing import Fuzz
from mpscnn.importing.architectures import FAMILIES, detect, read

fuzz = Fuzz()
NAMES = ["resnet18", "resnet50", "mobilenet_v2", "vgg11_bn", "squeezenet1_1", "espcn", "style_transfer"]


class Changed(dict[str, tuple[int, ...]]):
    """Names and shapes, printed in short form."""

    def __repr__(self) -> str:
        text = ", ".join(f"{key}: {shape}" for key, shape in self.items())
        return f"{text:.1000}"


def tensors(shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return tensors that take no memory: all elements are one number."""
    return {key: np.broadcast_to(np.float32(0.5), shape) for key, shape in shapes.items()}


@functools.cache
def shapes(name: str) -> dict[str, tuple[int, ...]]:
    module = ARCHITECTURES[name].make(**ARCHITECTURES[name].small)
    return {key: tuple(tensor.shape) for key, tensor in module.state_dict().items()}


extents = st.one_of(st.integers(0, 8), st.sampled_from([16, 63, 64, 512]))


@st.composite
def states(draw: st.DrawFn) -> Changed:
    found = Changed(shapes(draw(st.sampled_from(NAMES))))
    for _ in range(draw(st.integers(0, 3))):
        key = draw(st.sampled_from(sorted(found)))
        kind = draw(st.sampled_from(["extent", "shape", "remove", "rename", "first"]))
        if kind == "first":
            key = next(iter(found))
        shape = found[key]
        if kind in ("extent", "first") and shape:
            place = draw(st.integers(0, len(shape) - 1))
            found[key] = (*shape[:place], draw(extents), *shape[place + 1 :])
        elif kind == "shape":
            found[key] = tuple(draw(st.lists(extents, max_size=4)))
        elif kind == "remove":
            del found[key]
        elif kind == "rename":
            found[draw(st.sampled_from(sorted(found))) + draw(st.sampled_from(["", "x", ".weight"]))] = found.pop(key)
    return found


@fuzz.given(60, states(), st.tuples(st.sampled_from([1, 2, 7, 32, 64]), st.sampled_from([1, 3, 64])))
def test_shapes(changed: Changed, size: tuple[int, int]) -> None:
    state = tensors(changed)
    try:
        found = detect(state)
        graph = read(state, input_shapes=(1, 1 if found.family == "espcn" else 3, *size))
    except mpscnn.ImportError as error:
        assert len(str(error)) < 3000  # noqa: PT017  (any of the family will do)
    except ValueError as error:
        if "channels are not the" not in str(error):  # the shape given by the caller
            raise
    else:
        assert found.family in FAMILIES
        assert len(graph.outputs) == 1


def test_the_networks_themselves_are_read() -> None:
    for name in NAMES:
        read(tensors(shapes(name)))


@pytest.mark.parametrize("name", NAMES)
def test_no_pixels(name: str) -> None:
    with pytest.raises(ValueError, match="each 1 or more"):
        read(tensors(shapes(name)), input_shapes=(1, 3, 0, 5))
