# SPDX-License-Identifier: Apache-2.0
"""Files of weights: reading without copies, and the errors for damaged or hostile files."""

from __future__ import annotations

import builtins
import io
import json
import os
import struct
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch_file

import mpscnn
from mpscnn.importing import weights_files
from mpscnn.importing.mapped_files import Pages
from mpscnn.importing.weights_files import load

ARRAYS = {
    "conv.weight": np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2),
    "conv.bias": np.array([0.5, -1], np.float16),
    "count": np.array(7, np.int64),
    "empty": np.zeros((0, 3), np.float32),
    "mask": np.array([True, False]),
}


def safetensors_bytes(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def npz_bytes(**members: bytes) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        for name, data in members.items():
            archive.writestr(name + ".npy", data)
    return memory.getvalue()


def npy(header: str, data: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    text = header.encode("latin1") + b"\n"
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H", len(text)) + text + data


def same(weights: weights_files.Weights, arrays: dict[str, NDArray[Any]]) -> None:
    assert list(weights) == list(arrays)
    assert len(weights) == len(arrays)
    for name, array in arrays.items():
        assert weights.shapes[name] == array.shape
        assert weights[name].dtype == array.dtype
        assert not weights[name].flags.writeable
        np.testing.assert_array_equal(weights[name], array)


def owner(array: NDArray[Any]) -> Any:
    """Return the owner of the array's memory."""
    base: Any = array
    while True:
        if isinstance(base, memoryview):
            base = base.obj
        elif getattr(base, "base", None) is not None:
            base = base.base
        else:
            return base


# ---- supported files


def test_safetensors(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_file(ARRAYS, file, metadata={"format": "pt"})
    weights = load(file)
    same(weights, {name: ARRAYS[name] for name in weights})
    assert set(weights) == set(ARRAYS)
    assert "conv.bias" in weights
    assert "fc.bias" not in weights
    with pytest.raises(KeyError):
        weights["fc.bias"]
    assert repr(weights) == f"Weights('{file}', 5 arrays)"
    assert isinstance(owner(weights["conv.weight"]), Pages)
    assert weights["conv.weight"].ctypes.data == weights["conv.weight"].ctypes.data


def test_a_kernel_reads_the_pages_of_the_file(tmp_path: Path) -> None:
    save_file({"weight": np.ones((8, 3, 3, 4), np.float32)}, tmp_path / "model.safetensors")
    weights = load(tmp_path / "model.safetensors")
    kernel = mpscnn.Convolution(weights["weight"], layout="OHWI")
    source = kernel.data_source
    source.load()
    assert source.weights.ctypes.data == weights["weight"].ctypes.data
    source.purge()


def test_arrays_that_are_not_aligned_are_copied(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    header = {"a": entry("U8", [1], [0, 1]), "b": entry("F32", [1], [1, 5])}
    file.write_bytes(safetensors_bytes(header, b"\x05" + np.float32(2.5).tobytes()))
    weights = load(file)
    assert weights["b"].tolist() == [2.5]
    assert weights["b"].flags.aligned
    assert not weights["b"].flags.writeable


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
@pytest.mark.parametrize("installed", [True, False])
def test_bfloat16(tmp_path: Path, suffix: str, installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / f"model.{suffix}"
    numbers = torch.tensor([[1.5, -2.0], [3.0e38, 1e-40]]).to(torch.bfloat16)
    (save_torch_file if suffix == "safetensors" else torch.save)({"x": numbers}, file)
    if not installed:
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    array = load(file)["x"]
    assert array.dtype.name == ("bfloat16" if installed else "float32")
    assert not array.flags.writeable
    np.testing.assert_array_equal(array.astype(np.float32), numbers.float().numpy())


def test_npz(tmp_path: Path) -> None:
    arrays = {**ARRAYS, "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3))}
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "model.npz", **arrays)
        same(load(tmp_path / "model.npz"), arrays)
    np.savez(tmp_path / "model.npz", swapped=np.array([1.5, 2], ">f4"))
    array = load(tmp_path / "model.npz")["swapped"]
    assert array.dtype.isnative
    assert array.tolist() == [1.5, 2]
    assert not array.flags.writeable


@pytest.mark.parametrize("key", ["", *weights_files.STATE_DICT_KEYS, "something"])
@pytest.mark.parametrize("old", [False, True])
def test_state_dicts(tmp_path: Path, key: str, old: bool) -> None:
    file = tmp_path / "model.pth"
    state = {name: torch.from_numpy(array.copy()) for name, array in ARRAYS.items()}
    content = {key: state, "epoch": 3, "args": {"lr": 0.1}} if key else state
    torch.save(content, file, _use_new_zipfile_serialization=not old)
    same(load(file), ARRAYS)


def test_state_dicts_deeper_inside(tmp_path: Path) -> None:
    state = torch.nn.Conv2d(3, 4, 3).state_dict()
    torch.save({"checkpoint": {"state_dict": state, "optimizer": {"momentum": torch.ones(3)}}}, tmp_path / "model.pt")
    same(load(tmp_path / "model.pt"), {name: tensor.numpy() for name, tensor in state.items()})


def test_tensors_of_pytorch_are_mapped(tmp_path: Path) -> None:
    """The arrays are the file's pages: later writes to the file are visible."""
    file = tmp_path / "model.pt"
    torch.save({"x": torch.full((1 << 16,), 1.25)}, file)
    weights = load(file)
    before = file.read_bytes()
    at = before.index(np.full(64, 1.25, np.float32).tobytes())
    with file.open("r+b") as out:
        out.seek(at)
        out.write(np.float32(8).tobytes())
    assert weights["x"][0] == 8


def test_transposed_tensors(tmp_path: Path) -> None:
    tensor = torch.arange(6.0).reshape(2, 3).t()
    torch.save({"x": tensor}, tmp_path / "model.pt")
    np.testing.assert_array_equal(load(tmp_path / "model.pt")["x"], tensor.numpy())


def test_raw(tmp_path: Path) -> None:
    file = tmp_path / "weights.bin"
    arrays = {name: array for name, array in ARRAYS.items() if name != "count"}
    file.write_bytes(b"".join(array.tobytes() for array in arrays.values()))
    layout = [(name, array.dtype.name, array.shape) for name, array in arrays.items()]
    weights = load(file, layout)
    same(weights, arrays)
    assert isinstance(owner(weights["conv.weight"]), Pages)
    halves = load(file, [("x", "bfloat16", (file.stat().st_size // 2,))])["x"]
    assert halves.dtype.name == "bfloat16"


def test_folders(tmp_path: Path) -> None:
    save_file({"a": ARRAYS["conv.bias"]}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({"b": ARRAYS["conv.weight"]}, tmp_path / "model-00002-of-00002.safetensors")
    index = {"b": "model-00002-of-00002.safetensors", "a": "model-00001-of-00002.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    (tmp_path / "config.json").write_text('{"model_type": "resnet"}')
    expected = {"b": ARRAYS["conv.weight"], "a": ARRAYS["conv.bias"]}
    same(load(tmp_path), expected)
    assert load(tmp_path).config == {"model_type": "resnet"}
    same(load(tmp_path / "model.safetensors.index.json"), expected)

    single = tmp_path / "single"
    single.mkdir()
    save_file({"a": ARRAYS["conv.bias"]}, single / "model.safetensors")
    save_file({"c": ARRAYS["conv.bias"]}, single / "adapter.safetensors")
    torch.save({"d": torch.ones(1)}, single / "pytorch_model.bin")
    assert list(load(single)) == ["a"]
    assert load(single).config == {}
    (single / "model.safetensors").unlink()
    (single / "adapter.safetensors").unlink()
    assert list(load(single)) == ["d"]


def test_the_cache_of_hugging_face(tmp_path: Path) -> None:
    """Files of a snapshot are links into a sibling folder."""
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "0123", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    save_file({"a": ARRAYS["conv.bias"]}, blobs / "cafe")
    (snapshot / "model.safetensors").symlink_to("../../blobs/cafe")
    assert list(load(snapshot)) == ["a"]
    save_file({"a": ARRAYS["conv.bias"]}, tmp_path / "elsewhere")
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to("../../../elsewhere")
    with pytest.raises(mpscnn.InvalidModelError, match="leads out of the folder"):
        load(snapshot)


# ---- refusals

HUGE = 10**4000
SAFETENSORS_ROWS: list[tuple[bytes, str]] = [
    (b"", r"has 0 bytes, fewer than the 8"),
    (b"1234567", r"has 7 bytes, fewer than the 8"),
    (
        safetensors_bytes({}, length=1 << 63),
        r"the header's length \(9223372036854775808\) is more than 2, what the file",
    ),
    (safetensors_bytes({}, length=3), r"the header's length \(3\) is more than 2"),
    (safetensors_bytes(b""), r"the header is not JSON"),
    (safetensors_bytes(b"\xff\xfe{}"), r"the header is not JSON"),
    (safetensors_bytes(b"[]"), r"the header \(list\) is not an object of JSON"),
    (safetensors_bytes(b"[" * 200_000), r"the header is not JSON"),
    (safetensors_bytes(b'{"a":1,"a":2}'), r"the header has the key 'a' twice"),
    (safetensors_bytes({"a": 1}), r'entry "a" has not dtype, shape and data_offsets alone'),
    (safetensors_bytes({"a": {**entry(), "x": 1}}), r'entry "a" has not dtype, shape and data_offsets alone'),
    (safetensors_bytes({"a": entry(shape="2")}, b"8" * 8), r"has a shape \('2'\) that is no list of integers"),
    (safetensors_bytes({"a": entry(shape=[2.0])}, b"8" * 8), r"has a shape \(\[2\.0\]\) that is no list of integers"),
    (safetensors_bytes({"a": entry(shape=[True])}, b"8" * 8), r"has a shape \(\[True\]\) that is no list of integers"),
    (safetensors_bytes({"a": entry(shape=[-2])}, b"8" * 8), r"has an extent \(-2\) outside of 0 to"),
    (safetensors_bytes({"a": entry(shape=[0, HUGE], offsets=[0, 0])}), r"has an extent \(10{29}\) outside of 0 to"),
    (safetensors_bytes({"a": entry(shape=[0, *[1 << 30] * 3], offsets=[0, 0])}), r"more elements than memory can hold"),
    (
        safetensors_bytes({"a": entry(shape=[1] * 33, offsets=[0, 4])}, b"1234"),
        r"has 33 axes, more than the limit \(32\)",
    ),
    (safetensors_bytes({"a": entry(offsets=[0])}, b"8" * 8), r"has data_offsets \(\[0\]\) that are not within"),
    (safetensors_bytes({"a": entry(offsets=[8, 0])}, b"8" * 8), r"has data_offsets \(\[8, 0\]\) that are not within"),
    (safetensors_bytes({"a": entry(offsets=[-8, 0])}, b"8" * 8), r"has data_offsets \(\[-8, 0\]\) that are not within"),
    (safetensors_bytes({"a": entry(offsets=[0, 9])}, b"8" * 8), r"not within the file's 8 bytes of arrays"),
    (safetensors_bytes({"a": entry(offsets=[0, HUGE])}, b"8" * 8), r"not within the file's 8 bytes of arrays"),
    (safetensors_bytes({"a": entry(shape=[3])}, b"8" * 8), r'"a" has 8 bytes; \(3,\) of F32 needs 12'),
    (
        safetensors_bytes({"a": entry(), "b": entry(offsets=[4, 12])}, b"8" * 12),
        r'"b" at 4 overlaps the array before it',
    ),
    (safetensors_bytes({"a": entry(), "b": entry(offsets=[12, 20])}, b"8" * 20), r'"b" at 12 leaves a gap before it'),
    (safetensors_bytes({"a": entry()}, b"8" * 9), r"has 9 bytes of arrays; those of the header end at 8"),
    (
        safetensors_bytes({"a": entry("F8_E4M3", [8])}, b"8" * 8),
        r"has a dtype \('F8_E4M3'\) that is not one of F64, F32",
    ),
    (safetensors_bytes({"a": entry(None)}, b"8" * 8), r"has a dtype \(None\) that is not one of"),
]


@pytest.mark.parametrize(("content", "match"), SAFETENSORS_ROWS)
def test_safetensors_that_are_refused(tmp_path: Path, content: bytes, match: str) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(mpscnn.ImportError, match=match) as caught:
        load(file)
    assert str(file) in str(caught.value)
    assert len(str(caught.value)) < 1000


GOOD = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", b"8" * 8)
NPZ_ROWS: list[tuple[bytes, str]] = [
    (b"", r"is not a ZIP archive"),
    (b"PK\x03\x04", r"is not a ZIP archive"),
    (npz_bytes(a=b""), r'array "a" cannot be read'),
    (
        npz_bytes(a=npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", b"8" * 8)),
        r"has 8 bytes; \(3,\) of float32",
    ),
    (
        npz_bytes(a=npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", b"8" * 8)),
        r"has 8 bytes; \(1,\) of float32",
    ),
    (
        npz_bytes(a=npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", b"8" * 8)),
        r"extent \(-2\) outside of 0",
    ),
    (
        npz_bytes(a=npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2000000000, 200000000)}")),
        r"has 0 bytes; \(2000000000, 200000000\) of float32 needs 1600000000000000000",
    ),
    (
        npz_bytes(a=npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"8" * 8)),
        r"dtype \(object\) that is not",
    ),
    (
        npz_bytes(a=npy("{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", b"8" * 8)),
        r"dtype \(complex64\) that",
    ),
    (
        npz_bytes(a=npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", b"8" * 8)),
        r"that is not a number",
    ),
    (npz_bytes(a=npy("__import__('os').system('false')")), r'array "a" cannot be read'),
    (npz_bytes(a=npy("(" * 5000)), r'array "a" cannot be read'),
    (
        npz_bytes(a=npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", b"1234", (3, 0))),
        r"cannot be read|format",
    ),
    (GOOD, r"is not a ZIP archive"),
]


@pytest.mark.parametrize(("content", "match"), NPZ_ROWS, ids=range(len(NPZ_ROWS)))
def test_npz_that_are_refused(tmp_path: Path, content: bytes, match: str) -> None:
    file = tmp_path / "model.npz"
    file.write_bytes(content)
    with pytest.raises(mpscnn.ImportError, match=match):
        load(file)


def test_members_of_archives(tmp_path: Path) -> None:
    file = tmp_path / "model.npz"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("notes.txt", "x")
    with pytest.raises(mpscnn.InvalidModelError, match=r'the member "notes\.txt" is not an array'):
        load(file)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.npy", GOOD)
    with pytest.raises(mpscnn.InvalidModelError, match="is compressed as NumPy never does"):
        load(file)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.npy", GOOD)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.npy", GOOD)
    with pytest.raises(mpscnn.InvalidModelError, match=r'the array "a" appears twice'):
        load(file)


def test_archives_that_would_take_much_more_than_their_size(tmp_path: Path) -> None:
    file = tmp_path / "model.npz"
    np.savez_compressed(file, a=np.zeros(20 << 20, np.float32))
    with pytest.raises(mpscnn.InvalidModelError, match=r"would take 83886\d\d\d bytes, more than 100 times"):
        load(file)
    assert load(file, inflation_limit=2000)["a"].size == 20 << 20
    np.savez_compressed(file, a=np.zeros(1 << 20, np.float32))
    assert load(file)["a"].size == 1 << 20  # small enough for any archive


def test_a_checksum_that_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "model.npz"
    content = bytearray(npz_bytes(a=GOOD))
    content[content.index(b"8" * 8)] = 0
    file.write_bytes(content)
    with pytest.raises(mpscnn.InvalidModelError, match=r'the array "a" cannot be read: Bad CRC-32'):
        load(file)["a"]


def test_an_archive_that_changes_after_it_was_opened(tmp_path: Path) -> None:
    file = tmp_path / "model.npz"
    np.savez(file, a=np.zeros(4))
    weights = load(file)
    np.savez(file, b=np.zeros(4))
    with pytest.raises(mpscnn.InvalidModelError, match="not in the archive any more"):
        weights["a"]
    np.savez(file, a=np.zeros(5))
    with pytest.raises(mpscnn.InvalidModelError, match="not what it was before"):
        weights["a"]


class Opens:
    """Pickled as a call of os.mkdir."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("old", [False, True])
def test_no_code_of_a_file_is_run(tmp_path: Path, old: bool) -> None:
    file, trace = tmp_path / "model.pt", tmp_path / "trace"
    torch.save({"state_dict": {"x": torch.ones(1)}, "more": Opens(trace)}, file, _use_new_zipfile_serialization=not old)
    with pytest.raises(mpscnn.ImportError, match=r"holds more than weights: (posix|nt)\.mkdir, .* running code"):
        load(file)
    assert not trace.exists()


def test_modules_are_refused_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    torch.save(torch.nn.Conv2d(3, 4, 1), file)
    with pytest.raises(
        mpscnn.ImportError, match=r"torch\.nn\.modules\.conv\.Conv2d, .* torch\.save\(module\.state_dict"
    ):
        load(file)


def test_torchscript_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model/constants.pkl", b"")
        archive.writestr("model/data.pkl", b"")
    with pytest.raises(mpscnn.ImportError, match=r"is a TorchScript module.*torch\.save\(module\.state_dict"):
        load(file)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ([1, 2], r"\(list\) has no dictionary of tensors"),
        (torch.ones(1), r"\(Tensor\) has no dictionary of tensors"),
        ({}, r"\(dict\) has no dictionary of tensors"),
        ({"epoch": 3}, r"\(dict\) has no dictionary of tensors"),
        ({"g": {"x": torch.ones(1)}, "d": {"x": torch.ones(1)}}, r'has several dictionaries of tensors \("g", "d"\)'),
        ({"x": torch.ones(1, dtype=torch.complex64)}, r'tensor "x" \(complex64, torch\.strided\) is not a dense one'),
        ({"x": torch.eye(2).to_sparse()}, r'tensor "x" \(float32, torch\.sparse_coo\) is not a dense one'),
        (
            {"x": torch.ones(1).to(torch.float8_e4m3fn)},
            r'tensor "x" \(float8_e4m3fn, torch\.strided\) is not a dense one',
        ),
        ({"x": torch.ones(1, device="meta")}, r'tensor "x" has no values \(device meta\)'),
        ({"x": torch.ones(1).expand(1000, 1000)}, r'"x" of shape \(1000, 1000\) has 4000000 bytes, more than the file'),
    ],
)
def test_content_that_is_refused(tmp_path: Path, content: Any, match: str) -> None:
    torch.save(content, tmp_path / "model.pt")
    with pytest.raises(mpscnn.ImportError, match=match):
        load(tmp_path / "model.pt")


def test_tensors_larger_than_their_file(tmp_path: Path) -> None:
    """PyTorch itself reads such a file: the tensor's memory is uninitialized."""
    file = tmp_path / "model.pt"
    torch.save({"x": torch.ones(2, 3)}, file, _use_new_zipfile_serialization=False)
    content = file.read_bytes()
    content = content[: content.rindex(b"\x80\x02]")] + b"\x80\x02]."  # the list of storages that follow is empty
    shape = b"K\x00K\x02K\x03\x86"
    assert content.count(shape) == 1
    file.write_bytes(content.replace(shape, b"K\x00J\x00\x00\x10\x00K\x03\x86"))  # (2, 3) becomes (1 << 20, 3)
    assert torch.load(file, weights_only=True)["x"].shape == (1 << 20, 3)
    with pytest.raises(
        mpscnn.InvalidModelError, match=r"of shape \(1048576, 3\) has 12582912 bytes, more than the file"
    ):
        load(file)


def test_archives_that_torch_would_not_write(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    for kind, name, match in (
        (zipfile.ZIP_DEFLATED, "m/data.pkl", "compressed or encrypted"),
        (zipfile.ZIP_STORED, "m/other", r"without data\.pkl"),
    ):
        with zipfile.ZipFile(file, "w", kind) as archive:
            archive.writestr(name, b"." * 100)
        with pytest.raises(mpscnn.InvalidModelError, match=match):
            load(file)
    torch.save({"x": torch.ones(1000)}, file)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(mpscnn.InvalidModelError, match="is not a ZIP archive"):
        load(file)
    file.write_bytes(b"not a pickle")
    with pytest.raises(mpscnn.ImportError, match=r"cannot be read by torch\.load|more than weights"):
        load(file)


def test_without_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"x": torch.ones(1)}, tmp_path / "model.pt")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        mpscnn.MissingPackageError, match=r"a file of PyTorch's, needs the package torch, .* pip install"
    ):
        load(tmp_path / "model.pt")
    with pytest.raises(builtins.ImportError):
        load(tmp_path / "model.pt")


@pytest.mark.parametrize(
    ("layout", "match"),
    [
        ([("x", "float32", (5,))], r"has 16 bytes; the 1 arrays of the layout need 20"),
        ([("x", "float32", (4,)), ("x", "float32", (4,))], r'the name "x" appears twice'),
        ([("x", "float32")], r"is not \(name, dtype, shape\)"),
        ([("x", "f32", (4,))], r"is not \(name, dtype, shape\)"),
        ([("x", "O", (2,))], r'"x" has a dtype \(\|O\) that is not a number'),
        ([("x", "U4", (1,))], r'"x" has a dtype \(<U4\) that is not a number'),
        ([("x", "float32", (-4,))], r"has an extent \(-4\) outside of 0"),
    ],
)
def test_layouts_that_are_refused(tmp_path: Path, layout: Any, match: str) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(16))
    with pytest.raises(mpscnn.InvalidModelError, match=match):
        load(tmp_path / "weights.bin", layout)


def index_of(folder: Path, mapping: Any) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": mapping}))
    return path


@pytest.mark.parametrize(
    ("mapping", "match"),
    [
        ({"a": "../secret.safetensors"}, r'"\.\./secret\.safetensors" is not the name of a file in the folder'),
        ({"a": "/etc/passwd"}, r'"/etc/passwd" is not the name of a file in the folder'),
        ({"a": "..\\secret.safetensors"}, r"is not the name of a file in the folder"),
        ({"a": "config.json"}, r'"config\.json" is not the name of a safetensors file'),
        ({"a": "link.safetensors"}, r"leads out of the folder"),
        ({"a": "none.safetensors"}, r"cannot be opened: No such file"),
        ({"a": 3}, r"has no weight_map"),
        ([], r"has no weight_map"),
        ({"a": "one.safetensors", "b": "one.safetensors"}, r'array "b" is not in "one\.safetensors"'),
        (
            {"a": "one.safetensors", "b": "two.safetensors"},
            r'"a" is in "two\.safetensors", where the index has \'one\.',
        ),
    ],
)
def test_an_index_that_is_refused(tmp_path: Path, mapping: Any, match: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    one = {"a": np.ones(2, np.float32)}
    save_file(one, folder / "one.safetensors")
    save_file({**one, "b": np.ones(2, np.float32)}, folder / "two.safetensors")
    save_file(one, tmp_path / "secret.safetensors")
    (folder / "link.safetensors").symlink_to("../secret.safetensors")
    with pytest.raises(mpscnn.InvalidModelError, match=match):
        load(index_of(folder, mapping))


def test_folders_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(mpscnn.InvalidModelError, match=r"has no file of weights \(\.safetensors\.index\.json, "):
        load(tmp_path)
    for name in ("a", "b"):
        save_file({"a": np.ones(2, np.float32)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(mpscnn.InvalidModelError, match=r"has 2 files \.safetensors: a\.safetensors, b\.safetensors"):
        load(tmp_path)
    (tmp_path / "b.safetensors").unlink()
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(mpscnn.InvalidModelError, match=r"config\.json.*\(list\) is not an object of JSON"):
        load(tmp_path)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(mpscnn.InvalidModelError, match="cannot be opened: No such file"):
        load(tmp_path / "none.safetensors")
    with pytest.raises(mpscnn.InvalidModelError, match="cannot be opened"):
        load(str(tmp_path / "a\0.safetensors"))
    with pytest.raises(
        mpscnn.InvalidModelError, match=r'has a suffix \("\.h5"\) that is not one of \.safetensors, \.npz'
    ):
        load(tmp_path / "model.h5")
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(mpscnn.InvalidModelError, match="is not a regular file"):
        load(tmp_path / "pipe.npz")
    with pytest.raises(TypeError, match=r"path \(int\) is not a path"):
        load(3)  # type: ignore[arg-type]


# ---- many arrays


def test_a_million_arrays(tmp_path: Path) -> None:
    """Counted before JSON is parsed, which would take a minute; keys with other spellings are counted afterwards."""
    count = 1_000_000
    entries = (b'"%d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}' % (i, i, i + 1) for i in range(count))
    header = b"{" + b",".join(entries) + b"}"
    (tmp_path / "many.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(count))
    begin = time.process_time()
    with pytest.raises(mpscnn.InvalidModelError, match=r"has 1000000 arrays, more than the limit \(100000\)"):
        load(tmp_path / "many.safetensors")
    assert time.process_time() - begin < 2
    header = b"{" + b",".join(b'"%d":0' % i for i in range(100_001)) + b"}"
    (tmp_path / "many.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(mpscnn.InvalidModelError, match=r"has 100001 arrays, more than the limit \(100000\)"):
        load(tmp_path / "many.safetensors")


@pytest.mark.parametrize("told", [True, False])
def test_many_members(tmp_path: Path, told: bool) -> None:
    """As counted by the end record, and as present in the file."""
    with zipfile.ZipFile(tmp_path / "many.npz", "w") as archive:
        for i in range(10_001):
            archive.writestr(f"{i}.npy", b"")
    data = bytearray((tmp_path / "many.npz").read_bytes())
    if not told:
        data[-12] = data[-11] = data[-14] = data[-13] = 0
    (tmp_path / "many.npz").write_bytes(data)
    with pytest.raises(mpscnn.InvalidModelError, match=r"has 10001 members, more than the limit \(10000\)"):
        load(tmp_path / "many.npz")


def test_a_hundred_thousand_members(tmp_path: Path) -> None:
    entry = b"PK\x01\x02" + bytes(42)
    members = entry * 50_000
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 50_000, 50_000, len(members), 0, 0)
    (tmp_path / "many.npz").write_bytes(members + end)
    begin = time.process_time()
    with pytest.raises(mpscnn.InvalidModelError, match=r"has 50000 members, more than the limit"):
        load(tmp_path / "many.npz")
    assert time.process_time() - begin < 0.2
