# SPDX-License-Identifier: Apache-2.0
"""mpscnn verify and mpscnn.verify: they find the first layer that differs."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest

import mpscnn
from mpscnn.verify import AGAINST, verify

from .conftest import node, normal, save


def arrays() -> dict[str, np.ndarray]:
    return {"x": normal(9, 2, 3, 16, 12)}


@pytest.mark.parametrize("against", ["onnxruntime", "reference", "kernels"])
@pytest.mark.parametrize("optimize", [[], ["--no-optimize"]], ids=["optimized", "as it is"])
def test_agreement(run, classifier: Path, against: str, optimize: list[str]) -> None:
    if against == "onnxruntime":
        pytest.importorskip("onnxruntime")
    ran = run("verify", classifier, "--against", against, "--batch", 2, "--json", *optimize)
    assert ran.status == 0
    assert ran.json["agrees"]
    assert ran.json["first"] is None
    layers = [row["name"] for row in ran.json["rows"]]
    if optimize:
        assert layers[:5] == ["a_node", "b_node", "c_node", "d_node", "e_node"]
    else:
        assert layers[:3] == ["b_node", "c_node", "e_node"]
    assert layers[-1] == "y"
    assert [row["shape"] for row in ran.json["rows"]][-1] == [2, 10]
    # Global pooling takes two kernels, the first of which has no counterpart in the model.
    assert len(ran.json["unmatched"]) == (0 if against == "kernels" else 1)


def test_as_text(run, classifier: Path) -> None:
    ran = run("verify", classifier, "--against", "reference")
    assert ran.status == 0
    assert "results agree within 1e-04" in ran.err
    assert "reference evaluator" in ran.out


def test_differences_are_the_exit_status(run, classifier: Path) -> None:
    ran = run("verify", classifier, "--against", "reference", "--dtype", "float16", "--tolerance", "1e-6")
    assert ran.status == 1
    assert 'The first that differs is "b_node" (Convolution, from a_node (Conv), b_node (Relu))' in ran.message
    assert "differs" in ran.out
    ran = run("verify", classifier, "--against", "reference", "--dtype", "float16", "--json")
    assert (ran.status, ran.json["tolerance"]) == (0, 2e-2)


def broken(model: Path, name: str, parameter: str, change: float, **options: object) -> mpscnn.Network:
    """Return the network with one value of one parameter changed."""
    graph = mpscnn.importing.read(model)
    for place, one in enumerate(graph.nodes):
        if one.name == name:
            array = np.array(one.arguments[parameter])
            array.flat[0] += change
            graph.nodes[place] = one.with_(arguments={**one.arguments, parameter: array})
    return mpscnn.Network(graph, **options)


@pytest.mark.parametrize("optimize", [True, False])
def test_the_first_layer_that_differs(classifier: Path, optimize: bool) -> None:
    network = broken(classifier, "c_node", "weight", 1.0, optimize=optimize)
    found = verify(network, "reference", arrays(), model=str(classifier))
    assert found.first is not None
    assert found.first.name == "c_node"
    assert not found.agrees
    assert found.first.difference > 0.1
    before = [row.name for row in found.rows][: [row.name for row in found.rows].index("c_node")]
    assert before == (["b_node"] if optimize else ["a_node", "b_node"])


def test_a_difference_in_one_channel_of_a_deep_layer(classifier: Path) -> None:
    found = verify(broken(classifier, "y_node", "bias", 0.5), "reference", arrays(), model=str(classifier))
    assert found.first is not None
    assert found.first.name == "y_node"
    assert found.first.difference == pytest.approx(0.5, rel=1e-3)
    assert [row.differs for row in found.rows][-2:] == [True, True]  # the layer, and the output that it produces


def test_numbers_that_are_none_differ(classifier: Path) -> None:
    found = verify(broken(classifier, "c_node", "weight", np.nan), "reference", arrays(), model=str(classifier))
    assert found.first is not None
    assert found.first.name == "c_node"


def test_not_a_number_in_both_agrees(tmp_path: Path) -> None:
    model = save(tmp_path / "root.onnx", [node("Sqrt", "x", "y")], {"x": [1, 4, 3, 3]}, {"y": [1, 4, 3, 3]})
    found = verify(mpscnn.load(model), "reference", {"x": normal(0, 1, 4, 3, 3)}, model=str(model))
    assert found.agrees


def test_an_array_as_input(run, classifier: Path, two_inputs: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", normal(3, 3, 3, 16, 12))
    ran = run("verify", classifier, "--against", "reference", "--input", tmp_path / "x.npy", "--json")
    assert ran.status == 0
    assert ran.json["rows"][0]["shape"] == [3, 8, 16, 12]
    assert run("verify", two_inputs, "--input", tmp_path / "x.npy").status == 2
    assert run("verify", two_inputs, "--against", "reference").status == 0


def test_the_seed_is_that_of_the_inputs(run, classifier: Path) -> None:
    first, again, other = (
        run("verify", classifier, "--against", "kernels", "--seed", seed, "--json").json["rows"][0]["magnitude"]
        for seed in (0, 0, 1)
    )
    assert first == again != other


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--against", "torch"], "torch needs a module"),
        (["--against", "torch", "--torch", "json"], "is not package.module:callable"),
        (["--against", "torch", "--torch", "no_such_package:f"], "no_such_package"),
        (["--against", "torch", "--torch", "json:nothing"], "nothing"),
        (["--against", "torch", "--torch", "builtins:dict"], "not a torch.nn.Module"),
        (["--against", "caffe"], "caffe"),
    ],
)
def test_wrong_use(run, classifier: Path, options: list[str], message: str) -> None:
    pytest.importorskip("torch")
    ran = run("verify", classifier, *options)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.message


def test_other_files_have_no_onnx_to_look_into(run, classifier: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.mpscnn"
    assert run("convert", classifier, file).status == 0
    assert run("verify", file, "--against", "reference", "--input-shape", "1x3x16x12").status == 2
    assert run("verify", file, "--input-shape", "1x3x16x12").status == 0  # against the kernels one by one


@pytest.mark.parametrize("extents", [(4, 4, 4), (1, 6, 6), (6, 1, 6), (6, 6, 1)])
def test_kernels_one_by_one_where_shapes_tell_no_order(extents: tuple[int, int, int]) -> None:
    height, width, channels = extents
    graph = mpscnn.Graph()
    y = graph.add(
        "Convolution", graph.input("x", channels=channels), weight=normal(0, channels, channels, 3, 3), padding=1
    )
    graph.output(graph.add("NeuronReLU", y), "y")
    found = verify(mpscnn.Network(graph), "kernels", {"x": normal(1, 2, *extents)})
    assert found.agrees, found.first
    assert found.rows[0].shape == (2, height, width, channels)


def test_against_is_one_of_a_few(classifier: Path) -> None:
    with pytest.raises(ValueError, match=r'against \("caffe"\) is not one of ' + ", ".join(AGAINST)):
        verify(mpscnn.load(classifier), "caffe", arrays())


# ---- PyTorch


def test_modules_by_their_names() -> None:
    torch = pytest.importorskip("torch")
    from architectures import build_small, example

    module = build_small("resnet18")
    x = example("resnet18", batch=2)
    network = mpscnn.load(module, input_shapes=tuple(x.shape), optimize=False)
    found = verify(network, "torch", {next(iter(network.inputs)): x.numpy()}, model=module)
    assert found.agrees, found.first
    names = {row.reference for row in found.rows}
    assert {"layer1.0.conv1", "layer2.0.downsample.1", "layer4.1.bn2", "maxpool", "avgpool", "fc"} <= names

    other = copy.deepcopy(module)
    with torch.no_grad():
        other.layer2[0].bn2.bias[3] += 1.0
    found = verify(network, "torch", {next(iter(network.inputs)): x.numpy()}, model=other)
    assert found.first is not None
    assert found.first.reference == "layer2.0.bn2"
    assert module.training is False


def test_a_module_on_the_command_line(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, classifier: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "its_module.py").write_text(
        "import onnx, torch\n"
        "from onnx import numpy_helper\n"
        f"W = {{t.name: torch.from_numpy(numpy_helper.to_array(t).copy())"
        f" for t in onnx.load({str(classifier)!r}).graph.initializer}}\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        f = torch.nn.functional\n"
        "        b = f.relu(f.conv2d(x, W['w1'], W['b1'], padding=1))\n"
        "        e = f.relu(b + f.conv2d(b, W['w2'], padding=1))\n"
        "        return f.linear(e.mean((2, 3)), W['w3'], W['b3'])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    ran = run("verify", classifier, "--torch", "its_module:Net", "--json")
    assert ran.status == 0
    assert ran.json["against"].startswith("torch ")
    assert [row["name"] for row in ran.json["rows"]] == ["y"]


def test_weights_of_a_file_go_into_the_module(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from architectures import build_small

    torch.save(build_small("resnet18").state_dict(), tmp_path / "weights.pth")
    (tmp_path / "its_network.py").write_text(
        "from architectures import ARCHITECTURES\n"
        "def small():\n"
        "    one = ARCHITECTURES['resnet18']\n"
        "    return one.make(**one.small)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    options = ["--torch", "its_network:small", "--input-shape", "2x3x64x64", "--no-optimize", "--json"]
    ran = run("verify", tmp_path / "weights.pth", *options)
    assert ran.status == 0, ran.json["first"]
    assert {"conv1", "layer4.1.bn2", "fc"} <= {row["reference"] for row in ran.json["rows"]}
    bench = run("bench", tmp_path / "weights.pth", "--against", "torch", "--seconds", 0, *options[:4], "--json")
    assert [one["name"] for one in bench.json["comparisons"][0]["measured"]] == ["mpscnn", "torch"]


def test_weights_that_are_not_the_modules(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from architectures import build_small

    torch.save(build_small("resnet18").state_dict(), tmp_path / "weights.pth")
    ran = run("verify", tmp_path / "weights.pth", "--torch", "torch.nn:Identity", "--input-shape", "1x3x64x64")
    assert (ran.status, ran.out) == (1, "")
    assert "Unexpected key(s)" in ran.err


def test_equal_extents_in_another_order() -> None:
    """Where channels, height and width are equal, the order of a layer's axes does not follow from its shape."""
    import torch
    from torch import nn

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.conv = nn.Linear(6, 6), nn.Conv2d(6, 6, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.conv(self.linear(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))

    torch.manual_seed(0)
    module = Last().eval()
    net = mpscnn.load(module, input_shapes=(1, 6, 6, 6), optimize=False)
    x = np.random.default_rng(0).normal(size=(2, 6, 6, 6)).astype(np.float32)
    found = verify(net, "torch", {"x": x}, model=module)
    assert found.agrees, found.rows
    assert {row.reference for row in found.rows} >= {"linear", "conv"}
