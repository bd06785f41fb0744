# SPDX-License-Identifier: Apache-2.0
"""Compute functions in Metal's language, on images and buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

import numpy as np

from . import _checks, _core
from ._public import public
from .buffer import Buffer
from .device import CommandBuffer, Device
from .image import Image

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    Shapes = Sequence[SupportsIndex] | Mapping[str, Sequence[SupportsIndex]]

_SCALARS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32")

# Options of a sampler: the words of the language, the default first. Addresses have MTLSamplerAddressMode's values.
_ADDRESSES = {"clamp_to_edge": 0, "repeat": 2, "mirrored_repeat": 3, "clamp_to_zero": 4, "clamp_to_border": 5}
_SAMPLER_WORDS = {
    "coord": ("normalized", "pixel"),
    "filter": ("nearest", "linear"),
    "address": tuple(_ADDRESSES),
    "border_color": ("transparent_black", "opaque_black", "opaque_white"),
}

# Arguments of a network's node that are not the function's.
_NODE_OPTIONS = ("out_shape", "grid", "threadgroup")


@public
class MetalFunction(_core._MetalFunction):
    """A compute function in Metal's language, compiled for a device. `metal_function` makes one.

    ``f(x, params)`` takes the arguments of the source: textures, buffers, threadgroup memory and samplers, each by
    index, without the textures that the function only writes, which are the results. Any argument may be given by its
    name in the source.

    =========================  =======================================================================================
    argument in the source     value
    =========================  =======================================================================================
    texture2d_array, any       Image, or array of shape (N, H, W, C). Slice s of image n, channels 4 s to 4 s + 3, is
                               element n * slices + s of the texture's array
    texture2d                  the same, with N = 1 and C <= 4
    texture, access::write     a result: ``out``, or a new image of shape ``out_shape``
    texture, read_write        Image
    constant T&                number; array or scalar of NumPy, structured for a struct, of T's size in bytes
    constant T*, const device  array of NumPy, or Buffer
    device T*                  Buffer
    threadgroup T*             int, bytes
    sampler                    dict of the options of a sampler in the source: {"filter": "linear", "address":
                               "repeat"}. Also "coord", "s_address", "t_address", "border_color"
    =========================  =======================================================================================

    ``graph.add(f, x, params=...)`` makes it a layer of a network; see `Graph.add`. Pickles and ``copy.deepcopy`` have
    the source, and compile it again, for the default device.

    A struct's NumPy type has the offsets and the size of Metal's, which aligns vectors to their size, and vectors of
    three like vectors of four.

    Parameters
    ----------
    source, name, constants, macros, fast_math, device
        As those of `metal_function`.

    Raises
    ------
    ValueError, NotImplementedError
        As `metal_function`.

    Source
    ------
    Metal/MTLLibrary.h, MTLComputePipeline.h, MTLComputeCommandEncoder.h, MTLArgument.h.
    """

    __slots__ = ()

    def __init__(
        self,
        source: str,
        name: str,
        *,
        constants: Mapping[str, Any] | None = None,
        macros: Mapping[str, Any] | None = None,
        fast_math: bool = True,
        device: Device | None = None,
    ) -> None:
        defined = {name: str(value) for name, value in _items(macros, "macros")}
        values = {name: _constant(name, value) for name, value in _items(constants, "constants")}
        super().__init__(source, name, values, defined, fast_math, device)

    @property
    def arguments(self) -> tuple[_core._FunctionArgument, ...]:
        """The arguments, textures first: name, kind, access, index, nbytes, scalar, is_array."""
        return tuple(self._arguments)

    def __call__(
        self,
        *values: Any,
        out_shape: Shapes | None = None,
        out_dtype: DTypeLike | None = None,
        grid: Sequence[SupportsIndex] | None = None,
        threadgroup: Sequence[SupportsIndex] | None = None,
        **named: Any,
    ) -> Any:
        """Run the function and wait for its results.

        Parameters
        ----------
        *values, **named
            See the class.
        out_shape : (N, H, W, C), or dict of these by name, default the first texture's shape
        out_dtype : dtype, default the first texture's, or float32
            float32, float16, uint8 or uint16.
        grid : (x, y, z), threads, default the width, height and slices of the first result
        threadgroup : (x, y, z), threads, optional
            None: full rows of ``thread_execution_width`` threads, up to ``max_threads_per_threadgroup``.

        Returns
        -------
        array, shape (N, H, W, C), or Image if a texture was one; a tuple of several; None if nothing but buffers is
        written

        Raises
        ------
        TypeError
            "swish: the argument params is missing.", "swish: scale (str) is not a number or an array."
        ValueError
            "swish: params has 12 bytes, not a multiple of the 16 bytes of its type."
            "swish: grid is missing: the function has no result that it could be taken from."
        """
        takes_images = any(isinstance(value, Image) for value in (*values, *named.values()))
        with CommandBuffer(self.device) as commands:
            results = self.encode(
                commands,
                *values,
                out_shape=out_shape,
                out_dtype=out_dtype,
                grid=grid,
                threadgroup=threadgroup,
                **named,
            )
        if takes_images or results is None:
            return results
        return tuple(one.numpy() for one in results) if isinstance(results, tuple) else results.numpy()

    def encode(
        self,
        command_buffer: CommandBuffer,
        *values: Any,
        out: Image | Mapping[str, Image] | None = None,
        out_shape: Shapes | None = None,
        out_dtype: DTypeLike | None = None,
        grid: Sequence[SupportsIndex] | None = None,
        threadgroup: Sequence[SupportsIndex] | None = None,
        **named: Any,
    ) -> Any:
        """Append the function to a command buffer.

        Parameters
        ----------
        command_buffer : CommandBuffer
        out : Image, or dict of Images by name, optional
            Written in place and returned.
        others
            As in the call.

        Returns
        -------
        Image, tuple of Images, or None
        """
        given = self._given(values, named)
        results = self._results(given, out, out_shape, out_dtype)
        bound = [
            (place, results[one.name] if one.name in results else _value(self.name, one, given[one.name]))
            for place, one in enumerate(self.arguments)
        ]
        threads = self._grid(grid, results)
        group = self._group_for(threads) if threadgroup is None else _size("threadgroup", threadgroup)
        self._encode(command_buffer, bound, threads, group)
        images = tuple(results.values())
        return images if len(images) > 1 else images[0] if images else None

    def _given(self, values: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values by name, without those of results."""
        names = [one.name for one in self.arguments if not _is_result(one)]
        if len(values) > len(names):
            raise TypeError(f"{self.name}: {len(values)} arguments; the function takes {', '.join(names) or 'none'}.")
        given = dict(zip(names, values, strict=False))
        for name, value in named.items():
            if name not in names:
                raise TypeError(f'{self.name}: "{name}" is not one of its arguments ({", ".join(names) or "none"}).')
            if name in given:
                raise TypeError(f"{self.name}: {name} is given twice.")
            given[name] = value
        for name in names:
            if name not in given:
                raise TypeError(f"{self.name}: the argument {name} is missing.")
        return given

    def _results(
        self,
        given: dict[str, Any],
        out: Image | Mapping[str, Image] | None,
        out_shape: Shapes | None,
        out_dtype: DTypeLike | None,
    ) -> dict[str, Image]:
        """Return an image for each texture that the function only writes; `given` textures become images."""
        for one in self.arguments:
            if one.kind == "texture" and one.name in given:
                given[one.name] = _texture(self.name, one, given[one.name], self.device)
        wanted = None if out_dtype is None else _checks.dtype(out_dtype, "out_dtype")
        first = next((value for value in given.values() if isinstance(value, Image)), None)
        names = [one.name for one in self.arguments if _is_result(one)]
        outs = _by_name(self.name, "out", out, names, Image)
        shapes = _by_name(self.name, "out_shape", out_shape, names, Sequence)
        results = {}
        for name in names:
            if name in outs:
                results[name] = outs[name]
                continue
            shape = shapes.get(name, None if first is None else first.shape)
            if shape is None:
                raise TypeError(f"{self.name}: out_shape is missing: there is no texture that {name} could be like.")
            dtype = wanted or (np.float32 if first is None else first.dtype)
            results[name] = Image(list(_checks.integers(shape, "out_shape", 1)), dtype, device=self.device)
        return results

    def _grid(self, grid: Sequence[SupportsIndex] | None, results: Mapping[str, Image]) -> Sequence[int]:
        if grid is not None:
            return _size("grid", grid)
        if not results:
            raise ValueError(f"{self.name}: grid is missing: the function has no result that it could be taken from.")
        return self._threads_for(next(iter(results.values())).shape)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.device != Device():
            raise ValueError(
                f"device ({self.device!r}) is not the default device, on which a pickle is read back: make the function"
                " without device=."
            )
        source, name, constants, macros, fast_math = self._made_from
        values = {key: np.frombuffer(data, dtype)[0] for key, (dtype, data) in constants.items()}
        return _remade, (source, name, values, macros, fast_math)

    # ---- in a network

    @property
    def _sources(self) -> list[str]:
        """The textures that the function reads, which are the sources of a network's node."""
        return [one.name for one in self.arguments if one.kind == "texture" and not _is_result(one)]

    def _node_arguments(self, given: Mapping[str, Any], count: int) -> dict[str, Any]:
        """Return the arguments of a graph's node with `count` sources. Raise TypeError if names do not fit."""
        options, values = {name: given.get(name) for name in _NODE_OPTIONS}, dict(given)
        for name in _NODE_OPTIONS:
            values.pop(name, None)
            if name != "threadgroup" and options[name] is not None and not callable(options[name]):
                _checks.refuse(options[name], f"{self.name}: {name}", "a function of shapes")
        sources = self._sources
        if count != len(sources):
            raise TypeError(
                f"{self.name}: the number of sources ({count}) is not {len(sources)} ({', '.join(sources)})."
            )
        for name in values:
            if name in sources:
                raise TypeError(f"{self.name}: {name} is a texture: give the values of the graph in their order.")
        self._given((), {**dict.fromkeys(sources), **values})
        return {"function": self, "values": values, **{k: v for k, v in options.items() if v is not None}}

    def _layer(
        self,
        values: Mapping[str, Any],
        out_shape: Callable[..., Any] | None = None,
        grid: Callable[..., Any] | None = None,
        threadgroup: Sequence[SupportsIndex] | None = None,
    ) -> _core._FunctionLayer:
        """Return the core's layer for a node's arguments."""
        bound = [
            (place, _value(self.name, one, values[one.name]))
            for place, one in enumerate(self.arguments)
            if one.kind != "texture"
        ]

        def shape(sources: list[tuple[int, ...]]) -> tuple[int, ...]:
            answer = _checks.integers(cast(Any, out_shape)(*sources), f"{self.name}: the result of out_shape")
            if len(answer) != 4:
                raise ValueError(f"{self.name}: the result of out_shape {answer} is not a shape (N, H, W, C).")
            return answer

        def threads(result: tuple[int, ...]) -> tuple[int, int, int]:
            return _size(f"{self.name}: the result of grid", cast(Any, grid)(result))

        return _core._FunctionLayer(
            self,
            bound,
            None if out_shape is None else shape,
            None if grid is None else threads,
            None if threadgroup is None else _size("threadgroup", threadgroup),
        )


