# SPDX-License-Identifier: Apache-2.0
"""Runs under AddressSanitizer, which is notified of our own mapped memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ADDRESS = "clang_rt.asan" in os.environ.get("LD_PRELOAD", "")
MEMORY = {
    "array": "mpscnn.empty({bytes}, 'uint8')",
    "buffer": "mpscnn.Buffer({bytes}).numpy()",
}

pytestmark = pytest.mark.skipif(not ADDRESS, reason="not under AddressSanitizer (make test-asan)")


def run(program: str) -> subprocess.CompletedProcess[str]:
    """Run the program with reports on stderr instead of in files. AddressSanitizer reads UBSAN_OPTIONS too."""
    options = {name: os.environ.get(name, "") + ":log_path=stderr" for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS")}
    return subprocess.run(
        [sys.executable, "-c", f"import ctypes, mpscnn; {program}"],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | options,
    )


def fill(memory: str, size: int, first: int, count: int) -> subprocess.CompletedProcess[str]:
    return run(f"a = {MEMORY[memory].format(bytes=size)}; ctypes.memset(a.ctypes.data + {first}, 1, {count})")


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("size", [5, 4096, 3 << 20])
def test_a_byte_after_memory(memory: str, size: int) -> None:
    inside = fill(memory, size, 0, size)
    assert inside.returncode == 0, inside.stderr
    behind = fill(memory, size, size, 1)
    assert behind.returncode != 0
    assert "use-after-poison" in behind.stderr


def test_memory_that_was_freed() -> None:
    """Its pages are cached for the next array."""
    result = run("a = mpscnn.empty(4096, 'uint8'); at = a.ctypes.data; del a; ctypes.memset(at, 1, 1)")
    assert result.returncode != 0
    assert "use-after-poison" in result.stderr
    again = run("mpscnn.empty(4096, 'uint8'); a = mpscnn.empty(4096, 'uint8'); ctypes.memset(a.ctypes.data, 1, 4096)")
    assert again.returncode == 0, again.stderr
