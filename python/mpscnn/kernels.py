# SPDX-License-Identifier: Apache-2.0
"""One class per row of the kernel table, with its signature, attributes and docstring."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, overload

from . import _checks, _core, _docs
from ._public import in_c, public
from .states import (
    BatchNormalizationState,
    ConvolutionWeightsAndBiasesState,
    NormalizationGammaAndBetaState,
    NormalizationMeanAndVarianceState,
)

if TYPE_CHECKING:
    from typing import Literal, TypeVar

    from numpy.typing import DTypeLike, NDArray
    from typing_extensions import Self

    from . import _typing as t
    from ._typing import Param, Row
    from .device import CommandBuffer, Device
    from .image import Image
    from .states import GradientState

    _Out = TypeVar("_Out", bound=t.Array)

_RELOADED = (
    ConvolutionWeightsAndBiasesState,
    NormalizationGammaAndBetaState,
    NormalizationMeanAndVarianceState,
    BatchNormalizationState,
)
_TABLE: list[Row] = _core.kernel_table()
_BY_NAME = {row["name"]: row for row in _TABLE}
# Parameters that all kernels share, by number of sources.
_COMMON: dict[int, list[Param]] = {count: _core.common_params(count) for count in (1, 2)}
_COMMON_DOCS = {count: {spec["name"]: _docs.parameter(spec) for spec in specs} for count, specs in _COMMON.items()}


def _default(spec: Param) -> Any:
    return ast.literal_eval(spec["default"]) if spec["default"] else inspect.Parameter.empty


def _common(row: Row) -> list[Param]:
    """Return the shared parameters of a row, except those for which it has its own."""
    own = {spec["name"] for spec in row["params"]}
    return [spec for spec in _COMMON[row["attributes"]] if spec["name"] not in own]


def _signature(row: Row) -> inspect.Signature:
    parameters = []
    for index, spec in enumerate(row["params"] + _common(row)):
        by_position = index < row["positional"]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if by_position else inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(spec["name"], kind, default=_default(spec)))
    device = inspect.Parameter("device", inspect.Parameter.KEYWORD_ONLY, default=None)
    return inspect.Signature([*parameters, device])


def _attribute(spec: Param) -> property:
    name = spec["name"]

    def get(self: _core._Kernel) -> Any:
        value = self._get(name)
        return _default(spec) if value is None else value

    def set(self: _core._Kernel, value: Any) -> None:
        self._set(name, value)

    return property(get, set, doc=_docs.parameter(spec))


@public
class Kernel(_core._Kernel):
    """Base class of all kernels, with calls, encoding and common properties.

    ``mpscnn.kernel(name)`` returns a kernel's class by name; ``apple_class`` is Apple's name of the class. Make a
    kernel once and reuse it. Several threads may use it, each with its own command buffer.

    ``copy.copy(kernel)`` shares the weights and the data source. A pickle contains the kernel's arguments, with the
    current values of arrays and data sources, and the properties set since. It can be loaded on any platform, and uses
    the default device.

    Source
    ------
    MPSNeuralNetwork/MPSCNNKernel.h.
    """

    apple_class: ClassVar[str]

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self,
        x: Image,
        *others: Image | BatchNormalizationState | GradientState,
        out: Image | None = None,
        state: BatchNormalizationState | GradientState | None = None,
        dtype: DTypeLike | None = None,
        with_state: Literal[False] = False,
    ) -> Image: ...
    @overload
    def __call__(
        self,
        x: t.Array,
        *others: t.Array | BatchNormalizationState | GradientState,
        out: None = None,
        state: BatchNormalizationState | GradientState | None = None,
        dtype: DTypeLike | None = None,
        with_state: Literal[False] = False,
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self,
        x: t.Array,
        *others: t.Array | BatchNormalizationState | GradientState,
        out: _Out,
        state: BatchNormalizationState | GradientState | None = None,
        dtype: None = None,
        with_state: Literal[False] = False,
    ) -> _Out: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self,
        x: Image,
        *others: Image,
        out: Image | None = None,
        state: None = None,
        dtype: DTypeLike | None = None,
        with_state: Literal[True] | GradientState,
    ) -> tuple[Image, GradientState]: ...
    @overload
    def __call__(
        self,
        x: t.Array,
        *others: t.Array,
        out: None = None,
        state: None = None,
        dtype: DTypeLike | None = None,
        with_state: Literal[True] | GradientState,
    ) -> tuple[NDArray[Any], GradientState]: ...
    @overload
    def __call__(
        self,
        x: t.Array,
        *others: t.Array,
        out: _Out,
        state: None = None,
        dtype: None = None,
        with_state: Literal[True] | GradientState,
    ) -> tuple[_Out, GradientState]: ...
    @in_c(_core._Kernel.__call__)
    def __call__(
        self,
        x: Any,
        *others: Any,
        out: Any = None,
        state: Any = None,
        dtype: Any = None,
        with_state: Any = False,
    ) -> Any:
        """Run the kernel and wait for the result.

        Parameters
        ----------
        x : array, shape (N, H, W, C), or Image
            float32, float16, uint8 or uint16. Not copied if its memory can be shared.
        *others : arrays or Images, as x is
            Further sources of kernels that have several, in the order of their docstring.
        out : array or Image like the result, optional
            Written in place and returned; with ``clip_rect`` only that region is written.
        state : BatchNormalizationState or GradientState, optional
            For kernels whose docstring has a section "State"; can also be passed by position, after the sources.
        dtype : dtype, optional
            Dtype of the result; default: that of x.
        with_state : bool or GradientState, default False
            True: return (result, GradientState), with a new state for ``kernel.gradient``, if the kernel has a
            gradient. A GradientState of an earlier encode of this convolution: use it again, for another chunk of the
            same batch. Gradients with respect to weights and biases are summed over the chunks.

        Returns
        -------
        array or Image, as x is, or BatchNormalizationState; with ``with_state`` (result, GradientState)
        """

    @overload
    def encode(
        self,
        command_buffer: CommandBuffer,
        x: Image,
        *others: Image | BatchNormalizationState | GradientState,
        out: Image | None = None,
        temporary: bool = False,
        state: BatchNormalizationState | GradientState | None = None,
        dtype: DTypeLike | None = None,
        with_state: Literal[False] = False,
    ) -> Image: ...
    @overload
    def encode(
        self,
        command_buffer: CommandBuffer,
        x: Image,
        *others: Image,
        out: Image | None = None,
        temporary: bool = False,
        state: None = None,
        dtype: DTypeLike | None = None,
        with_state: Literal[True] | GradientState,
    ) -> tuple[Image, GradientState]: ...
    @in_c(_core._Kernel.encode)
    def encode(
        self,
        command_buffer: Any,
        x: Any,
        *others: Any,
        out: Any = None,
        temporary: Any = False,
        state: Any = None,
        dtype: Any = None,
        with_state: Any = False,
    ) -> Any:
        """Append the kernel to a command buffer.

        Parameters
        ----------
        command_buffer : CommandBuffer
            Not committed yet.
        x : Image
        *others : Image
            Further sources of kernels that have several, in the order of their docstring.
        out : Image, optional
            Destination; None: a new image.
        temporary : bool, default False
            True: only kernels on this command buffer can read the result, as many times as its read_count (1).
        state : BatchNormalizationState or GradientState, optional
            For kernels whose docstring has a section "State"; can also be passed by position, after the sources.
        dtype : dtype, optional
            Dtype of the result; default: that of x.
        with_state : bool or GradientState, default False
            True: return (result, GradientState), with a new state for ``kernel.gradient``, if the kernel has a
            gradient. A GradientState of an earlier encode of this convolution: use it again, for another chunk of the
            same batch. Gradients with respect to weights and biases are summed over the chunks.

        Returns
        -------
        Image or BatchNormalizationState; with ``with_state`` (result, GradientState)
            May be read when the command buffer has completed.
        """

    def __init__(self, name: str, arguments: dict[str, Any], device: Device | None = None) -> None:
        super().__init__(name, arguments, device)

    def result_shape(self, shape: t.Shape4, *others: t.Shape4) -> tuple[int, int, int, int]:
        """Return (N, H, W, C) of the result for the shapes of the sources."""
        return self._result_shape(shape, *others)

    def reload(
        self,
        command_buffer: CommandBuffer | None = None,
        state: ConvolutionWeightsAndBiasesState
        | NormalizationGammaAndBetaState
        | NormalizationMeanAndVarianceState
        | BatchNormalizationState
        | None = None,
    ) -> None:
        """Reload the weights or values immediately from the data source, or encode a reload from a state.

        Parameters
        ----------
        command_buffer : CommandBuffer, optional
            Required with ``state``. Kernels that are encoded later use the state's values at this point of execution.
        state : ConvolutionWeightsAndBiasesState or a state of normalization, optional
            NormalizationGammaAndBetaState, NormalizationMeanAndVarianceState or BatchNormalizationState, of which mean
            and variance are read.
        """
        if state is not None:
            _checks.instance_of(state, "state", *_RELOADED)
        self._reload(command_buffer, state)

    def export_weights(self, command_buffer: CommandBuffer) -> ConvolutionWeightsAndBiasesState:
        """Append an export of the kernel's weights to a command buffer.

        Parameters
        ----------
        command_buffer : CommandBuffer
            Not committed yet.

        Returns
        -------
        ConvolutionWeightsAndBiasesState
            float32, in MPS's order, with batch normalization folded in, and rounded as in the kernel. Can be read when
            the command buffer has completed.
        """
        return self._export_weights(command_buffer)

    def update(self, command_buffer: CommandBuffer, state: GradientState) -> None:
        """Encode an update of a convolution's weights by its data source, and their reload; for gradient kernels.

        Calls ``update(command_buffer, state, weights)`` of the data source, where weights are the current ones
        (``export_weights()``). If it returns a ConvolutionWeightsAndBiasesState, this kernel and its forward kernel are
        reloaded from it on the command buffer; if it returns None, nothing is reloaded.

        Parameters
        ----------
        command_buffer : CommandBuffer
            Not committed yet.
        state : GradientState
            State of a forward encode; the gradients with respect to the weights must already be encoded.

        Raises
        ------
        Any exception of the data source, and
        TypeError
            "ConvolutionGradient: the data source has no update()."
            "data source: update() returned 3, which is not a ConvolutionWeightsAndBiasesState or None."
        RuntimeError
            "ConvolutionGradient: no gradient kernel that computes grad_weight has been encoded with state."
        """
        self._update(command_buffer, state)

    def update_on_cpu(self, state: GradientState) -> None:
        """Update a convolution's weights by its data source, and reload them; for gradient kernels.

        Calls ``update_on_cpu(state, weights)`` of the data source, where weights are a copy of the current ones. Unless
        it returns False, this kernel and its forward kernel are then reloaded from the data source.

        Parameters
        ----------
        state : GradientState
            The command buffers that compute its gradients must have completed.

        Raises
        ------
        Any exception of the data source, and
        TypeError
            "ConvolutionGradient: the data source has no update_on_cpu()."
            "data source: update_on_cpu() returned 1, which is not True, False or None."
        RuntimeError
            The gradients have not been computed yet.
        """
        self._update_on_cpu(state)

    @property
    def data_source(self) -> Any:
        """Data source of the weights: the given one, or the one made for given arrays; None without weights."""
        return self._data_source

    @property
    def gradients(self) -> tuple[Any, ...]:
        """Kernels that compute the gradient with respect to each source, in order, and to the parameters.

        They are made on first access, and use the properties set on this kernel.

        Raises
        ------
        TypeError
            "NeuronGradient: the kernel has no gradient kernel."
        NotImplementedError
            "MPSCNNPoolingMaxGradient is not implemented yet."

        Source
        ------
        MPSNeuralNetwork/MPSCNNKernel.h, MPSCNNGradientKernel.
        """
        made: tuple[Kernel, ...] | None = self.__dict__.get("_gradients")
        if made is None:
            row = _BY_NAME[self._name]
            made = tuple(_gradient(self, row, source) for source in range(len(row["sources"])))
            self.__dict__["_gradients"] = made
        return made

    @property
    def gradient(self) -> Any:
        """The kernel that computes the gradient with respect to the source; for several sources see ``gradients``.

        ``kernel.gradient(grad_y, x, state)``, with the state of ``y, state = kernel(x, with_state=True)``.

        Raises
        ------
        TypeError
            "Add: the kernel has 2 sources; see gradients.", and as in ``gradients``.
        NotImplementedError
            As in ``gradients``.
        """
        count = len(_BY_NAME[self._name]["sources"])
        if count > 1 and self._has_gradient():
            raise TypeError(f"{type(self).__name__}: the kernel has {count} sources; see gradients.")
        return self.gradients[0]

    def _has_gradient(self) -> bool:
        row = _BY_NAME[self._name]
        return bool(row["gradient"]) and not row["forward"]

    def __copy__(self) -> Self:
        copied = type(self).__new__(type(self))
        _core._Kernel.__init__(copied, type(self).__name__, self, None)
        copied.__dict__.update(self.__dict__)
        copied.__dict__.pop("_gradients", None)
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        own = dict(self.__dict__)
        own.pop("_gradients", None)
        arguments = own.pop("_arguments")
        row = row_of(type(self))
        settable = [spec["name"] for spec in row["params"] + _common(row) if spec["attribute"]]
        values = {name: self._get(name) for name in settable}
        given = {name: value for name, value in values.items() if value is not None}
        return _restore, (type(self), row["name"], arguments, given, own)


def _gradient(forward: Kernel, row: Row, source: int) -> Kernel:
    """Return a gradient kernel. For pickles, its arguments are those of the forward kernel."""
    name = row["gradient"]
    kind = next((other for other in KERNELS.values() if other.apple_class == name), None)
    if kind is None or not forward._has_gradient():  # the constructor raises the more specific error
        _core._Kernel.__init__(forward.__class__.__new__(forward.__class__), row["name"], (forward, source), None)
        raise NotImplementedError(f"{name} is not implemented yet.")
    made = kind.__new__(kind)
    _core._Kernel.__init__(made, name, (forward, source), None)
    arguments: dict[str, Any] = {"activation": forward.neuron_descriptor}
    if row_of(kind)["forward"]:
        set_since = {spec["name"]: forward._get(spec["name"]) for spec in _common(row)}
        arguments = {**forward.__dict__["_arguments"], **{key: value for key, value in set_since.items() if value}}
        if len(row["sources"]) > 1:
            arguments["of"] = row["sources"][source]
    made.__dict__["_arguments"] = arguments
    return made


def _restore(
    kind: type[Kernel], name: str, arguments: dict[str, Any], attributes: dict[str, Any], own: dict[str, Any]
) -> Kernel:
    """Restore a pickled kernel. Constructors of derived classes are not called again."""
    kernel = kind.__new__(kind)
    _core._Kernel.__init__(kernel, name, arguments, None)
    kernel.__dict__.update(own, _arguments=arguments)
    for attribute, value in attributes.items():
        kernel._set(attribute, value)
    return kernel


class UnaryKernel(Kernel):
    """Base class of kernels with one source: ``kernel(x)``.

    Source
    ------
    MPSNeuralNetwork/MPSCNNKernel.h, MPSCNNKernel.
    """

    @property
    def kernel_size(self) -> tuple[int, int]:
        """(height, width) of the window, in taps; (1, 1) without a window. Apple: kernelHeight, kernelWidth."""
        return self._window()[0]

    @property
    def stride(self) -> tuple[int, int]:
        """(height, width), step of the window in source pixels; in result pixels for a transposed convolution."""
        return self._window()[1]

    @property
    def dilation(self) -> tuple[int, int]:
        """(height, width), spacing of the taps in pixels. Apple: dilationRateY, dilationRateX."""
        return self._window()[2]


class BinaryKernel(Kernel):
    """Base class of kernels with two sources by position: ``kernel(a, b)``, ``kernel.encode(command_buffer, a, b)``.

    Properties of one source have "primary" (the first) or "secondary" in their names, like Apple's.

    Source
    ------
    MPSNeuralNetwork/MPSCNNKernel.h, MPSCNNBinaryKernel.
    """


class GradientKernel(Kernel):
    """Base class of gradient kernels, made from a forward kernel: ``kernel.gradient(grad_y, x, state)``.

    The result is the gradient with respect to x, in the shape of x. Window, weights and properties are those of the
    forward kernel, except the label, the precision and the destination. ``state`` is the state of the forward encode;
    without one the forward kernel's current geometry is used, and no gradient with respect to parameters is computed.

    Source
    ------
    MPSNeuralNetwork/MPSCNNKernel.h, MPSCNNGradientKernel.
    """


_BASES: dict[int, type[Kernel]] = {1: UnaryKernel, 2: BinaryKernel}

for _count, _specs in _COMMON.items():
    for _spec in _specs:
        _shared = all(_spec in other for other in _COMMON.values())
        setattr(Kernel if _shared else _BASES[_count], _spec["name"], _attribute(_spec))


class _LazyInit:
    """Descriptor that makes `__init__` on first access; making all signatures would take a fifth of the import time."""

    def __init__(self, row: Row) -> None:
        self._make = cache(lambda: _make_init(row))

    def __get__(self, instance: object, owner: type) -> Any:
        return self._make().__get__(instance, owner)


def _make_init(row: Row) -> Callable[..., None]:
    name, signature = row["name"], _signature(row)
    binder = _checks.Binder(signature)

    def __init__(self: Kernel, *args: Any, **kwargs: Any) -> None:
        try:
            arguments = binder.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}: {error}.") from None
        device = arguments.pop("device", None)
        _core._Kernel.__init__(self, name, arguments, device)
        self.__dict__["_arguments"] = arguments

    receiver = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = signature.replace(parameters=[receiver, *signature.parameters.values()])  # type: ignore[attr-defined]
    return __init__


def _make_class(row: Row) -> type[Kernel]:
    name = row["name"]

    def __repr__(self: Kernel) -> str:
        # Tracebacks may show objects whose __init__ has failed and that have no kernel.
        if "_arguments" not in self.__dict__:
            return f"<mpscnn.{name}, not made>"
        label = f' "{self.label}"' if self.label else ""  # type: ignore[attr-defined]
        return f"<mpscnn.{name}{label}>"

    def __setattr__(self: Kernel, attribute: str, value: Any) -> None:
        # Reject misspelt properties, which would have no effect. Derived classes may add attributes.
        if type(self) is KERNELS[name] and not hasattr(type(self), attribute):
            raise AttributeError(f'{name} has no attribute "{attribute}".')
        object.__setattr__(self, attribute, value)

    members: dict[str, Any] = {
        "__init__": _LazyInit(row),
        "__repr__": __repr__,
        "__setattr__": __setattr__,
        "__doc__": _docs.kernel(row, [_COMMON_DOCS[row["attributes"]][spec["name"]] for spec in _common(row)]),
        "__module__": "mpscnn",
        "apple_class": row["apple_class"],
    }
    if not row["forward"]:
        return type(name, (_BASES[len(row["sources"])],), members)
    for spec in row["params"] + _common(row):
        if spec["attribute"] and not hasattr(Kernel, spec["name"]):
            members[spec["name"]] = _attribute(spec)
    return type(name, (GradientKernel,), members)


KERNELS: dict[str, type[Kernel]] = {row["name"]: _make_class(row) for row in _TABLE}
globals().update(KERNELS)

# kernels.pyi lists the classes by name.
__all__ = ["BinaryKernel", "GradientKernel", "Kernel", "UnaryKernel", "kernel", *KERNELS]


def row_of(kind: type[Kernel]) -> Row:
    """Return the row of a kernel's class or of a class derived from one."""
    return next(row for row in _TABLE if row["apple_class"] == kind.apple_class)


def kernel(name: str) -> type[Kernel]:
    """Return the class of a kernel by Apple's name or Python's.

    Parameters
    ----------
    name : str
        "MPSCNNConvolution" or "Convolution".

    Returns
    -------
    class, derived from Kernel

    Raises
    ------
    NotImplementedError
        "MPSCNNPoolingMax is not implemented yet." for an Apple class without a kernel in mpscnn.
    KeyError
        'there is no kernel "PoolMax".' for any other name.
    TypeError
        "name (int) is not a str."

    Source
    ------
    csrc/table/kernels.cpp, the kernel table.

    Examples
    --------
    >>> import mpscnn
    >>> mpscnn.kernel("MPSCNNNeuronReLU") is mpscnn.NeuronReLU
    True
    """
    if not isinstance(name, str):
        raise TypeError(f"name ({type(name).__name__}) is not a str.")
    for row in _TABLE:
        if name in (row["name"], row["apple_class"]):
            return KERNELS[row["name"]]
    if name.startswith(("MPSCNN", "MPSNN")):
        raise NotImplementedError(f"{name} is not implemented yet.")
    raise KeyError(f'there is no kernel "{name}".')
