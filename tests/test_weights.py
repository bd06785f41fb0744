# SPDX-License-Identifier: Apache-2.0
"""mpscnn.reorder against NumPy's transpose, which shares no code with it."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import mpscnn
from support import SANITIZED

hypothesis = pytest.importorskip("hypothesis")
torch = pytest.importorskip("torch")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

ml_dtypes = pytest.importorskip("ml_dtypes")

AXES = {"OIHW": "OIHW", "OHWI": "OHWI", "HWIO": "HWIO", "IOHW": "IOHW", "C1HW": "OIHW"}
FOUR = ["OIHW", "OHWI", "HWIO", "IOHW"]
DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.uint8, np.float64]


def words(a: np.ndarray) -> np.ndarray:
    """Return the same memory as unsigned integers: NaNs must be compared by their bits."""
    return a.view(np.dtype(f"u{a.dtype.itemsize}"))


def random_array(shape, dtype, seed: int = 0) -> np.ndarray:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8).view(dtype).reshape(shape)


def expected(a: np.ndarray, source: str, target: str) -> np.ndarray:
    return np.ascontiguousarray(words(a).transpose([AXES[source].index(axis) for axis in AXES[target]]))


def check(a: np.ndarray, source: str, target: str, **kwargs) -> np.ndarray:
    before = words(a).copy()
    result = mpscnn.reorder(a, source=source, target=target, **kwargs)
    want = expected(a, source, target)
    assert result.dtype == a.dtype
    assert result.shape == want.shape
    assert np.array_equal(words(result), want)
    assert np.array_equal(words(a), before), "the source was written to"
    return result


# (shape, reason); in the order of the source's axes, whatever their meaning
SHAPES = [
    ((1, 1, 1, 1), "one element"),
    ((2, 3, 4, 5), "all extents differ, below every vector"),
    ((16, 16, 3, 3), "one block of four lanes"),
    ((17, 33, 3, 3), "a block and one more: overlapping last blocks"),
    ((5, 131, 7, 7), "prime rows, 49 columns: partial column groups"),
    ((131, 5, 1, 1), "no window: a plain transpose"),
    ((67, 71, 2, 1), "pairs travel as one wider word"),
    ((9, 13, 11, 17), "rows shorter than a vector of bytes"),
    ((32, 1, 3, 3), "depth-wise: a copy"),
    ((64, 3, 7, 7), "three channels: rows that overshoot into the next"),
    ((3, 300, 5, 5), "wide tiles"),
    ((70, 530, 3, 2), "more than one block of rows and columns"),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize(("shape", "why"), SHAPES, ids=[str(shape) for shape, _ in SHAPES])
def test_all_pairs_of_layouts(shape, why, dtype):
    a = random_array(shape, dtype)
    for source, target in itertools.product(FOUR, FOUR):
        check(a, source, target)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_non_contiguous_sources(dtype):
    base = random_array((18, 40, 10, 14), dtype)
    views = {
        "gaps": base[::2, 1::3, ::2, 1::4],
        "flipped": base[::-1, ::-1, ::-1, ::-1],
        "rotated by 180 degrees": base[:, :, ::-1, ::-1],
        "fortran": np.asfortranarray(base),
        "cut": base[3:17, 5:38, 1:4, 2:5],
        "broadcast over O": np.broadcast_to(base[:1], (6, 40, 10, 14)),
        "broadcast over I, H, W": np.broadcast_to(base[:, :1, :1, :1], (18, 9, 3, 5)),
        "one element for all": np.broadcast_to(base[:1, :1, :1, :1], (3, 4, 5, 6)),
    }
    for view in views.values():
        for source, target in itertools.product(FOUR, FOUR):
            check(view, source, target)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("source", FOUR)
def test_tensors_that_are_threaded(source, dtype):
    shape = (320, 288, 3, 3) if source != "HWIO" else (3, 3, 320, 288)
    a = random_array(shape, dtype)
    if dtype is np.uint8:
        a = np.tile(a, (2, 1, 1, 1) if source != "HWIO" else (1, 1, 2, 1))
    for target in FOUR:
        check(a, source, target)
        check(a, source, target, threads=2)


@pytest.mark.parametrize(("shape", "dtype"), [((1100, 512, 7, 7), np.float16), ((1031, 509, 7, 7), np.float16)])
def test_tensors_beyond_the_caches(shape, dtype):
    """Over 50 MB: stores that bypass the caches, with rows aligned to cache lines and unaligned ones."""
    a = random_array(shape, dtype)
    there = check(a, "OIHW", "OHWI")
    back = mpscnn.reorder(there, source="OHWI", target="OIHW")
    assert np.array_equal(words(back), words(a))
    out = np.empty(a.size + 8, dtype)[3:-5].reshape(there.shape)  # six bytes past a line
    assert mpscnn.reorder(a, out=out) is out
    assert np.array_equal(words(out), words(there))
    check(there.reshape(1, 1, -1, there.shape[-1]), "HWIO", "OIHW")  # one large plain transpose
    check(a, "OIHW", "OIHW")


@pytest.mark.parametrize("target", FOUR)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("shape", [(7, 5, 3, 3), (64, 3, 7, 7), (33, 40, 2, 5), (40, 70, 1, 1), (6, 300, 5, 5)])
def test_out_is_written_exactly(shape, dtype, target):
    a = random_array(shape, dtype)
    want = expected(a, "OIHW", target)
    band = 128
    memory = np.full(want.size + 2 * band, 0xA5, words(a).dtype)
    out = memory[band:-band].reshape(want.shape).view(dtype)
    assert mpscnn.reorder(a, source="OIHW", target=target, out=out) is out
    assert np.array_equal(words(out), want)
    assert (memory[:band] == 0xA5).all(), "written before out"
    assert (memory[-band:] == 0xA5).all(), "written behind out"


def test_strided_out_leaves_its_gaps_alone():
    a = random_array((12, 20, 3, 5), np.float32)
    want = expected(a, "OIHW", "OHWI")
    room = np.zeros((24, 6, 10, 41), np.uint32)
    out = room[::2, ::2, ::-2, 1::2]
    mpscnn.reorder(a, out=out.view(np.float32))
    assert np.array_equal(out, want)
    mask = np.ones(room.shape, bool)
    mask[::2, ::2, ::-2, 1::2] = False
    assert not room[mask].any()
    fortran = np.zeros(want.shape, np.float32, order="F")
    assert np.array_equal(words(mpscnn.reorder(a, out=fortran)), want)


def test_nan_payloads_survive():
    a = np.full((16, 16, 3, 3), 0x7F800001, np.uint32)  # a signalling NaN: arithmetic would make it quiet
    assert (words(mpscnn.reorder(a.view(np.float32))) == 0x7F800001).all()


@pytest.mark.parametrize("shape", [(0, 3, 3, 3), (4, 0, 3, 3), (4, 3, 0, 0)])
def test_empty(shape):
    a = np.empty(shape, np.float32)
    result = mpscnn.reorder(a)
    assert result.shape == (shape[0], shape[2], shape[3], shape[1])
    assert mpscnn.reorder(a, out=result) is result


def test_c1hw_is_oihw_with_one_input_channel():
    a = random_array((24, 1, 3, 5), np.float32)
    check(a, "C1HW", "OHWI")
    check(np.ascontiguousarray(a.transpose(0, 2, 3, 1)), "OHWI", "C1HW")
    with pytest.raises(
        ValueError, match=r"array.shape \(24, 2, 3, 5\) has 2, not 1, as its second extent, which C1HW asks for"
    ):
        mpscnn.reorder(np.zeros((24, 2, 3, 5), np.float32), source="C1HW")
    with pytest.raises(ValueError, match="which C1HW asks for"):
        mpscnn.reorder(np.zeros((24, 3, 5, 2), np.float32), source="OHWI", target="C1HW")


def test_linear_weights_behind_a_feature_map():
    c, h, w, o = 6, 3, 5, 10
    maps = np.random.default_rng(1).standard_normal((4, c, h, w)).astype(np.float32)
    weight = np.random.default_rng(2).standard_normal((o, c * h * w)).astype(np.float32)
    result = mpscnn.reorder(weight, feature_map=(c, h, w))
    assert result.shape == (o, h, w, c)
    want = maps.reshape(4, -1).astype(float) @ weight.T.astype(float)
    got = np.einsum("nchw,ohwc->no", maps.astype(float), result.astype(float))
    np.testing.assert_allclose(got, want, rtol=1e-12)
    assert np.array_equal(mpscnn.reorder_linear(weight, (c, h, w)), result)
    keras = np.ascontiguousarray(result.reshape(o, -1).T)  # (H*W*C, O)
    assert np.array_equal(mpscnn.reorder(keras, source="HWIO", feature_map=(c, h, w)), result)
    assert np.array_equal(mpscnn.reorder(result.reshape(o, -1), source="OHWI", feature_map=[c, h, w]), result)
    with pytest.raises(ValueError, match=r"array.shape\[1\] \(90\) is not the size of feature_map \(6, 3, 4\), 72"):
        mpscnn.reorder(weight, feature_map=(6, 3, 4))
    with pytest.raises(ValueError, match=r"array.ndim \(4\) is not 2, as feature_map asks for"):
        mpscnn.reorder(result, feature_map=(c, h, w))
    with pytest.raises(ValueError, match=r"feature_map \(6, 15\) is not \(C, H, W\)"):
        mpscnn.reorder(weight, feature_map=(6, 15))
    with pytest.raises(ValueError, match="negative or too large"):
        mpscnn.reorder(weight, feature_map=(2**40, 2**40, 1))


sizes = st.integers(1, 40)


@settings(max_examples=150, deadline=None)
@given(
    shape=st.tuples(sizes, sizes, st.integers(1, 8), st.integers(1, 8)),
    order=st.permutations(range(4)),
    steps=st.tuples(*[st.sampled_from([1, 1, 1, 2, -1, -3])] * 4),
    source=st.sampled_from(FOUR),
    target=st.sampled_from(FOUR),
    dtype=st.sampled_from(DTYPES),
)
def test_any_view_and_back(shape, order, steps, source, target, dtype):
    base = random_array([abs(step) * n for n, step in zip(shape, steps, strict=False)], dtype)
    a = base[tuple(slice(None, None, step) for step in steps)].transpose(order)
    result = check(a, source, target)
    back = mpscnn.reorder(result, source=target, target=source)
    assert np.array_equal(words(back), words(a))


A = np.zeros((4, 3, 2, 5), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: mpscnn.reorder(A[0]), ValueError, r"^reorder: array\.ndim \(3\) is not 4\.$"),
        (
            lambda: mpscnn.reorder(A, "OIWH"),
            ValueError,
            r"^source \('OIWH'\) is not one of OIHW, OHWI, HWIO, IOHW, C1HW\.$",
        ),
        (lambda: mpscnn.reorder(A, target="ohwi"), ValueError, r"^target \('ohwi'\) is not one of"),
        (lambda: mpscnn.reorder(A, source=3), TypeError, r"^source \(int\) is not a str\.$"),
        (
            lambda: mpscnn.reorder(A, out=np.zeros((4, 2, 3, 5), np.float32)),
            ValueError,
            r"^reorder: out\.shape \(4, 2, 3, 5\) is not \(4, 2, 5, 3\): "
            r"array \(4, 3, 2, 5\) in OIHW order, written in OHWI order\.$",
        ),
        (
            lambda: mpscnn.reorder(A, out=np.zeros((4, 30), np.float32)),
            ValueError,
            r"^reorder: out\.ndim \(2\) is not 4\.$",
        ),
        (
            lambda: mpscnn.reorder(A, out=np.zeros((4, 2, 5, 3), np.float16)),
            TypeError,
            r"^reorder: out\.dtype \(float16\) is not array\.dtype \(float32\)\.$",
        ),
        (
            lambda: mpscnn.reorder(A, out=np.broadcast_to(np.float32(0), (4, 2, 5, 3))),
            ValueError,
            r"^out is read-only\.$",
        ),
        (lambda: mpscnn.reorder([[1.0]]), TypeError, r"^array \(list\) is not an array: it has neither DLPack, "),
        (lambda: mpscnn.reorder(A.astype(np.int8)), TypeError, r"^array\.dtype \(int8\) is not uint8, "),
        (lambda: mpscnn.reorder(A.astype(">f4")), TypeError, r"^array\.dtype \(>f4\) is not .*native byte order\.$"),
        (lambda: mpscnn.reorder(A, threads=-1), ValueError, r"^threads \(-1\) is not between 0 and 65536\.$"),
        (
            lambda: mpscnn.reorder(A, "OIHW", "OHWI", None, (1, 1, 1)),
            TypeError,
            r"takes at most 4 positional arguments \(5 given\)",
        ),
        (lambda: mpscnn.reorder(A, copy=1), TypeError, r"^copy \(int\) is not True, False or None\.$"),
        (lambda: mpscnn.reorder(A, layout="OIHW"), TypeError, r"has no argument 'layout'"),
        (lambda: mpscnn.reorder(A, "OIHW", source="OIHW"), TypeError, r"got 'source' twice"),
        (lambda: mpscnn.reorder(), TypeError, r"misses the argument 'array'"),
        (
            lambda: mpscnn.reorder(np.broadcast_to(np.uint8(0), (2**20, 2**20, 2**20, 1))),
            MemoryError,
            r"^1152921504606846976 bytes",
        ),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_overlap_is_refused():
    memory = np.zeros(200, np.float32)
    a = memory[:120].reshape(4, 3, 2, 5)
    with pytest.raises(ValueError, match=r"^reorder: the memory of out overlaps that of array\.$"):
        mpscnn.reorder(a, out=memory[80:].reshape(4, 2, 5, 3))
    with pytest.raises(ValueError, match="overlaps"):
        mpscnn.reorder(a, "OIHW", "OIHW", a)
    with pytest.raises(ValueError, match="overlaps"):  # the lowest address counts, not that of the first element
        mpscnn.reorder(memory[::-1][:120].reshape(4, 3, 2, 5), out=memory[:120].reshape(4, 2, 5, 3))
    apart = np.zeros(240, np.float32)
    mpscnn.reorder(apart[:120].reshape(4, 3, 2, 5), out=apart[120:].reshape(4, 2, 5, 3))  # adjacent memory is allowed
    clash = np.lib.stride_tricks.as_strided(memory, (4, 2, 5, 3), (0, 60, 12, 4))
    with pytest.raises(ValueError, match="name the same element twice"):
        mpscnn.reorder(np.zeros((4, 3, 2, 5), np.float32), out=clash)


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.skipif(SANITIZED, reason="a sanitizer has a byte of its own for eight that are read")
@pytest.mark.parametrize("target", ["OHWI", "HWIO", "IOHW"])
def test_no_temporary(target):
    """Peak memory of the process is unchanged: `out` and the source exist already."""
    growth = run_python(f"""
    import numpy as np, mpscnn
    def peak():
      return [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")][0]
    a = np.ones((1024, 512, 5, 5), np.float32)
    shape = [a.shape["OIHW".index(axis)] for axis in "{target}"]
    out = np.ones(shape, np.float32)
    mpscnn.reorder(a[:2], "OIHW", "{target}")
    before = peak()
    mpscnn.reorder(a, "OIHW", "{target}", out=out)
    print(peak() - before)
  """)
    assert int(growth) < 4096, "kB more than before, for a tensor of 51200 kB"


def test_results_do_not_share_memory():
    a, b = random_array((64, 64, 3, 3), np.float32, 1), random_array((64, 64, 3, 3), np.float32, 2)
    first, second = mpscnn.reorder(a), mpscnn.reorder(b)
    assert not np.shares_memory(first, second)
    del second
    third = mpscnn.reorder(b)  # on the pages of the second
    assert np.array_equal(words(first), expected(a, "OIHW", "OHWI"))
    assert np.array_equal(words(third), expected(b, "OIHW", "OHWI"))


IN_ORDER = {
    "1 x 1": (lambda: random_array((64, 32, 1, 1), np.float16), "OIHW", "OHWI"),
    "depth-wise": (lambda: random_array((32, 1, 3, 5), np.float32), "OIHW", "OHWI"),
    "C1HW": (lambda: random_array((32, 1, 3, 5), np.float32), "C1HW", "OHWI"),
    "permuted": (lambda: random_array((8, 3, 5, 7), np.uint8).transpose(0, 3, 1, 2), "OIHW", "OHWI"),
    "the same order": (lambda: random_array((8, 3, 5, 7), np.float32), "HWIO", "HWIO"),
    "torch": (lambda: torch.randn(8, 7, 3, 5).contiguous(memory_format=torch.channels_last), "OIHW", "OHWI"),
}


@pytest.mark.parametrize("case", IN_ORDER)
def test_copy_only_where_it_is_needed(case):
    make, source, target = IN_ORDER[case]
    a = make()
    array = a.numpy() if isinstance(a, torch.Tensor) else a
    for copy in (None, False):
        view = mpscnn.reorder(a, source, target, copy=copy)
        assert np.array_equal(words(view), expected(array, source, target))
        assert np.shares_memory(view, array)
        assert view.flags.c_contiguous
        assert view.flags.writeable
    made = mpscnn.reorder(a, source, target, copy=True)
    assert not np.shares_memory(made, array)
    assert np.array_equal(words(made), expected(array, source, target))
    with pytest.raises(ValueError, match=r"reorder: copy \(False\) and out exclude each other"):
        mpscnn.reorder(a, source, target, out=made, copy=False)


def test_views_keep_their_array_alive_and_read_only():
    a = random_array((64, 32, 1, 1), np.float32)
    want = expected(a, "OIHW", "OHWI")
    a.flags.writeable = False
    references = sys.getrefcount(a), sys.getrefcount(a.dtype)
    for _ in range(100):
        mpscnn.reorder(a)
    assert (sys.getrefcount(a), sys.getrefcount(a.dtype)) == references
    view = mpscnn.reorder(a)
    assert not view.flags.writeable
    del a
    gc.collect()
    assert np.array_equal(words(view), want)
    linear = random_array((4, 24), np.float32)
    assert np.shares_memory(mpscnn.reorder_linear(linear, (24, 1, 1)), linear)
    assert not np.shares_memory(mpscnn.reorder_linear(linear, (24, 1, 1), copy=True), linear)


@pytest.mark.parametrize("a", [random_array((8, 3, 5, 7), np.float32), random_array((8, 6, 1, 1), np.uint8)[::2, ::2]])
def test_copy_false_refuses_a_necessary_copy(a):
    for array in (a, torch.from_numpy(a)):
        with pytest.raises(BufferError, match=r"array \(\d, 3, \d, \d\) has to be copied from OIHW to OHWI order"):
            mpscnn.reorder(array, copy=False)


def test_from_many_threads_at_once():
    arrays = [random_array((128, 256, 5, 5), np.float32, seed) for seed in range(4)]
    wrong = []

    def work(a):
        want = expected(a, "OIHW", "OHWI")
        for _ in range(5):
            if not np.array_equal(words(mpscnn.reorder(a)), want):
                wrong.append(a)

    threads = [threading.Thread(target=work, args=(a,)) for a in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork")
def test_after_a_fork():
    """The child has no helper threads; it must not wait for them."""
    run_python("""
    import os, warnings, numpy as np, mpscnn
    warnings.simplefilter("ignore")
    a = np.ones((512, 256, 3, 3), np.float32)
    mpscnn.reorder(a)
    child = os.fork()
    if child == 0:
      os._exit(0 if (mpscnn.reorder(a) == 1).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
  """)


def test_signature_and_docstring():
    import inspect

    signature = str(inspect.signature(mpscnn.reorder))
    assert signature == "(array, source='OIHW', target='OHWI', out=None, *, feature_map=None, copy=None, threads=None)"
    for function in (mpscnn.reorder, mpscnn.reorder_linear, mpscnn.empty):
        for section in ("Parameters", "Returns", "Raises", "Source"):
            assert f"\n{section}\n---" in function.__doc__
