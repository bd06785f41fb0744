# SPDX-License-Identifier: Apache-2.0
"""mpscnn.set_num_threads, in processes of their own: threads that are started, and processor time that is used."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import mpscnn
from support import SANITIZED, only_openmps

pytestmark = only_openmps("how many threads openmps has")

NETWORK = """
import json, os, time
import numpy as np
import mpscnn

rng = np.random.default_rng(0)
graph = mpscnn.Graph()
x = graph.input("x", channels=32)
for _ in range(4):
    weight = rng.standard_normal((32, 32, 3, 3), np.float32) / 17
    x = graph.add("Convolution", x, weight=weight, layout="OIHW", padding=1)
graph.output(x, "y")
net = mpscnn.Network(graph)
images = rng.standard_normal((4, 96, 96, 32), np.float32)
def threads():
    return len(os.listdir("/proc/self/task"))
"""


def run(code: str, **environment: str) -> Any:
    env = {key: value for key, value in os.environ.items() if key not in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY")}
    done = subprocess.run(
        [sys.executable, "-c", NETWORK + code], env={**env, **environment}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def processors() -> int:
    return run("print(mpscnn.get_num_threads())")


several = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor")


@pytest.mark.parametrize("variable", [{}, {"OMP_NUM_THREADS": "1"}], ids=str)
def test_default_and_bounds(variable: dict[str, str]) -> None:
    code = """
found = [mpscnn.get_num_threads()]
for n in (1, 2, 10**6, 1):
    mpscnn.set_num_threads(n)
    found.append(mpscnn.get_num_threads())
print(json.dumps(found))
"""
    most = processors()
    assert 1 <= most <= len(os.sched_getaffinity(0))
    assert run(code, **variable) == [1 if variable else most, 1, min(2, most), most, 1]


def test_affinity() -> None:
    code = "print(mpscnn.get_num_threads())"
    one = min(os.sched_getaffinity(0))
    assert run(f"import os\nos.sched_setaffinity(0, [{one}])\n" + code) == 1


@several
def test_threads_are_started_when_they_are_needed() -> None:
    """One thread computes; then two do, and the pool has one more."""
    code = """
mpscnn.set_num_threads(1)
first = np.asarray(net(images))
before = threads()
mpscnn.set_num_threads(2)
second = np.asarray(net(images))
after = threads()
mpscnn.set_num_threads(1)
third = np.asarray(net(images))
print(json.dumps([before, after, threads(), float(np.abs(first - second).max()), bool((first == third).all())]))
"""
    if processors() < 2:
        pytest.skip("a quota of one processor")
    before, after, last, difference, is_equal = run(code)
    assert after == before + 1
    assert last == after
    assert difference < 1e-3
    assert is_equal


@several
@pytest.mark.parametrize("call", ["net(images)", "list(net.stream([images]))"])
def test_one_thread_computes_at_once(call: str) -> None:
    """After calls with two threads, whose compiled kernels exist: processor time is at most the time that passes."""
    code = f"""
mpscnn.set_num_threads(2)
for _ in range(2): {call}
mpscnn.set_num_threads(1)
for _ in range(2): {call}
time.sleep(0.1)
start, used = time.perf_counter(), time.process_time()
while time.perf_counter() - start < 0.7: {call}
print(json.dumps((time.process_time() - used) / (time.perf_counter() - start)))
"""
    # A stream's caller waits for the device's thread for a moment before it sleeps.
    assert run(code, OMP_WAIT_POLICY="PASSIVE") < (1.15 if call == "net(images)" else 1.3)


def test_wrong_numbers() -> None:
    for number, error, message in (
        (0, ValueError, "num_threads (0) is less than the minimum (1)."),
        (-1, ValueError, "num_threads (-1) is less than the minimum (1)."),
        (2.0, TypeError, "num_threads (float) is not an int."),
        (True, TypeError, "num_threads (bool) is not an int."),
    ):
        with pytest.raises(error, match=re.escape(message)):
            mpscnn.set_num_threads(number)  # type: ignore[arg-type]
    if os.environ.get("MPSCNN_DEVICE") != "apple":
        before = mpscnn.get_num_threads()
        mpscnn.set_num_threads(np.int64(before))  # type: ignore[arg-type]
        assert mpscnn.get_num_threads() == before


def test_devices_that_have_no_number_of_threads() -> None:
    """A Mac's, whose GPU computes."""
    code = """
found = []
for call in (mpscnn.get_num_threads, lambda: mpscnn.set_num_threads(1)):
    try:
        call()
    except NotImplementedError as error:
        found.append(str(error))
print(json.dumps(found))
"""
    found = run(code, MPSCNN_DEVICE="apple")
    assert len(found) == 2
    assert all("has no number of threads to read or set." in message for message in found)


SMALL = """
weight = rng.standard_normal((32, 32, 3, 3), np.float32) / 17
def network(name, n, **options):
    graph = mpscnn.Graph()
    x = graph.input("x", channels=32)
    for i in range(4):
        x = graph.add("Convolution", x, weight=weight, layout="OIHW", padding=1, name=f"{name}{i}")
    graph.output(x, "y")
    return mpscnn.Network(graph, num_threads=n, **options)
"""
# Under a sanitizer, a call on these takes as long as a call on all pixels without it.
FEW_PIXELS = "images = images[:1, :24, :24].copy()" if SANITIZED else ""


