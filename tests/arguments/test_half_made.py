# SPDX-License-Identifier: Apache-2.0
"""Objects whose __init__ has not run, and classes whose __init__ fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from argument_objects import CLASSES, EXCEPTIONS, KERNELS, W, X, commands, graph, image
from public_callables import SOURCES, call
from right_arguments import RIGHT

import mpscnn
from mpscnn import _core
from mpscnn.stream import Stream
from support import Source, random


def half_made(kind: type) -> Any:
    """Return an object whose __init__ has not run, as a debugger shows it when __init__ has failed."""

    class Half(kind):  # type: ignore[misc]
        pass

    return Half.__new__(Half)


# Constructors, and members that do not read the object.
UNAFFECTED = {"__init__", "__repr__", "__enter__", "__dlpack_device__"}


HALF_MADE = set(CLASSES) - set(KERNELS) - SOURCES - EXCEPTIONS | {"NeuronReLU", "Convolution"}


@pytest.mark.parametrize("name", sorted(HALF_MADE))
def test_objects_that_were_not_made(name: str) -> None:
    """Reading their members would read uninitialized memory."""
    half = half_made(CLASSES[name])
    members = {key: value for base in type(half).__mro__ for key, value in vars(base).items()}
    readers: dict[str, Callable[[], Any]] = {}
    for member, value in members.items():
        if isinstance(value, property):
            readers[member] = lambda member=member: getattr(half, member)
        elif f"{name}.{member}" in RIGHT and member not in UNAFFECTED and not isinstance(value, staticmethod):
            readers[member] = lambda full=f"{name}.{member}": call(full, RIGHT[full](), made=half)
    assert len(readers) >= 2
    for read in readers.values():
        with pytest.raises(TypeError, match=r"(self|network)( \(Half\))? was not made: its __init__ has not run\."):
            read()
    assert "not made>" in repr(half)


def test_half_made_arguments() -> None:
    match = r"(x|out|command_buffer|device|activation|batch_norm|weight) \(Half\) was not made"
    half_image, half_relu = half_made(mpscnn.Image), half_made(mpscnn.NeuronReLU)
    relu = mpscnn.NeuronReLU()
    wrong: list[Callable[[], Any]] = [
        lambda: relu(half_image),
        lambda: relu(random(X), out=half_image),
        lambda: relu.encode(half_made(mpscnn.CommandBuffer), image()),
        lambda: relu.encode(commands(), half_image),
        lambda: mpscnn.CommandBuffer(half_made(mpscnn.Device)),
        lambda: mpscnn.NeuronReLU(device=half_made(mpscnn.Device)),
        lambda: mpscnn.Convolution(random(W), activation=half_relu),
        lambda: mpscnn.Convolution(random(W), activation=half_made(mpscnn.NeuronDescriptor)),
        lambda: mpscnn.ConvolutionDescriptor(3, 4, 8, activation=half_relu),
        lambda: mpscnn.ConvolutionDescriptor(3, 4, 8, batch_norm=half_made(mpscnn.BatchNorm)),
        lambda: mpscnn.Convolution(half_made(_core._DataSource)),
        lambda: mpscnn.Network(graph()).encode(commands(), half_image),
        lambda: mpscnn.Network(graph()).encode(commands(), image(), out=half_image),
        lambda: mpscnn.Network(graph(), device=half_made(mpscnn.Device)),
    ]
    for call_it in wrong:
        with pytest.raises(TypeError, match=match):
            call_it()
    with pytest.raises(TypeError, match=r"data source: descriptor \(Half\) was not made"):
        mpscnn.Convolution(Source(half_made(mpscnn.ConvolutionDescriptor), random((8, 3, 3, 4))))
    # An image passed as an array is read through the array protocols only.
    with pytest.raises(TypeError, match=r"self( \(Half\))? was not made"):
        mpscnn.Network(graph())(half_image)
    with pytest.raises(TypeError, match=r"network \(Half\) was not made"):
        Stream(half_made(mpscnn.Network), [])
    for look in (memoryview, np.asarray, bytes, len):
        with pytest.raises(TypeError, match=r"self( \(Half\))? was not made"):
            look(half_made(mpscnn.Buffer))
    for look in (memoryview, np.asarray, bytes):
        with pytest.raises(TypeError, match=r"self( \(Half\))? was not made"):
            look(half_made(mpscnn.Matrix))


def test_a_subclass_whose_init_fails_can_be_printed() -> None:
    class Failing(mpscnn.Image):
        def __init__(self) -> None:
            raise ValueError(repr(self))

    with pytest.raises(ValueError, match=r"<mpscnn\.Image, not made>"):
        Failing()


def test_half_made_of_a_derived_metaclass() -> None:
    class Meta(type(mpscnn.Image)):  # type: ignore[misc]
        pass

    class Half(mpscnn.Image, metaclass=Meta):
        pass

    with pytest.raises(TypeError, match=r"x \(Half\) was not made"):
        mpscnn.NeuronReLU()(Half.__new__(Half))
