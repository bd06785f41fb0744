# SPDX-License-Identifier: Apache-2.0
"""Files of weights as mappings of names to arrays: safetensors, .npz, PyTorch's .pt and .pth, raw .bin.

Every size is checked against the file's before memory is allocated or a view is made, no code of a file is run, and
every error of a file raises a subclass of `mpscnn.ImportError`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from .. import errors
from ..errors import InvalidModelError, MissingPackageError
from .mapped_files import content, opened, read_file

if TYPE_CHECKING:
    import zipfile
    from pathlib import Path  # in load(), because importing it takes a tenth of the time of mpscnn.load()

HEADER_LIMIT = 100_000_000  # bytes; the safetensors package rejects longer headers as well
TEXT_LIMIT = 64 << 20  # bytes of an index or a config.json
ARRAYS_LIMIT = 100_000  # arrays of a safetensors file: a second to check
NPZ_LIMIT = 10_000  # arrays of an .npz file; all are opened, which takes a second
RANK_LIMIT = 32  # axes of a NumPy array, before NumPy 2
EXTENT_LIMIT = 2**31 - 1
INFLATION_LIMIT = 100  # times the size of the archive
INFLATION_FREE = 64 << 20  # bytes to which INFLATION_LIMIT does not apply

# https://github.com/huggingface/safetensors#format. No kernel accepts floats of eight bits or fewer.
SAFETENSORS_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "bfloat16",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
}
# By the names of NumPy's and ml_dtypes' types.
WRITTEN_DTYPES = {
    "bfloat16" if dtype == "bfloat16" else np.dtype(dtype).name: name for name, dtype in SAFETENSORS_DTYPES.items()
}


class Weights(Mapping[str, NDArray[Any]]):
    """Read-only arrays by name, in the order of the file, each made on access.

    Attributes
    ----------
    path : str
        The file or folder.
    config : dict
        The config.json of a folder, as in Hugging Face's models; otherwise empty.
    shapes : dict of str to tuple of int
        Known without reading an array.
    metadata : dict
        Unchecked metadata of a safetensors file; otherwise empty.
    """

    def __init__(
        self,
        path: str,
        arrays: Mapping[str, Callable[[], NDArray[Any]]],
        shapes: Mapping[str, tuple[int, ...]],
        config: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = path
        self.shapes = dict(shapes)
        self.config = dict(config or {})
        self.metadata = dict(metadata or {})
        self._arrays = dict(arrays)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __contains__(self, name: object) -> bool:  # Mapping's own would read the array
        return name in self._arrays

    def __repr__(self) -> str:
        return f"Weights({self.path!r}, {len(self)} arrays)"


def load(
    path: str | os.PathLike[str],
    layout: Iterable[tuple[str, str, tuple[int, ...]]] | None = None,
    *,
    inflation_limit: int = INFLATION_LIMIT,
    mapped: bool = True,
) -> Weights:
    """Load the weights in a file or a folder.

    Parameters
    ----------
    path : path
        - .safetensors: mapped into memory; the arrays are views of the file's pages.
        - a folder, or an index (.safetensors.index.json): its safetensors files, which must be inside of the folder.
        - .npz: read with allow_pickle=False, array by array.
        - .pt, .pth, .bin: read by PyTorch, which must be installed, with weights_only=True and mmap=True: only tensors,
          without running code of the file. A state_dict is found under the usual keys.
        - .bin with `layout`: raw numbers, mapped into memory.
    layout : iterable of (name, dtype, shape), optional
        The arrays of a raw file in order, without gaps, in the machine's byte order.
    inflation_limit : int, default 100
        Reject an .npz archive that expands to more than this multiple of its size and more than 64 MiB.
    mapped : bool, default True
        False: files are read into memory and may change afterwards. Mapped files must not change; see docs/serving.md.

    Returns
    -------
    Weights
        Arrays are read-only. bfloat16 is ml_dtypes.bfloat16 if that package is installed, otherwise a float32 copy with
        the same values.

    Raises
    ------
    InvalidModelError
        There is no such file, it is damaged, or its content does not match its suffix.
    MissingPackageError
        PyTorch is required and not installed.
    ImportError
        The file is valid, but has content that no kernel accepts: a module instead of its weights, 8-bit floats.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path ({type(path).__name__}) is not a path.")
    from pathlib import Path

    file = Path(path)
    if layout is not None:
        return raw(file, layout, mapped=mapped)
    if file.is_dir():
        return folder(file, mapped=mapped)
    if file.name.endswith(".index.json"):
        return sharded(file, mapped=mapped)
    readers: dict[str, Callable[[], Weights]] = {
        ".safetensors": lambda: safetensors(file, mapped=mapped),
        ".npz": lambda: npz(file, inflation_limit=inflation_limit),
        ".pt": lambda: pytorch(file, mapped=mapped),
        ".pth": lambda: pytorch(file, mapped=mapped),
        ".bin": lambda: pytorch(file, mapped=mapped),
    }
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise InvalidModelError(f'"{file}" has a suffix ("{file.suffix}") that is not one of {", ".join(readers)}.')
    return reader()


