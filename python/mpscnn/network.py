# SPDX-License-Identifier: Apache-2.0
"""Network: a graph of kernels that runs in the core, with one call from Python per batch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from . import _checks, _core, _inputs, passes
from ._awaiting import Turns
from ._other_sizes import OtherSizes, UnreadableError, takes
from .device import Device
from .graph import ADAPTIVE_POOL, CONCATENATE, INTERPOLATE, METAL_FUNCTION, Graph, Input, Node, Output, check_layout
from .image import Image
from .kernels import KERNELS, Kernel

if TYPE_CHECKING:
    from .device import CommandBuffer
    from .layers import InputShapes, LayerTable, Shape
    from .mps_graph import MPSNNGraph
    from .stream import Stream
    from .tuning import Tuning


# Layouts of inputs and of outputs, and shapes of outputs that are flattened.
_Boundary: TypeAlias = "tuple[list[str], list[str], list[list[int] | None]]"
# Kernels by the name of their node.
_Kernels: TypeAlias = "dict[str, tuple[Node, Kernel]]"


class Network(_checks.Made):
    """A graph of kernels, ready to run.

    Kernels are made once, with batch normalization and activations folded into the kernels before them. Each call
    encodes the whole graph on one command buffer, with temporary images between the kernels. Several threads may call a
    network at once; the GIL is released while it runs. Batches may have any number of images, and images any height and
    width that the kernels accept; plans for the most recent shapes are cached. If `load` has made it of a module, the
    module is read again for sizes that the graph does not take: see docs/pytorch.md.

    ``copy.copy(net)`` shares the kernels and has its own layouts. ``copy.deepcopy(net)`` and pickles, as made by
    multiprocessing, contain the graph of the kernels, the current values of its arrays, including those of mapped
    files, the options and the layouts, but no source model: it takes no sizes that the graph does not. Results are
    equal bit by bit. Data sources must be picklable. The copy is on the default device, on any platform, unless it has
    num_threads; copying a network on another device raises ValueError.

    Parameters
    ----------
    graph : Graph
        Neither changed nor referenced later.
    dtype : "float32" or "float16", default "float32"
        Type of the images between kernels, and of results. Arithmetic is float32 in both cases on Linux.
    mean, std : float or sequence of float, one per channel, optional
        If given, the input x is normalized to (x - mean) / std on the device; for several inputs, a dict by name.
        Pixels of uint8 arrays are scaled to 0...1, x / 255, before, as in torchvision.
    allow_reduced_precision : bool, default False
        Apple's MPSKernelOptionsAllowReducedPrecision for every kernel: bfloat16 products on Linux.
    optimize : bool, default True
        False: one kernel per node of the graph.
    device : Device, default Device()
    num_threads : int, >= 1, optional
        Threads that compute a call, on the CPU; at most those of `set_num_threads`. Calls of several threads or tasks
        then compute side by side, each with threads and memory of its own, as long as all of them together have no more
        threads than the process; further calls wait. Default: all threads of the process compute one call after the
        other. See docs/serving.md.

    Raises
    ------
    TypeError, ValueError, NotImplementedError
        Errors of a kernel's arguments, with the node's name in front: 'node "conv": Convolution: stride (0) is less
        than the minimum (1).'
    TypeError
        "graph (int) is not a Graph.", "dtype (int8) is not float32 or float16."
    ValueError
        "graph has no outputs: call graph.output(value) for each.", a mean or std that is not finite, or has the wrong
        number of channels; "num_threads (0) is less than the minimum (1)."
    NotImplementedError
        num_threads was given, and the device does not compute on threads of the processor.

    Source
    ------
    csrc/core/network/network.cpp. Kernels: MPSNeuralNetwork; no MPSNNGraph is involved.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> graph = mpscnn.Graph()
    >>> x = graph.input("x", channels=3, layout="NCHW")
    >>> y = graph.add("Convolution", x, weight=np.ones((8, 3, 3, 3), np.float32), padding=1)
    >>> graph.output(graph.add("NeuronReLU", y), "y", layout="NCHW")
    >>> net = mpscnn.Network(graph)
    >>> net(np.ones((2, 3, 4, 6), np.float32)).shape
    (2, 8, 4, 6)
    """

    _lent: _Kernels | None = None  # of the network for another size

    def __init__(
        self,
        graph: Graph,
        *,
        dtype: str = "float32",
        mean: Any = None,
        std: Any = None,
        allow_reduced_precision: bool = False,
        optimize: bool = True,
        device: Device | None = None,
        num_threads: int | None = None,
    ) -> None:
        _checks.instance(graph, "graph", Graph)
        dtype = _image_dtype(dtype)
        allow_reduced_precision = _checks.boolean(allow_reduced_precision, "allow_reduced_precision")
        optimize = _checks.boolean(optimize, "optimize")
        _checks.instance_or_none(device, "device", Device)
        if num_threads is not None:
            num_threads = _checks.integer(num_threads, "num_threads", minimum=1, maximum=2**31 - 1)
        if not graph.outputs:
            raise ValueError("graph has no outputs: call graph.output(value) for each.")
        if device is None:
            device = Device()  # here, because errors below name a node
        watch = graph._watch()
        self._options = {
            "dtype": dtype,
            "allow_reduced_precision": allow_reduced_precision,
            "num_threads": num_threads,
        }
        shapes = graph._shapes
        graph = _normalize_inputs(graph, mean, std)
        self.graph = passes.optimize(graph) if optimize else passes.remove_dead(graph)
        self._inputs = dict(self.graph.inputs)
        self._has_types = any(spec.dtype for spec in self._inputs.values())
        self._others: OtherSizes | None = None
        self._is_free = not any(spec.sizes for spec in self._inputs.values())
        self._outputs = dict(self.graph.outputs)
        # Shapes of images from the source or from load(); not of arrays, because layouts may change.
        self._loaded_shapes: dict[str, Shape] = {name: shapes[name] for name in self._inputs if name in shapes}
        self._set_boundary()
        self._make_kernels(device)
        watch.check_whole()

    def _make_kernels(self, device: Device) -> None:
        """Make the kernels and the core's network."""
        numbers = {name: number for number, name in enumerate(self._inputs)}
        nodes = []
        self._kernels: _Kernels = {}
        for node in self.graph.nodes:
            sources = [numbers[source] for source in node.sources]
            kernel = _shared(node, self._lent) or self._kernel(node, device)
            if isinstance(kernel, Kernel):
                self._kernels[node.name] = node, kernel
            nodes.append((node.name, kernel, sources, node.result_dtype))
            numbers[node.name] = len(numbers)
        self._core = _core._Network(
            [(spec.name, spec.height, spec.width, spec.channels, spec.fixed_by) for spec in self._inputs.values()],
            nodes,
            [numbers[output.source] for output in self._outputs.values()],
            self.dtype,
            device,
            self.num_threads or 0,
        )
        # Semaphores are owned by the requests that use them, which end with their event loop.
        self._turns = Turns()

    def _kernel(self, node: Node, device: Device | None) -> Any:
        if node.kernel == CONCATENATE:
            return None
        if node.kernel == INTERPOLATE:
            return node.arguments["mode"], node.arguments["align_corners"]
        if node.kernel == ADAPTIVE_POOL:
            return node.arguments["mode"], *node.arguments["output_size"]
        arguments = {"label": node.name, **node.arguments}
        if self._options["allow_reduced_precision"]:
            arguments["allow_reduced_precision"] = True
        try:
            if node.kernel == METAL_FUNCTION:
                given = dict(node.arguments)
                return given.pop("function")._layer(**given)
            return KERNELS[node.kernel](**arguments, device=device)
        except (TypeError, ValueError, KeyError, NotImplementedError, MemoryError) as error:
            origin = f", from {node.origin}" if node.origin else ""
            named: Any = type(error)(f'node "{node.name}"{origin}: {error}')
            named.node = node  # for load(), which raises errors of another family
            raise named from error

    def _read_again(self, read: Any, *, mean: Any = None, std: Any = None, optimize: bool = True) -> None:
        """Let `read` make graphs for other sizes, as `OtherSizes` says."""
        inputs, outputs, lent = self.graph.inputs, list(self.graph.outputs), self._kernels
        options: Any = {**self._options, "mean": mean, "std": std, "optimize": optimize, "device": self.device}

        def make(graph: Graph) -> Network:
            if any(spec.layout != inputs[name].layout for name, spec in graph.inputs.items()):
                raise ValueError("the axes of its inputs are others than for the first size.")
            if list(graph.outputs) != outputs:
                raise ValueError(f"its outputs ({', '.join(graph.outputs)}) are not {', '.join(outputs)}.")
            other = Network.__new__(Network)
            other._lent = lent  # weights are stored once
            other.__init__(graph, **options)  # type: ignore[misc]
            return other

        self._others, self._is_free = OtherSizes(read, make), False

    def _that_takes(self, images: Sequence[Sequence[int]]) -> Network:
        """Return the network for images of these shapes (N, H, W, C): itself, or one that is made for their size."""
        specs = self._inputs.values()
        if all(map(takes, specs, images)):
            return self
        has_channels = all(
            spec.channels in (None, shape[3]) or self.graph.inputs[spec.name].layout[1:2] != "C"
            for spec, shape in zip(specs, images, strict=True)
        )
        if self._others is None or not has_channels or any(min(shape) < 1 for shape in images):
            for spec, shape in zip(specs, images, strict=True):
                _inputs.check_sizes(spec, dict(zip("NHWC", shape, strict=True)))
            return self  # the core says what it takes
        try:
            return self._others.network(list(self._inputs), images)
        except UnreadableError as error:
            raise ValueError(f"{self._refusal(images)} The model cannot be read for this size: {error}") from None

    def _refusal(self, images: Sequence[Sequence[int]]) -> str:
        """Return why the graph does not take images of these shapes."""
        try:
            for spec, shape in zip(self._inputs.values(), images, strict=True):
                _inputs.check_sizes(spec, dict(zip("NHWC", shape, strict=True)))
            self._core.shapes([tuple(shape) for shape in images])
        except ValueError as error:
            return str(error)
        return ""

    def _for_arrays(self, arrays: Sequence[Any]) -> Network:
        """Return the network for these arrays, as `_that_takes`, or itself if they are no arrays of its inputs."""
        if self._is_free:
            return self
        shapes = []
        for array, spec in zip(arrays, self._inputs.values(), strict=True):
            found = array if hasattr(array, "shape") else _inputs.as_array(array)
            shape = tuple(getattr(found, "shape", ()))
            if len(shape) != len(spec.layout):
                return self
            extents = dict(zip(spec.layout, shape, strict=True))
            shapes.append([int(extents.get(letter, 1)) for letter in "NHWC"])
        return self._that_takes(shapes)

    def _boundary_of(self, other: Network) -> _Boundary:
        """Return the layouts and shapes of arrays for another size's network; `input_layout` and the like are ours."""
        if other is self:
            return self._boundary
        layouts = []
        for name, output in self._outputs.items():
            before, after = self.graph.outputs[name], other.graph.outputs[name]
            if output.layout == before.layout:
                layouts.append(after.layout)
            elif after.shape is not None or len(after.layout) != len(before.layout):
                raise ValueError(
                    f'output_layout: output "{name}" is flattened for this size, {after.shape}: its order is fixed.'
                )
            else:
                layouts.append(output.layout.translate(str.maketrans(before.layout, after.layout)))
        return self._boundary[0], layouts, other._boundary[2]

    def _check_images_of(self, other: Network) -> None:
        """Raise ValueError unless the result images of another size's network have the axes of ours."""
        for name, output in self.graph.outputs.items():
            found = other.graph.outputs[name]
            if found.layout != output.layout or (found.shape is None) != (output.shape is None):
                raise ValueError(
                    f'output "{name}": its image has the axes {found.layout} for this size, not {output.layout}: call'
                    " the network with arrays, or load the model for this size."
                )

    def _set_boundary(self) -> None:
        self._boundary: _Boundary = (
            [spec.layout for spec in self._inputs.values()],
            [output.layout for output in self._outputs.values()],
            [None if output.shape is None else list(output.shape) for output in self._outputs.values()],
        )

    # ---- copies

    def __copy__(self) -> Network:
        copied = type(self).__new__(type(self))
        vars(copied).update(vars(self))
        return copied

    def __getstate__(self) -> dict[str, Any]:
        _checks.made(self, "self")
        if self.device != Device():
            raise ValueError(
                f"device ({self.device!r}) is not the default device, on which a pickle is read back: make the network"
                " without device=."
            )
        left_out = ("_core", "_turns", "_kernels", "_others")
        state = {name: value for name, value in vars(self).items() if name not in left_out}
        return {**state, "whole": _Whole(self.graph._watch())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        del state["whole"]
        vars(self).update(state, _others=None)
        self._is_free = not any(spec.sizes for spec in self._inputs.values())
        self._make_kernels(Device())

    # ---- properties

    @property
    def inputs(self) -> dict[str, Input]:
        """The inputs by name, in order: channels, layout, and height and width if they are fixed."""
        return dict(self._inputs)

    @property
    def outputs(self) -> dict[str, Output]:
        """The outputs by name, in order: layout and shape."""
        return dict(self._outputs)

    @property
    def device(self) -> Device:
        """The device that the network runs on."""
        return self._core.device

    @property
    def dtype(self) -> str:
        """Type of the images between kernels, and of results."""
        return cast(str, self._options["dtype"])

    @property
    def num_threads(self) -> int | None:
        """Threads that compute a call, beside other calls; None: all of the process, one call after the other."""
        return cast("int | None", self._options["num_threads"])

    @property
    def input_layout(self) -> str | dict[str, str]:
        """Order of the axes of input arrays, "NCHW" or "NHWC" (or fewer axes); default: the source model's.

        A str if all inputs have the same layout, otherwise a dict by name; either can be set.
        """
        return _layouts(self._inputs)

    @input_layout.setter
    def input_layout(self, value: str | Mapping[str, str]) -> None:
        self._inputs = _with_layouts(self._inputs, value, "input_layout")
        self._set_boundary()

    @property
    def output_layout(self) -> str | dict[str, str]:
        """Order of the axes of results, like `input_layout`. It cannot be set for results that the model flattens."""
        return _layouts(self._outputs)

    @output_layout.setter
    def output_layout(self, value: str | Mapping[str, str]) -> None:
        changed = _with_layouts(self._outputs, value, "output_layout")
        for name, output in changed.items():
            if output.shape is not None and output != self._outputs[name]:
                raise ValueError(
                    f'output_layout: output "{name}" is flattened ({output.shape}) and has its order fixed.'
                )
        self._outputs = changed
        self._set_boundary()

    def layers(self, input_shapes: InputShapes = None) -> LayerTable:
        """Return the kernels with their shapes, parameters, operations and bytes.

        Parameters
        ----------
        input_shapes : tuple of int, or dict of them by name, optional
            Shapes of arrays, N first. Default: the shapes that the network was loaded with; for other networks a batch
            of 1, and an error if a height or width is free.

        Returns
        -------
        LayerTable
            A list of `mpscnn.layers.Layer`; as text, a line per layer.

        Raises
        ------
        ValueError
            'input "x": height and width are free: give its shape (NHWC).', a shape that the network does not accept.
        TypeError
            'input_shapes["x"] (int) is not a tuple of int.'
        """
        from .layers import layer_table

        return layer_table(self, input_shapes)

    def summary(self, input_shapes: InputShapes = None) -> str:
        """Return the table of layers, followed by the images between them and their memory.

        Parameters
        ----------
        input_shapes : tuple of int, or dict of them by name, optional
            As in `layers`.

        Returns
        -------
        str

        Raises
        ------
        TypeError, ValueError
            As in `layers`.
        """
        from .layers import memory_plan

        return f"{self.layers(input_shapes)}\n\n{memory_plan(self, input_shapes)}"

    def tune(self, input_shapes: InputShapes = None, *, rounds: int = 20, progress: Any = None) -> Tuning:
        """Time the implementations of each convolution, and use the fastest from now on.

        The CPU engine of Linux has several implementations of most convolutions, of the same precision, and chooses
        between them by models of their times. This runs the network on random arrays until each of them has been timed
        `rounds` times in its place, in random order. One that takes at most 0.95 of the time of the model's choice,
        both by the medians and by the shortest times, replaces it, if the whole network then takes at most 0.99 of its
        time. Choices are used in this process and, by a file in mpscnn's cache (see docs/engine.md), in later ones on
        the same processor. They hold for all convolutions of these shapes, images per batch, formats and number of
        threads, also for those of other networks. Results change by rounding. Other work on the machine disturbs the
        times.

        Memory: the packed weights of implementations that are not chosen stay until the network is freed. `mpscnn tune`
        does the same in a process of its own.

        Parameters
        ----------
        input_shapes : tuple of int, or dict of them by name, optional
            As in `layers`.
        rounds : int, 1 to 10,000, default 20
            Times of each implementation. Those that take twice the time of another are timed three times.
        progress : bool, callable or None
            True shows a bar (tqdm); a callable is called with the number of rounds so far and the total.

        Returns
        -------
        Tuning
            A list of `mpscnn.tuning.TimedCall`; as text, a line per call. Empty on GPUs, which time implementations
            when they first need them.

        Raises
        ------
        TypeError, ValueError
            As in `layers`; "rounds (0) is less than the minimum (1)."
        RuntimeError
            "tune: another call of tune is under way.", "tune: MPSCNN_TUNED is 0.", "tune: MPSCNN_IMPL is set."
        NotImplementedError
            On macOS.
        MissingPackageError
            progress=True, but tqdm is not installed.
        """
        from .tuning import tune

        return tune(self, input_shapes, rounds=rounds, progress=progress)

    def __repr__(self) -> str:
        if not vars(self):
            return "<mpscnn.Network, not made>"
        count = len(self.graph.nodes)
        return f"<mpscnn.Network {', '.join(self._inputs)} -> {count} kernels -> {', '.join(self._outputs)}>"

    def _repr_html_(self) -> str | None:
        """Return the table of layers, for notebooks; the table of inputs if a height or width is free."""
        if not vars(self):
            return None
        from ._html import table as html_table

        try:
            layers = self.layers()
        except ValueError:
            layers = None
        if layers is not None:
            return html_table(*layers.rows(), right=3, caption=repr(self))
        inputs = [
            (name, spec.layout, *(str(extent or "any") for extent in (spec.height, spec.width, spec.channels)))
            for name, spec in self._inputs.items()
        ]
        return html_table(("input", "layout", "height", "width", "channels"), inputs, right=3, caption=repr(self))

    def _repr_svg_(self) -> str | None:
        """Return the diagram of `mpscnn.plotting.svg`, for notebooks; None if a height or width is free."""
        if not vars(self):
            return None
        from .plotting import svg

        try:
            return svg(self)
        except ValueError:
            return None

    # ---- running

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Run the network on a batch and wait.

        Parameters
        ----------
        *arrays, **named : arrays
            The inputs, in order or by name: NumPy, PyTorch, DLPack, buffers; float32, float16, uint8 or uint16, or the
            `Input.dtype` of the model's input; in ``input_layout``, N first. Not copied if an image can share their
            memory. Arrays in a GPU's memory are for a network on that GPU.
        out : array, or sequence of arrays and None, optional
            Destinations, in the shapes of the results; float32, float16, uint8 or uint16.

        Returns
        -------
        array, or tuple of arrays when there are several outputs
            In the dtype of the network and in ``output_layout``: NumPy arrays, or `DeviceArray` if an input is in the
            memory of a GPU.

        Raises
        ------
        ValueError
            'input "x": its number of channels (4) is not 3.', with the ``input_layout`` to set if the array is NHWC
            instead of NCHW or vice versa; "out.shape (1, 8) is not the result's (2, 8)."
        TypeError
            "the number of arrays (2) is not 1.", 'x.dtype (float64) is not float32, float16, uint8 or uint16: convert
            the array with .astype("float32").', 'input "x": dtype (float32) is not int64, the type of the model's
            input: convert the array with .astype("int64").'
        RuntimeError
            The device failed.
        """
        given = self._arrays(arrays, named)
        net = self._for_arrays(given)
        try:
            results = net._core.call(given, self._outs(out), *self._boundary_of(net))
        except ValueError as error:
            raise self._with_layout_that_fits(error, given) from None
        return results[0] if len(results) == 1 else tuple(results)

    async def apredict(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Run the network without blocking the event loop: ``await net.apredict(x)``.

        Otherwise like ``net(x)``. Requests start in the order of the calls, those of a network with num_threads side by
        side. At most four requests of an event loop are on the device's queues; the others wait. A request that is
        cancelled while it waits never runs. If it is already on a queue, it completes and writes to ``out`` if given,
        but its result is dropped.

        Parameters
        ----------
        *arrays, **named, out
            As in ``net(x)``; do not write to them before the result is available.

        Returns
        -------
        array, or tuple of arrays when there are several outputs

        Raises
        ------
        TypeError, ValueError, RuntimeError
            As in ``net(x)``, when awaited.
        """
        given, outs = self._arrays(arrays, named), self._outs(out)
        if self._others is not None:
            import asyncio

            await asyncio.to_thread(self._for_arrays, given)  # may read the model, for seconds
        call = await self._turns.call(lambda completed: self._submit_arrays(given, outs, completed))
        results = call.wait()
        return results[0] if len(results) == 1 else tuple(results)

    def stream(self, batches: Iterable[Any], *, in_flight: int = 4, progress: Any = None) -> Stream:
        """Run the network on an iterable of batches and return an iterator of results, in order.

        While the caller processes a result, the device computes the following batches; see `Stream`.

        Parameters
        ----------
        batches : iterable
            Arrays; for a network with several inputs, tuples of arrays or dicts by name.
        in_flight : int, >= 1, default 4
            Batches that are taken from the iterable before the first of their results is requested.
        progress : bool, callable or None
            True shows a bar (tqdm); a callable is called with the number of results so far and the total, or None.

        Returns
        -------
        Stream
            Iterator of arrays, or of tuples of arrays when there are several outputs.

        Raises
        ------
        TypeError
            "batches (int) is not iterable.", "in_flight (float) is not an int."
        ValueError
            "in_flight (0) is less than the minimum (1)."
        MissingPackageError
            progress=True, but tqdm is not installed.
        """
        from .stream import Stream

        return Stream(self, batches, in_flight=in_flight, progress=progress)

    def encode(
        self, command_buffer: CommandBuffer, *images: Image, out: Image | Sequence[Image | None] | None = None
    ) -> Any:
        """Encode the network on a command buffer, with images as inputs and outputs.

        Parameters
        ----------
        command_buffer : CommandBuffer
            Not committed yet.
        *images : Image
            The inputs, in order.
        out : Image, or sequence of Image and None, optional
            Destinations; None: new images.

        Returns
        -------
        Image, or tuple of Images when there are several outputs

        Raises
        ------
        ValueError
            As in ``net(x)``; an image whose shape is not the result's.
        TypeError
            "the number of images (0) is not 1.", "out[0] (ndarray) is not an Image."
        RuntimeError
            The command buffer is already committed.
        """
        for name, image in zip(self._inputs, images, strict=False):
            _check_image(image, name)
        is_whole = len(images) == len(self._inputs)
        net = self._that_takes([image.shape for image in images]) if is_whole else self
        outs = self._outs(out, "image")
        for i, given in enumerate(outs):
            if given is not None:
                _check_image(given, "out" if given is out else f"out[{i}]")
        if net is not self:
            self._check_images_of(net)
        results = net._core.encode(command_buffer, images, outs)
        return results[0] if len(results) == 1 else tuple(results)

    def _submit(self, item: Any) -> Any:
        """Submit a batch of a stream."""
        if isinstance(item, Mapping):
            arrays = self._arrays((), item)
        elif isinstance(item, (tuple, list)) and len(self._inputs) > 1:
            arrays = self._arrays(tuple(item), {})
        else:
            arrays = self._arrays((item,), {})
        return self._submit_arrays(arrays)

    def _submit_arrays(self, arrays: list[Any], outs: list[Any] | None = None, completed: Any = None) -> Any:
        net = self._for_arrays(arrays)
        try:
            return net._core.submit(arrays, outs, *self._boundary_of(net), completed)
        except ValueError as error:
            raise self._with_layout_that_fits(error, arrays) from None

    def _with_layout_that_fits(self, error: ValueError, arrays: Sequence[Any]) -> ValueError:
        """Return the error, with advice if the arrays have their channels last instead of first, or vice versa."""
        shapes = [tuple(getattr(array, "shape", ())) for array in arrays]
        layouts = {name: spec.layout for name, spec in self._inputs.items()}
        if self._fit(shapes, layouts):
            return error
        others = {name: _other_layout(layout) for name, layout in layouts.items()}
        for changed in (*({name: other} for name, other in others.items()), others):
            if self._fit(shapes, {**layouts, **changed}):
                return ValueError(f"{error} {_layout_advice(self._inputs, shapes, changed)}")
        return error

    def _fit(self, shapes: Sequence[tuple[int, ...]], layouts: Mapping[str, str]) -> bool:
        """Return whether the network accepts arrays of these shapes in these layouts."""
        images = []
        for shape, layout in zip(shapes, layouts.values(), strict=True):
            if len(shape) != len(layout) or 0 in shape[1:]:
                return False
            extents = dict(zip(layout, shape, strict=True))
            images.append(tuple(extents.get(letter, 1) for letter in "NHWC"))
        try:
            self._core.shapes(images)
        except ValueError:
            return False
        return True

    def _arrays(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        given = self._in_order(arrays, named)
        if not self._has_types:
            return given
        specs = self._inputs.values()
        return [_inputs.converted(one, spec) if spec.dtype else one for one, spec in zip(given, specs, strict=True)]

    def _in_order(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        if not named:
            if len(arrays) != len(self._inputs):
                raise TypeError(
                    f"the number of arrays ({len(arrays)}) is not {len(self._inputs)} ({', '.join(self._inputs)})."
                )
            return list(arrays)
        given = dict(zip(self._inputs, arrays, strict=False))
        for name, array in named.items():
            if name not in self._inputs:
                raise TypeError(f'there is no input "{name}"; there are {", ".join(self._inputs)}.')
            if name in given:
                raise TypeError(f'input "{name}" is given twice.')
            given[name] = array
        missing = [name for name in self._inputs if name not in given]
        if missing or len(arrays) > len(self._inputs):
            raise TypeError(f"no array is given for {', '.join(missing)}.")
        return [given[name] for name in self._inputs]

    def _outs(self, out: Any, what: str = "array") -> list[Any]:
        if out is None:
            return [None] * len(self._outputs)
        if isinstance(out, (tuple, list)):
            if len(out) != len(self._outputs):
                raise TypeError(f"the number of {what}s in out ({len(out)}) is not {len(self._outputs)}.")
            return list(out)
        if len(self._outputs) != 1:
            raise TypeError(f"out is one {what}; there are {len(self._outputs)} outputs ({', '.join(self._outputs)}).")
        return [out]

    def to_mps_graph(self, input_shapes: InputShapes = None) -> MPSNNGraph:
        """Return the network as a graph of MPS's own, of nodes with the same kernels and weights.

        Its inputs have the labels of the network's, and its calls take arrays in the order N, H, W, C. Results are
        equal up to rounding. A `Network` has what MPSNNGraph lacks: files, layouts, streams, profiles, training.
        If the network has conditions on the number of images, height and width (`sizes` in `inputs`), calls with others
        raise ValueError: the graph has the branches of the import.

        Parameters
        ----------
        input_shapes : tuple of int, or dict of them by name, optional
            As in `layers`: images that broadcast are found with it, and resizes to the size of another value and
            adaptive pooling become nodes for these sizes.

        Returns
        -------
        MPSNNGraph

        Raises
        ------
        NotImplementedError
            'to_mps_graph: node "resize": MPSNNGraph has no node of the kernel ResizeBilinear.', and for concatenations
            whose channels are no multiples of 4.
        """
        from .graph_export import node_graph

        return node_graph(self, input_shapes)

    # ---- files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network to a file that `mpscnn.load` maps into memory; see docs/file_format.md.

        The weights are written as the kernels read them: batch normalization folded, OHWI. An existing file is replaced
        atomically: if the process is killed, either the old or the new file exists.

        Parameters
        ----------
        path : path
            Must end in .mpscnn for `mpscnn.load`. A replaced file keeps its permissions; links are followed.

        Raises
        ------
        TypeError
            A kernel's argument is a Python object: a data source or a padding policy. A node is a Metal function, which
            is a program: model files are data and never run code. "path (int) is not a path."
        OSError
            The file cannot be written: no such folder, no permission, no space, not a regular file.
        """
        _checks.path(path, "path")
        from .file_format import save

        save(self, path)


def _shared(node: Node, lent: _Kernels | None) -> Kernel | None:
    """Return another network's kernel that is equal to a node with weights."""
    other, kernel = (lent or {}).get(node.name, (None, None))
    if other is None or other.kernel != node.kernel or other.arguments.keys() != node.arguments.keys():
        return None
    pairs = [(value, other.arguments[name]) for name, value in node.arguments.items()]
    if not any(isinstance(value, np.ndarray) for value, _ in pairs) or not all(_equal(*pair) for pair in pairs):
        return None
    return kernel


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return False
    return type(one) is type(other) and isinstance(one, (str, int, float, tuple, type(None))) and one == other


class _Whole:
    """Pickled after the arrays to raise RuntimeError if one of their mapped files was truncated meanwhile."""

    def __init__(self, watch: _core._Watch) -> None:
        self._watch = watch

    def __reduce__(self) -> tuple[type[bool], tuple[()]]:
        self._watch.check_whole()
        return bool, ()


def _image_dtype(dtype: Any) -> str:
    """Return the name of an image dtype, given in any form that NumPy accepts."""
    try:
        name = np.dtype(dtype).name if dtype is not None else "None"
    except TypeError:
        name = ""
    if name not in ("float32", "float16"):
        given = name or (repr(dtype) if isinstance(dtype, str) else type(dtype).__name__)
        raise TypeError(f"dtype ({given}) is not float32 or float16.")
    return name


def _floats(values: Any, name: str) -> NDArray[np.float32]:
    try:
        return np.asarray(values, np.float32).reshape(-1)
    except (TypeError, ValueError):
        _checks.refuse(values, name, "a number, a sequence of numbers or a dict of them")


def _check_image(image: Any, name: str) -> None:
    _checks.instance(image, name, Image)
    try:
        image.dtype  # noqa: B018  (the core does not check elements of lists before it reads them)
    except TypeError:
        raise TypeError(f"{name} ({type(image).__name__}) was not made: its __init__ has not run.") from None


def _layouts(specs: Mapping[str, Input] | Mapping[str, Output]) -> str | dict[str, str]:
    layouts = {name: spec.layout for name, spec in specs.items()}
    return next(iter(layouts.values())) if len(set(layouts.values())) == 1 else layouts


def _other_layout(layout: str) -> str:
    """Move the channels of a layout from directly after N to the end, or back; other layouts do not change."""
    if layout[1:2] == "C":
        return f"N{layout[2:]}C"
    return f"NC{layout[1:-1]}" if layout.endswith("C") else layout


def _layout_advice(specs: Mapping[str, Input], shapes: Sequence[tuple[int, ...]], changed: Mapping[str, str]) -> str:
    """Return advice in a sentence: the layouts in `changed`, which fit the arrays, and the permutation of the axes."""
    sentences, permutations = [], []
    for (name, spec), shape in zip(specs.items(), shapes, strict=True):
        if name not in changed:
            continue
        known = {"H": spec.height, "W": spec.width, "C": spec.channels}
        expected = ", ".join(str(known.get(letter) or letter) for letter in spec.layout)
        of = f' of "{name}"' if len(specs) > 1 else ""
        sentences.append(
            f'The shape {shape}{of} does not fit the layout "{spec.layout}", ({expected}), but "{changed[name]}"'
        )
        permutations.append(str(tuple(changed[name].index(letter) for letter in spec.layout)))
    layouts = [f'"{name}": "{other}"' for name, other in changed.items()]
    is_one = len(changed) == len(specs) and len(set(changed.values())) == 1
    layout = f'"{next(iter(changed.values()))}"' if is_one else f"{{{', '.join(layouts)}}}"
    return (
        f"{'. '.join(sentences)}: set net.input_layout = {layout}, or permute the axes of the"
        f" array{'s' if len(changed) > 1 else ''}: {' and '.join(dict.fromkeys(permutations))}."
    )


def _with_layouts(specs: dict[str, Any], value: str | Mapping[str, str], what: str) -> dict[str, Any]:
    wanted = dict(value) if isinstance(value, Mapping) else dict.fromkeys(specs, value)
    changed = dict(specs)
    for name, layout in wanted.items():
        if name not in specs:
            raise KeyError(f'{what}: there is no "{name}"; there are {", ".join(specs)}.')
        check_layout(layout, what)
        changed[name] = replace(specs[name], layout=layout)
    return changed


def _normalize_inputs(graph: Graph, mean: Any, std: Any) -> Graph:
    """Insert (x - mean) / std after the inputs that have a mean or std."""
    if mean is None and std is None:
        return graph
    by_name: dict[str, dict[str, NDArray[np.float32]]] = {}
    for what, given in (("mean", mean), ("std", std)):
        if given is None:
            continue
        if not isinstance(given, Mapping) and len(graph.inputs) > 1:
            raise TypeError(f"{what} is no dict, and the network has several inputs ({', '.join(graph.inputs)}).")
        given = given if isinstance(given, Mapping) else {next(iter(graph.inputs)): given}
        for name, values in given.items():
            if name not in graph.inputs:
                raise KeyError(f'{what}: there is no input "{name}"; there are {", ".join(graph.inputs)}.')
            channels, dtype = graph.inputs[name].channels, graph.inputs[name].dtype
            if _inputs.is_integer(dtype):
                raise ValueError(
                    f'{what} was given for input "{name}", whose type in the model is {dtype}: the model itself makes'
                    " floats of these numbers, so leave out mean and std."
                )
            array = _floats(values, what)
            if channels is None:
                raise ValueError(f'{what}: the number of channels of input "{name}" is not known.')
            if array.size not in (1, channels):
                raise ValueError(f'{what} has {array.size} values; input "{name}" has {channels} channels.')
            if not np.isfinite(array).all() or (what == "std" and (array <= 0).any()):
                raise ValueError(f"{what} ({values}) is not finite{' and greater than 0' if what == 'std' else ''}.")
            by_name.setdefault(name, {})[what] = np.broadcast_to(array, (channels,)).copy()
    graph = graph.copy()
    renamed, before = {}, []
    for name, given in by_name.items():
        channels = cast(int, graph.inputs[name].channels)
        zeros, ones = np.zeros(channels, np.float32), np.ones(channels, np.float32)
        node = graph.unique(f"{name}_normalized")
        renamed[name] = node
        arguments = {
            "gamma": 1 / given.get("std", ones).astype(np.float64),
            "beta": zeros,
            "mean": given.get("mean", zeros),
            "variance": ones,
            "epsilon": 0.0,
        }
        arguments["gamma"] = cast(NDArray[Any], arguments["gamma"]).astype(np.float32)
        origin, training = "mean and std of the input", {"statistics": "none"}
        before.append(Node(node, "BatchNormalization", (name,), arguments, origin, training))
        graph._names.add(node)
    graph.nodes = before + [
        node.with_(sources=tuple(renamed.get(source, source) for source in node.sources)) for node in graph.nodes
    ]
    graph.outputs = {
        name: replace(output, source=renamed.get(output.source, output.source))
        for name, output in graph.outputs.items()
    }
    return graph
