# SPDX-License-Identifier: Apache-2.0
"""Networks that read their module again for heights and widths that the graph does not take."""

from __future__ import annotations

import asyncio
import copy
import gc
import io
import pickle
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from onnx_support import model, reference
from torch import nn
from torch_support import Function, randomize

import mpscnn
from mpscnn import _other_sizes, _progress
from mpscnn.loading import read


class Attention(nn.Module):
    """Attention over pixels."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, 2, 1)
        self.norm, self.attention = nn.LayerNorm(channels), nn.MultiheadAttention(channels, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        tokens = self.norm(x.flatten(2).transpose(1, 2))
        tokens = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        return x + tokens.transpose(1, 2).reshape(x.shape)


class Windows(nn.Module):
    """Attention in windows, shifted, with a bias by relative position; the image is padded to whole windows."""

    def __init__(self, channels: int = 6, size: int = 4) -> None:
        super().__init__()
        self.size, self.qkv = size, nn.Linear(channels, 3 * channels)
        self.table = nn.Parameter(torch.randn((2 * size - 1) ** 2, 2))
        places = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")).flatten(1)
        between = (places[:, :, None] - places[:, None]) + size - 1
        self.register_buffer("index", between[0] * (2 * size - 1) + between[1])

    def forward(self, x: Any) -> Any:
        size, (n, c, h, w) = self.size, x.shape
        y = F.pad(x.permute(0, 2, 3, 1), (0, 0, 0, -w % size, 0, -h % size))
        rows, columns = y.shape[1] // size, y.shape[2] // size
        y = torch.roll(y, (-1, -1), (1, 2)).view(n, rows, size, columns, size, c)
        y = y.permute(0, 1, 3, 2, 4, 5).reshape(n * rows * columns, size * size, c)
        q, k, v = self.qkv(y).reshape(len(y), size * size, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
        bias = self.table[self.index.view(-1)].view(size * size, size * size, 2).permute(2, 0, 1)
        y = F.scaled_dot_product_attention(q, k, v, bias[None]).transpose(1, 2).reshape(y.shape)
        y = y.view(n, rows, columns, size, size, c).permute(0, 1, 3, 2, 4, 5).reshape(n, rows * size, columns * size, c)
        return torch.roll(y, (1, 1), (1, 2))[:, :h, :w].permute(0, 3, 1, 2)


class Pyramid(nn.Module):
    """Attention whose keys are of a reduced image, as in PVT and SegFormer, and a U-Net's way back up."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv, self.reduced = nn.Linear(6, 6), nn.Linear(6, 12), nn.Conv2d(6, 6, 2, 2)
        self.down = nn.Conv2d(3, 6, 3, 2, 1)

    def forward(self, x: Any) -> Any:
        y = self.down(x)
        n, c, h, w = y.shape
        q = self.q(y.flatten(2).transpose(1, 2)).reshape(n, h * w, 2, c // 2).permute(0, 2, 1, 3)
        kv = self.kv(self.reduced(y).reshape(n, c, -1).permute(0, 2, 1)).reshape(n, -1, 2, 2, c // 2)
        k, v = kv.permute(2, 0, 3, 1, 4)
        y = ((q @ k.transpose(-2, -1)) * 0.5).softmax(-1) @ v
        y = y.transpose(1, 2).reshape(n, h * w, c).permute(0, 2, 1).reshape(n, c, h, w)
        return F.interpolate(y, x.shape[2:], mode="bilinear"), y.mean((2, 3))


def agree(module: nn.Module, net: Any, *shapes: tuple[int, ...]) -> None:
    exact = copy.deepcopy(module).double().eval()
    for shape in shapes:
        x = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
        with torch.no_grad():
            expected = exact(x.double())
        several, found = (y if isinstance(y, tuple) else (y,) for y in (expected, net(x)))
        for ours, theirs in zip(found, several, strict=True):
            assert ours.shape == tuple(theirs.shape)
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=0, atol=1e-5 * float(theirs.abs().max()))


def load(module: nn.Module, *shape: int, **options: Any) -> mpscnn.Network:
    net = mpscnn.load(module.eval(), input_shapes=(1, *shape), **options)
    assert any(spec.fixed_by for spec in net.inputs.values())
    return net


@pytest.mark.parametrize("kind", [Attention, Windows, Pyramid])
def test_hybrids_at_other_sizes(kind: type[nn.Module]) -> None:
    module = randomize(kind())
    net = load(module, 6 if kind is Windows else 3, 16, 16)
    channels = net.inputs["x"].channels
    agree(module, net, (1, channels, 16, 16), (3, channels, 24, 12), (1, channels, 13, 21), (2, channels, 16, 16))


def test_weights_are_stored_once() -> None:
    net = load(randomize(Attention()), 3, 16, 16)
    net(np.zeros((1, 3, 8, 12), np.float32))
    other = net._that_takes([(1, 8, 12, 3)])
    assert other is not net
    assert other is net._that_takes([(2, 8, 12, 3)])
    shared = [name for name, (_, kernel) in other._kernels.items() if net._kernels.get(name, (0, 0))[1] is kernel]
    assert {node.kernel for node in net.graph.nodes if node.name in shared} == {"Convolution", "BatchNormalization"}
    assert len(shared) == 4


def test_weights_that_depend_on_the_size_are_not_shared() -> None:
    module = Function(lambda x: F.conv2d(x, torch.arange(12.0).to(x).view(4, 3, 1, 1) * x.shape[2]))
    net = load(module, 3, 16, 16)
    agree(module, net, (1, 3, 16, 16), (2, 3, 8, 12), (1, 3, 7, 12))


def test_position_embeddings_say_that_the_module_takes_no_other_size() -> None:
    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.places, self.linear = nn.Parameter(torch.randn(1, 64, 5)), nn.Linear(5, 4)

        def forward(self, x: Any) -> Any:
            return self.linear(x.flatten(2).transpose(1, 2) + self.places)

    module = randomize(Embedded())
    net = mpscnn.load(module.eval(), input_shapes=(1, 5, 8, 8))
    agree(module, net, (2, 5, 8, 8), (1, 5, 4, 16))
    for _ in range(2):  # the second time from the cache
        match = (
            r"8 x 9 is not a size .* unless height \* width == 64\. .* The model cannot be read for this size: Embedded"
        )
        with pytest.raises(ValueError, match=match + " does not run with inputs of shapes .*must match"):
            net(np.zeros((1, 5, 8, 9), np.float32))


def test_streams_awaited_calls_images_and_tables() -> None:
    module = randomize(Attention())
    net = load(module, 3, 16, 16)
    x = torch.randn(2, 3, 10, 14)
    with torch.no_grad():
        expected = module(x).numpy()

    def close(found: Any) -> None:
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)

    close(asyncio.run(net.apredict(x)))
    close(next(net.stream([x])))
    close(net(x, out=np.empty_like(expected)))
    buffer = mpscnn.CommandBuffer()
    image = mpscnn.Image.from_array(np.ascontiguousarray(x.numpy().transpose(0, 2, 3, 1)))
    result = net.encode(buffer, image)
    buffer.commit()
    buffer.wait()
    axes = net.outputs["output"].layout  # of the image, for each axis of the result
    close(result.numpy().transpose(["NHWC".index(axis) for axis in axes]))
    assert net.layers((2, 3, 10, 14))[0].output_shape == (2, 5, 7, 8)
    assert net.layers()[0].output_shape == (1, 8, 8, 8)
    assert "35" in net.summary((2, 3, 10, 14))
    net.input_layout = "NHWC"
    net.output_layout = axes[0] + axes[2:] + axes[1]
    close(net(x.permute(0, 2, 3, 1).contiguous()).transpose(0, 3, 1, 2))


