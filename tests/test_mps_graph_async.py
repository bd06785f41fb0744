# SPDX-License-Identifier: Apache-2.0
"""mpscnn.MPSNNGraph: calls that do not wait, their callbacks, and requests of event loops."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest

import mpscnn
from mpscnn import nodes
from support import Source, held_queue


def batch(value: float, n: int = 1) -> np.ndarray:
    return np.full((n, 3, 5, 4), value, np.float32)


@pytest.fixture
def double() -> mpscnn.MPSNNGraph:
    """2 x."""
    return mpscnn.MPSNNGraph(nodes.NeuronLinearNode(nodes.ImageNode("x"), 2.0, 0.0), format="float32")


def run(main: Coroutine[Any, Any, Any]) -> Any:
    async def limited() -> Any:
        return await asyncio.wait_for(main, 60)

    return asyncio.run(limited())


# ---------------------------------------------------------------------------------------------------- execute_async


def test_execute_async(double: mpscnn.MPSNNGraph) -> None:
    with held_queue(double.device) as gate:
        executions = [double.execute_async({"x": batch(i, 1 + i % 3)}) for i in range(20)]
        gc.collect()  # the arrays are kept
        assert [one.done() for one in executions] == [False] * 20
        assert repr(executions[0]) == "<mpscnn.mps_graph.GraphExecution, at work>"
        with pytest.raises(TimeoutError, match=r"GraphExecution: the work is not done after 0\.01 s\."):
            executions[0].result(0.01)
        gate.set()
        for i, one in enumerate(executions):
            np.testing.assert_array_equal(one.result(30), batch(2 * i, 1 + i % 3))
            assert one.done()
    np.testing.assert_array_equal(executions[3].result(), executions[3].result())
    assert repr(executions[0]) == "<mpscnn.mps_graph.GraphExecution, done>"


def test_results_of_execute_async() -> None:
    """Images, exported images, and none."""
    relu = nodes.NeuronReLUNode(nodes.ImageNode("x"))
    relu.result_image.export_from_graph = True
    last = nodes.NeuronLinearNode(relu, 3.0, 0.0)
    graph = mpscnn.MPSNNGraph(last, format="float32")
    for given in (batch(1), mpscnn.Image.from_array(batch(1))):
        result, exported = graph.execute_async(given).result()
        assert type(result) is type(given)
        np.testing.assert_array_equal(np.asarray(result), batch(3))
        np.testing.assert_array_equal(np.asarray(exported), batch(1))
    relu.result_image.export_from_graph = False
    assert mpscnn.MPSNNGraph(last, results_are_needed=False).execute_async(batch(1)).result() is None


def test_callbacks(double: mpscnn.MPSNNGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is called once with the execution, whose result it may read; also after one that raises."""
    seen: list[Any] = []
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda given: reported.append(given.exc_value))
    done = threading.Event()

    def fail(_: Any) -> None:
        raise OSError("disk")

    with held_queue(double.device):
        execution = double.execute_async(batch(4))
        for callback in (lambda one: seen.append(one.result()), fail, lambda one: seen.append(one),
                         lambda _: done.set()):  # fmt: skip
            execution.add_done_callback(callback)
        with pytest.raises(TypeError, match=r"GraphExecution: callback \(int\) is not callable\."):
            execution.add_done_callback(3)  # type: ignore[arg-type]
        assert seen == []
    np.testing.assert_array_equal(execution.result(), batch(8))
    assert done.wait(30)
    np.testing.assert_array_equal(seen[0], batch(8))
    assert seen[1:] == [execution]
    assert [str(one) for one in reported] == ["disk"]
    execution.add_done_callback(seen.append)  # at once
    assert seen[2:] == [execution]
    with pytest.raises(OSError, match="disk"):
        execution.add_done_callback(fail)


def test_errors_of_execute_async(double: mpscnn.MPSNNGraph) -> None:
    for call, kind, text in (
        (lambda: double.execute_async(), ValueError, "0 sources were given; the graph has 1"),
        (lambda: double.execute_async({"y": batch(1)}), ValueError, "there is no input 'y'"),
        (lambda: double.execute_async(batch(1)).result(-1), ValueError,
         r"GraphExecution.result: timeout \(-1.0\) is less than the minimum \(0\)"),
        (lambda: double.execute_async(batch(1)).result("1"), TypeError,  # type: ignore[arg-type]
         r"GraphExecution.result: timeout \(str\) is not a number"),
        (lambda: mpscnn.mps_graph.GraphExecution(), TypeError, "GraphExecution cannot be made"),
    ):  # fmt: skip
        with pytest.raises(kind, match=text):
            call()
    np.testing.assert_array_equal(double.execute_async(batch(1)).result(), batch(2))


