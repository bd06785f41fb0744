# SPDX-License-Identifier: Apache-2.0
"""The file format of networks: safetensors, with the graph in the metadata; see docs/file_format.md."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import _checks
from .errors import InvalidModelError
from .graph import (
    ADAPTIVE_POOL,
    ADAPTIVE_POOL_MODES,
    CONCATENATE,
    EXTENT_LIMIT,
    INTERPOLATE,
    INTERPOLATION_MODES,
    METAL_FUNCTION,
    STATISTICS,
    Graph,
    Input,
    Value,
    signature_of,
)
from .kernels import KERNELS

if TYPE_CHECKING:
    from .network import Network

FORMAT = "mpscnn"
# Incremented when files can no longer be read by earlier versions.
VERSION = 1
_MAX_NODES = 100_000


def save(network: Network, path: str | os.PathLike[str]) -> None:
    """Write the network's graph after all passes, with weights in the kernels' order, OHWI."""
    from . import _files
    from .importing.weights_files import write_safetensors
    from .layers import loaded_shapes

    arrays: dict[str, NDArray[Any]] = {}
    nodes = []
    watch = network.graph._watch()
    for node in network.graph.nodes:
        if node.kernel == METAL_FUNCTION:
            name = node.arguments["function"].name
            advice = ' Read for one size, by options={"free_size": False}, it may have none.'
            raise TypeError(
                f'node "{node.name}": {name} is a Metal function, a program; a model file'
                " holds data and never runs code, so only networks of kernels can be saved."
                + (advice if name in ("joined", "positions") else "")
            )
        arguments = _in_kernels_order(node.kernel, node.arguments)
        nodes.append(
            {
                "name": node.name,
                "kernel": node.kernel,
                "sources": list(node.sources),
                "arguments": {
                    name: _encoded(f"{node.name}.{name}", value, arrays, node.name)
                    for name, value in arguments.items()
                    if value is not None
                },
                "origin": node.origin,
                **({"training": node.training} if node.training else {}),
                **({"result_dtype": node.result_dtype} if node.result_dtype else {}),
            }
        )
    shapes = loaded_shapes(network)
    graph = {
        "inputs": [
            {
                "name": spec.name,
                "height": spec.height,
                "width": spec.width,
                "channels": spec.channels,
                "layout": spec.layout,
                "fixed_by": spec.fixed_by,
                **({"dtype": spec.dtype} if spec.dtype else {}),
                **({"sizes": spec.sizes} if spec.sizes else {}),
                **({"shape": list(shapes[spec.name])} if spec.name in shapes else {}),
            }
            for spec in network.inputs.values()
        ],
        "nodes": nodes,
        "outputs": [
            {
                "name": output.name,
                "source": output.source,
                "layout": output.layout,
                "shape": None if output.shape is None else list(output.shape),
            }
            for output in network.outputs.values()
        ],
        "dtype": network.dtype,
    }
    metadata = {FORMAT: json.dumps({"version": VERSION, **graph}, separators=(",", ":"))}
    with _files.replaced(path) as file:
        write_safetensors(file, arrays, metadata)
        watch.check_whole()


def read(path: str | os.PathLike[str], *, mapped: bool = True) -> tuple[Graph, dict[str, Any]]:
    """Return the graph and the options of a saved network. If the file is mapped, arrays are views of its pages.

    Raises
    ------
    InvalidModelError
        The file is damaged, has a later version, or is not a network.
    """
    from .importing.weights_files import safetensors

    weights = safetensors(os.fspath(path), mapped=mapped)
    text = weights.metadata.get(FORMAT)
    if not isinstance(text, str):
        raise InvalidModelError(f'"{path}" is no network of mpscnn: its metadata has no "{FORMAT}".')
    return _Reader(str(path), weights).graph(text)


def _in_kernels_order(kernel: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with weights in MPS's order, OHWI."""
    if kernel not in ("Convolution", "ConvolutionTranspose", "FullyConnected") or hasattr(arguments["weight"], "load"):
        return arguments
    source = KERNELS[kernel](
        **{name: value for name, value in arguments.items() if name not in ("padding", "edge_mode")}
    ).data_source
    source.load()
    try:
        descriptor = source.descriptor
        weights = np.asarray(source.weights)
        if descriptor.depthwise:
            weights = weights.reshape(descriptor.out_channels, *descriptor.kernel_size, 1)
        weights = weights.copy()
    finally:
        source.purge()
    changed = {**arguments, "weight": weights, "layout": "OHWI"}
    if descriptor.depthwise:
        changed["groups"] = descriptor.out_channels
    changed.pop("feature_map", None)
    if changed.get("bias") is not None:
        changed["bias"] = np.asarray(changed["bias"], np.float32)
    return changed