def test_mean_and_std_of_other_sizes() -> None:
    module = randomize(Attention())
    net = load(module, 3, 16, 16, mean=[0.1, 0.2, 0.3], std=[0.5, 2.0, 1.0], num_threads=1)
    x = torch.rand(1, 3, 8, 10)
    with torch.no_grad():
        mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ([0.1, 0.2, 0.3], [0.5, 2.0, 1.0]))
        expected = module((x - mean) / std)
    np.testing.assert_allclose(net(x), expected.numpy(), rtol=0, atol=1e-5)


def test_without_the_module() -> None:
    module = randomize(Attention())
    x = np.zeros((1, 3, 8, 8), np.float32)
    net = load(module, 3, 16, 16)
    for other in (
        copy.deepcopy(net),
        pickle.loads(pickle.dumps(net)),
        mpscnn.Network(read(module, input_shapes=(1, 3, 16, 16))),
        mpscnn.load(read(module, input_shapes=(1, 3, 16, 16))),
        mpscnn.load(module, input_shapes=(1, 3, 16, 16), options={"free_size": False}),
    ):
        with pytest.raises(ValueError, match=r"its height \(8\) is not 16, the one that the model was imported for"):
            other(x)
    assert copy.copy(net)(x).shape == (1, 8, 4, 4)


