# SPDX-License-Identifier: Apache-2.0
"""Weights that cannot change are used in place: not copied, no page touched, kept alive as long as needed."""

import sys
from pathlib import Path

import numpy as np
import pytest

import mpscnn
from support import counts_memory, only_openmps, run_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and MPS keeps its own copy")

# 16 sets of 9.4 MB in OHWI: prints the growth of the process's resident memory, and that of the file's pages.
PROGRAM = """
import re, sys
from pathlib import Path
import numpy as np
import mpscnn

kind = sys.argv[2]
shape = (512, 3, 3, 512)
count = int(np.prod(shape))
mapped = np.memmap(sys.argv[1], dtype=np.float32, mode="r" if kind == "read-only" else "c")


def resident():
    inside, total, of_file = False, 0, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match("[0-9a-f]+-[0-9a-f]+ ", line):
            inside = sys.argv[1] in line
        elif line.startswith("Rss:"):
            total += int(line.split()[1])
            of_file += int(line.split()[1]) * inside
    return total * 1024, of_file * 1024


mpscnn.Convolution(np.ones((8, 3, 3, 8), np.float32), layout="OHWI", padding=1)(np.ones((1, 4, 4, 8), np.float32))
before = resident()
kernels = [
    mpscnn.Convolution(mapped[i * count : (i + 1) * count].reshape(shape), layout="OHWI", padding=1) for i in range(16)
]
after = resident()
print(after[0] - before[0], after[1] - before[1])
"""


@pytest.fixture(scope="module")
def weights_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "weights.bin"
    with open(path, "wb") as file:
        file.truncate(16 * 512 * 3 * 3 * 512 * 4)
    return path


@counts_memory
@only_openmps("borrowed weights")
def test_no_page_of_mapped_weights_is_touched(weights_file: Path) -> None:
    grown, of_file = map(int, run_python(PROGRAM, str(weights_file), "read-only").split())
    assert of_file == 0
    assert grown < 4 << 20
    grown, of_file = map(int, run_python(PROGRAM, str(weights_file), "copy-on-write").split())
    assert of_file > 100 << 20, "the measurement sees what is read"
    assert grown > 200 << 20, "and what is copied"


# Max memory that making a kernel adds to the process, in sets of its weights.
REORDERED = """
import re
from pathlib import Path
import numpy as np
import mpscnn


def kilobytes(name):
    return int(re.search(name + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])


weights = np.ones((1024, 1024, 3, 3), np.float32)
mpscnn.Convolution(weights[:8], layout="OIHW")(np.ones((1, 4, 4, 1024), np.float32))
before = kilobytes("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
kernel = mpscnn.Convolution(weights, layout="OIHW")
print((kilobytes("VmHWM") - before) * 1024 / weights.nbytes)
"""


@counts_memory
@only_openmps("borrowed weights")
def test_reordered_weights_are_copied_once() -> None:
    assert 0.9 < float(run_python(REORDERED)) < 1.2


def random_weights(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape, dtype=np.float32)


X = np.random.default_rng(8).standard_normal((1, 7, 6, 5), dtype=np.float32)


@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        ("OHWI", (4, 3, 3, 5)),
        ("OIHW", (4, 5, 3, 3)),  # reordered
        ("OIHW", (4, 5, 1, 1)),  # equal to OHWI here
        ("OIHW", (4, 5, 1, 3)),
    ],
)
def test_the_numbers_are_the_same(layout: str, shape: tuple[int, ...]) -> None:
    writable = random_weights(shape)
    read_only = writable.copy()
    read_only.flags.writeable = False
    expected = mpscnn.Convolution(writable, layout=layout)(X)
    np.testing.assert_array_equal(mpscnn.Convolution(read_only, layout=layout)(X), expected)
    if layout == "OHWI":
        fewer = mpscnn.Convolution(read_only, layout=layout, kernel_dtype="float16")(X)
        np.testing.assert_array_equal(mpscnn.Convolution(writable, layout=layout, kernel_dtype="float16")(X), fewer)
        assert not np.array_equal(fewer, expected)


def test_lent_weights_live_as_long_as_the_kernel(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    weights = random_weights((4, 3, 3, 5))
    weights.tofile(path)
    kernel = mpscnn.Convolution(mpscnn.map_weights(path, weights.shape), layout="OHWI")
    assert str(path) in Path("/proc/self/maps").read_text()
    path.unlink()
    np.testing.assert_array_equal(kernel(X), mpscnn.Convolution(weights, layout="OHWI")(X))
    del kernel
    assert str(path) not in Path("/proc/self/maps").read_text()


def memory_that_can_change(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return weights, and the same memory as a writable array."""
    if kind == "a writable array":
        weights = random_weights((4, 3, 3, 5))
        return weights, weights
    if kind == "a read-only view of a writable array":
        base = random_weights((4, 3, 3, 5))
        view = base[:]
        view.flags.writeable = False
        return view, base
    block = bytearray(random_weights((4, 3, 3, 5)).tobytes())
    shown = np.frombuffer(block, np.float32).reshape(4, 3, 3, 5)
    view = np.frombuffer(block, np.float32)
    view.flags.writeable = False
    return view.reshape(4, 3, 3, 5), shown


@pytest.mark.parametrize(
    "kind",
    ["a writable array", "a read-only view of a writable array", "a buffer that is called read-only"],
)
def test_memory_that_can_change_is_copied(kind: str) -> None:
    weights, same = memory_that_can_change(kind)
    expected = mpscnn.Convolution(weights.copy(), layout="OHWI")(X)
    kernel = mpscnn.Convolution(weights, layout="OHWI")
    same[...] = 0
    np.testing.assert_array_equal(kernel(X), expected)
