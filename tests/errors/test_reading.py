# SPDX-License-Identifier: Apache-2.0
"""Images that must not be read yet, or no longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mpscnn
from support import held_queue, only_openmps, random

from . import X


def test_reading_before_the_command_buffer_has_completed() -> None:
    x = random(X)
    commands = mpscnn.CommandBuffer()
    y = mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(x))
    readers: list[Callable[[], Any]] = [
        y.numpy,
        lambda: np.asarray(y),
        lambda: np.from_dlpack(y),
        lambda: y.numpy(out=np.empty(X, np.float32)),
        lambda: y.numpy(copy=True),
        lambda: y.write(x),
    ]
    for read in readers:
        with pytest.raises(
            RuntimeError, match=r"has not completed \(status not_enqueued\); commit\(\) and wait\(\) come first"
        ):
            read()
    with held_queue():
        commands.commit()
        for read in readers:
            with pytest.raises(RuntimeError, match=r"has not completed \(status (committed|scheduled|enqueued)\)"):
                read()
    commands.wait()
    np.testing.assert_array_equal(y.numpy(), np.maximum(x, 0))


def test_reading_around_a_channel_view_before_completion() -> None:
    """Views of one image share their writers."""
    whole = mpscnn.Image((1, 5, 7, 8))
    whole.write(random((1, 5, 7, 8)))
    part, x = whole.channels(4, 4), random(X)
    commands = mpscnn.CommandBuffer()
    mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(x), out=part)
    for image in (part, whole):
        with pytest.raises(RuntimeError, match=r"has not completed"):
            image.numpy()
    commands.commit()
    commands.wait()
    np.testing.assert_array_equal(whole.numpy()[..., 4:], np.maximum(x, 0))


def test_reading_what_a_dropped_command_buffer_would_have_written() -> None:
    x = random(X)
    commands = mpscnn.CommandBuffer()
    y = mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(x))
    del commands
    with pytest.raises(RuntimeError, match=r"command buffer that writes it"):
        y.numpy()


def test_temporary_image_after_its_last_read() -> None:
    commands = mpscnn.CommandBuffer()
    relu = mpscnn.NeuronReLU()
    x = random(X)
    middle = relu.encode(commands, mpscnn.Image.from_array(x), temporary=True)
    assert middle.read_count == 1
    y = relu.encode(commands, middle)
    assert middle.read_count == 0
    with pytest.raises(RuntimeError, match=r"temporary image whose read_count is 0"):
        relu.encode(commands, middle)
    with pytest.raises(RuntimeError, match=r"out is a temporary image whose read_count is 0"):
        relu.encode(commands, mpscnn.Image.from_array(x), out=middle)
    with pytest.raises(RuntimeError, match=r"read_count is 0"):
        middle.read_count = 3
    with pytest.raises(RuntimeError, match=r"temporary image cannot be read by the CPU"):
        middle.numpy()
    commands.commit()
    commands.wait()
    np.testing.assert_array_equal(y.numpy(), np.maximum(x, 0))


@only_openmps("commit looks for temporary images that were not read")
def test_temporary_image_that_nobody_reads() -> None:
    commands = mpscnn.CommandBuffer()
    middle = mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(random(X)), temporary=True)
    with pytest.raises(RuntimeError, match=r"MPSTemporaryImage.* readCount 1 when .* must be 0"):
        commands.commit()
    middle.read_count = 0
    commands.commit()
    commands.wait()


def test_read_counts() -> None:
    image = mpscnn.Image(X)
    with pytest.raises(RuntimeError, match=r"only a temporary image has a read_count"):
        image.read_count = 1
    commands = mpscnn.CommandBuffer()
    temporary = mpscnn.Image.temporary(commands, X)
    with pytest.raises(ValueError, match=r"read_count \(-1\) is less than the minimum \(0\)"):
        temporary.read_count = -1
    temporary.read_count = 0
    commands.commit()
    commands.wait()


def test_temporary_image_of_another_command_buffer() -> None:
    first, second = mpscnn.CommandBuffer(), mpscnn.CommandBuffer()
    x = random(X)
    middle = mpscnn.NeuronReLU().encode(first, mpscnn.Image.from_array(x), temporary=True)
    with pytest.raises(RuntimeError, match=r"command buffer"):
        mpscnn.NeuronReLU().encode(second, middle)
    y = mpscnn.NeuronReLU().encode(first, middle)
    for commands in (first, second):
        commands.commit()
        commands.wait()
    np.testing.assert_array_equal(y.numpy(), np.maximum(x, 0))
