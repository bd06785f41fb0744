# SPDX-License-Identifier: Apache-2.0
"""Networks as graphs of MPS's nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import nodes
from .graph import ADAPTIVE_POOL, CONCATENATE, INTERPOLATE, Node
from .importing.builder import Builder
from .importing.ops import pooling, resize
from .kernels import KERNELS, row_of
from .layers import InputShapes, Shape, default_shapes, image_shapes, loaded_shapes
from .mps_graph import MPSNNGraph
from .network import Network

# Extent of free heights and widths, with which sources that broadcast are found.
_ANY_EXTENT = 64

_Build = Callable[[Node, list[Any], list[Shape], dict[str, Any]], Any]


def node_graph(network: Network, input_shapes: InputShapes = None) -> MPSNNGraph:
    """Return the network as an MPSNNGraph; see `Network.to_mps_graph`."""
    is_known = input_shapes is not None or default_shapes(network) is not None or _were_given(network)
    shapes = _shapes(network, input_shapes, is_known)
    made: dict[str, Any] = {name: nodes.ImageNode(name) for name in network.graph.inputs}
    for node in network.graph.nodes:
        sources = [made[name] for name in node.sources]
        try:
            of_sources = [shapes[name] for name in node.sources]
            make = _sized if node.kernel in (INTERPOLATE, ADAPTIVE_POOL) else _node
            if make is _sized and not is_known:
                raise NotImplementedError(f"the kernels of {node.kernel} depend on its sizes: give input_shapes.")
            made[node.name] = make(node, sources, of_sources)
        except NotImplementedError as error:
            raise NotImplementedError(f'to_mps_graph: node "{node.name}": {error}') from None
        if not isinstance(made[node.name], nodes.ImageNode):
            made[node.name].label = node.name
    outputs = [made[output.source] for output in network.graph.outputs.values()]
    for output in outputs:
        if isinstance(output, nodes.ImageNode):
            raise NotImplementedError("to_mps_graph: an output of the network is one of its inputs.")
    graph = MPSNNGraph(*outputs, format=network.dtype, device=network.device)
    graph._specs = {name: spec for name, spec in network.inputs.items() if spec.sizes}
    graph.allow_reduced_precision = bool(network._options["allow_reduced_precision"])
    return graph


def _were_given(network: Network) -> bool:
    """Return whether the shapes of all inputs were given to `load`, or by the source model."""
    return set(loaded_shapes(network)) == set(network.inputs)


def _shapes(network: Network, input_shapes: InputShapes, is_known: bool) -> dict[str, Shape]:
    """Return (N, H, W, C) of all values."""
    if not is_known:
        images = [
            (1, spec.height or _ANY_EXTENT, spec.width or _ANY_EXTENT, spec.channels or 4)
            for spec in network.graph.inputs.values()
        ]
    else:
        images = image_shapes(network, input_shapes)
    names = [*network.graph.inputs, *(node.name for node in network.graph.nodes)]
    return dict(zip(names, network._core.shapes(images), strict=True))


def _node(node: Node, sources: list[Any], shapes: list[Shape]) -> Any:
    if node.kernel == CONCATENATE:
        return _concatenated(sources, shapes)
    if node.kernel not in _BUILDERS:
        raise NotImplementedError(f"MPSNNGraph has no node of the kernel {node.kernel}.")
    if node.result_dtype:
        raise NotImplementedError(f"a node of {node.kernel} has no result_dtype ({node.result_dtype}).")
    names, build = _BUILDERS[node.kernel]
    defaults = {spec["name"]: spec["default"] for spec in row_of(KERNELS[node.kernel])["params"]}
    arguments = dict(node.arguments)
    for name, value in node.arguments.items():
        if name in names:
            continue
        if name != "label" and value is not None and repr(value) != defaults.get(name):
            raise NotImplementedError(f"a node of {node.kernel} has no {name} ({value!r}).")
        del arguments[name]
    return build(node, sources, shapes, arguments)


def _sized(node: Node, sources: list[Any], shapes: list[Shape]) -> Any:
    """Return the nodes of a resize or an adaptive pooling for the sizes of its sources."""
    _, height, width, channels = shapes[0]
    builder = Builder()
    x = builder.input("x", (channels, height, width))
    builder.fix()
    if node.kernel == INTERPOLATE:
        align = node.arguments["align_corners"] if node.arguments["mode"] == "bilinear" else None
        result = resize.interpolate(builder, x, shapes[1][1:3], None, node.arguments["mode"], align)
    else:
        pool = pooling.adaptive_max_pool2d if node.arguments["mode"] == "max" else pooling.adaptive_avg_pool2d
        result = pool(builder, x, node.arguments["output_size"])
    builder.graph.output(result.value, "y")
    own_shapes = _shapes(Network(builder.graph), None, True)
    made = {"x": sources[0]}
    for each in builder.graph.nodes:
        if each.kernel == "MetalFunction":
            raise NotImplementedError(f"MPSNNGraph has no node of {node.kernel} at these sizes.")
        made[each.name] = _node(
            each, [made[name] for name in each.sources], [own_shapes[name] for name in each.sources]
        )
    return made[result.value.name]


def _concatenated(sources: list[Any], shapes: list[Shape]) -> Any:
    for shape in shapes:
        if shape[3] % 4:
            raise NotImplementedError(
                f"the channels of a concatenated image ({shape[3]}) are no multiple of 4; MPSNNConcatenationNode leaves"
                " a gap behind them."
            )
    return nodes.ConcatenationNode(sources)


def _plain(kind: Callable[..., Any]) -> _Build:
    return lambda node, sources, shapes, arguments: kind(*sources, **arguments)


def _arithmetic(kind: Callable[..., Any]) -> _Build:
    def build(node: Node, sources: list[Any], shapes: list[Shape], arguments: dict[str, Any]) -> Any:
        made = kind(*sources)
        for name, value in arguments.items():
            if value is not None:
                setattr(made, "comparison_type" if name == "comparison" else name, value)
        for own, other, prefix in ((0, 1, "primary"), (1, 0, "secondary")):
            for axis, name in ((1, "pixels_y"), (2, "pixels_x"), (3, "feature_channels")):
                if shapes[own][axis] == 1 < shapes[other][axis]:
                    setattr(made, f"{prefix}_stride_in_{name}", 0)
        return made

    return build


def _batch_normalization(node: Node, sources: list[Any], shapes: list[Shape], arguments: dict[str, Any]) -> Any:
    activation = arguments.pop("activation", None)
    made = nodes.BatchNormalizationNode(*sources, **arguments)
    made.flags = "never"
    return made if activation is None else nodes.NeuronNode(made, activation)


def _neuron(node: Node, sources: list[Any], shapes: list[Shape], arguments: dict[str, Any]) -> Any:
    return nodes.NeuronNode(sources[0], KERNELS[node.kernel](**arguments))


def _with_properties(kind: Callable[..., Any]) -> _Build:
    def build(node: Node, sources: list[Any], shapes: list[Shape], arguments: dict[str, Any]) -> Any:
        size = arguments.pop("kernel_size", 5)
        specs = row_of(KERNELS[node.kernel])["params"]
        defaults = {spec["name"]: float(spec["default"]) for spec in specs if spec["name"] != "kernel_size"}
        made = kind(sources[0], size if isinstance(size, int) else size[0])
        for name, value in (defaults | arguments).items():
            setattr(made, name, value)
        return made

    return build


def _pad(node: Node, sources: list[Any], shapes: list[Shape], arguments: dict[str, Any]) -> Any:
    padding = arguments.get("padding", 0)
    pairs = [padding] * 2 if isinstance(padding, int) else list(padding)
    (top, bottom), (left, right) = [(one, one) if isinstance(one, int) else one for one in pairs]
    value = arguments.get("value")
    return nodes.PadNode(
        sources[0],
        (top, left, arguments.get("channels_before", 0)),
        (bottom, right, arguments.get("channels_after", 0)),
        edge_mode=arguments.get("edge_mode", "constant"),
        fill_value=0.0 if value is None else value,
    )


def _reshape(node: Node, sources: list[Any], shapes: list[Shape], arguments: dict[str, Any]) -> Any:
    return nodes.ReshapeNode(sources[0], arguments["shape"])


def _pooling(kind: Callable[..., Any]) -> _Build:
    def build(node: Node, sources: list[Any], shapes: list[Shape], arguments: dict[str, Any]) -> Any:
        return kind(*sources, **({"padding": 0} | arguments))

    return build


_CONVOLUTION = ("weight", "bias", "layout", "stride", "padding", "dilation", "groups", "activation", "kernel_dtype")
_QUANTIZED = ("sub_pixel_scale_factor", "ranges", "lookup_table")
_POOLING = ("kernel_size", "stride", "padding", "ceil_mode")
_ARITHMETIC = ("primary_scale", "secondary_scale", "bias", "minimum_value", "maximum_value")
_LOCAL = ("kernel_size", "alpha", "beta", "delta")

# The arguments that a node has, by the kernel's name.
_BUILDERS: Mapping[str, tuple[tuple[str, ...], _Build]] = {
    "Convolution": (_CONVOLUTION + _QUANTIZED, _pooling(nodes.ConvolutionNode)),
    "ConvolutionTranspose": (
        ("weight", "bias", "layout", "stride", "padding", "output_padding", "groups", "activation"),
        _pooling(nodes.ConvolutionTransposeNode),
    ),
    "FullyConnected": (("weight", "bias", "layout", "feature_map", "activation"), _plain(nodes.FullyConnectedNode)),
    "PoolingMax": (_POOLING, _pooling(nodes.PoolingMaxNode)),
    "PoolingAverage": ((*_POOLING, "count_include_pad"), _pooling(nodes.PoolingAverageNode)),
    "PoolingL2Norm": (_POOLING, _pooling(nodes.PoolingL2NormNode)),
    "DilatedPoolingMax": ((*_POOLING, "dilation"), _pooling(nodes.DilatedPoolingMaxNode)),
    "BatchNormalization": (
        ("gamma", "beta", "mean", "variance", "epsilon", "activation"),
        _batch_normalization,
    ),
    "InstanceNormalization": (("gamma", "beta", "epsilon"), _plain(nodes.InstanceNormalizationNode)),
    "GroupNormalization": (("gamma", "beta", "groups", "epsilon"), _plain(nodes.GroupNormalizationNode)),
    "SpatialNormalization": (_LOCAL, _with_properties(nodes.SpatialNormalizationNode)),
    "LocalContrastNormalization": (
        (*_LOCAL, "p0", "pm", "ps"),
        _with_properties(nodes.LocalContrastNormalizationNode),
    ),
    "CrossChannelNormalization": (_LOCAL, _with_properties(nodes.CrossChannelNormalizationNode)),
    "SoftMax": ((), _plain(nodes.SoftMaxNode)),
    "LogSoftMax": ((), _plain(nodes.LogSoftMaxNode)),
    "UpsamplingNearest": (("scale_factor",), _plain(nodes.UpsamplingNearestNode)),
    "UpsamplingBilinear": (("scale_factor", "align_corners"), _plain(nodes.UpsamplingBilinearNode)),
    "Pad": (("padding", "channels_before", "channels_after", "value", "edge_mode"), _pad),
    "Reshape": (("shape",), _reshape),
    "Add": (_ARITHMETIC, _arithmetic(nodes.AdditionNode)),
    "Subtract": (_ARITHMETIC, _arithmetic(nodes.SubtractionNode)),
    "Multiply": (_ARITHMETIC, _arithmetic(nodes.MultiplicationNode)),
    "Divide": (_ARITHMETIC, _arithmetic(nodes.DivisionNode)),
    "Compare": (("comparison",), _arithmetic(nodes.ComparisonNode)),
    "ReduceFeatureChannelsSum": (
        ("weight", "clip_rect_source"),
        lambda node, sources, shapes, arguments: _reduction(nodes.ReductionFeatureChannelsSumNode, sources, arguments),
    ),
    **{
        f"Reduce{axis}{what}": (
            ("clip_rect_source",),
            lambda node, sources, shapes, arguments: _reduction(
                getattr(nodes, "Reduction" + node.kernel.removeprefix("Reduce") + "Node"), sources, arguments
            ),
        )
        for axis in ("Row", "Column", "FeatureChannels")
        for what in ("Min", "Max", "Mean", "Sum", "ArgumentMin", "ArgumentMax")
        if f"Reduction{axis}{what}Node" in vars(nodes) and f"{axis}{what}" != "FeatureChannelsSum"
    },
    **{
        name: (tuple(spec["name"] for spec in row_of(kind)["params"]), _neuron)
        for name, kind in KERNELS.items()
        if row_of(kind)["family"] == "neuron"
    },
}


def _reduction(kind: Callable[..., Any], sources: list[Any], arguments: dict[str, Any]) -> Any:
    made = kind(*sources)
    for name, value in arguments.items():
        if value is not None:
            setattr(made, name, value)
    return made
