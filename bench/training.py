# SPDX-License-Identifier: Apache-2.0
"""Training steps of networks against PyTorch (CPU, channels_last, the same threads): ``python -m bench training``.

Each network is trained in float32, and with allow_reduced_precision against torch.autocast (bfloat16) if the processor
multiplies bfloat16. ``--compile`` adds torch.compile.

A step is forward, softmax cross entropy, backward and stochastic gradient descent with momentum (PyTorch's fused one).
Several steps are timed together, until the last has completed: ours has two in flight, as in Trainer.fit(). Before
that, three steps on three batches are compared: losses, then all parameters and running statistics. See
mpscnn.benchmarking for the timing.

Memory is the max growth of the resident set in the first three steps, in a separate process. That process has already
made batches and module, and has trained a small network with both programs, so that libraries are loaded. Ours includes
a copy of the parameters; PyTorch trains those of the module. ``device`` is mpscnn.memory.peak().
"""

from __future__ import annotations

import copy
import functools
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import mpscnn
from mpscnn import benchmarking

from . import networks

RATE, MOMENTUM = 1e-3, 0.9
COMPARED = 3  # steps
TOLERANCE = 1e-4  # of losses
REDUCED_TOLERANCE = 0.05  # of losses of which both programs round products to bfloat16
# Relative to the norm of each array of parameters. A ReLU whose source is almost 0 may be positive in one program only.
# In the first step of ResNet-18 this changes conv1.weight by up to 2e-5, also between PyTorch's float32 and float64. In
# that of ResNet-50, which changes conv1.weight by 2.3e-2, ours and PyTorch's differ from float64 by 4.0e-4 and 6.8e-4.
PARAMETERS_TOLERANCE = 1e-3
Batches = list[tuple[np.ndarray, np.ndarray]]
Step = Callable[[np.ndarray, np.ndarray], Callable[[], float]]  # (images, labels) -> function that waits for the loss


class Case(NamedTuple):
    name: str
    shape: tuple[int, int, int]
    batch: int
    classes: int
    steps: int  # timed together
    make: Callable[[], Any]
    # Steps whose results are compared. The gradients of deep networks with random weights are large, so differences by
    # rounding grow: PyTorch's loss of ResNet-50 differs by 2.5e-3 from that in float64 after two steps.
    compared: int = COMPARED


def _mobilenet_v2() -> Any:
    """Return MobileNetV2 without dropout, because the programs have different masks."""
    import torch

    module = networks._module("mobilenet_v2")
    module.classifier[0] = torch.nn.Identity()
    return module


def _digits() -> Any:
    """Return the network of examples/train.py without dropout, because the programs have different masks."""
    import torch

    nn = torch.nn

    def convolution(inputs: int, outputs: int) -> list[Any]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            *convolution(1, 16), *convolution(16, 32), nn.MaxPool2d(2), *convolution(32, 64), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(256, 10),
        )  # fmt: skip


CASES = [
    Case("resnet18", (3, 64, 64), 32, 1000, 4, functools.partial(networks._module, "resnet18")),
    Case("resnet50", (3, 128, 128), 16, 1000, 1, functools.partial(networks._module, "resnet50"), 1),
    Case("mobilenet_v2", (3, 128, 128), 16, 1000, 2, _mobilenet_v2, 1),
    Case("digits", (1, 8, 8), 64, 10, 32, _digits),
]


def _batches(case: Case, batch: int) -> Batches:
    rng = np.random.default_rng(0)
    return [
        (rng.standard_normal((batch, *case.shape), dtype=np.float32), rng.integers(case.classes, size=batch))
        for _ in range(COMPARED)
    ]


def _ours(
    model: Any, case: Case, batch: int, *, reduced: bool = False
) -> tuple[Step, Callable[[], dict[str, np.ndarray]]]:
    optimizer = mpscnn.OptimizerStochasticGradientDescent(RATE, momentum_scale=MOMENTUM)
    model = model if isinstance(model, mpscnn.Graph) else copy.deepcopy(model).requires_grad_()
    trainer = mpscnn.Trainer(
        model, input_shapes=(batch, *case.shape), optimizer=optimizer, allow_reduced_precision=reduced
    )

    def step(x: np.ndarray, labels: np.ndarray) -> Callable[[], float]:
        encoded = trainer.step(x, labels)
        return lambda: encoded.loss

    return step, trainer.state_dict


def _theirs(
    module: Any, *, shared: bool = False, reduced: bool = False, compiled: bool = False
) -> tuple[Step, Callable[[], dict[str, np.ndarray]]]:
    """`shared`: train the module itself, not a copy. `reduced`: torch.autocast with bfloat16."""
    import torch

    model = (module if shared else copy.deepcopy(module)).to(memory_format=torch.channels_last).train().requires_grad_()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM, fused=True)
    run = torch.compile(model) if compiled else model

    def step(x: np.ndarray, labels: np.ndarray) -> Callable[[], float]:
        batch = torch.from_numpy(x).contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=reduced):
            loss = torch.nn.functional.cross_entropy(run(batch), torch.from_numpy(labels))
        loss.backward()
        optimizer.step()
        return loss.item

    return step, lambda: {name: value.numpy() for name, value in model.state_dict().items()}


