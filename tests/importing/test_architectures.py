# SPDX-License-Identifier: Apache-2.0
"""Networks recognized by their weights alone, with the names of several libraries, against PyTorch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn

import mpscnn
from architectures import ARCHITECTURES, build_small, example
from interpreter import interpret
from mpscnn.importing.architectures import FAMILIES, Architecture, detect, read
from mpscnn.importing.weights_files import load

State = dict[str, Tensor]
KNOWN = [
    *(name for name in ARCHITECTURES if re.match("resne|wide|mobilenet_v2|vgg|squeeze", name)),
    "espcn",
    "style_transfer",
]


def renamed(state: Mapping[str, Tensor], *rules: tuple[str, str | Callable[[re.Match[str]], str]]) -> State:
    """Return the tensors with each name replaced by the first rule that matches."""
    found = {}
    for name, tensor in state.items():
        for pattern, replacement in rules:
            new, count = re.subn(pattern, replacement, name)
            if count:
                break
        else:
            raise AssertionError(name)
        assert new not in found, new
        found[new] = tensor
    return found


def close(result: NDArray[np.float32], module: nn.Module, x: Tensor, *, margin: float = 12) -> None:
    """Assert that the error is at most `margin` times that of PyTorch in float32, plus a few roundings."""
    with torch.no_grad():
        single, exact = module(x).numpy(), module.double()(x.double()).numpy()
    module.float()
    assert result.shape == exact.shape
    size = np.abs(exact).max()
    limit = margin * np.abs(single - exact).max() / size + 3e-6
    assert limit < 3e-4
    np.testing.assert_allclose(result / size, exact / size, rtol=0, atol=limit)


def only(results: dict[str, NDArray[Any]]) -> NDArray[Any]:
    (result,) = results.values()
    return result


def check(module: nn.Module, weights: Any, x: Tensor, **options: Any) -> mpscnn.Graph:
    graph = read(weights, input_shapes=tuple(x.shape), **options)
    close(only(interpret(graph, input=x.numpy())), module, x)
    return graph


@pytest.mark.parametrize("name", KNOWN)
def test_torchvision(name: str) -> None:
    module = build_small(name)
    state = module.state_dict()
    x = example(name, seed=1, batch=2)
    found = detect(state)
    assert found.name == {"espcn": "espcn_x3"}.get(name, name)
    assert found.prefix == ""
    graph = check(module, state, x)
    assert [spec.layout for spec in graph.inputs.values()] == ["NCHW"]
    close(mpscnn.Network(graph)(x.numpy()), module, x)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "squeezenet1_1", "espcn", "style_transfer"])
def test_other_sizes(name: str) -> None:
    """Imported at one size, run at others."""
    module = build_small(name)
    net = mpscnn.Network(read(module.state_dict()))
    for size in ((64, 64), (75, 92), (66, 101)):
        x = example(name, seed=2, size=size)
        close(net(x.numpy()), module, x)


def test_vgg_pools_images_of_any_size() -> None:
    module = build_small("vgg11")
    net = mpscnn.Network(read(module.state_dict(), input_shapes=(1, 3, 96, 64)))
    for size in ((96, 64), (64, 64), (130, 70)):
        x = example("vgg11", size=size)
        close(net(x.numpy()), module, x)


def test_detected_architecture() -> None:
    state = build_small("resnet50").state_dict()
    parallel = {f"module.{name}": tensor for name, tensor in state.items()}
    assert detect(parallel) == Architecture("resnet", "resnet50", "torchvision or timm", "module.")
    assert detect({name: tuple(tensor.shape) for name, tensor in state.items()}).name == "resnet50"
    assert set(FAMILIES) == {"resnet", "mobilenet_v2", "squeezenet", "vgg", "style_transfer", "espcn"}


@pytest.mark.parametrize("prefix", ["module.", "model.", "module.model.", "backbone.net."])
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "squeezenet1_1", "vgg11", "espcn", "style_transfer"])
def test_prefixes(name: str, prefix: str) -> None:
    module = build_small(name)
    state = {prefix + key: tensor for key, tensor in module.state_dict().items()}
    assert detect(state).prefix == prefix
    check(module, state, example(name))


# ---- Hugging Face's names

RESNET_TO_HUGGING_FACE: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
    (r"^conv1\.", "resnet.embedder.embedder.convolution."),
    (r"^bn1\.", "resnet.embedder.embedder.normalization."),
    (r"^fc\.", "classifier.1."),
    *[
        (
            rf"^layer(\d)\.(\d+)\.{ours}\.",
            lambda match, theirs=theirs: f"resnet.encoder.stages.{int(match[1]) - 1}.layers.{match[2]}.{theirs}.",
        )
        for ours, theirs in {
            "conv1": "layer.0.convolution",
            "bn1": "layer.0.normalization",
            "conv2": "layer.1.convolution",
            "bn2": "layer.1.normalization",
            "conv3": "layer.2.convolution",
            "bn3": "layer.2.normalization",
            r"downsample\.0": "shortcut.convolution",
            r"downsample\.1": "shortcut.normalization",
        }.items()
    ],
]


@pytest.mark.parametrize(
    ("name", "options", "config"),
    [
        ("resnet18", {}, {}),
        ("resnet50", {}, {"hidden_act": "relu", "downsample_in_first_stage": False}),
        ("resnet50", {"first_stride": 2}, {"downsample_in_first_stage": True}),
        ("resnet18", {"first_stride": 2}, {"downsample_in_first_stage": True}),
        ("resnet50", {"stride_in_first": True}, {"downsample_in_bottleneck": True}),
        ("resnet50", {"activation": "gelu"}, {"hidden_act": "gelu"}),
    ],
)
def test_resnet_of_transformers(tmp_path: Path, name: str, options: dict[str, Any], config: dict[str, Any]) -> None:
    module = build_small(name, **options)
    x = example(name, seed=1, size=(64, 71))
    state = renamed(module.state_dict(), *RESNET_TO_HUGGING_FACE)
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({key: tensor.contiguous() for key, tensor in state.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "resnet", **config}))
    assert detect(load(folder)) == Architecture("resnet", name, "transformers", "")
    check(module, load(folder), x)
    check(module, str(folder), x)


def mobilenet_to_hugging_face(state: Mapping[str, Tensor]) -> State:
    def of_block(match: re.Match[str]) -> str:
        block, rest = int(match[1]), match[2]
        parts = {"0.0": "expand_1x1.c", "0.1": "expand_1x1.n", "1.0": "conv_3x3.c", "1.1": "conv_3x3.n"}
        parts |= {"2": "reduce_1x1.c", "3": "reduce_1x1.n"}
        if block == 1:
            parts = {"0.0": "conv_3x3.c", "0.1": "conv_3x3.n", "1": "reduce_1x1.c", "2": "reduce_1x1.n"}
        part = parts[rest].replace(".c", ".convolution").replace(".n", ".normalization")
        return f"mobilenet_v2.{'conv_stem' if block == 1 else f'layer.{block - 2}'}.{part}."

    return renamed(
        state,
        (r"^features\.0\.0\.", "mobilenet_v2.conv_stem.first_conv.convolution."),
        (r"^features\.0\.1\.", "mobilenet_v2.conv_stem.first_conv.normalization."),
        (r"^features\.18\.0\.", "mobilenet_v2.conv_1x1.convolution."),
        (r"^features\.18\.1\.", "mobilenet_v2.conv_1x1.normalization."),
        (r"^features\.(\d+)\.conv\.(\d\.\d|\d)\.(?=[a-z])", of_block),
        (r"^classifier\.1\.", "classifier."),
    )


@pytest.mark.parametrize("size", [(64, 64), (65, 65), (67, 94)])
@pytest.mark.parametrize(
    ("options", "config"),
    [
        ({"same": True, "epsilon": 1e-3}, {}),
        ({"same": True, "epsilon": 0.02, "multiplier": 0.35}, {"layer_norm_eps": 0.02, "tf_padding": True}),
        ({"epsilon": 1e-3}, {"tf_padding": False}),
        ({"same": True, "epsilon": 1e-3, "output_stride": 16}, {"output_stride": 16}),
        ({"same": True, "epsilon": 1e-3, "output_stride": 8}, {"output_stride": 8, "hidden_act": "relu6"}),
    ],
)
def test_mobilenet_of_transformers(size: tuple[int, int], options: dict[str, Any], config: dict[str, Any]) -> None:
    """The position of an odd pixel in TensorFlow's padding depends on the size."""
    module = build_small("mobilenet_v2", **options)
    state = mobilenet_to_hugging_face(module.state_dict())
    weights = WithConfig(state, config)
    x = example("mobilenet_v2", seed=1, size=size)
    assert detect(weights).naming == "transformers"
    graph = read(weights)
    assert all(spec.height is None for spec in graph.inputs.values())
    close(only(interpret(graph, input=x.numpy())), module, x)


