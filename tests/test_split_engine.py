# SPDX-License-Identifier: Apache-2.0
"""Images that the host cannot reach: some cases of tests of the package, on the split engine.

`make test-split` runs all of them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import ENGINE, only_openmps, run_python

pytestmark = pytest.mark.skipif(
    ENGINE == "split" or sys.platform == "darwin", reason="openmps has the engine, and the tests run on it as they are"
)

TESTS = Path(__file__).parent
FILES = (
    "test_forward.py",
    "test_gradient.py",
    "test_images.py",
    "test_image_conversion.py",
    "test_command_buffer.py",
    "test_loss.py",
    "test_optimizer.py",
    "test_weights_update.py",
    "network/test_network.py",
    "network/test_stream.py",
    "training/test_training_layers.py",
)


def test_what_the_device_says() -> None:
    program = """
import numpy as np
import mpscnn
device = mpscnn.Device()
print(device.name, device.shares_images)
x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
try:
    mpscnn.Image.from_array(x, copy=False)
except BufferError as error:
    print(error)
image = mpscnn.Image.from_array(x)
x[:] = 0
print(image.numpy().sum(), mpscnn.NeuronReLU()(image.numpy()).sum())
"""
    assert run_python(program, MPSCNN_ENGINE="split").splitlines() == [
        "split device False",
        "Image: the array cannot be shared: this device's images have memory of their own.",
        "276.0 276.0",
    ]


@only_openmps("an encode synchronizes its result with a host task, which waits for all earlier work")
def test_three_command_buffers_are_under_way() -> None:
    """The third is scheduled while the first is computed; the fourth waits for the end of the first."""
    program = """
import time
import numpy as np
import mpscnn
conv = mpscnn.Convolution(np.zeros((64, 64, 7, 7), np.float32), padding=3)
image = mpscnn.Image.from_array(np.zeros((4, 96, 96, 64), np.float32))
conv(image.numpy())
buffers = [mpscnn.CommandBuffer() for _ in range(5)]
for commands in buffers:
    conv.encode(commands, image)
for commands in buffers:
    commands.commit()
seen = []
while buffers[-1].status != "completed":
    now = [commands.status for commands in reversed(buffers)][::-1]  # so that none is later than those before it
    if now not in seen:
        seen.append(now)
under_way = [statuses.count("scheduled") for statuses in seen]
print(max(under_way), all(now == sorted(now, key=["completed", "scheduled", "committed"].index) for now in seen))
"""
    assert run_python(program, MPSCNN_ENGINE="split") == "3 True\n"
    assert run_python(program) == "1 True\n"


@pytest.mark.parametrize("name", FILES)
def test_cases(name: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS / name)]
    environment = os.environ | {"MPSCNN_ENGINE": "split", "MPSCNN_TIER": "quick"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=TESTS.parent, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^\d+ passed", result.stdout, re.MULTILINE)