def json_object(path: str | Path, text: bytes, what: str) -> dict[str, Any]:
    """Parse a JSON object; reject duplicate keys, and surrogates, which cannot be printed in messages."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name, after in zip(sorted(names), sorted(names)[1:], strict=False) if name == after)
            raise InvalidModelError(f'"{path}": {what} has the key {twice!r:.200} twice.')
        for text in (text for pair in pairs for text in pair if isinstance(text, str)):
            text.encode()  # UnicodeEncodeError is a ValueError
        return found

    try:
        value = json.loads(text.decode(), object_pairs_hook=unique)
    except InvalidModelError:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidModelError(f'"{path}": {what} is not JSON: {error!s:.200}.') from error
    if not isinstance(value, dict):
        raise InvalidModelError(f'"{path}": {what} ({type(value).__name__}) is not an object of JSON.')
    return value


def _check_count(path: str | Path, count: int, what: str, limit: int) -> None:
    if count > limit:
        raise InvalidModelError(f'"{path}" has {count} {what}, more than the limit ({limit}).')


def _elements(path: str | Path, name: str, shape: tuple[int, ...]) -> int:
    """Return the number of elements; reject shapes that no array can have."""
    if len(shape) > RANK_LIMIT:
        raise InvalidModelError(
            f'"{path}": array "{name:.200}" has {len(shape)} axes, more than the limit ({RANK_LIMIT}).'
        )
    for extent in shape:
        if not 0 <= extent <= EXTENT_LIMIT:
            raise InvalidModelError(
                f'"{path}": array "{name:.200}" has an extent ({extent!s:.30}) outside of 0 to {EXTENT_LIMIT}.'
            )
    if math.prod(extent for extent in shape if extent) > 2**59:  # NumPy rejects it even if another extent is 0
        raise InvalidModelError(
            f'"{path}": array "{name:.200}" has a shape {shape} of more elements than memory can hold.'
        )
    return math.prod(shape)


def bfloat16_of(words: NDArray[Any]) -> NDArray[Any]:
    """Return 16-bit words as bfloat16, or as float32 with the same values if ml_dtypes is not installed."""
    try:
        import ml_dtypes
    except ImportError:
        return (words.astype(np.uint32) << 16).view(np.float32)
    return words.view(ml_dtypes.bfloat16)


def _view(buffer: memoryview, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the bytes as a read-only array; a copy if byte order or alignment requires one."""
    array = np.frombuffer(buffer, "<u2" if dtype == "bfloat16" else dtype).reshape(shape)
    if not array.flags.aligned or not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if dtype == "bfloat16":
        array = bfloat16_of(array)
    if array.flags.writeable:
        array.flags.writeable = False
    return array


# ---- safetensors


