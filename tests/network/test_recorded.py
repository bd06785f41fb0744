# SPDX-License-Identifier: Apache-2.0
"""Calls of a network repeat the commands of earlier ones, with the memory of other arrays in their place."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mpscnn
from mpscnn import _core, memory
from support import ENGINE, Source, counts_memory, only_openmps, run_python

pytestmark = only_openmps("a Mac encodes the kernels in each call")

Array = NDArray[np.float32]
WEIGHT = np.random.default_rng(5).standard_normal((16, 3, 3, 3)).astype(np.float32) / 5
PROJECTION = np.random.default_rng(6).standard_normal((16, 16, 1, 1)).astype(np.float32) / 4


def network(**options: Any) -> mpscnn.Network:
    """A convolution with swish, and a residual sum of two inputs."""
    graph = mpscnn.Graph()
    x, z = graph.input("x", channels=3, layout="NCHW"), graph.input("z", channels=16, layout="NCHW")
    y = graph.add("Convolution", x, weight=WEIGHT, padding=1, name="first")
    y = graph.add("Multiply", y, graph.add("NeuronSigmoid", y))
    y = graph.add("Convolution", y, weight=PROJECTION, name="second")
    graph.output(graph.add("Add", y, z), "y", layout="NCHW")
    return mpscnn.Network(graph, **options)


def expected(x: Array, z: Array) -> Array:
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    y = np.einsum("nchwij,ocij->nohw", windows, WEIGHT.astype(np.float64))
    y = y / (1 + np.exp(-y))
    return np.einsum("nchw,oc->nohw", y, PROJECTION[:, :, 0, 0]) + z


def arrays(seed: int, n: int = 2, h: int = 6, w: int = 5) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal((n, c, h, w)).astype(np.float32) for c in (3, 16))


def close(actual: Array, wanted: NDArray[np.float64]) -> None:
    np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)


def test_other_arrays_in_each_call() -> None:
    net, kept = network(), []
    for seed in range(8):
        x, z = arrays(seed)
        kept.append((net(x, z), expected(x, z)))
    for actual, wanted in kept:  # no call wrote to an earlier result
        close(actual, wanted)


@pytest.mark.skipif(ENGINE != "cpu", reason="other engines repeat commands with the same images, a call later")
def test_the_commands_are_repeated() -> None:
    program = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parents[1])]!r}
import numpy as np
from network import test_recorded as tests
net = tests.network()
for seed, (n, gap) in enumerate([(2, 0)] * 4 + [(1, 0)] * 3 + [(2, 3)] * 3 + [(2, 0), (2, 3)]):
    print("call", seed, file=sys.stderr, flush=True)
    x, z = tests.arrays(seed, n)
    rows = np.zeros((n, 6, 5 + gap, 16), np.float32)[:, :, :5]  # channels last: used in place, with a gap between rows
    rows[...] = z.transpose(0, 2, 3, 1)
    tests.close(net(x, rows.transpose(0, 3, 1, 2)), tests.expected(x, z))
"""
    environment = os.environ | {"MPSCNN_TRACE": "steps"}
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    calls = [part.count("recorded commands") for part in result.stderr.split("call ")[1:]]
    # The second call of each shape or layout records, and runs what it recorded.
    assert calls == [0, 1, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1], calls


def test_results_are_those_of_unrecorded_commands() -> None:
    """Bit by bit: the plan is the same."""
    x, z = arrays(1)
    net = network()
    first = net(x, z)
    for _ in range(4):
        np.testing.assert_array_equal(net(x, z), first)


def test_layouts_and_batches_in_turn() -> None:
    net = network()
    for seed in range(12):
        x, z = arrays(seed, n=1 + seed % 2, w=5 + seed % 3)
        wanted = expected(x, z)
        if seed % 4 == 1:  # channels last in memory
            x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        if seed % 4 == 2:  # a part of a larger array
            z = np.pad(z, ((0, 0), (0, 0), (1, 2), (3, 1)))[:, :, 1:-2, 3:-1]
        close(net(x, z), wanted)


def test_results_in_given_arrays() -> None:
    net = network()
    outs = [np.full((2, 16, 6, 5), np.nan, np.float32) for _ in range(3)]
    for seed in range(9):
        x, z = arrays(seed)
        assert net(x, z, out=outs[seed % 3]) is outs[seed % 3]
        close(outs[seed % 3], expected(x, z))


def test_parts_of_one_array() -> None:
    """Inputs and results in one block of memory, in another place in each call."""
    net = network()
    for seed in range(6):
        x, z = arrays(seed)
        whole = np.full((6, 6, 5, 16), np.nan, np.float32).transpose(0, 3, 1, 2)
        first = 2 * (seed % 3)
        second = (first + (2 if seed < 3 else 4)) % 6
        whole[first : first + 2] = z
        out = whole[second : second + 2]
        assert net(x, whole[first : first + 2], out=out) is out
        close(out, expected(x, z))
        np.testing.assert_array_equal(whole[first : first + 2], z)
        assert np.isnan(whole).sum() == whole.size // 3


def test_one_array_as_two_inputs() -> None:
    graph = mpscnn.Graph()
    a, b = graph.input("a", channels=4), graph.input("b", channels=4)
    y = graph.add("Subtract", graph.add("Convolution", a, weight=np.ones((4, 4, 1, 1), np.float32)), b)
    graph.output(y, "y")
    net = mpscnn.Network(graph)
    for seed in range(6):
        x = np.random.default_rng(seed).standard_normal((1, 3, 3, 4)).astype(np.float32)
        other = x if seed % 2 else x + 1
        np.testing.assert_allclose(net(x, other), x.sum(3, keepdims=True) - other, rtol=1e-5, atol=1e-5)


