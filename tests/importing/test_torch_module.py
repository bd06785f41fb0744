# SPDX-License-Identifier: Apache-2.0
"""Whole networks from torch.nn.Module and torch.export against PyTorch; names, modes, weights; refusals."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  (the usual name)
from torch import nn
from torch_support import Function, check, core_aten, inputs, is_free, randomize

import mpscnn
from architectures import ARCHITECTURES, build_small
from mpscnn.importing import torch_export, torch_module

# If tests/test_end_to_end.py, which has more networks, fails as well, the importer is wrong.
NETWORKS = ["resnet18", "vgg16_bn", "squeezenet1_0", "unet_bilinear", "style_transfer", "yolo_tiny"]


def export(module: nn.Module, *examples: torch.Tensor, **options: Any) -> torch.export.ExportedProgram:
    with torch_export.quiet():
        return torch.export.export(module, examples, **options)


def read_module(module: nn.Module, *shapes: tuple[int, ...], **options: Any) -> mpscnn.Graph:
    return torch_module.read(module, input_shapes=[(2, *shape) for shape in shapes], **options)


# ---- networks


@pytest.mark.parametrize("name", NETWORKS)
def test_network(name: str) -> None:
    module, shape = build_small(name), ARCHITECTURES[name].shape
    graph = read_module(module, shape)
    check(graph, module, *inputs(shape, batch=1))
    check(graph, module, *inputs(shape, batch=5))
    assert is_free(graph), graph.inputs
    channels, height, width = shape
    check(graph, module, *inputs((channels, height + 32, width + 64)))


@pytest.mark.parametrize("name", ["squeezenet1_1", "espcn"])
def test_network_at_odd_sizes(name: str) -> None:
    module, (channels, height, width) = build_small(name), ARCHITECTURES[name].shape
    graph = read_module(module, (channels, height + 3, width + 10))
    check(graph, module, *inputs((channels, height + 3, width + 10)))
    check(graph, module, *inputs((channels, height + 16, width + 5)))


@pytest.mark.parametrize("name", ["densenet121", "resnet18", "mobilenet_v2", "style_transfer", "unet_bilinear"])
def test_exported_network(name: str) -> None:
    """As torch.export.export writes it by default: for one size, which the graph keeps."""
    module, shape = build_small(name), ARCHITECTURES[name].shape
    program = export(module, *inputs(shape))
    graph = torch_export.read(program)
    (spec,) = graph.inputs.values()
    assert (spec.height, spec.width) == shape[1:]
    assert "without dynamic shapes" in spec.fixed_by
    check(graph, module, *inputs(shape, batch=3))


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "style_transfer", "espcn"])
def test_network_as_core_aten(name: str) -> None:
    module, shape = build_small(name), ARCHITECTURES[name].shape
    with torch_export.quiet():
        program = core_aten(export(module, *inputs(shape)))
    check(torch_export.read(program), module, *inputs(shape, batch=3))


# ---- inputs and outputs


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.side = nn.Conv2d(5, 8, 1)

    def forward(self, image: torch.Tensor, side: torch.Tensor, scale: float = 2.0) -> dict[str, Any]:
        x = self.stem(image)
        y = self.side(side)
        return {"sum": x + y, "parts": (y * scale, [x]), "nothing": None, "image": image}


def test_names_and_order_of_inputs_and_outputs() -> None:
    module = randomize(Branches())
    graph = read_module(module, (3, 6, 7), (5, 6, 7))
    assert list(graph.inputs) == ["image", "side"]
    assert list(graph.outputs) == ["sum", "parts.0", "parts.1.0", "image"]
    check(graph, module, *inputs((3, 6, 7), (5, 6, 7)))
    check(graph, module, *inputs((3, 9, 5), (5, 9, 5), batch=3))


def test_inputs_by_keyword() -> None:
    module = randomize(Branches())
    by_shape = torch_module.read(module, input_shapes={"side": (1, 5, 6, 7), "image": (1, 3, 6, 7)})
    image, side = inputs((3, 6, 7), (5, 6, 7))
    by_value = torch_module.read(module, example_inputs={"image": image, "side": side, "scale": 0.5})
    assert set(by_shape.inputs) == set(by_value.inputs) == {"image", "side"}
    with torch.no_grad():
        expected = module(image, side, 0.5)
    from interpreter import interpret

    found = interpret(by_value, image=image.numpy(), side=side.numpy())
    np.testing.assert_allclose(found["parts.0"], expected["parts"][0].numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("example", [torch.zeros(2, 3, 8, 8), np.zeros((2, 3, 8, 8), np.float32)])
def test_one_example_without_a_tuple(example: Any) -> None:
    module = randomize(nn.Conv2d(3, 4, 3))
    check(torch_module.read(module, example_inputs=example), module, *inputs((3, 8, 8)))
    assert list(torch_module.read(module, input_shapes=(2, 3, 8, 8)).outputs) == ["output"]


def test_a_result_may_be_returned_twice() -> None:
    module = Function(lambda x: (y := torch.relu(x), y, x))
    graph = read_module(module, (3, 4, 4))
    assert list(graph.outputs) == ["output_0", "output_1", "output_2"]
    check(graph, module, *inputs((3, 4, 4)))


def test_an_input_that_nothing_reads() -> None:
    module = Function(lambda x, y: x + 1)
    graph = read_module(module, (3, 4, 4), (2, 4, 4))
    check(graph, module, *inputs((3, 4, 4), (2, 4, 4)))


# ---- names, modes, weights


def test_nodes_have_the_paths_of_their_modules() -> None:
    graph = read_module(build_small("resnet18"), (3, 32, 32))
    origins = [node.origin for node in graph]
    assert "layer1.0.conv1 (aten.conv2d)" in origins
    assert "layer4.1.bn2 (aten.batch_norm)" in origins
    assert graph.node("layer1.0.conv1").kernel == "Convolution"
    assert sum(name.startswith("layer2.0.downsample.") for name in (node.name for node in graph)) == 2
    assert any(origin.startswith("layer1.0.add") for origin in origins)


@pytest.mark.parametrize("fails", [False, True])
def test_modes_of_a_module_stay(fails: bool) -> None:
    tail: nn.Module = Function(lambda x: x.logcumsumexp(1)) if fails else nn.ReLU()
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), tail).train()
    module[1].eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    try:
        graph = read_module(module, (3, 8, 8))
    except mpscnn.UnsupportedOperatorError:
        assert fails
    else:
        check(graph, module.eval(), *inputs((3, 8, 8)))
        module.train()
        module[1].eval()
    assert [part.training for part in module.modules()] == [True, True, False, True, True]
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


class WithCells(nn.Module):
    """Keeps the places of cells of the last image, and their number, as detectors do."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = torch.zeros(1)
        self.size: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.size != x.shape[2:]:
            self.size, self.count = x.shape[2:], x.shape[2] * x.shape[3]
            self.cells = torch.arange(x.shape[3]).to(x)
        return x + self.cells


