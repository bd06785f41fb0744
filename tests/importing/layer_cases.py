# SPDX-License-Identifier: Apache-2.0
"""Layers with random arguments, valid and invalid, as modules and as a list with arrays."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import torch
from torch import nn
from torch_support import RELATIVE, randomize

import mpscnn
from mpscnn.importing.layer_list import LAYERS

INTEGERS: tuple[Any, ...] = (0, 1, 2, 3, 4, 5, -1, -2, 7, 64, 2**16, 2**31, 2**40, 2**70)
PAIRS: tuple[Any, ...] = (1, 2, 3, (1, 2), (2, 1), [2, 3], 0, -1, (1,), (1, 2, 3), (0, 1), (), 2**40, (2**20, 1))
REALS: tuple[Any, ...] = (0.0, 1.0, 0.5, 1e-5, -1.0, 2.0, 30.0, 1e30, float("nan"), float("inf"), 1, 0)
ODD: tuple[Any, ...] = (
    None, True, "", "x", 1.5, b"1", [], {}, (None,), [[1, 2], [3]], ["a"], object(), np.int64(2), np.array([1, 2]),
    np.array(3), 1j, 2**70, lambda: 1, torch.ones(2), float("nan"),
)  # fmt: skip
MODES = ("zeros", "reflect", "replicate", "circular", "x")

# For each layer, the first arguments of its constructor ("c": channels), and values of its options.
KINDS: dict[str, tuple[tuple[Any, ...], dict[str, tuple[Any, ...]]]] = {
    "Conv2d": (("c", 4, 3), {"stride": PAIRS, "padding": (*PAIRS, "same", "valid"), "dilation": PAIRS,
                             "groups": INTEGERS, "padding_mode": MODES}),
    "Conv1d": (("c", 4, 3), {"stride": INTEGERS, "padding": (*INTEGERS, "same"), "dilation": INTEGERS,
                             "groups": INTEGERS, "padding_mode": MODES}),
    "ConvTranspose2d": (("c", 4, 3), {"stride": PAIRS, "padding": PAIRS, "output_padding": PAIRS, "groups": (1, 2, 4),
                                      "dilation": PAIRS}),
    "Linear": ((7, 3), {}),
    "BatchNorm2d": (("c",), {"eps": REALS}),
    "BatchNorm1d": (("c",), {"eps": REALS}),
    "InstanceNorm2d": (("c",), {"eps": REALS}),
    "GroupNorm": ((), {"num_groups": INTEGERS, "eps": REALS, "num_channels": ("c",)}),
    "LayerNorm": ((), {"normalized_shape": (7, (6, 7), (4, 6, 7), 4, 0, (), -1), "eps": REALS}),
    "LocalResponseNorm": ((), {"size": INTEGERS, "alpha": REALS, "beta": REALS, "k": REALS}),
    "PReLU": ((1,), {}),
    "LeakyReLU": ((), {"negative_slope": REALS}),
    "ELU": ((), {"alpha": REALS}),
    "CELU": ((), {"alpha": REALS}),
    "GELU": ((), {"approximate": ("none", "tanh", "x")}),
    "Hardtanh": ((), {"min_val": REALS, "max_val": REALS}),
    "Softplus": ((), {"beta": REALS, "threshold": REALS}),
    "Softmax": ((), {"dim": INTEGERS}),
    "LogSoftmax": ((), {"dim": INTEGERS}),
    "Dropout": ((), {"p": (0.5, 0.0, 1.0)}),
    "MaxPool2d": ((), {"kernel_size": PAIRS, "stride": (*PAIRS, None), "padding": PAIRS, "dilation": PAIRS,
                       "ceil_mode": (True, False)}),
    "MaxPool1d": ((), {"kernel_size": INTEGERS, "stride": INTEGERS, "padding": INTEGERS, "ceil_mode": (True, False)}),
    "AvgPool2d": ((), {"kernel_size": PAIRS, "stride": PAIRS, "padding": PAIRS, "ceil_mode": (True, False),
                       "count_include_pad": (True, False), "divisor_override": INTEGERS}),
    "AdaptiveAvgPool2d": ((), {"output_size": (*PAIRS, None, (None, 2))}),
    "AdaptiveMaxPool2d": ((), {"output_size": (*PAIRS, (None, 2))}),
    "Upsample": ((), {"size": (*PAIRS, None), "scale_factor": (*REALS, (2.0, 1.5), None),
                      "mode": ("nearest", "bilinear", "nearest-exact", "bicubic", "x"),
                      "align_corners": (None, True, False)}),
    "ZeroPad2d": ((), {"padding": (*PAIRS, (1, 2, 0, 3), (-1, 0, 0, 0), (1, 2, 3))}),
    "ConstantPad2d": ((), {"padding": (1, (1, 2, 0, 3), (-1, 0, 0, 0)), "value": REALS}),
    "ReflectionPad2d": ((), {"padding": (*PAIRS, (1, 2, 0, 3), (-1, 0, 0, 0), 9)}),
    "ReplicationPad2d": ((), {"padding": (*PAIRS, (1, 2, 0, 3), 9)}),
    "PixelShuffle": ((), {"upscale_factor": INTEGERS}),
    "PixelUnshuffle": ((), {"downscale_factor": INTEGERS}),
    "Flatten": ((), {"start_dim": INTEGERS, "end_dim": INTEGERS}),
    "ReLU": ((), {}),
    "Mish": ((), {}),
}  # fmt: skip
NEEDED = {"num_groups", "num_channels", "normalized_shape", "size", "kernel_size", "output_size", "padding", "value",
          "upscale_factor", "downscale_factor", "dim"}  # fmt: skip


class Case:
    """A list of layers, their arrays, and the corresponding modules if these exist."""

    def __init__(self, seed: int, is_damaged: bool = True) -> None:
        rng = self.rng = random.Random(seed)
        torch.manual_seed(seed)
        self.layers: list[Any] = []
        self.weights: dict[Any, Any] = {}
        self.modules: list[nn.Module] | None = []
        kinds = [rng.choice(sorted(KINDS)) for _ in range(rng.choice([1, 1, 2, 3]))]
        self.shape: Any = (2, 4, 7) if any(kind.endswith("1d") for kind in kinds) else (2, 4, 6, 7)
        for place, kind in enumerate(kinds):
            self._add(f"layer{place}", kind)
        for _ in range(rng.choice([0, 0, 0, 1, 1, 2]) if is_damaged else 0):
            self._damage()

    def _add(self, name: str, kind: str) -> None:
        arguments, choices = KINDS[kind]
        wanted = {key: values for key, values in choices.items() if key in NEEDED or self.rng.random() < 0.5}
        options = {key: self.rng.choice(values) for key, values in wanted.items()}
        odd = self.rng.random() < 0.1 and options
        if odd:
            options[self.rng.choice(sorted(options))] = self.rng.choice(ODD)
        full = {key: 4 if isinstance(value, str) and value == "c" else value for key, value in options.items()}
        options.pop("num_channels", None)
        self.layers.append((name, kind, options))
        first = [4 if argument == "c" else argument for argument in arguments]
        module = None
        try:
            if all(_is_small(value) for value in full.values()):
                module = randomize(getattr(nn, kind)(*first, **full))
        except Exception:
            module = None
        if module is None:
            self.modules = None
            with_defaults = getattr(nn, kind)(*first) if first else nn.ReLU()
            self.weights |= {f"{name}.{key}": value for key, value in with_defaults.state_dict().items()}
            return
        self.weights |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
        if self.modules is not None:
            self.modules.append(module)

    def _damage(self) -> None:
        """Make one item of the list or of the arrays invalid."""
        self.modules = None
        rng = self.rng
        place = rng.randrange(len(self.layers))
        if not isinstance(self.layers[place], tuple) or not isinstance(self.layers[place][-1], dict):
            return  # damaged already
        name, kind, options = self.layers[place]
        choice = rng.randrange(10)
        if choice == 0:
            self.layers[place] = rng.choice([rng.choice(ODD), (name,), (name, kind, options, 1), name, (name, kind, 3)])
        elif choice == 1:
            self.layers[place] = (rng.choice(ODD), kind, options)
        elif choice == 2:
            self.layers[place] = (name, rng.choice([*ODD, *sorted(LAYERS)]), options)
        elif choice == 3:
            sources = rng.choice([*ODD, ["input", "layer0"], ["input"] * 3, "input", ["nothing"], [3], [[]]])
            self.layers[place] = (name, rng.choice([kind, "Add", "Concat"]), {**options, "inputs": sources})
        elif choice == 4:
            self.layers[place] = (name, kind, {**options, rng.choice(["stride", "x", 3, None]): rng.choice(ODD)})
        elif choice == 5:
            self.shape = rng.choice([*ODD, (1, 4), (1, 4, 3, 2, 1), (0, 4, 6, 7), (1, 4, 2**40, 2**40), {"a": (1, 4)},
                                     {"a": (1, 4, 6, 7), "b": 3}, {3: (1, 4, 6, 7)}, (1, 2**40), {}])  # fmt: skip
        elif self.weights:
            key = rng.choice(sorted(self.weights, key=str))
            if choice == 6:
                del self.weights[key]
            elif choice == 7:
                self.weights[rng.choice([3, None, "x", "layer0.x", ("layer0",), "layer0"])] = self.weights[key]
            else:
                self.weights[key] = rng.choice(
                    [*ODD, np.ones(()), np.ones((0,)), np.ones((4, 0, 3, 3)), np.full(4, np.nan), np.ones((2, 2), "U3"),
                     np.array([None, {}], object), [[1.0, 2.0], [3.0]], {"a": 1}, np.ones(4, np.complex64), np.ones(1),
                     np.ones((4, 4, 3, 3)), np.float32(3), np.ones((3, 7)), torch.ones(4, dtype=torch.bfloat16),
                     torch.empty(4, device="meta"), torch.ones(4).to_sparse(),
                     np.full((4, 4, 3, 3), np.inf, np.float32),
                     np.broadcast_to(np.float32(1), (4, 4, 2**20, 2**20))]
                )  # fmt: skip


def _is_small(value: Any) -> bool:
    """Return whether PyTorch can allocate such an argument."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_small, value))
    return not isinstance(value, (int, float)) or abs(value) < 1000 or value != value


def outcome(net: mpscnn.Network, case: Case) -> str:
    """Return "read" if the network computes the modules' result, "unknown" if there is nothing to compare with."""
    if case.modules is None:
        return "unknown"
    x = torch.randn(case.shape)
    expected = x
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for module in case.modules:
                expected = module(expected)
    except Exception:
        return "unknown"
    result, values = np.asarray(net(x.numpy())), expected.numpy()
    assert result.shape == values.shape, case.layers
    finite = np.abs(values[np.isfinite(values)])
    if finite.size < values.size or finite.max(initial=0) > 1e20:
        return "unknown"
    scale = float(finite.max(initial=1e-6))
    np.testing.assert_allclose(result, values, rtol=RELATIVE, atol=RELATIVE * scale, err_msg=str(case.layers))
    return "read"
