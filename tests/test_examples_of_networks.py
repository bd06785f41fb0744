# SPDX-License-Identifier: Apache-2.0
"""The examples with whole networks run as documented, and report errors."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from architectures import build_small

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(EXAMPLES / program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def module_of(program: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = EXAMPLES / program
    for folder in (EXAMPLES, EXAMPLES / "style_transfer"):
        monkeypatch.syspath_prepend(str(folder))
    for name in ("weights", "model"):  # sibling modules, which another example may have loaded under the same name
        monkeypatch.delitem(sys.modules, name, raising=False)
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def picture(tmp_path: Path, rng: np.random.Generator) -> Path:
    path = tmp_path / "picture.png"
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8).astype(np.uint8))
    coarse.resize((120, 90), Image.Resampling.BICUBIC).save(path)
    return path


# ---- classify.py


def expected_probabilities(module: torch.nn.Module, picture: Path, size: int, mean: Any, std: Any) -> np.ndarray:
    """Preprocess like torchvision's transforms: Resize, CenterCrop, ToTensor, Normalize."""
    with Image.open(picture) as opened:
        image = opened.convert("RGB")
    shorter = round(size * 256 / 224)
    size_of = {min(image.size): shorter, max(image.size): shorter * max(image.size) // min(image.size)}
    image = image.resize((size_of[image.width], size_of[image.height]), Image.Resampling.BILINEAR)
    left, top = round((image.width - size) / 2), round((image.height - size) / 2)
    pixels = np.asarray(image.crop((left, top, left + size, top + size)), np.float64) / 255
    x = torch.from_numpy((pixels - mean) / std).permute(2, 0, 1)[None].float()
    with torch.no_grad():
        return module(x).double().softmax(1)[0].numpy()


IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "vgg11"])
def test_classify(tmp_path: Path, picture: Path, name: str) -> None:
    module = build_small(name)
    save_file(module.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "classes.txt").write_text("".join(f"animal {index}\n" for index in range(10)))
    result = run(
        "classify.py", picture, "--weights", tmp_path / "model.safetensors", "--classes", tmp_path / "classes.txt",
        "--size", 64, "--output", tmp_path / "out.png", "--json",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    with Image.open(tmp_path / "out.png") as drawn:
        assert drawn.size == (320 + 16 + 400, 320)
    expected = expected_probabilities(module, picture, 64, *IMAGENET)
    best = np.argsort(-expected)[:5]
    assert [row["index"] for row in report["classes"]] == best.tolist()
    assert [row["name"] for row in report["classes"]] == [f"animal {index}" for index in best]
    np.testing.assert_allclose([row["probability"] for row in report["classes"]], expected[best], rtol=1e-3)
    assert report["milliseconds"] > 0


def test_classify_in_words(tmp_path: Path, picture: Path) -> None:
    torch.save({"state_dict": build_small("resnet18").state_dict()}, tmp_path / "model.pth")
    result = run("classify.py", picture, "--weights", tmp_path / "model.pth", "--size", 64, "--top", 3,
                 "--output", tmp_path / "out.png")  # fmt: skip
    assert result.returncode == 0, result.stderr
    *lines, time, last = result.stdout.splitlines()
    assert time.endswith(" ms")
    assert last == f"Picture  {tmp_path / 'out.png'}"
    assert len(lines) == 3
    assert all("%  class " in line for line in lines)


def test_classify_by_a_folder_of_hugging_face(tmp_path: Path, picture: Path) -> None:
    """Class names, mean and deviation come from the folder."""
    module = build_small("resnet18")
    folder = tmp_path / "model"
    folder.mkdir()
    save_file(module.state_dict(), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"id2label": {str(index): f"label {index}" for index in range(10)}}))
    mean, std = [0.5, 0.4, 0.3], [0.5, 0.6, 0.7]
    processor = {
        "image_mean": mean,
        "image_std": std,
        "crop_size": {"height": 64, "width": 64},
        "size": {"shortest_edge": 73},
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    result = run("classify.py", picture, "--weights", folder, "--output", tmp_path / "out.png", "--json")
    assert result.returncode == 0, result.stderr
    expected = expected_probabilities(module, picture, 64, mean, std)
    best = np.argsort(-expected)[:5]
    report = json.loads(result.stdout)["classes"]
    assert [row["name"] for row in report] == [f"label {index}" for index in best]
    np.testing.assert_allclose([row["probability"] for row in report], expected[best], rtol=1e-3)


def test_classify_without_weights(picture: Path) -> None:
    result = run("classify.py", picture)
    assert result.returncode == 2
    assert "There are no weights." in result.stderr
    assert "huggingface.co/microsoft/resnet-50" in result.stderr
    assert "torch.save" in result.stderr


def test_classify_says_what_is_wrong(tmp_path: Path, picture: Path) -> None:
    save_file(build_small("unet").state_dict(), tmp_path / "unet.safetensors")
    save_file(build_small("resnet18").state_dict(), tmp_path / "resnet.safetensors")
    save_file(build_small("style_transfer").state_dict(), tmp_path / "style.safetensors")
    (tmp_path / "two.txt").write_text("cat\ndog\n")
    (tmp_path / "text.png").write_text("no picture")
    resnet = ["--weights", tmp_path / "resnet.safetensors"]
    for arguments, message in (
        (
            [picture, "--weights", tmp_path / "unet.safetensors"],
            "not the weights of an architecture that is known (resnet",
        ),
        ([picture, "--weights", tmp_path / "none.safetensors"], "cannot be opened: No such file"),
        ([picture, "--weights", tmp_path / "style.safetensors"], "is no classifier"),
        ([picture, *resnet, "--architecture", "vgg16"], 'those of resnet18, not of "vgg16"'),
        ([picture, *resnet, "--classes", tmp_path / "two.txt"], "has 2 names; the network has 10 classes"),
        ([picture, *resnet, "--classes", tmp_path / "none.txt"], "the names of the classes, "),
        ([picture, *resnet, "--output", tmp_path / "out.text"], "cannot be written: unknown file extension"),
        ([tmp_path / "text.png", *resnet], "cannot be read: cannot identify image file"),
        ([tmp_path / "none.png", *resnet], "cannot be read: [Errno 2]"),
    ):
        result = run("classify.py", *arguments)
        assert result.returncode == 1, result.stdout + result.stderr
        assert result.stderr.startswith("classify: ")
        assert message in result.stderr
        assert "Traceback" not in result.stderr
    assert "--top: 0 is less than the minimum (1)" in run("classify.py", picture, "--top", 0).stderr


# ---- style.py


def test_style_transfer(tmp_path: Path, picture: Path) -> None:
    result = run("style.py", picture, "--width", 8, "--repeat", 2, "--output", tmp_path / "out.png", "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["size"] == [88, 120]
    assert 0 <= report["difference_from_pytorch"] <= 1e-2
    assert report["milliseconds_per_image"] > 0
    with Image.open(tmp_path / "out.png") as image, Image.open(picture) as before:
        both = np.asarray(image)
        assert both.shape == (28 + 88, 120 + 6 + 120, 3)
        np.testing.assert_array_equal(both[28:, :120], np.asarray(before)[:88])
        assert both[28:, 126:].std() > 20  # an image, not a single colour


def test_style_transfer_with_weights(tmp_path: Path, picture: Path) -> None:
    state = build_small("style_transfer").state_dict()
    torch.save({f"module.{name}": tensor for name, tensor in state.items()}, tmp_path / "parallel.pth")
    torch.save(state, tmp_path / "style.pth")
    out = tmp_path / "out.png"
    for name in ("style.pth", "parallel.pth"):
        arguments = ["--weights", tmp_path / name, "--output", out, "--repeat", 1]
        result = run("style.py", picture, *arguments)
        assert result.returncode == 0, result.stderr
        assert "at most, of 0...255" in result.stdout
    save_file(build_small("resnet18").state_dict(), tmp_path / "resnet.safetensors")
    result = run("style.py", picture, "--weights", tmp_path / "resnet.safetensors", "--output", out)
    assert result.returncode == 1
    assert 'those of resnet18, not of "style_transfer"' in result.stderr
    result = run("style.py", "--repeat", "0")
    assert result.returncode == 2
    assert "--repeat: 0 is less than the minimum (1)" in result.stderr


def test_a_difference_from_pytorch_is_noticed(
    tmp_path: Path, picture: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = module_of("style.py", monkeypatch)
    arguments = [str(picture), "--width", "8", "--repeat", "1", "--output", str(tmp_path / "out.png")]
    assert demo.main(arguments) == 0
    model = importlib.import_module("model")
    monkeypatch.setattr(model, "functional", Replicated(model.functional))
    assert demo.main(arguments) == 1
    assert "the difference from PyTorch" in capsys.readouterr().err


class Replicated:
    """torch.nn.functional with padding that repeats the edge."""

    def __init__(self, functional: ModuleType) -> None:
        self._functional = functional

    def __getattr__(self, name: str) -> Any:
        return getattr(self._functional, name)

    def pad(self, x: torch.Tensor, pads: list[int], mode: str) -> torch.Tensor:
        assert mode == "reflect"
        padded: torch.Tensor = self._functional.pad(x, pads, mode="replicate")
        return padded


# ---- segment.py with a network of the user's


def test_segment_by_an_onnx_model(tmp_path: Path, picture: Path) -> None:
    """Three classes: the channel with the highest value."""
    onnx = pytest.importorskip("onnx")
    weight = onnx.numpy_helper.from_array(np.eye(3, dtype=np.float32)[:, :, None, None], "weight")
    shape = ["n", 3, "h", "w"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Conv", ["x", "weight"], ["y"])],
        "argmax",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)],
        [weight],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), tmp_path / "net.onnx")
    out = tmp_path / "out.png"
    given = [picture, "--weights", tmp_path / "net.onnx", "--size", 96, "--output", out]
    plain = [*given, "--mean", 0, 0, 0, "--std", 1, 1, 1, "--json"]
    result = run("segment.py", *plain)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    with Image.open(picture) as opened:
        resized = np.asarray(opened.resize((128, 96), Image.Resampling.BILINEAR))
    numbers, counts = np.unique(resized.argmax(2), return_counts=True)
    expected = {str(number): round(count / (96 * 128), 4) for number, count in zip(numbers, counts, strict=True)}
    assert report["share"] == pytest.approx(expected, abs=1e-3)
    with Image.open(out) as drawn:
        assert drawn.size == (2 * 128 + 6, 96 + 28)
    assert "Class 1" in run("segment.py", *given).stdout