@several
@pytest.mark.parametrize("how", ["net(images)", "list(net.stream([images] * 2))", "asyncio.run(both(net))"])
@pytest.mark.parametrize("n", [1, None])
def test_calls_side_by_side(n: int | None, how: str) -> None:
    """Steps of two networks' calls are mixed in the trace if the calls overlap, and in turn without num_threads."""
    code = f"""
import asyncio, threading
async def both(net):
    await asyncio.gather(net.apredict(images), net.apredict(images))
nets = [network(name, {n}) for name in "ab"]
{FEW_PIXELS}
def work(net):
    for _ in range(25): {how}
threads = [threading.Thread(target=work, args=(net,)) for net in nets]
for one in threads: one.start()
for one in threads: one.join()
"""
    env = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    for _ in range(6):  # on a busy machine, calls of one run may happen not to overlap
        done = subprocess.run(
            [sys.executable, "-c", NETWORK + SMALL + code],
            env={**env, "MPSCNN_TRACE": "steps"}, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        steps = re.findall(r' us .*"(a|b)(\d)"$', done.stderr, re.MULTILINE)
        assert len(steps) >= 2 * 25 * 4
        mixed = sum(a != b and number != "0" for (a, _), (b, number) in itertools.pairwise(steps))
        if n is None or mixed:
            break
    assert (mixed > 0) == (n is not None)


@several
def test_threads_of_a_network() -> None:
    """Results are those of as many threads of the process; its calls start no further threads."""
    code = """
one, two = network("n", 1), network("n", 2)
alone = np.asarray(one(images))
started = threads()
pair = np.asarray(two(images))
more = threads() - started
mpscnn.set_num_threads(1)
net = network("n", None)
print(json.dumps([bool((np.asarray(net(images)) == alone).all()), bool((np.asarray(two(images)) == alone).all()),
                  float(np.abs(pair - alone).max()), more, one.num_threads, net.num_threads]))
"""
    if processors() < 2:
        pytest.skip("a quota of one processor")
    is_equal, is_limited, difference, more, one, none = run(SMALL + code)
    assert is_equal
    assert is_limited, "num_threads of the network is not limited by that of the process"
    assert difference < 1e-3
    assert more == 1
    assert (one, none) == (1, None)


@several
def test_one_thread_of_a_network_computes_at_once() -> None:
    code = """
net = network("n", 1)
for _ in range(2): net(images)
time.sleep(0.1)
start, used = time.perf_counter(), time.process_time()
while time.perf_counter() - start < 0.7: net(images)
print(json.dumps((time.process_time() - used) / (time.perf_counter() - start)))
"""
    assert run(SMALL + code, OMP_WAIT_POLICY="PASSIVE") < 1.15


def test_memory_of_calls_side_by_side() -> None:
    """Eight callers have no more memory than calls that can compute at once."""
    code = f"""
import threading
{FEW_PIXELS}
net = network("n", 1)
def work():
    for _ in range(15): net(images)
def peak(callers):
    mpscnn.memory.reset()
    threads = [threading.Thread(target=work) for _ in range(callers)]
    for one in threads: one.start()
    for one in threads: one.join()
    return mpscnn.memory.peak()
work()
print(json.dumps([peak(1), peak(8), mpscnn.get_num_threads()]))
"""
    one, eight, most = run(SMALL + code)
    assert one > 0
    assert eight <= most * one


def test_numbers_of_networks() -> None:
    code = """
import pickle
found = []
for number in (0, 2.0, True, 2**31):
    try:
        network("n", number)
    except (TypeError, ValueError) as error:
        found.append(str(error))
net = network("n", 10**6)
twin = pickle.loads(pickle.dumps(net))
is_equal = bool((np.asarray(net(images)) == np.asarray(twin(images))).all())
print(json.dumps([found, net.num_threads, twin.num_threads, is_equal]))
"""
    found, number, pickled, is_equal = run(SMALL + code)
    assert found == [
        "num_threads (0) is less than the minimum (1).",
        "num_threads (float) is not an int.",
        "num_threads (bool) is not an int.",
        "num_threads (2147483648) is greater than the maximum (2147483647).",
    ]
    assert (number, pickled, is_equal) == (10**6, 10**6, True)


@pytest.mark.parametrize("environment", [{"MPSCNN_DEVICE": "apple"}, {"MPSCNN_ENGINE": "split"}], ids=str)
def test_devices_without_threads(environment: dict[str, str]) -> None:
    code = """
try:
    network("n", 2)
except NotImplementedError as error:
    print(json.dumps(str(error)))
"""
    message = run(SMALL + code, **environment)
    assert message.startswith("Network: num_threads (2) was given, but ")
    assert message.endswith(
        'does not compute on threads of the processor, as the device "cpu" does: leave num_threads out.'
    )