def _encoded(name: str, value: Any, arrays: dict[str, NDArray[Any]], node: str) -> Any:
    """Return an argument as JSON; arrays go into `arrays`."""
    from .descriptors import NeuronDescriptor
    from .importing.weights_files import WRITTEN_DTYPES

    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, NeuronDescriptor):
        data = np.asarray(value.data, np.float32)
        neuron: dict[str, Any] = {"type": value.type, "a": value.a, "b": value.b, "c": value.c}
        if data.size:
            neuron["data"] = _encoded(f"{name}.data", data, arrays, node)
        return {"neuron": neuron}
    if hasattr(value, "load") or hasattr(value, "destination"):
        raise TypeError(
            f'node "{node}": {name} ({type(value).__name__}) is a Python object that a file cannot hold; only arrays,'
            " numbers and names can be saved."
        )
    if isinstance(value, (tuple, list)):
        return [_encoded(name, one, arrays, node) for one in value]
    array = np.ascontiguousarray(np.asarray(value))
    if array.dtype.kind == "b" or array.dtype.name not in WRITTEN_DTYPES:
        raise TypeError(f'node "{node}": {name} ({type(value).__name__}) is neither an array, a number nor a name.')
    arrays[name] = array
    return {"array": name}


class _Reader:
    """Reader that makes a Graph from JSON. It raises InvalidModelError for anything that `save` does not write."""

    def __init__(self, path: str, weights: Mapping[str, NDArray[Any]]) -> None:
        self._path = path
        self._weights = weights

    def _wrong(self, what: str) -> InvalidModelError:
        return InvalidModelError(f'"{self._path}": {what}')

    def _get(self, table: Any, key: str, kind: type | tuple[type, ...], where: str) -> Any:
        if not isinstance(table, dict) or key not in table:
            raise self._wrong(f'{where} has no "{key}".')
        value = table[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            raise self._wrong(f'{where}: "{key}" ({value!r:.100}) is of another type than it should be.')
        return value

    def graph(self, text: str) -> tuple[Graph, dict[str, Any]]:
        try:
            table = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self._wrong(f"the graph is no JSON: {error}.") from None
        version = self._get(table, "version", int, "the graph")
        if version != VERSION:
            raise self._wrong(
                f"version ({version!s:.20}) of the file is not {VERSION}, the one that this mpscnn reads; a network can"
                " be written again from its model."
            )
        graph = Graph()
        try:
            self._fill(graph, table)
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            if isinstance(error, InvalidModelError):
                raise
            raise self._wrong(f"{error!s:.300}") from None
        dtype = self._get(table, "dtype", str, "the graph")
        if dtype not in ("float32", "float16"):
            raise self._wrong(f'"dtype" ({dtype:.100}) is not float32 or float16.')
        return graph, {"dtype": dtype}

    def _fill(self, graph: Graph, table: Any) -> None:
        optional = (int, type(None))
        for number, spec in enumerate(self._get(table, "inputs", list, "the graph")):
            where = f"input {number}"
            graph.input(
                self._get(spec, "name", str, where),
                height=self._get(spec, "height", optional, where),
                width=self._get(spec, "width", optional, where),
                channels=self._get(spec, "channels", optional, where),
                layout=self._get(spec, "layout", str, where),
                fixed_by=self._get(spec, "fixed_by", str, where),
                dtype=self._get(spec, "dtype", str, where) if "dtype" in spec else "",
                sizes=self._get(spec, "sizes", str, where) if "sizes" in spec else "",
            )
            if "shape" in spec:
                self._take_shape(graph, list(graph.inputs.values())[-1], self._get(spec, "shape", list, where), where)
        nodes = self._get(table, "nodes", list, "the graph")
        if len(nodes) > _MAX_NODES:
            raise self._wrong(f"the number of nodes ({len(nodes)}) is greater than the maximum ({_MAX_NODES}).")
        for number, node in enumerate(nodes):
            self._add(graph, node, f"node {number}")
        for number, output in enumerate(self._get(table, "outputs", list, "the graph")):
            where = f"output {number}"
            shape = self._get(output, "shape", (list, type(None)), where)
            if shape is not None and not all(isinstance(extent, int) and extent >= 0 for extent in shape):
                raise self._wrong(f"{where}: a shape of {shape!r:.100}.")
            graph.output(
                Value(self._get(output, "source", str, where)),
                self._get(output, "name", str, where),
                layout=self._get(output, "layout", str, where),
                shape=shape,
            )
        if not graph.inputs or not graph.outputs:
            raise self._wrong("the graph has no inputs or no outputs.")

    def _take_shape(self, graph: Graph, spec: Input, shape: list[Any], where: str) -> None:
        from ._inputs import image_shape

        for extent in shape:
            _checks.integer(extent, f"{where}: an extent of its shape", minimum=1, maximum=2**31 - 1)
        extents = dict(zip(spec.layout, shape, strict=False))
        for letter, extent in (("H", spec.height), ("W", spec.width), ("C", spec.channels)):
            if extent is not None and extents.get(letter, 1) != extent:
                raise self._wrong(f"{where}: a shape of {shape!r:.100}, not with {extent} along {letter}.")
        graph._shapes[spec.name] = image_shape(spec, shape)

    def _add(self, graph: Graph, node: Any, where: str) -> None:
        name, kernel = self._get(node, "name", str, where), self._get(node, "kernel", str, where)
        where = f'node "{name:.100}"'
        sources = []
        for source in self._get(node, "sources", list, where):
            if not isinstance(source, str):
                raise self._wrong(f"{where}: a source is no name.")
            sources.append(Value(source))
        origin = self._get(node, "origin", str, where)
        arguments = {
            key: self._decoded(value, f"{where}: {key}")
            for key, value in self._get(node, "arguments", dict, where).items()
        }
        if kernel == CONCATENATE:
            if len(sources) < 2:
                raise self._wrong(f"{where} has {len(sources)} sources.")
            graph.concatenate(*sources, name=name, origin=origin)
            return
        if kernel == INTERPOLATE:
            mode, align = arguments.pop("mode", None), arguments.pop("align_corners", None)
            wrong = mode not in INTERPOLATION_MODES or not isinstance(align, bool) or (align and mode != "bilinear")
            if len(sources) != 2 or wrong or arguments:
                raise self._wrong(f"{where}: Interpolate of {len(sources)} sources, {mode!r:.100}, {align!r:.100}.")
            graph.interpolate(*sources, mode=mode, align_corners=align, name=name, origin=origin)
            return
        if kernel == ADAPTIVE_POOL:
            mode, size = arguments.pop("mode", None), arguments.pop("output_size", None)
            is_size = isinstance(size, tuple) and len(size) == 2 and all(type(each) is int for each in size)
            wrong = mode not in ADAPTIVE_POOL_MODES or not is_size or not all(0 < each <= EXTENT_LIMIT for each in size)
            if len(sources) != 1 or wrong or arguments:
                raise self._wrong(f"{where}: AdaptivePool of {len(sources)} sources, {mode!r:.100}, {size!r:.100}.")
            graph.adaptive_pool(sources[0], size, mode=mode, name=name, origin=origin)
            return
        if kernel not in KERNELS:
            raise self._wrong(f'{where}: there is no kernel "{kernel:.100}".')
        # Names that are not parameters of the kernel might be parameters of Graph.add.
        strange = set(arguments) - set(signature_of(KERNELS[kernel]).parameters) | set(arguments) & {"device"}
        if strange:
            raise self._wrong(f'{where}: {kernel} has no parameter "{min(strange):.100}".')
        dtype = self._get(node, "result_dtype", str, where) if "result_dtype" in node else ""
        if dtype not in ("", "uint8"):
            raise self._wrong(f'{where}: result_dtype "{dtype:.100}".')
        graph.add(kernel, *sources, name=name, origin=origin, result_dtype=dtype, **arguments)
        training = self._get(node, "training", dict, where) if "training" in node else {}
        if training:
            momentum, statistics = training.get("momentum"), training.get("statistics", "batch")
            is_number = isinstance(momentum, (int, float, type(None))) and not isinstance(momentum, bool)
            if set(training) - {"momentum", "statistics"} or not is_number or statistics not in STATISTICS:
                raise self._wrong(f"{where}: training {training!r:.100}.")
            graph.nodes[-1] = graph.nodes[-1].with_(training=training)

    def _decoded(self, value: Any, where: str, depth: int = 0) -> Any:
        from .descriptors import NeuronDescriptor

        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, list) and depth < 4:
            return tuple(self._decoded(one, where, depth + 1) for one in value)
        if isinstance(value, dict) and set(value) == {"array"}:
            name = value["array"]
            if not isinstance(name, str) or name not in self._weights:
                raise self._wrong(f"{where}: the file has no array {name!r:.100}.")
            return self._weights[name]
        if isinstance(value, dict) and set(value) == {"neuron"}:
            neuron = value["neuron"]
            a, b, c = (self._get(neuron, letter, (int, float), where) for letter in "abc")
            data = self._decoded(neuron.get("data"), where, depth + 1)
            return NeuronDescriptor(
                self._get(neuron, "type", str, where), a, b, c, () if data is None else [float(one) for one in data]
            )
        raise self._wrong(f"{where}: {value!r:.100} is no argument.")
