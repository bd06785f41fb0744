# SPDX-License-Identifier: Apache-2.0
"""net.save: permissions, links, names, paths that cannot be written, concurrent writers.

See test_interrupted_writes.py for interruptions.
"""

from __future__ import annotations

import errno
import os
import resource
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import mpscnn
from mpscnn.importing import weights_files
from network.graphs import residual


@pytest.fixture(scope="module")
def net() -> mpscnn.Network:
    return mpscnn.Network(residual())


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("umask")
def test_permissions(net: mpscnn.Network, tmp_path: Path) -> None:
    path = tmp_path / "net.mpscnn"
    net.save(path)
    assert mode(path) == 0o640, "those that umask leaves"
    path.chmod(0o664)
    net.save(path)
    assert mode(path) == 0o664, "those of the file that is replaced"


@pytest.mark.usefixtures("umask")
def test_permissions_of_checkpoints(tmp_path: Path) -> None:
    layers = [("fc", "Linear", {"in_features": 2, "out_features": 2})]
    trainer = mpscnn.Trainer(layers, input_shapes=(1, 2))
    for expected in (0o640, 0o664):
        trainer.save(tmp_path)
        assert {mode(path) for path in tmp_path.iterdir()} == {expected}
        for path in tmp_path.iterdir():
            path.chmod(0o664)


@pytest.mark.parametrize("exists", [True, False])
def test_links_are_followed(net: mpscnn.Network, tmp_path: Path, exists: bool) -> None:
    (tmp_path / "versions").mkdir()
    (tmp_path / "versions" / "1.mpscnn").write_bytes(b"old" * exists)
    if not exists:
        (tmp_path / "versions" / "1.mpscnn").unlink()
    (tmp_path / "current.mpscnn").symlink_to("versions/1.mpscnn")
    net.save(tmp_path / "current.mpscnn")
    assert (tmp_path / "current.mpscnn").is_symlink()
    assert [path.name for path in (tmp_path / "versions").iterdir()] == ["1.mpscnn"]
    assert len(mpscnn.load(tmp_path / "versions" / "1.mpscnn").graph.nodes) == len(net.graph.nodes)


def test_places_that_cannot_be_written(net: mpscnn.Network, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    places: dict[str, type[OSError]] = {
        "no/net.mpscnn": FileNotFoundError,
        "file/net.mpscnn": NotADirectoryError,
        "loop": OSError,
        "pipe": OSError,
        "": IsADirectoryError,
        "x" * 256: OSError,
    }
    before = sorted(tmp_path.iterdir())
    for place, kind in places.items():
        with pytest.raises(kind) as caught:
            net.save(tmp_path / place)
        assert str(caught.value.filename) == str(tmp_path / place)
    assert sorted(tmp_path.iterdir()) == before
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode), "it was not replaced"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(net: mpscnn.Network, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        net.save(tmp_path / "net.mpscnn")


def test_a_disk_that_is_full(net: mpscnn.Network, tmp_path: Path) -> None:
    path = tmp_path / "net.mpscnn"
    net.save(path)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # EFBIG in place of ENOSPC
    try:
        with pytest.raises(OSError, match=r"net\.mpscnn") as caught:
            net.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_names_as_long_as_they_may_be(net: mpscnn.Network, tmp_path: Path) -> None:
    path = tmp_path / f"{'n' * 248}.mpscnn"
    net.save(path)
    assert list(tmp_path.iterdir()) == [path]


def test_threads_that_save_to_one_path(tmp_path: Path) -> None:
    """Each file is whole, and one of the two; like processes with the same id in several containers."""
    nets = [mpscnn.Network(residual(seed=seed)) for seed in range(4)]
    path, errors = tmp_path / "net.mpscnn", []

    def save(net: mpscnn.Network) -> None:
        try:
            for _ in range(10):
                net.save(path)
        except BaseException as error:
            errors.append(error)

    for net in nets:
        net.save(tmp_path / f"{nets.index(net)}")
    whole = {file.read_bytes() for file in tmp_path.iterdir()}
    net.save(path)
    threads = [threading.Thread(target=save, args=(net,)) for net in nets]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert path.read_bytes() in whole
    for thread in threads:
        thread.join()
    assert errors == []
    assert {file.name for file in tmp_path.iterdir()} == {"net.mpscnn", "0", "1", "2", "3"}


def test_written_files_can_be_read(tmp_path: Path) -> None:
    """Arrays of every type, with sizes that are aligned only through their order."""
    rng = np.random.default_rng(0)
    arrays = {
        f'"ä" {name}': rng.integers(0, 2, (3, number + 1)).astype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
        for number, name in enumerate(weights_files.WRITTEN_DTYPES)
    }
    arrays |= {
        "none": np.zeros((0, 3), np.int8),
        "one": np.array(2.5, np.float64),
        "strided": np.arange(12, dtype=np.int16).reshape(3, 4).T[::2],
        "foreign": np.arange(3, dtype=">f4"),
    }
    path = tmp_path / "arrays.safetensors"
    with path.open("wb") as file:
        weights_files.write_safetensors(file, arrays, {"b": "ä", "a": "1"})
    found = weights_files.load(path)
    assert found.metadata == {"a": "1", "b": "ä"}
    theirs = safetensors.numpy.load_file(path)
    assert set(theirs) == set(found) == set(arrays)
    for name, array in arrays.items():
        for read in (found[name], theirs[name]):
            assert read.dtype == array.dtype.newbyteorder("=")
            np.testing.assert_array_equal(read, array)
        assert found[name].flags.aligned
        assert not found[name].flags.owndata, "it is aligned in the file"