class WithConfig(dict[str, Any]):
    """A state_dict from a folder with a config.json."""

    def __init__(self, state: Mapping[str, Any], config: dict[str, Any]) -> None:
        super().__init__(state)
        self.config = config


def test_backbones_of_transformers() -> None:
    """ResNetModel and MobileNetV2Model alone: the same names without the prefix, and no classifier."""
    for name, rename in (
        ("resnet18", lambda s: renamed(s, *RESNET_TO_HUGGING_FACE)),
        ("mobilenet_v2", mobilenet_to_hugging_face),
    ):
        options = {"same": True, "epsilon": 1e-3} if name == "mobilenet_v2" else {}
        module = build_small(name, **options)
        state = {key: tensor for key, tensor in rename(module.state_dict()).items() if not key.startswith("classifier")}
        state = {key.partition(".")[2]: tensor for key, tensor in state.items()}
        x = example(name, seed=1)
        graph = read(state)
        assert list(graph.outputs) == ["features"]
        setattr(module, "fc" if name == "resnet18" else "classifier", nn.Identity())
        close(only(interpret(graph, input=x.numpy())), module, x)


# ---- timm's names


def mobilenet_to_timm(state: Mapping[str, Tensor], counts: tuple[int, ...] = (1, 2, 3, 4, 3, 3, 1)) -> State:
    places = [(stage, block) for stage, count in enumerate(counts) for block in range(count)]

    def of_block(match: re.Match[str]) -> str:
        stage, block = places[int(match[1]) - 1]
        parts = {"0.0": "conv_pw", "0.1": "bn1", "1.0": "conv_dw", "1.1": "bn2", "2": "conv_pwl", "3": "bn3"}
        if stage == 0:
            parts = {"0.0": "conv_dw", "0.1": "bn1", "1": "conv_pw", "2": "bn2"}
        return f"blocks.{stage}.{block}.{parts[match[2]]}."

    return renamed(
        state,
        (r"^features\.0\.0\.", "conv_stem."),
        (r"^features\.0\.1\.", "bn1."),
        (rf"^features\.{len(places) + 1}\.0\.", "conv_head."),
        (rf"^features\.{len(places) + 1}\.1\.", "bn2."),
        (r"^features\.(\d+)\.conv\.(\d\.\d|\d)\.(?=[a-z])", of_block),
        (r"^classifier\.1\.", "classifier."),
    )


