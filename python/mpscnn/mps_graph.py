# SPDX-License-Identifier: Apache-2.0
"""MPSNNGraph: a graph that MPS makes of nodes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from . import _checks, _core
from ._awaiting import Turns
from ._inputs import check_sizes
from ._public import public
from .buffer import Buffer
from .device import CommandBuffer, Device
from .image import Image
from .loss_labels import LossLabels
from .nodes import FilterNode, ImageNode
from .nodes._base import FORMATS, Allocator, _allocator, _allocator_of, _image, _index

if TYPE_CHECKING:
    from . import _typing as t
    from .graph import Input

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


# Held from the encode of a call that updates weights until its commit: graphs may share the weights, and the kernels of
# an encode read the values of the one before.
_TRAINING = threading.RLock()


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

    __slots__ = ("_order", "_specs", "_turns")
    _order: threading.RLock
    _specs: Mapping[str, Input]
    _turns: Turns

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
        self._turns, self._order = Turns(), _TRAINING
        self._specs = {}  # inputs of a network with conditions on the size, by label
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
    def image_allocator(self) -> Allocator | None:
        """Function that returns the images of the results; None: new ones (destinationImageAllocator).

        It is called in each encode, for each result, as ``image_allocator((N, H, W, C), dtype)``, and returns an Image
        of that shape and dtype. Exported images come from the property of their nodes.

        Raises
        ------
        TypeError
            "MPSNNGraph: image_allocator (int) is not callable."; in encodes also "MPSNNGraph: what image_allocator
            returned (int) is not an Image.", "MPSNNGraph: image_allocator returned an image of float16; the result has
            float32."
        ValueError
            In encodes: "MPSNNGraph: image_allocator returned an image of shape (1, 2, 2, 4); the result has (2, 2, 2,
            4).", and for images that are temporary, read-only, a source, or another result of the encode.
        """
        return cast("Allocator | None", _allocator_of(self._object, "destinationImageAllocator"))

    @image_allocator.setter
    def image_allocator(self, image_allocator: Allocator | None) -> None:
        name = "MPSNNGraph: image_allocator"
        self._object.set("destinationImageAllocator", _allocator(image_allocator, name, True))

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
        """Return the inputs in order; a dict has them by label. ValueError if a network does not take their sizes."""
        found = self._by_label(sources)
        for name, one in zip(self.source_image_handles if self._specs else (), found, strict=False):
            spec = self._specs.get(name or "")
            if spec is not None and len(getattr(one, "shape", ())) == 4:
                check_sizes(spec, dict(zip("NHWC", one.shape, strict=True)))
        return found

    def _by_label(self, sources: tuple[Any, ...]) -> list[Any]:
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
            Everything else has been encoded. Commit the command buffer all the same: it computes the other weights,
            which the kernels have from then on. Exceptions of ``update_on_cpu()`` are raised by the next encode.
        """
        self._check_updates()
        result, intermediates, states, _ = self._append(command_buffer, sources, labels)
        self._check_updates()
        return result, intermediates, states

    def _append(
        self, command_buffer: CommandBuffer, sources: tuple[Any, ...], labels: Any
    ) -> tuple[Image | None, tuple[Image, ...], tuple[GraphState, ...], bool]:
        """Encode; exceptions of updates are kept. Return also whether weights were updated."""
        images = [_checks.instance(one, "MPSNNGraph: source", Image) for one in self._in_order(sources)]
        if not isinstance(labels, LossLabels) and not hasattr(type(labels), "__iter__"):
            _checks.refuse(labels, "MPSNNGraph: labels", "LossLabels or an iterable of them")
        states = [labels] if isinstance(labels, LossLabels) else list(labels)
        for one in states:
            _checks.instance(one, "MPSNNGraph: labels", LossLabels)
        result, intermediates, left, has_updated = self._encode(command_buffer, images, states)
        return result, tuple(intermediates), tuple(GraphState._of(one) for one in left), has_updated

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
        # Most calls: NumPy arrays, no labels, a graph that has run and updates no weights.
        updates_nothing = self._order is not _TRAINING and type(labels) is tuple and not labels
        if updates_nothing and given and all(type(one) is np.ndarray and one.ndim == 4 for one in given):
            return _unpacked(self._run(given))
        commands, found = self._prepare(given)
        with self._order:
            if self._encode_call(commands, found, labels):
                commands.commit()
        commands._finish()
        self._check_updates()
        return found.result()

    def _prepare(self, given: list[Any]) -> tuple[CommandBuffer, _Found]:
        images = [one if isinstance(one, Image) else Image.from_array(one, device=self.device) for one in given]
        as_arrays = bool(given) and not isinstance(given[0], Image)
        return CommandBuffer(self.device), _Found(images, as_arrays)

    def _encode_call(self, commands: CommandBuffer, found: _Found, labels: Any) -> bool:
        """Encode a call; exceptions of updates are kept. Return whether weights were updated.

        The caller holds ``_order`` until it has committed such a call: the next one reads the weights.
        """
        result, intermediates, _, has_updated = self._append(commands, tuple(found.sources), labels)
        if not has_updated and self._order is _TRAINING:  # what a graph updates does not depend on the call
            self._order = threading.RLock()
        found.images = ([] if result is None else [result]) + list(intermediates)
        return has_updated

    def execute_async(
        self,
        *sources: t.Array | Image | Mapping[str, t.Array | Image],
        labels: LossLabels | Iterable[LossLabels] = (),
    ) -> GraphExecution:
        """Run the graph on arrays or Images without waiting (executeAsyncWithSourceImages:completionHandler:).

        Parameters
        ----------
        *sources, labels
            As in ``graph(x)``; do not write to them before the work is done.

        Returns
        -------
        GraphExecution
            Its ``result()`` waits and returns what ``graph(x)`` returns, or raises its exception.

        Raises
        ------
        Exceptions of `encode`, but not those of a data source's updates
        """
        return self._execute(sources, labels)

    def _execute(
        self, sources: tuple[Any, ...], labels: Any, completed: Callable[[], None] | None = None
    ) -> GraphExecution:
        self._check_updates()
        commands, found = self._prepare(self._in_order(sources))
        with self._order:
            self._encode_call(commands, found, labels)
            return GraphExecution._commit(self, commands, found, completed)

    async def apredict(
        self,
        *sources: t.Array | Image | Mapping[str, t.Array | Image],
        labels: LossLabels | Iterable[LossLabels] = (),
    ) -> Any:
        """Run the graph without blocking the event loop: ``await graph.apredict(x)``.

        Otherwise like ``graph(x)``. Requests run in the order of the calls. At most four requests of an event loop are
        on the device's queue; the others wait. A request that is cancelled while it waits never runs. If it is already
        on the queue, it completes, but its result is dropped.

        Parameters
        ----------
        *sources, labels
            As in ``graph(x)``; do not write to them before the result is available.

        Returns
        -------
        array, Image, tuple or None
            As ``graph(x)``.

        Raises
        ------
        Exceptions of ``graph(x)``, when awaited
        """
        self._check_updates()
        execution = await self._turns.call(lambda completed: self._execute(sources, labels, completed))
        return execution.result()


