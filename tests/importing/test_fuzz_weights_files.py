# SPDX-License-Identifier: Apache-2.0
"""Files of weights with arbitrary bytes: arrays that fit the file, or an exception derived from ImportError.

tests/fuzzing.py describes long searches. The corpus has one file for each kind of damage seen so far; files whose names
begin with "valid" are read.
"""

from __future__ import annotations

import json
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import mpscnn
from fuzzing import Fuzz
from mpscnn.importing.weights_files import INFLATION_FREE, load

CORPUS = Path(__file__).resolve().parent / "corpus" / "weights_files"
FILES = sorted(CORPUS.iterdir())
SUFFIXES = sorted({file.suffix for file in FILES})

EXAMPLES = 150
fuzz = Fuzz()


def check(content: bytes, suffix: str) -> bool:
    """Return whether the file is read; check that the arrays are consistent."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model" + suffix)
        file.write_bytes(content)
        try:
            weights = load(file)
            arrays = {name: weights[name] for name in weights}
        except mpscnn.ImportError as error:
            text = str(error)
            text.encode()
            assert len(text) < 2000
            assert text.endswith((".", ")")) or "torch.load" in text
            return False
        for name, array in arrays.items():
            assert array.shape == weights.shapes[name]
            assert not array.flags.writeable
            np.array(array)  # reads all of it
        size = sum(array.nbytes for array in arrays.values())
        assert size <= (INFLATION_FREE if suffix == ".npz" else 2 * len(arrays) * len(content))
    return True


@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_corpus(file: Path) -> None:
    assert check(file.read_bytes(), file.suffix) == file.name.startswith("valid")


@fuzz.given(EXAMPLES, content=st.binary(max_size=400), suffix=st.sampled_from(SUFFIXES))
def test_any_bytes(content: bytes, suffix: str) -> None:
    check(content, suffix)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[bytes, str]:
    """Return a file of the corpus with bytes changed, added, removed, repeated, or exchanged with those of another."""
    file = draw(st.sampled_from(FILES))
    content = bytearray(file.read_bytes())
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(content)))
        length = draw(st.integers(0, 12))
        kind = draw(st.sampled_from(["change", "insert", "delete", "repeat", "cut", "integer", "splice"]))
        if kind == "change":
            content[begin : begin + length] = draw(st.binary(min_size=length, max_size=length))
        elif kind == "insert":
            content[begin:begin] = draw(st.binary(max_size=12))
        elif kind == "delete":
            del content[begin : begin + length]
        elif kind == "repeat":
            content[begin:begin] = content[begin : begin + 8 * length]
        elif kind == "cut":
            del content[begin:]
        elif kind == "integer":
            number = draw(st.sampled_from([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 1 << 40]))
            data = struct.pack("<Q", number)[: draw(st.sampled_from([1, 2, 4, 8]))]
            content[begin : begin + len(data)] = data
        else:
            other = draw(st.sampled_from(FILES)).read_bytes()
            at = draw(st.integers(0, len(other)))
            content[begin : begin + 4 * length] = other[at : at + 4 * length]
    return bytes(content), file.suffix


@fuzz.given(EXAMPLES, damaged())
def test_damaged_files(file: tuple[bytes, str]) -> None:
    check(*file)


numbers = st.one_of(
    st.integers(-3, 40), st.sampled_from([2**31 - 1, 2**31, 2**62, 2**63, 2**64, 10**100]), st.floats(), st.booleans()
)
anything: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), numbers, st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=6,
)
entries = st.fixed_dictionaries(
    {
        "dtype": st.one_of(st.sampled_from(["F32", "F16", "BF16", "U8", "I64", "BOOL", "F4"]), anything),
        "shape": st.one_of(st.lists(numbers, max_size=5), anything),
        "data_offsets": st.one_of(st.lists(numbers, min_size=2, max_size=2), anything),
    },
    optional={"more": anything},
)


@fuzz.given(
    EXAMPLES,
    header=st.one_of(st.dictionaries(st.text(max_size=4), st.one_of(entries, entries, anything), max_size=4), anything),
    data=st.binary(max_size=64),
)
def test_headers_of_safetensors(header: Any, data: bytes) -> None:
    text = json.dumps(header).encode()
    check(struct.pack("<Q", len(text)) + text + data, ".safetensors")


@fuzz.given(
    EXAMPLES,
    shapes=st.lists(
        st.tuples(st.sampled_from(["F32", "U8", "BF16"]), st.lists(st.integers(0, 3), max_size=3)), max_size=4
    ),
    extra=st.integers(-2, 2),
)
def test_headers_that_are_nearly_right(shapes: list[tuple[str, list[int]]], extra: int) -> None:
    header, at = {}, 0
    for index, (dtype, shape) in enumerate(shapes):
        size = int(np.prod(shape, dtype=int)) * {"F32": 4, "U8": 1, "BF16": 2}[dtype]
        header[str(index)] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    content = struct.pack("<Q", len(text)) + text + bytes(max(0, at + extra))
    assert check(content, ".safetensors") == (len(content) == 8 + len(text) + at)


layouts = st.lists(
    st.tuples(
        st.one_of(st.text(max_size=2), anything),
        st.one_of(st.sampled_from(["float32", "bfloat16", "uint8", "O", "V3"]), anything),
        st.one_of(st.lists(numbers, max_size=3), anything),
    ),
    max_size=3,
)


@fuzz.given(EXAMPLES, layouts, st.binary(max_size=16))
def test_layouts(layout: list[tuple[Any, Any, Any]], content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "weights.bin")
        file.write_bytes(content)
        try:
            weights = load(file, layout)
        except mpscnn.ImportError:
            return
        assert sum(weights[name].nbytes for name in weights) <= 2 * len(content)


def test_a_dtype_that_numpy_will_forget(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"")
    with pytest.raises(mpscnn.InvalidModelError, match="layout"):
        load(tmp_path / "weights.bin", [("x", "a", ())])