@pytest.mark.parametrize("multiplier", [0.1, 0.35, 1.0, 1.4])
def test_mobilenet_of_any_width(multiplier: float) -> None:
    module = build_small("mobilenet_v2", multiplier=multiplier)
    x = example("mobilenet_v2", seed=1, size=(50, 65))
    check(module, module.state_dict(), x)
    state = mobilenet_to_timm(module.state_dict())
    assert detect(state).naming == "timm"
    check(module, state, x)


def test_a_deeper_mobilenet_of_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    """mobilenetv2_110d: the names tell the stage of each block."""
    from architectures import mobilenet

    setting = tuple(
        (*row[:2], count, row[3]) for row, count in zip(mobilenet.SETTING, (1, 3, 4, 5, 4, 4, 1), strict=True)
    )
    monkeypatch.setattr(mobilenet, "SETTING", setting)
    module = build_small("mobilenet_v2", multiplier=0.5)
    check(module, mobilenet_to_timm(module.state_dict(), (1, 3, 4, 5, 4, 4, 1)), example("mobilenet_v2"))


@pytest.mark.parametrize("size", [(64, 64), (67, 71)])
@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_resnet_of_timm(name: str, size: tuple[int, int]) -> None:
    """resnet50d and similar: a stem of three convolutions, an average in each shortcut."""
    for stem, averages, suffix in (
        ((24, 32), True, "t"),
        ((32, 32), True, "d"),
        ((32, 32), False, "c"),
        ((8, 8), False, "_deep"),
    ):
        module = build_small(name, stem=stem, average_shortcut=averages)
        assert detect(module.state_dict()).name == name + suffix
        check(module, module.state_dict(), example(name, seed=1, size=size), architecture=name + suffix)


