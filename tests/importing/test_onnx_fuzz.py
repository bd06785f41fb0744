# SPDX-License-Identifier: Apache-2.0
"""Damaged ONNX models: the importer raises only errors derived from mpscnn.ImportError.

tests/fuzzing.py describes long searches; they write failures into the corpus.
"""

from __future__ import annotations

import functools
import pathlib
import random
import time
import zlib

import numpy as np
import onnx
import pytest
from hypothesis import strategies as st
from onnx import helper
from onnx_support import cases, model

import mpscnn
from fuzzing import SECONDS, Fuzz
from mpscnn.importing import onnx as importer

CORPUS = pathlib.Path(__file__).with_name("corpus") / "onnx"
fuzz = Fuzz()
node = helper.make_node


def network() -> onnx.ModelProto:
    """Return a model with the operators that the importer evaluates itself."""
    rng = np.random.default_rng(1)
    return model(
        [
            node("Conv", ["x", "w", "b"], ["c"], auto_pad="SAME_UPPER", strides=[2, 2]),
            node("BatchNormalization", ["c", "s", "b", "b", "s"], ["n"]),
            node("Clip", ["n", "low", ""], ["r"]),
            node("MaxPool", ["r"], ["m"], kernel_shape=[2, 2], ceil_mode=1, pads=[1, 0, 0, 1]),
            node("Resize", ["m", "", "scales"], ["u"], mode="linear"),
            node("Shape", ["u"], ["shape"]),
            node("Slice", ["shape", "zero", "one"], ["batch"]),
            node("Concat", ["batch", "rest"], ["target"], axis=0),
            node("Reshape", ["u", "target"], ["f"]),
            node("ReduceMean", ["f"], ["g"], axes=[2], keepdims=0),
            node("Gemm", ["g", "fc"], ["y"], transB=1, alpha=0.5),
            node("Split", ["c", "parts"], ["p", "q"], axis=1),
            node("Transpose", ["q"], ["t"], perm=[0, 2, 3, 1]),
            node("Pad", ["t", "pads"], ["z"], mode="constant"),
            node("ConvTranspose", ["p", "wt"], ["v"], strides=[2, 2], output_padding=[1, 0]),
        ],
        {"x": (2, 3, 8, 10)},
        ["y", "z", "v"],
        w=rng.standard_normal((4, 3, 3, 3)).astype(np.float32),
        b=np.ones(4, np.float32),
        s=np.ones(4, np.float32),
        low=np.asarray(0, np.float32),
        scales=np.float32([1, 1, 2, 2]),
        zero=np.int64([0]),
        one=np.int64([1]),
        rest=np.int64([4, -1]),
        fc=np.ones((5, 4), np.float32),
        parts=np.int64([1, 3]),
        pads=np.int64([0, 1, 0, 0, 0, 0, 2, 1]),
        wt=np.ones((1, 2, 3, 3), np.float32),
    )


NUMBERS = (0, 1, -1, 2, 3, 5, 7, 64, 255, 2**16, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
REALS = (0.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))


def messages(message, found):
    """Return the message and all messages in it."""
    found.append(message)
    for field, value in message.ListFields():
        if field.type != field.TYPE_MESSAGE:
            continue
        for inner in value if not hasattr(value, "ListFields") else [value]:
            if hasattr(inner, "ListFields"):
                messages(inner, found)
    return found


def mutate(proto: onnx.ModelProto, rng: random.Random) -> None:
    """Change one field."""
    message = rng.choice(messages(proto, []))
    fields = message.ListFields()
    if not fields:
        return
    field, value = rng.choice(fields)
    repeated = not isinstance(value, (int, float, str, bytes, bool)) and not hasattr(value, "ListFields")
    if repeated:
        if len(value) and rng.random() < 0.4:
            del value[rng.randrange(len(value))]
        elif len(value) and field.type == field.TYPE_MESSAGE:
            value.add().CopyFrom(rng.choice(list(value)))
        elif len(value):
            index = rng.randrange(len(value))
            value[index] = changed(value[index], proto, rng)
        return
    if hasattr(value, "ListFields") or rng.random() < 0.1:
        message.ClearField(field.name)
        return
    setattr(message, field.name, changed(value, proto, rng))


def changed(value, proto: onnx.ModelProto, rng: random.Random):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice([*NUMBERS, value + 1, value - 1, -value])
    if isinstance(value, float):
        return rng.choice(REALS)
    if isinstance(value, bytes):
        cut = rng.randrange(len(value) + 1)
        return rng.choice([value[:cut], value + b"\0", bytes(rng.randrange(256) for _ in value), b"reflect", b"VALID"])
    names = [name for n in proto.graph.node for name in (*n.input, *n.output, n.op_type)]
    return rng.choice([*names, "", value + "x", *importer.OPERATORS])


def attempt(given: object) -> None:
    """Read the model; raise errors not derived from ImportError, and fail if reading takes too long."""
    start = time.process_time()
    try:
        importer.read(given)
    except mpscnn.ImportError:
        pass
    except (ValueError, TypeError) as error:
        if type(error) is ValueError and "values for field" in str(error):
            return  # protobuf's own, for a value that no field of a file can have
        raise
    assert time.process_time() - start < 20


@functools.cache
def seeds() -> list[onnx.ModelProto]:
    every = [case.proto for case in cases() if case.variant == "constants" and len(case.proto.graph.node) == 1]
    return [network(), network(), network(), *every[::7]]


def mutated(number: int, models: list[onnx.ModelProto]) -> onnx.ModelProto:
    rng = random.Random(number)
    proto = onnx.ModelProto()
    proto.CopyFrom(rng.choice(models))
    for _ in range(rng.choice([1, 1, 2, 4])):
        try:
            mutate(proto, rng)
        except (ValueError, TypeError, OverflowError):
            continue  # a number out of the field's range
    return proto


def keep(data: bytes) -> pathlib.Path:
    """Write a failure into the corpus."""
    CORPUS.mkdir(parents=True, exist_ok=True)
    path = CORPUS / f"{zlib.crc32(data):08x}.onnx"
    path.write_bytes(data)
    return path


def test_the_network_is_read():
    assert len(importer.read(network())) > 12


@fuzz.given(150, st.binary(max_size=200))
def test_bytes(data):
    attempt(data)


@fuzz.given(300, st.data())
def test_bytes_of_a_model(data):
    good = bytearray(network().SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(good) - 1))
        good[place] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del good[data.draw(st.integers(0, len(good) - 1)) :]
    attempt(bytes(good))


@fuzz.seeds(1500)
def test_mutated_models(seed):
    data = mutated(seed, seeds()).SerializeToString()
    try:
        attempt(data)
    except Exception:
        if SECONDS:
            keep(data)
        raise


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.onnx")), ids=lambda path: path.name)
def test_corpus(path):
    attempt(path)


def test_there_is_a_corpus():
    assert list(CORPUS.glob("*.onnx"))
