# SPDX-License-Identifier: Apache-2.0
"""Programs that compute a network, each alone in a process of its own: rounds go through the processes in random order.

A process reads the network from files that the first one wrote, answers with its result, and then with the times of
calls. It waits before each answer until its own threads sleep, so that they take no processor from the next process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import mpscnn
from mpscnn import benchmarking
from mpscnn.benchmarking import Contestant, processors
from mpscnn.errors import MissingPackageError

from .timing import ServedProcess

Array = np.ndarray[Any, Any]

# A busy loop that ends with its parent process, even if that is killed.
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(10**6):\n        pass"


MAX_CALLS_AFTER = 20  # of a contestant that runs another program before each call


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep `count` processors busy."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=True) for _ in range(count)]
    try:
        if loops:
            time.sleep(0.5)
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


# ---- the network's files


@dataclasses.dataclass(frozen=True)
class Files:
    """The files of a network, written by `write`.

    Attributes
    ----------
    folder, name : str
    shape : tuple of int
        Channels, height, width.
    """

    folder: str
    name: str
    shape: tuple[int, int, int]

    def path(self, suffix: str) -> Path:
        return Path(self.folder, self.name + suffix)

    def image(self, batch: int) -> Array:
        """Return seeded images; channels innermost in memory: channels_last in PyTorch, no copy here."""
        channels, height, width = self.shape
        random = np.random.default_rng(0)
        return random.standard_normal((batch, height, width, channels), dtype=np.float32).transpose(0, 3, 1, 2)

    def module(self) -> Any:
        import torch

        return torch.load(self.path(".pth"), weights_only=False)  # written by this program


def onnx(module: Any, shape: tuple[int, int, int]) -> bytes:
    """Return the module as an ONNX file, for any batch."""
    import torch

    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the newer exporter needs another package
        torch.onnx.export(
            module,
            (torch.zeros(1, *shape),),
            file,
            dynamo=False,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}},
        )
    return file.getvalue()


def write(files: Files, module: Any) -> None:
    """Write the module for each program, so that only PyTorch's processes import PyTorch."""
    import torch

    mpscnn.load(module, input_shapes=(1, *files.shape)).save(files.path(".mpscnn"))
    files.path(".onnx").write_bytes(onnx(module, files.shape))
    torch.save(module, files.path(".pth"))


# ---- contestants, each made in its process


@dataclasses.dataclass(frozen=True)
class SideBySide(Contestant):
    """A contestant whose `run` computes several batches at once."""

    batches: int


def _ours(files: Files, batch: int, *, reduced: bool = False) -> Contestant:
    network = mpscnn.load(files.path(".mpscnn"), allow_reduced_precision=reduced)
    return benchmarking.ours(network, {next(iter(network.inputs)): files.image(batch)})


def _ours_side_by_side(files: Files, batch: int, *, reduced: bool = False) -> Contestant:
    """As many batches as processors, each computed by one thread."""
    network = mpscnn.load(files.path(".mpscnn"), allow_reduced_precision=reduced, num_threads=1)
    arrays = {next(iter(network.inputs)): files.image(batch)}
    calls = [benchmarking.ours(network, arrays) for _ in range(processors())]
    pool = ThreadPoolExecutor(len(calls))

    def run() -> list[Array]:
        results = list(pool.map(lambda call: call.run(), calls))
        return results[0]

    return SideBySide("mpscnn", calls[0].version, calls[0].precision, run, len(calls))