class TimmVGG(nn.Module):
    """timm's classifier of VGG: convolutions, then the mean."""

    def __init__(self, vgg: nn.Module) -> None:
        super().__init__()
        self.features = vgg.features
        first, second, last = (vgg.classifier[index] for index in (0, 3, 6))
        self.pre_logits, self.head = nn.Module(), nn.Module()
        inputs = first.in_features // 49
        self.pre_logits.fc1, self.pre_logits.fc2 = nn.Conv2d(inputs, 48, 7), nn.Conv2d(48, 48, 1)
        self.head.fc = last
        with torch.no_grad():
            for conv, linear in ((self.pre_logits.fc1, first), (self.pre_logits.fc2, second)):
                conv.weight.copy_(linear.weight.view(conv.weight.shape))
                conv.bias.copy_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        if min(x.shape[2:]) < 7:
            x = nn.functional.adaptive_avg_pool2d(x, (max(7, x.shape[2]), max(7, x.shape[3])))
        x = torch.relu(self.pre_logits.fc2(torch.relu(self.pre_logits.fc1(x))))
        return self.head.fc(x.mean((2, 3)))


@pytest.mark.parametrize("name", ["vgg11", "vgg16_bn"])
def test_vgg_of_timm(name: str) -> None:
    module = TimmVGG(build_small(name)).eval()
    assert detect(module.state_dict()).name == name
    x = example(name, seed=1, size=(224, 256))
    graph = check(module, module.state_dict(), x)
    assert next(iter(graph.inputs.values())).height is None
    check(module, module.state_dict(), example(name, seed=1, size=(64, 256)))


# ---- without a classifier, other files


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_pooled_features(name: str) -> None:
    module = build_small(name)
    setattr(module, {"resnet18": "fc", "mobilenet_v2": "classifier"}[name], nn.Identity())
    graph = check(module, module.state_dict(), example(name))
    assert list(graph.outputs) == ["features"]


