# SPDX-License-Identifier: Apache-2.0
"""Errors of graphs, and independence of copies."""

from __future__ import annotations

import pytest

import mpscnn
from network.graphs import residual


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
