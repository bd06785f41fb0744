# SPDX-License-Identifier: Apache-2.0
"""Tables of a network's layers (kernels, shapes, parameters, operations, bytes) and of its images in memory.

Operations are counted for the whole batch, by these conventions:

* A multiply-add is two floating-point operations. Kernels with weights count each weight once per window position,
  taps over padding included; biases and fused activations are not counted.
* Pooling counts one operation per tap; spatial and cross-channel normalization one multiply-add per tap, local
  contrast normalization two.
* Batch normalization is one multiply-add per value; instance and group normalization count 6 operations: mean 1,
  variance 3, scale and shift 2. SoftMax and LogSoftMax count 5: max, difference, exponential, sum, quotient.
* A bilinear sample is four multiply-adds. Arithmetic and activations count one operation per result, reductions one
  per value read, two if weighted.
* Operators that only move values are not counted, nor are Metal functions, whose operations are not known.

Parameters are the trainable values: weights, biases, gamma, beta and slopes, not the statistics of batch normalization.
Bytes are height times width times channels times the item size, without padding that a device may add.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ._html import table as html_table
from ._inputs import image_shape
from .graph import ADAPTIVE_POOL, CONCATENATE, INTERPOLATE, METAL_FUNCTION, Graph, Node
from .kernels import KERNELS, row_of
from .network import Network

Shape = tuple[int, int, int, int]
InputShapes = Mapping[str, Sequence[int]] | Sequence[int] | None

_WEIGHT_LAYOUT = "OHWI"  # of every kernel with weights
_ITEM_SIZES = {"float32": 4, "float16": 2, "uint8": 1}
# Arguments that hold parameters, for all kernels.
_PARAMETERS = ("weight", "bias", "gamma", "beta")
# Families of nodes that are not kernels.
_WITHOUT_CLASS = {
    CONCATENATE: "concatenation",
    INTERPOLATE: "resize",
    ADAPTIVE_POOL: "pooling",
    METAL_FUNCTION: "function",
}


@dataclass(frozen=True)
class Layer:
    """One kernel of a network.

    Attributes
    ----------
    name : str
    origin : str
        Nodes of the source model that it comes from.
    kernel, family, apple_class : str
        A concatenation has no Apple class, because the kernels before it write into one image; neither has a Metal
        function, whose name is the detail.
    detail : str
        Window, stride and so on, height before width: "3x3, stride 2, groups 32".
    activation : str
        Activation that the kernel applies to its result; empty: none.
    weight_layout : str
        Order of the axes of the weights, as given and as the kernel reads them: "OIHW -> OHWI".
    sources : tuple of str
        Names of inputs and layers.
    input_shapes : tuple of (N, H, W, C)
    output_shape : (N, H, W, C)
    parameters : int
    multiply_adds : int
        0 for kernels without weights.
    flops : int
    result_bytes : int
    """

    name: str
    origin: str
    kernel: str
    family: str
    apple_class: str
    detail: str
    activation: str
    weight_layout: str
    sources: tuple[str, ...]
    input_shapes: tuple[Shape, ...]
    output_shape: Shape
    parameters: int
    multiply_adds: int
    flops: int
    result_bytes: int


class LayerTable(list[Layer]):
    """The layers of a network in execution order; `print` shows them as a table."""

    @property
    def parameters(self) -> int:
        """Sum over all layers."""
        return sum(layer.parameters for layer in self)

    @property
    def multiply_adds(self) -> int:
        """Sum over all layers."""
        return sum(layer.multiply_adds for layer in self)

    @property
    def flops(self) -> int:
        """Sum over all layers."""
        return sum(layer.flops for layer in self)

    @property
    def result_bytes(self) -> int:
        """Sum over all layers: the memory needed if no image were reused."""
        return sum(layer.result_bytes for layer in self)

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for `json.dumps`: a list of layers, and totals."""
        return {
            "layers": [asdict(layer) for layer in self],
            "totals": {name: getattr(self, name) for name in ("parameters", "multiply_adds", "flops", "result_bytes")},
        }

    def rows(self) -> tuple[tuple[str, ...], list[tuple[str, ...]], tuple[str, ...]]:
        """Return the header, a row for each layer, and the totals, as text."""
        header = ("layer", "kernel", "", "Apple's class", "weights", "from", "to", "parameters", "MFLOP", "KiB")
        rows: list[tuple[str, ...]] = [
            (
                layer.name,
                layer.kernel + (f" + {layer.activation}" if layer.activation else ""),
                layer.detail,
                layer.apple_class or "-",
                layer.weight_layout or "-",
                ", ".join(map(shape_text, layer.input_shapes)),
                shape_text(layer.output_shape),
                f"{layer.parameters:,}" if layer.parameters else "-",
                f"{layer.flops / 1e6:,.2f}",
                f"{layer.result_bytes / 1024:,.1f}",
            )
            for layer in self
        ]
        totals: tuple[str, ...] = ("total", f"{len(self)} kernels", "", "", "", "", "", f"{self.parameters:,}")
        return header, rows, (*totals, f"{self.flops / 1e6:,.2f}", f"{self.result_bytes / 1024:,.1f}")

    def __str__(self) -> str:
        header, rows, totals = self.rows()
        return aligned(header, rows, totals, right=3)

    def _repr_html_(self) -> str:
        return html_table(*self.rows(), right=3)


