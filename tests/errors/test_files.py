# SPDX-License-Identifier: Apache-2.0
"""Invalid raw files of weights."""

from __future__ import annotations

from pathlib import Path

import pytest

import mpscnn

from . import W


@pytest.mark.parametrize("extra", [-4, -1, 1, 3, 4, 1152], ids=lambda extra: f"{extra:+d} bytes")
def test_raw_files_of_the_wrong_length(tmp_path: Path, extra: int) -> None:
    path = tmp_path / "conv1.bin"
    path.write_bytes((bytes(4 * 8 * 4 * 3 * 3) * 2)[: 1152 + extra])
    with pytest.raises(
        ValueError,
        match=rf'weights file "conv1\.bin" has {1152 + extra} bytes; shape \(8, 4, 3, 3\) of float32 needs 1152',
    ):
        mpscnn.map_weights(path, W)


def test_raw_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.bin"):
        mpscnn.map_weights(tmp_path / "missing.bin", W)
    (tmp_path / "empty.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r"has 0 bytes; .* needs 1152"):
        mpscnn.map_weights(tmp_path / "empty.bin", W)
    with pytest.raises(ValueError, match=r"shape \(8, 0, 3, 3\) has an extent less than the minimum \(1\)"):
        mpscnn.map_weights(tmp_path / "empty.bin", (8, 0, 3, 3))
