# SPDX-License-Identifier: Apache-2.0
"""Import of a list of layers and a mapping of arrays, for weights whose module is not available.

Layers are named as in torch.nn and arrays as in a state_dict. PyTorch is not needed.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidModelError, UnsupportedOperatorError
from ..graph import Graph
from .builder import Builder, Tensor, UnmappedError
from .ops import activation, arithmetic, convolution, normalization, pooling, reduction, regularization, resize, shape

Layer: TypeAlias = "tuple[str, str] | tuple[str, str, Mapping[str, Any]]"

_MAXIMUM_EXTENT = 1 << 24  # larger than any image's; arrays of this size are allocated

# Axes of an input, by its number of axes including the batch.
_AXES = {2: "NC", 3: "NCW", 4: "NCHW"}


def read_layers(
    layers: Sequence[Layer],
    state_dict: Mapping[str, Any],
    *,
    input_shapes: Sequence[int] | Mapping[str, Sequence[int]] | None,
    outputs: Sequence[str] | None = None,
    name: str = "the list of layers",
    in_training: bool = False,
) -> Graph:
    """Read the layers as a Graph.

    Parameters
    ----------
    layers : sequence of (name, kind) or (name, kind, options)
        `kind` is a layer of torch.nn, or "Add", "Subtract", "Multiply" or "Concat" of several sources. `options` are
        the layer's arguments in torch.nn, except those that follow from its arrays, and "inputs": names of the layers
        that it reads, or of inputs ("input" unless `input_shapes` names them); default: the layer before it.
    state_dict : mapping of str to array
        "<name>.weight" and so on, in PyTorch's layouts: NumPy arrays or tensors. Not copied.
    input_shapes : tuple of int, or dict
        (N, C, H, W), (N, C, W) or (N, C) of the input, or a dict by name for several. The graph accepts other batch
        sizes, and other heights and widths if the layers do.
    outputs : sequence of str, optional
        Names of layers whose results are the outputs; default: the last one, named "output".
    name : str
        Name in errors.
    in_training : bool
        Whether to include dropout.

    Raises
    ------
    InvalidModelError
        A layer, option or array is unknown, an array is not read by any layer, or extents do not fit.
    UnsupportedOperatorError
        No kernel computes some layers with these options; all are listed.

    Examples
    --------
    >>> import numpy as np
    >>> from mpscnn.importing.layer_list import read_layers
    >>> weights = {"conv1.weight": np.ones((8, 3, 3, 3), np.float32)}
    >>> layers = [("conv1", "Conv2d", {"padding": 1}), ("relu", "ReLU"), ("sum", "Add", {"inputs": ["conv1", "relu"]})]
    >>> read_layers(layers, weights, input_shapes=(1, 3, 32, 32))
    Graph(input -> 3 nodes -> output)
    """
    builder, arrays = Builder(in_training=in_training), _Arrays(state_dict)
    values: dict[str, Tensor | None] = {
        key: builder.input(key, extents[1:], _AXES[len(extents)]) for key, extents in _extents(input_shapes).items()
    }
    failures: list[tuple[str, str, str]] = []
    last = next(iter(values))
    for entry in cast("Sequence[Any]", layers):
        if not _is_entry(entry):
            raise InvalidModelError(f"{name}: {_shown(entry)} is not (name, kind) or (name, kind, options).")
        layer, kind, options = entry[0], entry[1], dict(entry[2]) if len(entry) == 3 else {}
        if layer in values:
            raise InvalidModelError(f'{name}: there are two layers "{layer}".')
        if kind not in LAYERS:
            raise InvalidModelError(f'{name}: layer "{layer}" is a "{kind}", which is none.{_nearest(kind, LAYERS)}')
        wanted = options.pop("inputs", [last])
        if not isinstance(wanted, (list, tuple)) or not all(isinstance(source, str) for source in wanted):
            raise InvalidModelError(f'{name}: layer "{layer}": inputs ({_shown(wanted)}) is not a list of names.')
        for source in wanted:
            if source not in values:
                raise InvalidModelError(
                    f'{name}: layer "{layer}" reads "{source}", which is no layer in front of it.'
                    f"{_nearest(source, values)}"
                )
        sources = [values[source] for source in wanted]
        reader = arrays.of(layer)
        _check_options(name, layer, kind, options, len(sources))
        tensors = [source for source in sources if source is not None]
        ranks = _RANKS.get(kind, _RANKS.get(kind[-2:]))
        for tensor in tensors:
            if ranks is not None and tensor.rank not in ranks:
                raise InvalidModelError(
                    f'{name}: layer "{layer}", a {kind}, reads a tensor with {tensor.rank} axes, the batch included; it'
                    f" takes {' or '.join(map(str, ranks))}."
                )
        values[layer], last = None, layer
        if len(tensors) < len(sources):
            arrays.read_all(layer)  # an earlier layer has failed
            continue
        try:
            with builder.node(layer, kind), np.errstate(all="ignore"):  # weights may be infinite
                values[layer] = LAYERS[kind](builder, reader, *tensors, **options)
        except UnmappedError as reason:
            arrays.read_all(layer)
            failures.append((kind, layer, str(reason)))
    arrays.check_all_read(name, values)
    if failures:
        raise UnsupportedOperatorError(name, failures)
    for output in [last] if outputs is None else outputs:
        value = values.get(output)
        if value is None:
            raise InvalidModelError(f'{name}: there is no layer "{output}" for an output.{_nearest(output, values)}')
        builder.output("output" if outputs is None else output, value)
    return builder.graph


# Allowed ranks of sources, by kind or its suffix. With one axis less, PyTorch assumes an image without a batch.
_RANKS: dict[str, Sequence[int]] = {
    "1d": (3,), "2d": (4,), "BatchNorm1d": (2, 3), **dict.fromkeys(("Dropout1d", "Dropout2d"), (2, 3, 4)),
}  # fmt: skip


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, (tuple, list)) or not 2 <= len(entry) <= 3:
        return False
    names = all(isinstance(text, str) and text for text in entry[:2])
    return names and (len(entry) == 2 or isinstance(entry[2], Mapping))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _extents(shapes: Any) -> dict[str, tuple[int, ...]]:
    """Return the requested shape of each input."""
    if shapes is None:
        raise TypeError("input_shapes is missing: a list of layers does not tell the shape of its input.")
    by_name = dict(shapes) if isinstance(shapes, Mapping) else {"input": shapes}
    if not by_name:
        raise InvalidModelError("input_shapes is empty.")
    for key, extents in by_name.items():
        if not isinstance(key, str) or not key:
            raise InvalidModelError(f"input_shapes: {_shown(key)} is no name of an input.")
        if (
            not isinstance(extents, (tuple, list))
            or len(extents) not in _AXES
            or any(not isinstance(extent, int) or extent < 1 for extent in extents)
        ):
            raise InvalidModelError(
                f'input_shapes: {extents} of "{key}" is not (N, C, H, W), (N, C, W) or (N, C) of numbers from 1 on.'
            )
        if max(extents) > _MAXIMUM_EXTENT:
            raise InvalidModelError(
                f'input_shapes: {tuple(extents)} of "{key}" has an extent of more than the maximum ({_MAXIMUM_EXTENT}).'
            )
    return {key: tuple(extents) for key, extents in by_name.items()}


def _nearest(name: Any, names: Iterable[str]) -> str:
    """Return a sentence with similar names, if there are any."""
    found = difflib.get_close_matches(str(name), list(names), n=3, cutoff=0.5)
    return f" Nearest: {', '.join(found)}." if found else ""


def _check_options(name: str, layer: str, kind: str, options: dict[str, Any], sources: int) -> None:
    signature = inspect.signature(LAYERS[kind])
    known = [key for key, parameter in signature.parameters.items() if parameter.kind == parameter.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            raise InvalidModelError(
                f'{name}: layer "{layer}", a {kind}, has no option "{option}"; it has'
                f" {', '.join(known) or 'none'}.{_nearest(option, known)}"
            )
        what, is_right = _OPTIONS_OF.get(kind.rstrip("12d"), {}).get(option, _OPTIONS[option])
        if not is_right(options[option]):
            raise InvalidModelError(
                f'{name}: layer "{layer}", a {kind}: {option} ({_shown(options[option])}) is not {what}.'
            )
    try:
        signature.bind(None, None, *[None] * sources, **options)
    except TypeError as error:
        raise InvalidModelError(f'{name}: layer "{layer}", a {kind} of {sources} inputs: {error}.') from None


_LIMIT = 1 << 31  # of integer options


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_LIMIT <= value < _LIMIT


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or _is_integer(value)


def _is_word(value: Any) -> bool:
    return isinstance(value, str)


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def _each(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a check of a value or of a non-empty tuple of values."""
    return lambda value: (
        is_right(value) or (isinstance(value, (tuple, list)) and len(value) > 0 and all(map(is_right, value)))
    )


