# SPDX-License-Identifier: Apache-2.0
"""Pages of a mapped model file leave memory once kernels have their own copies of the weights."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import mpscnn
from mpscnn import Graph
from mpscnn.importing import mapped_files
from mpscnn.importing.mapped_files import content
from support import only_openmps

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

X = np.random.default_rng(1).standard_normal((1, 8, 8, 128), dtype=np.float32)
CLASSES = 16
READ_IN_PLACE = CLASSES * 8 * 8 * 256 * 4  # bytes of the fully connected layer


def resident(path: Path) -> int:
    """Return the bytes of a file's mappings that are in memory."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.split(" ", 1)[0].count("-") == 1:
            inside = line.endswith(f" {path}")
        elif inside and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


def graph() -> Graph:
    """Return layers that copy their weights, each in another way, and one that reads them in place."""
    random = np.random.default_rng(0)

    def weight(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(np.prod(shape[1:])))

    made = Graph()
    x = made.input("x", height=8, width=8, channels=128)
    x = made.add("Convolution", x, weight=weight(256, 128, 3, 3), padding=1)
    x = made.add("Convolution", x, weight=weight(256, 256, 3, 3), padding=1)
    x = made.add("Convolution", x, weight=weight(512, 256, 1, 1))
    x = made.add("Convolution", x, weight=weight(512, 1, 3, 3), padding=1, groups=512)
    x = made.add("Convolution", x, weight=weight(256, 512, 5, 5), padding=2)
    x = made.add("Convolution", x, weight=weight(CLASSES, 256, 8, 8))  # of the whole image
    made.output(x, "y")
    return made


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("released") / "net.mpscnn"
    mpscnn.Network(graph()).save(path)
    return path


@only_openmps("borrowed weights")
@pytest.mark.parametrize("reduced", [False, True])
def test_pages_that_were_copied_leave_memory(saved: Path, reduced: bool) -> None:
    size = saved.stat().st_size
    right = mpscnn.load(saved, mapped=False, allow_reduced_precision=reduced)(X)
    net = mpscnn.load(saved, allow_reduced_precision=reduced)
    np.testing.assert_array_equal(net(X), right)
    kept = resident(saved)
    assert kept < READ_IN_PLACE + 256 * 1024 < size / 10, f"{kept} of {size} bytes are in memory"
    np.testing.assert_array_equal(net(X), right)
    # Layouts of other batches are packed from pages that come back.
    two = np.concatenate([X, X[:, ::-1]])
    np.testing.assert_array_equal(net(two), mpscnn.load(saved, mapped=False, allow_reduced_precision=reduced)(two))


def test_files_are_read_again_where_needed(saved: Path, tmp_path: Path) -> None:
    net, other = mpscnn.load(saved), mpscnn.load(saved)  # each with a mapping of its own
    right = mpscnn.load(saved, mapped=False)(X)
    np.testing.assert_array_equal(net(X), right)
    np.testing.assert_array_equal(other(X), right)
    net.save(tmp_path / "again.mpscnn")
    assert (tmp_path / "again.mpscnn").read_bytes() == saved.read_bytes()
    for node, read in zip(net.graph.nodes, mpscnn.importing.read(saved, mapped=False).nodes, strict=True):
        for name, value in read.arguments.items():
            if isinstance(value, np.ndarray):
                np.testing.assert_array_equal(node.arguments[name], value)
    del net
    np.testing.assert_array_equal(other(X), right)


def test_training_after_a_result(saved: Path) -> None:
    labels = np.array([3])

    def losses(mapped: bool) -> list[float]:
        net = mpscnn.load(saved, mapped=mapped)
        net(X)
        optimizer = mpscnn.OptimizerStochasticGradientDescent(1e-2)
        trainer = mpscnn.Trainer(net.graph, input_shapes=X.shape, optimizer=optimizer)
        found = [trainer.step(X, labels).loss for _ in range(3)]
        np.testing.assert_array_equal(net(X), mpscnn.load(saved, mapped=False)(X))
        return found

    found = losses(True)
    assert found == losses(False)
    assert found[2] < found[0]


@only_openmps("the arrays are reordered when a kernel is made")
def test_pages_of_reordered_arrays_leave_memory(tmp_path: Path) -> None:
    weight = np.random.default_rng(2).standard_normal((256, 512, 3, 3), dtype=np.float32)
    path = tmp_path / "weight.bin"
    weight.tofile(path)
    array = np.frombuffer(content(path, mapped=True), np.float32).reshape(weight.shape)
    np.testing.assert_array_equal(array, weight)
    assert resident(path) == weight.nbytes
    kernel = mpscnn.Convolution(array, padding=1)
    x = np.random.default_rng(3).standard_normal((1, 6, 6, 512), dtype=np.float32)
    np.testing.assert_array_equal(kernel(x), mpscnn.Convolution(weight, padding=1)(x))
    assert resident(path) < 128 * 1024
    np.testing.assert_array_equal(array, weight)


@pytest.mark.parametrize("layout", ["OIHW", "OHWI"])
def test_writes_to_a_private_mapping_stay(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "weight.bin"
    np.zeros((64, 64, 3, 3), np.float32).tofile(path)
    array = np.frombuffer(content(path, mapped=True, writable=True), np.float32)
    array = array.reshape((64, 64, 3, 3) if layout == "OIHW" else (64, 3, 3, 64))
    array[...] = np.random.default_rng(4).standard_normal(array.shape)
    written = array.copy()
    array.flags.writeable = False
    x = np.random.default_rng(5).standard_normal((1, 6, 6, 64), dtype=np.float32)
    found = mpscnn.Convolution(array, layout=layout, padding=1)(x)
    np.testing.assert_array_equal(array, written)
    np.testing.assert_array_equal(found, mpscnn.Convolution(written, layout=layout, padding=1)(x))


def test_no_watch_outlives_its_mapping(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other memory may have the addresses as soon as they are unmapped: its pages must not be released.
    watches, found = [object()], []
    monkeypatch.setattr(mapped_files, "_C", SimpleNamespace(munmap=lambda *_: found.append(list(watches))))
    mapped_files._unmap(watches, 0, 4096)
    assert found == [[]]
