# SPDX-License-Identifier: Apache-2.0
"""Errors of graphs, and independence of copies."""

from __future__ import annotations

import numpy as np
import pytest

import mpscnn
from network.graphs import residual


def test_a_node_is_shown_without_its_weights() -> None:
    graph = mpscnn.Graph()
    weight = np.ones((64, 3, 7, 7), np.float32)
    graph.output(graph.add("Convolution", graph.input("x", channels=3), weight=weight, stride=2))
    text = repr(next(iter(graph)))
    assert "'weight': float32 (64, 3, 7, 7)" in text
    assert "'stride': 2" in text
    assert len(text) < 200


def test_kernels_that_make_a_state() -> None:
    graph = mpscnn.Graph()
    with pytest.raises(TypeError, match="BatchNormalizationStatistics: the result is a state, which a graph has no"):
        graph.add("BatchNormalizationStatistics", graph.input("x"))
    assert len(graph) == 0


@pytest.mark.parametrize("layout", ["", "CNHW", "HWC", "NCHWN", "NXHW"])
def test_layouts_that_arrays_do_not_have(layout: str) -> None:
    graph = mpscnn.Graph()
    with pytest.raises(ValueError, match=f'layout \\("{layout}"\\) is not "N" followed by letters of "HWC"'):
        graph.input("x", layout=layout)
    x = graph.input("x")
    with pytest.raises(ValueError, match="layout"):
        graph.output(x, layout=layout)
    assert list(graph.inputs) == ["x"]
    assert not graph.outputs


def test_a_copy_is_apart() -> None:
    graph = residual()
    kernels, names = [node.kernel for node in graph], list(graph.outputs)
    copy = graph.copy()
    value = copy.add("NeuronTanH", copy.input("more"), name="end")
    copy.output(value, "z")
    assert [node.kernel for node in graph] == kernels
    assert list(graph.outputs) == names
    assert "more" not in graph.inputs
    assert [node.kernel for node in copy] == [*kernels, "NeuronTanH"]
    assert graph.unique("end") == "end"
