# SPDX-License-Identifier: Apache-2.0
"""mpscnn info, convert and plot."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

import mpscnn
from architectures import ARCHITECTURES

from .conftest import node, normal, save

PARAMETERS = 8 * 27 + 8 + 8 * 72 + 10 * 8 + 10
MULTIPLY_ADDS = (8 * 27 + 8 * 72) * 16 * 12 + 80


def test_of_the_device(run, device: mpscnn.Device) -> None:
    ran = run("info", "--json")
    assert ran.status == 0
    assert ran.json["device"]["name"] == device.name
    engine = ran.json["device"]["engine"]
    assert engine in device.name or engine.startswith("cuda") or sys.platform == "darwin"
    assert ran.json["version"] == mpscnn.__version__
    assert ran.json["device"]["recommended_max_working_set_bytes"] > 0
    assert ran.json["packages"]["onnx"]
    text = run("info")
    assert text.status == 0
    assert device.name in text.out


def test_of_a_model(run, classifier: Path) -> None:
    ran = run("info", classifier, "--json")
    assert (ran.status, ran.err) == (0, "")
    found = ran.json
    assert found["inputs"][0]["shape"] == [1, 3, 16, 12]
    assert found["outputs"] == [{"name": "y", "layout": "NC", "shape": [1, 10]}]
    assert found["totals"]["parameters"] == PARAMETERS
    assert found["totals"]["multiply_adds"] == MULTIPLY_ADDS
    assert found["layers"][0]["kernel"] == "Convolution"
    assert found["layers"][0]["activation"] == "relu"
    assert found["layers"][0]["origin"] == "a_node (Conv), b_node (Relu)"
    assert found["memory"]["input_bytes"] == 4 * 3 * 16 * 12
    assert found["memory"]["peak_temporary_bytes"] <= found["memory"]["temporary_bytes"]


def test_without_passes_each_node_is_a_layer(run, classifier: Path) -> None:
    few, many = (run("info", classifier, "--json", *options).json for options in ([], ["--no-optimize"]))
    assert len(many["layers"]) == len(few["layers"]) + 2
    assert many["totals"]["parameters"] == PARAMETERS


def test_of_another_size(run, classifier: Path, tmp_path: Path) -> None:
    file = tmp_path / "free.mpscnn"
    assert run("convert", classifier, file).status == 0
    found = run("info", file, "--input-shape", "2x3x32x12", "--json").json
    assert found["inputs"][0]["shape"] == [2, 3, 32, 12]
    assert found["totals"]["multiply_adds"] == 2 * (2 * (MULTIPLY_ADDS - 80) + 80)
    assert run("info", file, "--input-shape", "x=2x3x32x12", "--json").json == found


def test_of_the_size_of_the_model_that_was_converted(run, classifier: Path, tmp_path: Path) -> None:
    file = tmp_path / "free.mpscnn"
    assert run("convert", classifier, file).status == 0
    assert run("info", file, "--json").json["inputs"][0]["shape"] == [1, 3, 16, 12]


def test_a_missing_size_is_an_error(run, tmp_path: Path) -> None:
    file = tmp_path / "free.mpscnn"
    graph = mpscnn.Graph()
    graph.output(graph.add("NeuronReLU", graph.input("x", channels=3, layout="NCHW")), "y")
    mpscnn.Network(graph).save(file)
    ran = run("info", file)
    assert (ran.status, ran.out) == (1, "")
    assert ran.message == ('mpscnn: input "x" takes any size (NCHW: 1x3x?x?): say which with --input-shape x=...')


def test_extents_that_an_onnx_file_leaves_open(run, tmp_path: Path) -> None:
    model = save(
        tmp_path / "open.onnx",
        [node("Conv", "x w", "y")],
        {"x": ["n", 3, "h", "w"]},
        {"y": ["n", 4, "h", "w"]},
        w=normal(0, 4, 3, 1, 1),
    )
    ran = run("info", model)
    assert (ran.status, ran.out) == (1, "")
    assert ran.message == (
        'mpscnn: open.onnx: the input "x" leaves extents open, ?x3x?x?: say for which it is read, with'
        " --input-shape x=..."
    )
    for option in ("1x3x5x6", "x=1x3x5x6"):
        assert run("info", model, "--input-shape", option, "--json").json["totals"]["multiply_adds"] == 12 * 30


def test_as_text(run, classifier: Path) -> None:
    ran = run("info", classifier)
    assert ran.status == 0
    for text in ("MPSCNNConvolution", "OIHW -> OHWI", "1x16x12x8", f"{PARAMETERS:,}", "most at once"):
        assert text in ran.out


def test_convert(run, classifier: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.mpscnn"
    ran = run("convert", classifier, file, "--json")
    assert ran.status == 0
    assert ran.json["out_bytes"] == file.stat().st_size > 4 * PARAMETERS
    assert ran.json["totals"]["parameters"] == PARAMETERS
    x = normal(7, 2, 3, 16, 12)
    np.testing.assert_array_equal(mpscnn.load(file)(x), mpscnn.load(classifier)(x))
    assert "MPSCNNConvolution" in run("convert", classifier, file).out


def test_convert_to_half_floats(run, classifier: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.mpscnn"
    assert run("convert", classifier, file, "--dtype", "float16").status == 0
    assert mpscnn.load(file).dtype == "float16"


@pytest.mark.parametrize(
    ("command", "out", "message"),
    [("convert", "out.onnx", "does not end in .mpscnn"), ("plot", "out.png", "does not end in .svg")],
)
def test_other_suffixes_are_wrong_use(run, classifier: Path, command: str, out: str, message: str) -> None:
    ran = run(command, classifier, *(["-o"] if command == "plot" else []), out)
    assert ran.status == 2
    assert message in ran.message


def test_plot(run, classifier: Path, tmp_path: Path) -> None:
    file = tmp_path / "net.svg"
    ran = run("plot", classifier, "-o", file, "--json")
    assert ran.status == 0
    assert ran.json["kernels"] == 6
    texts = [element.text for element in ElementTree.parse(file).iter("{http://www.w3.org/2000/svg}text")]
    for text in ("classifier.onnx", "b_node", "Convolution 3x3 + relu", "Add + relu", "16x12x8", "y"):
        assert text in texts


def test_names_are_escaped_in_a_picture(run, tmp_path: Path) -> None:
    name = '<a & "b">\x01'
    model = save(
        tmp_path / "odd.onnx",
        [node("Conv", "x w", "y")],
        {"x": [1, 4, 5, 5]},
        {"y": [1, 4, 5, 5]},
        w=normal(0, 4, 4, 1, 1),
    )
    graph = mpscnn.importing.read(model)
    graph.nodes[0] = graph.nodes[0].with_(name=name)
    graph.outputs["y"] = type(graph.outputs["y"])("y", name, "NCHW")
    from mpscnn.plotting import svg

    read = ElementTree.fromstring(svg(graph, (1, 4, 5, 5), title=name))
    texts = [element.text for element in read.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count('<a & "b">�') == 2


def test_options_of_the_reader(run, tmp_path: Path) -> None:
    file = tmp_path / "espcn.npz"
    state = ARCHITECTURES["espcn"].make(**ARCHITECTURES["espcn"].small).state_dict()
    np.savez(file, **{name: value.numpy() for name, value in state.items()})
    size = ("--input-shape", "1x1x16x12")
    assert "tanh" not in run("info", file, *size).out.lower()
    assert "tanh" in run("info", file, *size, "--option", "activation=tanh", "--option", "bounded=true").out.lower()
    for options, message in (
        (["tf_padding=true"], "tf_padding is no option of espcn_x"),
        (["factor=1.5"], "factor (float) is not an int"),
        (["bounded=1"], "bounded (int) is not a bool"),
    ):
        ran = run("info", file, *size, "--option", *options)
        assert ran.status != 0
        assert message in ran.message
    assert run("info", file, "--option", "activation").status == 2
    assert run("info", file, "--option", "factor=2", "--option", "factor=3").status == 2
