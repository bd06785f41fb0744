# SPDX-License-Identifier: Apache-2.0
"""Copies, archives and pickles compute the same as their kernel, for every case row of every kernel."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mpscnn
from cases import Case, all_cases
from mpscnn import _core
from support import random
from test_forward import STATES, Expected, build, prepared


def _pickled(kernel: mpscnn.Kernel) -> mpscnn.Kernel:
    return pickle.loads(pickle.dumps(kernel))


WAYS: dict[str, Callable[[mpscnn.Kernel], mpscnn.Kernel]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "archive": _core._Kernel._archived,
    "pickle": _pickled,
}


def _cannot_pickle(case: Case) -> bool:
    """Return whether the row's data source is a SimpleNamespace of lambdas."""
    return case.batch_norm


def result(kernel: mpscnn.Kernel, sources: list[np.ndarray], right: Expected, case: Case, dtype: str) -> np.ndarray:
    if case.kernel in STATES:
        state: Any = kernel(*sources)
        return np.stack([state.mean, state.variance])
    out = np.full(right.shape, 3, case.result_dtype or dtype)
    return kernel(*sources, out=out)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_every_row_comes_back(case: Case, way: str) -> None:
    if way in ("deepcopy", "pickle") and _cannot_pickle(case):
        pytest.skip("the row's data source is not one that can be pickled")
    dtype = case.dtypes[0]
    inputs, right = prepared(case, dtype)
    kernel = build(case, inputs)
    twin = WAYS[way](kernel)
    assert isinstance(twin, _core._Kernel if way == "archive" else type(kernel))
    assert twin is not kernel
    if case.kernel in STATES:
        states = kernel(inputs.x), twin(inputs.x)
        for name in ("mean", "variance", "count"):
            np.testing.assert_array_equal(getattr(states[1], name), getattr(states[0], name))
        return
    wanted = result(kernel, inputs.sources, right, case, dtype)
    del kernel
    np.testing.assert_array_equal(result(twin, inputs.sources, right, case, dtype), wanted)


@pytest.mark.parametrize("way", sorted(set(WAYS) - {"archive"}))
def test_attributes_set_afterwards_are_copied(way: str) -> None:
    kernel = mpscnn.PoolingMax(3, stride=2, label="first")
    assert kernel.edge_mode == "clamp"
    kernel.edge_mode = "zero"
    kernel.offset = (1, -1)
    kernel.source_feature_channel_offset = 4
    kernel.label = "second"
    twin = WAYS[way](kernel)
    for name in ("edge_mode", "offset", "source_feature_channel_offset", "label"):
        assert getattr(twin, name) == getattr(kernel, name), name
    twin.offset = (0, 0)
    assert kernel.offset == (1, -1)
    assert mpscnn.PoolingMax(3).edge_mode == "clamp"


class Doubling(mpscnn.NeuronLinear):
    """A user's subclass, with its own arguments and attributes."""

    def __init__(self, name: str) -> None:
        super().__init__(a=2.0)
        self.name = name


@pytest.mark.parametrize("way", sorted(set(WAYS) - {"archive"}))
def test_derived_classes(way: str) -> None:
    kernel = Doubling("twice")
    twin = WAYS[way](kernel)
    assert type(twin) is Doubling
    assert twin.name == "twice"
    np.testing.assert_array_equal(twin(np.ones((1, 1, 1, 1), np.float32)), 2)


class Source:
    """A data source that can be pickled."""

    def __init__(self) -> None:
        self.descriptor = mpscnn.ConvolutionDescriptor(
            (1, 1),
            4,
            8,
            activation=mpscnn.NeuronDescriptor("tanh", 0.5, 2.0),
            batch_norm=mpscnn.BatchNorm(random((8,)), random((8,)) ** 2, random((8,)), random((8,)), 1e-3),
        )
        self.weights = random((8, 1, 1, 4))

    def load(self) -> bool:
        return True

    def purge(self) -> None:
        pass


def test_an_archive_has_no_gradient_kernel() -> None:
    """It would need the weights of the data source, which the archive lacks."""
    forward = mpscnn.Convolution(random((8, 1, 1, 4)))._archived()
    with pytest.raises(NotImplementedError, match="the forward kernel is of an archive, which has weights and no data"):
        _core._Kernel("MPSCNNConvolutionGradient", (forward, 0), None)


@pytest.mark.parametrize("way", WAYS)
def test_data_sources(way: str) -> None:
    source, x = Source(), random((1, 3, 4, 4))
    kernel = mpscnn.Convolution(source)
    wanted = kernel(x)
    twin = WAYS[way](kernel)
    np.testing.assert_array_equal(twin(x), wanted)
    if way == "archive":  # has the weights, but no data source to reload them from
        assert twin.data_source is None
        with pytest.raises(RuntimeError, match="Convolution: there is no data source to reload"):
            twin.reload()
        return
    shared = way == "copy"
    assert (twin.data_source is source) == shared
    source.weights[:] = 0
    twin.reload()
    assert np.array_equal(twin(x), wanted) != shared


def test_a_copy_has_the_weights_that_the_kernel_has() -> None:
    """Even if the array has changed since."""
    weight, x = random((4, 4, 1, 1)), random((1, 2, 2, 4))
    kernel = mpscnn.Convolution(weight)
    wanted = kernel(x)
    weight[:] = 0
    np.testing.assert_array_equal(copy.copy(kernel)(x), wanted)
    np.testing.assert_array_equal(kernel._archived()(x), wanted)
    assert not _pickled(kernel)(x).any()


@pytest.mark.parametrize(
    "made",
    [
        mpscnn.NeuronDescriptor("relu", 0.25),
        mpscnn.NeuronDescriptor("prelu", data=[0.25, 0.5]),
        mpscnn.NeuronDescriptor("none"),
        mpscnn.BatchNorm([0.0], [1.0], [2.0], [3.0], 0.5),
        mpscnn.ConvolutionDescriptor((3, 2), 8, 16, stride=(2, 1), dilation=(1, 3), groups=2),
        mpscnn.ConvolutionDescriptor(3, 8, 8, depthwise=True, activation="relu"),
    ],
    ids=repr,
)
def test_descriptors(made: Any) -> None:
    for twin in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert type(twin) is type(made)
        assert repr(twin) == repr(made)


def test_a_pickle_is_read_in_another_process(tmp_path: Any) -> None:
    kernel = mpscnn.Convolution(random((8, 4, 3, 3)), random((8,)), padding=1, activation=mpscnn.NeuronELU(0.5))
    x = random((1, 5, 6, 4))
    (tmp_path / "kernel").write_bytes(pickle.dumps(kernel))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", kernel(x))
    program = """
import pickle, sys, pathlib, numpy as np
folder = pathlib.Path(sys.argv[1])
kernel = pickle.loads((folder / "kernel").read_bytes())
np.testing.assert_array_equal(kernel(np.load(folder / "x.npy")), np.load(folder / "y.npy"))
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=60)
