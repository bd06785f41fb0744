# SPDX-License-Identifier: Apache-2.0
"""PyTorch's layers and functions in a trained module: PyTorch's results after three steps, or refused by name.

The table of docs/training.md is generated from these rows.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from training_support import Theirs, arrays, assert_same_parameters, output_shape, randomize, sgd

import mpscnn
from mpscnn.importing.layer_list import LAYERS
from support import random

IMAGES, SEQUENCES, VECTORS = (3, 3, 8, 6), (3, 3, 10), (4, 5)
DOCS = Path(__file__).parents[2] / "docs" / "training.md"

# Operations between two layers with parameters, by groups, with PyTorch's results. x has 8 channels, y is a convolution
# of it. They are images; sequences with "1d" in the name, vectors after "vectors: ".
TRAINED: dict[str, list[str]] = {
    "convolutions, linear layers": [
        "Conv2d(8, 6, 3)", "Conv2d(8, 8, 3, 2, 1, groups=2)", "Conv2d(8, 8, 3, dilation=2)",
        "Conv2d(8, 8, 3, groups=8)", 'Conv2d(8, 8, 3, padding=1, padding_mode="reflect")',
        "Conv1d(8, 6, 3)", "ConvTranspose2d(8, 4, 3, 2)",
        "ConvTranspose2d(8, 8, 3, groups=2)", "ConvTranspose1d(8, 4, 3, 2)", "vectors: Linear(8, 6)",
    ],
    "pooling": [
        "MaxPool2d(3, 2, ceil_mode=True)", "MaxPool2d(2, 1, dilation=2)", "MaxPool1d(2)", "AvgPool2d(3, 2, 1)",
        "AvgPool2d(2, divisor_override=3)", "AvgPool1d(2)", "LPPool2d(2, 2)", "AdaptiveAvgPool2d(1)",
        "AdaptiveAvgPool2d((4, 3))", "AdaptiveMaxPool2d((2, 3))", "AdaptiveAvgPool1d(1)", "AdaptiveMaxPool1d(5)",
    ],
    "normalization": [
        "BatchNorm2d(8)", "BatchNorm2d(8, affine=False)", "BatchNorm1d(8)", "vectors: BatchNorm1d(8)",
        "InstanceNorm2d(8)", "InstanceNorm2d(8, affine=True)", "InstanceNorm1d(8, affine=True)", "GroupNorm(2, 8)",
        "LayerNorm((8, 8, 6), elementwise_affine=False)", "vectors: LayerNorm(8)", "LocalResponseNorm(3)",
    ],
    "activation": [
        *(f"{kind}()" for kind in (
            "ReLU", "ReLU6", "SELU", "Sigmoid", "Hardsigmoid", "LogSigmoid", "Tanh", "SiLU", "Hardswish", "Mish",
            "Tanhshrink", "LeakyReLU", "ELU", "CELU", "GELU", "Hardtanh", "Softplus", "Softshrink", "Identity",
        )),
        'GELU("tanh")', "Threshold(0.1, 0.1)", "Softmax(1)", "LogSoftmax(1)", "Softmin(1)",
    ],
    "sizes, borders, order": [
        "Upsample(scale_factor=2)", 'Upsample(scale_factor=2, mode="bilinear")', "Upsample(scale_factor=0.5)",
        'Upsample(scale_factor=2, mode="bilinear", align_corners=True)', "ZeroPad2d((1, 2, 0, 1))", "ZeroPad1d(1)",
        "ConstantPad2d(1, 0.5)", "ReflectionPad2d(2)", "ReplicationPad2d(2)", "PixelShuffle(2)", "PixelUnshuffle(2)",
        "ChannelShuffle(2)", "Flatten()", "x.permute(0, 1, 3, 2)", "torch.cat([x, y], 1)", "torch.cat([x, y], 3)",
        "x[:, :, ::2, ::2]", "x.repeat(1, 1, 2, 1)", "x.index_select(1, torch.tensor([3, 1, 0, 2]))",
    ],
    "arithmetic": [
        "x + y", "x - y", "x * y", "torch.lerp(x, y, 0.3)", "1 - 2 * x / 3",
        "x * torch.arange(1.0, 9.0)[:, None, None]",
        "1 / (x.abs() + 1)", "x**2", "x.abs() ** 1.5", "(x.abs() + 1).sqrt()", "x.exp()", "(x.abs() + 1).log()",
        "x.clamp(-0.3, 0.4)",
    ],
    "reductions": [
        "x.mean((2, 3))", "x.mean(3, True)", "x.amax((2, 3))", "x.std((2, 3), keepdim=True)", "x.var((2, 3))",
    ],
}  # fmt: skip

GRADIENT = (
    r'^MPS has no gradient of "part[^"]*" \({}\).*: do without, or freeze all layers in front of it \(frozen\)\.$'
)
FORM = r'^"part\.weight" has shape .*, and the kernel has .*: MPS {}.* Give .*, or name "part" in frozen\.$'
NO_KERNEL = r"^Net: \d of its nodes? ha(s|ve) no kernel\.(.|\n)*part[^:]*: {}"
# Refused ones with the message: the Trainer's, or the importer's if networks have no such kernel at all.
FUNCTION = r'^MPS has no gradient of "part[^"]*" \(the Metal function \w+, which has no gradient\)'
REFUSED: dict[str, list[tuple[str, str]]] = {
    "convolutions, linear layers": [
        ("Conv2d(8, 8, 3, groups=4)", FORM.format("has groups of multiples of 4 channels")),
        ("ConvTranspose2d(8, 4, 3, dilation=2)", FORM.format("has no transposed convolution with a dilation")),
        ('Conv2d(8, 8, 3, padding=1, padding_mode="circular")', GRADIENT.format("Slice")),
        ("Linear(6, 4)", FUNCTION),
    ],
    "pooling": [
        ("AdaptiveAvgPool2d(5)", GRADIENT.format("ReduceColumnMean")),
        ("AdaptiveMaxPool2d(5)", GRADIENT.format("ReduceColumnMax")),
        ("FractionalMaxPool2d(2, output_size=3)", NO_KERNEL.format("no kernel computes this")),
    ],
    "normalization": [
        ("LayerNorm((8, 8, 6))", FORM.format("normalizes with one weight for each channel")),
        ("LayerNorm(6)", FUNCTION),
        ("vectors: RMSNorm(8)", GRADIENT.format("ReduceFeatureChannelsMean")),
        ("BatchNorm2d(8, track_running_stats=False)", NO_KERNEL.format(".* track_running_stats=False there are no")),
        ("InstanceNorm2d(8, track_running_stats=True)", r'^the module "part" \(InstanceNorm2d\) has running'),
    ],
    "activation": [
        ("PReLU()", r'^no kernel that MPS can train has "part\.weight": name what stays as it is in frozen\.$'),
        ("PReLU(8)", r'^MPS has no gradient of "part" \(NeuronPReLU, .*; in frozen they stay as they are\)\.$'),
        ("RReLU()", r'^the module "part" \(RReLU\) has random slopes in training, .*: give LeakyReLU\.$'),
        ("GLU(1)", GRADIENT.format("Slice")),
        ("Softsign()", GRADIENT.format("Divide")),
        ("Softmax(3)", GRADIENT.format("ReduceRowSum")),
        ("Hardshrink()", FUNCTION),
    ],
    "dropout": [
        (f"{kind}()", rf'^the module "part" \({kind}\) is gone from a traced graph: give a list of layers\.$')
        for kind in ("Dropout", "Dropout2d", "AlphaDropout")
    ],
    "sizes, borders, order": [
        ("Upsample(scale_factor=1.5)", GRADIENT.format("Slice")),
        ('Upsample(scale_factor=1.5, mode="bilinear")', GRADIENT.format("CropAndResizeBilinear")),
        ('Upsample(scale_factor=2, mode="bicubic")', FUNCTION),
        ("CircularPad2d(1)", GRADIENT.format("Slice")),
        ("x[:, :4]", GRADIENT.format("Slice")),
        ("x.flip(3)", FUNCTION),
    ],
    "arithmetic": [
        ("x / (y * y + 1)", GRADIENT.format("Divide")),
        ("torch.maximum(x, y)", r'^MPS has no gradient of "part[^"]*" \(Concatenate behind 1 channels'),
        ("x + torch.arange(48.0).reshape(8, 6)", GRADIENT.format("Slice")),
        ("x.sin()", FUNCTION),
    ],
    "reductions": [
        ("x.sum(3, True)", GRADIENT.format("ReduceRowSum")),
        ("x.amin(3, True)", GRADIENT.format("ReduceRowMin")),
        ("x.mean(1, True)", GRADIENT.format("ReduceFeatureChannelsMean")),
        ("x.argmax(1, True).float()", GRADIENT.format("ReduceFeatureChannelsArgumentMax")),
    ],
    "others": [
        ("Conv3d(8, 4, 1)", r'^MPS has no gradient of "part\.select" \(the Metal function rearrange, which has no'),
        ("LSTM(8, 5)", NO_KERNEL.format("no kernel computes this")),
    ],
}  # fmt: skip


class Function(nn.Module):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.other = text, nn.Conv2d(8, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        names = {"x": x, "torch": torch}
        if "y" in re.findall(r"\w+", self.text):
            names["y"] = self.other(x)
        return eval(self.text, names)  # type: ignore[no-any-return]  # rows above


class Wrapped(nn.Module):
    """For layers whose tensors have other axes, or that return several."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if isinstance(self.part, nn.LSTM):
            return self.part(x.transpose(1, 2))[0].transpose(1, 2)  # type: ignore[no-any-return]
        return self.part(x[:, :, None])[:, :, 0]  # type: ignore[no-any-return]