def _openvino_side_by_side(files: Files, batch: int, *, reduced: bool = False) -> Contestant:
    """As many batches at once as its hint for throughput suggests."""
    import openvino

    core = openvino.Core()
    model = core.read_model(str(files.path(".onnx")))
    x = np.ascontiguousarray(files.image(batch))
    model.reshape({model.inputs[0]: list(x.shape)})
    hints = {"INFERENCE_PRECISION_HINT": "bf16" if reduced else "f32", "PERFORMANCE_HINT": "THROUGHPUT"}
    compiled = core.compile_model(model, "CPU", hints)
    requests = [
        compiled.create_infer_request() for _ in range(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
    ]

    def run() -> list[Array]:
        for request in requests:
            request.start_async([x], share_inputs=True)
        for request in requests:
            request.wait()
        return [requests[0].get_output_tensor(0).data]

    precision = "bfloat16" if reduced else "float32"
    return SideBySide("openvino", str(openvino.__version__).split("-")[0], precision, run, len(requests))


def _package(title: str, name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise MissingPackageError(title, name.partition(".")[0].replace("_", "-")) from None


def _ncnn(files: Files, batch: int, *, reduced: bool = False) -> Contestant:
    """ncnn, which computes one image at a time, with a file that pnnx converted."""
    ncnn, pnnx = _package("ncnn", "ncnn"), _package("ncnn's converter", "pnnx")
    param, weights = files.path(".ncnn.param"), files.path(".ncnn.bin")
    if not param.exists():
        import torch

        traced = files.path(".pt")
        torch.jit.trace(files.module().eval(), torch.zeros(1, *files.shape)).save(str(traced))
        shape = f"inputshape=[1,{','.join(map(str, files.shape))}]"
        command = [pnnx.EXEC_PATH, str(traced), shape, "fp16=0", f"ncnnparam={param}", f"ncnnbin={weights}"]
        subprocess.run(command, cwd=files.folder, capture_output=True, check=True)
    net = ncnn.Net()
    net.opt.num_threads = processors()
    net.opt.use_bf16_storage = reduced
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    if net.load_param(str(param)) or net.load_model(str(weights)):
        raise RuntimeError("ncnn does not load the file that pnnx wrote")
    images = np.ascontiguousarray(files.image(batch))

    def run() -> list[Array]:
        results: dict[str, list[Array]] = {name: [] for name in net.output_names()}
        for image in images:
            extractor = net.create_extractor()
            extractor.input(net.input_names()[0], ncnn.Mat(image))
            for name, found in results.items():
                code, result = extractor.extract(name)
                if code:
                    raise RuntimeError(f"ncnn's error {code}")
                found.append(np.array(result))
        return [np.stack(found) for found in results.values()]

    return Contestant("ncnn", benchmarking.metadata_version("ncnn"), "bfloat16" if reduced else "float32", run)


def _litert(files: Files, batch: int) -> Contestant:
    """LiteRT, formerly TensorFlow Lite, with XNNPACK, and a file that litert-torch converted."""
    interpreter_module = _package("LiteRT", "ai_edge_litert.interpreter")
    path = files.path(f".{batch}.tflite")
    if not path.exists():
        import torch

        converter = _package("LiteRT's converter", "litert_torch")
        converter.convert(files.module().eval(), (torch.zeros(batch, *files.shape),)).export(str(path))
    interpreter = interpreter_module.Interpreter(str(path), num_threads=processors())
    interpreter.allocate_tensors()
    source = interpreter.get_input_details()[0]["index"]
    results = [one["index"] for one in interpreter.get_output_details()]
    x = np.ascontiguousarray(files.image(batch))

    def run() -> list[Array]:
        interpreter.set_tensor(source, x)
        interpreter.invoke()
        return [interpreter.get_tensor(result) for result in results]

    return Contestant("litert", benchmarking.metadata_version("ai-edge-litert"), "float32", run)


def _torch(files: Files, batch: int, *, compiled: bool = False) -> Contestant:
    return benchmarking.torch_contestant(files.module(), {"x": files.image(batch)}, compiled=compiled)


def _onnxruntime(files: Files, batch: int, *, spins: bool = True) -> Contestant:
    return benchmarking.onnxruntime_contestant(str(files.path(".onnx")), {"x": files.image(batch)}, spins=spins)


def _openvino(files: Files, batch: int, *, reduced: bool = False) -> Contestant:
    model = str(files.path(".onnx"))
    return benchmarking.openvino_contestant(model, {"x": files.image(batch)}, reduced_precision=reduced)


def _ours_with_torch(files: Files, batch: int) -> Contestant:
    import torch  # noqa: F401

    return _ours(files, batch)


MAKERS: dict[str, Callable[[Files, int], Contestant]] = {
    "mpscnn": _ours,
    "mpscnn, reduced": lambda files, batch: _ours(files, batch, reduced=True),
    "torch": _torch,
    "torch.compile": lambda files, batch: _torch(files, batch, compiled=True),
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "openvino, reduced": lambda files, batch: _openvino(files, batch, reduced=True),
    "ncnn": _ncnn,
    "ncnn, reduced": lambda files, batch: _ncnn(files, batch, reduced=True),
    "litert": _litert,
    # Several batches at once.
    "mpscnn, throughput": _ours_side_by_side,
    "mpscnn, reduced, throughput": lambda files, batch: _ours_side_by_side(files, batch, reduced=True),
    "openvino, throughput": _openvino_side_by_side,
    "openvino, reduced, throughput": lambda files, batch: _openvino_side_by_side(files, batch, reduced=True),
    # Beside threads that spin.
    "mpscnn, torch imported": _ours_with_torch,
    "mpscnn, after torch": _ours_with_torch,
    "mpscnn, after numpy": _ours,
    "onnxruntime, no spinning": lambda files, batch: _onnxruntime(files, batch, spins=False),
    "onnxruntime, after torch": _onnxruntime,
    "onnxruntime, after numpy": _onnxruntime,
}


def _before(name: str) -> Callable[[], object] | None:
    """Return the function to run before each call, not timed."""
    if "after numpy" in name:
        a = np.ones((512, 512), np.float32)
        return lambda: a @ a
    if "after torch" not in name:
        return None
    import torch

    convolution, x = torch.nn.Conv2d(32, 32, 3, padding=1).eval().requires_grad_(False), torch.zeros(1, 32, 56, 56)
    return lambda: convolution(x)


def _time(run: Callable[[], object], before: Callable[[], object] | None, calls: int) -> dict[str, Any]:
    """Return the seconds of each call, and the mean processor time of the process during one."""
    times, busy = [], 0.0
    for call in range(calls + 1):
        if before is not None:
            before()
        cpu, begin = time.process_time(), time.perf_counter()
        run()
        if call:  # the first one wakes threads and warms caches
            times.append(time.perf_counter() - begin)
            busy += time.process_time() - cpu
    benchmarking.pause()
    return {"times": times, "processor": busy / calls}


def serve() -> None:
    """Make the contestant that the first line of stdin names, and time calls for each further one."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # converters print to stdout
    name, files, batch, result = json.loads(sys.stdin.readline())
    files = Files(**files)
    sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))  # classes of pickled modules
    try:
        if name not in MAKERS:
            raise ValueError(f"{name} is none of {', '.join(MAKERS)}")
        contestant, before = MAKERS[name](files, batch), _before(name)
        np.savez(result, *[np.asarray(array, np.float32) for array in contestant.run()])
        answer = {"version": contestant.version, "precision": contestant.precision}
        answer["batches"] = contestant.batches if isinstance(contestant, SideBySide) else 1
    except Exception as error:  # each program raises its own classes
        answer = {"reason": (str(error).strip() or type(error).__name__).splitlines()[0]}
    print(json.dumps(answer), file=answers, flush=True)
    for line in sys.stdin:
        (calls,) = json.loads(line)
        calls = min(calls, MAX_CALLS_AFTER) if before else calls
        print(json.dumps(_time(contestant.run, before, calls)), file=answers, flush=True)


# ---- all of them


class ContestantProcess:
    """A contestant alone in its process.

    Raises
    ------
    RuntimeError
        It cannot be made; the message says why.
    """

    def __init__(self, name: str, files: Files, batch: int) -> None:
        self._process = ServedProcess(__name__)
        self._result = files.path(f".{batch}.{name}.npz")
        self.times: list[list[float]] = []
        self.processor: list[float] = []
        try:
            made = self._process.ask(name, dataclasses.asdict(files), batch, str(self._result))
            if "reason" in made:
                raise RuntimeError(made["reason"])
        except BaseException:
            self.close()
            raise
        self.contestant = SideBySide(name, run=self.results, **made)

    def results(self) -> list[Array]:
        with np.load(self._result) as found:
            return list(found.values())

    def seconds(self, calls: int) -> float:
        """Return the mean seconds of a batch."""
        answer = self._process.ask(calls)
        batches = self.contestant.batches
        self.times.append([value / batches for value in answer["times"]])
        self.processor.append(answer["processor"] / batches)
        return statistics.mean(self.times[-1])

    def close(self) -> None:
        self._process.close()


def compare(
    module: Any,
    case: str,
    shape: tuple[int, int, int],
    batch: int,
    names: list[str],
    seconds: float,
    *,
    loops: int = 0,
    tolerance: float,
    reduced_tolerance: float,
    quiet: bool = True,
) -> dict[str, Any]:
    """Compare the contestants beside `loops` busy loops; return a `benchmarking.Comparison` as a dict.

    Each row has two more numbers: `p90`, the time that 90 % of the calls do not exceed, and `processor`, the processor
    time of a batch. That is the whole process's: it includes threads that spin while others wait for a processor.
    """

    def say(text: str) -> None:
        if not quiet:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    processes: dict[str, ContestantProcess] = {}
    absent: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        files = Files(folder, case, shape)
        write(files, module)
        for name in names:
            say(f"{case}, batch {batch}: starts {name}")
            try:
                processes[name] = ContestantProcess(name, files, batch)
                stack.callback(processes[name].close)
            except RuntimeError as error:
                absent[name] = str(error)
        by_run = {process.results: process for process in processes.values()}
        stack.enter_context(busy_loops(loops))
        compared = benchmarking.compare(
            case,
            batch,
            [process.contestant for process in processes.values()],
            seconds,
            absent=absent,
            tolerance=tolerance,
            reduced_tolerance=reduced_tolerance,
            timer=lambda run, calls: by_run[run].seconds(calls),
            progress=lambda done: say(f"{case}, batch {batch}, {loops} busy loops: {done:.0%}"),
        ).to_dict()
    say("")
    for row in compared["measured"]:
        process = processes[row["name"]]
        row["p90"] = float(np.quantile([value for times in process.times for value in times], 0.9))
        row["processor"] = statistics.median(process.processor)
    return {**compared, "busy_loops": loops}
