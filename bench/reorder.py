# SPDX-License-Identifier: Apache-2.0
"""Reordering of weights, OIHW to OHWI: ours against memcpy, PyTorch and NumPy, interleaved in one run.

``python -m bench.reorder [--json] [--seconds S] [--case TEXT]``. See bench/timing.py for the timing method.

The requirements per case:

* every case: not slower than NumPy or PyTorch;
* (512, 512, 3, 3) and (4096, 512, 7, 7) in float32: 1.3 times PyTorch's speed and twice NumPy's;
* cases over 1 MB: with ``out=``, 0.9 of the speed of a memcpy of the same bytes on two threads into resident memory;
  only 0.7 if source and result together fit into the last-level cache. There memcpy's stores are sequential, but a
  transpose writes to one position for each pixel of the window. The same loads and stores without shuffles reached
  0.76 to 0.83 of memcpy (3 x 3 and 5 x 5, all types, a fourth-generation AMD EPYC).

A requirement counts as missed below 0.95 of it, because two runs of the same code differ by that much.
"""

from __future__ import annotations

import argparse
import json as json_module
import platform
import sys
from collections.abc import Callable

import numpy as np

import mpscnn
from mpscnn import _core

from .timing import interleaved

THREADS = 2
SHAPES: list[tuple[tuple[int, ...], tuple[int, int, int] | None]] = [
    ((32, 1, 3, 3), None),  # depth-wise
    ((16, 16, 3, 3), None),
    ((64, 3, 7, 7), None),
    ((256, 64, 5, 5), None),
    ((512, 512, 3, 3), None),
    ((2048, 1024, 1, 1), None),
    ((4096, 512 * 7 * 7), (512, 7, 7)),  # linear
    ((4096, 512, 7, 7), None),
]
DTYPES = ("float32", "float16", "uint8")
LAST_LEVEL_CACHE = 32 << 20
NOISE = 0.95
STRICT = {(512, 512, 3, 3), (4096, 512, 7, 7)}


def _torch():
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(THREADS)
    return torch


def _contestants(
    shape: tuple[int, ...], feature_map: tuple[int, int, int] | None, dtype: str, torch
) -> dict[str, Callable]:
    # Random bytes, so that no page is the shared zero page. NaNs among them do not matter.
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    a = np.random.default_rng(0).integers(0, 256, size, np.uint8).view(dtype).reshape(shape)
    four = a.reshape(shape[0], *feature_map) if feature_map else a
    out = mpscnn.empty([four.shape[i] for i in (0, 2, 3, 1)], dtype)
    out[...] = 0
    flat, flat_out = a.reshape(-1), out.reshape(-1)
    runs: dict[str, Callable] = {}
    if feature_map:
        runs["ours"] = lambda: mpscnn.reorder(a, source="OIHW", target="OHWI", feature_map=feature_map)
        runs["ours_out"] = lambda: mpscnn.reorder(a, source="OIHW", target="OHWI", out=out, feature_map=feature_map)
        runs["numpy"] = lambda: np.ascontiguousarray(a.reshape(shape[0], *feature_map).transpose(0, 2, 3, 1))
    else:
        runs["ours"] = lambda: mpscnn.reorder(a, source="OIHW", target="OHWI")
        runs["ours_out"] = lambda: mpscnn.reorder(a, source="OIHW", target="OHWI", out=out)
        runs["numpy"] = lambda: np.ascontiguousarray(a.transpose(0, 2, 3, 1))
    runs["memcpy"] = lambda: _core._memcpy_threads(flat_out, flat, THREADS)
    if torch is not None:
        t = torch.from_numpy(a)
        if feature_map:
            runs["torch"] = lambda: t.view(shape[0], *feature_map).permute(0, 2, 3, 1).contiguous()
        else:
            runs["torch"] = lambda: t.permute(0, 2, 3, 1).contiguous()
        if four.nbytes > 1 << 20:
            u = torch.from_numpy(out)
            four_t = torch.from_numpy(four)
            runs["torch_out"] = lambda: u.copy_(four_t.permute(0, 2, 3, 1))
    # If the order in memory does not change, all three return a view.
    expected = np.ascontiguousarray(four.transpose(0, 2, 3, 1)).view(np.uint8)
    assert np.array_equal(runs["ours"]().view(np.uint8), expected), "the result is wrong"
    assert np.array_equal(runs["ours_out"]().view(np.uint8), expected), "the result in out is wrong"
    return runs


