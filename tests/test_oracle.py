# SPDX-License-Identifier: Apache-2.0
"""The oracles against PyTorch in float64, and against each other. Needs no device."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from cases import Case, all_cases, make
from oracle import MPSCNNConvolution as conv  # noqa: N813
from oracle import MPSCNNNeuron as neuron  # noqa: N813
from oracle import (
    MPSRNNLayer,
    compare,
    padding,
    torch_others,
)
from oracle.expected import expected
from oracle.torch_reference import reference

CASES = all_cases()


@cache
def theirs(case: Case) -> np.ndarray | None:
    return reference(case, make(case, case.dtypes[0]))


def nchw(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array.transpose(0, 3, 1, 2)))


def nhwc(tensor: torch.Tensor) -> np.ndarray:
    return tensor.numpy().transpose(0, 2, 3, 1)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_row_against_torch(case: Case) -> None:
    inputs = make(case, case.dtypes[0])
    wide = expected(case, inputs, "float64")
    other = theirs(case)
    if other is None:
        pytest.skip("PyTorch has no such operator")
    assert wide.value.shape == other.shape
    assert np.allclose(wide.value, other, rtol=1e-11, atol=1e-11, equal_nan=True)


def test_most_rows_have_a_second_opinion() -> None:
    alone = [case for case in CASES if theirs(case) is None]
    assert len(alone) < len(CASES) / 8
    # Only cases that PyTorch lacks: MPS's offsets, clipRect and policies, rounding of folded weights, window edges.
    for case in alone:
        moved = {"offset", "primary_offset", "secondary_offset", "clip_rect"} & set(case.params)
        own_edges = case.kernel == "DilatedPoolingMax" or "zero_pad_size" in case.params
        policy = isinstance(case.params.get("padding"), str)
        assert moved or policy or case.batch_norm or own_edges or torch_others.without_counterpart(case), str(case)


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "offset", "groups"),
    [
        ((3, 3), (1, 1), (1, 1), (0, 0), 1),
        ((4, 2), (2, 1), (1, 1), (1, 0), 1),
        ((3, 2), (2, 3), (2, 3), (5, -4), 2),
        ((5, 4), (1, 3), (1, 2), (2, 2), 4),
        ((2, 3), (3, 2), (4, 1), (-9, 12), 1),
    ],
)
@pytest.mark.parametrize("edge", ["zero", "clamp"])
def test_window_rule(kernel, stride, dilation, offset, groups, edge, rng) -> None:
    """The offset as padding: MPS's window starts (dilated // 2 - offset) pixels before the source."""
    x, size = rng.normal(size=(2, 9, 10, 8)), (4, 3)
    weight, bias = rng.normal(size=(8, *kernel, 8 // groups)), rng.normal(size=8)
    amounts: list[int] = []
    for axis in (1, 0):
        dilated = (kernel[axis] - 1) * dilation[axis] + 1
        before = dilated // 2 - offset[axis]
        amounts += [before, (size[axis] - 1) * stride[axis] + dilated - x.shape[1 + axis] - before]
    source = nchw(x)
    if edge == "clamp":  # torch pads before it crops, and replication needs remaining pixels
        source = F.pad(source, [max(n, 0) for n in amounts], mode="replicate")
        source = F.pad(source, [min(n, 0) for n in amounts])
    else:
        source = F.pad(source, [max(n, 0) for n in amounts])
        source = F.pad(source, [min(n, 0) for n in amounts])
    theirs = F.conv2d(source, nchw(weight), torch.from_numpy(bias), stride=stride, dilation=dilation, groups=groups)
    ours = conv.convolution(
        x, weight, bias, size=size, offset=offset, stride=stride, dilation=dilation, groups=groups, edge=edge
    )
    np.testing.assert_allclose(ours, nhwc(theirs), atol=1e-12)


def test_convolution_by_hand() -> None:
    """Offset 0 puts the centre, tap kernel // 2, on the first pixel."""
    x = np.arange(1.0, 4.0).reshape(1, 1, 3, 1)
    two = np.array([1.0, 10.0]).reshape(1, 1, 2, 1)
    three = np.array([1.0, 10.0, 100.0]).reshape(1, 1, 3, 1)
    row = {"size": (1, 3), "offset": (0, 0)}
    assert conv.convolution(x, two, None, **row).ravel().tolist() == [10, 21, 32]
    assert conv.convolution(x, two, None, **row, edge="clamp").ravel().tolist() == [11, 21, 32]
    assert conv.convolution(x, three, None, **row).ravel().tolist() == [210, 321, 32]
    assert conv.convolution(x, three, None, size=(1, 2), offset=(0, 1), stride=(1, 2)).ravel().tolist() == [321, 3]
    assert conv.convolution(x, two, None, size=(1, 3), offset=(0, 0), dilation=(1, 2)).ravel().tolist() == [20, 31, 2]


def test_depthwise_is_one_group_per_channel(rng) -> None:
    x, weight, bias = rng.normal(size=(2, 7, 6, 5)), rng.normal(size=(5, 3, 2)), rng.normal(size=5)
    window = {"size": (4, 3), "offset": (1, -1), "stride": (2, 1)}
    whole = conv.convolution(x, weight[..., None], bias, groups=5, **window)
    np.testing.assert_allclose(conv.depthwise(x, weight, bias, **window), whole, atol=1e-13)


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_sub_pixel_is_position_major(factor, rng) -> None:
    x = rng.normal(size=(2, 3, 4, 5 * factor**2))
    ours = conv.sub_pixel(x, factor)
    for y, z, c in itertools.product(range(3 * factor), range(4 * factor), range(5)):
        channel = (factor * (y % factor) + z % factor) * 5 + c
        assert (ours[:, y, z, c] == x[:, y // factor, z // factor, channel]).all()
    if factor > 1:
        assert not np.array_equal(ours, nhwc(F.pixel_shuffle(nchw(x), factor)))


@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "extra", "groups"),
    [
        ((3, 3), (2, 2), (1, 1), (1, 1), 1),
        ((4, 2), (2, 3), (1, 0), (0, 1), 1),
        ((5, 4), (1, 2), (2, 1), (0, 0), 2),
        ((1, 2), (3, 1), (0, 1), (2, 0), 3),
    ],
)
def test_transpose_mapping(kernel, stride, pad, extra, groups, rng) -> None:
    """Rotated kernel and kernelOffset k // 2 - k + 1 + padding: PyTorch's transposed convolution."""
    x, weight, bias = rng.normal(size=(2, 5, 4, 6)), rng.normal(size=(6, 3, *kernel)), rng.normal(size=3 * groups)
    theirs = F.conv_transpose2d(
        nchw(x),
        torch.from_numpy(weight),
        torch.from_numpy(bias),
        stride=stride,
        padding=pad,
        output_padding=extra,
        groups=groups,
    )
    ours = conv.transpose(
        x,
        conv.rotated(weight, groups),
        bias,
        size=tuple(conv.transpose_size(*n) for n in zip((5, 4), kernel, stride, pad, pad, extra, strict=True)),
        stride=stride,
        kernel_offset=tuple(conv.transpose_kernel_offset(*n) for n in zip(kernel, pad, strict=True)),
        groups=groups,
    )
    np.testing.assert_allclose(ours, nhwc(theirs), atol=1e-12)


def test_transpose_rule_by_hand() -> None:
    """Unrotated: y[j] = sum w[k] * Z[j + offset * stride + kernelOffset - kernel // 2 + k], Z stuffed with zeros."""
    x = np.array([1.0, 2.0]).reshape(1, 1, 2, 1)
    weight = np.array([1.0, 10.0, 100.0]).reshape(1, 1, 3, 1)
    stuffed = [1.0, 0.0, 0.0, 2.0]
    for offset, kernel_offset in ((0, 0), (0, 1), (1, 0), (-1, 2)):
        window = {"size": (1, 6), "stride": (1, 3), "offset": (0, offset), "kernel_offset": (0, kernel_offset)}
        ours = conv.transpose(x, weight, None, **window)
        for j in range(6):
            taps = [j + offset * 3 + kernel_offset - 1 + k for k in range(3)]
            value = sum(w * (stuffed[t] if 0 <= t < 4 else 0) for w, t in zip((1, 10, 100), taps, strict=True))
            assert ours[0, 0, j, 0] == value


def test_fully_connected_is_a_convolution(rng) -> None:
    x, weight, bias = rng.normal(size=(3, 4, 5, 2)), rng.normal(size=(6, 4, 5, 2)), rng.normal(size=6)
    same = conv.convolution(x, weight, bias, size=(1, 1), offset=(4 // 2, 5 // 2))
    np.testing.assert_allclose(conv.fully_connected(x, weight, bias), same, atol=1e-12)
    turned = conv.fully_connected(x, weight.transpose(0, 2, 1, 3).copy().reshape(weight.shape), bias)
    assert not np.allclose(turned, same)


def test_batch_norm_fold(rng) -> None:
    x, weight, bias = rng.normal(size=(2, 5, 6, 3)), rng.normal(size=(4, 3, 2, 3)), rng.normal(size=4)
    norm = [rng.normal(size=4), rng.uniform(0.5, 2, 4), rng.normal(size=4), rng.normal(size=4)]
    window = {"size": (4, 5), "offset": (1, 1)}
    plain = conv.convolution(x, weight, bias, **window)
    theirs = F.batch_norm(nchw(plain), *(torch.from_numpy(n) for n in norm), eps=1e-3)
    ours = conv.convolution(x, *conv.fold_batch_norm(weight, bias, *norm, 1e-3), **window)
    np.testing.assert_allclose(ours, nhwc(theirs), atol=1e-12)


def test_bytes_as_weights() -> None:
    codes = np.array([[0, 255, 51]], np.uint8)
    np.testing.assert_allclose(conv.from_ranges(codes, np.array([[-1.0, 4.0]])), [[-1, 4, 0]], atol=1e-15)
    assert conv.from_table(codes, np.arange(256.0) / 2).tolist() == [[0, 127.5, 25.5]]


@pytest.mark.parametrize("kernel", range(1, 7))
@pytest.mark.parametrize("stride", range(1, 5))
def test_padding_policy(kernel: int, stride: int) -> None:
    for source in range(kernel, 25):
        # TensorFlow's SAME: the remainder is at the end.
        size = padding.forward_size(source, kernel, stride, "same")
        total = (size - 1) * stride + kernel - source
        assert size == -(-source // stride)
        if total >= 0:
            before = kernel // 2 - padding.forward_offset(source, kernel, stride, "same", remainder_first=False)
            first = kernel // 2 - padding.forward_offset(source, kernel, stride, "same", remainder_first=True)
            assert (before, first) == (total // 2, total - total // 2)
        # VALID has PyTorch's size, but unused pixels are divided between both ends.
        size = padding.forward_size(source, kernel, stride, "valid")
        assert size == padding.framework_size(source, kernel, stride, 0, 0)
        start = padding.forward_offset(source, kernel, stride, "valid", remainder_first=False) - kernel // 2
        left_over = source - ((size - 1) * stride + kernel)
        assert start == left_over // 2
        # Up-sampling inverts the sizes: valid by full, and full by valid.
        enlarged = padding.reverse_size(source, kernel, stride, "full")
        assert enlarged == conv.transpose_size(source, kernel, stride, 0, 0, 0)
        assert padding.forward_size(enlarged, kernel, stride, "valid") == source


def test_centred_area_by_hand() -> None:
    assert padding.forward_size(13, 2, 4, "valid") == 3
    assert padding.forward_offset(13, 2, 4, "valid", remainder_first=False) - 1 == 1  # not column 0
    assert padding.forward_offset(6, 3, 2, "same", remainder_first=False) == 1  # windows start at 0, 2, 4
    assert padding.forward_offset(6, 3, 2, "same", remainder_first=True) == 0  # at -1, 1, 3


X = np.concatenate([np.linspace(-4, 4, 161), [-100.0, 100.0, 1e-9, -1e-9]])


@pytest.mark.parametrize(
    ("name", "numbers", "theirs"),
    [
        ("none", (), lambda x: x),
        ("relu", (0.0,), F.relu),
        ("relu", (0.25,), lambda x: F.leaky_relu(x, 0.25)),
        ("linear", (2.0, -1.0), lambda x: 2 * x - 1),
        ("sigmoid", (), torch.sigmoid),
        ("hard_sigmoid", (1 / 6, 0.5), F.hardsigmoid),
        ("tanh", (3.0, 0.5), lambda x: 3 * torch.tanh(x / 2)),
        ("absolute", (), torch.abs),
        ("softplus", (0.5, 2.0), lambda x: F.softplus(x, beta=2, threshold=50)),
        ("softsign", (), F.softsign),
        ("elu", (0.7,), lambda x: F.elu(x, 0.7)),
        ("relun", (0.0, 6.0), F.relu6),
        ("relun", (0.5, -0.25), lambda x: F.leaky_relu(x, 0.5).clamp(max=-0.25)),
        ("power", (1.0, 5.0, 2.5), lambda x: torch.pow(x + 5, 2.5)),
        ("exponential", (0.5, 1.0, -1.0), lambda x: torch.exp(0.5 * x + 1)),
        ("exponential", (1.0, 0.0, 2.0), torch.exp2),
        ("logarithm", (1.0, 5.0, -1.0), lambda x: torch.log(x + 5)),
        ("logarithm", (1.0, 5.0, 10.0), lambda x: torch.log10(x + 5)),
        ("gelu", (), F.gelu),
    ],
)
def test_neuron(name, numbers, theirs) -> None:
    numbers = (*numbers, 0.0, 0.0, 0.0)[:3]
    wanted = theirs(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(neuron.neuron(name, X, *numbers), wanted, rtol=1e-12, atol=1e-14)


def test_prelu_by_channel(rng) -> None:
    x, slopes = rng.normal(size=(2, 3, 4, 5)), rng.normal(size=5)
    theirs = F.prelu(nchw(x), torch.from_numpy(slopes))
    np.testing.assert_allclose(neuron.neuron("prelu", x, slopes), nhwc(theirs), atol=1e-15)


def test_every_neuron_type_has_its_number() -> None:
    assert len(neuron.TYPES) == 16
    assert neuron.NUMBERS["prelu"] == 10
    assert neuron.NUMBERS["gelu"] == 15


# ------------------------------------------------------------------------------------------- the comparison


def test_comparison_accepts_and_refuses() -> None:
    value, bound = np.array([1.0, np.nan, np.inf, -np.inf]), np.array([0.1, 0.1, 0.1, 0.1])
    compare.assert_close(value + 0.05, value, bound)
    for at, wrong in [(0, 1.2), (0, np.nan), (1, 0.0), (2, 1e300), (2, -np.inf), (3, np.nan)]:
        result = value.copy()
        result[at] = wrong
        with pytest.raises(AssertionError, match="1 of 4 elements are wrong"):
            compare.assert_close(result, value, bound)


def test_bound_covers_float32_and_nothing_coarser(rng) -> None:
    """A float32 sum in an unfavourable order is within the bound, the same sum of bfloat16 factors is not."""
    a, b = rng.normal(size=(400, 300)).astype(np.float32), rng.normal(size=(400, 300)).astype(np.float32)
    exact = (a.astype(np.float64) * b).sum(1)
    bound = compare.sum_bound(np.abs(a.astype(np.float64) * b).sum(1), 300, sums=4.0)
    one_by_one = np.zeros(400, np.float32)
    for k in range(300):
        one_by_one += a[:, k] * b[:, k]
    assert not compare.wrong(one_by_one.astype(np.float64), exact, bound).any()
    coarse = (torch.from_numpy(a).bfloat16().double() * torch.from_numpy(b).bfloat16().double()).sum(1).numpy()
    assert compare.wrong(coarse, exact, bound).mean() > 0.9


@pytest.mark.parametrize("case", CASES[::7], ids=str)
def test_bounds_are_tight(case: Case) -> None:
    """An error of a thousandth is detected in float32, unless the row allows more and gives the reason."""
    dtype = case.result_dtype or case.dtypes[0]
    right = expected(case, make(case, case.dtypes[0]), dtype)
    finite = np.isfinite(right.value) & (np.abs(right.value) > 1e-6)
    if dtype != "float32" or case.tolerance.reason != "default" or not finite.any():
        pytest.skip("a coarser result")
    assert compare.wrong(right.value * 1.001, right.value, right.bound)[finite].mean() > 0.5


def recurrent_layer(kind: str, theirs: torch.nn.RNNBase) -> MPSRNNLayer.Layer:
    """Return the layer with PyTorch's weights."""
    gates = {"single": ("",), "lstm": ("inputGate", "forgetGate", "cellGate", "outputGate")}
    gates["gru"] = ("recurrentGate", "inputGate", "outputGate")
    layer = MPSRNNLayer.Layer(kind, theirs.input_size, theirs.hidden_size)
    parts = [part.detach().double().chunk(len(gates[kind])) for part in theirs.parameters()]
    for gate, w, u, bias, more in zip(gates[kind], *parts, strict=True):
        inputs = f"{gate}InputWeights" if gate else "inputWeights"
        layer.weights[inputs] = w[:, None, None]
        layer.weights[f"{gate}RecurrentWeights" if gate else "recurrentWeights"] = u[:, None, None]
        layer.biases[inputs] = bias + more
        is_tanh = gate in ("", "cellGate") or (kind, gate) == ("gru", "outputGate")
        layer.neurons[inputs] = ("tanh", 1, 1, 0) if is_tanh else ("sigmoid", 0, 0, 0)
    return layer


@pytest.mark.parametrize("kind", ["single", "lstm", "gru"])
@pytest.mark.parametrize(("inputs", "outputs", "steps"), [(3, 5, 4), (260, 512, 64)])
def test_recurrent_layers(kind: str, inputs: int, outputs: int, steps: int, rng) -> None:
    """Outputs, states and gradients of PyTorch's layers, which the formulas of the oracle give."""
    theirs = {"single": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind](inputs, outputs).double()
    if kind == "gru":  # PyTorch multiplies by the reset gate after the product: the same if that is diagonal
        with torch.no_grad():
            theirs.weight_hh_l0[2 * outputs :] *= torch.eye(outputs)
            theirs.bias_hh_l0[2 * outputs :] = 0
    x = torch.from_numpy(rng.normal(size=(steps, 2, inputs))).requires_grad_()
    weight = torch.from_numpy(rng.normal(size=(steps, 2, outputs)))
    value, last = theirs(x)
    (value * weight).sum().backward()
    expected, x.grad = x.grad, None
    ys, states = MPSRNNLayer.sequence([recurrent_layer(kind, theirs)], list(x))
    sum((y * w).sum() for y, w in zip(ys, weight, strict=True)).backward()
    assert torch.allclose(torch.stack(ys), value, rtol=1e-11, atol=1e-11)
    for ours, other in zip(states[-1][0], last if kind == "lstm" else (last,), strict=False):
        assert torch.allclose(ours, other[0], rtol=1e-11, atol=1e-11)
    assert torch.allclose(x.grad, expected, rtol=1e-11, atol=1e-11)
    # NumPy computes the same.
    layer = recurrent_layer(kind, theirs)
    for values in (layer.weights, layer.biases):
        values.update({name: value.numpy() for name, value in values.items()})
    with_numpy = MPSRNNLayer.sequence([layer], list(x.detach().numpy()))[0]
    assert np.allclose(np.stack(with_numpy), value.detach().numpy(), rtol=1e-11, atol=1e-11)
