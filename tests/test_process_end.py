# SPDX-License-Identifier: Apache-2.0
"""A program may end, or fork, at any time, with work in progress."""

from __future__ import annotations

import os

import pytest

from support import run_python

EXITS: dict[str, str] = {
    "work under way": """
        y = kernel.encode(commands, image)
        commands.commit()
    """,
    "work not committed": """
        y = kernel.encode(commands, image)
    """,
    "work under way, references dropped": """
        kernel.encode(commands, image)
        commands.commit()
        del commands, kernel, image, x
    """,
    "many command buffers under way": """
        for _ in range(20):
            commands = mpscnn.CommandBuffer()
            kernel.encode(commands, image)
            commands.commit()
    """,
    "a handler still to be called": """
        kernel.encode(commands, image)
        commands.add_completed_handler(lambda: sum(range(1000)))
        commands.commit()
    """,
    "handlers that commit more and more": """
        def step():
            commands = mpscnn.CommandBuffer()
            kernel.encode(commands, image)
            commands.add_completed_handler(step)
            try:
                commands.commit()
            except RuntimeError as error:
                assert "while the process ends" in str(error), error
        step()
    """,
    "another thread waits": """
        import threading
        kernel.encode(commands, image)
        commands.commit()
        threading.Thread(target=commands.wait, daemon=True).start()
    """,
    "other threads compute": """
        import threading
        def loop():
            while True:
                kernel(x)
        for _ in range(2):
            threading.Thread(target=loop, daemon=True).start()
        import time
        time.sleep(0.05)
    """,
    "sys.exit inside": """
        with mpscnn.CommandBuffer() as inner:
            kernel.encode(inner, image)
            sys.exit(0)
    """,
    "everything global": """
        y = kernel(x)
        view = mpscnn.Image.from_array(x).numpy()
        source = kernel.data_source
        source.load()
        weights = source.weights
        buffer = mpscnn.Buffer(4096)
    """,
}


@pytest.mark.parametrize("name", EXITS)
def test_the_interpreter_can_end_at_any_time(name: str) -> None:
    program = f"""
        import sys
        import numpy as np, mpscnn
        x = np.ones((4, 128, 128, 32), np.float32)
        kernel = mpscnn.Convolution(np.ones((32, 32, 3, 3), np.float32), padding=1)
        image = mpscnn.Image.from_array(x)
        commands = mpscnn.CommandBuffer()
    {EXITS[name]}
    """
    for _ in range(3):
        run_python(program, timeout=60)


def test_handlers_after_the_end_of_the_interpreter() -> None:
    """Work and its handler complete during or after the interpreter's finalization."""
    run_python(
        """
        import atexit, time
        import numpy as np, mpscnn
        x = np.ones((8, 128, 128, 32), np.float32)
        kernel = mpscnn.Convolution(np.ones((32, 32, 3, 3), np.float32), padding=1)
        def last():
            for _ in range(10):
                commands = mpscnn.CommandBuffer()
                kernel.encode(commands, mpscnn.Image.from_array(x))
                commands.add_completed_handler(lambda: time.sleep(0.001))
                commands.commit()
        atexit.register(last)
        """,
        timeout=60,
    )


def test_work_after_the_end_is_refused() -> None:
    """An exit function registered before the import runs after the devices are released."""
    output = run_python(
        """
        import atexit
        def late():
            try:
                kernel(x)
            except RuntimeError as error:
                print(error)
        atexit.register(late)
        import numpy as np, mpscnn
        x, kernel = np.ones((1, 2, 3, 4), np.float32), mpscnn.NeuronReLU()
        kernel(x)
        """
    )
    assert "commit() came while the process ends" in output


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_ends() -> None:
    """The child may not compute, but its exit does not wait for a missing thread."""
    run_python(
        """
        import os, sys
        import numpy as np, mpscnn
        mpscnn.NeuronReLU()(np.ones((1, 2, 3, 4), np.float32))
        child = os.fork()
        if child == 0:
            sys.exit(7)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7, status
        """,
        timeout=60,
    )


