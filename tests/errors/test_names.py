# SPDX-License-Identifier: Apache-2.0
"""Unknown names of kernels, attributes and activations; values that are not numbers."""

from __future__ import annotations

import numpy as np
import pytest

import mpscnn
from support import random

from . import W, X


def test_unknown_kernels() -> None:
    with pytest.raises(KeyError, match=r"there is no kernel \"PoolingMin\""):
        mpscnn.kernel("PoolingMin")
    with pytest.raises(KeyError, match="MTLDevice"):
        mpscnn.kernel("MTLDevice")
    with pytest.raises(NotImplementedError, match=r"MPSNNGramMatrixCalculation is not implemented yet"):
        mpscnn.kernel("MPSNNGramMatrixCalculation")
    assert mpscnn.kernel("MPSCNNConvolution") is mpscnn.Convolution


def test_unknown_attributes_are_refused_in_both_directions() -> None:
    kernel = mpscnn.NeuronReLU()
    with pytest.raises(AttributeError, match=r"edgemode"):
        kernel.edgemode = "clamp"
    with pytest.raises(AttributeError, match=r"edgemode"):
        _ = kernel.edgemode
    with pytest.raises(KeyError, match=r'NeuronReLU has no attribute "stride"'):
        kernel._set("stride", 2)


def test_a_wrong_attribute_leaves_the_old_one() -> None:
    kernel = mpscnn.Convolution(random(W), edge_mode="clamp", destination_feature_channel_offset=4)
    with pytest.raises(ValueError, match=r'edge_mode \("wrap"\)'):
        kernel.edge_mode = "wrap"
    with pytest.raises(ValueError, match=r"destination_feature_channel_offset \(5\) is not a multiple of 4"):
        kernel.destination_feature_channel_offset = 5
    with pytest.raises(TypeError, match=r"offset \(\(1, 2\.5\)\) is not \(y, x\)"):
        kernel.offset = (1, 2.5)
    assert (kernel.edge_mode, kernel.destination_feature_channel_offset, kernel.offset) == ("clamp", 4, None)


def test_numbers_of_numpy_are_numbers() -> None:
    x = random(X)
    np.testing.assert_array_equal(mpscnn.NeuronReLU(np.float32(0.5))(x), mpscnn.NeuronReLU(0.5)(x))
    np.testing.assert_array_equal(mpscnn.NeuronReLU(np.float64(2))(x), mpscnn.NeuronReLU(2)(x))
    strided = mpscnn.Convolution(random(W), stride=np.int64(2), padding=(np.int32(1), np.uint8(1)))
    assert strided(x).shape == (1, 3, 4, 8)


def test_neuron_descriptor() -> None:
    with pytest.raises(ValueError, match=r'NeuronDescriptor: type \("selu"\) is not one of "none", "identity"'):
        mpscnn.NeuronDescriptor("selu")
    with pytest.raises(ValueError, match=r'data has 0 values; type is "prelu"'):
        mpscnn.NeuronDescriptor("prelu")
    with pytest.raises(ValueError, match=r'data has 1 values; type is "relu"'):
        mpscnn.NeuronDescriptor("relu", data=[0.5])


def test_a_kernel_that_is_no_neuron_is_no_activation() -> None:
    with pytest.raises(TypeError, match=r"activation \(Convolution\) is not a neuron kernel"):
        mpscnn.Convolution(random(W), activation=mpscnn.Convolution(random(W)))
