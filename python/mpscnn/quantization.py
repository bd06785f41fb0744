# SPDX-License-Identifier: Apache-2.0
"""Quantization of networks to 8 bits, and the difference that it makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _checks
from ._numbers import LAYOUTS, Places, find_places, with_activations_apart
from .graph import Graph, Node, Value
from .network import Network

__all__ = ["QuantizationError", "quantize"]

METHODS = ("minmax", "percentile")
_BINS = 4096
_NUMBERS = 255
# Deviation of a constant part of a function, in steps of its result. With half a step, which a single value would not
# show, EfficientNet-B0 loses 2 dB: all the values of the part are off in the same direction.
_CONSTANT = 0.02
_POINTS = 4096  # at which functions are computed
# Error of a function of numbers, in steps of its result: the root mean square of its slopes, times the source's step.
_MAX_ERROR = 2.0


class QuantizationError(ValueError):
    """A network has nothing to quantize, or the samples do not determine ranges."""


@dataclass
class _Range:
    """Values of one image of the graph over all samples."""

    low: float = 0.0
    high: float = 0.0
    counts: NDArray[np.int64] | None = None

    def extend(self, values: NDArray[Any]) -> None:
        self.low, self.high = min(self.low, float(values.min())), max(self.high, float(values.max()))

    def count(self, values: NDArray[Any]) -> None:
        found, _ = np.histogram(values, _BINS, (self.low, self.high))
        self.counts = found if self.counts is None else self.counts + found

    def cut(self, percentile: float) -> _Range:
        """Return the range without the share of values beyond `percentile`, on both sides."""
        assert self.counts is not None
        edges = np.linspace(self.low, self.high, _BINS + 1)
        most = self.counts.sum() * (1 - percentile / 100)
        below, above = np.cumsum(self.counts), np.cumsum(self.counts[::-1])[::-1]
        first, last = int(np.argmax(below > most)), _BINS - 1 - int(np.argmax(above[::-1] > most))
        return _Range(min(0.0, float(edges[first])), max(0.0, float(edges[last + 1])))

    def steps(self) -> tuple[float, int]:
        """Return the scale, and the number that stands for 0."""
        scale = (self.high - self.low) / _NUMBERS or 1.0
        return scale, min(_NUMBERS, max(0, round(-self.low / scale)))


def _rounded(node: Node) -> Node:
    """Return the node with weights that are whole multiples of a step for each output."""
    weight = np.asarray(node.arguments["weight"], np.float32)
    axis = node.arguments.get("layout", LAYOUTS[node.kernel][0]).index("O")
    others = tuple(i for i in range(weight.ndim) if i != axis)
    step = (np.abs(weight).max(others, keepdims=True) / 127).astype(np.float32)
    step[step == 0] = 1
    rounded = (np.rint(weight / step) * step).astype(np.float32)
    return node.with_(arguments={**node.arguments, "weight": rounded})


def _calibrated(
    network: Network,
    graph: Graph,
    names: Sequence[str],
    samples: Sequence[Any],
    method: str,
    percentile: float,
    progress: Callable[[int, int], None] | None,
) -> dict[str, _Range]:
    """Run the network on the samples, with all values as outputs."""
    probe = graph.copy()
    probe.outputs = {}
    for name in names:
        probe.output(Value(name), name)
    watched = Network(probe, optimize=False, device=network.device)
    watched.input_layout = network.input_layout
    ranges = {name: _Range() for name in names}
    rounds = 1 if method == "minmax" else 2
    for turn in range(rounds):
        for number, sample in enumerate(samples):
            results = watched(sample)
            for name, values in zip(names, results if isinstance(results, tuple) else (results,), strict=True):
                array = np.asarray(values)
                if not np.isfinite(array).all():
                    raise QuantizationError(f'samples[{number}]: value "{name}" is not finite, so it has no range.')
                if turn == 0:
                    ranges[name].extend(array)
                else:
                    ranges[name].count(array)
            if progress is not None:
                progress(turn * len(samples) + number + 1, rounds * len(samples))
    return ranges if method == "minmax" else {name: each.cut(percentile) for name, each in ranges.items()}


def quantize(
    network: Network,
    samples: Iterable[Any],
    *,
    method: str = "minmax",
    percentile: float = 99.99,
    progress: Callable[[int, int], None] | None = None,
) -> Network:
    """Return the network with weights and values of 8 bits.

    Weights have a step for each output, so that the largest is 127 steps. Values that convolutions, linear layers and
    their sums and products read are stored as 0...255, in a range that the samples determine; 0 is always one of the
    values. So are values between a convolution and a swish or another function, which is a table then, unless their
    steps are too coarse for it. Small convolutions of gates (squeeze-and-excitation) keep floats. The CPU engine then
    multiplies bytes if the processor has AVX-512 VNNI or AMX. Other devices compute with the same values in float32,
    which is not faster.

    Parameters
    ----------
    network : Network
        With one input. Not changed.
    samples : iterable of arrays
        Batches of typical inputs, read once or twice; some hundred images are usual.
    method : "minmax" or "percentile", default "minmax"
        Range of a value: from its min to its max, or without the few largest and smallest ones.
    percentile : float, 50 to 100, default 99.99
        Share of the values, in percent, that each end of the range keeps.
    progress : callable, optional
        Takes the number of batches that are done, and of all.

    Returns
    -------
    Network

    Raises
    ------
    TypeError
        "network (int) is not a Network."
    ValueError
        'method ("mean") is neither "minmax" nor "percentile".', "samples is empty.", "network: no convolution or linear
        layer has weights that can be quantized."

    Source
    ------
    python/mpscnn/quantization.py. Apple has images of uint8, and no kernels that compute with their numbers.

    Examples
    --------
    >>> import mpscnn, numpy as np
    >>> graph = mpscnn.Graph()
    >>> x = graph.input("x", channels=3, layout="NCHW")
    >>> weight = np.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(np.float32)
    >>> graph.output(graph.add("Convolution", x, weight=weight, padding=1), "y", layout="NCHW")
    >>> net = mpscnn.Network(graph)
    >>> batch = np.random.default_rng(1).normal(size=(4, 3, 16, 16)).astype(np.float32)
    >>> small = mpscnn.quantize(net, [batch])
    >>> bool(np.abs(small(batch) - net(batch)).max() < 0.02 * np.abs(net(batch)).max())
    True
    """
    _checks.instance(network, "network", Network)
    if _checks.text(method, "method") not in METHODS:
        raise ValueError(f'method ("{method}") is neither "minmax" nor "percentile".')
    share = _checks.real(percentile, "percentile")
    if not 50 <= share <= 100:
        raise ValueError(f"percentile ({percentile}) is not from 50 to 100.")
    if len(network.inputs) != 1:
        raise ValueError(f"network: the number of inputs ({len(network.inputs)}) is not 1.")
    if not isinstance(samples, Iterable):
        _checks.refuse(samples, "samples", "an iterable of arrays")
    if progress is not None and not callable(progress):
        _checks.refuse(progress, "progress", "callable")
    given = list(samples)
    if not given:
        raise ValueError("samples is empty.")
    if any(node.result_dtype for node in network.graph.nodes):
        raise QuantizationError("network: it is quantized already.")
    graph, apart = with_activations_apart(network.graph)
    places = find_places(graph, apart, _pixels(network, graph, given[0]))
    if not places.convolved:
        raise QuantizationError("network: no convolution or linear layer has weights that can be quantized.")
    names = [name for name in (*graph.inputs, *(node.name for node in graph.nodes)) if name in places.chosen]
    ranges = _calibrated(network, graph, names, given, method, share, progress)
    for node in graph.nodes:  # in order, so a chain of poolings has the steps of its first source
        if node.name in places.pooled:
            ranges[node.name] = ranges[places.pooled[node.name]]
    _narrow(graph, places, ranges)
    return _with_numbers(network, graph, places, {name: each.steps() for name, each in ranges.items()})


def _pixels(network: Network, graph: Graph, sample: Any) -> Callable[[str], bool]:
    """Return a function that tells whether a value of the sample is an image of one pixel."""
    probe = Network(graph, optimize=False, device=network.device)
    probe.input_layout = network.input_layout
    shapes = {layer.name: layer.output_shape for layer in probe.layers(tuple(np.shape(sample)))}
    return lambda name: shapes.get(name, (0, 0, 0, 0))[1:3] == (1, 1)


def _narrow(graph: Graph, places: Places, ranges: dict[str, _Range]) -> None:
    """Cut ranges where functions are constant, and leave out values whose steps are too coarse for the functions."""
    of: dict[str, list[str]] = {}
    for name, function in places.functions.items():
        of.setdefault(function.source, []).append(name)
    readers = graph.consumers()
    outputs = {output.source for output in graph.outputs.values()}
    for source, names in of.items():
        points = np.linspace(ranges[source].low, ranges[source].high, _POINTS, dtype=np.float32)
        results = [(places.functions[name](points), ranges[name].steps()[0]) for name in names]
        if ranges[source].low == ranges[source].high:
            continue
        if not all(np.isfinite(values).all() for values, _ in results):
            if source not in places.direct:
                del ranges[source]
            continue
        inside = {node.name for name in names for node in places.functions[name].nodes}
        between = {source, *inside}.difference(names)
        first, last = 0, _POINTS - 1
        if outputs.isdisjoint(between) and all(node.name in inside for name in between for node in readers[name]):
            first = min(_constant(values, step) for values, step in results)
            last -= min(_constant(values[::-1], step) for values, step in results)
        if first < last:
            ranges[source] = _Range(min(0.0, float(points[first])), max(0.0, float(points[last])))
        step = ranges[source].steps()[0]
        errors = [step * _slope(points[first : last + 1], values[first : last + 1]) / own for values, own in results]
        if source not in places.direct and max(errors) > _MAX_ERROR:
            del ranges[source]


def _constant(values: NDArray[np.float32], step: float) -> int:
    """Return the last index up to which all values are that one's, up to a small part of a step."""
    off = np.maximum(np.maximum.accumulate(values) - values, values - np.minimum.accumulate(values))
    return int(np.flatnonzero(off <= _CONSTANT * step)[-1])


