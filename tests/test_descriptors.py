# SPDX-License-Identifier: Apache-2.0
"""Descriptors of kernels: values are read as they were given, and reprs show them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import mpscnn
from mpscnn import _core
from oracle import MPSCNNNeuron
from support import Source, random

# ------------------------------------------------------------------------------------------------- activations


@pytest.mark.parametrize("name", [name for name, _ in MPSCNNNeuron.TYPES])
def test_the_type_reads_as_its_name(name: str) -> None:
    descriptor = mpscnn.NeuronDescriptor(name, 0.5, 0.25, 2.0, [0.25] * 3 if name == "prelu" else ())
    assert descriptor.type == name
    assert (descriptor.a, descriptor.b, descriptor.c) == (0.5, 0.25, 2.0)
    assert descriptor.data == ([0.25] * 3 if name == "prelu" else [])
    assert mpscnn.Neuron(name, data=[0.25] * 3 if name == "prelu" else None).neuron_descriptor.type == name


def test_a_descriptor_from_a_neuron_kernel() -> None:
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
    (("linear", 1 / 3, 2**24), {}, 'mpscnn.NeuronDescriptor("linear", a=0.33333334, b=1.6777216e+07)'),
    (
        ("linear", 3.4028235e38, -1.1754944e-38),
        {},
        'mpscnn.NeuronDescriptor("linear", a=3.4028235e+38, b=-1.1754944e-38)',
    ),
    (("gelu",), {"b": 3}, 'mpscnn.NeuronDescriptor("gelu", b=3.0)'),
    (("prelu",), {"data": [0.1, 1]}, 'mpscnn.NeuronDescriptor("prelu", data=[0.1, 1.0])'),
]


@pytest.mark.parametrize(("arguments", "options", "text"), REPRS, ids=[text for _, _, text in REPRS])
def test_repr_of_a_descriptor(arguments: Any, options: Any, text: str) -> None:
    """The repr shows its parameters and the given options; evaluated, it gives an equal descriptor."""
    descriptor = mpscnn.NeuronDescriptor(*arguments, **options)
    assert repr(descriptor) == text
    again = eval(text)
    for name in ("type", "a", "b", "c", "data"):
        assert getattr(again, name) == getattr(descriptor, name)


def test_many_slopes_are_not_all_printed() -> None:
    text = repr(mpscnn.NeuronDescriptor("prelu", data=range(512)))
    assert text == 'mpscnn.NeuronDescriptor("prelu", data=[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, ... 512 values])'
    assert math.inf == mpscnn.NeuronDescriptor("linear", math.inf).a


# ------------------------------------------------------------------------------------------------- names of activations

NAMES = [row["name"] for row in _core.neuron_names()]

# PyTorch's functions by that name; the other names are Apple's, for functions without a name in PyTorch.
TORCH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": torch.nn.Identity(),
    "identity": torch.nn.Identity(),
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
    "sigmoid": F.sigmoid,
    "hard_sigmoid": F.hardsigmoid,
    "hardsigmoid": F.hardsigmoid,
    "tanh": F.tanh,
    "absolute": torch.abs,
    "abs": torch.abs,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "elu": F.elu,
    "relun": F.relu6,
    "relu6": F.relu6,
    "exponential": torch.exp,
    "exp": torch.exp,
    "logarithm": torch.log,
    "log": torch.log,
    "gelu": F.gelu,
    "linear": torch.nn.Identity(),
    "power": torch.nn.Identity(),
}


def told(descriptor: mpscnn.NeuronDescriptor | None) -> tuple[Any, ...]:
    if descriptor is None:
        return ("none", 0.0, 0.0, 0.0, [])
    return (descriptor.type, descriptor.a, descriptor.b, descriptor.c, descriptor.data)


@pytest.mark.parametrize("name", TORCH)
def test_a_name_means_the_same_everywhere(name: str) -> None:
    """The same for `activation=`, `NeuronDescriptor` and `Neuron`: PyTorch's function of that name."""
    assert set(TORCH) | {"prelu"} == set(NAMES), "slopes are what no name tells"
    descriptor = mpscnn.NeuronDescriptor(name)
    assert descriptor.type in [kind for kind, _ in MPSCNNNeuron.TYPES], "printed in Apple's spelling"
    wanted = told(descriptor)
    weight = random((8, 4, 1, 1))
    assert told(mpscnn.Neuron(name).neuron_descriptor) == wanted
    assert told(mpscnn.Convolution(weight, activation=name).neuron_descriptor) == wanted
    assert told(mpscnn.ConvolutionDescriptor(1, 4, 8, activation=name).activation) == wanted

    x = np.linspace(-8, 8, 4 * 5 * 4, dtype=np.float32).reshape(1, 4, 5, 4)
    expected = TORCH[name](torch.from_numpy(x.astype(np.float64))).numpy()
    np.testing.assert_allclose(mpscnn.Neuron(name)(x), expected, rtol=1e-5, atol=1e-6)


