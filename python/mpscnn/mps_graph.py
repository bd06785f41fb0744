# SPDX-License-Identifier: Apache-2.0
"""MPSNNGraph: a graph that MPS makes of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _checks, _core
from ._public import public
from .buffer import Buffer
from .device import CommandBuffer, Device
from .image import Image
from .loss_labels import LossLabels
from .nodes import FilterNode, ImageNode
from .nodes._base import FORMATS, _image, _index

if TYPE_CHECKING:
    from . import _typing as t

# Gradients and statistics of a state, by their names in this package.
_VALUES = {
    "grad_weight": "gradientForWeights",
    "grad_bias": "gradientForBiases",
    "grad_gamma": "gradientForGamma",
    "grad_beta": "gradientForBeta",
    "mean": "mean",
    "variance": "variance",
}


class GraphState:
    """A state that a graph has returned, such as that of a convolution with the gradients of its weights.

    ``state["grad_weight"]`` is a Buffer of float32, which may be read when the command buffer has completed. Other
    names are "grad_bias"; "grad_gamma", "grad_beta", "mean" and "variance" of normalizations.
    """

    __slots__ = ("_object",)
    _object: _core._GraphObject

    def __init__(self) -> None:
        raise TypeError("GraphState cannot be made; MPSNNGraph.encode() returns it.")

    @classmethod
    def _of(cls, found: _core._GraphObject) -> GraphState:
        made = object.__new__(cls)
        made._object = found
        return made

    def __getitem__(self, name: str) -> Buffer:
        """Return values by name.

        Raises
        ------
        KeyError
            For an unknown name.
        TypeError
            "MPSCNNConvolutionGradientState has no gradientForGamma."
        RuntimeError
            The values have not been computed yet.
        """
        return self._object.buffer(_VALUES[name])

    def __repr__(self) -> str:
        return f"<mpscnn GraphState, {self._object.apple_class}>"


@public
class MPSNNGraph(_core._MPSNNGraph):
    """A graph that MPS makes of nodes (MPSNNGraph): all kernels that lead to its results, in one encode.

    MPS chooses the order of the kernels, allocates the images between them, and fuses what it can. See `mpscnn.nodes`
    for the nodes, and `mpscnn.Network` for networks that are imported, saved and trained.

    Parameters
    ----------
    *results : ImageNode or FilterNode
        Images to compute. The first one is the result, others follow it.
    results_are_needed : bool or sequence of bool, default True
        False: the image is not returned; graphs that update weights are called for this effect.
    format : "float32", "float16", "uint16" or "uint8", default "float16"
        Element type of the images between the kernels and of the results, unless their nodes have one.
    device : Device, optional
        None: the default device.

    Raises
    ------
    TypeError
        "MPSNNGraph: results (int) is not an ImageNode or filter node."
    ValueError
        "MPSNNGraph: there is no result.", and for graphs that MPS refuses.

    Source
    ------
    MPSNeuralNetwork/MPSNNGraph.h.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> from mpscnn import nodes
    >>> pool = nodes.PoolingAverageNode(nodes.ImageNode(), kernel_size=2, padding=0)
    >>> graph = mpscnn.MPSNNGraph(nodes.NeuronReLUNode(pool), format="float32")
    >>> graph(np.float32([-1, 3, 5, 5]).reshape(1, 2, 2, 1)).tolist()
    [[[[3.0]]]]
    """

    __slots__ = ()

    def __init__(
        self,
        *results: ImageNode | FilterNode,
        results_are_needed: bool | Sequence[bool] = True,
        format: str | None = None,
        device: Device | None = None,
    ) -> None:
        if not results:
            raise ValueError("MPSNNGraph: there is no result.")
        images = [_image(one, "MPSNNGraph: results") for one in results]
        given = results_are_needed
        needed = list(given) if isinstance(given, (list, tuple)) else [given] * len(images)
        if len(needed) != len(images):
            raise ValueError(
                f"MPSNNGraph: len(results_are_needed) ({len(needed)}) is not the number of results ({len(images)})."
            )
        super().__init__(images, [_checks.boolean(one, "MPSNNGraph: results_are_needed") for one in needed], device)
        if format is not None:
            self.format = format

    @property
    def format(self) -> str:
        """Element type of images whose nodes have none: "float16", unless it is set."""
        return FORMATS[self._object.get("format")]

    @format.setter
    def format(self, format: str) -> None:
        index = _index(format, "MPSNNGraph: format", FORMATS[1:]) + 1
        self._object.set("format", index)

    @property
    def allow_reduced_precision(self) -> bool:
        """Whether kernels may compute with less than float32's precision (MPSKernelOptionsAllowReducedPrecision)."""
        return bool(self._object.get("options") & 2)

    @allow_reduced_precision.setter
    def allow_reduced_precision(self, allowed: bool) -> None:
        others = self._object.get("options") & ~2
        self._object.set("options", others | 2 * _checks.boolean(allowed, "allow_reduced_precision"))

    @property
    def source_image_handles(self) -> tuple[str | None, ...]:
        """Labels of the inputs, in the order of `encode`; None: without a label."""
        return tuple(self._handles("sourceImageHandles"))

    @property
    def source_state_handles(self) -> tuple[str | None, ...]:
        """Labels of the states that the graph takes, such as the labels of losses."""
        return tuple(self._handles("sourceStateHandles"))

    @property
    def intermediate_image_handles(self) -> tuple[str | None, ...]:
        """Labels of the images that calls return after the result: exported ones, then further results."""
        return tuple(self._handles("intermediateImageHandles"))

    @property
    def result_state_handles(self) -> tuple[str | None, ...]:
        """Labels of the exported states."""
        return tuple(self._handles("resultStateHandles"))

    def read_count(self, source: int) -> int:
        """Return how often the graph reads an input: the read_count that a temporary image needs.

        Parameters
        ----------
        source : int
            Index in `source_image_handles`.
        """
        count = len(self.source_image_handles)
        return self._read_count(_checks.integer(source, "MPSNNGraph.read_count: source", 0, count - 1))

    def reload_from_data_sources(self) -> None:
        """Read the weights again, after data sources or optimizers of other graphs have changed them."""
        self._reload()

    def _in_order(self, sources: tuple[Any, ...]) -> list[Any]:
        """Return the inputs in order; a dict has them by label."""
        if len(sources) != 1 or not isinstance(sources[0], Mapping):
            return list(sources)
        named, handles = sources[0], self.source_image_handles
        for name in named:
            if name not in handles:
                known = ", ".join(repr(one) for one in handles)
                raise ValueError(f"MPSNNGraph: there is no input {name!r}; the inputs are {known}.")
        for name in handles:
            if name not in named:
                raise ValueError(f"MPSNNGraph: the input {name!r} is missing.")
        return [named[name] for name in handles]

    def encode(
        self,
        command_buffer: CommandBuffer,
        *sources: Image | Mapping[str, Image],
        labels: LossLabels | Iterable[LossLabels] = (),
    ) -> tuple[Image | None, tuple[Image, ...], tuple[GraphState, ...]]:
        """Append all kernels of the graph to a command buffer.

        Parameters
        ----------
        command_buffer : CommandBuffer
            Not committed yet.
        *sources : Image, or one dict of them by label
            Inputs in the order of ``source_image_handles``, each with the same number of images.
        labels : LossLabels or iterable of LossLabels
            In the order of ``source_state_handles``. Their loss may be read when the command buffer has completed.

        Returns
        -------
        (Image or None, tuple of Image, tuple of GraphState)
            The result, None if it is not needed; the images of ``intermediate_image_handles``; and the states of
            ``result_state_handles``, of a batch that of the first image.

        Raises
        ------
        ValueError
            "MPSNNGraph: 2 sources were given; the graph has 1.", "MPSNNGraph: there is no input 'y'; ...", and for
            sizes that do not fit.
        Any exception of a data source's ``update()``
            The other weights are updated if the command buffer is committed. Otherwise `reload_from_data_sources`
            restores all weights. Exceptions of ``update_on_cpu()`` are raised by the next encode.
        """
        self._check_updates()
        encoded = self._append(command_buffer, sources, labels)
        self._check_updates()
        return encoded

    def _append(
        self, command_buffer: CommandBuffer, sources: tuple[Any, ...], labels: Any
    ) -> tuple[Image | None, tuple[Image, ...], tuple[GraphState, ...]]:
        """Encode; exceptions of updates are kept."""
        images = [_checks.instance(one, "MPSNNGraph: source", Image) for one in self._in_order(sources)]
        if not isinstance(labels, LossLabels) and not hasattr(type(labels), "__iter__"):
            _checks.refuse(labels, "MPSNNGraph: labels", "LossLabels or an iterable of them")
        states = [labels] if isinstance(labels, LossLabels) else list(labels)
        for one in states:
            _checks.instance(one, "MPSNNGraph: labels", LossLabels)
        result, intermediates, left = self._encode(command_buffer, images, states)
        return result, tuple(intermediates), tuple(GraphState._of(one) for one in left)

    def __call__(
        self,
        *sources: t.Array | Image | Mapping[str, t.Array | Image],
        labels: LossLabels | Iterable[LossLabels] = (),
    ) -> Any:
        """Run the graph on arrays or Images, and wait for the results.

        Parameters
        ----------
        *sources : array, shape (N, H, W, C), or Image; or one dict of them by label
        labels : LossLabels or iterable of LossLabels
            See `encode`.

        Returns
        -------
        array, shape (N, H, W, C), or Image if the first source is one
            The result; a tuple if there are further results or exported images; None if no image is returned.

        Raises
        ------
        Exceptions of `encode`, and any exception of a data source's ``update()`` or ``update_on_cpu()``
            The other weights are updated.
        """
        self._check_updates()
        given = self._in_order(sources)
        images = [one if isinstance(one, Image) else Image.from_array(one, device=self.device) for one in given]
        with CommandBuffer(self.device) as commands:
            result, intermediates, _ = self._append(commands, tuple(images), labels)
        self._check_updates()
        found = ([] if result is None else [result]) + list(intermediates)
        if not isinstance(given[0], Image):
            return _unpacked([np.asarray(image) for image in found])
        return _unpacked(found)


def _unpacked(found: list[Any]) -> Any:
    return None if not found else found[0] if len(found) == 1 else tuple(found)