def test_changes_of_the_module() -> None:
    module = randomize(Attention())
    net = load(module, 3, 16, 16)
    kept = copy.deepcopy(module)
    module.train()
    module.half()  # new memory: the network keeps the old one
    del module.attention
    gc.collect()
    agree(kept, net, (1, 3, 8, 8))

    other = randomize(Attention())
    net = load(other, 3, 16, 16)
    with torch.no_grad():
        other.first.bias += 1
    with pytest.raises(ValueError, match="the module's parameters were changed after its import"):
        net(np.zeros((1, 3, 8, 8), np.float32))
    assert net(np.zeros((1, 3, 16, 16), np.float32)).shape == (1, 8, 8, 8)


def test_the_mode_of_the_module_stays() -> None:
    module = randomize(Attention())
    net = mpscnn.load(module.train(), input_shapes=(1, 3, 16, 16))
    seen: list[bool] = []
    module.first.register_forward_pre_hook(lambda part, given: seen.append(part.training))
    net(np.zeros((1, 3, 8, 8), np.float32))
    assert module.training
    assert not seen  # a copy was traced


def test_the_module_is_released_with_the_network() -> None:
    module = randomize(Attention())
    net = load(module, 3, 16, 16)
    parameter = weakref.ref(module.first.weight)
    net(np.zeros((1, 3, 8, 8), np.float32))
    copied = weakref.ref(net._others._read._module)
    del module
    gc.collect()
    assert parameter() is None
    assert copied() is not None
    del net
    gc.collect()
    assert copied() is None


def test_threads_read_a_size_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module = randomize(Attention())
    net = load(module, 3, 16, 16)
    made = []
    original = net._others._read
    monkeypatch.setattr(net._others, "_read", lambda sizes, batch: made.append(sizes) or original(sizes, batch))
    x = torch.randn(1, 3, 12, 8)
    with torch.no_grad():
        expected = module(x).numpy()
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(net(x))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [{"x": (12, 8, 3)}]
    for each in found:
        np.testing.assert_allclose(each, expected, rtol=0, atol=1e-5)
    assert len(found) == 4


def test_the_last_sizes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_other_sizes, "MAXIMUM_KEPT", 2)
    net = load(randomize(Attention()), 3, 16, 16)
    for size in (8, 10, 8, 12):
        net(np.zeros((1, 3, size, size), np.float32))
    assert list(net._others._found) == [(((8, 8, 3),), None), (((12, 12, 3),), None)]


def test_a_module_that_cannot_be_copied() -> None:
    class Kept(Attention):
        def __deepcopy__(self, memo: Any) -> Any:
            raise RuntimeError("one of a kind")

    net = load(randomize(Kept()), 3, 16, 16)
    assert net(np.zeros((1, 3, 16, 16), np.float32)).shape == (1, 8, 8, 8)
    with pytest.raises(ValueError, match="cannot be read for this size: Kept cannot be copied: one of a kind"):
        net(np.zeros((1, 3, 8, 8), np.float32))


@pytest.mark.parametrize("form", ["tensor", "tuple", "dict", "arrays", "shapes_by_name", "flag"])
def test_examples(form: str) -> None:
    class Turned(Attention):
        def forward(self, x: Any, y: Any = None, negative: bool = False) -> Any:  # type: ignore[override]
            x = super().forward(x if y is None else x + y)
            return -x if negative else x

    module, shape = randomize(Turned()), (2, 3, 16, 16)
    given: dict[str, Any] = {
        "tensor": {"example_inputs": torch.rand(shape)},
        "tuple": {"example_inputs": (torch.rand(shape), torch.rand(shape))},
        "dict": {"example_inputs": {"y": torch.rand(shape), "x": torch.rand(shape)}},
        "arrays": {"example_inputs": (np.ones(shape, np.float32),)},
        "shapes_by_name": {"input_shapes": {"y": shape, "x": shape}},
        "flag": {"example_inputs": (torch.rand(shape), None, True)},
    }[form]
    net = mpscnn.load(module.eval(), **given)
    x, y = torch.rand(3, 3, 10, 8), torch.rand(3, 3, 10, 8)
    with torch.no_grad():
        sum_, turned = (x + y, False) if len(net.inputs) == 2 else (x, form == "flag")
        expected = module(sum_, None, turned).numpy()
    named = {"x": x, "y": y} if len(net.inputs) == 2 else {"x": x}
    np.testing.assert_allclose(net(**named), expected, rtol=0, atol=1e-5)