def layer_table(model: Graph | Network, input_shapes: InputShapes = None) -> LayerTable:
    """Return the layers of a network, or of a graph without any folding: one kernel per node.

    Parameters
    ----------
    model : Graph or Network
    input_shapes : dict of shapes by name, or the shape of the only input, optional
        In the input's layout, N first. Default: the shapes that the network was loaded with; for other networks a batch
        of 1, and an error if a height or width is free.

    Raises
    ------
    ValueError
        'input "x": height and width are free: give its shape (NHWC).', or a shape that a kernel rejects.
    TypeError
        `model` is neither a Graph nor a Network.
    """
    network = network_of(model)
    images = image_shapes(network, input_shapes)
    network = network._that_takes(images)
    shapes = dict(zip(_value_names(network), network._core.shapes(images), strict=True))
    table = LayerTable()
    for node in network.graph.nodes:
        sources = tuple(shapes[name] for name in node.sources)
        result = shapes[node.name]
        multiply_adds = _multiply_adds(node, sources, result)
        kind = KERNELS.get(node.kernel)
        layout = _layout(node)
        table.append(
            Layer(
                name=node.name,
                origin=node.origin,
                kernel=node.kernel,
                family=row_of(kind)["family"] if kind else _WITHOUT_CLASS[node.kernel],
                apple_class=kind.apple_class if kind else "",
                detail=_detail(node),
                activation=_activation(node),
                weight_layout=layout if layout in ("", _WEIGHT_LAYOUT) else f"{layout} -> {_WEIGHT_LAYOUT}",
                sources=node.sources,
                input_shapes=sources,
                output_shape=result,
                parameters=_parameters(node),
                multiply_adds=multiply_adds,
                flops=2 * multiply_adds or _operations(node, sources, result),
                result_bytes=math.prod(result) * _ITEM_SIZES[node.result_dtype or network.dtype],
            )
        )
    return table


def network_of(model: Graph | Network) -> Network:
    """Return a network that runs the nodes of the graph one by one, or the network itself."""
    if isinstance(model, Network):
        return model
    if not isinstance(model, Graph):
        raise TypeError(f"model ({type(model).__name__}) is not a Graph or a Network.")
    return Network(model, optimize=False)


def image_shapes(network: Network, input_shapes: InputShapes = None) -> list[Shape]:
    """Return (N, H, W, C) of each input, from shapes in the layouts of the inputs."""
    inputs = network.inputs
    if input_shapes is None:
        input_shapes = {}
    if not isinstance(input_shapes, Mapping):
        if len(inputs) != 1:
            raise TypeError(f"input_shapes is no dict, and there are {len(inputs)} inputs ({', '.join(inputs)}).")
        input_shapes = dict.fromkeys(inputs, input_shapes)
    for name in input_shapes:
        if name not in inputs:
            raise ValueError(f'there is no input "{name}"; there are {", ".join(inputs)}.')
    return [
        network._loaded_shapes[name]
        if name not in input_shapes and name in network._loaded_shapes
        else image_shape(spec, input_shapes.get(name), is_checked=network._others is None)
        for name, spec in inputs.items()
    ]


def default_shapes(network: Network, *, batch: int = 1) -> dict[str, tuple[int, ...]] | None:
    """Return shapes of arrays for the inputs; None if a height, width or number of channels is free."""
    found = {}
    for name, spec in network.inputs.items():
        extents = {"N": batch, "H": spec.height, "W": spec.width, "C": spec.channels}
        sizes = [extents[letter] for letter in spec.layout]
        if any(size is None for size in sizes):
            return None
        found[name] = tuple(int(size or 1) for size in sizes)
    return found


