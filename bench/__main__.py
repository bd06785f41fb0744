# SPDX-License-Identifier: Apache-2.0
"""``make bench`` and ``python -m bench``: all benchmarks, as tables or as JSON."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

import mpscnn
from mpscnn import benchmarking
from mpscnn.layers import aligned

from . import (
    calls,
    candidates,
    contention,
    convolutions,
    core_ai,
    first,
    fully_connected,
    functions,
    gpu,
    gpu_streams,
    gpu_training,
    gradients,
    graphs,
    images,
    kernels,
    networks,
    normalization,
    quantized,
    reorder,
    training,
    winograd,
)
from .arguments import within

# Of the CPU's device: those of a GPU have to be asked for.
SECTIONS = [
    "calls",
    "first",
    "reorder",
    "kernels",
    "normalization",
    "images",
    "gradients",
    "functions",
    "networks",
    "graphs",
    "training",
    "contention",
    "convolutions",
    "winograd",
    "fully_connected",
]
GPU_SECTIONS = ["gpu", "gpu_training", "gpu_streams", "candidates"]
# A peer takes seconds for a call, or minutes to quantize the networks: to be asked for, too.
SLOW_SECTIONS = ["core_ai", "quantized"]


def _print_kernels(rows: list[dict[str, Any]]) -> None:
    print(f"{'kernel':<30} {'ours us':>10} {'torch us':>10} {'torch/ours':>10} {'GFLOP/s':>9} {'make us':>10}")
    for row in rows:
        seconds = row["seconds"]
        theirs = seconds.get("torch")
        print(
            f"{row['case']:<30} {seconds['ours'] * 1e6:>10.1f} "
            + (f"{theirs * 1e6:>10.1f} {theirs / seconds['ours']:>10.2f}" if theirs else f"{'-':>10} {'-':>10}")
            + f" {row['gflops']:>9.1f} {seconds['make'] * 1e6:>10.1f}"
        )


def _print_images(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"{title:<76} {'ours us':>10} {'torch us':>10} {'torch/ours':>10} {'GB/s':>7}")
    for row in rows:
        ours, theirs = row["seconds"]["ours"], row["seconds"].get("torch")
        print(
            f"{row['case']:<76} {ours * 1e6:>10.1f} "
            + (f"{theirs * 1e6:>10.1f} {theirs / ours:>10.2f}" if theirs else f"{'-':>10} {'-':>10}")
            + f" {row['gigabytes']:>7.1f}"
        )


def _print_functions(rows: list[dict[str, Any]]) -> None:
    header = ("Metal function", "image", "ms", "GB/s", "kernel ms", "kernel/ours", "torch ms", "torch/ours")
    lines = []
    for row in rows:
        ours, others = row["seconds"]["function"], (row["seconds"].get(name) for name in ("kernel", "torch"))
        cells = [
            text for other in others for text in ((f"{other * 1e3:.2f}", f"{other / ours:.2f}") if other else "--")
        ]
        shape = " x ".join(map(str, row["shape"]))
        lines.append((row["case"], shape, f"{ours * 1e3:.2f}", f"{row['gigabytes']:.2f}", *cells))
    print(aligned(header, lines, right=6))


def _print_absent(rows: list[dict[str, Any]]) -> None:
    for name, reason in {name: reason for row in rows for name, reason in row["absent"].items()}.items():
        print(f"without {name}: {reason}")


def _print_networks(rows: list[dict[str, Any]]) -> None:
    header = ("network", "", "products", "ms", "least", "images/s", "time/ours", "difference")
    lines = [
        (
            f"{row['case']}, batch {row['batch']}",
            one["name"],
            one["precision"],
            f"{one['seconds'] * 1e3:.2f}",
            f"{one['least'] * 1e3:.2f}",
            f"{one['images_per_second']:.1f}",
            f"{one['ratio']:.2f}",
            f"{one['difference']:.0e}",
        )
        for row in rows
        for one in row["measured"]
    ]
    print(aligned(header, lines, right=5))
    _print_absent(rows)


def _print_quantized(rows: list[dict[str, Any]]) -> None:
    header = ("network", "", "ms", "least", "float32/time", "least", "SNR dB")
    lines = []
    for row in rows:
        for name, one in row["measured"].items():
            cells = [f"{one[key] * 1e3:.2f}" for key in ("seconds", "least")]
            cells += [f"{one[key]:.2f}" for key in ("speedup", "least_speedup")]
            lines.append((row["case"], name, *cells, "" if one["decibels"] is None else f"{one['decibels']:.1f}"))
    print(aligned(header, lines, right=5))


def _print_graphs(rows: list[dict[str, Any]]) -> None:
    header = ("network", "kernels", "MPSNNGraph ms", "Network ms", "ratio", "encode us", "Network's", "ratio")
    lines = []
    for row in rows:
        cells = []
        for key, unit in (("seconds", 1e3), ("encode", 1e6)):
            graph, network = (row[key][name] for name in ("graph", "network"))
            cells += [f"{graph * unit:.2f}", f"{network * unit:.2f}", f"{network / graph:.2f}"]
        lines.append((row["case"], str(row["kernels"]), *cells))
    print(aligned(header, lines, right=7))


def _print_training(rows: list[dict[str, Any]]) -> None:
    header = ("training step", "", "who", "ms", "least", "time/ours", "MB", "device MB")
    lines = []
    for row in rows:
        what = (f"{row['case']}, batch {row['batch']}", "bfloat16" if row["reduced_precision"] else "float32")
        for who in row["seconds"]:
            memory = row["memory"].get(who, {})
            lines.append((
                *what,
                who,
                *(f"{row[key][who] * 1e3:.1f}" for key in ("seconds", "least")),
                f"{row['ratio'].get(who, 1.0):.2f}",
                *(f"{memory[key] / 1e6:.0f}" if key in memory else "" for key in ("resident", "device")),
            ))  # fmt: skip
    print(aligned(header, lines, right=5))


def _print_contention(rows: list[dict[str, Any]]) -> None:
    header = ("network", "busy loops", "", "ms", "90 %", "CPU ms", "time/ours")
    lines = []
    for row in rows:
        for one in row["measured"]:
            times = (f"{one[key] * 1e3:.2f}" for key in ("seconds", "p90", "processor"))
            lines.append((row["case"], str(row["busy_loops"]), one["name"], *times, f"{one['ratio']:.2f}"))
    print(aligned(header, lines, right=4))
    _print_absent(rows)


def _print_calls(rows: list[dict[str, Any]]) -> None:
    print(aligned(("call", "us"), [(row["case"], f"{row['seconds'] * 1e6:.1f}") for row in rows], right=1))


def _print_first(rows: list[dict[str, Any]]) -> None:
    header = ("network", "", "import ms", "load ms", "first ms", "load + first", "MB", "max MB")
    lines = []
    for row in rows:
        for name, one in row["measured"].items():
            times = [one["import"], one["load"], one["first"], one["load"] + one["first"]]
            memory = [one["resident"], one["peak"]]
            cells = [*(f"{value * 1e3:.0f}" for value in times), *(f"{value / 1e6:.0f}" for value in memory)]
            lines.append((row["case"], name, *cells))
    print(aligned(header, lines, right=6))
    _print_absent(rows)


def _print_convolutions(rows: list[dict[str, Any]]) -> None:
    header = ("convolution", "mpscnn us", "oneDNN us", "ratio", "GFLOP/s", "of the peak", "oneDNN's")
    lines = []
    for row in rows:
        ours, theirs = (row["seconds"][name] for name in ("mpscnn", "oneDNN"))
        speed = row["gflops"]
        shares = (f"{speed[name] / speed['peak']:.2f}" for name in ("mpscnn", "oneDNN"))
        times = (f"{ours * 1e6:.0f}", f"{theirs * 1e6:.0f}", f"{theirs / ours:.2f}", f"{speed['mpscnn']:.0f}")
        lines.append((row["case"], *times, *shares))
    print(aligned(header, lines, right=6))


def _print_winograd(rows: list[dict[str, Any]]) -> None:
    header = (
        "3 x 3 convolution",
        "direct ms",
        "Winograd ms",
        "ratio",
        "max error",
        "Winograd's",
        "rms error",
        "Winograd's",
    )
    lines = []
    for row in rows:
        direct, own = (row["seconds"][name] for name in ("primitive", "winograd"))
        errors = (f"{row[key][name]:.1e}" for key in ("max_error", "rms_error") for name in ("primitive", "winograd"))
        lines.append((row["case"], f"{direct * 1e3:.3f}", f"{own * 1e3:.3f}", f"{direct / own:.2f}", *errors))
    print(aligned(header, lines, right=7))


def _print_fully_connected(rows: list[dict[str, Any]]) -> None:
    lines = []
    for row in rows:
        before, own = (row["seconds"][name] for name in fully_connected.IMPLEMENTATIONS)
        lines.append((row["case"], f"{before * 1e6:.0f}", f"{own * 1e6:.0f}", f"{before / own:.1f}"))
    print(aligned(("fully connected", "oneDNN us", "mpscnn us", "ratio"), lines, right=3))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "what",
        nargs="*",
        choices=[*SECTIONS, *GPU_SECTIONS, *SLOW_SECTIONS, []],
        help="default: all that need no GPU and are not slow",
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each case (default: %(default)s)")
    parser.add_argument("--case", default="", help="only cases whose name contains this text")
    parser.add_argument(
        "--best", action="store_true", help="min times, not medians (kernels without weights, gradients)"
    )
    parser.add_argument("--plot", default="", metavar="FILE", help="plot the networks' times: .png, .svg, .pdf")
    parser.add_argument("--busy", action="store_true", help="networks: beside as many busy loops as processors")
    parser.add_argument(
        "--peers",
        default="",
        metavar="NAMES",
        help=f"networks: only these, divided by semicolons, of {'; '.join((*networks.PEERS, *networks.THROUGHPUT))}",
    )
    parser.add_argument("--markdown", action="store_true", help="networks: tables in Markdown, with geometric means")
    parser.add_argument("--compile", action="store_true", help="training: torch.compile too")
    parser.add_argument("--batch", type=within(1), metavar="N", help="batch size of training")
    parser.add_argument(
        "--device", default="cuda:0", help="device of sections of a GPU; gpu_streams: or all (default: %(default)s)"
    )
    parser.add_argument(
        "--layers", action="store_true", help="gpu: the time of each kernel and its share of the roofline"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    what = options.what or SECTIONS
    cpus = benchmarking.processors()
    results: dict[str, Any] = {"device": mpscnn.Device().name, "version": mpscnn.__version__, "cpus": cpus}
    if not options.json:
        print(f"mpscnn {results['version']} on {results['device']}, {cpus} processors")
        print(f"load average {os.getloadavg()[0]:.1f}: ratios count, and only on a quiet machine\n")
    if "reorder" in what:
        rows = reorder.run(seconds=options.seconds, case=options.case, quiet=options.json)
        results["reorder"] = rows
    if "calls" in what:
        results["calls"] = calls.run(options.seconds, options.case)
        if not options.json:
            print()
            _print_calls(results["calls"])
    if "first" in what:
        results["first"] = first.run(options.seconds, options.case, quiet=options.json)
        if not options.json:
            print()
            _print_first(results["first"])
    if "kernels" in what:
        results["kernels"] = kernels.run(options.seconds, options.case)
        if not options.json:
            print()
            _print_kernels(results["kernels"])
    sections = {
        "normalization": ("kernel without weights", normalization),
        "images": ("kernel without weights", images),
        "gradients": ("gradient", gradients),
    }
    for section, (title, module) in sections.items():
        if section not in what:
            continue
        results[section] = module.run(options.seconds, options.case, options.best)
        if not options.json:
            print()
            _print_images(title, results[section])
    if "functions" in what:
        try:
            results["functions"] = functions.run(options.seconds, options.case, options.best)
        except NotImplementedError as reason:  # no compiler
            results["functions"] = []
            print(f"without functions: {reason}", file=sys.stderr)
        if not options.json:
            print()
            _print_functions(results["functions"])
    if "networks" in what:
        names = [name.strip() for name in options.peers.split(";")] if options.peers else networks.PEERS
        results["networks"] = networks.run(
            options.seconds, options.case, options.plot, peers=names, busy=options.busy, quiet=options.json
        )
        if options.markdown:
            print(networks.markdown(results["networks"]))
        elif not options.json:
            print()
            _print_networks(results["networks"])
    if "core_ai" in what:
        results["core_ai"] = core_ai.run(options.seconds, options.case)
        if not options.json:
            print()
            _print_networks(results["core_ai"])
    if "quantized" in what:
        try:
            results["quantized"] = quantized.run(options.seconds, options.case)
        except ModuleNotFoundError as reason:
            results["quantized"] = []
            print(f"without quantized networks: {reason}", file=sys.stderr)
        if not options.json:
            print()
            _print_quantized(results["quantized"])
    if "graphs" in what:
        try:
            results["graphs"] = graphs.run(options.seconds, options.case, options.best)
        except ModuleNotFoundError:  # PyTorch
            results["graphs"] = []
        if not options.json:
            print()
            _print_graphs(results["graphs"])
    if "training" in what:
        try:
            results["training"] = training.run(options.seconds, options.case, options.batch, compiled=options.compile)
        except ModuleNotFoundError:
            results["training"] = []
        if not options.json:
            print()
            _print_training(results["training"])
    if "contention" in what:
        results["contention"] = contention.run(options.seconds, options.case, quiet=options.json)
        if not options.json:
            print()
            _print_contention(results["contention"])
    if "convolutions" in what:
        results["convolutions"] = convolutions.run(options.seconds, options.case, quiet=options.json)
        if not options.json:
            print()
            _print_convolutions(results["convolutions"])
    if "winograd" in what:
        results["winograd"] = winograd.run(options.seconds, options.case)
        if not options.json:
            print()
            _print_winograd(results["winograd"])
    if "fully_connected" in what:
        results["fully_connected"] = fully_connected.run(options.seconds, options.case)
        if not options.json:
            print()
            _print_fully_connected(results["fully_connected"])
    if "gpu" in what:
        results["gpu"] = gpu.run(
            options.seconds, options.case, options.device, by_layer=options.layers, quiet=options.json
        )
    if "gpu_training" in what:
        results["gpu_training"] = gpu_training.run(options.seconds, options.case, options.device, quiet=options.json)
    if "gpu_streams" in what:
        results["gpu_streams"] = gpu_streams.run(options.device, quiet=options.json)
    if "candidates" in what:
        results["candidates"] = candidates.run(options.case, options.device, quiet=options.json)
    if options.json:
        print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
