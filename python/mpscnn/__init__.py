# SPDX-License-Identifier: Apache-2.0
"""Apple's convolutional-network kernels (MPSCNN) from Python, on Metal and, on Linux, on openmps.

>>> import numpy as np, mpscnn
>>> conv = mpscnn.Convolution(np.ones((8, 4, 3, 3), np.float32), padding=1, activation="relu")
>>> conv(np.ones((1, 5, 7, 4), np.float32)).shape
(1, 5, 7, 8)
"""

from . import _core
from ._core import (
    BatchNorm,
    BatchNormalizationState,
    Buffer,
    CommandBuffer,
    ConvolutionDescriptor,
    ConvolutionWeightsAndBiasesState,
    Device,
    Image,
    ImageConversion,
    ImageCopyToMatrix,
    Matrix,
    MatrixCopyToImage,
    NeuronDescriptor,
    NormalizationGammaAndBetaState,
    NormalizationMeanAndVarianceState,
)
from .data_source import DataSource, NormalizationDataSource, map_weights
from .kernels import *  # noqa: F403  (a class for each row of the table; kernels.pyi lists them)
from .kernels import KERNELS, BinaryKernel, Kernel, UnaryKernel, kernel
from .padding_policy import PaddingPolicy
from .weights import empty, pack_bits, reorder, reorder_linear

__version__: str = _core.__version__

__all__ = [
    "BatchNorm",
    "BatchNormalizationState",
    "BinaryKernel",
    "Buffer",
    "CommandBuffer",
    "ConvolutionDescriptor",
    "ConvolutionWeightsAndBiasesState",
    "DataSource",
    "Device",
    "Image",
    "ImageConversion",
    "ImageCopyToMatrix",
    "Kernel",
    "Matrix",
    "MatrixCopyToImage",
    "NeuronDescriptor",
    "NormalizationDataSource",
    "NormalizationGammaAndBetaState",
    "NormalizationMeanAndVarianceState",
    "PaddingPolicy",
    "UnaryKernel",
    "__version__",
    "empty",
    "kernel",
    "map_weights",
    "pack_bits",
    "reorder",
    "reorder_linear",
    *KERNELS,
]

del _core
