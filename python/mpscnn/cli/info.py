# SPDX-License-Identifier: Apache-2.0
"""mpscnn info: the device and the build, or a model's layers and memory."""

from __future__ import annotations

import contextlib
import platform
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .. import memory
from .._core import __version__
from ..benchmarking import metadata_version, processors
from ..device import Device
from ..layers import LayerTable, MemoryPlan, bytes_text, layer_table, memory_plan, shape_text
from ..network import Network
from ..tuning import choices
from . import cuda, options
from .console import pairs, stdout, table, write_json
from .models import load

# Columns of the table of layers that narrow terminals drop, in this order.
LESS_IMPORTANT = ("weights", "Apple's class", "from", "KiB")
_PACKAGES = ("onnx", "torch", "safetensors", "pillow", "matplotlib", "onnxruntime", "openvino")


def info(
    model: Annotated[
        Path | None,
        typer.Argument(exists=True, help="A model; default: the device and the build.", show_default=False),
    ] = None,
    input_shape: options.InputShapes = None,
    architecture: options.Architecture = None,
    option: options.ReaderOptions = None,
    dtype: options.Precision = options.DType.float32,
    optimize: options.Optimize = True,
    json: options.Json = False,
    traceback: options.Traceback = False,
) -> None:
    """Show the device, or the layers, shapes, operations and memory of a model."""
    if model is None:
        described = environment()
        if json:
            write_json(described)
        else:
            stdout().print(pairs(_environment_rows(described)))
        return
    loaded = load(model, input_shape, architecture=architecture, option=option, dtype=dtype.value, optimize=optimize)
    shapes = loaded.input_shapes()
    layers, plan = layer_table(loaded.network, shapes), memory_plan(loaded.network, shapes)
    if json:
        write_json({"model": model, **boundary(loaded.network, shapes), **layers.to_dict(), "memory": plan.to_dict()})
    else:
        show(model, loaded.network, shapes, layers, plan)