def _slope(points: NDArray[np.float32], values: NDArray[np.float32]) -> float:
    """Return the root mean square of a function's slopes."""
    return float(np.sqrt(np.mean(np.square(np.diff(values) / np.diff(points)))))


def _with_numbers(network: Network, given: Graph, places: Places, steps: dict[str, tuple[float, int]]) -> Network:
    """Return the network with conversions to numbers and back behind each value that has steps."""
    graph = given.copy()
    nodes, graph.nodes = graph.nodes, []
    read = {}

    def convert(name: str) -> None:
        if name not in steps:
            return
        scale, zero = steps[name]
        numbers = graph.add(
            "NeuronLinear",
            Value(name),
            a=1 / (_NUMBERS * scale),
            b=zero / _NUMBERS,
            name=graph.unique(f"{name}: numbers"),
            result_dtype="uint8",
        )
        back = graph.unique(f"{name}: values")
        read[name] = graph.add("NeuronLinear", numbers, a=_NUMBERS * scale, b=-zero * scale, name=back).name

    for name in graph.inputs:
        convert(name)
    for node in nodes:
        kept = _rounded(node) if node.name in places.convolved else node
        graph.nodes.append(kept.with_(sources=tuple(read.get(source, source) for source in node.sources)))
        convert(node.name)
    options: dict[str, Any] = dict(network._options)
    made = Network(graph, **options, device=network.device)
    made.input_layout = network.input_layout
    return made


