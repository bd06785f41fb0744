# SPDX-License-Identifier: Apache-2.0
"""Lists of layers with odd options, and mappings of odd arrays: PyTorch's result, or an mpscnn.ImportError.

tests/fuzzing.py describes long searches; they write the seeds of failures into the corpus.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from layer_cases import Case, outcome

import mpscnn
from fuzzing import Fuzz, Seeds

SEEDS = Seeds(Path(__file__).with_name("corpus") / "layer_list.txt")
fuzz = Fuzz()


def attempt(seed: int) -> str:
    """Return "read", "refused", or "unknown" if there is nothing to compare with."""
    case = Case(seed)
    start = time.process_time()
    try:
        net = mpscnn.load(case.weights, layers=case.layers, input_shapes=case.shape)
    except mpscnn.ImportError as error:
        assert len(str(error)) < 3000  # noqa: PT017  (any of the family will do)
        return "refused"
    except (TypeError, ValueError) as error:
        if "input_shapes" not in str(error) and "name of an input" not in str(error):
            raise
        return "refused"
    finally:
        assert time.process_time() - start < 20
    return outcome(net, case)


@fuzz.seeds(400)
def test_layers(seed: int) -> None:
    with SEEDS.keep(seed):
        attempt(seed)


@pytest.mark.parametrize("seed", list(SEEDS))
def test_corpus(seed: int) -> None:
    attempt(seed)


def test_a_reshape_is_concatenated() -> None:
    x = np.arange(336, dtype=np.float32).reshape(2, 4, 6, 7)
    net = mpscnn.load({}, layers=[("up", "Upsample", {"size": 2})], input_shapes=(2, 4, 6, 7))
    np.testing.assert_array_equal(net(x), x[:, :, ::3, ::3][..., :2])


def test_most_that_is_right_is_read() -> None:
    found = [attempt(seed) for seed in range(60)]
    assert found.count("read") > 5
