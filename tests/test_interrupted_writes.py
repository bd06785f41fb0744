# SPDX-License-Identifier: Apache-2.0
"""Files on disk after a process that saves is killed, or gets Ctrl-C, before any of its system calls."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD")

COMMON = """
    import ctypes, os, re, shutil, signal, sys
    from pathlib import Path
    import numpy as np
    import mpscnn

    library = ctypes.CDLL(sys.argv[1])
    library.names_of_calls.restype = ctypes.c_char_p
    FOLDER = Path(sys.argv[2])

    def stopped(write, at, number):
        '''Whether a process that writes gets as far as its call `at`; there it is sent the signal.'''
        child = os.fork()
        if child == 0:
            status = 3
            try:
                library.stop_at_call(at, number)
                write()
                status = 0 if library.calls_made() < at else 3
            except KeyboardInterrupt:
                assert number == signal.SIGINT
            except BaseException as error:
                print(repr(error), flush=True)
                status = 4
            finally:
                library.stop_at_call(0, 0)
                os._exit(status)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) in (0, 3), status
        return os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 3

    def stops(write, number):
        at = 1
        while stopped(write, at, number):
            yield at
            at += 1
        assert at > 15, at  # it was seen to write

    def names(folder=FOLDER):
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
"""

CHECKPOINTS = """
    from mpscnn.training import checkpoint
    from mpscnn.training.history import History

    BOTH = ["model.safetensors", "optimizer.safetensors"]

    def save(step, folder=FOLDER):
        arrays = {"a": np.full((20, 30), step, np.float32), "b": np.full(5, step, np.float32)}
        facts = {"steps": step, "optimizer": "any", "learning_rate": 0.1, "time_steps": {}}
        checkpoint.write(folder, arrays, {"a.momentum": arrays["a"]}, facts | {"history": History().to_dict()})

    def current(folder=FOLDER):
        model, optimizer, facts = checkpoint.read(folder)
        values = [*model.values(), *optimizer.values(), np.array(facts["steps"])]
        assert all((value == facts["steps"]).all() for value in values)
        return facts["steps"]
"""

PROGRAMS = {
    # Folders left in the middle of moving files are saved to again, and that is killed at each call, too.
    "checkpoints": COMMON
    + CHECKPOINTS
    + """
    def interrupt(number, step):
        for _ in stops(lambda: save(step), number):
            found = current()
            assert found in (before, step)
            kept = names()
            if number == signal.SIGINT:
                assert kept == BOTH, kept
            if (kind := (found, *(re.sub("[0-9a-f]{16}", "*", name) for name in kept))) not in left:
                left[kind] = FOLDER.with_name(f"left{len(left)}")
                shutil.copytree(FOLDER, left[kind])
            save(before)
            assert (current(), names()) == (before, BOTH)

    left, before = {}, 1
    for number in (signal.SIGKILL, signal.SIGINT):
        save(before)
        interrupt(number, 2)
    moving = [kind for kind in left if ".mpscnn-next" in kind]
    assert [len(kind) for kind in moving] == [7, 6, 5], left  # both files are still there, one is, none is
    for kind in moving:
        found, folder = kind[0], left[kind]
        at = 1
        while True:
            shutil.rmtree(FOLDER)
            shutil.copytree(folder, FOLDER)
            again = stopped(lambda: save(3), at, signal.SIGKILL)
            assert current() in ((found, 3) if again else (3,))
            save(4)
            assert (current(), names()) == (4, BOTH)
            if not again:
                break
            at += 1
    """,
    "the first checkpoint": COMMON
    + CHECKPOINTS
    + """
    for number in (signal.SIGKILL, signal.SIGINT):
        for _ in stops(lambda: save(1, FOLDER / "new"), number):
            try:
                assert current(FOLDER / "new") == 1
            except mpscnn.InvalidModelError:
                assert not set(BOTH) <= set(names())
            shutil.rmtree(FOLDER / "new", ignore_errors=True)
    """,
    "networks": COMMON
    + """
    def network(value):
        graph = mpscnn.Graph()
        y = graph.add("NeuronPReLU", graph.input("x"), a=np.full(400, value, np.float32), name="prelu")
        graph.output(y, "y")
        return mpscnn.Network(graph)

    def current():
        values = mpscnn.load(path).graph.node("prelu").arguments["a"]
        assert (values == values[0]).all()
        return values[0]

    path, old, new = FOLDER / "net.mpscnn", network(1), network(2)
    old.save(path)
    for number in (signal.SIGKILL, signal.SIGINT):
        for _ in stops(lambda: new.save(path), number):
            assert current() in (1, 2)
            if number == signal.SIGINT:
                assert names() == ["net.mpscnn"], names()
            old.save(path)
            assert (current(), names()) == (1, ["net.mpscnn"])
    """,
    # On power failure at any time: contents are written before the name that refers to them, which replaces the old.
    "order": COMMON
    + CHECKPOINTS
    + """
    save(1)
    library.stop_at_call(10**9, 0)
    save(2)
    calls = library.names_of_calls().decode().splitlines()
    library.stop_at_call(0, 0)
    steps = [call for call in calls if call.startswith(("fsync", "rename"))]
    kinds = [call.split()[0] for call in steps]
    assert kinds == ["fsync", "fsync", "fsync", "rename", "fsync", "rename", "rename"], steps
    assert steps[0].endswith(BOTH[1]) and steps[1].endswith(BOTH[0])
    assert Path(steps[0].split()[1]).parent == Path(steps[2].split()[1])
    assert steps[4] == f"fsync {FOLDER}"
    """,
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "stop_at_call.so"
    source = Path(__file__).with_name("stop_at_call.c")
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", path, source, "-ldl"], check=True)
    return path


def run(program: str, library: Path, folder: Path) -> None:
    folder.mkdir()
    preloaded = " ".join(filter(None, (os.environ.get("LD_PRELOAD"), str(library))))
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), library, folder],
        env={**os.environ, "LD_PRELOAD": preloaded, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"


@pytest.mark.parametrize("name", PROGRAMS)
def test_interrupted_at_every_call(name: str, library: Path, tmp_path: Path) -> None:
    """Forks and kills several hundred processes in a few seconds."""
    run(PROGRAMS[name], library, tmp_path / "folder")


def test_processes_that_save_at_once(library: Path, tmp_path: Path) -> None:
    """Concurrent writers and readers do not disturb each other."""
    program = """
    import time
    end = time.monotonic() + 1
    save(0)
    children = []
    for child in range(3):
        if (pid := os.fork()) == 0:
            step = 0
            try:
                while time.monotonic() < end:
                    step += 1
                    save(step)
            except BaseException as error:
                print(repr(error), flush=True)
                os._exit(1)
            os._exit(0)
        children.append(pid)
    found = set()
    while time.monotonic() < end:
        found.add(current())
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
    assert len(found) > 5, found
    save(1)
    assert (current(), names()) == (1, BOTH)
    """
    run(COMMON + CHECKPOINTS + program, library, tmp_path / "folder")