@pytest.mark.parametrize("name", ["vgg13_bn", "squeezenet1_0"])
def test_features_as_an_image(name: str) -> None:
    module = build_small(name).features
    state = {f"features.{key}": tensor for key, tensor in module.state_dict().items()}
    x = example(name, seed=1, size=(80, 96))
    graph = read(state)
    assert list(graph.outputs) == ["features"]
    close(only(interpret(graph, input=x.numpy())), module, x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes(tmp_path: Path, dtype: torch.dtype) -> None:
    """16-bit weights are converted exactly."""
    module = build_small("mobilenet_v2").to(dtype)
    state = module.state_dict()
    torch.save(state, tmp_path / "model.pt")
    module.float()
    x = example("mobilenet_v2")
    check(module, state, x)
    check(module, load(tmp_path / "model.pt"), x)


def test_files_of_every_kind(tmp_path: Path) -> None:
    module = build_small("squeezenet1_1")
    state = module.state_dict()
    x = example("squeezenet1_1")
    torch.save(
        {"state_dict": {f"module.{name}": tensor for name, tensor in state.items()}, "epoch": 90}, tmp_path / "a.pth"
    )
    save_file(state, tmp_path / "a.safetensors")
    np.savez(tmp_path / "a.npz", **{name: tensor.numpy() for name, tensor in state.items()})
    for file in ("a.pth", "a.safetensors", "a.npz"):
        check(module, tmp_path / file, x)
        close(mpscnn.load(tmp_path / file, input_shapes=tuple(x.shape))(x.numpy()), module, x)


def test_weights_of_a_file_are_not_copied(tmp_path: Path) -> None:
    save_file(build_small("resnet18").state_dict(), tmp_path / "a.safetensors")
    weights = load(tmp_path / "a.safetensors")
    graph = read(weights)
    assert graph.node("layer1.0.conv1").arguments["weight"].ctypes.data == weights["layer1.0.conv1.weight"].ctypes.data


# ---- ESPCN and style transfer


@pytest.mark.parametrize(
    ("names", "bounded"),
    [
        (("first_part.0", "first_part.2", "last_part.0"), False),
        (("feature_maps.0", "feature_maps.2", "sub_pixel.0"), True),
    ],
)
def test_espcn_of_others(names: tuple[str, str, str], bounded: bool) -> None:
    module = build_small("espcn", widths=(16, 8), kernels=(5, 3, 3), activation="tanh", factor=2)
    rules = [(rf"^conv{index + 1}\.", f"{name}.") for index, name in enumerate(names)]
    x = example("espcn", seed=1)
    result = only(interpret(read(renamed(module.state_dict(), *rules)), input=x.numpy()))
    with torch.no_grad():
        expected = module(x)
    if bounded:
        assert float(expected.min()) < 0
        assert float(expected.max()) > 1
        expected = expected.clamp(0, 1)
    np.testing.assert_allclose(result, expected.numpy(), rtol=0, atol=2e-6)


def test_espcn_of_colours() -> None:
    module = build_small("espcn", channels=3, factor=2, widths=(8, 8, 8, 8), kernels=(5, 3, 3, 3, 3))
    x = torch.rand(2, 3, 17, 22)
    assert detect(module.state_dict()).name == "espcn_x2"
    check(module, module.state_dict(), x)


def test_the_network_of_the_example() -> None:
    file = Path(__file__).resolve().parents[2] / "examples" / "super_resolution" / "espcn_x2.safetensors"
    assert detect(load(file)) == Architecture("espcn", "espcn_x2", "pytorch/examples", "")


def test_statistics_of_old_files_of_style_transfer() -> None:
    module = build_small("style_transfer")
    state = module.state_dict()
    for layer, channels in (("in1", 8), ("res1.in2", 32)):
        state |= {f"{layer}.running_mean": torch.ones(channels), f"{layer}.running_var": torch.ones(channels)}
    check(module, state, example("style_transfer"))


# ---- refusals


def altered(name: str, **changes: Any) -> dict[str, Any]:
    """Return the state_dict of a small network with tensors replaced, added, or (None) removed; "__" is "."."""
    state: dict[str, Any] = dict(build_small(name).state_dict())
    for key, value in changes.items():
        if value is None:
            del state[key.replace("__", ".")]
        else:
            state[key.replace("__", ".")] = value
    return state


@pytest.mark.parametrize(
    ("name", "changes", "match"),
    [
        (
            "resnet18",
            {"layer2__1__bn2__bias": None, "layer2__1__bn2__weight": None, "layer2__1__bn2__running_var": None},
            r'tensor "layer2\.1\.bn2\.running_var" is missing: resnet18 \(torchvision or timm\) has it',
        ),
        (
            "resnet18",
            {"layer2__0__downsample__0__weight": None, "layer2__0__downsample__1__weight": None},
            r'tensor "layer2\.0\.downsample\.0\.weight" is missing',
        ),
        (
            "resnet18",
            {"layer1__0__conv2__weight": torch.ones(16, 12, 3, 3)},
            r'"layer1\.0\.conv2\.weight" takes 12 channels, no divisor of the 16',
        ),
        (
            "resnet18",
            {"layer1__0__conv2__weight": torch.ones(20, 16, 3, 3)},
            r'"layer1\.0\.bn2\.running_mean" has the shape \(16,\); the layers before it ask for \(20,\)',
        ),
        ("resnet18", {"layer1__0__conv1__weight": torch.ones(16, 16)}, r"of shape \(16, 16\) has 2 axes; .* with 4"),
        (
            "resnet18",
            {"conv1__weight": torch.ones(16, 3, 3, 3)},
            r"convolution of 3 x 3 pixels: its stride is not known",
        ),
        ("resnet18", {"fc__weight": torch.ones(10, 99)}, r'"fc\.weight" has the shape \(10, 99\); .* \(10, 128\)'),
        (
            "resnet18",
            {"layer1__0__se__fc1__weight": torch.ones(3)},
            r'1 tensors are not of resnet18 \(torchvision or timm\): "layer1\.0\.se\.fc1\.weight"\. It is another',
        ),
        (
            "resnet18",
            {"conv1__weight": torch.ones(16, 3, 7, 7, dtype=torch.int8)},
            r'"conv1\.weight" has the dtype int8, not',
        ),
        (
            "mobilenet_v2",
            {"features__9__conv__1__0__weight": torch.ones(384, 2, 3, 3)},
            r'"features\.9\.conv\.1\.0\.weight" has the shape \(384, 2, 3, 3\); .* \(384, 1, 3, 3\)',
        ),
        (
            "resnet50",
            {"layer2__1__conv2__weight": torch.ones(32, 32, 5, 5)},
            r'"layer2\.1\.conv2\.weight" is a convolution of 5 x 5 pixels; resnet50 .* has it with 3 x 3',
        ),
        ("mobilenet_v2", {"features__9__conv__2__weight": None}, r'"features\.9\.conv\.2\.weight" is missing'),
        (
            "mobilenet_v2",
            {"features__9__conv__2__weight": torch.ones(63, 384, 1, 1)},
            r"not the weights of an architecture that is known",
        ),
        (
            "vgg11",
            {"features__3__weight": None, "features__3__bias": None},
            r"features\.6, are not as far apart as in vgg",
        ),
        ("vgg11", {"classifier__3__weight": None}, r'"classifier\.3\.weight" is missing'),
        ("squeezenet1_1", {"features__4__expand3x3__weight": None}, r'"features\.4\.expand3x3\.weight" is missing'),
        ("style_transfer", {"in4__weight": None}, r'"in4\.weight" is missing'),
        ("style_transfer", {"other__running_mean": torch.ones(1)}, r'1 tensors are not of .*"other\.running_mean"'),
        (
            "espcn",
            {"conv4__weight": torch.ones(8, 32, 3, 3)},
            r"makes 8 channels, not the 1 of the source times a square",
        ),
        ("resnet18", {"epoch": 3}, r'"epoch" \(int\) is not a tensor'),
    ],
)
def test_tensors_that_do_not_fit(name: str, changes: dict[str, Any], match: str) -> None:
    with pytest.raises(mpscnn.InvalidModelError, match=match):
        read(altered(name, **changes))


@pytest.mark.parametrize(
    ("state", "match"),
    [
        ({}, r"known \(resnet, mobilenet_v2, squeezenet, vgg, style_transfer, espcn\)\. There are no tensors\."),
        (
            {f"encoder.{index}.weight": torch.ones(2) for index in range(12)},
            r'The first tensors are "encoder\.0\.weight", .* and 4 more',
        ),
        (
            {"features.0.weight": torch.ones(64, 3, 11, 11), "features.0.bias": torch.ones(64)},
            "AlexNet|not the weights of",
        ),
        (
            {
                "conv1.weight": torch.ones(6, 1, 5, 5),
                "conv2.weight": torch.ones(16, 6, 5, 5),
                "fc1.weight": torch.ones(1),
            },
            "known",
        ),
    ],
)
def test_another_architecture(state: State, match: str) -> None:
    for function in (detect, read):
        with pytest.raises(mpscnn.InvalidModelError, match=match):
            function(state)


@pytest.mark.parametrize(
    "changes",
    [
        {"features__9__conv__1__0__weight": torch.ones(384, 1, 5, 5)},
        {"features__9__conv__1__0__weight": torch.ones(192, 1, 3, 3)},
        {"features__17__conv__2__weight": torch.ones(160, 960, 1, 1)},
    ],
)
def test_relatives_of_mobilenet(changes: dict[str, Tensor]) -> None:
    """MNASNet in timm has these names, kernels of 5x5, other expansions, and ReLU."""
    with pytest.raises(mpscnn.InvalidModelError, match="not the weights of an architecture that is known"):
        detect(altered("mobilenet_v2", **changes))


@pytest.mark.parametrize("name", ["densenet121", "inception_v3", "unet", "yolo_tiny"])
def test_networks_that_are_not_known(name: str) -> None:
    with pytest.raises(mpscnn.InvalidModelError, match="not the weights of an architecture that is known"):
        detect(build_small(name).state_dict())


def test_arguments() -> None:
    state = build_small("resnet18").state_dict()
    with pytest.raises(mpscnn.InvalidModelError, match=r'the tensors are those of resnet18, not of "vgg16"'):
        read(state, "vgg16")
    assert len(read(state, "resnet")) == len(read(state, "resnet18"))
    with pytest.raises(TypeError, match=r"tf_padding is no option of resnet18: it has epsilon, activation"):
        read(state, tf_padding=True)
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=r"frelu \(1\):\n.*is not one of relu, relu6") as caught:
        read(state, activation="frelu")
    assert caught.value.nodes[0][0] == "frelu"
    for shapes, match in (
        ((1, 4, 64, 64), r"4 channels are not the 3"),
        ((3, 64, 64), r"\(3, 64, 64\) is not \(batch, channels, height, width\)"),
        ((1, 3, 64, 0), r"\(1, 3, 64, 0\) is not \(batch"),
        ({"x": (1, 3, 64, 64)}, r"names \['x'\]; there is one input"),
    ):
        with pytest.raises(ValueError, match=match):
            read(state, input_shapes=shapes)
    read(state, input_shapes={"input": (1, 3, 64, 64)})