def _compare(
    what: str, ours: tuple[Any, Any], theirs: tuple[Any, Any], batches: Batches, *, reduced: bool = False
) -> dict[str, float]:
    """Return the differences after the first steps; raise ResultsDifferError if they are too large.

    With `reduced` precision only losses are compared.
    """

    def check(name: str, difference: float, tolerance: float) -> float:
        if not difference <= tolerance:
            raise benchmarking.ResultsDifferError(
                f"{what}: {name} differs from PyTorch's by {difference:.1e}, which is more than {tolerance:.0e}."
            )
        return difference

    losses = []
    for number, (x, labels) in enumerate(batches):
        found, right = ours[0](x, labels)(), theirs[0](x, labels)()
        tolerance = REDUCED_TOLERANCE if reduced else TOLERANCE
        losses.append(check(f"the loss of step {number}", abs(found - right) / abs(right), tolerance))
    if reduced:
        return {"losses": max(losses)}
    values, wanted = ours[1](), theirs[1]()
    assert values.keys() == wanted.keys(), values.keys() ^ wanted.keys()
    parameters = [
        check(
            f'"{name}"',
            float(np.linalg.norm(values[name] - right) / max(1e-6, np.linalg.norm(right))),
            PARAMETERS_TOLERANCE,
        )
        for name, right in wanted.items()
    ]
    return {"losses": max(losses), "parameters": max(parameters)}


def _some(step: Step, batches: Batches, count: int) -> float:
    """Run `count` steps and return the loss of the last."""
    for number in range(count):
        wait = step(*batches[number % len(batches)])
    return wait()


# ---- memory


def _resident_set(which: str) -> int:
    """Return this process's resident set in bytes: "VmRSS", current, or "VmHWM", max since _forget_peaks()."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith(f"{which}:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # on macOS the max so far, in bytes


def _forget_peaks() -> None:
    gc.collect()
    mpscnn.memory.clear()
    mpscnn.memory.reset()
    peaks = Path("/proc/self/clear_refs")
    if peaks.exists():
        peaks.write_text("5")  # resets VmHWM to VmRSS [proc(5)]


def _memory(case: Case, batch: int, is_ours: bool, reduced: bool) -> dict[str, int]:
    """Return the memory of this process, which must be fresh."""
    import torch

    small = Case("small", (4, 8, 8), 2, 4, 1, lambda: torch.nn.Sequential(torch.nn.Conv2d(4, 4, 8), torch.nn.Flatten()))
    for x, labels in _batches(small, 2):
        for step, _ in (_ours(small.make(), small, 2), _theirs(small.make())):
            step(x, labels)()
    batches, module = _batches(case, batch), case.make()
    model = mpscnn.importing.read(module, input_shapes=(batch, *case.shape)) if is_ours else module
    _forget_peaks()
    before, device_before = _resident_set("VmRSS"), mpscnn.memory.current()
    if is_ours:
        step, _ = _ours(model, case, batch, reduced=reduced)
    else:
        step, _ = _theirs(module, shared=True, reduced=reduced)
    for x, labels in batches:
        step(x, labels)()
    found = {"resident": _resident_set("VmHWM") - before}
    if is_ours:
        found["device"] = mpscnn.memory.peak() - device_before
    return found


def _memory_of_a_process(case: Case, batch: int, who: str, reduced: bool = False) -> dict[str, int]:
    root = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-m", "bench.training", case.name, str(batch), who, str(int(reduced))]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, env={**os.environ})
    if done.returncode:
        raise RuntimeError(f"{case.name}, {who}: {done.stderr.strip()}")
    answer: dict[str, int] = json.loads(done.stdout)
    return answer


# ---- all cases


def run(
    seconds: float = 1.0, case: str = "", batch: int | None = None, *, compiled: bool = False
) -> list[dict[str, Any]]:
    """Return two dicts for each network whose name contains `case`: float32, and with reduced precision.

    `batch` replaces its batch size; `compiled` adds torch.compile.
    """
    return [
        _row(one, batch or one.batch, seconds, reduced, compiled)
        for one in CASES
        if case in one.name
        for reduced in (False, True)
    ]


def _row(case: Case, batch: int, seconds: float, reduced: bool, compiled: bool) -> dict[str, Any]:
    import torch

    module, batches = case.make(), _batches(case, batch)
    ours, theirs = _ours(module, case, batch, reduced=reduced), _theirs(module, reduced=reduced)
    difference = _compare(f"{case.name}, batch {batch}", ours, theirs, batches[: case.compared], reduced=reduced)
    players = {"ours": ours, "torch": theirs}
    if compiled:
        players["torch.compile"] = _theirs(module, reduced=reduced, compiled=True)
    samples = benchmarking.rounds(
        {name: functools.partial(_some, step, batches, case.steps) for name, (step, _) in players.items()}, seconds
    )
    samples = {name: [value / case.steps for value in values] for name, values in samples.items()}
    return {
        "case": case.name,
        "batch": batch,
        "reduced_precision": reduced,
        "threads": torch.get_num_threads(),
        "seconds": {name: statistics.median(values) for name, values in samples.items()},
        "least": {name: min(values) for name, values in samples.items()},
        "rounds": len(samples["ours"]),
        "ratio": {
            name: benchmarking.ratio(values, samples["ours"]) for name, values in samples.items() if name != "ours"
        },
        "difference": difference,
        "memory": {name: _memory_of_a_process(case, batch, name, reduced) for name in ("ours", "torch")},
    }


if __name__ == "__main__":
    name, images, who, is_reduced = sys.argv[1:]
    (chosen,) = (one for one in CASES if one.name == name)
    print(json.dumps(_memory(chosen, int(images), who == "ours", is_reduced == "1")))