def metal_function(
    source: str,
    name: str,
    *,
    constants: Mapping[str, Any] | None = None,
    macros: Mapping[str, Any] | None = None,
    fast_math: bool = True,
    device: Device | None = None,
) -> MetalFunction:
    """Compile a compute function in Metal's language.

    On macOS Metal compiles it. On Linux a C++ compiler of the machine does, once: the result is kept on disk. The
    source is a program, which runs with the rights of the process: do not compile text that you do not trust. Model
    files cannot contain one.

    Parameters
    ----------
    source : str
        One or more functions. ``#include <metal_stdlib>`` and ``using namespace metal`` as usual.
    name : str
        The ``kernel`` function to run.
    constants : dict of numbers by name, optional
        Values of ``[[function_constant(n)]]``: bool, int (as int32) and float (as float32), or NumPy scalars of the
        declared type, such as ``np.uint16(3)``.
    macros : dict by name, optional
        Preprocessor macros.
    fast_math : bool, default True
        Whether the compiler may reorder sums and ignore NaN, as Metal does by default.
    device : Device, default Device()

    Returns
    -------
    MetalFunction

    Raises
    ------
    ValueError
        "metal_function: the source does not compile: ..." with the compiler's words and lines of `source`;
        'metal_function: name ("swish") is not a function of the source, which has "relu".'
    NotImplementedError
        There is no compiler; the message says which are looked for.

    Source
    ------
    Metal/MTLLibrary.h, MTLComputePipeline.h, MTLComputeCommandEncoder.h.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> source = '''
    ... #include <metal_stdlib>
    ... using namespace metal;
    ... kernel void swish(texture2d_array<float, access::read> x [[texture(0)]],
    ...                   texture2d_array<float, access::write> y [[texture(1)]],
    ...                   constant float& beta [[buffer(0)]],
    ...                   uint3 gid [[thread_position_in_grid]]) {
    ...     float4 v = x.read(gid.xy, gid.z);
    ...     y.write(v / (1.0f + exp(-beta * v)), gid.xy, gid.z);
    ... }
    ... '''
    >>> swish = mpscnn.metal_function(source, "swish")
    >>> y = swish(np.full((1, 2, 3, 8), 2, np.float32), 1.0)
    >>> y.shape, round(float(y[0, 0, 0, 0]), 4)
    ((1, 2, 3, 8), 1.7616)
    """
    return MetalFunction(source, name, constants=constants, macros=macros, fast_math=fast_math, device=device)