@pytest.mark.parametrize("free_size", [None, True, False])
def test_attributes_of_a_module_stay(free_size: bool | None) -> None:
    module = WithCells()
    options = {} if free_size is None else {"free_size": free_size}
    mpscnn.load(module, input_shapes=(1, 3, 8, 6), options=options)
    assert module.size is None
    assert "count" not in vars(module)
    assert type(module.cells) is torch.Tensor
    assert module.cells.shape == (1,)
    x = torch.rand(2, 3, 5, 4)
    torch.testing.assert_close(module(x), x + torch.arange(4))


def test_weights_are_not_copied() -> None:
    module = randomize(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 5)))
    graph = read_module(module, (3, 8, 8))
    arguments = {node.kernel: node.arguments for node in graph}
    for kernel, name, tensor in (
        ("Convolution", "weight", module[0].weight),
        ("Convolution", "bias", module[0].bias),
        ("BatchNormalization", "mean", module[1].running_mean),
        ("FullyConnected", "weight", module[3].weight),
    ):
        assert np.shares_memory(arguments[kernel][name], tensor.detach().numpy()), (kernel, name)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_half_the_size(dtype: torch.dtype) -> None:
    module = randomize(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1)))
    half = module.to(dtype)
    graph = torch_module.read(half, input_shapes=(2, 3, 8, 8))
    weights = [node.arguments["weight"].dtype for node in graph if node.kernel == "Convolution"]
    assert weights == [np.float16 if dtype == torch.float16 else np.float32] * 2
    check(graph, half.float(), *inputs((3, 8, 8)))


