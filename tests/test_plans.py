# SPDX-License-Identifier: Apache-2.0
"""Execution plans of command buffers: fusion where it cannot be observed, with the same results."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from support import only_openmps

PROGRAM = """
import sys
import numpy as np
import mpscnn

rng = np.random.default_rng(3)
x = rng.standard_normal((2, 9, 11, 8), dtype=np.float32)


def convolution(label, activation=None):
    weight = rng.standard_normal((8, 3, 3, 8), dtype=np.float32) / 8
    return mpscnn.Convolution(weight, np.ones(8), layout="OHWI", padding=1, activation=activation, label=label)


first, second, add = convolution("first", "relu"), convolution("second"), mpscnn.Add(minimum_value=0, label="add")
temporary = sys.argv[1] == "temporary"
with mpscnn.CommandBuffer() as commands:
    a = first.encode(commands, mpscnn.Image.from_array(x), temporary=True)
    a.read_count = 2
    b = second.encode(commands, a, temporary=temporary)
    y = add.encode(commands, b, a)
assert np.isfinite(y.numpy()).all()
sys.stdout.write(y.numpy().tobytes().hex())
"""


def run(kind: str, fuse: str | None) -> tuple[bytes, list[str]]:
    environment = {k: v for k, v in os.environ.items() if k != "MPSCNN_FUSE"} | {"MPSCNN_TRACE": "steps"}
    if fuse is not None:
        environment["MPSCNN_FUSE"] = fuse
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    steps = re.findall(r"^mpscnn steps: +[0-9.]+ us (.*)$", done.stderr, re.MULTILINE)
    return bytes.fromhex(done.stdout), steps


@pytest.mark.skipif(sys.platform != "linux", reason="plans are openmps's")
@only_openmps("nothing is synchronized")
def test_a_residual_block_is_one_call() -> None:
    fused, steps = run("temporary", None)
    assert len(steps) == 2, steps
    assert re.fullmatch(r'.*"second" \+ .*"add"', steps[1]), steps
    recorded, steps = run("temporary", "0")
    assert len(steps) == 3, steps
    seen, steps = run("image", None)
    assert len(steps) == 3, steps
    assert recorded == seen
    np.testing.assert_allclose(np.frombuffer(fused, np.float32), np.frombuffer(seen, np.float32), rtol=1e-5, atol=1e-5)
