# SPDX-License-Identifier: Apache-2.0
"""Types used in signatures: arrays, data sources, pairs. Not imported at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, SupportsFloat, SupportsIndex, TypeAlias, TypedDict

if TYPE_CHECKING:
    from .descriptors import ConvolutionDescriptor
    from .kernels import UnaryKernel


class SupportsDLPack(Protocol):
    """Object with the DLPack protocol, such as an array of PyTorch, JAX or NumPy: https://dmlc.github.io/dlpack."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        """Return a DLPack capsule of the tensor."""
        ...


class SupportsArrayInterface(Protocol):
    """Object with NumPy's array interface, version 3."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """Address, shape, strides and type."""
        ...


class SupportsBuffer(Protocol):
    """Object with the buffer protocol (PEP 688), such as memoryview, array.array or mmap."""

    def __buffer__(self, flags: int, /) -> memoryview:
        """Return a view of the memory."""
        ...


Array: TypeAlias = SupportsDLPack | SupportsArrayInterface | SupportsBuffer

# Short lists of numbers, such as a bias or ranges; lists and tuples are converted to float32.
Values: TypeAlias = Array | Sequence[SupportsFloat] | Sequence[Sequence[SupportsFloat]]


class WeightSource(Protocol):
    """Data source of a kernel: members may be attributes, properties or methods without arguments.

    `bias`, `ranges`, `lookup_table`, `kernel_dtype` and `label` are read too, if present.
    """

    @property
    def descriptor(self) -> ConvolutionDescriptor | Callable[[], ConvolutionDescriptor]:
        """Geometry of the kernel."""
        ...

    @property
    def weights(self) -> Array | Callable[[], Array]:
        """Weights in OHWI order, valid from load() to purge()."""
        ...

    def load(self) -> bool | None:
        """Make the weights available."""
        ...

    def purge(self) -> object:
        """Release the weights until the next load()."""
        ...


class NormalizationSource(Protocol):
    """Data source of a normalization kernel: members may be attributes, properties or methods without arguments.

    `beta`, `mean`, `variance`, `groups`, `epsilon` and `label` are read too, if present.
    """

    @property
    def channels(self) -> SupportsIndex | Callable[[], SupportsIndex]:
        """Channels of the source image."""
        ...

    @property
    def gamma(self) -> Array | Callable[[], Array] | None:
        """Factors, one float32 per channel, valid from load() to purge()."""
        ...

    def load(self) -> bool | None:
        """Make the values available."""
        ...

    def purge(self) -> object:
        """Release the values until the next load()."""
        ...


class PaddingPolicy(Protocol):
    """Padding policy of a kernel; `mpscnn.PaddingPolicy` is one."""

    @property
    def padding_method(self) -> Any:
        """Flags of MPSNNPaddingMethod: one name, or a tuple of them."""
        ...

    def destination(
        self,
        kernel: UnaryKernel,
        sources: list[tuple[int, int, int, int]],
        suggested: tuple[int, int, int, int],
        /,
    ) -> Any:
        """Return the shape of the result, or (shape, offset)."""
        ...


Real: TypeAlias = SupportsFloat | SupportsIndex

# (height, width), one number for both, or a list, whose length a type cannot express.
Pair: TypeAlias = SupportsIndex | tuple[SupportsIndex, SupportsIndex] | list[int]
Padding: TypeAlias = (
    Pair
    | tuple[tuple[SupportsIndex, SupportsIndex], tuple[SupportsIndex, SupportsIndex]]
    | list[list[int]]
    | Literal["same", "valid"]
    | PaddingPolicy
)
Offset: TypeAlias = tuple[SupportsIndex, SupportsIndex] | tuple[SupportsIndex, SupportsIndex, SupportsIndex] | list[int]
Extent3: TypeAlias = tuple[SupportsIndex, SupportsIndex, SupportsIndex] | list[int]
Region: TypeAlias = tuple[Extent3, Extent3] | list[list[int]]
Shape: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
Shape4: TypeAlias = tuple[SupportsIndex, SupportsIndex, SupportsIndex, SupportsIndex] | list[int]

ImageLayout: TypeAlias = Literal["NHWC", "NCHW"]
CommandBufferStatus: TypeAlias = Literal["not_enqueued", "enqueued", "committed", "scheduled", "completed", "error"]
RowLayout: TypeAlias = Literal["CHW", "HWC"]
AlphaType: TypeAlias = Literal["non_premultiplied", "alpha_is_one", "premultiplied"]
LossType: TypeAlias = Literal[
    "mean_absolute_error",
    "mean_squared_error",
    "softmax_cross_entropy",
    "sigmoid_cross_entropy",
    "categorical_cross_entropy",
    "hinge",
    "huber",
    "cosine_distance",
    "log",
    "kullback_leibler_divergence",
]
LossReduction: TypeAlias = Literal["none", "sum", "mean", "sum_by_nonzero_weights"]
# Labels and weights, nested as deep as their arrays have axes.
Nested: TypeAlias = Sequence[Any]
WeightLayout: TypeAlias = Literal["OIHW", "OHWI", "HWIO", "IOHW", "C1HW"]
NeuronType: TypeAlias = Literal[
    "none",
    "relu",
    "linear",
    "sigmoid",
    "hard_sigmoid",
    "tanh",
    "absolute",
    "softplus",
    "softsign",
    "elu",
    "prelu",
    "relun",
    "power",
    "exponential",
    "logarithm",
    "gelu",
]
# Apple's spellings above, and PyTorch's.
ActivationName: TypeAlias = NeuronType | Literal["identity", "leaky_relu", "hardsigmoid", "abs", "relu6", "exp", "log"]


class NeuronName(TypedDict):
    """A name of an activation function (csrc/include/mpscnn/table.hpp, NeuronName)."""

    name: ActivationName
    type: NeuronType
    parameters: int
    a: float
    b: float
    c: float


class Param(TypedDict):
    """A parameter of the kernel table (csrc/include/mpscnn/table.hpp, ParamSpec)."""

    name: str
    type: str
    default: str
    min: float | None
    max: float | None
    choices: list[str]
    unit: str
    apple: str
    summary: str
    attribute: bool


class Row(TypedDict):
    """A row of the kernel table (csrc/include/mpscnn/table.hpp, KernelRow)."""

    name: str
    apple_class: str
    family: str
    sources: list[str]
    attributes: int
    variant: int
    params: list[Param]
    positional: int
    shape: str
    result: str
    state: str
    gradient: str
    forward: str
    summary: str
    formula: str
    source: str
    macos: str
