# SPDX-License-Identifier: Apache-2.0
"""What describes a kernel reads back as it was given, and prints as what it is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import mpscnn
from oracle import MPSCNNNeuron
from support import random

# ------------------------------------------------------------------------------------------------- activations


@pytest.mark.parametrize("name", [name for name, _ in MPSCNNNeuron.TYPES])
def test_the_type_reads_as_its_name(name: str) -> None:
    descriptor = mpscnn.NeuronDescriptor(name, 0.5, 0.25, 2.0, [0.25] * 3 if name == "prelu" else ())
    assert descriptor.type == name
    assert (descriptor.a, descriptor.b, descriptor.c) == (0.5, 0.25, 2.0)
    assert descriptor.data == ([0.25] * 3 if name == "prelu" else [])
    assert mpscnn.Neuron(name, data=[0.25] * 3 if name == "prelu" else None).neuron_descriptor.type == name


def test_a_neuron_kernel_gives_what_a_descriptor_is_made_of() -> None:
    given = mpscnn.NeuronReLU(0.1).neuron_descriptor
    assert isinstance(given, mpscnn.NeuronDescriptor)
    again = mpscnn.NeuronDescriptor(given.type, given.a, given.b, given.c, given.data)
    x, weight = random((1, 5, 7, 4)), random((8, 4, 3, 3))
    np.testing.assert_array_equal(
        mpscnn.Convolution(weight, activation=again)(x), mpscnn.Convolution(weight, activation=given)(x)
    )
    assert given.a == float(np.float32(0.1)), "single precision"


REPRS = [
    (("sigmoid",), {}, 'mpscnn.NeuronDescriptor("sigmoid")'),
    (("relu",), {}, 'mpscnn.NeuronDescriptor("relu", a=0.0)'),
    (("relu", 0.1), {}, 'mpscnn.NeuronDescriptor("relu", a=0.1)'),
    (("relun", 0, 6), {}, 'mpscnn.NeuronDescriptor("relun", a=0.0, b=6.0)'),
    (("power", 1, -2.5, 1e-5), {}, 'mpscnn.NeuronDescriptor("power", a=1.0, b=-2.5, c=1e-05)'),
    (("gelu",), {"b": 3}, 'mpscnn.NeuronDescriptor("gelu", b=3.0)'),
    (("prelu",), {"data": [0.1, 1]}, 'mpscnn.NeuronDescriptor("prelu", data=[0.1, 1.0])'),
]


@pytest.mark.parametrize(("arguments", "options", "text"), REPRS, ids=[text for _, _, text in REPRS])
def test_a_descriptor_prints_what_it_is_made_of(arguments: Any, options: Any, text: str) -> None:
    """Its parameters, and what was given besides; evaluated, the text gives the same again."""
    descriptor = mpscnn.NeuronDescriptor(*arguments, **options)
    assert repr(descriptor) == text
    again = eval(text)
    for name in ("type", "a", "b", "c", "data"):
        assert getattr(again, name) == getattr(descriptor, name)


def test_many_slopes_are_not_all_printed() -> None:
    text = repr(mpscnn.NeuronDescriptor("prelu", data=range(512)))
    assert text == 'mpscnn.NeuronDescriptor("prelu", data=[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, … 512 values])'
    assert math.inf == mpscnn.NeuronDescriptor("linear", math.inf).a
