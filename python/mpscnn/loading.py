# SPDX-License-Identifier: Apache-2.0
"""load() and read(): import of all kinds of models."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _checks, _garbage, _other_sizes
from .errors import InvalidModelError, MissingPackageError, UnsupportedOperatorError
from .graph import Graph

if TYPE_CHECKING:
    from pathlib import Path  # in functions, because importing it takes a tenth of the time of load()

    from .layers import Shape
    from .network import Network

Shapes = Mapping[str, Sequence[int]] | Sequence[int] | None

_WEIGHTS = (".safetensors", ".npz", ".pt", ".pth", ".bin")


@_garbage.few_collections()
def load(
    model: Any,
    *,
    input_shapes: Shapes = None,
    architecture: str | None = None,
    layers: Any = None,
    example_inputs: Any = None,
    options: Mapping[str, Any] | None = None,
    dtype: str | None = None,
    mean: Any = None,
    std: Any = None,
    allow_reduced_precision: bool = False,
    optimize: bool = True,
    device: Any = None,
    num_threads: int | None = None,
    mapped: bool = True,
) -> Network:
    """Load a model of any supported kind as a network.

    Parameters
    ----------
    model : path, torch.nn.Module, torch.export.ExportedProgram, onnx.ModelProto, mapping of arrays or Graph
        A path ends in .mpscnn (a saved network), .onnx, .pt2 (torch.export.save), or is a file or folder of weights:
        .safetensors, .npz, .pt, .pth, .bin. Code in files is not run.
    input_shapes : tuple of int, or dict by name, optional
        Including the batch, as (1, 3, 224, 224). Required for modules and for models with dynamic extents.
        The network accepts batches of any size, and other heights and widths if the model allows. These shapes, or
        those of the file, are the defaults of the network's `layers` and `summary`.
    architecture : str, optional
        For weights: "resnet50", ...; default: detected from their names and shapes.
    layers : list, optional
        For weights: the layers by name, for a network that is not a known architecture; see docs/pytorch.md.
    example_inputs : tuple, optional
        For modules, instead of input_shapes.
    options : dict, optional
        Further options of the reader, by name. For weights of a known architecture: properties that do not follow from
        the tensors, such as {"epsilon": 1e-3, "tf_padding": True}; see docs/pytorch.md. For modules:
        {"free_size": False}, a faster import for one height and width only; {"free_size": True}, an import that may
        take minutes for networks that are hard to trace, instead of one that fixes their size. For ONNX models:
        {"outputs": ["scores", "boxes"]}, names of values in the model, reads the part of it that computes these;
        {"inputs": ["regions"]}, the part behind these.
    dtype, mean, std, allow_reduced_precision, optimize, device, num_threads
        See `Network`. dtype: the file's for .mpscnn, otherwise "float32".
    mapped : bool, default True
        For files: weights are views of the file if its format allows, so the file must not be written in place while
        the network is in use; see docs/serving.md. False: weights are read into memory.

    Returns
    -------
    Network

    Raises
    ------
    mpscnn.ImportError
        InvalidModelError, UnsupportedOperatorError (with the list of nodes), MissingPackageError.
    TypeError
        "model (int) is no path, module, exported program, ONNX model, mapping of arrays or Graph.",
        "architecture was given; ONNX models take none.",
        "tf_padding is no option of resnet50: it has epsilon, activation, ..."

    Source
    ------
    docs/pytorch.md, docs/onnx.md, docs/file_format.md.
    """
    from .network import Network

    written: dict[str, Any] = {}
    _check(input_shapes, architecture, layers, example_inputs, options)
    if _suffix(model) == ".mpscnn":
        from . import file_format

        _refuse(
            ".mpscnn",
            input_shapes=input_shapes,
            architecture=architecture,
            layers=layers,
            example_inputs=example_inputs,
            options=options,
        )
        graph, written = file_format.read(model, mapped=_checks.boolean(mapped, "mapped"))
        optimize = False  # passes ran before it was saved
    else:
        graph = _read(
            model,
            input_shapes=input_shapes,
            architecture=architecture,
            layers=layers,
            example_inputs=example_inputs,
            options=options,
            mapped=mapped,
        )
    try:
        network = Network(
            graph,
            dtype=dtype or written.get("dtype", "float32"),
            mean=mean,
            std=std,
            allow_reduced_precision=allow_reduced_precision,
            optimize=optimize,
            device=device,
            num_threads=num_threads,
        )
    except Exception as error:
        node = getattr(error, "node", None)
        if node is None or isinstance(model, Graph):
            raise
        if _suffix(model) == ".mpscnn" and not isinstance(error, NotImplementedError):
            raise InvalidModelError(f'"{model}": {error}') from error
        what = f'"{model}"' if isinstance(model, (str, os.PathLike)) else type(model).__name__
        raise UnsupportedOperatorError(what, [(node.kernel, node.origin or node.name, str(error))]) from error
    network._loaded_shapes |= _loaded_shapes(network, input_shapes, example_inputs)
    if graph._read is not None and not isinstance(model, Graph):
        network._read_again(graph._read, mean=mean, std=std, optimize=optimize)
    return network


@_garbage.few_collections()
def read(
    model: Any,
    *,
    input_shapes: Shapes = None,
    architecture: str | None = None,
    layers: Any = None,
    example_inputs: Any = None,
    options: Mapping[str, Any] | None = None,
    mapped: bool = True,
) -> Graph:
    """Read a model as a graph, with nothing folded or fused; `load` makes a network from it.

    Parameters
    ----------
    model, input_shapes, architecture, layers, example_inputs, options, mapped
        See `load`.

    Returns
    -------
    Graph

    Raises
    ------
    mpscnn.ImportError, TypeError
        As in `load`.

    Source
    ------
    docs/pytorch.md, docs/onnx.md, docs/file_format.md.
    """
    graph = _read(
        model,
        input_shapes=input_shapes,
        architecture=architecture,
        layers=layers,
        example_inputs=example_inputs,
        options=options,
        mapped=mapped,
    )
    graph._read = None  # it may be changed and copied
    return graph


def _read(
    model: Any,
    *,
    input_shapes: Shapes,
    architecture: str | None,
    layers: Any,
    example_inputs: Any,
    options: Mapping[str, Any] | None,
    mapped: bool,
) -> Graph:
    """Return the graph, with a function that reads it for other sizes if there is one."""
    _check(input_shapes, architecture, layers, example_inputs, options)
    _checks.boolean(mapped, "mapped")
    if isinstance(model, Graph):
        _refuse(
            "graphs",
            input_shapes=input_shapes,
            architecture=architecture,
            layers=layers,
            example_inputs=example_inputs,
            options=options,
        )
        return model
    kind = _kind(model)
    if kind == "onnx":
        _refuse("ONNX models", architecture=architecture, layers=layers, example_inputs=example_inputs)
        from .importing import onnx

        shapes, values = _by_name(input_shapes), _onnx_values(options)
        graph = onnx.read(model, input_shapes=shapes, mapped=mapped, **values)
        if isinstance(model, (str, os.PathLike)) and any(map(_other_sizes.is_limited, graph.inputs.values())):
            from pathlib import Path

            from .importing.onnx import again

            graph._read = again.Again(graph, Path(model), shapes, mapped=mapped, **values)
        return graph
    if kind in ("program", "pt2"):
        _refuse(
            "exported programs",
            input_shapes=input_shapes,
            architecture=architecture,
            layers=layers,
            example_inputs=example_inputs,
            options=options,
        )
        if kind == "pt2":
            from pathlib import Path

            return _read_pt2(Path(model), mapped=mapped)
        from .importing import torch_export

        return torch_export.read(model)
    if kind == "module":
        _refuse("modules", architecture=architecture, layers=layers)
        from .importing import torch_module

        free_size: bool | None = None
        for option, value in (options or {}).items():
            if option != "free_size":
                raise TypeError(f"{option} is no option of modules: they have free_size.")
            free_size = _checks.boolean(value, option)
        graph = torch_module.read(model, input_shapes=input_shapes, example_inputs=example_inputs, free_size=free_size)
        if free_size is not False and any(map(_other_sizes.is_limited, graph.inputs.values())):
            from .importing import torch_again

            graph._read = torch_again.reader(graph, model, input_shapes, example_inputs)
        return graph
    if kind == "mpscnn":
        from . import file_format

        _refuse(
            ".mpscnn",
            input_shapes=input_shapes,
            architecture=architecture,
            layers=layers,
            example_inputs=example_inputs,
            options=options,
        )
        return file_format.read(model, mapped=mapped)[0]
    if kind == "weights":
        from .importing import weights_files

        model = weights_files.load(model, mapped=mapped)
    _refuse("weights", example_inputs=example_inputs)
    if layers is not None:
        from .importing import layer_list

        if architecture is not None:
            raise TypeError("architecture was given together with layers.")
        _refuse("lists of layers", options=options)
        return layer_list.read_layers(layers, model, input_shapes=input_shapes)
    from .importing import architectures

    return architectures.read(model, architecture, input_shapes=input_shapes, **dict(options or {}))


def _onnx_values(options: Mapping[str, Any] | None) -> dict[str, tuple[str, ...]]:
    """Return the names of values that are read in place of the model's inputs or outputs."""
    found: dict[str, tuple[str, ...]] = {}
    for option, value in (options or {}).items():
        if option not in ("inputs", "outputs"):
            raise TypeError(f'options: "{option}" is not an option for ONNX models: they have "inputs" and "outputs".')
        names = value.split(",") if isinstance(value, str) else value
        if not isinstance(names, Sequence):
            _checks.refuse(value, f'options["{option}"]', "a list of names")
        found[option] = tuple(_checks.text(name, f'options["{option}"][{i}]') for i, name in enumerate(names))
    return found


