# SPDX-License-Identifier: Apache-2.0
"""Command buffers used in the wrong order; arguments that do not match."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import mpscnn
from support import random

from . import X, canary


def test_committing_twice() -> None:
    commands = mpscnn.CommandBuffer()
    y = mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(random(X)))
    commands.commit()
    with pytest.raises(RuntimeError, match=r"commit\(\) was called already; its status is \w+"):
        commands.commit()
    commands.wait()
    commands.wait()
    with pytest.raises(RuntimeError, match=r"commit\(\) was called already; its status is completed"):
        commands.commit()
    assert (y.numpy() >= 0).all()


def test_waiting_before_commit() -> None:
    commands = mpscnn.CommandBuffer()
    with pytest.raises(RuntimeError, match=r"wait\(\) was called before commit\(\)"):
        commands.wait()
    commands.commit()
    commands.wait()


def test_encoding_to_a_committed_command_buffer() -> None:
    commands = mpscnn.CommandBuffer()
    commands.commit()
    x = mpscnn.Image.from_array(random(X))
    match = r"committed already; its status is \w+"
    with pytest.raises(RuntimeError, match=match):
        mpscnn.NeuronReLU().encode(commands, x)
    with pytest.raises(RuntimeError, match=r"committed already"):
        mpscnn.NeuronReLU().encode(commands, x, temporary=True)
    with pytest.raises(RuntimeError, match=r"committed already"):
        mpscnn.Image.temporary(commands, X)
    with pytest.raises(RuntimeError, match=r"handler was added after commit\(\)"):
        commands.add_completed_handler(lambda: None)
    commands.wait()


def test_two_threads_committing_one_command_buffer() -> None:
    """One of them commits; the others get an exception."""
    for _ in range(20):
        commands = mpscnn.CommandBuffer()
        outcomes: list[str] = []
        start = threading.Barrier(4)

        def commit(commands: Any = commands, outcomes: Any = outcomes, start: Any = start) -> None:
            start.wait()
            try:
                commands.commit()
                outcomes.append("committed")
            except RuntimeError as error:
                outcomes.append(str(error))

        threads = [threading.Thread(target=commit) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        commands.wait()
        assert outcomes.count("committed") == 1
        assert len(outcomes) == 4


def test_handlers_that_cannot_be_called() -> None:
    with pytest.raises(TypeError, match=r"handler \(int\) is not callable"):
        mpscnn.CommandBuffer().add_completed_handler(3)


def test_arguments_of_the_wrong_class() -> None:
    kernel, commands, x = mpscnn.NeuronReLU(), mpscnn.CommandBuffer(), random(X)
    image = mpscnn.Image.from_array(x)
    for arguments in ((None, image), (commands, x), (commands, None), (image, commands)):
        with pytest.raises(TypeError):
            kernel.encode(*arguments)
    with pytest.raises(ValueError, match=r"temporary \(True\) was given together with out"):
        kernel.encode(commands, image, out=mpscnn.Image(X), temporary=True)
    with pytest.raises(ValueError, match=r"dtype was given together with out"):
        kernel.encode(commands, image, out=mpscnn.Image(X), dtype="float16")
    with pytest.raises(TypeError, match=r"x is an Image; out is not"):
        kernel(image, out=np.zeros(X, np.float32))
    for layout in ("HWC", "nhwc"):
        with pytest.raises(ValueError, match=rf'layout \("{layout}"\) is not "NHWC" or "NCHW"'):
            image.numpy(layout)


def test_wrong_shapes_and_dtypes_of_arrays() -> None:
    image = mpscnn.Image(X)
    with pytest.raises(ValueError, match=r"Image\.write: shape \(1, 5, 7, 3\) is not the image's \(1, 5, 7, 4\)"):
        image.write(random((1, 5, 7, 3)))
    with pytest.raises(TypeError, match=r"Image\.write: dtype \(float16\) is not the image's \(float32\)"):
        image.write(random(X, "float16"))
    with pytest.raises(ValueError, match=r"Image\.numpy: shape \(1, 5, 7, 3\) is not the image's"):
        image.numpy(out=np.zeros((1, 5, 7, 3), np.float32))
    with pytest.raises(TypeError, match=r"Image\.numpy: dtype \(float16\) is not the image's"):
        image.numpy(out=np.zeros(X, np.float16))
    with pytest.raises(ValueError, match=r"ndim \(3\) is not 4"):
        image.numpy(out=np.zeros(X[1:], np.float32))


@pytest.mark.parametrize(
    ("first", "count", "match"),
    [
        (2, 4, r"first \(2\) is not a multiple of 4 in \[0, 12\)"),
        (-4, 4, r"first \(-4\) is not a multiple of 4"),
        (12, 4, r"first \(12\) is not a multiple of 4 in \[0, 12\)"),
        (4, 0, r"count \(0\) is not a multiple of 4 in \[1, 8\]"),
        (4, 3, r"count \(3\) is not a multiple of 4 in \[1, 8\]"),
        (4, 12, r"count \(12\) is not a multiple of 4 in \[1, 8\]"),
        (4, 2**63 - 4, r"count \(9223372036854775804\) is not a multiple of 4"),
    ],
)
def test_channel_ranges(first: int, count: int, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        mpscnn.Image((1, 2, 3, 12)).channels(first, count)


def test_devices_must_agree() -> None:
    devices = mpscnn.Device.all()
    if len(devices) < 2:
        pytest.skip("there is only one device")
    default, other = devices[0], devices[1]
    x = random(X)
    with pytest.raises(
        ValueError, match=r"NeuronReLU: the device \(.+\) is not the device of the command buffer \(.+\)"
    ):
        mpscnn.NeuronReLU(device=other).encode(mpscnn.CommandBuffer(default), mpscnn.Image.from_array(x))
    with pytest.raises(ValueError, match=r"x: the device \(.+\) is not the device of the command buffer"):
        mpscnn.NeuronReLU(device=other).encode(mpscnn.CommandBuffer(other), mpscnn.Image.from_array(x))
    with pytest.raises(ValueError, match=r"out: the device \(.+\) is not the device of the command buffer"):
        mpscnn.NeuronReLU().encode(
            mpscnn.CommandBuffer(), mpscnn.Image.from_array(x), out=mpscnn.Image(X, device=other)
        )
    with pytest.raises(ValueError, match=r"the device \(.+\) is not the device"):
        mpscnn.NeuronReLU()(mpscnn.Image.from_array(x, device=other))
    mpscnn.NeuronReLU(device=other)(x)
    canary()