def _remade(
    source: str, name: str, constants: dict[str, Any], macros: dict[str, str], fast_math: bool
) -> MetalFunction:
    return MetalFunction(source, name, constants=constants, macros=macros, fast_math=fast_math)


def _is_result(one: _core._FunctionArgument) -> bool:
    return one.kind == "texture" and one.access == "write"


def _items(value: Mapping[str, Any] | None, name: str) -> Iterable[tuple[str, Any]]:
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        _checks.refuse(value, name, "a dict")
    return ((str(key), one) for key, one in value.items())


def _constant(name: str, value: Any) -> tuple[str, bytes]:
    """Return the dtype and the bytes of a function constant."""
    if isinstance(value, np.generic):
        array = np.asarray(value)
    elif isinstance(value, bool):
        array = np.asarray(value, np.bool_)
    elif isinstance(value, int):
        array = np.asarray(_checks.integer(value, f"constants[{name!r}]", -(2**31), 2**31 - 1), np.int32)
    elif isinstance(value, float):
        array = np.asarray(value, np.float32)
    else:
        array = np.asarray(value)
    if array.ndim != 0 or array.dtype.name not in _SCALARS:
        _checks.refuse(value, f"metal_function: constants[{name!r}]", "a number of one of Metal's types")
    return array.dtype.name, array.tobytes()


