# SPDX-License-Identifier: Apache-2.0
"""Models as the server sees them: names, types and shapes of tensors, and a function of batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .. import _inputs, _sizes
from ..graph import FRACTIONS
from ..network import Network

# Types of the Open Inference Protocol that networks take, and NumPy's.
DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(dtype) for name, dtype in {"FP32": "<f4", "FP16": "<f2", "UINT8": "u1", "UINT16": "<u2"}.items()
}
_DATATYPES = {"uint8": "UINT8", "uint16": "UINT16"}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Tensor:
    """An input or output: its name, its type, and its shape with -1 for free extents; the batch comes first."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class Model(Protocol):
    """Interface of a model for the server. `NetworkModel` implements it for a `Network`.

    Attributes
    ----------
    inputs, outputs : dict of Tensor
        By name.
    is_joined : bool
        Whether the rows of several requests may be computed as one batch.
    """

    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    is_joined: bool

    def check(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Raise ValueError or TypeError if the model does not take arrays of these shapes and types."""
        ...

    async def compute(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the outputs of a batch, with as many rows."""
        ...


class NetworkModel:
    """A network for the server.

    Parameters
    ----------
    network : Network
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.is_joined = not any("batch" in _sizes.reads(spec.sizes) for spec in network.inputs.values())
        self.inputs: dict[str, Tensor] = {}
        for name, spec in network.inputs.items():
            if spec.dtype not in ("", "bfloat16", *FRACTIONS):
                raise ValueError(
                    f'input "{name}" of the model is {spec.dtype}; the server takes {", ".join(DTYPES)}: export the'
                    " model with a Cast behind a floating-point or uint8 input."
                )
            extents = {"N": None, "H": spec.height, "W": spec.width, "C": spec.channels}
            self.inputs[name] = Tensor(
                name, _DATATYPES.get(spec.dtype, "FP32"), tuple(extents[letter] or -1 for letter in spec.layout)
            )
        datatype = NAMES[np.dtype(network.dtype)]
        shapes = self._output_shapes()
        self.outputs = {name: Tensor(name, datatype, shapes[name]) for name in network.outputs}

    def _output_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the outputs; extents are free if those of an input are."""
        images = [(1, spec.height or 0, spec.width or 0, spec.channels or 0) for spec in self.network.inputs.values()]
        is_known = all(min(image) for image in images)
        found = self.network._core.shapes(images) if is_known else [None] * len(self.network.outputs)
        shapes = {}
        for (name, output), image in zip(self.network.outputs.items(), found, strict=True):
            if output.shape is not None:
                shapes[name] = (-1, *(extent or -1 for extent in output.shape[1:]))
            else:
                extents = dict(zip("NHWC", image or (-1,) * 4, strict=True))
                shapes[name] = tuple(-1 if letter == "N" else extents[letter] for letter in output.layout)
        return shapes

    def check(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Raise ValueError if the network does not take arrays of these shapes."""
        images = []
        for name, spec in self.network.inputs.items():
            shape = arrays[name].shape
            if len(shape) != len(spec.layout):
                raise ValueError(
                    f'input "{name}": its number of axes ({len(shape)}) is not {len(spec.layout)} ({spec.layout}).'
                )
            extents = dict(zip(spec.layout, shape, strict=True))
            images.append(tuple(extents.get(letter, 1) for letter in "NHWC"))
            _inputs.check_sizes(spec, extents)
        self.network._core.shapes(images)

    async def compute(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the outputs of a batch."""
        results = await self.network.apredict(**arrays)
        listed = results if isinstance(results, tuple) else (results,)
        return {name: np.asarray(array) for name, array in zip(self.outputs, listed, strict=True)}