def test_torch_is_not_imported_with_the_package() -> None:
    code = "import sys, mpscnn; mpscnn.Graph(); print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


# ---- sizes


def test_a_program_for_any_size() -> None:
    module = randomize(nn.Conv2d(3, 4, 3, 2))
    height, width = torch.export.Dim("height", min=5), torch.export.Dim("width", min=5)
    graph = torch_export.read(export(module, *inputs((3, 9, 8)), dynamic_shapes=({2: height, 3: width},)))
    assert is_free(graph)
    check(graph, module, *inputs((3, 14, 5), batch=3))


def test_one_axis_may_be_free() -> None:
    module = randomize(nn.Conv2d(3, 4, 3))
    graph = torch_export.read(export(module, *inputs((3, 9, 8)), dynamic_shapes=({3: torch.export.Dim("w", min=4)},)))
    assert (graph.inputs["input"].height, graph.inputs["input"].width) == (9, None)
    check(graph, module, *inputs((3, 9, 20)))


def test_sizes_that_are_asked_for() -> None:
    graph = read_module(randomize(nn.Conv2d(3, 4, 3)), (3, 9, 8), free_size=False)
    assert (graph.inputs["input"].height, graph.inputs["input"].width) == (9, 8)


def test_a_number_of_the_size_fixes_it() -> None:
    """A literal in the graph would be right for one size only."""
    graph = read_module(Function(lambda x: x / x.shape[3]), (3, 6, 8))
    assert graph.inputs["tensors_0"].fixed_by == "div (aten.div)"


def test_a_flat_map_of_one_pixel_fixes_it() -> None:
    """The map has one pixel at this size only."""
    module = nn.Sequential(nn.MaxPool2d(4), nn.Flatten(), nn.Linear(3, 2))
    graph = torch_export.read(
        export(module, *inputs((3, 4, 7)), dynamic_shapes=({0: torch.export.Dim.AUTO},)),
    )
    assert not is_free(graph)


# ---- memory that is shared


