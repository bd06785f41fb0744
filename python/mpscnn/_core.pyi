# SPDX-License-Identifier: Apache-2.0
"""The compiled core of mpscnn; use the package mpscnn."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, SupportsFloat, SupportsIndex, TypeVar, final, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray
from typing_extensions import Self

from . import _typing as t

__version__: str

_Out = TypeVar("_Out", bound=t.Array)

# ---- weights

@overload
def reorder(
    array: t.Array,
    source: t.WeightLayout = "OIHW",
    target: t.WeightLayout = "OHWI",
    out: None = None,
    *,
    feature_map: t.Shape | None = None,
    copy: bool | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Reorder the axes of convolution weights."""

@overload
def reorder(
    array: t.Array,
    source: t.WeightLayout = "OIHW",
    target: t.WeightLayout = "OHWI",
    *,
    out: _Out,
    feature_map: t.Shape | None = None,
    copy: None = None,
    threads: int | None = None,
) -> _Out: ...
@overload
def reorder(
    array: t.Array,
    source: t.WeightLayout,
    target: t.WeightLayout,
    out: _Out,
    *,
    feature_map: t.Shape | None = None,
    copy: None = None,
    threads: int | None = None,
) -> _Out: ...
@overload
def reorder_linear(
    array: t.Array, feature_map: t.Shape, out: None = None, *, copy: bool | None = None, threads: int | None = None
) -> NDArray[Any]:
    """Reorder the weights of a linear layer after a flattened feature map, for a fully connected kernel."""

@overload
def reorder_linear(
    array: t.Array, feature_map: t.Shape, out: _Out, *, copy: None = None, threads: int | None = None
) -> _Out: ...
def empty(shape: t.Shape, dtype: DTypeLike | None = "float32") -> NDArray[Any]:
    """Return an uninitialized array whose memory can always be shared with a device."""

# ---- the kernel table

def kernel_table() -> list[t.Row]:
    """One row per kernel, as in csrc/table/kernels.cpp."""

def neuron_names() -> list[t.NeuronName]:
    """The names of activation functions, as in csrc/table/neurons.hpp."""

def common_params(sources: int = 1) -> list[t.Param]:
    """The parameters of every kernel with this number of sources, settable after construction."""

# ---- device, memory, work

class Device:
    """A Metal device with its own command queue."""

    def __init__(self) -> None: ...
    @staticmethod
    def all() -> list[Device]:
        """The default one first."""

    @property
    def name(self) -> str:
        """Name of the device."""

    @property
    def allocated_bytes(self) -> int:
        """Memory in use on the device."""

    @property
    def peak_bytes(self) -> int:
        """Max of allocated_bytes since reset_peak_bytes()."""

    def reset_peak_bytes(self) -> None:
        """Reset peak_bytes to allocated_bytes."""

    @property
    def cached_bytes(self) -> int:
        """Free memory cached for later; NotImplementedError if the device does not report it."""

    def free_cached_bytes(self) -> None:
        """Return cached memory to the system; NotImplementedError likewise."""

    @property
    def recommended_max_working_set_bytes(self) -> int:
        """No image may be larger."""

    @property
    def max_buffer_bytes(self) -> int:
        """No buffer may be larger."""

    @property
    def shares_images(self) -> bool:
        """Whether images can share the memory of arrays."""

    @property
    def is_supported(self) -> bool:
        """MPSSupportsMTLDevice."""

    def _set_most_work(self, multiply_adds: int) -> None: ...

