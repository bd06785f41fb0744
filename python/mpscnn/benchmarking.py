# SPDX-License-Identifier: Apache-2.0
"""Interleaved timing of several contestants, and of a network against PyTorch, ONNX Runtime and OpenVINO.

A round runs each contestant once, in random order: a pause, one warm-up call, which wakes the threads and warms the
caches, then calls for about 2 ms (networks: 20 ms), at least one. A contestant's time is the median over the rounds.
Networks are compared by the median of their ratio of times in the same round: if other programs use half of a
processor for seconds, both contestants slow down alike.

The pause lasts until the threads of the previous contestant are asleep. Idle threads spin, those of OpenMP libraries
for about 8 ms, those of ONNX Runtime for 40 ms, and occupy processors that the next contestant needs.

Results are compared before anything is timed.
"""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from .errors import MissingPackageError
from .network import Network
from .weights import empty

if TYPE_CHECKING:
    from .device import Device

ROUND_SECONDS = 2e-3
NETWORK_ROUND_SECONDS = 20e-3
PAUSE_SECONDS = 10e-3
MAX_PAUSE_SECONDS = 0.2
MIN_ROUNDS = 9

PEERS = ("torch", "onnxruntime", "openvino")

Timer = Callable[[Callable[[], object], int], float]

# Max difference over the max magnitude of the first contestant's result, float32 and reduced precision.
TOLERANCE = 1e-3
REDUCED_TOLERANCE = 1e-1


def interleaved(
    contestants: Mapping[str, Callable[[], object]],
    seconds: float,
    *,
    best: bool = False,
    progress: Callable[[float], object] | None = None,
) -> dict[str, float]:
    """Return the median seconds per call of each contestant.

    Parameters
    ----------
    contestants : dict of callables by name
    seconds : float
        Time for all contestants together, without warm-up. At least nine rounds are run, even if they take longer.
    best : bool, default False
        Return the min instead of the median, which is more telling on a shared machine.
    progress : callable, optional
        Called with the fraction done, 0 to 1, after each round.
    """
    samples = rounds(contestants, seconds, progress=progress)
    return {name: (min if best else statistics.median)(values) for name, values in samples.items()}


def rounds(
    contestants: Mapping[str, Callable[[], object]],
    seconds: float,
    *,
    round_seconds: float = ROUND_SECONDS,
    progress: Callable[[float], object] | None = None,
    timer: Timer | None = None,
) -> dict[str, list[float]]:
    """Return the seconds per call of each contestant, one number per round; see `interleaved`.

    `timer(run, calls)` returns the mean seconds of `calls` calls of `run`, after one call that is not timed.
    """
    timer = timer or _seconds_after_one
    calls = {
        name: max(1, int(round_seconds / min(timer(run, 1) for _ in range(2)))) for name, run in contestants.items()
    }
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    start, done = time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < seconds or done < MIN_ROUNDS:
        if progress:
            progress(min(passed / seconds if seconds > 0 else 1.0, done / MIN_ROUNDS))
        for name in random.sample(list(contestants), len(contestants)):
            pause()
            samples[name].append(timer(contestants[name], calls[name]))
        done += 1
    if progress:
        progress(1.0)
    return samples


def ratio(these: Iterable[float], those: Iterable[float]) -> float:
    """Return the median over the rounds of `these` divided by `those`."""
    return statistics.median(a / b for a, b in zip(these, those, strict=True))


def pause() -> None:
    """Wait until the other threads of this process have been asleep for a while, at most `MAX_PAUSE_SECONDS`."""
    end = time.perf_counter() + MAX_PAUSE_SECONDS
    still = 0.0
    while still < PAUSE_SECONDS and time.perf_counter() < end:
        time.sleep(PAUSE_SECONDS / 4)
        still = 0.0 if _others_run() else still + PAUSE_SECONDS / 4