def loaded_shapes(network: Network) -> dict[str, tuple[int, ...]]:
    """Return shapes of arrays for the inputs whose shape was given by the source model or to `load`."""
    return {
        name: tuple(shape["NHWC".index(letter)] for letter in network.inputs[name].layout)
        for name, shape in network._loaded_shapes.items()
    }


def output_shapes(network: Network, input_shapes: InputShapes = None) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the arrays that the network returns for inputs of these shapes."""
    images = image_shapes(network, input_shapes)
    network = network._that_takes(images)
    shapes = dict(zip(_value_names(network), network._core.shapes(images), strict=True))
    found = {}
    for name, output in network.outputs.items():
        image = shapes[output.source]
        extents = tuple(image["NHWC".index(letter)] for letter in output.layout)
        found[name] = extents if output.shape is None else (image[0], *output.shape)
    return found


def _value_names(network: Network) -> list[str]:
    return [*network.graph.inputs, *(node.name for node in network.graph.nodes)]


# ---- properties of a node


def _size(array: Any) -> int:
    """Return the number of values of an array of any kind."""
    shape = getattr(array, "shape", None)
    return math.prod(shape) if shape is not None else int(np.size(array))


def _is_source(weight: Any) -> bool:
    """Return whether `weight` is a data source."""
    return hasattr(weight, "load") and hasattr(weight, "purge")


def _source_sizes(source: Any) -> tuple[int, int]:
    """Return the number of weights and of biases of a data source, by its descriptor."""
    descriptor = source.descriptor() if callable(source.descriptor) else source.descriptor
    h, w = descriptor.kernel_size
    weights = h * w * descriptor.in_channels // descriptor.groups * descriptor.out_channels
    bias = source.bias() if callable(source.bias) else source.bias
    return weights, 0 if bias is None else _size(bias)


def _weights(node: Node) -> int:
    weight = node.arguments.get("weight")
    if weight is None or isinstance(weight, (int, float)):  # ReduceFeatureChannelsSum's factor is not a parameter
        return 0
    if _is_source(weight):
        return _source_sizes(weight)[0]
    if node.kernel.startswith("Binary"):  # words of 32 weights
        return _size(weight) // int(weight.shape[-1]) * int(node.arguments["in_channels"])
    return _size(weight)


def _parameters(node: Node) -> int:
    given = node.arguments
    if _is_source(given.get("weight")):
        return sum(_source_sizes(given["weight"]))
    if _is_source(given.get("gamma")):
        return 2 * int(given["gamma"].channels() if callable(given["gamma"].channels) else given["gamma"].channels)
    count = _weights(node)
    if node.kernel not in KERNELS or row_of(KERNELS[node.kernel])["family"] == "neuron":
        return _size(given["a"]) if node.kernel == "NeuronPReLU" else 0
    for name in _PARAMETERS[1:]:
        value = given.get(name)
        if value is not None and not isinstance(value, (int, float)):
            count += _size(value)
    activation = given.get("activation")
    if activation is not None and getattr(activation, "type", "") == "prelu":
        count += _size(activation.data)
    return count


def _activation(node: Node) -> str:
    given = node.arguments
    activation = given.get("activation")
    if activation is not None:
        name = str(getattr(activation, "type", activation))
        return "" if name in ("none", "identity") else name
    low, high = given.get("minimum_value"), given.get("maximum_value")
    if low is None and high is None:
        return ""
    if low == 0 and high is None:
        return "relu"
    return f"{'' if low is None else f'>= {low:g}'} {'' if high is None else f'<= {high:g}'}".strip()


def _layout(node: Node) -> str:
    """Return the layout of the weights as given; empty: no weights."""
    if not _weights(node):
        return ""
    if _is_source(node.arguments["weight"]) or node.kernel.startswith("Binary"):
        return _WEIGHT_LAYOUT
    default = {"ConvolutionTranspose": "IOHW", "FullyConnected": "OI"}.get(node.kernel, "OIHW")
    return str(node.arguments.get("layout", default))


def _pair(value: Any) -> tuple[int, int]:
    return (int(value), int(value)) if isinstance(value, (int, np.integer)) else (int(value[0]), int(value[1]))


def _pair_text(value: Any) -> str:
    h, w = _pair(value)
    return f"{h}x{w}"


def _detail(node: Node) -> str:
    given, parts = node.arguments, []
    if node.kernel == METAL_FUNCTION:
        return str(given["function"].name)
    if node.kernel == ADAPTIVE_POOL:
        return str(given["mode"])
    if node.kernel == INTERPOLATE:
        return f"{given['mode']}{', corners aligned' if given['align_corners'] else ''}"
    layout: str = _layout(node)
    weight: Any = given.get("weight")
    if _is_source(weight):
        descriptor = weight.descriptor() if callable(weight.descriptor) else weight.descriptor
        parts.append(_pair_text(descriptor.kernel_size))
    elif "H" in layout and len(weight.shape) == len(layout):
        parts.append(_pair_text([weight.shape[layout.index(letter)] for letter in "HW"]))
    elif given.get("kernel_size") is not None:
        size = given["kernel_size"]
        parts.append(f"{size} channels" if node.kernel == "CrossChannelNormalization" else _pair_text(size))
    for name in ("stride", "dilation"):
        if given.get(name) is not None and _pair(given[name]) != (1, 1):
            h, w = _pair(given[name])
            parts.append(f"{name} {h}" if h == w else f"{name} {h}x{w}")
    for name, word in (("groups", "groups"), ("sub_pixel_scale_factor", "sub-pixel"), ("scale_factor", "times")):
        value = given.get(name)
        if value is not None and value != 1:
            parts.append(f"{word} {value if isinstance(value, (int, float)) else 'x'.join(map(str, value))}")
    return ", ".join(parts)


# ---- operations


def _pixels(shape: Shape) -> int:
    return math.prod(shape[:3])


def _multiply_adds(node: Node, sources: tuple[Shape, ...], result: Shape) -> int:
    weights = _weights(node)
    if node.kernel == "ConvolutionTranspose":
        return weights * _pixels(sources[0])
    # With a sub-pixel factor each window position computes a square of pixels.
    return weights * _pixels(result) // int(node.arguments.get("sub_pixel_scale_factor", 1)) ** 2


def _taps(node: Node) -> int:
    size = node.arguments.get("kernel_size", 1)
    return int(size) ** 2 if isinstance(size, (int, np.integer)) else math.prod(map(int, size))


# Operations per value of the result, by family; see the docstring of the module.
_PER_RESULT = {
    "arithmetic": 1,
    "dropout": 1,
    "neuron": 1,
    "neuron_gradient": 1,
    "resize": 8,
    "softmax": 5,
}


def _operations(node: Node, sources: tuple[Shape, ...], result: Shape) -> int:
    """Return the operations of a kernel without weights."""
    if node.kernel in _WITHOUT_CLASS:
        return 8 * math.prod(result) if node.arguments.get("mode") == "bilinear" else 0
    family = row_of(KERNELS[node.kernel])["family"]
    values = math.prod(result)
    if family == "normalization":
        return (2 if node.kernel == "BatchNormalization" else 6) * values
    if family == "pooling":
        return _taps(node) * values
    if family == "local_normalization":
        if node.kernel == "CrossChannelNormalization":  # its kernel_size is a number of channels
            return 2 * int(node.arguments.get("kernel_size", 5)) * values
        return (4 if node.kernel == "LocalContrastNormalization" else 2) * _taps(node) * values
    if family == "reduction":
        return math.prod(sources[0]) * (2 if "AndWeights" in node.kernel else 1)
    if family == "upsampling":
        return 0 if node.kernel == "UpsamplingNearest" else 8 * values
    return _PER_RESULT.get(family, 0) * values


# ---- images


@dataclass(frozen=True)
class PlannedImage:
    """An image of a running network.

    Attributes
    ----------
    number : int
    role : "input", "output" or "temporary"
    name : str
        Name of the input or output; for a temporary image, the node that writes it first.
    shape : (N, H, W, C)
    nbytes : int
    first_step, last_step : int
        The steps that write it first and read it last; -1 for inputs, and the number of steps for outputs.
    """

    number: int
    role: str
    name: str
    shape: Shape
    nbytes: int
    first_step: int
    last_step: int


@dataclass(frozen=True)
class MemoryPlan:
    """The images of a running network, and the peak memory.

    Attributes
    ----------
    images : list of PlannedImage
    steps : int
        Kernels that are encoded.
    input_bytes, output_bytes : int
        Bytes of images that can share the memory of arrays.
    temporary_bytes : int
        Sum over all temporary images.
    peak_temporary_bytes : int
        Size of the heap: max over the steps of the bytes of temporary images between first write and last read.
    peak_step : int
        The step with that max.
    weight_bytes : int
        In float32, as given to the kernels.
    most_images : int
        Max number of images per command buffer; larger batches are computed in chunks. 0: the batch cannot be divided.
    """

    images: list[PlannedImage]
    steps: int
    input_bytes: int
    output_bytes: int
    temporary_bytes: int
    peak_temporary_bytes: int
    peak_step: int
    weight_bytes: int
    most_images: int

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for `json.dumps`."""
        return asdict(self)

    def rows(self) -> list[tuple[str, str]]:
        """Return (name, value) pairs as text."""
        temporary = [image for image in self.images if image.role == "temporary"]
        return [
            ("kernels encoded", str(self.steps)),
            ("images", f"{len(self.images)}, {len(temporary)} of them temporary"),
            ("inputs", bytes_text(self.input_bytes)),
            ("outputs", bytes_text(self.output_bytes)),
            ("temporary images, all", bytes_text(self.temporary_bytes)),
            ("temporary images, most at once", bytes_text(self.peak_temporary_bytes)),
            ("weights", bytes_text(self.weight_bytes)),
            ("images of one command buffer", str(self.most_images) if self.most_images else "all together"),
        ]

    def __str__(self) -> str:
        return "\n".join(f"{what:<32} {how_much:>24}" for what, how_much in self.rows())