def _unpacked(results: list[Any]) -> Any:
    return None if not results else results[0] if len(results) == 1 else tuple(results)


class _Found:
    """Images of a call: the sources are kept until the results are read."""

    def __init__(self, sources: list[Image], as_arrays: bool) -> None:
        self.sources, self.as_arrays = sources, as_arrays
        self.images: list[Image] = []

    def result(self) -> Any:
        """Return the results of a call that has completed."""
        return _unpacked([image.numpy() for image in self.images] if self.as_arrays else self.images)


class GraphExecution(_checks.Made):
    """A call of an `MPSNNGraph` that may still run; made by `MPSNNGraph.execute_async`."""

    def __init__(self) -> None:
        raise TypeError("GraphExecution cannot be made; MPSNNGraph.execute_async() returns it.")

    @classmethod
    def _commit(
        cls, graph: MPSNNGraph, commands: CommandBuffer, found: _Found, completed: Callable[[], None] | None
    ) -> GraphExecution:
        made = object.__new__(cls)
        made._graph, made._commands, made._found = graph, commands, found
        made._lock, made._event = threading.Lock(), threading.Event()
        made._callbacks = [] if completed is None else [lambda _: completed()]
        made._error = None
        made._keep_error()
        commands.add_completed_handler(made._complete)
        commands.commit()
        return made

    _graph: MPSNNGraph
    _commands: CommandBuffer
    _found: _Found
    _lock: threading.Lock
    _event: threading.Event
    _callbacks: list[Callable[[GraphExecution], object]]
    _error: BaseException | None

    def _keep_error(self) -> None:
        """Keep the first exception of a data source's update."""
        try:
            self._graph._check_updates()
        except BaseException as error:
            self._error = self._error or error

    def _complete(self) -> None:
        """Called when the work is done, on any thread."""
        self._keep_error()
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        with contextlib.ExitStack() as stack:  # calls all, also after an exception
            for callback in reversed(callbacks):
                stack.callback(callback, self)

    def done(self) -> bool:
        """Return whether the work is done, or has failed."""
        return self._event.is_set()

    def result(self, timeout: t.Real | None = None) -> Any:
        """Wait, and return what ``graph(x)`` returns.

        Parameters
        ----------
        timeout : float, seconds, >= 0, optional
            None: no limit.

        Raises
        ------
        TimeoutError
            "GraphExecution: the work is not done after 0.5 s."
        RuntimeError
            The device has failed.
        Any exception of a data source's ``update()`` or ``update_on_cpu()``
            The other weights are updated.
        """
        seconds = None if timeout is None else _checks.real(timeout, "GraphExecution.result: timeout")
        if seconds is not None and not seconds >= 0:
            raise ValueError(f"GraphExecution.result: timeout ({seconds}) is less than the minimum (0).")
        if not self._event.wait(seconds):
            raise TimeoutError(f"GraphExecution: the work is not done after {seconds} s.")
        self._commands.wait()
        if self._error is not None:
            raise self._error
        return self._found.result()

    def add_done_callback(self, callback: Callable[[GraphExecution], object]) -> None:
        """Register a function that is called with this object when the work is done; at once if it is done already.

        It is called on a device thread or a waiting one. Its exceptions go to sys.unraisablehook then.

        Raises
        ------
        TypeError
            "GraphExecution: callback (int) is not callable."
        """
        if not callable(callback):
            _checks.refuse(callback, "GraphExecution: callback", "callable")
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return
        callback(self)

    def __repr__(self) -> str:
        if not vars(self):
            return "<mpscnn.mps_graph.GraphExecution, not made>"
        return f"<mpscnn.mps_graph.GraphExecution, {'done' if self.done() else 'at work'}>"
