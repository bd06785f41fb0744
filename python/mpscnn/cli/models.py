# SPDX-License-Identifier: Apache-2.0
"""Loading of models for the commands, and shapes of their inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray

import mpscnn

from .. import _inputs
from ..errors import MissingPackageError
from ..layers import default_shapes, image_shapes, loaded_shapes
from ..network import Network
from . import options
from .console import progress


@dataclass
class Loaded:
    """A network, its file, and the given shapes of its inputs."""

    path: Path
    network: Network
    shapes: dict[str, tuple[int, ...]]
    texts: list[str] | None

    def input_shapes(self, batch: int | None = None) -> dict[str, tuple[int, ...]]:
        """Return the shapes of input arrays in the order of their axes, with `batch` as the first extent if given.

        Raise ValueError if neither the command line nor the model gives a shape.
        """
        network = self.network
        known = {**(default_shapes(network) or {}), **loaded_shapes(network), **self.shapes}
        for name, spec in network.inputs.items():
            if name not in known:
                extents = [{"N": 1, "H": spec.height, "W": spec.width, "C": spec.channels}[x] for x in spec.layout]
                if any(extent is None for extent in extents):
                    known_part = "x".join("?" if extent is None else str(extent) for extent in extents)
                    raise ValueError(
                        f'input "{name}" takes any size ({spec.layout}: {known_part}): say which with'
                        f" --input-shape {name}=..."
                    )
                known[name] = tuple(int(extent or 1) for extent in extents)
        if batch is not None:
            known = {name: (batch, *shape[1:]) for name, shape in known.items()}
        image_shapes(network, known)
        return {name: known[name] for name in network.inputs}

    def random_arrays(self, seed: int, batch: int | None = None) -> dict[str, NDArray[Any]]:
        """Return seeded standard normal numbers, rounded for inputs of whole numbers."""
        arrays = random_arrays(self.input_shapes(batch), seed)
        return {name: _inputs.rounded(array, self.network.inputs[name]) for name, array in arrays.items()}


def random_arrays(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, NDArray[np.float32]]:
    """Return seeded standard normal numbers of these shapes."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def load(
    path: Path,
    texts: list[str] | None = None,
    *,
    architecture: str | None = None,
    option: list[str] | None = None,
    dtype: str | None = None,
    reduced_precision: bool = False,
    optimize: bool = True,
    mean: list[float] | None = None,
    std: list[float] | None = None,
    device: str | None = None,
    num_threads: int | None = None,
) -> Loaded:
    """Load a file. `texts` are the values of --input-shape; unknown input names raise a usage error.

    Raise ValueError if `device` is not the name of a device, or if the device cannot be made.
    """
    chosen = None if device is None else mpscnn.Device(device)
    shapes = options.input_shapes(texts)
    in_file = onnx_shapes(path) if path.suffix.lower() == ".onnx" else {}
    if "" in shapes and len(in_file) == 1:
        shapes = {next(iter(in_file)): shapes[""]}
    for name, extents in in_file.items():
        if name not in shapes and None in extents[1:]:
            known = "x".join("?" if extent is None else str(extent) for extent in extents)
            raise ValueError(
                f'{path.name}: the input "{name}" leaves extents open, {known}: say for which it is read, with'
                f" --input-shape {name}=..."
            )
    given: Any = None
    if shapes and path.suffix.lower() not in (".mpscnn", ".pt2"):  # these contain their shapes, or accept any
        given = shapes.get("", shapes)
    with progress(f"loading {path.name}"):
        network = mpscnn.load(
            path,
            input_shapes=given,
            architecture=architecture,
            options=options.reader_options(option),
            dtype=dtype,
            mean=mean,
            std=std,
            allow_reduced_precision=reduced_precision,
            optimize=optimize,
            device=chosen,
            num_threads=num_threads,
        )
    if "" in shapes:
        if len(network.inputs) != 1:
            raise typer.BadParameter(
                f"there are {len(network.inputs)} inputs ({', '.join(network.inputs)}): NAME=1x3x224x224.",
                param_hint="--input-shape",
            )
        shapes = {next(iter(network.inputs)): shapes[""]}
    for name in shapes:
        if name not in network.inputs:
            raise typer.BadParameter(
                f'there is no input "{name}"; there are {", ".join(network.inputs)}.', param_hint="--input-shape"
            )
    return Loaded(path, network, shapes, texts)


def onnx_shapes(path: Path) -> dict[str, tuple[int | None, ...]]:
    """Return the input shapes of an ONNX file, with None for dynamic extents; empty if the package onnx is missing."""
    try:
        import onnx
    except ModuleNotFoundError:
        return {}
    from ..importing.mapped_files import read_file
    from ..importing.onnx.reading import FILE_LIMIT

    try:
        graph = onnx.ModelProto.FromString(read_file(path, FILE_LIMIT)).graph
    except Exception:  # the importer reports what is wrong with the file
        return {}
    constants = {tensor.name for tensor in graph.initializer}
    return {
        value.name: tuple(
            int(extent.dim_value) if extent.HasField("dim_value") and extent.dim_value > 0 else None
            for extent in value.type.tensor_type.shape.dim
        )
        for value in graph.input
        if value.name not in constants
    }


def torch_module(text: str, weights: Path) -> Any:
    """Return the torch.nn.Module that "package.module:callable" returns, with the weights of a file of weights.

    The callable is imported and called: it is the user's own code.
    """
    try:
        import torch
    except ModuleNotFoundError:
        raise MissingPackageError("--torch", "torch") from None
    where, _, name = text.partition(":")
    if not where or not name:
        raise typer.BadParameter(f'"{text}" is not package.module:callable.', param_hint="--torch")
    try:
        make: Any = import_module(where)
        for part in name.split("."):
            make = getattr(make, part)
    except (ModuleNotFoundError, AttributeError) as error:
        raise typer.BadParameter(f"{text}: {error}.", param_hint="--torch") from None
    module = make() if not isinstance(make, torch.nn.Module) else make
    if not isinstance(module, torch.nn.Module):
        raise typer.BadParameter(f"{text} is a {type(module).__name__}, not a torch.nn.Module.", param_hint="--torch")
    if weights.suffix.lower() not in (".onnx", ".mpscnn", ".pt2"):
        from ..importing import weights_files

        read = weights_files.load(weights)
        module.load_state_dict({key: torch.from_numpy(np.array(read[key])) for key in read})
    return module.eval()
