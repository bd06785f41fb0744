# SPDX-License-Identifier: Apache-2.0
"""CommandBuffer: context manager, status, order, temporaries between kernels, times, labels."""

from __future__ import annotations

import time

import numpy as np
import pytest

import mpscnn
from support import assert_close, conv2d, held_queue, only_openmps, random, run_python

X = (2, 9, 7, 4)


def test_status_on_the_way() -> None:
    commands = mpscnn.CommandBuffer(label="upscale")
    assert commands.status == "not_enqueued"
    assert commands.error is None
    assert commands.gpu_time == 0
    assert repr(commands) == "<mpscnn.CommandBuffer not_enqueued>"
    with held_queue():
        commands.commit()
        assert commands.status in ("committed", "scheduled")
        assert commands.gpu_time == 0
    commands.wait()
    assert commands.status == "completed"
    assert commands.error is None
    assert repr(commands) == "<mpscnn.CommandBuffer completed>"


def test_context_manager_commits_and_waits() -> None:
    x = random(X)
    with mpscnn.CommandBuffer() as commands:
        y = mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(x))
        assert commands.status == "not_enqueued"
    assert commands.status == "completed"
    np.testing.assert_array_equal(y.numpy(), np.maximum(x, 0))


def test_an_exception_inside_runs_nothing() -> None:
    out, handled = np.full(X, 7, np.float32), []
    commands = mpscnn.CommandBuffer()

    def fail() -> None:
        with commands:
            source, target = mpscnn.Image.from_array(random(X)), mpscnn.Image.from_array(out)
            mpscnn.NeuronReLU().encode(commands, source, out=target)
            commands.add_completed_handler(lambda: handled.append(True))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert commands.status == "not_enqueued"
    last = mpscnn.CommandBuffer()
    last.commit()
    last.wait()
    assert (out == 7).all()
    assert handled == []


def test_committed_inside_the_context() -> None:
    with mpscnn.CommandBuffer() as commands:
        y = mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(random(X)))
        commands.commit()
    assert commands.status == "completed"
    assert (y.numpy() >= 0).all()


def test_nothing_encoded() -> None:
    with mpscnn.CommandBuffer() as commands:
        pass
    assert commands.status == "completed"
    assert commands.gpu_time >= 0


def test_labels_and_devices() -> None:
    commands = mpscnn.CommandBuffer(label="Größe 1 🙂")
    assert commands.label == "Größe 1 🙂"
    commands.label = "other"
    assert commands.label == "other"
    assert mpscnn.CommandBuffer().label is None
    assert mpscnn.CommandBuffer(label=None).label is None
    commands.label = None
    assert commands.label is None
    assert commands.device == mpscnn.Device()


