# SPDX-License-Identifier: Apache-2.0
"""Imports without searches for garbage."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from mpscnn import _garbage, loading
from mpscnn.errors import InvalidModelError


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def test_blocks(thresholds: tuple[int, int, int]) -> None:
    with _garbage.few_collections():
        with _garbage.few_collections():
            assert gc.get_threshold()[0] > 100_000
        assert gc.get_threshold()[0] > 100_000
    assert gc.get_threshold() == thresholds


def test_blocks_of_two_threads(thresholds: tuple[int, int, int]) -> None:
    """The second block begins inside of the first one, and ends after it."""
    began, may_end = threading.Event(), threading.Event()

    def second() -> None:
        with _garbage.few_collections():
            began.set()
            may_end.wait()

    thread = threading.Thread(target=second)
    with _garbage.few_collections():
        thread.start()
        began.wait()
    assert gc.get_threshold()[0] > 100_000
    may_end.set()
    thread.join()
    assert gc.get_threshold() == thresholds


def test_thresholds_of_the_caller() -> None:
    """They are not lowered; 0, which is never, stays."""
    for before in ((0, 10, 10), (2_000_000, 10, 2000)):
        gc.set_threshold(*before)
        with _garbage.few_collections():
            assert gc.get_threshold()[0] == before[0]
            assert gc.get_threshold()[2] >= before[2]
        assert gc.get_threshold() == before


def test_errors_restore_them(thresholds: tuple[int, int, int]) -> None:
    for function in (loading.load, loading.read):
        with pytest.raises(InvalidModelError, match='"x" \\(int\\) is not a tensor'):
            function({"x": 1})
        assert gc.get_threshold() == thresholds