def memory_plan(model: Graph | Network, input_shapes: InputShapes = None) -> MemoryPlan:
    """Return the plan of a network's images for inputs of these shapes; see `layer_table` for the parameters."""
    network = network_of(model)
    shapes = image_shapes(network, input_shapes)
    network = network._that_takes(shapes)
    batch = shapes[0][0]
    rows, steps = network._core.images(shapes), network._core.steps(shapes)
    written: dict[int, tuple[int, str]] = {}
    read: dict[int, int] = {}
    for number, step in enumerate(steps):
        written.setdefault(step["destination"], (number, step["node"]))
        for source in step["sources"]:
            read[source] = number
    inputs, outputs = list(network.inputs), list(network.outputs)
    images = []
    for number, row in enumerate(rows):
        shape = (batch, *row["shape"][1:])
        first, name = written.get(number, (-1, ""))
        last = read.get(number, first)
        if row["input"] is not None:
            role, name, item = "input", inputs[row["input"]], 4
        elif row["output"] is not None:
            role, name, item, last = "output", outputs[row["output"]], _ITEM_SIZES[network.dtype], len(steps)
        else:
            role, item = "temporary", _ITEM_SIZES[row["dtype"]]
        images.append(PlannedImage(number, role, name, shape, math.prod(shape) * item, first, last))
    temporary = [image for image in images if image.role == "temporary"]
    live = [sum(i.nbytes for i in temporary if i.first_step <= step <= i.last_step) for step in range(len(steps))]
    return MemoryPlan(
        images=images,
        steps=len(steps),
        input_bytes=sum(image.nbytes for image in images if image.role == "input"),
        output_bytes=sum(image.nbytes for image in images if image.role == "output"),
        temporary_bytes=sum(image.nbytes for image in temporary),
        peak_temporary_bytes=max(live, default=0),
        peak_step=live.index(max(live)) if live else 0,
        weight_bytes=4 * sum(map(_parameters, network.graph.nodes)),
        most_images=int(network._core.chunk_images(shapes)),
    )


# ---- text


def shape_text(shape: Iterable[int]) -> str:
    """Format (1, 56, 56, 64) as "1x56x56x64"."""
    return "x".join(map(str, shape))


def bytes_text(count: float) -> str:
    """Format a number of bytes with a unit: "3.2 MiB"."""
    for unit in ("bytes", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def aligned(
    header: Sequence[str], rows: Sequence[Sequence[str]], totals: Sequence[str] | None = None, *, right: int = 0
) -> str:
    """Format a table in columns, the last `right` of them right-aligned."""
    lines = [header, *rows, *([totals] if totals else [])]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        texts = [
            cell.rjust(width) if column >= len(header) - right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(texts).rstrip()

    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    body = [line(header), rule, *map(line, rows)]
    return "\n".join([*body, rule, line(totals)] if totals else body)
