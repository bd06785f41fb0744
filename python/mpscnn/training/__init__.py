# SPDX-License-Identifier: Apache-2.0
"""Training with MPS's gradient kernels, losses and optimizers: `mpscnn.Trainer`."""

from .history import Epoch, History
from .step import Step
from .trainer import Trainer

__all__ = ["Epoch", "History", "Step", "Trainer"]
