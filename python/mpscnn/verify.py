# SPDX-License-Identifier: Apache-2.0
"""Comparison of a network with another program, layer by layer, to find where the results start to differ.

Layers are matched by the nodes of the source model that they come from (`Node.origin`). Where passes have merged
several nodes into one kernel, the result of the last node is compared. Without passes, the result of each node for
which the importer added a kernel is compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import _inputs
from .errors import MissingPackageError
from .graph import ADAPTIVE_POOL, CONCATENATE, INTERPOLATE, METAL_FUNCTION, Graph, Node, Value
from .kernels import KERNELS
from .network import Network

if TYPE_CHECKING:
    from .device import Device
    from .metal import MetalFunction

__all__ = ["AGAINST", "Row", "Verification", "verify"]

AGAINST = ("onnxruntime", "reference", "torch", "kernels")

# Max difference over the max magnitude: float32 through some fifty layers, float16, bfloat16 products.
_TOLERANCE = 1e-4
_HALF_TOLERANCE = 2e-2
_REDUCED_TOLERANCE = 1e-1


@dataclass(frozen=True)
class Row:
    """Comparison of one layer, or of one output of the network.

    Attributes
    ----------
    name, origin, kernel : str
        Those of the layer; an output has only a name.
    reference : str
        Name in the other program.
    shape : tuple of int
        Shape in the other program.
    difference : float
        Max absolute difference.
    magnitude : float
        Max absolute value in the other program.
    relative : float
        `difference` over `magnitude`.
    differs : bool
        Whether `relative` exceeds the tolerance, or only one side has NaN or infinity somewhere.
    """

    name: str
    origin: str
    kernel: str
    reference: str
    shape: tuple[int, ...]
    difference: float
    magnitude: float
    relative: float
    differs: bool


@dataclass(frozen=True)
class Verification:
    """Result of `verify`.

    Attributes
    ----------
    against : str
        The other program and its version.
    tolerance : float
    rows : list of Row
        Layers in execution order, then outputs.
    unmatched : list of str
        Layers without a separate counterpart.
    """

    against: str
    tolerance: float
    rows: list[Row]
    unmatched: list[str] = field(default_factory=list)

    @property
    def first(self) -> Row | None:
        """The first layer that differs."""
        return next((row for row in self.rows if row.differs), None)

    @property
    def agrees(self) -> bool:
        """Whether at least one result was compared and none differs."""
        return bool(self.rows) and self.first is None

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for `json.dumps`."""
        first = self.first
        return {**asdict(self), "agrees": self.agrees, "first": None if first is None else asdict(first)}


def verify(
    network: Network,
    against: str,
    arrays: Mapping[str, NDArray[Any]],
    *,
    model: Any = None,
    tolerance: float | None = None,
) -> Verification:
    """Compare each layer of a network with another program on the same arrays, and return a `Verification`.

    Parameters
    ----------
    network : Network
        With ``optimize=False`` all nodes can be compared, otherwise only those that remain after the passes.
    against : str
        "onnxruntime", or "reference", the NumPy evaluator of the package onnx: `model` is an ONNX file. "torch":
        `model` is a torch.nn.Module. "kernels": the network's kernels called one by one, without `model`.
    arrays : dict of arrays by name
        The inputs, in the layouts of the network's inputs. Of a model's integer inputs they are rounded to its type.
    tolerance : float, optional
        Max difference over the max magnitude of a layer's result; default 1e-4 for float32, 2e-2 for float16, 1e-1
        where products may be bfloat16.

    Raises
    ------
    ValueError
        `against` is none of these.
    MissingPackageError
        The other program is not installed.
    """
    if against not in AGAINST:
        raise ValueError(f'against ("{against}") is not one of {", ".join(AGAINST)}.')
    if tolerance is None:
        tolerance = _TOLERANCE if network.dtype == "float32" else _HALF_TOLERANCE
        if network._options["allow_reduced_precision"]:
            tolerance = _REDUCED_TOLERANCE
    arrays = {
        name: _inputs.rounded(array, network.inputs[name]) if name in network.inputs else array
        for name, array in arrays.items()
    }
    images, outputs = _ours(network, arrays)
    reference = {
        "onnxruntime": _onnxruntime,
        "reference": _onnx_reference,
        "torch": _torch,
        "kernels": _kernels,
    }[against](network, arrays, model)
    rows, unmatched = [], []
    for node in network.graph.nodes:
        found = reference.layers.get(node.name)
        if found is None:
            unmatched.append(node.name)
            continue
        name, theirs = found
        moved = images[node.name] if reference.has_images else _as_array(images[node.name], theirs)
        if moved is None:
            unmatched.append(node.name)
        else:
            rows.append(_row(node.name, node.origin, node.kernel, name, moved, theirs, tolerance))
    for number, (name, ours) in enumerate(outputs.items()):
        expected = reference.outputs.get(name)
        if expected is None and number < len(reference.outputs):
            expected = list(reference.outputs.values())[number]
        if expected is not None and expected.size == ours.size:
            rows.append(_row(name, "", "", f"output {name}", ours.reshape(expected.shape), expected, tolerance))
        else:
            unmatched.append(f"output {name}")
    return Verification(reference.program, tolerance, rows, unmatched)