def _texture(who: str, one: _core._FunctionArgument, value: Any, device: Device) -> Image:
    if isinstance(value, Image):
        return value
    if one.access == "read_write":
        raise TypeError(f"{who}: {one.name} ({type(value).__name__}) is not an Image, which the function writes to.")
    if not hasattr(value, "ndim"):
        _checks.refuse(value, f"{who}: {one.name}", "an Image or an array")
    return Image.from_array(value, device=device)


def _value(who: str, one: _core._FunctionArgument, value: Any) -> Any:
    """Return the value of an argument as the core takes it.

    Image, Buffer, bytes, an int for threadgroup memory, or a tuple for a sampler.
    """
    if one.kind == "texture":
        return value
    if one.kind == "sampler":
        return _sampler(f"{who}: {one.name}", value)
    if one.kind == "threadgroup":
        return _checks.integer(value, f"{who}: {one.name}", 16)
    if isinstance(value, Buffer):
        return value
    if one.access != "read":
        raise TypeError(f"{who}: {one.name} ({type(value).__name__}) is not a Buffer, which the function writes to.")
    bytes_ = _bytes(who, one, value)
    if len(bytes_) == 0 or len(bytes_) % max(1, one.nbytes):
        raise ValueError(
            f"{who}: {one.name} has {len(bytes_)} bytes, not a multiple of the {one.nbytes} bytes of its type."
        )
    return bytes_