def changed_after_a_view(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    part = y[:, :2]
    y.add_(1)
    return part * y[:, 2:]


def changed_in_a_view(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[:, 1:3].relu_()
    return y + 1


def changed_and_read(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    z = F.relu(y, inplace=True)
    return torch.cat([y, z.mul_(3), y], 1)


def changed_copy(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    z = y.clone()
    z += 1
    return torch.cat([y, z], 1)


def changed_behind_dropout(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    z = F.dropout(y, 0.5, False)
    z.relu_()
    return torch.cat([y, z], 1)


def changed_without_a_name(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.relu_()
    return y - 1


def with_no_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x * 2
    return y + 1


@pytest.mark.parametrize(
    "body",
    [
        changed_after_a_view,
        changed_in_a_view,
        changed_and_read,
        changed_copy,
        changed_behind_dropout,
        changed_without_a_name,
        with_no_gradients,
    ],
)
def test_in_place(body: Any) -> None:
    module = Function(body)
    check(read_module(module, (4, 5, 6)), module, *inputs((4, 5, 6)))
    check(torch_export.read(export(module, *inputs((4, 5, 6)))), module, *inputs((4, 5, 6)))


def test_dropout_of_a_constant() -> None:
    module = Function(
        lambda x: x + F.dropout(torch.arange(6.0), 0.5, False) * F.alpha_dropout(torch.ones(6), 0.5, False)
    )
    check(read_module(module, (4, 5, 6)), module, *inputs((4, 5, 6)))


# ---- refusals


def test_all_unsupported_operators_are_listed() -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x).logcumsumexp(2)
        z = torch.fft.fft2(x).abs()
        return (y * 2).cummax(1).values + z + x.renorm(2, 1, 1.0)

    with pytest.raises(mpscnn.UnsupportedOperatorError) as caught:
        read_module(Function(body), (4, 5, 6), name="body")
    operators = {operator for operator, _, _ in caught.value.nodes}
    assert {"aten.logcumsumexp", "aten.cummax", "aten.renorm"} <= operators
    assert any("fft" in operator for operator in operators)
    assert str(caught.value).startswith("body: ")


W3 = torch.ones(2, 2, 1, 5, 5)
REFUSED = {
    "mean_of_batch": (lambda x: x - x.mean(0, keepdim=True), "over the batch"),
    "mean_of_all": (lambda x: x / x.mean(), "the batch included"),
    "batch_in_channels": (lambda x: x.flatten(0, 1).unsqueeze(0) * 2, "the batch taken together"),
    "first_image": (lambda x: x[:1] * 2, "a part of the batch"),
    "images_in_other_order": (lambda x: x.transpose(0, 1) + 1, "the axis of the batch"),
    "number_of_images": (lambda x: x.sort(0).values * x.shape[0], "an order of the images of the batch"),
    "dropout_always": (lambda x: F.dropout(x, 0.5, True), "dropout in training"),
    "statistics_of_batch": (lambda x: F.batch_norm(x, None, None, training=True), "the statistics of the batch"),
    "random": (lambda x: x + torch.rand(4, 1, 1), "random numbers"),
    "dropout_of_constant": (lambda x: x + F.dropout(torch.ones(8), 0.5, True), "random numbers"),
    "number_by_a_constant": (lambda x: x + torch.repeat_interleave(torch.tensor([1, 3])), "depend on values"),
    "nothing": (lambda x: x[:, torch.zeros(4) > 0] + 1, "a mask of nothing"),
    "images_by_a_mask": (lambda x: x[torch.tensor([True, False])], "images of the batch"),
    "values_of_other_images": (lambda x: x.masked_scatter(torch.ones(8) > 0, x[:, :1]), "of each image for"),
    "integers": (lambda x: x.to(torch.int8).float(), "a conversion from"),
    "half": (lambda x: x.half().float(), "a conversion from"),
    "constant": (lambda x: (x, torch.ones(3)), "a constant"),
    "three_axes": (lambda x: F.conv3d(x, torch.ones(2, 2, 1, 1, 1)), "without a batch"),
    "wide_and_deep": (lambda x: F.conv3d(x.repeat(1, 1024, 1, 1).view(-1, 2, 2048, 6, 8), W3), "all other depths"),
    "many_classes": (lambda x: F.linear(x.mean((2, 3)), torch.ones(21_841, 4)), "21841 channels, an image at most"),
    "many_filters": (lambda x: F.conv2d(x, torch.ones(8193, 4, 1, 1)), "8193 channels, an image at most 8192"),
    "pooling_indices": (lambda x: F.max_pool2d(x, 2, return_indices=True)[1].float(), "indices of a pooling"),
    "computed_weights": (lambda x: F.conv2d(x, x.mean((0, 2, 3)).reshape(1, 4, 1, 1)), "batch"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    body, reason = REFUSED[name]
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=reason):
        read_module(Function(body), (4, 6, 8))


def test_a_program_of_a_module_in_training() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Dropout()).train()
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=r"module\.eval\(\)") as caught:
        torch_export.read(export(module, *inputs((3, 4, 4))))
    assert any("batch_norm" in operator for operator, _, _ in caught.value.nodes)
    with pytest.raises(mpscnn.UnsupportedOperatorError, match=r"module\.eval\(\)"):
        torch_export.read(export(nn.Dropout().train(), *inputs((3, 4, 4))))


@pytest.mark.parametrize(
    ("example", "reason"),
    [
        (torch.zeros(2, 3, dtype=torch.int64), "torch.int64"),
        (torch.zeros(2, 3, dtype=torch.float64), "torch.float64"),
        (torch.zeros(2, 3, 4, 5, 6), r"5 axes; .*Unflatten\(1, \(3, 4\)\)"),
        (torch.tensor(1.0), "0 axes"),
    ],
)
def test_inputs_that_are_no_images(example: torch.Tensor, reason: str) -> None:
    with pytest.raises(mpscnn.InvalidModelError, match=reason):
        torch_module.read(Function(lambda x: x + 1), example_inputs=example)


def test_an_image_without_a_batch() -> None:
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="without a batch"):
        torch_module.read(nn.Conv2d(3, 4, 3), input_shapes=(3, 8, 8))


def test_one_image_that_is_repeated() -> None:
    with pytest.raises(mpscnn.UnsupportedOperatorError, match="the batch repeated"):
        torch_module.read(Function(lambda x: x.expand(4, -1, -1, -1) * 2), input_shapes=(1, 3, 8, 8))


def test_a_module_that_does_not_run() -> None:
    with pytest.raises(mpscnn.InvalidModelError, match=r"does not run with inputs of shapes \[\(1, 4, 8, 8\)\]"):
        torch_module.read(nn.Conv2d(3, 4, 3), input_shapes=(1, 4, 8, 8))


def test_a_module_that_cannot_be_traced() -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x

    with pytest.raises(mpscnn.UnsupportedOperatorError, match="asks for values that the network computes"):
        read_module(Function(body), (3, 4, 4))


def test_parameters_without_values() -> None:
    with torch.device("meta"):
        module = nn.Conv2d(3, 4, 3)
    with pytest.raises(mpscnn.InvalidModelError, match="has no values"):
        torch_module.read(module, input_shapes=(1, 3, 8, 8))


def test_arguments() -> None:
    module = nn.ReLU()
    with pytest.raises(TypeError, match=r"module \(int\) is not a torch.nn.Module"):
        torch_module.read(3, input_shapes=(1, 3, 8, 8))  # type: ignore[arg-type]
    with torch_export.quiet():
        traced = torch.jit.trace(module, torch.zeros(1, 2))
    with pytest.raises(TypeError, match="ScriptModule"):
        torch_module.read(traced, input_shapes=(1, 2))
    with pytest.raises(ValueError, match="neither given"):
        torch_module.read(module)
    with pytest.raises(ValueError, match="both given"):
        torch_module.read(module, example_inputs=torch.zeros(1, 2), input_shapes=(1, 2))
    with pytest.raises(ValueError, match=r"\(1, 0\) has an extent that is less than the minimum \(1\)"):
        torch_module.read(module, input_shapes=(1, 0))
    with pytest.raises(TypeError, match="is not a tuple of ints"):
        torch_module.read(module, input_shapes=[(1, 2.5)])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"program \(ReLU\) is not a torch.export.ExportedProgram"):
        torch_export.read(module)  # type: ignore[arg-type]


def test_hooks_that_a_trace_registers_are_removed():
    class Recorded(nn.Module):
        """Registers a hook in its first call, as models of transformers do that return hidden states."""

        def __init__(self):
            super().__init__()
            self.linear, self.seen, self.is_hooked = nn.Linear(3, 4), [], False

        def forward(self, x):
            self.seen.clear()
            if not self.is_hooked:
                self.linear.register_forward_hook(lambda part, given, result: self.seen.append(result))
                self.is_hooked = True
            return self.linear(x), sum(self.seen)

    module = Recorded().eval()
    kept = module.seen
    net = mpscnn.load(module, input_shapes=(1, 3))
    assert not module.linear._forward_hooks
    assert module.seen is kept == []
    x = torch.rand(2, 3)
    for ours, theirs in zip(net(x), module(x), strict=True):
        np.testing.assert_allclose(ours, theirs.detach().numpy(), atol=1e-6)
    assert len(module.linear._forward_hooks) == 1