def safetensors(path: str | Path, *, mapped: bool = True) -> Weights:
    """Read a safetensors file: 8 bytes with the header's length, the header in JSON, arrays without gaps. No copy."""
    buffer = content(path, mapped=mapped)
    if len(buffer) < 8:
        raise InvalidModelError(
            f'"{path}" has {len(buffer)} bytes, fewer than the 8 that a safetensors file begins with.'
        )
    length = int.from_bytes(buffer[:8], "little")
    if length > min(len(buffer) - 8, HEADER_LIMIT):
        raise InvalidModelError(
            f'"{path}": the header\'s length ({length}) is more than {len(buffer) - 8}, what the file has, or than the'
            f" limit ({HEADER_LIMIT})."
        )
    text = bytes(buffer[8 : 8 + length])
    _check_count(path, text.count(b'"data_offsets"'), "arrays", ARRAYS_LIMIT)  # before parsing JSON for a minute
    header = json_object(path, text, "the header")
    _check_count(path, len(header), "arrays", ARRAYS_LIMIT)
    data = buffer[8 + length :]
    metadata = header.pop("__metadata__", None)
    if metadata is not None and not isinstance(metadata, dict):
        raise InvalidModelError(f'"{path}": the metadata is no object of JSON.')
    arrays: dict[str, Callable[[], NDArray[Any]]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    ranges: list[tuple[int, int, str]] = []
    for name, entry in header.items():
        dtype, shape, begin, end = _safetensors_entry(path, name, entry, len(data))
        arrays[name] = _later(data[begin:end], dtype, shape)
        shapes[name] = shape
        ranges.append((begin, end, name))
    at = 0
    for begin, end, name in sorted(ranges):
        if begin != at:
            what = "overlaps the array before it" if begin < at else "leaves a gap before it"
            raise InvalidModelError(f'"{path}": array "{name:.200}" at {begin} {what}, which ends at {at}.')
        at = end
    if at != len(data):
        raise InvalidModelError(f'"{path}" has {len(data)} bytes of arrays; those of the header end at {at}.')
    return Weights(str(path), arrays, shapes, metadata=metadata)


def _later(buffer: memoryview, dtype: str, shape: tuple[int, ...]) -> Callable[[], NDArray[Any]]:
    return lambda: _view(buffer, dtype, shape)


def _integers(value: object, count: int | None = None) -> tuple[int, ...] | None:
    """Return a JSON list of integers as a tuple, or None if it is something else; true and 1.0 are not integers."""
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        return None
    return tuple(value) if count in (None, len(value)) else None


def _safetensors_entry(
    path: str | Path, name: str, entry: object, available: int
) -> tuple[str, tuple[int, ...], int, int]:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise InvalidModelError(
            f'"{path}": the header\'s entry "{name:.200}" has not dtype, shape and data_offsets alone.'
        )
    shape, offsets = _integers(entry["shape"]), _integers(entry["data_offsets"], 2)
    if shape is None:
        raise InvalidModelError(
            f'"{path}": array "{name:.200}" has a shape ({entry["shape"]!r:.80}) that is no list of integers.'
        )
    if offsets is None or not 0 <= offsets[0] <= offsets[1] <= available:
        raise InvalidModelError(
            f'"{path}": array "{name:.200}" has data_offsets ({entry["data_offsets"]!r:.80}) that are not within the'
            f" file's {available} bytes of arrays."
        )
    elements = _elements(path, name, shape)
    dtype = SAFETENSORS_DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if dtype is None:
        raise errors.ImportError(
            f'"{path}": array "{name:.200}" has a dtype ({entry["dtype"]!r:.80}) that is not one of'
            f" {', '.join(SAFETENSORS_DTYPES)}."
        )
    needed = elements * (2 if dtype == "bfloat16" else np.dtype(dtype).itemsize)
    if offsets[1] - offsets[0] != needed:
        raise InvalidModelError(
            f'"{path}": array "{name:.200}" has {offsets[1] - offsets[0]} bytes;'
            f" {shape} of {entry['dtype']} needs {needed}."
        )
    return dtype, shape, *offsets  # type: ignore[return-value]  # two of them


def write_safetensors(file: BinaryIO, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file; equal arrays and metadata give equal files.

    Arrays are sorted by item size, largest first, so that each is aligned.
    """
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    end = 0
    for name in names:
        array = arrays[name]
        begin, end = end, end + array.nbytes
        dtype = WRITTEN_DTYPES[array.dtype.name]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > HEADER_LIMIT:
        raise ValueError(f"the header of the file has {len(text)} bytes, more than the limit ({HEADER_LIMIT}).")
    file.write(len(text).to_bytes(8, "little") + text)
    for name in names:
        array = np.ascontiguousarray(arrays[name]).reshape(-1)
        if array.dtype.name != "bfloat16":
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        file.write(array.view(np.uint8).data)


def sharded(index: Path, *, mapped: bool = True) -> Weights:
    """Read Hugging Face's index: {"weight_map": {name of the array: name of the file beside the index}}."""
    mapping = json_object(index, read_file(index, TEXT_LIMIT), "the index").get("weight_map")
    if not isinstance(mapping, dict) or not all(isinstance(file, str) for file in mapping.values()):
        raise InvalidModelError(f'"{index}" has no weight_map of names to files.')
    arrays: dict[str, Callable[[], NDArray[Any]]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for file in dict.fromkeys(mapping.values()):
        shard = safetensors(_inside(index.parent, file), mapped=mapped)
        for name in shard:
            if mapping.get(name) != file:
                raise InvalidModelError(
                    f'"{index}": array "{name:.200}" is in "{file}", where the index has'
                    f" {'it not' if name not in mapping else repr(mapping[name])}."
                )
            arrays[name], shapes[name] = shard._arrays[name], shard.shapes[name]
    missing = [name for name in mapping if name not in arrays]
    if missing:
        raise InvalidModelError(f'"{index}": array "{missing[0]}" is not in "{mapping[missing[0]]}".')
    return Weights(str(index), {name: arrays[name] for name in mapping}, {name: shapes[name] for name in mapping})


def _inside(parent: Path, name: str) -> Path:
    """Return the path of a file in the folder; links may only lead to the blobs of Hugging Face's cache."""
    if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise InvalidModelError(f'"{parent}": "{name:.200}" is not the name of a file in the folder.')
    if not name.endswith(".safetensors"):
        raise InvalidModelError(f'"{parent}": "{name:.200}" is not the name of a safetensors file.')
    root = parent.resolve()
    target = (parent / name).resolve()
    # .../models--owner--name/snapshots/revision/file -> ../../blobs/hash: huggingface_hub's cache, guides/manage-cache
    cache = root.parent.parent / "blobs" if root.parent.name == "snapshots" else None
    if target.parent != root and target.parent != cache:
        raise InvalidModelError(f'"{parent / name}" leads out of the folder, to "{target}".')
    return parent / name


def folder(path: Path, *, mapped: bool = True) -> Weights:
    """Read a folder with one model: an index, a safetensors file, or another file; config.json is optional."""
    try:
        names = sorted(entry.name for entry in os.scandir(path))
    except OSError as error:
        raise InvalidModelError(f'"{path}" cannot be read: {error.strerror}.') from error
    suffixes = (".safetensors.index.json", ".safetensors", ".npz", ".pt", ".pth", ".bin")
    for suffix in suffixes:
        found = [name for name in names if name.endswith(suffix)]
        if "model" + suffix in found:  # Hugging Face's library prefers it to others
            found = ["model" + suffix]
        if len(found) > 1:
            raise InvalidModelError(
                f'"{path}" has {len(found)} files {suffix}: {", ".join(found[:8])}. Name one of them.'
            )
        if found:
            file = path / found[0]
            file = _inside(path, found[0]) if suffix == ".safetensors" else file
            weights = load(file, mapped=mapped)
            break
    else:
        raise InvalidModelError(f'"{path}" has no file of weights ({", ".join(suffixes)}).')
    config = (
        json_object(path / "config.json", read_file(path / "config.json", TEXT_LIMIT), "the file")
        if "config.json" in names
        else {}
    )
    return Weights(str(path), weights._arrays, weights.shapes, config)


# ---- raw numbers


def raw(path: Path, layout: Iterable[tuple[str, str, tuple[int, ...]]], *, mapped: bool = True) -> Weights:
    """Read arrays one after another, as written by `array.tofile`; the file has exactly their size."""
    arrays: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
    at = 0
    for row in layout:
        try:
            name, dtype, extents = row
            shape = tuple(int(extent) for extent in extents)
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # deprecated names of dtypes
                kind = "bfloat16" if str(dtype) == "bfloat16" else np.dtype(dtype).str
            if type(name) is not str:
                raise TypeError(f"the name ({type(name).__name__}) is not a str")
        except (TypeError, ValueError, OverflowError, DeprecationWarning) as error:
            raise InvalidModelError(f"layout: {row!r:.200} is not (name, dtype, shape): {error!s:.200}.") from error
        if name in arrays:
            raise InvalidModelError(f'layout: the name "{name:.200}" appears twice.')
        if kind != "bfloat16" and (np.dtype(kind).kind not in "fiub" or np.dtype(kind).itemsize > 8):
            raise InvalidModelError(
                f'layout: array "{name:.200}" has a dtype ({kind}) that is not a number of at most 64 bits.'
            )
        size = _elements(path, name, shape) * (2 if kind == "bfloat16" else np.dtype(kind).itemsize)
        arrays[name] = kind, shape, at, at + size
        at += size
    buffer = content(path, mapped=mapped)
    if len(buffer) != at:
        raise InvalidModelError(f'"{path}" has {len(buffer)} bytes; the {len(arrays)} arrays of the layout need {at}.')
    return Weights(
        str(path),
        {name: _later(buffer[begin:end], kind, shape) for name, (kind, shape, begin, end) in arrays.items()},
        {name: shape for name, (_, shape, _, _) in arrays.items()},
    )


# ---- .npz


def npz(path: Path, *, inflation_limit: int = INFLATION_LIMIT) -> Weights:
    """Read NumPy's archives of arrays. An array is read from the file on each access."""
    file, size = opened(path)
    with file, opened_archive(path, file, NPZ_LIMIT) as archive:
        entries = archive.infolist()
        total = sum(entry.file_size for entry in entries)
        if total > max(INFLATION_FREE, inflation_limit * size):
            raise InvalidModelError(
                f'"{path}" would take {total} bytes, more than {inflation_limit} times its {size}; see inflation_limit.'
            )
        arrays: dict[str, Callable[[], NDArray[Any]]] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        import zipfile

        for entry in entries:
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise InvalidModelError(
                    f'"{path}": the member "{entry.filename:.200}" is compressed as NumPy never does.'
                )
            name = entry.filename.removesuffix(".npy")
            if name == entry.filename:
                raise InvalidModelError(f'"{path}": the member "{name:.200}" is not an array (.npy).')
            if name in arrays:
                raise InvalidModelError(f'"{path}": the array "{name:.200}" appears twice.')
            with _reading(path, name), archive.open(entry) as member:
                shapes[name], *_ = _npy_header(path, name, member, entry.file_size)
            arrays[name] = _from_npz(path, name, entry.file_size)
    return Weights(str(path), arrays, shapes)


@contextlib.contextmanager
def opened_archive(path: Path, file: BinaryIO, limit: int) -> Iterator[zipfile.ZipFile]:
    """Open a ZIP archive of at most `limit` members."""
    import zipfile

    # The end record, followed only by a comment, has the number of members [APPNOTE.TXT, 4.3.16].
    file.seek(max(0, os.fstat(file.fileno()).st_size - 22 - 65535))
    end = file.read()
    at = end.rfind(b"PK\x05\x06")
    _check_count(path, int.from_bytes(end[at + 10 : at + 12], "little") if at >= 0 else 0, "members", limit)
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, ValueError, OSError, EOFError, NotImplementedError, OverflowError) as error:
        raise InvalidModelError(f'"{path}" is not a ZIP archive: {error!s:.200}.') from error
    with archive:
        _check_count(path, len(archive.filelist), "members", limit)  # the end record counts only up to 65534
        yield archive


@contextlib.contextmanager
def _reading(path: Path, name: str) -> Iterator[None]:
    """Convert the errors of zipfile and its decompressors to InvalidModelError."""
    try:
        yield
    except errors.ImportError:
        raise
    except Exception as error:  # zipfile's, zlib's, struct's, tokenize's, ast's and NumPy's have no common base class
        raise InvalidModelError(f'"{path}": the array "{name:.200}" cannot be read: {error!s:.200}.') from error


def _npy_header(path: Path, name: str, member: Any, available: int) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, order, dtype and number of bytes of the data that follows. `available` is the member's size."""
    version = np.lib.format.read_magic(member)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise InvalidModelError(f'"{path}": the array "{name:.200}" has a format ({version}) that is not 1.0 or 2.0.')
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # headers from Python 2 cause a warning
        shape, fortran, dtype = readers[version](member)
    if dtype.kind not in "fiub" or dtype.itemsize > 8:
        raise errors.ImportError(
            f'"{path}": the array "{name:.200}" has a dtype ({dtype!s:.80}) that is not a number of at most 64 bits.'
        )
    shape = tuple(shape)
    size = _elements(path, name, shape) * dtype.itemsize
    if member.tell() + size != available:
        raise InvalidModelError(
            f'"{path}": the array "{name:.200}" has {available - member.tell()} bytes; {shape} of {dtype} needs {size}.'
        )
    return shape, fortran, dtype, size


def _from_npz(path: Path, name: str, available: int) -> Callable[[], NDArray[Any]]:
    def read() -> NDArray[Any]:
        file, _ = opened(path)
        with file, opened_archive(path, file, NPZ_LIMIT) as archive, _reading(path, name):
            try:
                entry = archive.getinfo(name + ".npy")
            except KeyError:
                raise InvalidModelError(f'"{path}": the array "{name:.200}" is not in the archive any more.') from None
            if entry.file_size != available:
                raise InvalidModelError(f'"{path}": the array "{name:.200}" is not what it was before.')
            with archive.open(entry) as member:
                shape, fortran, dtype, size = _npy_header(path, name, member, available)
                data = member.read(size)
                if len(data) != size or member.read(1):  # reading to the end verifies the checksum
                    raise InvalidModelError(f'"{path}": the array "{name:.200}" has not the {size} bytes it says.')
        array = np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
        if not dtype.isnative:
            array = array.astype(dtype.newbyteorder("="))
            array.flags.writeable = False
        return array

    return read


# ---- PyTorch

STATE_DICT_KEYS = (
    "state_dict",
    "model_state_dict",
    "model",
    "params_ema",
    "params",
    "net",
    "network",
    "weights",
    "ema",
)


def pytorch(path: Path, *, mapped: bool = True) -> Weights:
    """Read a state_dict of torch.save, possibly nested in dictionaries. Arrays share the tensors' memory."""
    file, size = opened(path)
    with file:
        start = file.read(4)
        if start[:2] == b"PK":
            _check_pytorch_archive(path, file, size)
    try:
        import torch
    except ImportError as error:
        raise MissingPackageError(f'Reading "{path}", a file of PyTorch\'s,', "torch") from error
    tensors = _state_dict(path, _torch_load(torch, path, mapped=mapped and start[:2] == b"PK"))
    return Weights(
        str(path),
        {name: _from_torch(torch, path, name, tensor, size) for name, tensor in tensors.items()},
        {name: tuple(tensor.shape) for name, tensor in tensors.items()},
    )


def _check_pytorch_archive(path: Path, file: BinaryIO, size: int) -> None:
    """Check that the archive is one of torch.save, and that its members are not compressed."""
    with opened_archive(path, file, ARRAYS_LIMIT) as archive:
        entries = archive.infolist()
    check_stored(path, entries, size)
    names = {entry.filename.rpartition("/")[2] for entry in entries}
    if "constants.pkl" in names:
        raise errors.ImportError(
            f'"{path}" is a TorchScript module, whose code would have to be run. Save its weights in the program that'
            " has it: torch.save(module.state_dict(), path)."
        )
    if "data.pkl" not in names:
        raise InvalidModelError(f'"{path}" is a ZIP archive without data.pkl: no file of torch.save.')


def check_stored(path: Path, entries: list[zipfile.ZipInfo], size: int) -> None:
    """Check that members of a PyTorch archive are not compressed, so that they are no larger than the file."""
    import zipfile

    if any(entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 for entry in entries):
        raise InvalidModelError(
            f'"{path}": members of the archive are compressed or encrypted, which PyTorch never does.'
        )
    if sum(entry.file_size for entry in entries) > size:
        raise InvalidModelError(f'"{path}": the members of the archive are larger than the file ({size} bytes).')


def _torch_load(torch: Any, path: Path, *, mapped: bool) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations inside of PyTorch, for files of old versions
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped or None)
    except Exception as error:  # PyTorch has no class for damaged files
        text = str(error)
        if "GLOBAL" in text or "weights_only" in text.lower() or "Unsupported class" in text:
            unwanted = text.partition("GLOBAL ")[2].split(" ")[0].strip(".,`'") or "something"
            raise errors.ImportError(
                f'"{path}" holds more than weights: {unwanted:.200}, which would have to be made by running code that'
                " the file names. Save the weights alone in the program that has the module:"
                " torch.save(module.state_dict(), path)."
            ) from error
        raise InvalidModelError(
            f'"{path}" cannot be read by torch.load: {type(error).__name__}: {text.partition(chr(10))[0]:.200}'
        ) from error


def _state_dict(path: Path, value: Any) -> dict[str, Any]:
    """Return the tensors by name, of the dictionary itself or of a nested one."""

    def tensors(candidate: Any) -> dict[str, Any]:
        if not isinstance(candidate, dict):
            return {}
        return {
            name: item
            for name, item in candidate.items()
            if isinstance(name, str) and hasattr(item, "detach") and hasattr(item, "layout")
        }

    level = [("", value)]
    for _ in range(4):
        found = [(key, tensors(item)) for key, item in level if tensors(item)]
        if found:
            usual = [entry for entry in found if entry[0] in STATE_DICT_KEYS]
            found = sorted(usual, key=lambda entry: STATE_DICT_KEYS.index(entry[0])) or found
            if len(found) > 1 and not usual:
                keys = ", ".join(f'"{key}"' for key, _ in found)
                raise InvalidModelError(f'"{path}" has several dictionaries of tensors ({keys:.400}): which is meant?')
            return found[0][1]
        level = [
            (key, item)
            for _, inner in level
            if isinstance(inner, dict)
            for key, item in inner.items()
            if isinstance(key, str) and isinstance(item, dict)
        ]
    raise InvalidModelError(f'"{path}" ({type(value).__name__}) has no dictionary of tensors by name, a state_dict.')


def _from_torch(torch: Any, path: Path, name: str, tensor: Any, size: int) -> Callable[[], NDArray[Any]]:
    names = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout is not torch.strided or tensor.is_quantized or dtype not in names:
        raise errors.ImportError(
            f'"{path}": tensor "{name:.200}" ({dtype}, {tensor.layout}) is not a dense one of {", ".join(names)}.'
        )
    if tensor.device.type != "cpu":
        raise InvalidModelError(f'"{path}": tensor "{name:.200}" has no values (device {tensor.device}).')
    # PyTorch enlarges the storages of old files to the size that a tensor declares, without accessing that memory.
    # Other tensors repeat a few values by strides of 0, and a kernel would need memory for all of them.
    needed = max(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
    if needed > size:
        raise InvalidModelError(
            f'"{path}": tensor "{name:.200}" of shape {tuple(tensor.shape)} has {needed} bytes,'
            f" more than the file ({size})."
        )

    def read() -> NDArray[Any]:
        dense = tensor.detach()
        array: NDArray[Any]
        if dtype == "bfloat16":
            array = bfloat16_of(dense.view(torch.int16).numpy().view(np.uint16))
        else:
            array = dense.numpy()
        array = array.view()
        array.flags.writeable = False
        return array

    return read