def _read_pt2(path: Path, *, mapped: bool) -> Graph:
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingPackageError(f'Reading "{path}", a file of PyTorch\'s,', "torch") from error
    from .importing import pt2_files

    return pt2_files.read(path, mapped=mapped)


def _loaded_shapes(network: Network, input_shapes: Any, example_inputs: Any) -> dict[str, Shape]:
    """Return (N, H, W, C) of the inputs whose shapes were given to `load`, by name or in order."""
    from ._inputs import image_shape

    given = input_shapes if example_inputs is None else _tensor_shapes(example_inputs)
    if not given:
        return {}
    if not isinstance(given, Mapping):
        in_order = given if isinstance(given[0], Sequence) else [given]
        if len(in_order) != len(network.inputs):  # the example has nested tuples
            return {}
        given = dict(zip(network.inputs, in_order, strict=True))
    return {name: image_shape(spec, given[name]) for name, spec in network.inputs.items() if name in given}


def _tensor_shapes(example_inputs: Any) -> Any:
    """Return the shapes of the tensors, by name or in order; other values are left out."""
    if isinstance(example_inputs, Mapping):
        return {name: one.shape for name, one in example_inputs.items() if hasattr(one, "shape")}
    examples = example_inputs if isinstance(example_inputs, (tuple, list)) else [example_inputs]
    return [one.shape for one in examples if hasattr(one, "shape")]


