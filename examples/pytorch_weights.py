# SPDX-License-Identifier: Apache-2.0
"""Pass PyTorch's convolution weights to MPS in four ways.

1. A raw file, written in PyTorch by ``conv.weight.flatten().detach().numpy().tofile("conv1_weights.bin")``. The program
   maps the file, reorders the axes to MPS's order (output, height, width, input) and passes the array to the kernel,
   which reads it in place.
2. A raw file already in MPS's order: the kernel reads the file's own pages.
3. A ``state_dict``: the tensors as they are, with ``layout="OIHW"`` for PyTorch's order.
4. A safetensors file of that ``state_dict``.

Each result is compared with ``torch.nn.functional.conv2d``. The exit status is 1 if one differs by more than
``--tolerance``, relative to the largest value.

    python examples/pytorch_weights.py [--json] [--out 64 --in 3 --kernel 7 ...]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from safetensors.torch import save_file

import mpscnn

Array = NDArray[np.float32]


def reads_in_place(kernel: mpscnn.Kernel, array: Array) -> bool:
    """Return whether the weights that MPS reads are the array's own memory."""
    source = kernel.data_source
    source.load()
    try:
        return bool(source.weights.ctypes.data == array.ctypes.data)
    finally:
        source.purge()


def write_files(conv: torch.nn.Conv2d, folder: Path) -> None:
    """Write the files with PyTorch, as a training program does."""
    conv.weight.flatten().detach().numpy().tofile(folder / "conv1_weights.bin")
    conv.bias.detach().numpy().tofile(folder / "conv1_bias.bin")
    conv.weight.detach().permute(0, 2, 3, 1).contiguous().numpy().tofile(folder / "conv1_weights_ohwi.bin")
    save_file(conv.state_dict(), folder / "conv1.safetensors")


def from_raw_file(folder: Path, shape: tuple[int, ...], **geometry: int) -> tuple[mpscnn.Kernel, bool]:
    """Map and reorder the weights, without PyTorch."""
    weight = mpscnn.map_weights(folder / "conv1_weights.bin", shape)
    bias = mpscnn.map_weights(folder / "conv1_bias.bin", shape[:1])
    ohwi = mpscnn.reorder(weight, "OIHW", "OHWI")
    kernel = mpscnn.Convolution(ohwi, bias, layout="OHWI", **geometry)
    return kernel, reads_in_place(kernel, ohwi)


def from_ohwi_file(folder: Path, shape: tuple[int, ...], **geometry: int) -> tuple[mpscnn.Kernel, bool]:
    """Map the weights; the kernel reads the file's pages."""
    o, i, h, w = shape
    ohwi = mpscnn.map_weights(folder / "conv1_weights_ohwi.bin", (o, h, w, i))
    bias = mpscnn.map_weights(folder / "conv1_bias.bin", (o,))
    kernel = mpscnn.Convolution(ohwi, bias, layout="OHWI", **geometry)
    return kernel, reads_in_place(kernel, ohwi)


def from_tensors(tensors: dict[str, Any], **geometry: int) -> tuple[mpscnn.Kernel, bool]:
    """Pass a PyTorch state_dict or the arrays of a safetensors file, which are reordered while the kernel loads."""
    return mpscnn.Convolution(tensors["weight"], tensors["bias"], layout="OIHW", **geometry), False


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run all four ways; differences are relative to the max value of PyTorch's result."""
    torch.manual_seed(options.seed)
    geometry = {"stride": options.stride, "padding": options.kernel // 2}
    conv = torch.nn.Conv2d(options.inputs, options.outputs, options.kernel, **geometry)
    pixels = torch.randn(options.batch, options.inputs, options.size, options.size)
    with torch.no_grad():
        expected = torch.nn.functional.conv2d(pixels, conv.weight, conv.bias, **geometry).permute(0, 2, 3, 1).numpy()
    x = pixels.permute(0, 2, 3, 1).contiguous()  # MPS's images are N, H, W, C

    shape = tuple(conv.weight.shape)
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(conv, folder)
        ways: dict[str, Callable[[], tuple[mpscnn.Kernel, bool]]] = {
            "raw file, reordered": lambda: from_raw_file(folder, shape, **geometry),
            "raw file in MPS's order": lambda: from_ohwi_file(folder, shape, **geometry),
            "state_dict": lambda: from_tensors(conv.state_dict(), **geometry),
            "safetensors": lambda: from_tensors(load_file(folder / "conv1.safetensors"), **geometry),
        }
        for way, make in ways.items():
            kernel, in_place = make()
            y = kernel(x)
            difference = (
                float(np.abs(y - expected).max() / np.abs(expected).max()) if y.shape == expected.shape else np.inf
            )
            results.append({"weights": way, "read_in_place": in_place, "difference": difference})
            del kernel  # unmap the files before the folder is removed
    return {
        "weight_shape": shape,
        "result_shape": expected.shape,
        "device": mpscnn.Device().name,
        "tolerance": options.tolerance,
        "results": results,
        # "not <=" so that NaN fails
        "ok": not any(not result["difference"] <= options.tolerance for result in results),
    }


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="PyTorch's convolution weights through mpscnn.Convolution, in four ways."
    )

    def positive(text: str) -> int:
        number = int(text)
        if number < 1:
            raise argparse.ArgumentTypeError(f"{number} is less than the minimum (1)")
        return number

    parser.add_argument("--out", dest="outputs", type=positive, default=64, metavar="N", help="output channels (64)")
    parser.add_argument("--in", dest="inputs", type=positive, default=3, metavar="N", help="input channels (3)")
    parser.add_argument("--kernel", type=positive, default=7, metavar="N", help="kernel height and width, pixels (7)")
    parser.add_argument("--stride", type=positive, default=2, metavar="N", help="pixels (2)")
    parser.add_argument("--size", type=positive, default=112, metavar="N", help="image height and width, pixels (112)")
    parser.add_argument("--batch", type=positive, default=2, metavar="N", help="images (2)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of weights and pixels (0)")
    parser.add_argument("--tolerance", type=float, default=1e-5, metavar="X", help="largest relative difference (1e-5)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    report = run(options)
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        shape = "x".join(map(str, report["weight_shape"]))
        print(f"conv1, weights {shape} (O, I, H, W), on {report['device']}, against torch.nn.functional.conv2d")
        for result in report["results"]:
            note = "read in place" if result["read_in_place"] else "reordered while loading"
            print(f"  {result['weights']:<24} {note:<24} largest difference {result['difference']:.1e}")
        print("all equal" if report["ok"] else f"DIFFERENT: more than {report['tolerance']:g}")
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
