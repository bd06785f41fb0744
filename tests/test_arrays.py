# SPDX-License-Identifier: Apache-2.0
"""Python objects as arrays of the extension and back: no copies, and owners alive as long as needed."""

from __future__ import annotations

import array
import gc
import mmap
import subprocess
import sys
import textwrap
import weakref

import numpy as np
import pytest

import mpscnn
from mpscnn import _core

ml_dtypes = pytest.importorskip("ml_dtypes")


def described(a: np.ndarray):
    return (a.ctypes.data, a.shape, a.strides, a.dtype.name, not a.flags.writeable)


def address_of(given: object):
    """The memory that functions of the extension would use."""
    return described(_core._view(given))


DTYPES = ["uint8", "uint16", "int32", "uint32", "int64", "float16", "float32", "float64", ml_dtypes.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_numpy(dtype):
    a = np.zeros((3, 4, 5), dtype)
    for view in (
        a,
        a[::2, ::-1, 1:3],
        a.T,
        a[0, 0, 0:1],
        np.zeros((), dtype),
        np.zeros((0, 3), dtype),
        np.broadcast_to(a[0], (7, 4, 5)),
    ):
        assert address_of(view) == described(view)


def test_numpy_dtypes_by_size_not_by_c_name():
    for code in "lqiILQ":
        a = np.zeros(3, code)
        if a.dtype.name in ("int64", "int32", "uint32"):
            assert address_of(a)[3] == a.dtype.name


def test_numpy_subclass_and_foreign_order():
    class Sub(np.ndarray):
        pass

    a = np.zeros((2, 3), np.float32).view(Sub)
    assert address_of(a) == described(a)
    for bad in (
        np.zeros(2, ">f4"),
        np.zeros(2, np.int8),
        np.zeros(2, bool),
        np.zeros(2, "c8"),
        np.zeros(2, "S3"),
        np.zeros(2, object),
    ):
        with pytest.raises(TypeError, match=r"^object\.dtype \(.*\) is not uint8, .* in native byte order\.$"):
            address_of(bad)


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "uint8", "float64", "int64", "int32"])
def test_torch_shares_its_memory(name):
    torch = pytest.importorskip("torch")
    t = torch.zeros((4, 3, 2, 5), dtype=getattr(torch, name))
    size = t.element_size()
    for tensor in (t, t[1:, :, :, ::2], t.permute(0, 2, 3, 1), t.expand(4, 3, 2, 5)):
        address, shape, strides, dtype, read_only = address_of(tensor)
        assert (address, shape, dtype, read_only) == (tensor.data_ptr(), tuple(tensor.shape), name, False)
        assert strides == tuple(step * size for step in tensor.stride())


def test_torch_parameters_and_results():
    torch = pytest.importorskip("torch")
    conv = torch.nn.Conv2d(5, 7, (3, 2))
    assert conv.weight.requires_grad
    assert address_of(conv.weight)[0] == conv.weight.data_ptr()
    result = mpscnn.reorder(conv.weight)
    assert isinstance(result, np.ndarray)
    assert np.array_equal(result, conv.weight.detach().permute(0, 2, 3, 1).numpy())
    half = conv.weight.detach().bfloat16()
    assert mpscnn.reorder(half).dtype == ml_dtypes.bfloat16
    assert np.array_equal(mpscnn.reorder(half).astype(np.float32), half.float().permute(0, 2, 3, 1).numpy())
    out = torch.zeros((7, 3, 2, 5))
    assert mpscnn.reorder(conv.weight, out=out) is out
    assert torch.equal(out, conv.weight.detach().permute(0, 2, 3, 1))


class Exporter:
    """An array of another library that supports only DLPack."""

    def __init__(self, a, versioned=True):
        self.array, self.versioned, self.exported = a, versioned, []

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **kwargs):
        if kwargs and not self.versioned:
            raise TypeError("unexpected keyword argument")
        capsule = self.array.__dlpack__(**kwargs)
        self.exported.append(repr(capsule))
        return capsule


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack_capsules_are_taken_over_and_freed(versioned):
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4).copy()
    base = sys.getrefcount(a)
    exporter = Exporter(a[:, ::-1], versioned)
    view = _core._view(exporter)
    assert exporter.exported
    assert ("versioned" in exporter.exported[0]) == versioned
    assert np.shares_memory(view, a)
    assert np.array_equal(view, a[:, ::-1])
    view[0, 0, 0] = -1
    assert a[0, 2, 0] == -1
    del exporter
    gc.collect()
    assert sys.getrefcount(a) > base, "the view does not keep the tensor"
    del view
    gc.collect()
    assert sys.getrefcount(a) == base, "the capsule's deleter was not called"


