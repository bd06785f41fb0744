# SPDX-License-Identifier: Apache-2.0
"""net.save and mpscnn.load: the same results from a mapped file, and only documented errors from a damaged one."""

from __future__ import annotations

import contextlib
import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest

import mpscnn
from architectures import ARCHITECTURES, build
from fuzzing import Fuzz
from mpscnn import file_format
from network.graphs import Draw, residual

CORPUS = Path(__file__).parent / "corpus"


def split(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return header and data of a safetensors file."""
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def joined(header: dict[str, Any], arrays: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + arrays


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "net.mpscnn"
    mpscnn.Network(residual()).save(path)
    return path


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "vgg11_bn", "densenet121", "unet", "yolo_tiny", "espcn"])
def test_every_network_comes_back(name: str, tmp_path: Path) -> None:
    entry = ARCHITECTURES[name]
    net = mpscnn.load(build(name, **entry.small), input_shapes=(1, *entry.shape))
    x = np.random.default_rng(0).standard_normal((2, *entry.shape)).astype(np.float32)
    path = tmp_path / "net.mpscnn"
    net.save(path)
    again = mpscnn.load(path)
    assert [node.name for node in again.graph] == [node.name for node in net.graph]
    assert [node.origin for node in again.graph] == [node.origin for node in net.graph]
    assert (again.inputs, again.outputs) == (net.inputs, net.outputs)
    expected, actual = net(x), again(x)
    for a, b in zip(
        expected if isinstance(expected, tuple) else (expected,),
        actual if isinstance(actual, tuple) else (actual,),
        strict=True,
    ):
        assert np.array_equal(a, b)


@pytest.mark.parametrize(
    ("kernel", "arguments"),
    [
        ("Convolution", lambda d: {"weight": d.weight(3, 2, 4, 16), "layout": "HWIO", "groups": 2}),
        ("Convolution", lambda d: {"weight": d.weight(8, 1, 3, 2), "layout": "C1HW", "padding": ((0, 1), (2, 1))}),
        ("Convolution", lambda d: {"weight": d.weight(8, 1, 3, 2), "groups": 8, "activation": "relu6"}),
        ("Convolution", lambda d: {"weight": d.weight(12, 8, 1, 1), "sub_pixel_scale_factor": 2, "padding": "same"}),
        (
            "Convolution",
            lambda d: {
                "weight": d.rng.integers(0, 255, (4, 8, 3, 3), np.uint8),
                "ranges": np.sort(d.weight(4, 2), axis=1),
            },
        ),
        ("Convolution", lambda d: {"weight": d.weight(4, 8, 3, 3).astype(np.float16), "bias": [1, 2, 3, 4]}),
        ("ConvolutionTranspose", lambda d: {"weight": d.weight(8, 4, 3, 2), "stride": 2, "output_padding": 1}),
        ("FullyConnected", lambda d: {"weight": d.weight(5, 8 * 6 * 7), "feature_map": (8, 6, 7)}),
        ("FullyConnected", lambda d: {"weight": d.weight(5, 8, 6, 7), "layout": "OIHW"}),
        ("BinaryConvolution", lambda d: {"weight": mpscnn.pack_bits(d.weight(4, 8, 3, 3)), "in_channels": 8}),
        ("NeuronPReLU", lambda d: {"a": d.values(8)}),
        ("BatchNormalization", lambda d: {"gamma": [0.5] * 8, "mean": d.values(8), "variance": d.positive(8)}),
        ("GroupNormalization", lambda d: {"gamma": d.values(8), "beta": d.values(8), "groups": 4, "epsilon": 1e-3}),
        ("Pad", lambda d: {"padding": ((1, 0), (2, 3)), "channel_values": d.values(8)}),
        ("Slice", lambda d: {"size": (2, 3), "offset": (1, 2), "source_feature_channel_offset": 4}),
        ("CrossChannelNormalization", lambda d: {"kernel_size": 3, "alpha": np.float32(0.5)}),
        ("Dropout", lambda d: {"keep_probability": 0.5, "seed": 2**40}),
    ],
)
def test_every_kind_of_argument_comes_back(
    kernel: str, arguments: Callable[[Draw], dict[str, Any]], tmp_path: Path
) -> None:
    graph = mpscnn.Graph()
    x = graph.input("x", height=6, width=7, channels=8, layout="NCHW", fixed_by="a test")
    graph.output(graph.add(kernel, x, **arguments(Draw(0))), "y", layout="NCHW")
    net, a = mpscnn.Network(graph), Draw(1).rng.standard_normal((2, 8, 6, 7)).astype(np.float32)
    net.save(tmp_path / "net.mpscnn")
    again = mpscnn.load(tmp_path / "net.mpscnn")
    assert np.array_equal(net(a), again(a))
    assert again.inputs["x"].fixed_by == "a test"
    again.save(tmp_path / "again.mpscnn")
    assert (tmp_path / "again.mpscnn").read_bytes() == (tmp_path / "net.mpscnn").read_bytes()


def test_weights_are_ohwi_and_read_where_the_file_lies(saved: Path) -> None:
    graph, _ = file_format.read(saved)
    for node in graph:
        if node.kernel == "Convolution":
            weight = node.arguments["weight"]
            assert node.arguments["layout"] == "OHWI"
            assert not weight.flags.owndata
            assert not weight.flags.writeable
    maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(saved.name)]
    ranges = [tuple(int(end, 16) for end in line.split()[0].split("-")) for line in maps]
    address = graph.node("head").arguments["weight"].__array_interface__["data"][0]
    assert any(first <= address < last for first, last in ranges)


def test_layouts_and_options_are_kept(tmp_path: Path) -> None:
    net = mpscnn.Network(residual(), dtype="float16", mean=0.5, std=(0.25, 0.5, 1))
    net.input_layout = "NHWC"
    x = np.random.default_rng(0).integers(0, 255, (2, 5, 6, 3), np.uint8)
    net.save(tmp_path / "net.mpscnn")
    again = mpscnn.load(tmp_path / "net.mpscnn")
    assert (again.dtype, again.input_layout) == ("float16", "NHWC")
    for a, b in zip(net(x), again(x), strict=True):
        assert a.dtype == np.float16
        assert np.array_equal(a, b)
    assert mpscnn.load(tmp_path / "net.mpscnn", dtype="float32")(x)[0].dtype == np.float32


def test_python_objects_are_refused_by_name(tmp_path: Path) -> None:
    class Source(mpscnn.DataSource):
        descriptor = mpscnn.ConvolutionDescriptor(1, in_channels=3, out_channels=4)
        weights = np.ones((4, 1, 1, 3), np.float32)

    graph = mpscnn.Graph()
    graph.output(graph.add("Convolution", graph.input("x"), weight=Source(), name="conv"))
    with pytest.raises(TypeError, match=r'node "conv": conv.weight \(Source\) is a Python object'):
        mpscnn.Network(graph).save(tmp_path / "net.mpscnn")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_replaced_stays_whole_for_who_has_it(saved: Path) -> None:
    net = mpscnn.load(saved)
    x = np.ones((1, 3, 5, 6), np.float32)
    expected = net(x)
    mpscnn.Network(residual(seed=1)).save(saved)
    net._core  # noqa: B018  (still there)
    assert all(np.array_equal(a, b) for a, b in zip(net(x), expected, strict=True))
    assert not np.array_equal(mpscnn.load(saved)(x)[0], expected[0])


def edited(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    header, arrays = split(path.read_bytes())
    graph = json.loads(header["__metadata__"]["mpscnn"])
    edit(graph)
    header["__metadata__"]["mpscnn"] = json.dumps(graph)
    path.write_bytes(joined(header, arrays))


WRONG: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no inputs": (lambda g: g.pop("inputs"), 'the graph has no "inputs"'),
    "inputs of another type": (lambda g: g.update(inputs={}), '"inputs" .* is of another type'),
    "no outputs": (lambda g: g.update(outputs=[]), "no inputs or no outputs"),
    "a kernel that is not there": (
        lambda g: g["nodes"][0].update(kernel="os.system"),
        'there is no kernel "os.system"',
    ),
    "a parameter that is not there": (
        lambda g: g["nodes"][0]["arguments"].update(device=1),
        'Convolution has no parameter "device"',
    ),
    "Graph.add's own": (lambda g: g["nodes"][0]["arguments"].update(origin="x"), 'has no parameter "origin"'),
    "an array that is not there": (
        lambda g: g["nodes"][0]["arguments"].update(weight={"array": "nowhere"}),
        "the file has no array 'nowhere'",
    ),
    "a value of another type": (lambda g: g["nodes"][0]["arguments"].update(stride="two"), "stride"),
    "a value out of range": (
        lambda g: g["nodes"][0]["arguments"].update(stride=0),
        r'node "\w+".*stride \(0\) is less',
    ),
    "weights of another shape": (
        lambda g: g["nodes"][0]["arguments"].update(weight={"array": "branch.weight"}, groups=3),
        'node "',
    ),
    "a source that comes later": (lambda g: g["nodes"][0].update(sources=["head"]), '"head" is not of this graph'),
    "two nodes of one name": (lambda g: g["nodes"][1].update(name=g["nodes"][0]["name"]), "is taken by another"),
    "a layout": (lambda g: g["inputs"][0].update(layout="NCXW"), "NCXW"),
    "an output of nothing": (lambda g: g["outputs"][0].update(source="nothing"), '"nothing" is not of this graph'),
    "a dtype": (lambda g: g.update(dtype="int8"), '"dtype" \\(int8\\) is not float32 or float16'),
    "nested lists": (lambda g: g["nodes"][0]["arguments"].update(padding=[[[[[[1]]]]]]), "is no argument"),
    "no activation": (lambda g: g["nodes"][0]["arguments"].update(activation={"neuron": {"type": "relu"}}), '"a"'),
    "too many sources": (lambda g: g["nodes"][0].update(sources=["x", "x"]), "number of sources"),
    "a size": (lambda g: g["inputs"][0].update(channels=-3), "channels"),
    "a size that no integer has": (lambda g: g["inputs"][0].update(height=2**64), "height"),
    "a size of 400 digits": (lambda g: g["inputs"][0].update(channels=10**400), "channels"),
    "numbers of 400 digits": (
        lambda g: g["nodes"][0]["arguments"].update(
            activation={"neuron": {"type": "prelu", "a": 0, "b": 0, "c": 0, "data": [10**400]}}
        ),
        "int too large",
    ),
    "a number of 400 digits": (
        lambda g: g["nodes"][0]["arguments"].update(
            activation={"neuron": {"type": "linear", "a": 10**400, "b": 0, "c": 0}}
        ),
        r"a \(10{28}",
    ),
    "a shape of three extents": (lambda g: g["inputs"][0].update(shape=[1, 3, 5]), "has not the 4 extents of NCHW"),
    "a shape of words": (lambda g: g["inputs"][0].update(shape=["a"]), "an extent of its shape"),
    "a shape of nothing": (lambda g: g["inputs"][0].update(shape=None), '"shape" .* is of another type'),
    "a shape of 0": (lambda g: g["inputs"][0].update(shape=[0, 3, 5, 6]), "less than the minimum"),
    "a shape of 400 digits": (lambda g: g["inputs"][0].update(shape=[10**400, 3, 5, 6]), "greater than the maximum"),
    "a shape of other channels": (lambda g: g["inputs"][0].update(shape=[1, 4, 5, 6]), "not with 3 along C"),
    "a true size": (lambda g: g["inputs"][0].update(channels=True), "channels"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_graph_is_an_invalid_model(name: str, saved: Path) -> None:
    edit, message = WRONG[name]
    edited(saved, edit)
    with pytest.raises(mpscnn.InvalidModelError, match=message):
        mpscnn.load(saved)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, 'its metadata has no "mpscnn"'),
        ({"format": "pt"}, 'its metadata has no "mpscnn"'),
        ({"mpscnn": "{"}, "the graph is no JSON"),
        ({"mpscnn": "[" * 100_000}, "the graph is no JSON"),
        ({"mpscnn": "[]"}, 'the graph has no "version"'),
        ({"mpscnn": "{}"}, 'the graph has no "version"'),
        ({"mpscnn": f'{{"version": {10**400}}}'}, r"version \(10{19}\) of the file is not 1"),
        ({"mpscnn": '{"version": 2}'}, r"version \(2\) of the file is not 1"),
        ({"mpscnn": '{"version": "1"}'}, "\"version\" \\('1'\\) is of another type"),
        ({"mpscnn": '{"version": true}'}, r'"version" \(True\) is of another type'),
        ({"mpscnn": '{"version": 1}'}, 'the graph has no "inputs"'),
    ],
)
def test_wrong_metadata(metadata: dict[str, str] | None, message: str, saved: Path) -> None:
    header, arrays = split(saved.read_bytes())
    header.pop("__metadata__")
    if metadata is not None:
        header["__metadata__"] = metadata
    saved.write_bytes(joined(header, arrays))
    with pytest.raises(mpscnn.InvalidModelError, match=message):
        mpscnn.load(saved)


def test_options_of_models_are_refused(saved: Path) -> None:
    with pytest.raises(TypeError, match=r"input_shapes was given; \.mpscnn take none"):
        mpscnn.load(saved, input_shapes=(1, 3, 4, 4))


def test_an_engine_that_is_not_there_is_no_fault_of_the_file(saved: Path) -> None:
    program = "import os, sys; os.environ['MPSCNN_ENGINE'] = 'zz'; import mpscnn; mpscnn.load(sys.argv[1])"
    ran = subprocess.run([sys.executable, "-c", program, saved], capture_output=True, text=True, timeout=60)
    assert "\nValueError: MPSCNN_ENGINE (zz) names no engine" in ran.stderr
    assert saved.name not in ran.stderr


def tried(path: Path) -> None:
    """Load and run a file that may be damaged."""
    try:
        net = mpscnn.load(path)
    except mpscnn.ImportError:
        return
    # Errors about shapes: a graph may be valid for no input.
    with contextlib.suppress(ValueError, TypeError, MemoryError, NotImplementedError):
        net(np.ones((1, 3, 6, 5), np.float32))


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.mpscnn")), ids=lambda path: path.stem)
def test_corpus(path: Path) -> None:
    with pytest.raises(mpscnn.ImportError):
        mpscnn.load(path)


def test_there_is_a_corpus() -> None:
    assert len(list(CORPUS.glob("*.mpscnn"))) > 20


def values() -> st.SearchStrategy[Any]:
    plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    return st.recursive(plain, lambda inner: st.lists(inner, max_size=3), max_leaves=6)


def damaged(data: st.DataObject, original: bytes) -> bytes:
    """Return the file with bytes changed, or with values of the graph replaced, several at a time."""
    if data.draw(st.booleans()):
        changed = bytearray(original)
        (header_bytes,) = struct.unpack("<Q", original[:8])
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, min(len(changed) - 1, 8 + header_bytes)))
            changed[at] = data.draw(st.integers(0, 255))
        return bytes(changed[: data.draw(st.none() | st.integers(0, len(changed)))])
    header, arrays = split(original)
    graph = json.loads(header["__metadata__"]["mpscnn"])
    for _ in range(data.draw(st.integers(1, 3))):
        place: Any = graph
        key: Any = None
        while isinstance(place, (dict, list)) and place:
            keys = sorted(place) if isinstance(place, dict) else range(len(place))
            parent, key = place, data.draw(st.sampled_from(list(keys)))
            place = parent[key]
            if data.draw(st.integers(0, 3)) == 0:
                break
        if key is not None:
            parent[key] = data.draw(values())
    header["__metadata__"]["mpscnn"] = json.dumps(graph)
    return joined(header, arrays)


def test_fuzz(saved: Path, tmp_path: Path) -> None:
    original, path = saved.read_bytes(), tmp_path / "bad.mpscnn"

    @Fuzz().given(200, st.data())
    def look(data: st.DataObject) -> None:
        path.write_bytes(damaged(data, original))
        tried(path)

    look()
