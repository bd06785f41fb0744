# SPDX-License-Identifier: Apache-2.0
"""Step: a command buffer with one training step, and its results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import _checks, _core

if TYPE_CHECKING:
    from .trainer import Trainer

Array = NDArray[Any]


class Step(_checks.Made):
    """One step of a `Trainer`, possibly still running.

    Attributes
    ----------
    number : int
        Number of steps before it, including those of a loaded checkpoint.
    images : int
    """

    def __init__(
        self, trainer: Trainer, number: int, images: int, core: _core._TrainingStep, classes: Array | None
    ) -> None:
        self.number, self.images = number, images
        self._trainer, self._core, self._classes = trainer, core, classes

    def wait(self) -> Step:
        """Wait until the step and those before it have completed.

        Returns
        -------
        Step
            This step.

        Raises
        ------
        FloatingPointError
            "step 12: the loss is nan; ..."
        RuntimeError
            The device has failed.
        """
        self._trainer._complete(self)
        return self

    @property
    def loss(self) -> float:
        """Mean over the batch, before the update. Waits."""
        self.wait()
        assert self._core.loss is not None
        return self._core.loss

    @property
    def accuracy(self) -> float | None:
        """Fraction of images or pixels whose class has the max prediction, 0 to 1; None for other labels. Waits."""
        self.wait()
        if self._classes is None:
            return None
        found = np.concatenate([image.numpy().argmax(-1) for image in self._core.outputs])
        return float((found == self._classes.reshape(found.shape)).mean())

    @property
    def output(self) -> Array:
        """Predictions of the network before the update: (N, H, W, C), float32, a copy. Waits."""
        self.wait()
        return np.concatenate([image.numpy() for image in self._core.outputs]).astype(np.float32, copy=False)

    def __repr__(self) -> str:
        if not vars(self):
            return "<mpscnn.training.Step, not made>"
        return f"<mpscnn.training.Step {self.number}>"