def _misses(row: dict, seconds: dict[str, float]) -> list[str]:
    misses = []

    def demand(name: str, ours: str, ratio: float) -> None:
        if name in seconds and seconds[name] / seconds[ours] < NOISE * ratio:
            misses.append(f"{ours} is {seconds[name] / seconds[ours]:.2f} of {name}, not {ratio:g}")

    strict = tuple(row["shape"]) in STRICT and row["dtype"] == "float32"
    demand("torch_out", "ours_out", 1.0)
    demand("torch", "ours", 1.3 if strict else 1.0)
    demand("numpy", "ours", 2.0 if strict else 1.0)
    if row["bytes"] > 1 << 20:
        in_cache = 2 * row["bytes"] <= LAST_LEVEL_CACHE and not row["view"]
        demand("memcpy", "ours_out", 0.7 if in_cache else 0.9)
    return misses


def run(json: bool = False, seconds: float = 1.0, case: str = "", quiet: bool = False) -> list[dict]:
    """Time each case for about `seconds`; print a table, or JSON, unless quiet. Times are seconds per call."""
    torch = _torch()
    rows = []
    for shape, feature_map in SHAPES:
        for dtype in DTYPES:
            name = f"{'linear ' if feature_map else ''}{'x'.join(map(str, shape))} {dtype}"
            if case not in name:
                continue
            runs = _contestants(shape, feature_map, dtype, torch)
            times = interleaved(runs, seconds)
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            row = {"case": name, "shape": list(shape), "dtype": dtype, "bytes": size}
            row["view"] = not feature_map and (shape[1] == 1 or shape[2] * shape[3] == 1)
            row["seconds"] = times
            row["ratios"] = {
                key: times[key] / times["ours_out" if key in ("memcpy", "torch_out") else "ours"]
                for key in times
                if "ours" not in key
            }
            row["misses"] = _misses(row, times)
            rows.append(row)
    if json:
        print(json_module.dumps(rows, indent=1))
    elif not quiet:
        _print(rows, torch)
    return rows


def _print(rows: list[dict], torch) -> None:
    print(f"{platform.processor() or platform.machine()}, {THREADS} threads, numpy {np.__version__}", end="")
    print(f", torch {torch.__version__}" if torch is not None else ", no torch")
    head = ["case", "MB", "ours us", "out= us", "out= GB/s", "memcpy/out=", "torch/ours", "torch/out=", "numpy/ours"]
    body = []
    for row in rows:
        ours, out = row["seconds"]["ours"], row["seconds"]["ours_out"]
        view = " (view)" if row["view"] else ""
        ratio = {key: f"{value:.2f}" for key, value in row["ratios"].items()}
        body.append(
            [
                row["case"],
                f"{row['bytes'] / 1e6:.3g}",
                f"{ours * 1e6:.2f}",
                f"{out * 1e6:.2f}",
                f"{2 * row['bytes'] / out / 1e9:.1f}",
                ratio["memcpy"],
                ratio.get("torch", "-") + view,
                ratio.get("torch_out", "-"),
                ratio["numpy"] + view,
            ]
        )
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
        for line in [head, *body]:
            print(
                "  ".join(
                    text.ljust(width) if i == 0 else text.rjust(width)
                    for i, (text, width) in enumerate(zip(line, widths, strict=False))
                )
            )
    else:
        table = Table(*head)
        for line in body:
            table.add_row(*line)
        Console().print(table)
    for row in rows:
        for miss in row["misses"]:
            print(f"below the demand: {row['case']}: {miss}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.reorder", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each case")
    parser.add_argument("--case", default="", help="only cases whose name contains this text")
    options = parser.parse_args(arguments)
    run(json=options.json, seconds=options.seconds, case=options.case)
    return 0


if __name__ == "__main__":
    sys.exit(main())
