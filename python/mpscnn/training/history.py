# SPDX-License-Identifier: Apache-2.0
"""Results of a training, epoch by epoch."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .. import _checks
from ..errors import MissingPackageError


@dataclass(frozen=True)
class Epoch:
    """One pass over the images.

    Attributes
    ----------
    loss : float
        Mean over the images, computed in each step before the update.
    accuracy : float or None
        Fraction of the same predictions with the correct class, 0 to 1; None if labels are not class numbers.
    validation_loss, validation_accuracy : float or None
        Means over the validation images, after the epoch; None without validation.
    learning_rate : float
        Rate of the last step.
    steps : int
    seconds : float
        Training time, without validation.
    """

    loss: float
    accuracy: float | None
    validation_loss: float | None
    validation_accuracy: float | None
    learning_rate: float
    steps: int
    seconds: float

    def __str__(self) -> str:
        text = f"loss {self.loss:.4g}"
        if self.accuracy is not None:
            text += f", accuracy {self.accuracy:.1%}"
        if self.validation_loss is not None:
            text += f"; validation {self.validation_loss:.4g}"
        if self.validation_accuracy is not None:
            text += f", {self.validation_accuracy:.1%}"
        return text


class History(list[Epoch]):
    """List of the epochs of a training, with methods to plot and to store it.

    Source
    ------
    python/mpscnn/training/history.py.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for `json.dumps`: {"epochs": [{"loss": ..., ...}]}."""
        return {"epochs": [asdict(epoch) for epoch in self]}

    @classmethod
    def from_dict(cls, given: Any) -> History:
        """Return the history from a result of to_dict().

        Raises
        ------
        ValueError
            The dict is not a result of to_dict().
        """
        names = set(Epoch.__dataclass_fields__)
        epochs = given.get("epochs") if isinstance(given, Mapping) else None
        if not isinstance(epochs, list) or not all(isinstance(one, Mapping) and set(one) == names for one in epochs):
            raise ValueError("history is not what History.to_dict() makes.")
        for one in epochs:
            for name, value in one.items():
                if value is None and name not in ("loss", "learning_rate", "steps", "seconds"):
                    continue
                kinds = int if name == "steps" else (int, float)
                if isinstance(value, bool) or not isinstance(value, kinds):
                    raise ValueError(f"history: {name} ({type(value).__name__}) is no number.")
                # A validation loss may be infinite or NaN; a training loss is finite.
                if not abs(value) <= sys.float_info.max and name != "validation_loss":
                    raise ValueError(f"history: {name} ({str(value)[:40]}) is no finite number.")
        return cls(Epoch(**one) for one in epochs)

    @staticmethod
    def check_plot(path: Any, name: str = "plot") -> None:
        """Raise the errors of `plot` for a path, before training begins."""
        end = os.path.splitext(os.fspath(_checks.path(path, name)))[1][1:]
        try:
            from matplotlib.figure import Figure
        except ModuleNotFoundError:
            raise MissingPackageError("history.plot", "matplotlib") from None
        known = sorted(Figure().canvas.get_supported_filetypes())
        if end not in known:
            raise ValueError(f'{name} ("{os.fspath(path)}") does not end in .{", .".join(known)}.')

    def plot(self, path: str | os.PathLike[str], *, title: str = "") -> None:
        """Draw loss, and accuracy below it, against epochs.

        Parameters
        ----------
        path : path
            Its suffix is the format: .svg, .png, .pdf.
        title : str

        Raises
        ------
        ValueError
            "history is empty: nothing has been trained.", 'path ("loss.txt") does not end in .eps, ...'
        mpscnn.MissingPackageError
            matplotlib is not installed.
        """
        self.check_plot(path, "path")
        if not self:
            raise ValueError("history is empty: nothing has been trained.")
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator, PercentFormatter

        has_accuracy = any(epoch.accuracy is not None for epoch in self)
        # Not a pyplot figure: pyplot keeps all figures, and is not thread-safe.
        figure = Figure(figsize=(5.4, 5.4 if has_accuracy else 3.2), layout="constrained")
        if title:
            figure.suptitle(title)
        numbers = range(1, len(self) + 1)
        for row, name in enumerate(("loss", "accuracy")[: 1 + has_accuracy]):
            axes = figure.add_subplot(1 + has_accuracy, 1, row + 1)
            for label, attribute in (("training", name), ("validation", f"validation_{name}")):
                values = [getattr(epoch, attribute) for epoch in self]
                if any(value is not None for value in values):
                    shown = [math.nan if value is None else value for value in values]
                    axes.plot(numbers, shown, marker="." if len(self) < 40 else "", label=label)
            axes.set(xlabel="epoch", ylabel=name)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.grid(alpha=0.3)
            axes.legend()
            if name == "accuracy":
                axes.yaxis.set_major_formatter(PercentFormatter(1.0))
            elif min(epoch.loss for epoch in self) > 0:
                axes.set_yscale("log")
        figure.savefig(path)
