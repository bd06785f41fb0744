# SPDX-License-Identifier: Apache-2.0
"""Run Apple's kernels for convolutional networks (MPSCNN) from Python, with Metal on macOS and openmps on Linux.

>>> import numpy as np, mpscnn
>>> conv = mpscnn.Convolution(np.ones((8, 4, 3, 3), np.float32), padding=1, activation="relu")
>>> conv(np.ones((1, 5, 7, 4), np.float32)).shape
(1, 5, 7, 8)
"""

from . import _interrupts  # first: it handles Ctrl-C while the others are imported

# isort: split
from typing import TYPE_CHECKING, Any

from . import _core
from .buffer import Buffer
from .data_source import DataSource, NormalizationDataSource, map_weights
from .descriptors import BatchNorm, ConvolutionDescriptor, NeuronDescriptor
from .device import CommandBuffer, Device
from .device_array import DeviceArray
from .image import Image, ImageConversion
from .kernels import *  # noqa: F403  (a class for each row of the table; kernels.pyi lists them)
from .kernels import KERNELS, BinaryKernel, GradientKernel, Kernel, UnaryKernel, kernel
from .matrix import ImageCopyToMatrix, Matrix, MatrixCopyToImage
from .padding_policy import PaddingPolicy
from .states import (
    BatchNormalizationState,
    ConvolutionWeightsAndBiasesState,
    GradientState,
    NormalizationGammaAndBetaState,
    NormalizationMeanAndVarianceState,
)
from .weights import empty, pack_bits, reorder, reorder_linear

if TYPE_CHECKING:
    from . import adapters as adapters
    from . import config as config
    from . import graph as graph
    from . import importing, memory
    from . import layers as layers
    from . import mps_graph as mps_graph
    from . import nodes as nodes
    from . import plotting as plotting
    from . import profiling as profiling
    from . import stream as stream
    from . import training as training
    from . import verify as verify
    from .errors import ImportError, InvalidModelError, MissingPackageError, UnsupportedOperatorError
    from .graph import Graph
    from .loading import load
    from .loss_labels import LossLabels
    from .losses import ForwardLoss, InitialGradient, Loss, LossGradient, YOLOLoss
    from .metal import MetalFunction, metal_function
    from .mps_graph import MPSNNGraph
    from .network import Network
    from .optimizers import (
        Optimizer,
        OptimizerAdam,
        OptimizerRMSProp,
        OptimizerState,
        OptimizerStochasticGradientDescent,
    )
    from .profiling import profile
    from .quantization import quantize
    from .threads import get_num_threads, set_num_threads
    from .training import Trainer

__version__: str = _core.__version__

# Imported on first access: programs that only use kernels do not wait for them.
_LAZY = {
    "importing": "",  # the module itself
    "memory": "",
    "adapters": "",  # from here to "verify": not in __all__, because `import *` would bind `verify` to a module
    "config": "",
    "detection": "",
    "graph": "",
    "layers": "",
    "mps_graph": "",
    "nodes": "",
    "plotting": "",
    "profiling": "",
    "serving": "",
    "stream": "",
    "training": "",
    "tuning": "",
    "verify": "",
    "ForwardLoss": "losses",
    "Graph": "graph",
    "ImportError": "errors",
    "InitialGradient": "losses",
    "InvalidModelError": "errors",
    "Loss": "losses",
    "LossGradient": "losses",
    "LossLabels": "loss_labels",
    "MPSNNGraph": "mps_graph",
    "MetalFunction": "metal",
    "MissingPackageError": "errors",
    "Network": "network",
    "Optimizer": "optimizers",
    "OptimizerAdam": "optimizers",
    "OptimizerRMSProp": "optimizers",
    "OptimizerState": "optimizers",
    "OptimizerStochasticGradientDescent": "optimizers",
    "YOLOLoss": "losses",
    "get_num_threads": "threads",
    "load": "loading",
    "metal_function": "metal",
    "profile": "profiling",
    "quantize": "quantization",
    "set_num_threads": "threads",
    "Trainer": "training",
    "UnsupportedOperatorError": "errors",
}


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module 'mpscnn' has no attribute '{name}'")
        from importlib import import_module

        module = import_module(f".{_LAZY[name] or name}", __name__)
        value = getattr(module, name) if _LAZY[name] else module
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_LAZY})


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
    "DeviceArray",
    "ForwardLoss",
    "GradientKernel",
    "GradientState",
    "Graph",
    "Image",
    "ImageConversion",
    "ImageCopyToMatrix",
    "ImportError",
    "InitialGradient",
    "InvalidModelError",
    "Kernel",
    "Loss",
    "LossGradient",
    "LossLabels",
    "MPSNNGraph",
    "Matrix",
    "MatrixCopyToImage",
    "MissingPackageError",
    "Network",
    "MetalFunction",
    "NeuronDescriptor",
    "NormalizationDataSource",
    "NormalizationGammaAndBetaState",
    "NormalizationMeanAndVarianceState",
    "Optimizer",
    "OptimizerAdam",
    "OptimizerRMSProp",
    "OptimizerState",
    "OptimizerStochasticGradientDescent",
    "PaddingPolicy",
    "Trainer",
    "UnaryKernel",
    "UnsupportedOperatorError",
    "YOLOLoss",
    "__version__",
    "empty",
    "get_num_threads",
    "importing",
    "kernel",
    "load",
    "metal_function",
    "map_weights",
    "memory",
    "pack_bits",
    "profile",
    "quantize",
    "reorder",
    "reorder_linear",
    "set_num_threads",
    *KERNELS,
]

del _core, _interrupts