class Buffer:
    """Memory that the device and NumPy share."""

    def __init__(self, source: SupportsIndex | t.Array, *, device: Device | None = None) -> None: ...
    def numpy(self, dtype: DTypeLike | None = "uint8", shape: t.Shape | None = None) -> NDArray[Any]:
        """View of the buffer's memory, not a copy."""

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __dlpack__(self, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int:
        """Length in bytes."""

class CommandBuffer:
    """A list of encoded kernels that the device runs in order."""

    def __init__(self, device: Device | None = None, label: str | None = None) -> None: ...
    @staticmethod
    def _in_parts(device: Device | None, label: str) -> CommandBuffer: ...
    def commit(self) -> None:
        """Submit the work to the device; once."""

    def wait(self) -> None:
        """Wait until the work is done; raise RuntimeError if it failed."""

    def add_completed_handler(self, handler: Callable[[], object]) -> None:
        """Call `handler()` when the work is done, on a thread of the device or one that waits; before commit()."""

    @property
    def status(self) -> Literal["not_enqueued", "enqueued", "committed", "scheduled", "completed", "error"]: ...
    @property
    def error(self) -> str | None:
        """Error message of the device."""

    @property
    def gpu_time(self) -> float:
        """Seconds that the work ran; 0 until completed."""

    @property
    def device(self) -> Device: ...
    @property
    def label(self) -> str | None: ...
    @label.setter
    def label(self, value: str | None) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

class Image:
    """Pixels on the device: N images of H x W pixels of C channels."""

    def __init__(
        self, shape: t.Shape4, dtype: DTypeLike | None = "float32", *, device: Device | None = None
    ) -> None: ...
    @staticmethod
    def from_array(
        x: t.Array, layout: t.ImageLayout = "NHWC", *, copy: bool | None = None, device: Device | None = None
    ) -> Image:
        """Return an image of an array: NumPy, PyTorch (CPU), DLPack, __array_interface__ or buffer."""

    @staticmethod
    def temporary(command_buffer: CommandBuffer, shape: t.Shape4, dtype: DTypeLike | None = "float32") -> Image:
        """Return an image that is valid on one command buffer, until its read_count is 0 (MPSTemporaryImage)."""

    @staticmethod
    def most_images(channels: SupportsIndex) -> int:
        """How many images of so many channels one Image holds: an MPSImage has 2048 slices of four channels."""

    @overload
    def numpy(self, layout: t.ImageLayout = "NHWC", *, out: None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the pixels as an array: a view if the image shares an array's memory (copy=None), else a copy."""

    @overload
    def numpy(self, layout: t.ImageLayout = "NHWC", *, out: _Out, copy: bool | None = None) -> _Out: ...
    def write(self, x: t.Array, layout: t.ImageLayout = "NHWC") -> None:
        """Replace the pixels; shape and dtype must be the image's."""

    def channels(self, first: SupportsIndex, count: SupportsIndex) -> Image:
        """View of consecutive channels; both multiples of 4, or the rest."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(N, H, W, C)."""

    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def is_temporary(self) -> bool: ...
    @property
    def read_count(self) -> int:
        """Reads left before a temporary image's storage is recycled."""

    @read_count.setter
    def read_count(self, value: SupportsIndex) -> None: ...
    @property
    def label(self) -> str | None: ...
    @label.setter
    def label(self, value: str | None) -> None: ...
    @property
    def device(self) -> Device: ...
    def _repr_png_(self) -> bytes | None:
        """The images side by side as a PNG file, in a notebook; None where they are no picture."""

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]: ...
    def __buffer__(self, flags: int, /) -> memoryview:
        """``memoryview(image)``. A call with an Image returns an Image: overloads ignore that it is also an array."""

    def __dlpack__(self, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class ImageConversion:
    """Conversion of images to another dtype and alpha convention."""

    def __init__(
        self,
        dtype: DTypeLike | None = "float32",
        *,
        source_alpha: t.AlphaType = "non_premultiplied",
        destination_alpha: t.AlphaType = "non_premultiplied",
        background_color: Sequence[t.Real] | None = None,
        offset: t.Offset | None = None,
        clip_rect: t.Region | None = None,
        edge_mode: Literal["zero", "clamp"] = "zero",
        device: Device | None = None,
    ) -> None: ...
    @overload
    def __call__(self, x: Image, out: Image | None = None) -> Image:  # type: ignore[overload-overlap]
        """Convert and wait."""

    @overload
    def __call__(self, x: t.Array, out: None = None) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: t.Array, out: _Out) -> _Out: ...
    def encode(
        self, command_buffer: CommandBuffer, x: Image, out: Image | None = None, temporary: bool = False
    ) -> Image:
        """Append the conversion to a command buffer."""

    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def source_alpha(self) -> t.AlphaType: ...
    @property
    def destination_alpha(self) -> t.AlphaType: ...
    @property
    def offset(self) -> tuple[int, int] | tuple[int, int, int] | None:
        """Source pixel, and first source image, under the first that is written."""

    @offset.setter
    def offset(self, value: t.Offset | None) -> None: ...
    @property
    def clip_rect(self) -> tuple[tuple[int, int, int], tuple[int, int, int]] | None:
        """Part of the destination that is written."""

    @clip_rect.setter
    def clip_rect(self, value: t.Region | None) -> None: ...
    @property
    def edge_mode(self) -> Literal["zero", "clamp"]:
        """Pixels outside of the source: zero, or the nearest pixel."""

    @edge_mode.setter
    def edge_mode(self, value: Literal["zero", "clamp"]) -> None: ...
    @property
    def device(self) -> Device: ...

class LossLabels:
    """Targets of a loss: labels and weights, and storage for the result."""

    def __init__(
        self,
        labels: Image | t.Array | t.Nested,
        weights: Image | t.Array | t.Nested | None = None,
        *,
        number_of_classes: SupportsIndex | None = None,
        loss_shape: Sequence[SupportsIndex] | None = None,
        device: Device | None = None,
    ) -> None: ...
    def write(self, labels: t.Array | t.Nested, weights: t.Array | t.Nested | None = None) -> None:
        """Replace labels and weights by those of another batch of the same shape."""

    @property
    def loss(self) -> NDArray[np.float32]:
        """A copy of the last result, of shape (N, *loss_shape)."""

    @property
    def shape(self) -> tuple[int, int, int, int]: ...
    @property
    def loss_shape(self) -> tuple[int, int, int]: ...
    @property
    def has_weights(self) -> bool: ...
    @property
    def device(self) -> Device: ...

class _Loss:
    """The core of a mpscnn.Loss."""

    def __init__(self, options: Mapping[str, Any], device: Device | None = None) -> None: ...
    def _call(self, x: Any, labels: Any, weights: Any, out: Any) -> Any: ...
    def _encode(
        self,
        command_buffer: CommandBuffer,
        x: Any,
        labels: Any,
        out: Image | None = None,
        temporary: bool = False,
    ) -> Image: ...
    @property
    def device(self) -> Device: ...

class _YOLOLoss:
    """The core of a mpscnn.YOLOLoss."""

    def __init__(
        self,
        anchor_boxes: NDArray[np.float64],
        terms: Sequence[_Loss],
        options: Mapping[str, Any],
        device: Device | None = None,
    ) -> None: ...
    def _call(self, x: Any, labels: Any, weights: Any, out: Any) -> Any: ...
    def _encode(
        self,
        command_buffer: CommandBuffer,
        x: Any,
        labels: Any,
        out: Image | None = None,
        temporary: bool = False,
    ) -> Image: ...
    @property
    def device(self) -> Device: ...

class _ForwardLoss:
    """The core of a mpscnn.ForwardLoss."""

    def __init__(self, options: Mapping[str, Any], device: Device | None = None) -> None: ...
    def _call(self, x: Any, labels: Any, weights: Any, out: Any) -> Any: ...
    def _encode(
        self,
        command_buffer: CommandBuffer,
        x: Any,
        labels: Any,
        weights: Any = None,
        out: Image | None = None,
        temporary: bool = False,
    ) -> Image: ...
    @property
    def device(self) -> Device: ...

class _LossGradient:
    """The core of a mpscnn.LossGradient."""

    def __init__(self, options: Mapping[str, Any], device: Device | None = None) -> None: ...
    def _call(self, grad: Any, x: Any, labels: Any, weights: Any, out: Any) -> Any: ...
    def _encode(
        self,
        command_buffer: CommandBuffer,
        grad: Any,
        x: Any,
        labels: Any,
        weights: Any = None,
        out: Image | None = None,
        temporary: bool = False,
    ) -> Image: ...
    @property
    def device(self) -> Device: ...

class _InitialGradient:
    """The core of a mpscnn.InitialGradient."""

    def __init__(self, device: Device | None = None) -> None: ...
    def _call(self, x: Any, out: Any) -> Any: ...
    def _encode(
        self, command_buffer: CommandBuffer, x: Any, out: Image | None = None, temporary: bool = False
    ) -> Image: ...
    @property
    def device(self) -> Device: ...

class Matrix:
    """Rows of numbers that the device and NumPy share."""

    def __init__(
        self,
        rows: SupportsIndex,
        columns: SupportsIndex,
        dtype: DTypeLike | None = "float32",
        *,
        device: Device | None = None,
    ) -> None: ...
    @staticmethod
    def from_array(x: t.Array, *, copy: bool | None = None, device: Device | None = None) -> Matrix:
        """Return a matrix of an array of shape (rows, columns)."""

    @staticmethod
    def temporary(
        command_buffer: CommandBuffer,
        rows: SupportsIndex,
        columns: SupportsIndex,
        dtype: DTypeLike | None = "float32",
    ) -> Matrix:
        """Return a matrix that is valid on one command buffer, until its read_count is 0 (MPSTemporaryMatrix)."""

    def numpy(self) -> NDArray[Any]:
        """View of the matrix's memory, shape (rows, columns); not a copy."""

    @property
    def rows(self) -> int: ...
    @property
    def columns(self) -> int: ...
    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""

    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def is_temporary(self) -> bool: ...
    @property
    def read_count(self) -> int:
        """Reads left before a temporary matrix's storage is recycled."""

    @read_count.setter
    def read_count(self, value: SupportsIndex) -> None: ...
    @property
    def device(self) -> Device: ...
    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __dlpack__(self, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class ImageCopyToMatrix:
    """Images to rows of a matrix: image i to row origin[0] + i."""

    def __init__(
        self, layout: t.RowLayout = "CHW", *, origin: t.Shape = (0, 0), device: Device | None = None
    ) -> None: ...
    def __call__(self, x: Image, out: Matrix | None = None) -> Matrix:
        """Copy and wait."""

    def encode(
        self, command_buffer: CommandBuffer, x: Image, out: Matrix | None = None, temporary: bool = False
    ) -> Matrix:
        """The same on a command buffer; may be read when that has completed."""

    @property
    def layout(self) -> t.RowLayout: ...
    @property
    def origin(self) -> tuple[int, int]:
        """Row and column of the first value."""

    @property
    def device(self) -> Device: ...

class MatrixCopyToImage:
    """Rows of a matrix to images: row origin[0] + i to image i."""

    def __init__(
        self, layout: t.RowLayout = "CHW", *, origin: t.Shape = (0, 0), device: Device | None = None
    ) -> None: ...
    def __call__(self, x: Matrix, out: Image) -> Image:
        """Copy and wait."""

    def encode(self, command_buffer: CommandBuffer, x: Matrix, out: Image) -> Image:
        """The same on a command buffer; may be read when that has completed."""

    @property
    def layout(self) -> t.RowLayout: ...
    @property
    def origin(self) -> tuple[int, int]:
        """Row and column of the first value."""

    @property
    def device(self) -> Device: ...

# ---- data sources

class NeuronDescriptor:
    """An activation function and its parameters, to fuse into a kernel."""

    def __init__(
        self,
        type: t.ActivationName,
        a: t.Real | None = None,
        b: t.Real | None = None,
        c: t.Real | None = None,
        data: Iterable[SupportsFloat] = (),
    ) -> None: ...
    @property
    def type(self) -> t.NeuronType:
        """The function's name, in Apple's spelling."""

    @property
    def a(self) -> float:
        """First parameter of the formula."""

    @property
    def b(self) -> float:
        """Second parameter of the formula."""

    @property
    def c(self) -> float:
        """Third parameter of the formula."""

    @property
    def data(self) -> list[float]:
        """PReLU's slopes, one per channel."""

class BatchNorm:
    """Batch normalization in inference, folded into the weights of a convolution."""

    def __init__(
        self,
        mean: Iterable[SupportsFloat],
        variance: Iterable[SupportsFloat],
        gamma: Iterable[SupportsFloat],
        beta: Iterable[SupportsFloat],
        epsilon: t.Real = 1e-5,
    ) -> None: ...
    @property
    def mean(self) -> NDArray[np.float32]: ...
    @property
    def variance(self) -> NDArray[np.float32]: ...
    @property
    def gamma(self) -> NDArray[np.float32]: ...
    @property
    def beta(self) -> NDArray[np.float32]: ...
    @property
    def epsilon(self) -> float:
        """Added to the variance."""

class ConvolutionDescriptor:
    """Geometry of a convolution, for data sources."""

    def __init__(
        self,
        kernel_size: t.Pair,
        in_channels: SupportsIndex,
        out_channels: SupportsIndex,
        *,
        stride: t.Pair = 1,
        dilation: t.Pair = 1,
        groups: SupportsIndex = 1,
        depthwise: bool = False,
        sub_pixel_scale_factor: SupportsIndex = 1,
        activation: t.ActivationName | NeuronDescriptor | Kernel | None = None,
        batch_norm: BatchNorm | None = None,
    ) -> None: ...
    @property
    def kernel_size(self) -> tuple[int, int]:
        """Height and width, in pixels."""

    @property
    def in_channels(self) -> int:
        """Channels of the source, of all groups."""

    @property
    def out_channels(self) -> int:
        """Channels of the result, of all groups."""

    @property
    def stride(self) -> tuple[int, int]: ...
    @property
    def dilation(self) -> tuple[int, int]: ...
    @property
    def groups(self) -> int:
        """1 of a depth-wise convolution."""

    @property
    def depthwise(self) -> bool:
        """One filter per channel."""

    @property
    def sub_pixel_scale_factor(self) -> int:
        """Side of the square that replaces each pixel, in pixels."""

    @property
    def activation(self) -> NeuronDescriptor | None:
        """Activation applied to the result."""

    @property
    def batch_norm(self) -> BatchNorm | None:
        """Batch normalization folded into the weights."""

@final
class _DataSource:
    """The built-in data source, which serves an array."""

    def load(self) -> bool:
        """Make the weights available."""

    def purge(self) -> None:
        """Release the weights until the next load()."""

    @property
    def descriptor(self) -> ConvolutionDescriptor: ...
    @property
    def weights(self) -> NDArray[Any]:
        """Read-only, valid from load() to purge()."""

    @property
    def bias(self) -> NDArray[np.float32] | None: ...
    @property
    def ranges(self) -> NDArray[np.float32] | None: ...
    @property
    def lookup_table(self) -> NDArray[np.float32] | None: ...
    @property
    def kernel_dtype(self) -> Literal["float32", "float16"]:
        """Precision of the kernel's weights."""

    @property
    def label(self) -> str | None: ...

@final
class _NormalizationDataSource:
    """The built-in data source of normalization."""

    def load(self) -> bool:
        """Do nothing; the values are always available."""

    def purge(self) -> None:
        """The values are not needed until the next load()."""

    @property
    def channels(self) -> int: ...
    @property
    def gamma(self) -> NDArray[np.float32]: ...
    @property
    def beta(self) -> NDArray[np.float32] | None: ...
    @property
    def mean(self) -> NDArray[np.float32] | None: ...
    @property
    def variance(self) -> NDArray[np.float32] | None: ...
    @property
    def groups(self) -> int | None: ...
    @property
    def epsilon(self) -> float: ...
    @property
    def label(self) -> str | None: ...

# ---- states

class GradientState:
    """State that a forward kernel passes to its gradient kernel."""

    def __init__(self) -> None: ...
    @property
    def grad_weight(self) -> NDArray[Any]:
        """array, shape (O, kH, kW, I / groups), float32: with respect to the weights, in MPS's order; a view."""

    @property
    def grad_bias(self) -> NDArray[Any]:
        """array, shape (O,), float32: with respect to the biases; a view."""

    @property
    def grad_gamma(self) -> NDArray[Any]:
        """array, shape (C,), float32: with respect to gamma; a view."""

    @property
    def grad_beta(self) -> NDArray[Any]:
        """array, shape (C,), float32: with respect to beta; a view."""

    @property
    def encodes(self) -> int:
        """Forward encodes that share the state, one per chunk of a batch."""

    @property
    def device(self) -> Device:
        """The device."""

class BatchNormalizationState:
    """Mean and variance of a batch."""

    def __init__(self, channels: SupportsIndex, *, device: Device | None = None) -> None: ...
    @property
    def channels(self) -> int: ...
    @property
    def count(self) -> int:
        """Values per channel in the statistics encoded so far."""

    @property
    def mean(self) -> NDArray[np.float32]: ...
    @property
    def variance(self) -> NDArray[np.float32]: ...
    @property
    def grad_gamma(self) -> NDArray[Any]:
        """array, shape (C,), float32: a copy of the result of BatchNormalizationStatisticsGradient."""

    @property
    def grad_beta(self) -> NDArray[Any]:
        """array, shape (C,), float32: a copy of the result of BatchNormalizationStatisticsGradient."""

    def reset(self) -> None:
        """Start a new batch with the statistics that are encoded next."""

    @property
    def device(self) -> Device: ...

class _Optimizer:
    """The core of a mpscnn.Optimizer."""

    def __init__(self, name: str, options: Mapping[str, Any], device: Device | None = None) -> None: ...
    def _state_for(
        self, values: Buffer | ConvolutionWeightsAndBiasesState | NormalizationGammaAndBetaState
    ) -> OptimizerState: ...
    def _encode(
        self,
        command_buffer: CommandBuffer,
        gradient: Buffer | GradientState | BatchNormalizationState | Sequence[GradientState],
        state: OptimizerState,
    ) -> None: ...
    def _learning_rate(self) -> float: ...
    def _set_learning_rate(self, learning_rate: t.Real) -> None: ...
    @property
    def device(self) -> Device: ...

class OptimizerState:
    """Values and the state that an optimizer keeps for them."""

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the state arrays, by name, and time_step."""

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore a result of state_dict()."""

    @property
    def time_step(self) -> int:
        """Number of encoded steps."""

    @time_step.setter
    def time_step(self, value: SupportsIndex) -> None: ...
    @property
    def optimizer(self) -> Any:
        """The optimizer that made the state."""

    @property
    def values(self) -> Any:
        """The optimized values, as given."""

class ConvolutionWeightsAndBiasesState:
    """Weights and biases of a convolution in device memory."""

    def __init__(
        self,
        weights: Buffer | t.Array | t.Values,
        biases: Buffer | t.Values | None = None,
        *,
        device: Device | None = None,
    ) -> None: ...
    @property
    def weights(self) -> NDArray[np.float32]: ...
    @property
    def biases(self) -> NDArray[np.float32] | None: ...

class NormalizationGammaAndBetaState:
    """gamma and beta in device memory."""

    def __init__(self, gamma: Buffer | t.Values, beta: Buffer | t.Values, *, device: Device | None = None) -> None: ...
    @property
    def gamma(self) -> NDArray[np.float32]: ...
    @property
    def beta(self) -> NDArray[np.float32]: ...

class NormalizationMeanAndVarianceState:
    """Mean and variance in device memory."""

    def __init__(
        self, mean: Buffer | t.Values, variance: Buffer | t.Values, *, device: Device | None = None
    ) -> None: ...
    @property
    def mean(self) -> NDArray[np.float32]: ...
    @property
    def variance(self) -> NDArray[np.float32]: ...

# ---- kernels

class Kernel:
    """Base of all kernels."""

    def __init__(
        self, name: str, arguments: dict[str, Any] | Kernel | tuple[Kernel, int], device: Device | None = None
    ) -> None: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self,
        x: Image,
        *args: Image | BatchNormalizationState | GradientState,
        out: Image | None = None,
        state: BatchNormalizationState | GradientState | None = None,
        dtype: DTypeLike | None = None,
        with_state: Literal[False] = False,
    ) -> Image:
        """Run the kernel and wait."""

    @overload
    def __call__(
        self,
        x: t.Array,
        *args: t.Array | BatchNormalizationState | GradientState,
        out: None = None,
        state: BatchNormalizationState | GradientState | None = None,
        dtype: DTypeLike | None = None,
        with_state: Literal[False] = False,
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self,
        x: t.Array,
        *args: t.Array | BatchNormalizationState | GradientState,
        out: _Out,
        state: BatchNormalizationState | GradientState | None = None,
        dtype: None = None,
        with_state: Literal[False] = False,
    ) -> _Out: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self,
        x: Image,
        *args: Image,
        out: Image | None = None,
        state: None = None,
        dtype: DTypeLike | None = None,
        with_state: Literal[True] | GradientState,
    ) -> tuple[Image, GradientState]: ...
    @overload
    def __call__(
        self,
        x: t.Array,
        *args: t.Array,
        out: None = None,
        state: None = None,
        dtype: DTypeLike | None = None,
        with_state: Literal[True] | GradientState,
    ) -> tuple[NDArray[Any], GradientState]: ...
    @overload
    def __call__(
        self,
        x: t.Array,
        *args: t.Array,
        out: _Out,
        state: None = None,
        dtype: None = None,
        with_state: Literal[True] | GradientState,
    ) -> tuple[_Out, GradientState]: ...
    @overload
    def encode(
        self,
        command_buffer: CommandBuffer,
        x: Image,
        *args: Image | BatchNormalizationState | GradientState,
        out: Image | None = None,
        temporary: bool = False,
        state: BatchNormalizationState | GradientState | None = None,
        dtype: DTypeLike | None = None,
        with_state: Literal[False] = False,
    ) -> Image:
        """Append the kernel to a command buffer."""

    @overload
    def encode(
        self,
        command_buffer: CommandBuffer,
        x: Image,
        *args: Image,
        out: Image | None = None,
        temporary: bool = False,
        state: None = None,
        dtype: DTypeLike | None = None,
        with_state: Literal[True] | GradientState,
    ) -> tuple[Image, GradientState]: ...
    def export_weights(self, command_buffer: CommandBuffer) -> ConvolutionWeightsAndBiasesState:
        """Append an export of the kernel's weights to a command buffer."""

    def result_shape(self, shape: t.Shape4, *args: t.Shape4) -> tuple[int, int, int, int]:
        """Return (N, H, W, C) of the result for the shapes of the sources."""

    def reload(
        self,
        command_buffer: CommandBuffer | None = None,
        state: ConvolutionWeightsAndBiasesState
        | NormalizationGammaAndBetaState
        | NormalizationMeanAndVarianceState
        | BatchNormalizationState
        | None = None,
    ) -> None:
        """Reload the weights or values: from the data source, immediately, or from device memory."""

    def update(self, command_buffer: CommandBuffer, state: GradientState) -> None:
        """Encode new weights by the data source of a convolution's gradient kernel, and reload them."""

    def update_on_cpu(self, state: GradientState) -> None:
        """Update the weights by the data source of a convolution's gradient kernel, and reload them."""

    @property
    def data_source(self) -> Any:
        """Source of the weights: what was given, or the built-in data source; None without weights."""

    @property
    def device(self) -> Device: ...
    @property
    def neuron_descriptor(self) -> NeuronDescriptor | None:
        """Activation that a neuron kernel computes, or a kernel with weights applies to its result."""

    @property
    def _name(self) -> str:
        """Name of the row in the kernel table."""

    def _archived(self) -> Kernel: ...
    def _window(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        """kernel_size, stride and dilation, each (height, width)."""

    def _get(self, name: str, /) -> Any: ...
    def _set(self, name: str, value: Any, /) -> None: ...

class _Watch:
    """Arrays that may be pages of mapped files: see WatchedMemory."""

    def __init__(self, arrays: Iterable[Any]) -> None: ...
    def check_whole(self) -> None:
        """Raise RuntimeError if one was read beyond the end of its file."""

# ---- for the tests and benchmarks

def _address_of(object: t.Array) -> tuple[int, tuple[int, ...], tuple[int, ...], str, bool]: ...
def _view(object: t.Array) -> NDArray[Any]: ...
def _drop_on_thread(object: object) -> None: ...
def _memcpy_threads(target: t.Array, source: t.Array, threads: int) -> None: ...

# ---- networks

class _Network:
    """The core of a mpscnn.Network. Sources and outputs are numbers of values: inputs, then nodes."""

    def __init__(
        self,
        inputs: Sequence[tuple[str, int | None, int | None, int | None, str]],
        nodes: Sequence[tuple[str, Kernel | None, Sequence[int]]],
        outputs: Sequence[int],
        dtype: DTypeLike | None,
        device: Device | None = None,
    ) -> None: ...
    def call(
        self,
        arrays: Sequence[t.Array],
        outs: Sequence[t.Array | None] | None,
        input_layouts: Sequence[str],
        output_layouts: Sequence[str],
        output_shapes: Sequence[Sequence[int] | None],
    ) -> list[Any]:
        """Run it and wait; what is given in `outs` comes back."""

    def submit(
        self,
        arrays: Sequence[t.Array],
        outs: Sequence[t.Array | None] | None,
        input_layouts: Sequence[str],
        output_layouts: Sequence[str],
        output_shapes: Sequence[Sequence[int] | None],
        handler: Callable[[], object] | None = None,
    ) -> _NetworkCall:
        """Commit it; `handler()` is called when the work is done, on the queue's thread or on one that waits."""

    def encode(
        self, command_buffer: CommandBuffer, inputs: Sequence[Image], outputs: Sequence[Image | None]
    ) -> list[Image]:
        """Append it to a command buffer."""

    def shapes(self, inputs: Sequence[Sequence[int]]) -> list[tuple[int, int, int, int]]:
        """(N, H, W, C) of every value: inputs, then the result of each node."""

    def steps(self, inputs: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
        """The encodes, in order."""

    def images(self, inputs: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
        """Sources and destinations of the encodes; temporary unless an input or output."""

    def chunk_images(self, inputs: Sequence[Sequence[int]]) -> int:
        """The max number of images per command buffer; 0: batches cannot be divided."""

    @property
    def plans(self) -> int:
        """Number of cached plans, one per combination of input shapes."""

    @property
    def device(self) -> Device: ...

@final
class _NetworkCall:
    """A pending network call; made by `_Network.submit`."""

    def wait(self) -> list[Any]:
        """The results, when the work is done; raises RuntimeError when it failed."""

    @property
    def is_done(self) -> bool: ...

class _RunningStatistics:
    """Running mean and variance of a batch normalization."""

    def __init__(self, mean: Sequence[float] | NDArray[Any], variance: Sequence[float] | NDArray[Any]) -> None: ...
    @property
    def mean(self) -> NDArray[np.float32]: ...
    @property
    def variance(self) -> NDArray[np.float32]: ...
    @property
    def momentum(self) -> float | None: ...
    @momentum.setter
    def momentum(self, arg1: float | None) -> None: ...
    @property
    def tracked(self) -> int: ...
    @tracked.setter
    def tracked(self, arg1: int) -> None: ...

class _TrainingStep:
    """A committed training step; made by `_TrainingPlan.commit`."""

    @property
    def loss(self) -> float | None:
        """None until the plan has completed the step."""

    @property
    def outputs(self) -> list[Image]: ...
    @property
    def status(self) -> str: ...
    def wait(self) -> None: ...

class _TrainingPlan:
    """The encodes of a training step. Values and states are numbers; value 0 is the input, value 1 the output."""

    def __init__(
        self, output: tuple[int, int, int], max_channels: int, slots: int, device: Device | None = None
    ) -> None: ...
    def encode(
        self,
        kernel: Kernel,
        sources: Sequence[int],
        result: int | None = None,
        state: int | None = None,
        batch_states: Sequence[BatchNormalizationState] | None = None,
    ) -> int:
        """Append an encode; return its result."""

    def encode_with_state(self, kernel: Kernel, sources: Sequence[int], result: int | None = None) -> tuple[int, int]:
        """Append an encode that leaves a state for gradient kernels; return its result and the state."""

    def encode_state(self, kernel: Kernel, sources: Sequence[int], states: Sequence[BatchNormalizationState]) -> None:
        """Append an encode whose result is a state."""

    def allocate(self, like: int, channels: int, result: int | None = None) -> int:
        """Append a value with the extents of another, but other channels; return it."""

    def loss(self) -> int:
        """Append the loss of the output; return its gradient."""

    def update(
        self, state: OptimizerState, gradients: int | Sequence[BatchNormalizationState], reloaded: Sequence[Kernel]
    ) -> None:
        """Append the optimizer's step, and the reload of kernels."""

    def track(self, running: _RunningStatistics, states: Sequence[BatchNormalizationState]) -> None:
        """Add to running statistics when a step has completed."""

    def replace_kernel(self, before: Kernel, now: Kernel) -> None:
        """Encode another kernel in the place of one."""

    def chunks(self, images: int) -> list[int]:
        """The number of images of each chunk of a batch."""

    def commit(
        self,
        label: str,
        x: NDArray[Any],
        layout: t.ImageLayout,
        labels: Sequence[LossLabels],
        loss: _Loss,
        optimizer: _Optimizer,
    ) -> _TrainingStep:
        """Encode and commit a step on a batch."""

    def complete_first(self) -> _TrainingStep | None:
        """Wait for the first step in progress and return it; None if there is none."""

    @property
    def in_progress(self) -> int: ...

class _Profile:
    """Times of command buffers."""

    def __init__(self, per_kernel: bool) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def events(self) -> list[tuple[str, str, Literal["encode", "execute"], float, float, int, int]]:
        """(name, kernel, kind, start, end, command_buffer, thread) of each, in the order in which they ended."""