@dataclass(frozen=True)
class Difference:
    """Results of a quantized network beside those of the original.

    Attributes
    ----------
    images : int
    max_difference, mean_difference : float
        Absolute, over all results.
    max_result : float
        Largest absolute result of the original.
    same_top1 : float or None
        Share of the images whose largest result has the same index; None if results are no vectors.
    """

    images: int
    max_difference: float
    mean_difference: float
    max_result: float
    same_top1: float | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def difference(before: Network, after: Network, samples: Iterable[Any]) -> Difference:
    """Return how results differ on the samples."""
    images, largest, total, count, most = 0, 0.0, 0.0, 0, 0.0
    same: int | None = 0
    for sample in samples:
        old, new = (np.asarray(_first(net(sample)), np.float64) for net in (before, after))
        off = np.abs(old - new)
        largest, most = max(largest, float(off.max())), max(most, float(np.abs(old).max()))
        total, count, images = total + float(off.sum()), count + off.size, images + len(old)
        is_vector = math.prod(old.shape[1:]) == max(old.shape[1:], default=1)
        if same is not None and is_vector:
            tops = [one.reshape(len(one), -1).argmax(1) for one in (old, new)]
            same += int((tops[0] == tops[1]).sum())
        else:
            same = None
    return Difference(images, largest, total / max(1, count), most, None if same is None else same / max(1, images))


def _first(results: Any) -> Any:
    return results[0] if isinstance(results, tuple) else results