def test_dlpack_read_only():
    a = np.zeros((1, 1, 2, 2), np.float32)
    a.flags.writeable = False
    assert address_of(Exporter(a))[4] is True
    with pytest.raises(ValueError, match=r"^out is read-only\.$"):
        mpscnn.reorder(np.zeros((1, 2, 1, 2), np.float32), "OIHW", "OHWI", Exporter(a))


def test_dlpack_device_memory_is_refused():
    exporter = Exporter(np.zeros(2, np.float32))
    exporter.__class__ = type("OnGPU", (Exporter,), {"__dlpack_device__": lambda self: (2, 0)})
    with pytest.raises(
        TypeError, match=r"^object \(OnGPU\) lies on DLPack device 2, not in the memory of the CPU \(1\)\.$"
    ):
        address_of(exporter)


def test_dlpack_types_that_are_refused():
    for bad in (np.zeros(2, np.complex64), np.zeros(2, np.int8), np.zeros(2, bool)):
        before = sys.getrefcount(bad)
        with pytest.raises(TypeError, match=r"object\.dtype \(DLPack code"):
            address_of(Exporter(bad))
        gc.collect()
        assert sys.getrefcount(bad) <= before + 1


class Interface:
    def __init__(self, **interface):
        self.__array_interface__ = interface


def test_array_interface():
    a = np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2]
    assert address_of(Interface(**a.__array_interface__)) == described(a)
    memory = bytearray(64)
    here = np.frombuffer(memory, np.uint8).ctypes.data
    shared = Interface(version=3, typestr="<f4", shape=(2, 3), data=memory, offset=8)
    assert address_of(shared) == (here + 8, (2, 3), (12, 4), "float32", False)
    for bad in (
        {"shape": (4, 4), "offset": 4},
        {"shape": (2, 2), "strides": (-8, 4)},
        {"shape": (2, 2), "strides": (2**62, 4)},
    ):
        with pytest.raises(TypeError, match=r"reaches over bytes|overflow"):
            address_of(Interface(version=3, typestr="<f4", data=memory, **bad))
    for typestr in (">f4", "<i2", "<c8", "|b1", "<f8x"):
        with pytest.raises(TypeError, match=r"object\.dtype"):
            address_of(Interface(version=3, typestr=typestr, shape=(1,), data=memory))
    with pytest.raises(ValueError, match="negative extent"):
        address_of(Interface(version=3, typestr="<f4", shape=(-1,), data=memory))
    with pytest.raises(MemoryError, match=r"more than 2\^63 bytes"):
        address_of(Interface(version=3, typestr="<f4", shape=(2**40, 2**40), data=(here, False)))


def test_buffer_protocol(tmp_path):
    assert address_of(b"abcd")[1:] == ((4,), (1,), "uint8", True)
    memory = bytearray(16)
    assert address_of(memory)[1:] == ((16,), (1,), "uint8", False)
    for code, name in (
        ("f", "float32"),
        ("d", "float64"),
        ("i", "int32"),
        ("H", "uint16"),
        ("q", "int64"),
        ("I", "uint32"),
    ):
        values = array.array(code, [1, 2, 3])
        assert address_of(values)[:4] == (values.buffer_info()[0], (3,), (values.itemsize,), name)
    assert address_of(memoryview(memory)[::-2])[1:3] == ((8,), (-2,))
    assert address_of(memoryview(memory).cast("B", (4, 4)).cast("B").cast("f", (2, 2)))[1:4] == (
        (2, 2),
        (8, 4),
        "float32",
    )
    path = tmp_path / "weights"
    path.write_bytes(np.arange(8, dtype=np.float32).tobytes())
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = _core._view(memoryview(mapped).cast("f"))
        assert not view.flags.writeable
        assert view[7] == 7
        with pytest.raises(BufferError):
            mapped.close()  # the view holds it
        del view
    with pytest.raises(TypeError, match="buffer format"):
        address_of(array.array("b", [1]))


