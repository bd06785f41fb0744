# SPDX-License-Identifier: Apache-2.0
"""Arrays of other libraries with wrong descriptions: an exception before any memory is read."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

import numpy as np
import pytest

import mpscnn
from support import random


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Exporter:
    """(1, 5, 7, 4) float32 in a DLPack capsule, with the given fields replaced."""

    def __init__(self, **fields: Any) -> None:
        self.array = random((1, 5, 7, 4))
        self.shape = (ctypes.c_int64 * 4)(*self.array.shape)
        given = {"data": self.array.ctypes.data, "device_type": 1, "ndim": 4, "code": 2, "bits": 32, "lanes": 1}
        self.managed = Managed(DLTensor(shape=self.shape, **(given | fields)))

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **_: Any) -> Any:
        return new_capsule(ctypes.addressof(self.managed), b"dltensor", None)


def test_the_exporter_is_right() -> None:
    exporter = Exporter()
    np.testing.assert_array_equal(mpscnn.Image.from_array(exporter).numpy(), exporter.array)


@pytest.mark.parametrize(
    ("fields", "error", "sentence"),
    [
        ({"data": None}, ValueError, r"x \(Exporter\) has no memory: its address is NULL\."),
        ({"ndim": 2**31 - 1}, ValueError, r"x \(Exporter\): ndim \(2147483647\) of its DLPack capsule is not within 0"),
        ({"ndim": -1}, ValueError, r"ndim \(-1\) of its DLPack capsule is not within 0 to 64\."),
        ({"device_type": 2}, TypeError, r"x \(Exporter\) lies on DLPack device 2, not in the memory of the CPU"),
    ],
    ids=str,
)
def test_capsules(fields: dict[str, Any], error: type[Exception], sentence: str) -> None:
    for call in (mpscnn.Image.from_array, mpscnn.NeuronReLU()):
        with pytest.raises(error, match=sentence):
            call(Exporter(**fields))


def test_a_capsule_without_a_shape() -> None:
    exporter = Exporter()
    exporter.managed.tensor.shape = ctypes.POINTER(ctypes.c_int64)()
    with pytest.raises(ValueError, match=r"x \(Exporter\): shape of its DLPack capsule is NULL\."):
        mpscnn.Image.from_array(exporter)


def test_an_array_interface_without_memory() -> None:
    class Interface:
        __array_interface__: ClassVar = {"shape": (1, 5, 7, 4), "typestr": "<f4", "data": (0, False), "version": 3}

    for call in (mpscnn.Image.from_array, mpscnn.NeuronReLU()):
        with pytest.raises(ValueError, match=r"x \(Interface\) has no memory: its address is NULL\."):
            call(Interface())