def _row(
    name: str, origin: str, kernel: str, reference: str, ours: NDArray[Any], theirs: NDArray[Any], tolerance: float
) -> Row:
    a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    with np.errstate(invalid="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))  # equal infinities included
        difference = float(np.where(same, 0.0, np.abs(a - b)).max(initial=0.0))
    magnitude = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    relative = difference / magnitude if magnitude > 0 else difference
    differs = not relative <= tolerance
    return Row(name, origin, kernel, reference, tuple(theirs.shape), difference, magnitude, relative, differs)


def _ours(
    network: Network, arrays: Mapping[str, NDArray[Any]]
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """Return the result of each node, (N, H, W, C), and the outputs."""
    graph = network.graph.copy()
    names = {}
    for node in graph.nodes:
        name = f"layer {node.name}"
        while name in graph.outputs:
            name += "'"
        graph.output(Value(node.name), name, layout="NHWC")
        names[name] = node.name
    every = Network(
        graph,
        dtype=network.dtype,
        allow_reduced_precision=bool(network._options["allow_reduced_precision"]),
        optimize=False,
        device=network.device,
    )
    results = every(**arrays)
    found = dict(zip(every.outputs, results if isinstance(results, tuple) else (results,), strict=True))
    outputs = {name: result for name, result in found.items() if name not in names}
    return {node: found[name] for name, node in names.items()}, outputs


def _as_array(image: NDArray[Any], theirs: NDArray[Any]) -> NDArray[Any] | None:
    """Return an image (N, H, W, C) in the shape of the other program's tensor; None if no order of axes fits.

    If several orders fit, as in a tensor whose axes have equal extents, the nearest one is returned; of equals the
    first, (N, C, H, W). That is also the order of flattened tensors.
    """
    shape = theirs.shape
    if math.prod(shape) != image.size:
        return None
    extents = [extent for extent in shape if extent != 1]
    found: list[NDArray[Any]] = []
    for order in ((0, 3, 1, 2), (0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 2, 1), (0, 1, 3, 2), (0, 2, 3, 1)):
        moved: NDArray[Any] = image.transpose(order)
        if [extent for extent in moved.shape if extent != 1] == extents:
            found.append(np.reshape(moved, shape))
    if not found:
        return np.reshape(image.transpose(0, 3, 1, 2), shape)
    return found[0] if len(found) == 1 else min(found, key=lambda one: _row("", "", "", "", one, theirs, 0).difference)


# ---- others


@dataclass(frozen=True)
class _Reference:
    """Results of another program: layers by our names, with that program's names, and outputs.

    `has_images`: results of layers are (N, H, W, C), like ours; otherwise the order of axes is inferred from shapes.
    """

    program: str
    layers: dict[str, tuple[str, NDArray[Any]]]
    outputs: dict[str, NDArray[Any]]
    has_images: bool = False


def _last_of(nodes: Iterable[Node], keys: Mapping[str, Any]) -> dict[str, str]:
    """Return, for each key, the last layer whose origin ends with that node of the source model.

    Origins are "a (Conv), b (Relu)" where passes merged two nodes.
    """
    found: dict[str, str] = {}
    for node in nodes:
        if node.origin in keys:
            found[node.origin] = node.name
            continue
        # The longest match: names may contain commas.
        parts = node.origin.split(", ")
        for first in range(1, len(parts)):
            key = ", ".join(parts[first:])
            if key in keys:
                found[key] = node.name
                break
    return found


def _onnx_model(model: Any) -> Any:
    try:
        import onnx
    except ModuleNotFoundError:
        raise MissingPackageError("looking into an ONNX model", "onnx") from None
    if hasattr(model, "graph"):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        return copy
    return onnx.load(model)


def _onnx_layers(network: Network, proto: Any) -> tuple[list[str], dict[str, str]]:
    """Return the values of the model that layers can be compared with, and the layer of each."""
    keys = {}
    for number, node in enumerate(proto.graph.node):
        outputs = [name for name in node.output if name]
        if len(outputs) == 1:
            keys[f"{node.name or f'{node.op_type}_{number}'} ({node.op_type})"] = outputs[0]
    layers = _last_of(network.graph.nodes, keys)
    return [keys[key] for key in layers], {keys[key]: layer for key, layer in layers.items()}


def _onnx_results(
    network: Network,
    arrays: Mapping[str, NDArray[Any]],
    model: Any,
    program: str,
    run: Callable[[Any, list[str], dict[str, NDArray[Any]]], list[Any]],
) -> _Reference:
    from onnx import helper

    proto = _onnx_model(model)
    values, layers = _onnx_layers(network, proto)
    outputs = [output.name for output in proto.graph.output]
    made = {name for node in proto.graph.node for name in node.output}
    if set(network.outputs) <= made and not set(network.outputs) <= set(outputs):
        outputs = list(network.outputs)  # a part of the model was loaded
        del proto.graph.output[:]
        proto.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in outputs)
    wanted = [*outputs, *(name for name in dict.fromkeys(values) if name not in outputs)]
    for name in wanted[len(outputs) :]:
        proto.graph.output.append(helper.make_empty_tensor_value_info(name))
    feed = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    found = dict(zip(wanted, map(np.asarray, run(proto, wanted, feed)), strict=True))
    return _Reference(
        program,
        {layers[name]: (name, found[name]) for name in values},
        {name: found[name] for name in outputs},
    )


def _onnxruntime(network: Network, arrays: Mapping[str, NDArray[Any]], model: Any) -> _Reference:
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise MissingPackageError("verifying against onnxruntime", "onnxruntime") from None

    def run(proto: Any, wanted: list[str], feed: dict[str, NDArray[Any]]) -> list[Any]:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        # Without fusion, so that all intermediate values exist.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return list(session.run(wanted, feed))

    return _onnx_results(network, arrays, model, f"onnxruntime {onnxruntime.__version__}", run)


def _onnx_reference(network: Network, arrays: Mapping[str, NDArray[Any]], model: Any) -> _Reference:
    def run(proto: Any, wanted: list[str], feed: dict[str, NDArray[Any]]) -> list[Any]:
        from onnx.reference import ReferenceEvaluator

        return list(ReferenceEvaluator(proto).run(wanted, feed))

    proto = _onnx_model(model)
    import onnx

    return _onnx_results(network, arrays, proto, f"onnx {onnx.__version__}, reference evaluator", run)


def _torch(network: Network, arrays: Mapping[str, NDArray[Any]], model: Any) -> _Reference:
    try:
        import torch
    except ModuleNotFoundError:
        raise MissingPackageError("verifying against torch", "torch") from None
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model ({type(model).__name__}) is not a torch.nn.Module.")
    calls: dict[str, list[NDArray[Any]]] = {}

    def keep(path: str) -> Callable[..., None]:
        def hook(module: Any, sources: Any, result: Any) -> None:
            if isinstance(result, torch.Tensor):  # copied: later modules may write in place
                calls.setdefault(path, []).append(result.detach().to(torch.float32).numpy().copy())

        return hook

    # Leaf modules only: the name of a container may refer to any of the operators inside of it.
    leaves = [(path, part) for path, part in model.named_modules() if path and not any(part.children())]
    handles = [part.register_forward_hook(keep(path)) for path, part in leaves]
    modes = [(part, part.training) for part in model.modules()]
    try:
        model.eval()
        with torch.inference_mode():
            results = model(*(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays.values()))
    finally:
        for handle in handles:
            handle.remove()
        for part, training in modes:
            part.training = training
    if isinstance(results, Mapping):
        outputs = {str(name): result.numpy() for name, result in results.items()}
    else:
        several = results if isinstance(results, (tuple, list)) else (results,)
        outputs = {f"output_{number}": result.numpy() for number, result in enumerate(several)}

    layers: dict[str, tuple[str, NDArray[Any]]] = {}
    by_path: dict[str, list[str]] = {}
    for node in network.graph.nodes:
        path = node.origin.split(", ")[-1].rpartition(" (")[0]
        if path in calls:
            by_path.setdefault(path, []).append(node.name)
    for path, names in by_path.items():
        # A module may be called several times, and a call may take several kernels: compare the last kernel of each.
        every, left = divmod(len(names), len(calls[path]))
        if not left:
            layers.update((names[(call + 1) * every - 1], (path, array)) for call, array in enumerate(calls[path]))
    return _Reference(f"torch {torch.__version__}", layers, outputs)


def _kernels(network: Network, arrays: Mapping[str, NDArray[Any]], model: Any) -> _Reference:
    """Run the kernels of the network's graph one by one, with arrays in between."""
    graph: Graph = network.graph
    values: dict[str, NDArray[Any]] = {}
    for name, spec in network.inputs.items():
        missing = [letter for letter in "NHWC" if letter not in spec.layout]
        array = _inputs.as_floats(arrays[name], spec) if spec.dtype else np.asarray(arrays[name])
        array = array.reshape(array.shape + (1,) * len(missing))
        order = spec.layout + "".join(missing)
        values[name] = np.ascontiguousarray(array.transpose([order.index(letter) for letter in "NHWC"]))
    by_name = {node.name: node for node in graph.nodes}
    for node in graph.nodes:
        sources = [values[name] for name in node.sources]
        if node.kernel == CONCATENATE:
            values[node.name] = np.concatenate(sources, axis=3)
        elif node.kernel == INTERPOLATE:
            values[node.name] = _interpolated(sources[0], sources[1], network.device, **node.arguments)
        elif node.kernel == ADAPTIVE_POOL:
            values[node.name] = _pooled(sources[0], network.device, **node.arguments)
        elif node.kernel == METAL_FUNCTION:
            values[node.name] = _run_function(sources, **node.arguments)
        else:
            kernel = KERNELS[node.kernel](**node.arguments, device=network.device)
            numbers = any(by_name[name].result_dtype for name in node.sources if name in by_name)
            values[node.name] = kernel(*sources, dtype=node.result_dtype or ("float32" if numbers else None))
    outputs = {}
    for name, output in network.outputs.items():
        order = output.layout + "".join(letter for letter in "NHWC" if letter not in output.layout)
        array = values[output.source].transpose(["NHWC".index(letter) for letter in order])
        array = array.reshape(array.shape[: len(output.layout)])
        outputs[name] = array if output.shape is None else array.reshape(len(array), *output.shape)
    layers = {node.name: (node.kernel, values[node.name]) for node in graph.nodes}
    return _Reference("one kernel after another", layers, outputs, has_images=True)


def _interpolated(
    source: NDArray[Any], like: NDArray[Any], device: Device, mode: str, align_corners: bool
) -> NDArray[Any]:
    """Resize an image to the size of another by a network of this node alone."""
    graph = Graph()
    x, other = graph.input("x"), graph.input("like")
    graph.output(graph.interpolate(x, other, mode=mode, align_corners=align_corners), "y")
    result: NDArray[Any] = Network(graph, device=device)(x=source, like=like)
    return result


def _pooled(source: NDArray[Any], device: Device, output_size: tuple[int, int], mode: str) -> NDArray[Any]:
    """Pool areas of an image by a network of this node alone."""
    graph = Graph()
    graph.output(graph.adaptive_pool(graph.input("x"), output_size, mode=mode), "y")
    result: NDArray[Any] = Network(graph, device=device)(source)
    return result


def _run_function(
    sources: list[NDArray[Any]],
    function: MetalFunction,
    values: Mapping[str, Any],
    out_shape: Any = None,
    grid: Any = None,
    threadgroup: Any = None,
) -> NDArray[Any]:
    """Call a Metal function for each image, as a network does."""
    results = []
    for i in range(len(sources[0])):
        images = [source[i : i + 1] for source in sources]
        shape = images[0].shape if out_shape is None else out_shape(*(image.shape for image in images))
        threads = None if grid is None else grid(shape)
        named = {**dict(zip(function._sources, images, strict=True)), **values}
        results.append(function(**named, out_shape=shape, grid=threads, threadgroup=threadgroup))
    return np.concatenate(results)