def _suffix(model: Any) -> str:
    return os.path.splitext(os.fspath(model).rstrip("/"))[1].lower() if isinstance(model, (str, os.PathLike)) else ""


def _kind(model: Any) -> str:
    if isinstance(model, (str, os.PathLike)):
        suffix = _suffix(model)
        if suffix in (".onnx", ".mpscnn", ".pt2"):
            return suffix[1:]
        if suffix in _WEIGHTS or os.path.isdir(model) or str(model).endswith(".index.json"):
            return "weights"
        raise InvalidModelError(
            f'model ("{model}") does not end in .mpscnn, .onnx, .pt2, {", ".join(_WEIGHTS)}, and is no folder of'
            " safetensors."
        )
    if isinstance(model, (bytes, bytearray)):
        return "onnx"
    # By class name, so that none of these packages is imported.
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(model).__mro__}
    if any(name.startswith("onnx.") and name.endswith(".ModelProto") for name in names):
        return "onnx"
    if "torch.export.exported_program.ExportedProgram" in names:
        return "program"
    if "torch.nn.modules.module.Module" in names:
        return "module"
    if isinstance(model, Mapping):
        return "arrays"
    raise TypeError(
        f"model ({type(model).__name__}) is no path, module, exported program, ONNX model, mapping of arrays or Graph."
    )


def _by_name(input_shapes: Shapes) -> dict[str, tuple[int, ...]] | None:
    if input_shapes is None:
        return None
    if not isinstance(input_shapes, Mapping):
        _checks.refuse(input_shapes, "input_shapes", "a dict; ONNX models have names for their inputs")
    return {name: tuple(shape) for name, shape in input_shapes.items()}


def _check(input_shapes: Any, architecture: Any, layers: Any, example_inputs: Any, options: Any) -> None:
    """Check the types of the arguments besides the model. The readers check whether they fit the model."""
    if input_shapes is not None:
        if isinstance(input_shapes, Mapping):
            for name, shape in input_shapes.items():
                _checks.integers(shape, f'input_shapes["{_checks.text(name, "name of an input")}"]', minimum=1)
        elif not isinstance(input_shapes, Sequence) or isinstance(input_shapes, (str, bytes)):
            _checks.refuse(input_shapes, "input_shapes", "a tuple of int or a dict of them")
        elif input_shapes and isinstance(input_shapes[0], Sequence):  # of several inputs, by position
            for i, shape in enumerate(input_shapes):
                _checks.integers(shape, f"input_shapes[{i}]", minimum=1)
        else:
            _checks.integers(input_shapes, "input_shapes", minimum=1)
    if architecture is not None:
        _checks.text(architecture, "architecture")
    if layers is not None and (not isinstance(layers, (Sequence, Mapping)) or isinstance(layers, (str, bytes))):
        _checks.refuse(layers, "layers", "a list of layers")
    is_tensor = hasattr(type(example_inputs), "__dlpack__")
    if example_inputs is not None and not is_tensor and not isinstance(example_inputs, (tuple, list, Mapping)):
        _checks.refuse(example_inputs, "example_inputs", "a tensor, a tuple or a dict")
    if options is not None:
        if not isinstance(options, Mapping):
            _checks.refuse(options, "options", "a dict")
        for name in options:
            _checks.text(name, "name of an option")


def _refuse(what: str, **given: Any) -> None:
    names = [name for name, value in given.items() if value is not None]
    if names:
        raise TypeError(f"{names[0]} was given; {what} take none.")
