# SPDX-License-Identifier: Apache-2.0
"""Training through MPS's gradient kernels, losses and optimizers; `mpscnn.Trainer` is the door."""

from .history import Epoch, History
from .step import Step
from .trainer import Trainer

__all__ = ["Epoch", "History", "Step", "Trainer"]