def _or_none(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or is_right(value)


_INTEGERS = ("an int, or a tuple of them", _each(_is_integer))
_INTEGER, _NUMBER = ("an int", _is_integer), ("a number", _is_number)
_WORD, _TRUTH = ("a str", _is_word), ("a bool", _is_truth)

# The type of each option.
_OPTIONS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("kernel_size", "dilation", "output_padding", "normalized_shape"), _INTEGERS),
    "stride": ("an int, a tuple of them or None", _or_none(_each(_is_integer))),
    "padding": _INTEGERS,
    "output_size": ("an int, None, or a tuple of these", _each(_or_none(_is_integer))),
    **dict.fromkeys(("groups", "num_groups", "dim", "start_dim", "end_dim"), _INTEGER),
    **dict.fromkeys(("upscale_factor", "downscale_factor"), _INTEGER),
    "divisor_override": ("an int or None", _or_none(_is_integer)),
    "momentum": ("a number or None", _or_none(_is_number)),
    "size": ("an int, a tuple of them or None", _or_none(_each(_is_integer))),
    "scale_factor": ("a number, a tuple of them or None", _or_none(_each(_is_number))),
    **dict.fromkeys(("eps", "alpha", "beta", "k", "p", "negative_slope"), _NUMBER),
    **dict.fromkeys(("min_val", "max_val", "threshold", "value"), _NUMBER),
    **dict.fromkeys(("padding_mode", "approximate", "mode"), _WORD),
    **dict.fromkeys(("ceil_mode", "count_include_pad"), _TRUTH),
    "align_corners": ("a bool or None", _or_none(_is_truth)),
}
_OF_CONVOLUTIONS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "stride": _INTEGERS,
    "padding": ("an int, a tuple of them or a str", lambda value: _is_word(value) or _each(_is_integer)(value)),
}
# Options with other types for some kinds; kinds without "1d" and "2d".
_OPTIONS_OF: dict[str, dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "Conv": _OF_CONVOLUTIONS,
    "ConvTranspose": _OF_CONVOLUTIONS,
    "LocalResponseNorm": {"size": _INTEGER},
}