def test_spellings_of_one_function() -> None:
    """Names of one function differ in their spelling only."""
    same = ("none", "identity"), ("hard_sigmoid", "hardsigmoid"), ("absolute", "abs"), ("relun", "relu6")
    for apple, pytorch in (*same, ("exponential", "exp"), ("logarithm", "log")):
        assert told(mpscnn.NeuronDescriptor(apple)) == told(mpscnn.NeuronDescriptor(pytorch))
        assert repr(mpscnn.NeuronDescriptor(pytorch)).startswith(f'mpscnn.NeuronDescriptor("{apple}"')
    assert told(mpscnn.NeuronDescriptor("leaky_relu")) == told(mpscnn.NeuronDescriptor("relu", np.float32(0.01)))


def test_parameters_stand_before_those_of_the_name() -> None:
    assert told(mpscnn.NeuronDescriptor("relu6", 0.5))[:3] == ("relun", 0.5, 6.0)
    assert told(mpscnn.NeuronDescriptor("tanh", b=0))[:3] == ("tanh", 1.0, 0.0)
    assert told(mpscnn.NeuronDescriptor("tanh", None, None, None))[:3] == ("tanh", 1.0, 1.0)
    assert told(mpscnn.Neuron("relu6", b=3).neuron_descriptor)[:3] == ("relun", 0.0, 3.0)
    assert told(mpscnn.Neuron("leaky_relu", 0).neuron_descriptor)[:2] == ("relu", 0.0)


def test_errors_list_the_names() -> None:
    listed = ", ".join(f'"{name}"' for name in NAMES)
    for wrong, subject in (
        (lambda: mpscnn.NeuronDescriptor("swish"), "NeuronDescriptor: type"),
        (lambda: mpscnn.Neuron("swish"), "Neuron: type"),
        (lambda: mpscnn.Convolution(random((8, 4, 1, 1)), activation="swish"), "activation"),
        (lambda: mpscnn.ConvolutionDescriptor(1, 4, 8, activation="swish"), "activation"),
    ):
        with pytest.raises(ValueError, match="swish") as caught:
            wrong()
        assert str(caught.value) == f'{subject} ("swish") is not one of {listed}.'


def test_the_docstring_has_all_names() -> None:
    assert [name for name in NAMES if f'"{name}"' not in (mpscnn.NeuronDescriptor.__doc__ or "")] == []


# ------------------------------------------------------------------------------------------------- normalization


def norm(channels: int = 8) -> dict[str, Any]:
    return {name: random((channels,), seed=seed) for seed, name in enumerate(("mean", "variance", "gamma", "beta"))}


def test_batch_norm_reads_back() -> None:
    given = norm()
    made = mpscnn.BatchNorm(**given, epsilon=1e-3)
    for name, values in given.items():
        read = getattr(made, name)
        assert read.dtype == np.float32
        np.testing.assert_array_equal(read, values)
        assert not read.flags.writeable
        assert np.shares_memory(read, getattr(made, name)), "no copy at each look"
        values[...] = 7
        assert not (getattr(made, name) == 7).all(), "it keeps numbers of its own"
    assert made.epsilon == float(np.float32(1e-3))
    assert mpscnn.BatchNorm([0], [1], [1], [0]).epsilon == float(np.float32(1e-5))
    assert repr(made) == "<mpscnn.BatchNorm of 8 channels, epsilon 0.001>"