class Fails(Source):
    """Fails in its second update, on the device or the CPU."""

    def __init__(self) -> None:
        super().__init__(mpscnn.ConvolutionDescriptor(1, in_channels=4, out_channels=4), np.ones((4, 1, 1, 4), "f4"))
        self.updates = 0

    def update(self, *_: Any) -> Any:
        self.updates += 1
        if self.updates == 2:
            raise OSError("disk")

    update_on_cpu = update


@pytest.mark.parametrize("style", ["gpu", "cpu"])
def test_exceptions_of_updates(style: str) -> None:
    """They are raised by the result of the execution that they belong to."""
    source = Fails()
    conv = nodes.ConvolutionNode(nodes.ImageNode("x"), source)
    conv.training_style = style  # type: ignore[assignment]
    loss = nodes.ForwardLossNode(conv, nodes.ImageNode("y"), mpscnn.Loss("mean_squared_error", reduction="sum"))
    last = nodes.InitialGradientNode(loss).training_graph()
    graph = mpscnn.MPSNNGraph(*last, results_are_needed=False, format="float32")
    with held_queue(graph.device):
        executions = [graph.execute_async(batch(1), batch(2)) for _ in range(3)]
    assert executions[0].result() is None
    for _ in range(2):
        with pytest.raises(OSError, match="disk"):
            executions[1].result()
    assert executions[2].result() is None
    assert source.updates == 3
    assert graph(batch(1), batch(2)) is None


def test_freed(double: mpscnn.MPSNNGraph) -> None:
    execution = double.execute_async(batch(1))
    execution.add_done_callback(lambda _: None)
    execution.result()
    gone = weakref.ref(execution)
    del execution
    gc.collect()
    assert gone() is None


# ----------------------------------------------------------------------------------------------------------- apredict


def test_many_requests(double: mpscnn.MPSNNGraph) -> None:
    async def main() -> list[Any]:
        requests = [asyncio.ensure_future(double.apredict(batch(i, 1 + i % 3))) for i in range(200)]
        return await asyncio.gather(*requests)

    for i, y in enumerate(run(main())):
        np.testing.assert_array_equal(y, batch(2 * i, 1 + i % 3))
    gc.collect()
    assert double._turns == {}


def test_the_event_loop_goes_on(double: mpscnn.MPSNNGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most four requests are submitted; one that is cancelled while it waits never runs."""
    submitted: list[float] = []
    append = mpscnn.MPSNNGraph._append

    def counted(self: Any, commands: Any, images: Any, labels: Any) -> Any:
        submitted.append(float(images[0].numpy().flat[0]))
        return append(self, commands, images, labels)

    monkeypatch.setattr(mpscnn.MPSNNGraph, "_append", counted)

    async def main() -> list[Any]:
        with held_queue(double.device) as gate:
            requests = [asyncio.ensure_future(double.apredict(batch(i))) for i in range(7)]
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert submitted == [0, 1, 2, 3]
            requests[1].cancel()
            requests[5].cancel()
            gate.set()
            return await asyncio.gather(*requests, return_exceptions=True)

    results = run(main())
    assert submitted == [0, 1, 2, 3, 4, 6]
    for i, y in enumerate(results):
        if i in (1, 5):
            assert isinstance(y, asyncio.CancelledError)
        else:
            np.testing.assert_array_equal(y, batch(2 * i))


def test_errors_of_requests(double: mpscnn.MPSNNGraph) -> None:
    async def main() -> None:
        for _ in range(6):  # an error gives its turn back
            with pytest.raises(ValueError, match="there is no input 'y'"):
                await double.apredict({"y": batch(1)})
        np.testing.assert_array_equal(await double.apredict({"x": batch(1)}), batch(2))

    run(main())


def test_training_requests() -> None:
    """Steps of training in the order of the requests."""

    def make() -> tuple[Any, Any]:
        weight = np.full((4, 4, 1, 1), 0.5, np.float32)
        adam = mpscnn.OptimizerAdam(0.1)
        conv = nodes.ConvolutionNode(nodes.ImageNode("x"), weight, optimizer=adam)
        loss = nodes.LossNode(conv, mpscnn.Loss("softmax_cross_entropy"))
        return conv, mpscnn.MPSNNGraph(*loss.training_graph(), results_are_needed=False, format="float32")

    def labels(i: int) -> mpscnn.LossLabels:
        return mpscnn.LossLabels(np.eye(4, dtype=np.float32)[np.full((1, 3, 5), i % 4)])

    conv, graph = make()
    other, expected = make()

    async def main() -> None:
        await asyncio.gather(*(graph.apredict(batch(i), labels=labels(i)) for i in range(6)))

    run(main())
    for i in range(6):
        expected(batch(i), labels=labels(i))
    np.testing.assert_array_equal(conv.weights.weight, other.weights.weight)