class Net(nn.Module):
    def __init__(self, text: str) -> None:
        super().__init__()
        kind = text.removeprefix("vectors: ")
        self.shape = SEQUENCES if "1d" in text or "LSTM" in text else VECTORS if kind != text else IMAGES
        first, last = {2: (nn.Linear, nn.Linear), 3: (nn.Conv1d, nn.Conv1d), 4: (nn.Conv2d, nn.Conv2d)}[len(self.shape)]
        self.first = first(self.shape[1], 8, *([3, 1, 1] if first is not nn.Linear else []))
        is_layer = re.match(r"[A-Z]\w*\(", kind) is not None
        part = eval(f"nn.{kind}", {"nn": nn}) if is_layer else Function(kind)  # rows above
        self.part = Wrapped(part) if isinstance(part, (nn.LSTM, nn.Conv3d)) else part
        if isinstance(part, Function) and "y" not in re.findall(r"\w+", kind):
            del part.other
        with torch.no_grad():
            y = self.part(self.first(torch.zeros(self.shape)))
        last = {2: nn.Linear, 3: nn.Conv1d, 4: nn.Conv2d}[y.ndim]
        self.last = last(y.shape[1], 2, *([1] if last is not nn.Linear else []))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.part(self.first(x)))  # type: ignore[no-any-return]