def test_a_bytearray_cannot_be_resized_under_a_view():
    memory = bytearray(8)
    view = _core._view(memory)
    with pytest.raises(BufferError):
        memory.append(1)
    view[0] = 7
    assert memory[0] == 7
    del view
    memory.append(1)


@pytest.mark.parametrize("bad", [[1.0], (1, 2), 3, "text", None, {}, object()], ids=lambda bad: type(bad).__name__)
def test_objects_that_are_not_arrays(bad):
    name = type(bad).__name__
    with pytest.raises(
        TypeError, match=rf"^object \({name}\) is not an array: it has neither DLPack, __array_interface__ nor"
    ):
        address_of(bad)


def test_views_keep_their_owner():
    class Owner(np.ndarray):
        pass

    a = np.arange(6, dtype=np.float32).view(Owner)
    alive = weakref.ref(a)
    view = _core._view(a)
    del a
    gc.collect()
    assert alive() is not None
    assert view[5] == 5
    del view
    gc.collect()
    assert alive() is None


def test_owner_may_be_dropped_by_any_thread():
    class Owner:
        pass

    owner = Owner()
    alive = weakref.ref(owner)
    _core._drop_on_thread(owner)
    del owner
    gc.collect()
    assert alive() is None


def test_views_alive_at_shutdown():
    code = """
    import sys, mpscnn, numpy as np
    from mpscnn import _core
    sys.keep = [_core._view(bytearray(8)), mpscnn.empty((1 << 20,)), _core._view(mpscnn.empty((3, 4)))]
    print("done")
  """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (1000, 1001), (2, 0, 3)])
def test_empty(shape, dtype):
    a = mpscnn.empty(shape, dtype)
    assert a.shape == shape
    assert a.dtype == np.dtype(dtype)
    assert a.flags.c_contiguous
    assert a.flags.writeable
    assert a.flags.aligned
    assert a.ctypes.data % mmap.PAGESIZE == 0
    a[...] = 1
    assert (a == 1).all()


def test_empty_arguments():
    assert mpscnn.empty(5).shape == (5,)
    assert mpscnn.empty([2, np.int64(3)]).dtype == np.float32
    assert mpscnn.empty((2,), dtype="bfloat16").dtype == ml_dtypes.bfloat16
    assert mpscnn.empty(shape=(2,), dtype=np.float16).dtype == np.float16
    for call, error, message in (
        (lambda: mpscnn.empty((-1,)), ValueError, r"^empty: shape \(-1,\) has a negative extent\.$"),
        (lambda: mpscnn.empty((2,), "complex64"), TypeError, r"^dtype \(complex64\) is not uint8, "),
        (
            lambda: mpscnn.empty((2**45,)),  # a process's whole address space, which no system can provide
            MemoryError,
            r"^140737488355328 bytes for an array of shape \(35184372088832,\) are not",
        ),
        (
            lambda: mpscnn.empty((2**40, 2**40)),
            MemoryError,
            r"^empty: shape \(1099511627776, 1099511627776\) of float32 is more than",
        ),
        (lambda: mpscnn.empty("12"), TypeError, r"^shape \(str\) is neither an int nor a sequence of them\.$"),
        (lambda: mpscnn.empty(2.5), TypeError, r"^shape \(float\) is neither"),
        (lambda: mpscnn.empty((2.5,)), TypeError, r"float"),
        (lambda: mpscnn.empty((1,) * 33), ValueError, r"^empty: ndim \(33\) is greater than the maximum 32\.$"),
    ):
        with pytest.raises(error, match=message):
            call()


def test_pages_are_reused_only_after_the_last_view():
    a = mpscnn.empty((1 << 20,), np.uint8)
    address = a.ctypes.data
    view = a[5:9]
    del a
    b = mpscnn.empty((1 << 20,), np.uint8)
    assert b.ctypes.data != address
    del view
    c = mpscnn.empty((1 << 20,), np.uint8)
    assert c.ctypes.data == address


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_no_growth_in_a_loop():
    def resident():
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

    source = np.ones((64, 64, 3, 3), np.float32)
    for _ in range(50):
        mpscnn.reorder(source)
    before = resident()
    for i in range(3000):
        mpscnn.empty((1000 + i,), np.float64)[...] = 0
        mpscnn.reorder(source)
        _core._view(Exporter(source))
    assert resident() - before < 32 << 10
