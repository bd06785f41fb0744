# SPDX-License-Identifier: Apache-2.0
"""Choices between implementations by their times on this machine: Network.tune()."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _checks, _inputs
from ._html import table as html_table
from ._progress import shower
from .config import lib_dir
from .layers import InputShapes, aligned, image_shapes

if TYPE_CHECKING:
    from .network import Network

# Pass and Outcome of csrc/openmps/engine/cpu/choices.hpp.
_MIXED, _TIMED, _UNCHANGED, _FASTEST = range(4)
_KEEP_NOTHING, _KEEP_FASTEST, _KEEP_UNCHANGED = range(3)
_MAX_CYCLES = 16  # per round; a convolution of a chain has one of its implementations timed in every eighth
_GAIN = 0.99  # choices are kept if the network takes at most this part of the time
_MIN_COMPARED = 5  # calls of the network before and after


@dataclass(frozen=True)
class TimedCall:
    """A convolution, or a chain of convolutions, whose implementations were timed.

    Attributes
    ----------
    kind : "convolve" or "chain"
        The list of implementations, as docs/engine.md names it.
    description : str
        "8x56x56x64 -> 8x56x56x64, 3x3": images (N, H, W, C), window, and what else is not the usual; those of a chain
        are separated by semicolons.
    model : str
        The implementation that is used without timing.
    chosen : str
        The one that is used from now on: `model`, unless another takes at most 0.95 of its time.
    seconds : dict of float by implementation
        Medians.
    """

    kind: str
    description: str
    model: str
    chosen: str
    seconds: dict[str, float]

    @property
    def ratio(self) -> float:
        """Time of the chosen implementation, divided by that of the model's."""
        return self.seconds[self.chosen] / self.seconds[self.model]


class Tuning(list[TimedCall]):
    """The timed calls of a network in the order of their first run; `print` shows them as a table.

    Attributes
    ----------
    file : Path or None
        Folder of the choices on disk; None if it cannot be written to. Then only this process uses them.
    network_seconds : (float, float) or None
        Medians of calls of the network with the model's choices and with the fastest implementations; None if these are
        the same. The choices are kept only if the second is at most 0.99 of the first.
    """

    def __init__(
        self,
        calls: Sequence[TimedCall] = (),
        file: Path | None = None,
        network_seconds: tuple[float, float] | None = None,
    ) -> None:
        super().__init__(calls)
        self.file = file
        self.network_seconds = network_seconds

    @property
    def changed(self) -> list[TimedCall]:
        """The calls for which the choice is not the model's."""
        return [call for call in self if call.chosen != call.model]

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for `json.dumps`."""
        return {
            "file": None if self.file is None else str(self.file),
            "network_seconds": self.network_seconds,
            "calls": [asdict(call) for call in self],
        }

    def rows(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return the header and a row for each call, as text."""
        header = ("call", "model", "chosen", "others, ms", "ms", "chosen, ms", "ratio")
        rows: list[tuple[str, ...]] = [
            (
                call.description,
                call.model,
                "" if call.chosen == call.model else call.chosen,
                ", ".join(
                    f"{name} {seconds * 1e3:.3f}"
                    for name, seconds in call.seconds.items()
                    if name not in (call.model, call.chosen)
                ),
                f"{call.seconds[call.model] * 1e3:.3f}",
                f"{call.seconds[call.chosen] * 1e3:.3f}",
                f"{call.ratio:.2f}",
            )
            for call in self
        ]
        return header, rows

    def __str__(self) -> str:
        header, rows = self.rows()
        return aligned(header, rows, (), right=3)

    def _repr_html_(self) -> str:
        return html_table(*self.rows(), right=3)


def _library() -> Any:
    """Return the functions of csrc/openmps/engine/cpu/choices.cpp."""
    folder = lib_dir()
    if folder is None:
        raise NotImplementedError("tune: openmps, on Linux, chooses between implementations; MPS does so by itself.")
    library = ctypes.CDLL(str(folder / "libopenmps.so"))
    library.openmps_tune_start.restype = library.openmps_tune_stop.restype = ctypes.c_char_p
    return library


def choices() -> int:
    """Return how many choices by timing this process uses; 0 on macOS."""
    return 0 if lib_dir() is None else int(_library().openmps_tuned_choices())


def tune(network: Network, input_shapes: InputShapes, *, rounds: int, progress: Any) -> Tuning:
    """See `Network.tune`."""
    rounds = _checks.integer(rounds, "rounds", minimum=1, maximum=10_000)
    images = image_shapes(network, input_shapes)
    network._that_takes(images)._core.shapes(images)  # raises ValueError for shapes that it does not take
    rng = np.random.default_rng(0)
    arrays = []
    for spec, image in zip(network.inputs.values(), images, strict=True):
        extents = dict(zip("NHWC", image, strict=True))
        array = rng.standard_normal([extents[letter] for letter in spec.layout], dtype=np.float32)
        arrays.append(_inputs.rounded(array, spec))
    library = _library()
    update, close = shower(progress, rounds, "round")
    reason = library.openmps_tune_start()
    if reason is not None:
        close()
        raise RuntimeError(f"tune: {reason.decode()}.")
    text, before, after = b"", [], []
    try:
        network(*arrays)  # finds the calls and packs weights
        for _ in range(_MAX_CYCLES * rounds):
            done = library.openmps_tune_rounds()
            if done >= rounds:
                break
            for kind in (_MIXED, _TIMED):
                library.openmps_tune_begin(kind)
                network(*arrays)
            update(done)
        update(rounds)
        outcome = _KEEP_FASTEST
        if library.openmps_tune_begin(_FASTEST):
            for _ in range(max(rounds, _MIN_COMPARED)):
                before.append(_seconds(library, network, arrays, _UNCHANGED))
                after.append(_seconds(library, network, arrays, _FASTEST))
            if median(after) > _GAIN * median(before):
                outcome = _KEEP_UNCHANGED
        text = library.openmps_tune_stop(outcome)
    finally:
        library.openmps_tune_stop(_KEEP_NOTHING)  # after an error or an interrupt; else it has stopped
        close()
    (_, file), *lines = (line.split("\t") for line in text.decode().splitlines())
    found = []
    for kind, description, model, chosen, *times in lines:
        seconds = {name: float(value) for name, _, value in (one.partition("=") for one in times)}
        found.append(TimedCall(kind, description, model, chosen, seconds))
    times = (median(before), median(after)) if before else None
    return Tuning(found, Path(file) if file else None, times)


def _seconds(library: Any, network: Network, arrays: Sequence[Any], kind: int) -> float:
    """Return the time of a pass, the second of its kind."""
    library.openmps_tune_begin(kind)
    network(*arrays)
    start = time.perf_counter()
    network(*arrays)
    return time.perf_counter() - start