def environment() -> dict[str, Any]:
    """Return device, memory, versions and build."""
    from ..config import config

    device = Device()
    build = config_or_reason(config)
    found = cuda.report()
    devices = [_described(one, found) for one in Device.all()]
    return {
        "version": __version__,
        "device": {
            "name": device.name,
            "engine": devices[0]["engine"],
            "others": [other["name"] for other in devices[1:]],
            "supported": device.is_supported,
            "shares_images": device.shares_images,
            "allocated_bytes": memory.current(device),
            "peak_bytes": memory.peak(device),
            "cached_bytes": _cached(device),
            "recommended_max_working_set_bytes": device.recommended_max_working_set_bytes,
            "max_buffer_bytes": device.max_buffer_bytes,
        },
        "devices": devices,
        "choices": choices(),
        "cuda": None if found is None else {**found, "cache": _cache()},
        "system": {
            "platform": platform.platform(),
            "machine": platform.machine(),
            "cpus": processors(),
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "build": build,
        "packages": {name: metadata_version(name) or None for name in _PACKAGES},
    }


def config_or_reason(config: Any) -> dict[str, Any]:
    """Return the folders of headers and libraries, or the reason why they are unknown, which is not an error here."""
    try:
        found = config()
    except FileNotFoundError as error:
        return {"platform": sys.platform, "missing": str(error)}
    return {name: found[name] for name in ("platform", "compiler", "include_dir", "lib_dir")}


def _described(device: Device, found: dict[str, Any] | None) -> dict[str, Any]:
    """Return name, engine and, for GPUs of CUDA, compute capability."""
    capabilities = {} if found is None else found["compute_capabilities"]
    for name, capability in capabilities.items():
        with contextlib.suppress(ValueError):  # devices have no engines under Apple's rules
            if Device(name) == device:
                return {"name": device.name, "engine": name, "compute_capability": capability}
    return {"name": device.name, "engine": _engine(device.name), "compute_capability": None}


def _cache() -> dict[str, Any]:
    folder = cuda.cache_folder("cuda")
    try:
        files = {} if folder is None else cuda.cached_files(folder)
    except OSError as error:  # shown, not an error here
        return {"folder": folder, "files": None, "bytes": None, "missing": str(error)}
    return {"folder": folder, "files": len(files), "bytes": sum(files.values()), "missing": None}


def _engine(name: str) -> str:
    """Return the engine's name, which is in parentheses in the name of a CPU device."""
    if name == "CUDA on the host":
        return "cuda-host"
    inside = re.search(r"\(([^()]+)\)$", name)
    return inside[1] if inside else "Metal Performance Shaders" if sys.platform == "darwin" else name


def _cached(device: Device) -> int | None:
    try:
        return memory.cached(device)
    except NotImplementedError:
        return None


def _environment_rows(described: dict[str, Any]) -> list[tuple[str, str]]:
    device, system, build = described["device"], described["system"], described["build"]
    cached = device["cached_bytes"]
    return [
        ("mpscnn", described["version"]),
        ("device", device["name"] + ("" if device["supported"] else " (MPS does not support it)")),
        ("engine", device["engine"]),
        *([("other devices", ", ".join(map(_device_text, described["devices"][1:])))] if device["others"] else []),
        ("choices by timing", f"{described['choices']} (mpscnn tune)"),
        *_cuda_rows(described["cuda"]),
        ("images in arrays' memory", "yes" if device["shares_images"] else "no"),
        ("memory in use", bytes_text(device["allocated_bytes"])),
        *([] if cached is None else [("memory kept for later", bytes_text(cached))]),
        ("recommended working set", bytes_text(device["recommended_max_working_set_bytes"])),
        ("largest buffer", bytes_text(device["max_buffer_bytes"])),
        ("system", f"{system['platform']}, {system['cpus']} processors"),
        ("Python, NumPy", f"{system['python']}, {system['numpy']}"),
        *((name.replace("_", " "), str(value)) for name, value in build.items() if value and name != "platform"),
        ("packages", ", ".join(f"{name} {version or 'absent'}" for name, version in described["packages"].items())),
    ]


def _device_text(device: dict[str, Any]) -> str:
    capability = device["compute_capability"]
    return f"{device['name']} ({device['engine']}, compute capability {capability})" if capability else device["name"]


def _cuda_rows(found: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return driver, libraries and cache; without a driver, only the reason."""
    if found is None:
        return []
    if found["driver"] is None:
        return [("CUDA", found["missing"])]
    cache = found["cache"]
    size = cache["missing"] or f"{cache['folder']}, {cache['files']} files, {bytes_text(cache['bytes'])}"
    return [
        ("CUDA", f"the driver supports {found['driver']}"),
        *((name, library["file"] or library["missing"]) for name, library in found["libraries"].items()),
        ("CUDA's cache", size if cache["folder"] else "none: neither XDG_CACHE_HOME nor HOME is set"),
    ]


def boundary(network: Network, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return inputs and outputs for JSON."""
    from ..layers import output_shapes

    results = output_shapes(network, shapes)
    return {
        "dtype": network.dtype,
        "inputs": [
            {
                "name": name,
                "layout": spec.layout,
                "shape": list(shapes[name]),
                "channels": spec.channels,
                "height": spec.height,
                "width": spec.width,
                "fixed_by": spec.fixed_by or None,
                "dtype": spec.dtype or None,
                "sizes": spec.sizes or None,
            }
            for name, spec in network.inputs.items()
        ],
        "outputs": [
            {"name": name, "layout": output.layout, "shape": list(results[name])}
            for name, output in network.outputs.items()
        ],
    }


def show(
    path: Path, network: Network, shapes: dict[str, tuple[int, ...]], layers: LayerTable, plan: MemoryPlan
) -> None:
    """Print the layers, boundary and memory of a network as text."""
    out = stdout()
    ends = boundary(network, shapes)
    rows = [("model", path.name)]
    for spec in ends["inputs"]:
        size = "any height and width"
        if spec["height"] and spec["width"]:
            size = f"{spec['height']} x {spec['width']} pixels" if spec["height"] * spec["width"] > 1 else ""
        fixed = f", fixed by {spec['fixed_by']}" if spec["fixed_by"] else ""
        fixed += f", if {spec['sizes']}" if spec["sizes"] else ""
        fixed += f"; {spec['dtype']}" if spec["dtype"] else ""
        rows.append(
            (f"input {spec['name']}", f"{spec['layout']} {shape_text(spec['shape'])}; {size}{fixed}".strip("; "))
        )
    rows += [(f"output {spec['name']}", f"{spec['layout']} {shape_text(spec['shape'])}") for spec in ends["outputs"]]
    out.print(pairs(rows))
    header, lines, totals = layers.rows()
    out.print(table(header, lines, totals, right=3, less_important=LESS_IMPORTANT))
    out.print(pairs([("multiply-adds", f"{layers.multiply_adds / 1e9:.3f} G"), *plan.rows()]))