def test_many_kernels_with_temporaries() -> None:
    """A small network against NumPy's and PyTorch's results, layer by layer."""
    x = random(X)
    weights = [random((8, 4, 3, 3)), random((8, 8, 3, 3), seed=1), random((4, 8, 1, 1), seed=2)]
    kernels = [mpscnn.Convolution(weight, padding=weight.shape[2] // 2) for weight in weights]
    relu = mpscnn.NeuronReLU()
    with mpscnn.CommandBuffer() as commands:
        image, expected = mpscnn.Image.from_array(x), x
        for index, (kernel, weight) in enumerate(zip(kernels, weights, strict=True)):
            last = index == 2
            image = relu.encode(commands, kernel.encode(commands, image, temporary=True), temporary=not last)
            expected = np.maximum(conv2d(expected, weight, padding=weight.shape[2] // 2), 0)
    assert_close(image.numpy(), expected)


def test_a_temporary_that_is_read_three_times() -> None:
    x = random(X)
    relu, double, negative = mpscnn.NeuronReLU(), mpscnn.NeuronLinear(2.0), mpscnn.NeuronLinear(-1.0)
    with mpscnn.CommandBuffer() as commands:
        middle = relu.encode(commands, mpscnn.Image.from_array(x), temporary=True)
        middle.read_count = 3
        results = []
        for left, kernel in ((2, double), (1, negative), (0, relu)):
            results.append(kernel.encode(commands, middle))
            assert middle.read_count == left
    base = np.maximum(x, 0)
    for result, factor in zip(results, (2, -1, 1), strict=True):
        np.testing.assert_array_equal(result.numpy(), factor * base)


def test_a_temporary_as_a_destination() -> None:
    x = random(X)
    with mpscnn.CommandBuffer() as commands:
        store = mpscnn.Image.temporary(commands, (2, 9, 7, 8))
        left = mpscnn.NeuronReLU()
        right = mpscnn.NeuronAbsolute(destination_feature_channel_offset=4)
        left.encode(commands, mpscnn.Image.from_array(x), out=store)
        right.encode(commands, mpscnn.Image.from_array(x), out=store)
        y = mpscnn.NeuronLinear(1.0).encode(commands, store)
    np.testing.assert_array_equal(y.numpy(), np.concatenate([np.maximum(x, 0), np.abs(x)], axis=3))


def test_order_within_and_between_command_buffers() -> None:
    """Each step reads the previous result, in the same buffer or in the next."""
    plus = mpscnn.NeuronLinear(1.0, 1.0)
    images = [mpscnn.Image.from_array(np.zeros(X, np.float32), copy=True)]
    buffers = []
    for _ in range(5):
        commands = mpscnn.CommandBuffer()
        for _ in range(3):
            images.append(plus.encode(commands, images[-1]))
        commands.commit()
        buffers.append(commands)
    buffers[-1].wait()
    assert all(commands.status == "completed" for commands in buffers), "a queue works in order"
    for index, image in enumerate(images):
        assert (image.numpy() == index).all()


def test_committed_in_another_order_than_encoded() -> None:
    image = mpscnn.Image.from_array(np.ones(X, np.float32), copy=True)
    first, second = mpscnn.CommandBuffer(), mpscnn.CommandBuffer()
    target = mpscnn.Image(X)
    mpscnn.NeuronLinear(2.0).encode(first, image, out=target)
    mpscnn.NeuronLinear(3.0).encode(second, image, out=target)
    second.commit()
    first.commit()
    first.wait()
    second.wait()
    assert (target.numpy() == 2).all(), "the commit decides"


def test_gpu_time_is_a_duration() -> None:
    x = np.ones((1, 128, 128, 32), np.float32)
    kernel = mpscnn.Convolution(np.ones((32, 32, 3, 3), np.float32), padding=1)
    start = time.perf_counter()
    with mpscnn.CommandBuffer() as commands:
        kernel.encode(commands, mpscnn.Image.from_array(x))
    elapsed = time.perf_counter() - start
    assert 0 < commands.gpu_time <= elapsed


def test_a_handler_that_is_a_method_and_one_that_counts() -> None:
    seen: list[int] = []
    with mpscnn.CommandBuffer() as commands:
        commands.add_completed_handler(lambda: seen.append(1))
        commands.add_completed_handler(seen.clear)
        commands.add_completed_handler(lambda: seen.append(2))
    assert seen == [2]


def test_dtype_of_a_result() -> None:
    x = random(X)
    kernel = mpscnn.NeuronSigmoid()
    with mpscnn.CommandBuffer() as commands:
        image = mpscnn.Image.from_array(x)
        y = [kernel.encode(commands, image, dtype=dtype) for dtype in ("float32", "float16", "uint8", "uint16")]
    expected = 1 / (1 + np.exp(-x.astype(np.float64)))
    np.testing.assert_allclose(y[0].numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(y[1].numpy().astype(np.float64), expected, atol=1e-3)
    np.testing.assert_allclose(y[2].numpy() / 255, expected, atol=0.6 / 255)
    np.testing.assert_allclose(y[3].numpy() / 65535, expected, atol=0.6 / 65535)


def test_destinations_keep_unwritten_pixels() -> None:
    x = random((1, 6, 5, 4))
    store = np.full((1, 6, 5, 12), 9, np.float32)
    kernel = mpscnn.NeuronReLU(destination_feature_channel_offset=4, clip_rect=((1, 2, 0), (3, 2, 1)))
    target = mpscnn.Image.from_array(store)
    with mpscnn.CommandBuffer() as commands:
        kernel.encode(commands, mpscnn.Image.from_array(x), out=target)
    written = target.numpy()[:, 1:4, 2:4, 4:8]
    assert (target.numpy() == 9).sum() == store.size - written.size
    # MPS: clip_rect moves the destination's origin, the offset determines the source pixels.
    np.testing.assert_array_equal(written, np.maximum(x[:, 0:3, 0:2], 0))


def test_open_command_buffers_are_counted() -> None:
    """Metal's queue would wait forever for a slot while no open buffer is committed."""
    assert (
        run_python("""
        import mpscnn
        held = [mpscnn.CommandBuffer() for _ in range(64)]
        try:
            mpscnn.CommandBuffer()
        except RuntimeError as error:
            print(error)
        held[0].commit()
        held.append(mpscnn.CommandBuffer())
        held.pop(1)
        held.append(mpscnn.CommandBuffer(label="of one that was dropped"))
        print(mpscnn.Device.all()[-1] == mpscnn.Device() or mpscnn.CommandBuffer(mpscnn.Device.all()[-1]).status)
        held[0].wait()
        # The process ends with 64 of them open, and work that nothing waits for.
        held.pop().commit()
        """)
        == "CommandBuffer: 64 command buffers of the device are open, the maximum: commit() or drop one first.\n"
        "not_enqueued\n"
    )


def test_a_full_queue_is_waited_for_without_the_gil() -> None:
    """The first handler runs Python code before a slot is free."""
    assert (
        run_python(
            """
        import time
        import mpscnn
        commands = mpscnn.CommandBuffer()
        commands.add_completed_handler(lambda: (time.sleep(0.2), print("handler")))
        commands.commit()
        for _ in range(70):
            commands = mpscnn.CommandBuffer()
            commands.commit()
        commands.wait()
        """,
            timeout=60,
        )
        == "handler\n"
    )


def test_a_temporary_image_that_is_dropped_needs_no_reader() -> None:
    """Metal's validation ends a process that frees an image with reads left; here, nothing can read it any more."""
    x = random((2, 9, 7, 8))
    relu = mpscnn.NeuronReLU()
    with mpscnn.CommandBuffer() as commands:
        unread = relu.encode(commands, mpscnn.Image.from_array(x), temporary=True)
        assert unread.read_count == 1
        del unread
        whole = relu.encode(commands, mpscnn.Image.from_array(x), temporary=True)
        part, other = whole.channels(0, 4), whole.channels(4, 4)
        del whole, other
        y = relu.encode(commands, part)
        del part  # and with it the last view of the whole image
    np.testing.assert_array_equal(y.numpy(), np.maximum(x[..., :4], 0))


@only_openmps("commit looks for temporary images that were not read")
def test_a_temporary_image_that_is_kept_needs_a_reader() -> None:
    commands = mpscnn.CommandBuffer()
    kept = mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(random((2, 9, 7, 8))), temporary=True)
    with pytest.raises(RuntimeError, match=r"readCount 1 when .* must be 0"):
        commands.commit()
    del commands, kept