def trainer_of(module: Net, **options: object) -> mpscnn.Trainer:
    given = {"input_shapes": module.shape, "loss": "mean_squared_error", "optimizer": sgd(), **options}
    return mpscnn.Trainer(module, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [text for rows in TRAINED.values() for text in rows])
def test_as_in_pytorch(text: str) -> None:
    module = randomize(Net(text))
    assert isinstance(module, Net)
    before, result = arrays(module), output_shape(module, module.shape)
    trainer, theirs = trainer_of(module), Theirs(module, nn.functional.mse_loss)
    for seed in range(3):
        x, labels = random(module.shape, seed=seed), random(result, seed=50 + seed)
        expected = theirs.step(x, labels)
        assert abs(trainer.step(x, labels).loss - expected) <= 1e-5 * abs(expected), seed
    found = trainer.state_dict()
    assert_same_parameters(found, module, before, 3e-4)
    assert all((found[name] != before[name]).any() for name in ("first.weight", "last.weight"))


@pytest.mark.parametrize(("text", "match"), [row for rows in REFUSED.values() for row in rows])
def test_refused(text: str, match: str) -> None:
    """Refused instead of wrong: the missing feature, the name of the layer and advice."""
    with pytest.raises(NotImplementedError, match=match):
        trainer_of(Net(text))


