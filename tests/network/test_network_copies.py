# SPDX-License-Identifier: Apache-2.0
"""Copies and pickles of networks compute the same, bit by bit, in this process and in others."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import mpscnn
from network.graphs import residual
from support import run_python


def pickled(net: mpscnn.Network) -> mpscnn.Network:
    twin: mpscnn.Network = pickle.loads(pickle.dumps(net))
    return twin


Way = Callable[[mpscnn.Network], mpscnn.Network]
MakeX = Callable[..., NDArray[np.float32]]
WAYS: dict[str, Way] = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": pickled}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)

OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "not optimized": {"optimize": False},
    "float16": {"dtype": "float16", "mean": [0.5, 0.25, 0.125], "std": 0.5},
    "reduced precision": {"allow_reduced_precision": True},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@every_way
def test_a_copy_computes_the_same(way: Way, options: dict[str, Any], make_x: MakeX) -> None:
    net, x = mpscnn.Network(residual(), **options), make_x()
    wanted = net(x)
    twin = way(net)
    assert twin is not net
    for node, other in zip(net.graph.nodes, twin.graph.nodes, strict=True):
        assert (node.name, node.kernel, node.sources, node.origin) == (
            other.name,
            other.kernel,
            other.sources,
            other.origin,
        )
    assert (twin.inputs, twin.outputs, twin.dtype, twin.device) == (net.inputs, net.outputs, net.dtype, net.device)
    assert twin._options == net._options
    del net
    for result, right in zip(twin(x), wanted, strict=True):
        assert result.dtype == right.dtype
        np.testing.assert_array_equal(result, right)


@every_way
def test_layouts_come_back_and_are_its_own(way: Way, net: mpscnn.Network, make_x: MakeX) -> None:
    net.input_layout = "NHWC"
    net.output_layout = {"features": "NCHW"}
    twin = way(net)
    assert twin.input_layout == "NHWC"
    assert twin.output_layout == "NCHW"
    x = make_x().transpose(0, 2, 3, 1)
    for result, right in zip(twin(x), net(x), strict=True):
        np.testing.assert_array_equal(result, right)
    twin.input_layout = "NCHW"
    assert net.input_layout == "NHWC"
    np.testing.assert_array_equal(twin(make_x())[0], net(x)[0])


@every_way
def test_the_original_may_change(way: Way, make_x: MakeX) -> None:
    """A copy has the network's weights, a pickle those at the time of writing."""
    weight = np.ones((1, 3, 1, 1), np.float32)
    graph = mpscnn.Graph()
    graph.output(graph.add("Convolution", graph.input("x", channels=3, layout="NCHW"), weight=weight), "y")
    net, x = mpscnn.Network(graph), make_x()
    wanted = net(x)
    twin = way(net)
    weight[:] = 0
    np.testing.assert_array_equal(twin(x), wanted)


@every_way
def test_derived_classes(way: Way, make_x: MakeX) -> None:
    net = Named(residual(), "first")
    twin = way(net)
    assert type(twin) is Named
    assert twin.name == "first"
    np.testing.assert_array_equal(twin(make_x())[0], net(make_x())[0])


class Named(mpscnn.Network):
    """A user's subclass, with its own arguments and attributes."""

    def __init__(self, graph: mpscnn.Graph, name: str) -> None:
        super().__init__(graph)
        self.name = name


def test_spawned_processes(net: mpscnn.Network, tmp_path: Path, make_x: MakeX) -> None:
    """With the network as an argument. Its weights are pages of a file that the other process has not mapped."""
    net.save(tmp_path / "net.mpscnn")
    mapped, x = mpscnn.load(tmp_path / "net.mpscnn"), make_x()
    wanted = mapped(x)
    text = pickle.dumps(mapped)
    (tmp_path / "net.mpscnn").unlink()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for result, right in zip(pool.apply(mapped, (x,)), wanted, strict=True):
            np.testing.assert_array_equal(result, right)
    np.testing.assert_array_equal(pickle.loads(text)(x)[0], wanted[0])


def test_a_mapped_file_that_became_shorter(tmp_path: Path) -> None:
    """A pickle has all weights or fails. In a separate process, which SIGBUS would end."""
    program = """
    import copy, os, pickle, sys
    import numpy as np, mpscnn

    path = sys.argv[1]
    np.ones((64, 64, 3, 3), np.float32).tofile(path)
    graph = mpscnn.Graph()
    weight = mpscnn.map_weights(path, (64, 64, 3, 3))
    graph.output(graph.add("Convolution", graph.input("x", channels=64), weight=weight), "y")
    net = mpscnn.Network(graph)
    os.truncate(path, 0)
    for write in (pickle.dumps, copy.deepcopy):
        try:
            write(net)
        except RuntimeError as error:
            print("became shorter while it was mapped" in str(error))
    """
    assert run_python(program, str(tmp_path / "weights")) == "True\nTrue\n"


class Lambda:
    """A data source that cannot be pickled."""

    def __init__(self) -> None:
        self.descriptor = mpscnn.ConvolutionDescriptor(1, 3, 8)
        self.weights = np.ones((8, 1, 1, 3), np.float32)
        self.load = lambda: True
        self.purge = lambda: None


def test_objects_that_cannot_be_pickled(net: mpscnn.Network, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = mpscnn.Graph()
    graph.output(graph.add("Convolution", graph.input("x", channels=3), weight=Lambda()), "y")
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        pickle.dumps(mpscnn.Network(graph))
    with pytest.raises(TypeError, match=r"self \(Network\) was not made: its __init__ has not run\."):
        pickle.dumps(mpscnn.Network.__new__(mpscnn.Network))
    other = mpscnn.Device()
    monkeypatch.setattr(mpscnn.Network, "device", property(lambda self: other))
    pickle.dumps(net)
    other = object()
    with pytest.raises(ValueError, match=r"^device \(<object .*>\) is not the default device, on which a pickle is"):
        pickle.dumps(net)