@pytest.mark.parametrize(
    ("config", "error", "match"),
    [
        ({"hidden_act": 5}, mpscnn.InvalidModelError, r"hidden_act \(5\) is not of the type str"),
        ({"hidden_act": "mish"}, mpscnn.UnsupportedOperatorError, r"mish \(1\)"),
        (
            {"downsample_in_bottleneck": 1},
            mpscnn.InvalidModelError,
            r"downsample_in_bottleneck \(1\) is not of the type bool",
        ),
        (
            {"architecture": "resnetblur50"},
            mpscnn.UnsupportedOperatorError,
            r"it has the tensors of a resnet, and other",
        ),
        (
            {"architecture": "seresnetaa50d"},
            mpscnn.UnsupportedOperatorError,
            r"it has the tensors of a resnet, and other",
        ),
    ],
)
def test_configurations_that_are_refused(config: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        read(WithConfig(build_small("resnet18").state_dict(), config))


def test_output_strides() -> None:
    state = mobilenet_to_hugging_face(build_small("mobilenet_v2").state_dict())
    with pytest.raises(mpscnn.InvalidModelError, match=r"output_stride \(4\) is not one of 8, 16, 32"):
        read(WithConfig(state, {"output_stride": 4}))


def _espcn() -> dict[str, Any]:
    return ARCHITECTURES["espcn"].make(**ARCHITECTURES["espcn"].small).state_dict()


def test_options_are_passed() -> None:
    state = _espcn()
    kernels = [node.kernel for node in mpscnn.importing.read(state, options={"activation": "tanh"})]
    assert "NeuronTanH" in kernels
    assert "NeuronTanH" not in [node.kernel for node in mpscnn.importing.read(state, options={"activation": "relu"})]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tf_padding": True}, "tf_padding is no option of espcn_x.: it has activation, bounded, factor"),
        ({"factor": "3"}, r"factor \(str\) is not an int"),
        ({"bounded": 1}, r"bounded \(int\) is not a bool"),
        ({3: 1}, r"name of an option \(int\) is not a str"),
    ],
)
def test_wrong_options(options: dict[Any, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        mpscnn.load(_espcn(), options=options)


def test_options_of_others() -> None:
    module = torch.nn.Conv2d(1, 4, 3)
    graph = mpscnn.importing.read(module, input_shapes=(1, 1, 6, 5), options={"free_size": False})
    assert (graph.inputs["input"].height, graph.inputs["input"].width) == (6, 5)
    with pytest.raises(TypeError, match="epsilon is no option of modules: they have free_size"):
        mpscnn.load(module, input_shapes=(1, 1, 6, 5), options={"epsilon": 1e-3})
    with pytest.raises(TypeError, match="options was given; lists of layers take none"):
        mpscnn.load({}, layers=[("relu", "ReLU")], input_shapes=(1, 3), options={"epsilon": 1e-3})