class _Arrays:
    """Arrays of a state_dict, with a record of those that were read."""

    def __init__(self, state_dict: Mapping[str, Any]) -> None:
        for key in state_dict:
            if not isinstance(key, str):
                raise InvalidModelError(f"state_dict: {_shown(key)} is no name of an array.")
        self.state_dict = state_dict
        self.read: set[str] = set()

    def of(self, layer: str) -> _ArraysOfLayer:
        return _ArraysOfLayer(self, layer)

    def read_all(self, layer: str) -> None:
        self.read |= {key for key in self.state_dict if key.startswith(f"{layer}.")}

    def check_all_read(self, name: str, layers: Iterable[str]) -> None:
        left = [key for key in self.state_dict if key not in self.read and not key.endswith(".num_batches_tracked")]
        if left:
            owners = {key: _nearest(key.rpartition(".")[0], layers) for key in left[:5]}
            raise InvalidModelError(
                f"{name}: no layer reads {len(left)} of the arrays: "
                + " ".join(f'"{key}".{nearest}' for key, nearest in owners.items())
                + (" ..." if len(left) > 5 else "")
            )


class _ArraysOfLayer:
    """Arrays of one layer, by their names without the layer's prefix."""

    def __init__(self, arrays: _Arrays, layer: str) -> None:
        self.arrays, self.layer = arrays, layer

    def __getitem__(self, name: str) -> NDArray[Any]:
        array = self.get(name)
        if array is None:
            key = f"{self.layer}.{name}"
            raise InvalidModelError(f'there is no array "{key}".{_nearest(key, self.arrays.state_dict)}')
        return array

    def get(self, name: str) -> NDArray[Any] | None:
        key = f"{self.layer}.{name}"
        if key not in self.arrays.state_dict:
            return None
        self.arrays.read.add(key)
        value = self.arrays.state_dict[key]
        if hasattr(value, "detach"):  # a PyTorch tensor; PyTorch is not imported
            if str(value.layout) != "torch.strided" or value.is_meta or value.is_quantized:
                raise InvalidModelError(
                    f'the array "{key}" is no dense tensor with values: {value.layout}, {value.device}.'
                )
            value = value.detach().cpu()
            value = value.float() if str(value.dtype) == "torch.bfloat16" else value
            value = value.numpy()
        try:
            array = np.asarray(value)
        except (TypeError, ValueError) as error:
            raise InvalidModelError(f'the array "{key}" ({type(value).__name__}) is none: {error}.') from None
        if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
            raise InvalidModelError(f'the array "{key}" is of {array.dtype}, not of floating-point numbers.')
        return array.astype(np.float32) if array.dtype == np.float64 else array


