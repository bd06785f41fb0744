# SPDX-License-Identifier: Apache-2.0
"""Many calls do not increase memory, and objects dropped at any stage are freed."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mpscnn
from conftest import NoLeak
from network.graphs import residual
from support import counts_memory, held_queue, run_python

Make = Callable[..., NDArray[np.float32]]

LOOP = """
    import gc, sys, time
    from pathlib import Path
    import numpy as np, mpscnn

    how, times = sys.argv[1], int(sys.argv[2])
    graph = mpscnn.Graph()
    x = graph.input("x", channels=4, layout="NCHW")
    weight = np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype(np.float32)
    for _ in range(2):
        x = graph.add("NeuronReLU", graph.add("Convolution", x, weight=weight, padding=1))
    graph.output(x, "y", layout="NCHW")
    graph.output(graph.add("PoolingMax", x, kernel_size=2), "pooled")
    net = mpscnn.Network(graph)
    arrays = [np.ones((n, 4, 6, 6), np.float32) for n in (1, 2)]
    outs = [[np.empty_like(one) for one in net(x)] for x in arrays]

    def rss():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 if sys.platform == "linux" else 0

    def run(times):
        if how == "stream":
            for _ in net.stream(arrays[i % 2] for i in range(times)):
                pass
        elif how == "apredict":
            import asyncio

            async def main():
                for i in range(times // 8):
                    await asyncio.gather(*(net.apredict(arrays[i % 2]) for i in range(8)))

            asyncio.run(main())
        elif how == "encode":
            image = mpscnn.Image.from_array(arrays[0], "NCHW")
            for i in range(times):
                with mpscnn.CommandBuffer() as commands:
                    net.encode(commands, image)
        elif how == "errors":
            for i in range(times):
                try:
                    net(arrays[0][:, :3]) if i % 2 else net(arrays[0], out=[3, 4])
                except (TypeError, ValueError):
                    pass
        elif how == "shapes":
            wide = np.ones((1, 4, 40, 40), np.float32)
            for i in range(times):
                net(wide[:, :, : 3 + i % 37, : 3 + i % 31])
        elif how == "networks":
            for i in range(times):
                one = mpscnn.Network(graph, optimize=bool(i % 2))
                if i % 4 < 2:
                    one(arrays[0])
                if i % 8 == 0:
                    one._submit(arrays[0])
        else:
            for i in range(times):
                net(arrays[i % 2], out=outs[i % 2]) if i % 4 < 2 else net(arrays[i % 2])

    run(1200 if how == "shapes" else max(times // 10, 100))  # each shape once: what is kept of shapes is bounded
    gc.collect()
    before, objects, start = rss(), len(gc.get_objects()), time.perf_counter()
    allocated = mpscnn.Device().allocated_bytes
    run(times)
    seconds = time.perf_counter() - start
    gc.collect()
    assert mpscnn.Device().allocated_bytes <= allocated, (mpscnn.Device().allocated_bytes, allocated)
    print(rss() - before, len(gc.get_objects()) - objects, 1e6 * seconds / times)
"""


@counts_memory
@pytest.mark.parametrize(
    ("how", "times"),
    [
        ("call", 50_000),
        ("stream", 20_000),
        ("apredict", 10_000),
        ("encode", 10_000),
        ("errors", 10_000),
        ("shapes", 3_000),
        ("networks", 800),
    ],
)
def test_a_long_loop_leaves_memory_flat(how: str, times: int) -> None:
    if how == "shapes" and not mpscnn.Device().shares_images:
        pytest.skip("images of this device have memory of their own: those of the last shapes are kept")
    growth, objects, microseconds = run_python(LOOP, how, str(times), timeout=300).split()
    assert int(growth) < 2 << 20, f"{times} times, {float(microseconds):.1f} us each, left {growth} bytes"
    assert int(objects) <= 20, f"{objects} objects more live than before"


# ------------------------------------------------------------------------------------------- dropped at every stage


class Owned:
    """A graph with weak references to its weights."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        weight = rng.standard_normal((8, 3, 3, 3)).astype(np.float32)
        # Used in place: OHWI, and no normalization to fold.
        self.weight = weakref.ref(weight)
        self.graph = mpscnn.Graph()
        x = self.graph.input("x", channels=3, layout="NCHW")
        ohwi = np.ascontiguousarray(weight.transpose(0, 2, 3, 1))
        self.ohwi = weakref.ref(ohwi)
        a = self.graph.add("Convolution", x, weight=weight, padding=1)
        b = self.graph.add("Convolution", x, weight=ohwi, layout="OHWI", padding=1)
        self.graph.output(self.graph.add("Add", a, b), "y", layout="NCHW")

    def is_gone(self) -> bool:
        gc.collect()
        return self.weight() is None and self.ohwi() is None


@pytest.fixture
def x() -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal((2, 3, 16, 16)).astype(np.float32)


@pytest.fixture(autouse=True)
def _device_memory(no_leak: NoLeak) -> Iterator[None]:
    """Each test frees all device memory that it used. Earlier work may still be freeing its own."""
    commands = mpscnn.CommandBuffer()
    commands.commit()
    commands.wait()
    with no_leak():
        yield
        commands = mpscnn.CommandBuffer()
        commands.commit()
        commands.wait()


def test_a_graph() -> None:
    owned = Owned()
    copy = owned.graph.copy()
    del owned.graph
    assert not owned.is_gone(), "a copy of the graph shares its arrays"
    del copy
    assert owned.is_gone()


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("calls", [0, 1, 3])
def test_a_network(optimize: bool, calls: int, x: Any) -> None:
    owned = Owned()
    net = mpscnn.Network(owned.graph, optimize=optimize)
    del owned.graph
    results = [net(x) for _ in range(calls)]
    gone = weakref.ref(net)
    del net
    assert owned.is_gone()
    assert gone() is None
    assert all(np.array_equal(results[0], one) for one in results)


def test_a_network_needs_no_collector(x: Any) -> None:
    gc.collect()
    gc.disable()
    try:
        net = mpscnn.Network(residual())
        net(x)
        next(net.stream([x] * 4))
        gone = weakref.ref(net)
        del net
        assert gone() is None
    finally:
        gc.enable()


def test_a_network_that_cannot_be_made() -> None:
    owned = Owned()
    owned.graph.add("PoolingMax", mpscnn.graph.Value("x"), kernel_size=0, name="wrong")
    owned.graph.output(mpscnn.graph.Value("wrong"))
    with pytest.raises(ValueError, match='node "wrong"') as caught:
        mpscnn.Network(owned.graph)
    del owned.graph, caught
    assert owned.is_gone()


def test_a_network_while_it_works(x: Any) -> None:
    """The call keeps its resources alive; its result is right although the network is gone."""
    owned = Owned()
    net = mpscnn.Network(owned.graph)
    expected = net(x).copy()
    del owned.graph
    with held_queue(net.device):
        call = net._submit(x.copy())
        del net
        gc.collect()
        noise = [np.full(size, np.nan, np.float32) for size in (216, 864, 1536, 4096) for _ in range(16)]
    assert np.array_equal(call.wait()[0], expected)
    del call, noise
    assert owned.is_gone()


def test_a_call_while_it_works(x: Any) -> None:
    """The call is not awaited; its arrays live until the device has finished, and are freed then."""
    owned = Owned()
    net, given = mpscnn.Network(owned.graph), x.copy()
    out = np.zeros((2, 8, 16, 16), np.float32)
    net(x)
    references = [weakref.ref(given), weakref.ref(out)]
    with held_queue(net.device):
        call = net._core.submit([given], [out], *net._boundary, None)
        del call, given, out
        gc.collect()
        noise = [np.full(size, np.nan, np.float32) for size in (1536, 4096) for _ in range(16)]
    net(x)  # queued after it
    gc.collect()
    assert [one() for one in references] == [None, None]
    del net, noise, owned.graph
    assert owned.is_gone()


def test_arrays_of_calls(x: Any) -> None:
    """The network keeps neither inputs nor results."""
    net = mpscnn.Network(Owned().graph)
    given, out = x.copy(), np.empty((2, 8, 16, 16), np.float32)
    results = [net(given), net(x=given, out=out), next(net.stream([given]))]
    references = [weakref.ref(one) for one in [given, out, *results]]
    del given, out, results
    gc.collect()
    assert [one() for one in references] == [None] * 5


def test_a_call_that_is_refused(x: Any) -> None:
    owned = Owned()
    net, given = mpscnn.Network(owned.graph), np.zeros((1, 4, 9, 9), np.float32)
    reference = weakref.ref(given)
    with pytest.raises(ValueError, match="number of channels") as caught:
        net(given)
    with pytest.raises(ValueError, match=r"out\.shape") as caught:
        net(x, out=given)
    del caught, given
    gc.collect()
    assert reference() is None
    del net, owned.graph
    assert owned.is_gone()


@pytest.mark.parametrize("stage", ["new", "begun", "at work", "ended", "closed", "failed"])
def test_a_stream(stage: str, x: Any) -> None:
    owned = Owned()
    net = mpscnn.Network(owned.graph)
    del owned.graph
    batches: list[Any] = [x.copy() for _ in range(6)]
    if stage == "failed":
        batches.append("seven")
    references = [weakref.ref(one) for one in batches[:6]]
    stream = net.stream(iter(batches), in_flight=2)
    if stage == "begun":
        next(stream)
    elif stage == "at work":
        with held_queue(net.device):
            stream._fill()
            del stream, batches
            gc.collect()
    elif stage == "ended":
        assert len(list(stream)) == 6
    elif stage == "closed":
        with stream:
            next(stream)
    elif stage == "failed":
        with pytest.raises(TypeError) as caught:
            list(stream)
        del caught
    net(x)  # queued after the work in progress
    if stage != "at work":
        del stream, batches
    del net
    assert owned.is_gone()
    assert [one() for one in references] == [None] * 6


@pytest.mark.parametrize("cancelled", ["before its turn", "during its turn"])
def test_a_request_that_is_cancelled(cancelled: str, x: Any) -> None:
    owned = Owned()
    net = mpscnn.Network(owned.graph)
    del owned.graph
    arrays = [x.copy() for _ in range(6)]
    references = [weakref.ref(one) for one in arrays]

    async def main(net: mpscnn.Network, arrays: list[Any]) -> None:
        with held_queue(net.device) as gate:
            requests = [asyncio.ensure_future(net.apredict(one)) for one in arrays]
            await asyncio.sleep(0.01)
            request = requests[5 if cancelled == "before its turn" else 0]
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
            gate.set()
            await asyncio.gather(*requests, return_exceptions=True)

    asyncio.run(main(net, arrays))
    net(x)
    del arrays, net
    assert owned.is_gone()
    assert [one() for one in references] == [None] * 6


def test_images_that_are_encoded(x: Any) -> None:
    owned = Owned()
    net = mpscnn.Network(owned.graph)
    expected = net(x).copy()
    del owned.graph
    commands = mpscnn.CommandBuffer()
    result = net.encode(commands, mpscnn.Image.from_array(x, "NCHW"))
    del net
    gc.collect()
    commands.commit()
    commands.wait()
    assert np.array_equal(result.numpy("NCHW"), expected)
    del commands, result
    assert owned.is_gone()


def test_images_that_are_never_committed(x: Any) -> None:
    owned = Owned()
    net, image = mpscnn.Network(owned.graph), mpscnn.Image.from_array(x, "NCHW")
    del owned.graph
    commands = mpscnn.CommandBuffer()
    net.encode(commands, image)
    del net, commands, image
    assert owned.is_gone()


def test_views_of_results_outlive_everything(x: Any) -> None:
    net = mpscnn.Network(residual())
    y, features = net(x)
    part, expected = features[0, :, ::2], features[0, :, ::2].copy()
    del net, y, features
    gc.collect()
    noise = [np.full(size, np.nan, np.float32) for size in (4096, 5120, 8192) for _ in range(16)]
    assert np.array_equal(part, expected)
    del noise
