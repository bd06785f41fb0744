# SPDX-License-Identifier: Apache-2.0
"""Machines with too few resources: no threads, no memory for their stacks, no processor, a quota.

Each test runs a separate process with a time limit.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import ENGINE, only_openmps

pytestmark = only_openmps("how many threads openmps has")
one_thread = pytest.mark.skipif(ENGINE == "split", reason="the split engine has a thread of its own")

# A network whose layers use several threads, and its result without limits.
NETWORK = """
import asyncio, os, resource, sys, threading, time
import numpy as np
import mpscnn

rng = np.random.default_rng(0)
graph = mpscnn.Graph()
x = graph.input("x", channels=32)
for _ in range(LAYERS):
    weight = rng.standard_normal((32, 32, 3, 3), np.float32) / 17
    x = graph.add("Convolution", x, weight=weight, bias=np.zeros(32, np.float32), layout="OIHW", padding=1)
graph.output(x, "y")
images = rng.standard_normal((1, 56, 56, 32), np.float32)
"""

# Limits do not apply to root.
NO_THREADS = """
def forbid_threads():
    if os.geteuid() == 0:
        os.setgid(65534), os.setuid(65534)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    try:
        threading.Thread(target=lambda: None).start()
    except RuntimeError:
        return
    sys.exit("the limit does not hold here")
"""


def run(code: str, *, layers: int = 6, seconds: float = 60, prefix: Sequence[str] = (), **environment: str) -> str:
    source = NETWORK.replace("LAYERS", str(layers)) + code
    env = {**os.environ, **environment}
    env.pop("OMP_WAIT_POLICY", None)
    done = subprocess.run(
        [*prefix, sys.executable, "-c", source], env=env, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Exception ignored" not in done.stderr, done.stderr[-2000:]
    return done.stdout


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Run programs that end with this process, too."""
    loop = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(10**6): pass"
    loops = [subprocess.Popen([sys.executable, "-c", loop], start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for one in loops:
            one.kill()
            one.wait()


linux = pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc as Linux has them")


@one_thread
@linux
@pytest.mark.parametrize("warm", [False, True], ids=["from the first call on", "after a call"])
def test_no_thread_can_be_started(warm: bool) -> None:
    """Calls compute on the calling thread, with the same result."""
    out = run(
        NO_THREADS
        + f"""
net = mpscnn.Network(graph)
if {warm}:
    wanted = net(images)
forbid_threads()
for _ in range(3):
    y = net(images)
assert np.isfinite(y).all() and y.any()
if {warm}:
    assert np.abs(y - wanted).max() < 1e-5
print("computed")
"""
    )
    assert out == "computed\n"


@linux
@pytest.mark.parametrize(
    "use",
    [
        "list(net.stream([images, images]))",
        "asyncio.run(net.apredict(images))",
        "with mpscnn.CommandBuffer() as commands: commands.commit()",
    ],
    ids=["stream", "apredict", "commit"],
)
def test_what_needs_a_thread_says_so(use: str) -> None:
    out = run(
        NO_THREADS
        + f"""
net = mpscnn.Network(graph)
forbid_threads()
try:
    {use}
    print("computed")
except (MemoryError, RuntimeError) as error:
    assert "thread" in str(error), error
    print("refused")
""",
        seconds=30,
    )
    assert out in ("computed\n", "refused\n")


@linux
def test_address_space_is_full() -> None:
    """Without memory for a thread's stack, calls return a result or raise MemoryError, and work again afterwards."""
    out = run(
        """
net = mpscnn.Network(graph)
used = int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmSize"))) * 1024
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + (6 << 20), hard))  # a stack has 8 MB
answers = []
for call in (lambda: net(images), lambda: list(net.stream([images] * 2)), lambda: net(images)):
    try:
        call()
        answers.append("result")
    except (MemoryError, RuntimeError) as error:
        answers.append(type(error).__name__)
resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
assert np.isfinite(net(images)).all()
print(len(answers))
"""
    )
    assert out == "3\n"


@linux
@pytest.mark.parametrize("torch", ["", "import torch"], ids=["alone", "PyTorch imported"])
def test_no_thread_spins_without_a_processor(torch: str) -> None:
    """Beside busy programs, a call takes the same processor time as alone.

    Threads that spin for partners without a processor take two to five times as much.
    """
    if torch:
        pytest.importorskip("torch")
    code = (
        torch
        + """
net = mpscnn.Network(graph)
for _ in range(5): net(images)
def processor_time(calls):
    begin = time.process_time()
    for _ in range(calls): net(images)
    return (time.process_time() - begin) / calls
print(min(processor_time(20) for _ in range(5)))
"""
    )
    alone = float(run(code, layers=20, OMP_NUM_THREADS="1"))
    with busy_loops(len(os.sched_getaffinity(0))):
        crowded = float(run(code, layers=20))
    assert crowded < 1.6 * alone, (crowded, alone)


@one_thread
@linux
def test_no_more_threads_than_processors() -> None:
    """OMP_NUM_THREADS cannot exceed the affinity mask."""
    out = run(
        """
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
before = len(os.listdir("/proc/self/task"))
net = mpscnn.Network(graph)
net(images)
print(len(os.listdir("/proc/self/task")) - before)
""",
        OMP_NUM_THREADS="16",
    )
    assert out == "0\n"


@one_thread
@linux
@pytest.mark.parametrize(
    ("file", "text"),
    [("cpu.max", "100000 100000"), ("cpu/cpu.cfs_quota_us", "100000")],
    ids=["version 2", "version 1"],
)
def test_no_more_threads_than_the_quota(file: str, text: str, tmp_path: Path) -> None:
    """A control group's quota of one processor leaves one thread. A mount namespace provides the files."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor: one thread without a quota, too")
    for name, content in ((file, text), ("cpu/cpu.cfs_period_us", "100000")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    in_namespace = ["unshare", "--mount", "--map-root-user"] if shutil.which("unshare") else ["false"]
    mount = f"mount --bind {shlex.quote(str(tmp_path))} /sys/fs/cgroup"
    if subprocess.run([*in_namespace, "sh", "-c", mount], capture_output=True, check=False).returncode != 0:
        pytest.skip("no mount namespace may be made here")
    groups = Path("/proc/self/cgroup").read_text()
    if file.startswith("cpu/") and not re.search(r"^\d+:([^:]*,)?cpu[,:]", groups, re.MULTILINE):
        pytest.skip("this process is in no group of version 1 that limits processors")
    code = """
before = len(os.listdir("/proc/self/task"))
net = mpscnn.Network(graph)
net(images)
print(len(os.listdir("/proc/self/task")) - before)
"""
    assert int(run(code)) > 0
    assert run(code, prefix=[*in_namespace, "sh", "-c", f'{mount} && exec "$@"', "sh"]) == "0\n"


@one_thread
@linux
def test_threads_are_tried_again() -> None:
    """A second after threads could not be started, a call tries again."""
    out = run(
        """
if os.geteuid() == 0:
    os.setgid(65534), os.setuid(65534)
soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
def threads_after_a_call():
    net(images)
    return len(os.listdir("/proc/self/task"))
net = mpscnn.Network(graph)
resource.setrlimit(resource.RLIMIT_NPROC, (0, hard))
before = threads_after_a_call()
resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))
end = time.monotonic() + 20
while threads_after_a_call() == before and time.monotonic() < end:
    time.sleep(0.1)
print(threads_after_a_call() > before)
"""
    )
    assert out == "True\n"