KERNELS: dict[str, str] = {
    "convolution": "mpscnn.Convolution(np.ones((32, 32, 3, 3), np.float32), padding=1, activation='elu')",
    "transposed convolution": "mpscnn.ConvolutionTranspose(np.ones((32, 32, 4, 4), np.float32), stride=2)",
    "fully connected": "mpscnn.FullyConnected(np.ones((32, 32 * 48 * 48), np.float32), feature_map=(32, 48, 48))",
    "neuron": "mpscnn.NeuronTanH(a=1, b=1)",
}
ENDS: dict[str, str] = {
    "the last line": "",
    "sys.exit": "    sys.exit(0)",
    "os._exit": "    os._exit(0)",
    "exit() of C": "    ctypes.CDLL(None).exit(0)",
    "exit() of C, on another thread": """
        threading.Thread(target=ctypes.CDLL(None).exit, args=(0,)).start()
        commands.wait()
        time.sleep(60)
    """,
    "a fork that ends": """
        child = os.fork()
        if child == 0:
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    """,
    "a fork that ends with exit() of C": """
        child = os.fork()
        if child == 0:
            signal.alarm(1)
            ctypes.CDLL(None).exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    """,
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("end", ENDS)
def test_a_program_can_end_inside_its_first_command_buffer(end: str, kernel: str) -> None:
    """While oneDNN initializes itself. tests/objc/exit_test.mm does this hundreds of times."""
    program = f"""
        import ctypes, os, signal, sys, threading, time, warnings
        import numpy as np, mpscnn
        warnings.simplefilter("ignore")  # Python 3.12 warns of every fork with threads
        kernel = {KERNELS[kernel]}
        commands = mpscnn.CommandBuffer()
        kernel.encode(commands, mpscnn.Image.from_array(np.ones((1, 48, 48, 32), np.float32)))
        commands.commit()
        time.sleep(float(sys.argv[1]))
    {ENDS[end]}
    """
    for milliseconds in (0, 1, 3) if "exit() of C" in end else (0,):
        run_python(program, str(milliseconds / 1000), timeout=60)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_work_in_a_fork_is_refused() -> None:
    """The queue's thread exists in the parent only; waiting for it would never end."""
    output = run_python(
        """
        import os, warnings
        import numpy as np, mpscnn
        warnings.simplefilter("ignore")
        kernel, x = mpscnn.NeuronReLU(), np.ones((1, 2, 3, 4), np.float32)
        kernel(x)
        child = os.fork()
        if child == 0:
            try:
                kernel(x)
            except RuntimeError as error:
                print(error, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        kernel(x)
        """,
        timeout=60,
    )
    assert "was in use when this process was forked" in output


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("what", ["kernel", "net"])
def test_a_fork_while_another_thread_holds_a_kernel(what: str) -> None:
    """The other thread and its locks stay in the parent: the child must not wait for them."""
    run_python(
        f"""
        import os, signal, threading, warnings
        import numpy as np, mpscnn
        warnings.simplefilter("ignore")
        asked, answer = threading.Event(), threading.Event()

        class Slow(mpscnn.PaddingPolicy):
            waits = False
            def destination(self, kernel, sources, suggested):
                if self.waits:
                    asked.set()
                    answer.wait()
                return suggested

        policy, x = Slow(), np.ones((1, 4, 5, 4), np.float32)
        kernel = mpscnn.PoolingMax(2, padding=policy)
        graph = mpscnn.Graph()
        graph.output(graph.add("PoolingMax", graph.input("x", channels=4), kernel_size=2, padding=policy), "y")
        net = mpscnn.Network(graph)
        {what}(x)
        policy.waits = True
        thread = threading.Thread(target=lambda: {what}(x))
        thread.start()
        assert asked.wait(20)
        policy.waits = False
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # instead of waiting for ever
            try:
                {what}(x)
            except RuntimeError as error:
                os._exit(3 if "was in use when this process was forked" in str(error) else 4)
            os._exit(5)
        answer.set()
        thread.join()
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 3, status
        {what}(x)
        """,
        timeout=60,
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forks_while_threads_compute() -> None:
    """30 forks at random moments; every call in a child returns or raises. Takes a second or two."""
    run_python(
        """
        import os, signal, threading, warnings
        import numpy as np, mpscnn
        warnings.simplefilter("ignore")
        graph = mpscnn.Graph()
        graph.output(graph.add("NeuronReLU", graph.input("x", channels=4)), "y")
        net, kernel, x = mpscnn.Network(graph), mpscnn.NeuronReLU(), np.ones((1, 4, 5, 4), np.float32)
        net(x)
        ends = threading.Event()
        def loop():
            while not ends.is_set():
                net(x)
                kernel(x)
        threads = [threading.Thread(target=loop) for _ in range(3)]
        for thread in threads:
            thread.start()
        statuses = []
        for _ in range(30):
            child = os.fork()
            if child == 0:
                signal.alarm(20)  # instead of waiting for ever
                refused = 0
                for call in (net, kernel, mpscnn.Image.from_array):
                    try:
                        call(x)
                    except RuntimeError as error:
                        refused += "was in use when this process was forked" in str(error)
                os._exit(refused)
            statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        ends.set()
        for thread in threads:
            thread.join()
        assert statuses == [3] * 30, statuses
        """,
        timeout=120,
    )


def test_a_sub_interpreter_is_refused() -> None:
    output = run_python(
        """
        import signal
        import _xxsubinterpreters as interpreters
        signal.alarm(20)  # instead of waiting for ever
        code = '''
        try:
            import mpscnn
        except ImportError as error:
            print(error, flush=True)
        '''
        import textwrap
        for _ in range(2):
            interpreters.run_string(interpreters.create(), textwrap.dedent(code))
        import mpscnn
        interpreters.run_string(interpreters.create(), textwrap.dedent(code))
        """,
        timeout=60,
    )
    assert output.count("mpscnn cannot be imported in a sub-interpreter") == 3, output


@pytest.mark.parametrize("kept", ["array", "buffer", "tensor"])
def test_a_thread_may_be_ended_while_it_lets_weights_go(kept: str) -> None:
    """Freeing a kernel's weights releases the GIL, like unmapping a file. If the interpreter ends meanwhile, Python
    ends the thread inside of destructors."""
    run_python(
        f"""
        import sys, threading, time
        import numpy as np, mpscnn

        class Weights(np.ndarray):
            def __del__(self, sleep=time.sleep):
                freed.set()
                sleep(0.3)

        class Tensor:
            def __init__(self, array):
                self.array = array
            def __dlpack__(self, **options):
                return self.array.__dlpack__(**options)

        class Late:
            def __del__(self, sleep=time.sleep):
                sleep(0.6)

        def work():
            weight = np.ones((8, 4, 3, 3), np.float32).view(Weights)
            weight = {{"array": lambda x: x, "buffer": memoryview, "tensor": Tensor}}[{kept!r}](weight)
            kernel = mpscnn.Convolution(weight)
            del weight
            del kernel

        freed = threading.Event()
        threading.Thread(target=work, daemon=True).start()
        assert freed.wait(20)
        sys.late = Late()  # goes when the interpreter is ending
        """,
        timeout=60,
    )