def test_an_image_as_input_and_result() -> None:
    """Refused as in the first encode, also once commands for two images have been recorded."""
    graph = mpscnn.Graph()
    graph.output(graph.add("PoolingMax", graph.input("x", channels=4), kernel_size=3, stride=1, padding=1), "y")
    net = mpscnn.Network(graph)
    a, b = mpscnn.Image((1, 5, 5, 4)), mpscnn.Image((1, 5, 5, 4))
    for _ in range(4):
        with mpscnn.CommandBuffer() as commands:
            net.encode(commands, a, out=b)
        with pytest.raises(ValueError, match=r"overlap|same memory|share"), mpscnn.CommandBuffer() as commands:
            net.encode(commands, a, out=a)


def test_images_of_the_caller() -> None:
    net = network()
    images = [(mpscnn.Image((2, 6, 5, 3)), mpscnn.Image((2, 6, 5, 16)), mpscnn.Image((2, 6, 5, 16))) for _ in range(2)]
    for seed in range(8):
        x, z = arrays(seed)
        a, b, y = images[seed % 2]
        a.write(x, "NCHW"), b.write(z, "NCHW")
        with mpscnn.CommandBuffer() as commands:
            net.encode(commands, a, b, out=y)
            if seed > 4:  # behind other commands, whose list it joins
                net.encode(commands, a, b, out=y)
        close(y.numpy().transpose(0, 3, 1, 2), expected(x, z))


def test_a_temporary_input() -> None:
    net = network()
    for seed in range(5):
        x, z = arrays(seed)
        y, b = mpscnn.Image((2, 6, 5, 16)), mpscnn.Image.from_array(z.transpose(0, 2, 3, 1).copy())
        with mpscnn.CommandBuffer() as commands:
            a = mpscnn.Image.temporary(commands, (2, 6, 5, 3))
            mpscnn.NeuronReLU().encode(commands, mpscnn.Image.from_array(x.transpose(0, 2, 3, 1).copy()), out=a)
            net.encode(commands, a, b, out=y)
        close(y.numpy().transpose(0, 3, 1, 2), expected(np.maximum(x, 0), z))


def test_reloaded_weights() -> None:
    rng = np.random.default_rng(0)
    source = Source(mpscnn.ConvolutionDescriptor(1, in_channels=3, out_channels=16), PROJECTION[:, :, :1, :3], None)
    source.weights = rng.standard_normal((16, 1, 1, 3)).astype(np.float32)
    convolution = mpscnn.Convolution(source)
    net = _core._Network(
        [("x", None, None, 3, "")], [("conv", convolution, [0], "")], [1], "float32", mpscnn.Device(), 0
    )
    for seed in range(9):
        if seed % 3 == 0:
            source.weights = rng.standard_normal((16, 1, 1, 3)).astype(np.float32)
            convolution.reload()
        x = rng.standard_normal((1, 4, 5, 3)).astype(np.float32)
        y = mpscnn.Image((1, 4, 5, 16))
        with mpscnn.CommandBuffer() as commands:
            net.encode(commands, [mpscnn.Image.from_array(x)], [y])
        np.testing.assert_allclose(y.numpy(), x @ source.weights[:, 0, 0].T, rtol=1e-5, atol=1e-5)


def test_calls_of_several_threads() -> None:
    net, wrong = network(), []

    def work(number: int) -> None:
        for i in range(30):
            x, z = arrays(100 * number + i, n=1 + i % 2)
            if not np.allclose(net(x, z), expected(x, z), rtol=1e-5, atol=1e-5):
                wrong.append((number, i))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_streams() -> None:
    net = network()
    batches = [arrays(seed, n=1 + seed % 3) for seed in range(20)]
    for (x, z), y in zip(batches, net.stream(batches, in_flight=3), strict=True):
        close(y, expected(x, z))


def test_arrays_are_not_kept() -> None:
    class Watched(np.ndarray):
        pass

    net, references = network(), []
    for seed in range(5):
        x, z = (np.ascontiguousarray(a.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) for a in arrays(seed))
        x = x.view(Watched)
        references.append(weakref.ref(x))
        net(x, z)
        del x, z
        gc.collect()
        assert references[-1]() is None, seed


@pytest.mark.skipif(ENGINE != "cpu", reason="other engines keep the memory of recorded commands")
@counts_memory
def test_memory_between_calls() -> None:
    net = network()
    x, z = arrays(1, n=4, h=64, w=64)
    out = np.empty_like(z)
    net(x, z, out=out)
    gc.collect()
    before = memory.current()
    for _ in range(5):
        net(x, z, out=out)
        assert memory.current() <= before, "no temporary image is kept"


@pytest.mark.skipif(ENGINE != "cpu", reason="other engines have memory of their own")
@counts_memory
def test_a_failed_allocation_is_an_error_of_one_call() -> None:
    """A call that cannot get its memory raises; the next one computes."""
    program = f"""
import resource, sys
from pathlib import Path
sys.path[:0] = {[str(Path(__file__).parents[1])]!r}
import numpy as np
from network import test_recorded as tests
net = tests.network()
x, z = tests.arrays(1, n=1, h=2500, w=2500)
x, z = (np.ascontiguousarray(a.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) for a in (x, z))
out = np.empty_like(z)
for _ in range(3):
    net(x, z, out=out)
want = out.copy()
import mpscnn
mpscnn.memory.clear()
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20), resource.RLIM_INFINITY))
try:
    net(x, z, out=out)
    print("computed")
except MemoryError as error:
    print("MemoryError")
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
out[:] = 0
net(x, z, out=out)
print(np.array_equal(out, want))
"""
    assert run_python(program).split() == ["MemoryError", "True"]