def test_the_batch_norm_of_a_descriptor_holds_it() -> None:
    given = norm()
    inner = [mpscnn.ConvolutionDescriptor(1, 4, 8, batch_norm=mpscnn.BatchNorm(**given)).batch_norm for _ in range(20)]
    noise = [mpscnn.ConvolutionDescriptor(1, 4, 8, batch_norm=mpscnn.BatchNorm([0] * 8, *[[1] * 8] * 3)) for _ in inner]
    assert len(noise) == 20
    for one in inner:
        assert one is not None
        np.testing.assert_array_equal(one.mean, given["mean"])


def test_an_array_of_a_batch_norm_holds_it() -> None:
    arrays = [mpscnn.BatchNorm([i] * 1000, [1] * 1000, [1] * 1000, [0] * 1000).mean for i in range(20)]
    noise = [mpscnn.BatchNorm([77] * 1000, [1] * 1000, [1] * 1000, [0] * 1000) for _ in range(20)]
    assert [set(array.tolist()) for array in arrays] == [{float(i)} for i in range(20)]
    assert len(noise) == 20
    with pytest.raises(ValueError, match="read-only"):
        arrays[0][0] = 1


# ------------------------------------------------------------------------------------------------- geometry


def test_a_convolution_descriptor_reads_back() -> None:
    relu = mpscnn.NeuronDescriptor("relu", a=0.25)
    made = mpscnn.ConvolutionDescriptor(
        (3, 5), 8, 16, stride=(2, 1), dilation=2, groups=2, activation=relu, batch_norm=mpscnn.BatchNorm(**norm(16))
    )
    assert made.activation is not None
    assert (made.activation.type, made.activation.a) == ("relu", 0.25)
    assert made.batch_norm is not None
    np.testing.assert_array_equal(made.batch_norm.gamma, norm(16)["gamma"])
    assert mpscnn.ConvolutionDescriptor(3, 4, 8, depthwise=True).depthwise is True
    plain = mpscnn.ConvolutionDescriptor(3, 4, 8, sub_pixel_scale_factor=2)
    assert (plain.activation, plain.batch_norm, plain.sub_pixel_scale_factor) == (None, None, 2)
    assert mpscnn.ConvolutionDescriptor(3, 4, 8, activation=mpscnn.NeuronDescriptor("none")).activation is None
    with pytest.raises(AttributeError):
        plain.groups = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("activation", "name", "numbers"),
    [
        ("relu", "relu", (0, 0, 0)),
        ("tanh", "tanh", (1, 1, 0)),
        (mpscnn.NeuronDescriptor("power", 1, 2, 3), "power", (1, 2, 3)),
        (mpscnn.NeuronLinear(2, 3), "linear", (2, 3, 0)),
    ],
    ids=["short name", "short name with parameters", "descriptor", "kernel"],
)
def test_the_activation_of_a_descriptor(activation: Any, name: str, numbers: tuple[float, ...]) -> None:
    read = mpscnn.ConvolutionDescriptor(3, 4, 8, activation=activation).activation
    assert read is not None
    assert (read.type, read.a, read.b, read.c) == (name, *numbers)


def test_a_kernel_tells_the_descriptor_of_its_weights() -> None:
    kernel = mpscnn.Convolution(random((16, 4, 3, 5)), groups=2, stride=(2, 1), activation="sigmoid")
    read = kernel.data_source.descriptor
    assert repr(read) == (
        "mpscnn.ConvolutionDescriptor((3, 5), 8, 16, stride=(2, 1), groups=2, "
        'activation=mpscnn.NeuronDescriptor("sigmoid"))'
    )


CONVOLUTIONS = [
    "mpscnn.ConvolutionDescriptor((3, 3), 4, 8)",
    "mpscnn.ConvolutionDescriptor((3, 5), 8, 16, stride=(2, 1), dilation=(2, 2), groups=2)",
    "mpscnn.ConvolutionDescriptor((1, 1), 4, 4, depthwise=True)",
    "mpscnn.ConvolutionDescriptor((1, 1), 4, 4, sub_pixel_scale_factor=2)",
    'mpscnn.ConvolutionDescriptor((1, 1), 4, 4, activation=mpscnn.NeuronDescriptor("elu", a=0.5))',
]


@pytest.mark.parametrize("text", CONVOLUTIONS)
def test_repr_of_a_convolution_descriptor(text: str) -> None:
    assert repr(eval(text)) == text