def _others_run() -> bool:
    """Return whether other threads of this process run or wait for a processor.

    On Linux only the thread's state is exact: processor time may be counted in ticks of 4 ms.
    """
    me = str(threading.get_native_id())
    try:
        threads = os.listdir("/proc/self/task")
    except FileNotFoundError:  # not Linux
        before = time.process_time()
        time.sleep(PAUSE_SECONDS)
        return time.process_time() - before > PAUSE_SECONDS / 5
    for thread in threads:
        if thread == me:
            continue
        try:
            state = Path("/proc/self/task", thread, "stat").read_bytes().rpartition(b")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        if state == b"R":
            return True
    return False


def _seconds_after_one(run: Callable[[], object], calls: int) -> float:
    run()
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


# ---- contestants

Run = Callable[[], "list[NDArray[Any]]"]


@dataclass(frozen=True)
class Contestant:
    """A program that computes the network.

    Attributes
    ----------
    name : str
    version : str
    precision : str
        Precision of products: "float32", "bfloat16", or "bfloat16 permitted" if the contestant does not report which.
    run : callable
        Runs the batch and returns the results as arrays, in the order of the network's outputs.
    """

    name: str
    version: str
    precision: str
    run: Run


def ours(network: Network, arrays: Mapping[str, NDArray[Any]], *, name: str = "mpscnn") -> Contestant:
    """Return the network as a contestant; results are written into preallocated arrays."""
    first = network(**arrays)
    made = list(first) if isinstance(first, tuple) else [first]
    outs = [empty(result.shape, result.dtype) for result in made]

    def run() -> list[NDArray[Any]]:
        network(**arrays, out=outs)
        return outs

    reduced = bool(network._options["allow_reduced_precision"])
    return Contestant(name, metadata_version("mpscnn"), "bfloat16 permitted" if reduced else "float32", run)


def torch_contestant(module: Any, arrays: Mapping[str, NDArray[Any]], *, compiled: bool = False) -> Contestant:
    """Return a torch.nn.Module or exported program as a contestant: inference mode, channels_last.

    `compiled`: by torch.compile with the options max_autotune and freezing.
    """
    try:
        import torch
    except ModuleNotFoundError:
        raise MissingPackageError("PyTorch", "torch") from None
    model: Any = module
    if isinstance(model, torch.export.ExportedProgram):
        model = model.module()
    elif isinstance(model, torch.nn.Module):
        model = model.eval()
    else:
        raise TypeError(f"{type(module).__name__} is neither a torch.nn.Module nor an exported program.")
    model = cast(Any, model).to(memory_format=torch.channels_last)
    tensors = [_channels_last(torch, array) for array in arrays.values()]
    if compiled:
        model = torch.compile(model, options={"max_autotune": True, "freezing": True})

    def run() -> list[NDArray[Any]]:
        with torch.no_grad() if compiled else torch.inference_mode():  # freezing refuses inference mode's tensors
            results = model(*tensors)
        if isinstance(results, Mapping):
            results = tuple(results.values())
        return [result.numpy() for result in (results if isinstance(results, (tuple, list)) else (results,))]

    return Contestant("torch.compile" if compiled else "torch", str(torch.__version__), "float32", run)


def _channels_last(torch: Any, array: NDArray[Any]) -> Any:
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def onnxruntime_contestant(model: str | bytes, arrays: Mapping[str, NDArray[Any]], *, spins: bool = True) -> Contestant:
    """Return a contestant that runs an ONNX file, or its bytes, in ONNX Runtime; `spins`: idle threads spin."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise MissingPackageError("ONNX Runtime", "onnxruntime") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if not spins:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if processors() != os.cpu_count():
        options.intra_op_num_threads = processors()  # by default it counts, and pins threads to, those of the machine
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feed = _feed([one.name for one in session.get_inputs()], arrays)

    def run() -> list[NDArray[Any]]:
        return list(session.run(None, feed))

    return Contestant("onnxruntime", str(onnxruntime.__version__), "float32", run)


def openvino_contestant(
    model: str | bytes, arrays: Mapping[str, NDArray[Any]], *, reduced_precision: bool = False
) -> Contestant:
    """Return a contestant that runs an ONNX file, or its bytes, in OpenVINO; `reduced_precision` allows bfloat16."""
    try:
        import openvino
    except ModuleNotFoundError:
        raise MissingPackageError("OpenVINO", "openvino") from None
    core = openvino.Core()
    read = core.read_model(model)
    shapes = {port.any_name: port for port in read.inputs}
    feed = _feed(list(shapes), arrays)
    read.reshape({shapes[name]: list(array.shape) for name, array in feed.items()})
    hint = "bf16" if reduced_precision else "f32"
    compiled = core.compile_model(
        read, "CPU", {"INFERENCE_PRECISION_HINT": hint, "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1"}
    )
    request = compiled.create_infer_request()
    inputs = [feed[port.any_name] for port in compiled.inputs]

    def run() -> list[NDArray[Any]]:
        results = request.infer(inputs, share_inputs=True, share_outputs=True)
        return [results[port] for port in compiled.outputs]

    used = str(compiled.get_property("INFERENCE_PRECISION_HINT")).strip("<>").lower()
    precision = "bfloat16" if "bf16" in used or "bfloat16" in used else "float32"
    name = "openvino, reduced" if reduced_precision else "openvino"
    return Contestant(name, str(openvino.__version__).split("-")[0], precision, run)


def _feed(names: list[str], arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return C-contiguous arrays by the other program's names, matched by name if all are ours, else in order."""
    if set(names) != set(arrays):
        if len(names) != len(arrays):
            raise ValueError(f"the model has {len(names)} inputs ({', '.join(names)}), not {len(arrays)}.")
        arrays = dict(zip(names, arrays.values(), strict=True))
    return {name: np.ascontiguousarray(arrays[name]) for name in names}


# ---- side by side


@dataclass(frozen=True)
class Measured:
    """The measurements of one contestant.

    Attributes
    ----------
    name, version, precision : str
    seconds : float
        Median time of a call, for the whole batch.
    least, lower_quartile, upper_quartile : float
        Min and quartiles over the rounds.
    images_per_second : float
    ratio : float
        Its seconds divided by those of the first contestant, median over the rounds; above 1 the first is faster.
    difference : float
        Max difference of its results from the first contestant's, divided by the max magnitude of the latter.
    """

    name: str
    version: str
    precision: str
    seconds: float
    least: float
    lower_quartile: float
    upper_quartile: float
    images_per_second: float
    ratio: float
    difference: float


@dataclass(frozen=True)
class Comparison:
    """Measurements of several contestants on one batch."""

    case: str
    batch: int
    measured: list[Measured]
    absent: dict[str, str] = field(default_factory=dict)
    """Contestants that are missing, and why."""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for `json.dumps`."""
        return asdict(self)


class ResultsDifferError(Exception):
    """Contestants compute different numbers, so their times are meaningless."""


def compare(
    case: str,
    batch: int,
    contestants: Iterable[Contestant],
    seconds: float,
    *,
    absent: Mapping[str, str] | None = None,
    progress: Callable[[float], object] | None = None,
    tolerance: float | None = None,
    reduced_tolerance: float = REDUCED_TOLERANCE,
    timer: Timer | None = None,
) -> Comparison:
    """Compare the results of the contestants, then time them; return a `Comparison`. `timer`: see `rounds`.

    Raises
    ------
    ResultsDifferError
        Results differ from the first contestant's by more than `tolerance` (1e-3) of their max magnitude, or
        `reduced_tolerance` (1e-1) if either computes in reduced precision.
    """
    players = list(contestants)
    first = players[0]
    results = {player.name: [np.array(array, np.float32) for array in player.run()] for player in players}
    differences = {}
    for player in players:
        difference = _difference(results[first.name], results[player.name])
        exact = player.precision == first.precision == "float32"
        allowed = (TOLERANCE if tolerance is None else tolerance) if exact else reduced_tolerance
        if not difference <= allowed:
            raise ResultsDifferError(
                f"{case}, batch {batch}: results of {player.name} differ from those of {first.name} by {difference:.1e}"
                f" of their largest magnitude, which is more than {allowed:.0e}."
            )
        differences[player.name] = difference
    samples = rounds(
        {player.name: player.run for player in players},
        seconds,
        round_seconds=NETWORK_ROUND_SECONDS,
        progress=progress,
        timer=timer,
    )
    medians = {name: statistics.median(values) for name, values in samples.items()}
    return Comparison(
        case,
        batch,
        [
            Measured(
                player.name,
                player.version,
                player.precision,
                medians[player.name],
                min(samples[player.name]),
                float(np.quantile(samples[player.name], 0.25)),
                float(np.quantile(samples[player.name], 0.75)),
                batch / medians[player.name],
                ratio(samples[player.name], samples[first.name]),
                differences[player.name],
            )
            for player in players
        ],
        dict(absent or {}),
    )


@dataclass(frozen=True)
class Rates:
    """Images per second of one contestant: while it runs alone, and while all run.

    Attributes
    ----------
    name : str
    alone, together : float
        Images per second.
    """

    name: str
    alone: float
    together: float


def compare_together(
    case: str,
    batch: int,
    contestants: Iterable[Contestant],
    seconds: float,
    *,
    progress: Callable[[float], object] | None = None,
) -> list[Rates]:
    """Compare the results of the contestants, time each alone, then all at the same time, a thread for each.

    `seconds` is the time of each half. For contestants that compute the same network on several devices.

    Raises
    ------
    ResultsDifferError
        As `compare`.
    """
    players = list(contestants)
    alone = compare(case, batch, players, seconds, progress=None if progress is None else lambda x: progress(x / 2))
    start_line = threading.Barrier(len(players))
    rates: dict[str, float] = {}
    failures: list[BaseException] = []

    def repeat(player: Contestant) -> None:
        try:
            start_line.wait()
            start, calls = time.perf_counter(), 0
            while calls < 2 or time.perf_counter() - start < seconds:
                player.run()
                calls += 1
            rates[player.name] = calls * batch / (time.perf_counter() - start)
        except BaseException as error:  # raised by the calling thread
            failures.append(error)

    threads = [threading.Thread(target=repeat, args=(player,)) for player in players]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    if progress:
        progress(1.0)
    return [Rates(one.name, one.images_per_second, rates[one.name]) for one in alone.measured]


def _difference(ours: list[NDArray[Any]], theirs: list[NDArray[Any]]) -> float:
    if len(ours) != len(theirs):
        return float("inf")
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if a.size != b.size:
            return float("inf")
        scale = float(np.abs(a).max(initial=0.0)) or 1.0
        difference = float(np.abs(a.reshape(-1) - b.reshape(-1)).max(initial=0.0)) / scale
        worst = difference if not difference <= worst else worst  # keeps NaN
    return worst


def peers(makers: Mapping[str, Callable[[], Contestant]]) -> tuple[list[Contestant], dict[str, str]]:
    """Return the contestants that can be made, and the reasons why the others cannot."""
    found, absent = [], {}
    for name, make in makers.items():
        try:
            found.append(make())
        except Exception as error:  # each program raises its own classes; the other contestants still run
            absent[name] = (str(error).strip() or type(error).__name__).splitlines()[0]
    return found, absent


def metadata_version(package: str) -> str:
    """Return the version of an installed package; empty if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        if package == "mpscnn":
            from ._core import __version__

            return __version__
        return ""


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine(device: Device | None = None) -> dict[str, Any]:
    """Return the properties of the machine that results depend on; `device` ran, by default Device()."""
    from .device import Device

    return {
        "device": (device or Device()).name,
        "cpus": processors(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "load_average": os.getloadavg()[0],
    }


# ---- pictures

_COLOURS = {
    "mpscnn": "#3b73b9",
    "mpscnn, reduced": "#8fb4e3",
    "torch": "#d9683c",
    "torch.compile": "#f0a98a",
    "onnxruntime": "#6c737c",
    "openvino": "#7350b8",
    "openvino, reduced": "#b9a3e3",
    "ncnn": "#c2a53a",
    "ncnn, reduced": "#e0cf8c",
    "litert": "#4c9a8a",
}


def plot(comparisons: Iterable[Comparison], path: str | os.PathLike[str], *, title: str = "") -> None:
    """Plot milliseconds per image as bars with quartiles, grouped by comparison; the path's suffix is the format.

    Raises
    ------
    MissingPackageError
        matplotlib is not installed.
    """
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise MissingPackageError("a plot of times", "matplotlib") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups = list(comparisons)
    names = list(dict.fromkeys(one.name for group in groups for one in group.measured))
    figure, axes = pyplot.subplots(figsize=(1.8 + 2.1 * len(groups), 4.2), layout="constrained")
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        for place, group in enumerate(groups):
            for one in group.measured:
                if one.name != name:
                    continue
                scale = 1e3 / group.batch
                x = place + (number - (len(names) - 1) / 2) * width
                bar = axes.bar(
                    x,
                    one.seconds * scale,
                    width * 0.92,
                    color=_COLOURS.get(name, "#2f8f5b"),
                    yerr=[
                        [(one.seconds - one.lower_quartile) * scale],
                        [(one.upper_quartile - one.seconds) * scale],
                    ],
                    error_kw={"elinewidth": 0.8, "ecolor": "#474d55"},
                    label=name if not axes.get_legend_handles_labels()[1].count(name) else None,
                )
                axes.bar_label(bar, [f"{one.seconds * scale:.3g}"], padding=2, fontsize=7)
    axes.set_xticks(range(len(groups)), [f"{group.case}\nbatch {group.batch}" for group in groups])
    axes.set_ylabel("milliseconds per image")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, ncols=min(3, len(names)), loc="upper center", bbox_to_anchor=(0.5, -0.14))
    if title:
        axes.set_title(title, fontsize=10)
    figure.savefig(os.fspath(path), dpi=150)
    pyplot.close(figure)