def test_a_condition_on_the_number_of_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network for the size that does not take the number of images is followed by one that does."""
    module = randomize(Attention())
    net = load(module, 3, 16, 16)
    read: list[int | None] = []
    original, takes = net._others._read, _other_sizes.takes

    def read_one(sizes: Any, batch: int | None) -> Any:
        read.append(batch)
        return original(sizes, batch)

    monkeypatch.setattr(net._others, "_read", read_one)
    monkeypatch.setattr(_other_sizes, "takes", lambda spec, image: len(read) != 1 and takes(spec, image))
    agree(module, net, (2, 3, 8, 12))
    assert read == [None, 2]
    monkeypatch.setattr(_other_sizes, "takes", lambda spec, image: False)
    with pytest.raises(ValueError, match="it has conditions that do not hold for it"):
        net(np.zeros((2, 3, 8, 12), np.float32))


def test_several_inputs() -> None:
    module = Function(lambda x, y: (x.flatten(2) @ y.flatten(2).transpose(1, 2), x.mean((2, 3)) + y.mean((2, 3))))
    net = mpscnn.load(module.eval(), input_shapes=[(1, 3, 4, 6), (1, 3, 6, 4)])
    one, other = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 10, 4)
    for ours, theirs in zip(net(one, other), module(one, other), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="The model cannot be read for this size"):
        net(one, one[:, :, :4])


def test_onnx_files(tmp_path: Path) -> None:
    """Attention over pixels of a file with dynamic extents."""
    node = onnx.helper.make_node
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Reshape", ["x", "tokens"], ["t"]),
        node("Transpose", ["t"], ["u"], perm=[0, 2, 1]),
        node("MatMul", ["u", "t"], ["scores"]),
        node("Softmax", ["scores"], ["weights"], axis=-1),
        node("MatMul", ["t", "weights"], ["v"]),
        node("Reshape", ["v", "shape"], ["y"]),
    ]
    proto = model(nodes, {"x": ("n", 4, "h", "w")}, ["y"], tokens=np.array([0, 4, -1]))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    net = mpscnn.load(path, input_shapes={"x": (1, 4, 6, 8)})
    assert net.inputs["x"].fixed_by
    for shape in ((1, 4, 6, 8), (3, 4, 5, 9), (2, 4, 6, 8), (1, 4, 12, 4)):
        x = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
        (expected,) = reference(proto, {"x": x})
        np.testing.assert_allclose(net(x), expected, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="fixed by"):
        mpscnn.load(proto, input_shapes={"x": (1, 4, 6, 8)})(x)  # it may be changed
    onnx.save(model(nodes, {"x": ("n", 4, 6, 8)}, ["y"], tokens=np.array([0, 4, -1])), path)
    with pytest.raises(ValueError, match=r'model\.onnx" was changed after its import: load it again'):
        net(np.zeros((1, 4, 3, 3), np.float32))
    with pytest.raises(ValueError, match="The model cannot be read for this size: "):
        mpscnn.load(path)(x)
    path.unlink()
    assert net(x).shape == x.shape


def test_wrong_arrays_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    net = load(randomize(Attention()), 3, 16, 16)
    monkeypatch.setattr(net._others, "_read", lambda sizes, batch: pytest.fail(f"{sizes} was read"))
    with pytest.raises(ValueError, match=r'set net\.input_layout = "NHWC"'):
        net(np.zeros((1, 16, 16, 3), np.float32))
    with pytest.raises(ValueError, match="its number of channels"):
        net(np.zeros((1, 4, 8, 8), np.float32))
    with pytest.raises(ValueError, match=r"x.ndim \(3\) is not 4"):
        net(np.zeros((3, 8, 8), np.float32))
    with pytest.raises((ValueError, TypeError)):
        net(np.zeros((1, 3, 0, 8), np.float32))
    with pytest.raises(TypeError, match="number of arrays"):
        net()
    with pytest.raises(TypeError, match="number of images"):
        net.encode(mpscnn.CommandBuffer())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A terminal shows what takes longer than two seconds."""
    net = load(randomize(Attention()), 3, 16, 16)
    terminal, text = Terminal(), "mpscnn: reading the model for x of 8 x 10 x 3"
    monkeypatch.setattr("sys.stderr", terminal)
    with caplog.at_level("INFO", logger="mpscnn"):
        monkeypatch.setattr(_progress, "PATIENCE_SECONDS", 600)
        net(np.zeros((1, 3, 8, 12), np.float32))
        assert terminal.getvalue() == ""
        monkeypatch.setattr(_progress, "PATIENCE_SECONDS", 0.01)
        net(np.zeros((2, 3, 8, 10), np.float32))
        shown = terminal.getvalue()
        net(np.zeros((1, 3, 8, 10), np.float32))
    assert shown.startswith(f"\r{text} (0 s)\x1b[K")
    assert shown.endswith("\r\x1b[K")
    assert terminal.getvalue() == shown
    records = [record for record in caplog.records if record.name == "mpscnn"]
    assert [record.getMessage().startswith(text) for record in records] == [False, True]
    monkeypatch.setattr("sys.stderr", None)  # as in programs without a console
    net(np.zeros((1, 3, 8, 14), np.float32))