def test_a_convolution_descriptor_prints_its_batch_norm() -> None:
    made = mpscnn.ConvolutionDescriptor(1, 4, 2, batch_norm=mpscnn.BatchNorm([0, 0], [1, 1], [1, 1], [0, 0]))
    assert repr(made).endswith(", 4, 2, batch_norm=<mpscnn.BatchNorm of 2 channels, epsilon 1e-05>)")


# --------------------------------------------------------------------------------- activations that kernels apply

FUSED: list[tuple[Any, Any]] = [
    (None, None),
    (mpscnn.NeuronDescriptor("none"), None),
    ("relu6", ("relun", 0.0, 6.0)),
    (mpscnn.NeuronDescriptor("linear", -2, 0.5), ("linear", -2.0, 0.5)),
    (mpscnn.NeuronTanH(2.0, 0.5), ("tanh", 2.0, 0.5)),
    (mpscnn.NeuronDescriptor("prelu", data=[0.25 * i for i in range(8)]), ("prelu", 0.0, 0.0)),
]


def sources(activation: Any) -> dict[str, Any]:
    """Return kernels with weights (the same 1 x 1 convolution each), and one with a data source."""
    weight = random((8, 4, 1, 1))
    descriptor = mpscnn.ConvolutionDescriptor(1, 4, 8, activation=activation)
    ohwi = np.ascontiguousarray(weight.transpose(0, 2, 3, 1))
    return {
        "Convolution": mpscnn.Convolution(weight, activation=activation),
        "ConvolutionTranspose": mpscnn.ConvolutionTranspose(
            np.ascontiguousarray(weight.transpose(1, 0, 2, 3)), activation=activation
        ),
        "FullyConnected": mpscnn.FullyConnected(weight.reshape(8, 4), activation=activation),
        "data source": mpscnn.Convolution(Source(descriptor, ohwi)),
    }


@pytest.mark.parametrize("kernel", ["Convolution", "ConvolutionTranspose", "FullyConnected", "data source"])
@pytest.mark.parametrize(("activation", "wanted"), FUSED, ids=str)
def test_a_kernel_with_weights_tells_its_activation(kernel: str, activation: Any, wanted: Any) -> None:
    """It also applies it: the plain kernel followed by that activation computes the same."""
    x = 4 * random((1, 1, 1, 4))
    fused, plain = sources(activation)[kernel], sources(None)[kernel]
    told = fused.neuron_descriptor
    assert plain.neuron_descriptor is None
    if wanted is None:
        assert told is None
        np.testing.assert_array_equal(fused(x), plain(x))
        return
    assert (told.type, told.a, told.b) == wanted
    slopes = told.data or None
    after = mpscnn.Neuron(told.type, told.a, told.b, told.c, data=slopes)
    np.testing.assert_allclose(fused(x), after(plain(x)), rtol=1e-6)
    assert not np.array_equal(fused(x), plain(x))


def test_what_a_kernel_applies_is_known_after_a_reload() -> None:
    """A reload replaces weights and biases [MPSCNNConvolution.h]: the activation is unchanged."""
    weight, x = np.full((8, 1, 1, 4), -1, np.float32), np.ones((1, 1, 1, 4), np.float32)
    source = Source(mpscnn.ConvolutionDescriptor(1, 4, 8, activation="relu"), weight)
    kernel = mpscnn.Convolution(source)
    source.descriptor = mpscnn.ConvolutionDescriptor(1, 4, 8, activation=mpscnn.NeuronDescriptor("linear", 2, 0))
    kernel.reload()
    applied = kernel.neuron_descriptor
    assert applied is not None
    assert (applied.type, kernel(x).max()) == ("relu", 0)


def test_an_activation_can_be_handed_on() -> None:
    x, weight = random((1, 5, 7, 4)), random((8, 4, 3, 3))
    first = mpscnn.Convolution(weight, activation="leaky_relu")
    for again in (first.neuron_descriptor, first.data_source.descriptor.activation):
        np.testing.assert_array_equal(mpscnn.Convolution(weight, activation=again)(x), first(x))
    plain = mpscnn.Convolution(weight)
    np.testing.assert_array_equal(mpscnn.Convolution(weight, activation=plain.neuron_descriptor)(x), plain(x))
