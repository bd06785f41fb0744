# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

import mpscnn
from network.graphs import residual


@pytest.fixture
def net() -> mpscnn.Network:
    return mpscnn.Network(residual())


@pytest.fixture
def make_x() -> Callable[..., NDArray[np.float32]]:
    def make(n: int = 2, h: int = 9, w: int = 7, seed: int = 1) -> NDArray[np.float32]:
        return np.random.default_rng(seed).standard_normal((n, 3, h, w)).astype(np.float32)

    return make