def _sampler(who: str, value: Any) -> tuple[bool, bool, int, int, int]:
    """Return a sampler's (coordinates in pixels, linear, addresses of x and y, border) from a dict of its options."""
    if not isinstance(value, Mapping):
        _checks.refuse(value, who, "a dict of a sampler's options")
    chosen = {name: words[0] for name, words in _SAMPLER_WORDS.items()}
    for name, word in value.items():
        words = _SAMPLER_WORDS.get("address" if name in ("s_address", "t_address") else name)
        if words is None:
            known = ", ".join((*_SAMPLER_WORDS, "s_address", "t_address"))
            raise ValueError(f'{who}: "{name}" is not an option of a sampler ({known}).')
        if word not in words:
            listed = ", ".join(f'"{one}"' for one in words)
            raise ValueError(f'{who}: {name} ("{word}") is not one of {listed}.')
        chosen[name] = word
    address = [_ADDRESSES[chosen.get(name, chosen["address"])] for name in ("s_address", "t_address")]
    if chosen["coord"] == "pixel" and set(address) & {_ADDRESSES["repeat"], _ADDRESSES["mirrored_repeat"]}:
        raise ValueError(f'{who}: coord ("pixel") does not go with an address that repeats the texture.')
    border = _SAMPLER_WORDS["border_color"].index(chosen["border_color"])
    return chosen["coord"] == "pixel", chosen["filter"] == "linear", address[0], address[1], border


def _bytes(who: str, one: _core._FunctionArgument, value: Any) -> bytes:
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
    elif isinstance(value, (bool, int, float)):
        if not one.scalar:
            _checks.refuse(value, f"{who}: {one.name}", "an array, as its type needs")
        array = np.asarray(value)
        wanted = np.dtype(one.scalar)
        if wanted.kind in "iu":
            limits = np.iinfo(wanted)
            _checks.integer(value, f"{who}: {one.name}", int(limits.min), int(limits.max))
        array = array.astype(wanted)
    elif isinstance(value, (bytes, bytearray)):
        return bytes(value)
    else:
        _checks.refuse(value, f"{who}: {one.name}", "a number or an array")
    if array.dtype.hasobject:
        raise TypeError(f"{who}: {one.name}.dtype ({array.dtype}) has Python objects.")
    if one.scalar and array.dtype.kind in "fiub" and array.dtype != np.dtype(one.scalar):
        raise TypeError(f"{who}: {one.name}.dtype ({array.dtype}) is not {one.scalar}, that of the source.")
    return np.ascontiguousarray(array).tobytes()


def _by_name(who: str, what: str, value: Any, names: Sequence[str], kind: type) -> dict[str, Any]:
    """Return `value` by name of the result: it is for the only result, or a dict."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        for name in value:
            if name not in names:
                raise ValueError(f'{who}: {what} has "{name}", which is not a result ({", ".join(names) or "none"}).')
        return dict(value)
    if len(names) != 1:
        raise TypeError(f"{who}: {what} ({type(value).__name__}) is not a dict: the results are {', '.join(names)}.")
    if not isinstance(value, kind):
        _checks.refuse(value, f"{who}: {what}", "an Image" if kind is Image else "a shape (N, H, W, C)")
    return {names[0]: value}


def _size(name: str, value: Sequence[SupportsIndex]) -> tuple[int, int, int]:
    sizes = _checks.integers(value, name, 1)
    if len(sizes) > 3 or not sizes:
        raise ValueError(f"len({name}) ({len(sizes)}) is not 1, 2 or 3 (x, y, z).")
    padded = (*sizes, 1, 1)
    return padded[0], padded[1], padded[2]