# ---- the layers

LAYERS: dict[str, Callable[..., Tensor]] = {}


def _layer(*kinds: str) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    def enter(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        for kind in kinds:
            LAYERS[kind] = function
        return function

    return enter


def _padded(b: Builder, x: Tensor, padding: Any, padding_mode: str) -> tuple[Tensor, Any]:
    """Pad the source explicitly unless padding_mode is "zeros"; return it and the remaining padding."""
    modes = {"reflect": "reflect", "replicate": "replicate"}
    if padding_mode == "zeros" or padding == 0:
        return x, padding
    if padding_mode not in modes or isinstance(padding, str):
        raise UnmappedError(f'padding {padding!r} with padding_mode "{padding_mode}"')
    each = (padding,) * (x.rank - 2) if isinstance(padding, int) else tuple(padding)
    sides = [side for pixels in reversed(each) for side in (pixels, pixels)]
    return resize.pad(b, x, sides, modes[padding_mode]), 0


@_layer("Conv2d")
def _conv2d(
    b: Builder, w: Any, x: Tensor, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
    padding_mode: str = "zeros",
) -> Tensor:  # fmt: skip
    x, padding = _padded(b, x, padding, padding_mode)
    return convolution.conv2d(b, x, w["weight"], w.get("bias"), stride, padding, dilation, groups)


@_layer("Conv1d")
def _conv1d(
    b: Builder, w: Any, x: Tensor, *, stride: int = 1, padding: Any = 0, dilation: int = 1, groups: int = 1,
    padding_mode: str = "zeros",
) -> Tensor:  # fmt: skip
    x, padding = _padded(b, x, padding, padding_mode)
    return convolution.conv1d(b, x, w["weight"], w.get("bias"), stride, padding, dilation, groups)


@_layer("ConvTranspose2d")
def _conv_transpose2d(
    b: Builder, w: Any, x: Tensor, *, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
    dilation: Any = 1,
) -> Tensor:  # fmt: skip
    weight, bias = w["weight"], w.get("bias")
    return convolution.conv_transpose2d(b, x, weight, bias, stride, padding, output_padding, groups, dilation)


@_layer("Linear")
def _linear(b: Builder, w: Any, x: Tensor) -> Tensor:
    return convolution.linear(b, x, w["weight"], w.get("bias"))


@_layer("BatchNorm1d", "BatchNorm2d")
def _batch_norm(b: Builder, w: Any, x: Tensor, *, eps: float = 1e-5, momentum: float | None = 0.1) -> Tensor:
    mean, variance = w["running_mean"], w["running_var"]
    return normalization.batch_norm(b, x, mean, variance, w.get("weight"), w.get("bias"), eps, momentum)


@_layer("InstanceNorm1d", "InstanceNorm2d")
def _instance_norm(b: Builder, w: Any, x: Tensor, *, eps: float = 1e-5) -> Tensor:
    mean, variance = w.get("running_mean"), w.get("running_var")
    return normalization.instance_norm(b, x, mean, variance, w.get("weight"), w.get("bias"), mean is None, eps)


@_layer("GroupNorm")
def _group_norm(b: Builder, w: Any, x: Tensor, *, num_groups: int, eps: float = 1e-5) -> Tensor:
    return normalization.group_norm(b, x, num_groups, w.get("weight"), w.get("bias"), eps)


@_layer("LayerNorm")
def _layer_norm(b: Builder, w: Any, x: Tensor, *, normalized_shape: Any, eps: float = 1e-5) -> Tensor:
    extents = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
    return normalization.layer_norm(b, x, extents, w.get("weight"), w.get("bias"), eps)


@_layer("LocalResponseNorm")
def _local_response_norm(
    b: Builder, w: Any, x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    return normalization.local_response_norm(b, x, size, alpha, beta, k)


@_layer("PReLU")
def _prelu(b: Builder, w: Any, x: Tensor) -> Tensor:
    return activation.prelu(b, x, w["weight"])


def _without_options(kind: str, function: Callable[[Builder, Tensor], Tensor]) -> None:
    @_layer(kind)
    def apply(b: Builder, w: Any, x: Tensor) -> Tensor:
        return function(b, x)


for _kind, _function in {
    "ReLU": activation.relu, "ReLU6": activation.relu6, "SELU": activation.selu, "Sigmoid": activation.sigmoid,
    "Hardsigmoid": activation.hardsigmoid, "LogSigmoid": activation.logsigmoid, "Tanh": activation.tanh,
    "SiLU": activation.silu, "Hardswish": activation.hardswish, "Mish": activation.mish,
    "Softsign": activation.softsign, "Tanhshrink": activation.tanhshrink,
}.items():  # fmt: skip
    _without_options(_kind, _function)


@_layer("LeakyReLU")
def _leaky_relu(b: Builder, w: Any, x: Tensor, *, negative_slope: float = 0.01) -> Tensor:
    return activation.leaky_relu(b, x, negative_slope)


@_layer("ELU")
def _elu(b: Builder, w: Any, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return activation.elu(b, x, alpha)


@_layer("CELU")
def _celu(b: Builder, w: Any, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return activation.celu(b, x, alpha)


@_layer("GELU")
def _gelu(b: Builder, w: Any, x: Tensor, *, approximate: str = "none") -> Tensor:
    return activation.gelu(b, x, approximate)


@_layer("Hardtanh")
def _hardtanh(b: Builder, w: Any, x: Tensor, *, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    return activation.hardtanh(b, x, min_val, max_val)


@_layer("Softplus")
def _softplus(b: Builder, w: Any, x: Tensor, *, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    return activation.softplus(b, x, beta, threshold)


@_layer("Softmax")
def _softmax(b: Builder, w: Any, x: Tensor, *, dim: int) -> Tensor:
    return reduction.softmax(b, x, dim)


@_layer("LogSoftmax")
def _log_softmax(b: Builder, w: Any, x: Tensor, *, dim: int) -> Tensor:
    return reduction.log_softmax(b, x, dim)


@_layer("Identity")
def _identity(b: Builder, w: Any, x: Tensor) -> Tensor:
    return x


@_layer("Dropout")
def _dropout(b: Builder, w: Any, x: Tensor, *, p: float = 0.5) -> Tensor:
    return regularization.dropout(b, x, p)


@_layer("Dropout1d", "Dropout2d")
def _channel_dropout(b: Builder, w: Any, x: Tensor, *, p: float = 0.5) -> Tensor:
    return regularization.dropout(b, x, p, whole_channels=True)


@_layer("AlphaDropout")
def _alpha_dropout(b: Builder, w: Any, x: Tensor, *, p: float = 0.5) -> Tensor:
    return regularization.alpha_dropout(b, x, p)


@_layer("MaxPool1d", "MaxPool2d")
def _max_pool(
    b: Builder, w: Any, x: Tensor, *, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    return pooling.max_pool2d(b, x, kernel_size, stride, padding, dilation, ceil_mode)


@_layer("AvgPool1d", "AvgPool2d")
def _avg_pool(
    b: Builder, w: Any, x: Tensor, *, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    return pooling.avg_pool2d(b, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@_layer("AdaptiveAvgPool1d", "AdaptiveAvgPool2d")
def _adaptive_avg_pool(b: Builder, w: Any, x: Tensor, *, output_size: Any) -> Tensor:
    return pooling.adaptive_avg_pool2d(b, x, output_size)


@_layer("AdaptiveMaxPool1d", "AdaptiveMaxPool2d")
def _adaptive_max_pool(b: Builder, w: Any, x: Tensor, *, output_size: Any) -> Tensor:
    return pooling.adaptive_max_pool2d(b, x, output_size)


@_layer("Upsample")
def _upsample(
    b: Builder, w: Any, x: Tensor, *, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    return resize.interpolate(b, x, size, scale_factor, mode, align_corners)


def _pads(x: Tensor, padding: Any) -> Sequence[int]:
    return (padding,) * (2 * (x.rank - 2)) if isinstance(padding, int) else padding


@_layer("ZeroPad1d", "ZeroPad2d")
def _zero_pad(b: Builder, w: Any, x: Tensor, *, padding: Any) -> Tensor:
    return resize.pad(b, x, _pads(x, padding))


@_layer("ConstantPad1d", "ConstantPad2d")
def _constant_pad(b: Builder, w: Any, x: Tensor, *, padding: Any, value: float) -> Tensor:
    return resize.pad(b, x, _pads(x, padding), "constant", value)


@_layer("ReflectionPad1d", "ReflectionPad2d")
def _reflection_pad(b: Builder, w: Any, x: Tensor, *, padding: Any) -> Tensor:
    return resize.pad(b, x, _pads(x, padding), "reflect")


@_layer("ReplicationPad1d", "ReplicationPad2d")
def _replication_pad(b: Builder, w: Any, x: Tensor, *, padding: Any) -> Tensor:
    return resize.pad(b, x, _pads(x, padding), "replicate")


@_layer("PixelShuffle")
def _pixel_shuffle(b: Builder, w: Any, x: Tensor, *, upscale_factor: int) -> Tensor:
    return resize.pixel_shuffle(b, x, upscale_factor)


@_layer("PixelUnshuffle")
def _pixel_unshuffle(b: Builder, w: Any, x: Tensor, *, downscale_factor: int) -> Tensor:
    return resize.pixel_unshuffle(b, x, downscale_factor)


@_layer("Flatten")
def _flatten(b: Builder, w: Any, x: Tensor, *, start_dim: int = 1, end_dim: int = -1) -> Tensor:
    return shape.flatten(b, x, start_dim, end_dim)


@_layer("Concat")
def _concat(b: Builder, w: Any, *sources: Tensor, dim: int = 1) -> Tensor:
    return shape.cat(b, sources, dim)


def _of_several(kind: str, function: Callable[..., Tensor]) -> None:
    @_layer(kind)
    def combine(b: Builder, w: Any, x: Tensor, y: Tensor, *more: Tensor) -> Tensor:
        for other in (y, *more):
            x = function(b, x, other)
        return x


_of_several("Add", arithmetic.add)
_of_several("Subtract", arithmetic.subtract)
_of_several("Multiply", arithmetic.multiply)