@pytest.mark.parametrize("text", ["x[:, :4]", "x / (y * y + 1)", "x.sum(3, True)", "AdaptiveAvgPool2d(5)"])
def test_after_frozen_layers(text: str) -> None:
    """The advice of the error: after frozen layers, no gradient is needed."""
    module = randomize(Net(text))
    assert isinstance(module, Net)
    for part in (module.first, module.part):
        part.requires_grad_(False)
    before, result = arrays(module), output_shape(module, module.shape)
    trainer, theirs = trainer_of(module), Theirs(module, nn.functional.mse_loss)
    for seed in range(3):
        x, labels = random(module.shape, seed=seed), random(result, seed=50 + seed)
        expected = theirs.step(x, labels)
        assert abs(trainer.step(x, labels).loss - expected) <= 1e-5 * abs(expected), seed
    assert_same_parameters(trainer.state_dict(), module, before, 3e-4)


@pytest.mark.parametrize("text", ["Conv2d(8, 8, 3, groups=4)", "LayerNorm((8, 8, 6))", "PReLU()", "PReLU(8)"])
def test_frozen_themselves(text: str) -> None:
    """Gradients pass through them; their parameters stay constant, and are in the state_dict."""
    module = randomize(Net(text))
    assert isinstance(module, Net)
    if isinstance(module.part, nn.LayerNorm):
        nn.init.ones_(module.part.weight)
        nn.init.zeros_(module.part.bias)
    module.part.requires_grad_(False)
    before, result = arrays(module), output_shape(module, module.shape)
    trainer, theirs = trainer_of(module), Theirs(module, nn.functional.mse_loss)
    for seed in range(3):
        x, labels = random(module.shape, seed=seed), random(result, seed=50 + seed)
        expected = theirs.step(x, labels)
        assert abs(trainer.step(x, labels).loss - expected) <= 1e-5 * abs(expected), seed
    assert_same_parameters(trainer.state_dict(), module, before, 3e-4)


def table() -> str:
    """Return the table as in docs/training.md."""

    def cell(texts: list[str]) -> str:
        return ", ".join(f"`{text.removeprefix('vectors: ')}`" for text in texts)

    groups = list(dict.fromkeys([*TRAINED, *REFUSED]))
    lines = [
        f"| {group} | {cell(TRAINED.get(group, []))} | {cell([text for text, _ in REFUSED.get(group, [])])} |"
        for group in groups
    ]
    return "\n".join(["| | trained | refused |", "|---|---|---|", *lines]) + "\n"


def test_the_table_of_the_documentation() -> None:
    assert table() in DOCS.read_text(), f"docs/training.md lacks this table:\n{table()}"


def test_every_layer_of_a_list_is_here() -> None:
    """Except those that are not layers of torch.nn, or differ from a row only in their number of axes."""
    texts = [text for rows in TRAINED.values() for text in rows] + [
        text for rows in REFUSED.values() for text, _ in rows
    ]
    tried, kinds = (
        {re.sub("[12]d$", "", name.partition("(")[0]) for name in names}
        for names in ([text.removeprefix("vectors: ") for text in texts], LAYERS)
    )
    assert kinds - tried == {"Add", "Subtract", "Multiply", "Concat"}