def test_segment_says_what_is_wrong(tmp_path: Path, picture: Path) -> None:
    save_file(build_small("resnet18").state_dict(), tmp_path / "resnet.safetensors")
    for arguments, status, message in (
        ([picture], 2, "a photograph and --weights go together"),
        (["--epochs", 0], 2, "0 is less than the minimum (1)"),
        ([picture, "--weights", tmp_path / "none.safetensors"], 1, "No such file"),
        ([picture, "--weights", tmp_path / "resnet.safetensors", "--size", 64], 1, "does not label pixels"),
        ([tmp_path / "none.png", "--weights", tmp_path / "resnet.safetensors"], 1, "cannot be read"),
    ):
        result = run("segment.py", *arguments)
        assert (result.returncode, result.stdout) == (status, ""), result.stderr
        assert message in result.stderr
        assert "Traceback" not in result.stderr


# ---- metal_function.py


def test_metal_function(tmp_path: Path, picture: Path) -> None:
    output = tmp_path / "out.png"
    result = run("metal_function.py", picture, "--radius", 2, "--repeat", 1, "--output", output, "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["size"] == [90, 120]
    assert 0 <= report["difference_from_numpy"] < 1e-5
    with Image.open(output) as drawn, Image.open(picture) as opened:
        both, original = np.asarray(drawn).astype(int), np.asarray(opened).astype(int)
    assert both.shape == (28 + 90, 2 * 120 + 6, 3)
    before, after = both[30:-2, 2:118], both[30:-2, 128:244]
    # Less noise than before, and still the same picture.
    assert np.abs(after - original[2:-2, 2:-2]).mean() < 0.85 * np.abs(before - original[2:-2, 2:-2]).mean()


def test_a_difference_from_numpy_is_noticed(
    tmp_path: Path, picture: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = module_of("metal_function.py", monkeypatch)
    arguments = [str(picture), "--repeat", "1", "--radius", "1", "--output", str(tmp_path / "out.png"), "--json"]
    assert program.main(arguments) == 0
    monkeypatch.setattr(program, "SOURCE", program.SOURCE.replace("2 * options.space", "3 * options.space"))
    assert program.main(arguments) == 1
    assert "the difference from NumPy" in capsys.readouterr().err


def test_metal_function_without_a_compiler(tmp_path: Path, picture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPSCNN_METAL_COMPILER", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = run("metal_function.py", picture, "--output", tmp_path / "out.png")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("metal_function: ")
    assert "Traceback" not in result.stderr


# ---- all


MODULES = {"needs.py", "shared.py", "yolo.py"}  # of programs


@pytest.mark.parametrize("program", sorted({path.name for path in EXAMPLES.glob("*.py")} - MODULES))
def test_help(program: str) -> None:
    result = run(program, "--help")
    assert result.returncode == 0, result.stderr
    assert "usage: " in result.stdout
    assert "--json" in result.stdout


# ---- node_graph.py


def test_node_graph(tmp_path: Path) -> None:
    output = tmp_path / "out.png"
    result = run("node_graph.py", "--output", output, "--rounds", 2, "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["psnr"] > found["psnr_bicubic"] + 0.5
    assert found["difference"] < 1e-5
    with Image.open(output) as opened:
        assert opened.size == (3 * 450 + 2 * 6, 300 + 64)  # captions in proportion
    shown = run("node_graph.py", "--output", output, "--rounds", 1)
    assert "MPSCNNConvolutionNodes" in shown.stdout


def test_node_graph_refuses(tmp_path: Path) -> None:
    result = run("node_graph.py", tmp_path / "missing.png")
    assert (result.returncode, result.stdout) == (1, "")
    assert "missing.png" in result.stderr
    assert "--rounds: 0 is less than the minimum (1)" in run("node_graph.py", "--rounds", "0").stderr
