# SPDX-License-Identifier: Apache-2.0
"""Import of weights without a model: known architectures, detected by the names and shapes of their tensors.

A file of weights contains no strides, padding or activations. They are known for these families; depths and widths
follow from the tensors.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InvalidModelError, UnsupportedOperatorError
from ...graph import Graph
from ..builder import UnmappedError
from . import espcn, mobilenet_v2, resnet, squeezenet, style_transfer, vgg
from .layers import Family, Layers, Naming, Shape, shapes_of

__all__ = ["FAMILIES", "Architecture", "detect", "read"]

FAMILIES: dict[str, Family] = {
    module.FAMILY.name: module.FAMILY for module in (resnet, mobilenet_v2, squeezenet, vgg, style_transfer, espcn)
}


@dataclass(frozen=True)
class Architecture:
    """The architecture of a file of weights.

    Attributes
    ----------
    family : str
        One of `FAMILIES`.
    name : str
        Name of the network: "resnet50".
    naming : str
        Library that defines the names of the tensors: "torchvision", "timm", "transformers".
    prefix : str
        Prefix of all names: "module." if DataParallel wrote the file.
    """

    family: str
    name: str
    naming: str
    prefix: str


def detect(weights: Mapping[str, Any]) -> Architecture:
    """Return the architecture that the tensors belong to.

    Parameters
    ----------
    weights : mapping of names to arrays, tensors or shapes

    Raises
    ------
    InvalidModelError
        The architecture is not known. The message lists the known ones and the first names.
    """
    return _detect(weights, shapes_of(weights), None)[0]


def read(
    weights: Mapping[str, Any] | str | os.PathLike[str],
    architecture: str | None = None,
    *,
    input_shapes: Mapping[str, Sequence[int]] | Sequence[int] | None = None,
    **options: Any,
) -> Graph:
    """Read the network of these weights as a graph.

    Parameters
    ----------
    weights : mapping of names to arrays or tensors, or path
        A state_dict, or a path for `mpscnn.importing.weights_files.load`.
    architecture : str, optional
        One of `FAMILIES`, or the name of a network ("resnet50"); None: the result of `detect`.
    input_shapes : (batch, channels, height, width), or a dict with it under "input", optional
        For networks of a fixed size; default: the size that they were trained on. Any batch is accepted.
    **options
        Properties that do not follow from the tensors, arguments of the family's `write`: epsilon and activation;
        tf_padding and output_stride of MobileNetV2; downsample_in_first_stage and downsample_in_bottleneck of ResNet;
        factor and bounded of ESPCN. Default: the values of the library given by the tensors' names, or of a folder's
        config.json.

    Returns
    -------
    Graph
        One input, "input", (N, C, H, W); one output: "logits" (N, classes), "features" without a classifier, or
        "output", an image.

    Raises
    ------
    InvalidModelError
        The network is not known; tensors are missing, have the wrong shape, or are left over.
    UnsupportedOperatorError
        An activation that no kernel computes.
    TypeError, ValueError
        The family has no such option; a shape is invalid.
    """
    if isinstance(weights, (str, os.PathLike)):
        from ..weights_files import load

        weights = load(weights)
    shapes = shapes_of(weights)
    found, family, naming = _detect(weights, shapes, architecture)
    if architecture not in (None, found.family, found.name):
        raise InvalidModelError(f'the tensors are those of {found.name}, not of "{architecture}".')
    layers = Layers(weights, shapes, found.prefix, naming.rename, f"{found.name} ({naming.name})")
    known = dict(list(inspect.signature(family.write).parameters.items())[2:])
    for option, value in options.items():
        if option not in known:
            raise TypeError(f"{option} is no option of {found.name}: it has {', '.join(known) or 'none'}.")
        kind = int if known[option].default is None else type(known[option].default)
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise TypeError(f"{option} ({type(value).__name__}) is not {'an' if kind is int else 'a'} {kind.__name__}.")
    configured = _configured(family, getattr(weights, "config", {}))
    try:
        family.write(layers, _size(input_shapes, family), **{**naming.defaults, **configured, **options})
    except UnmappedError as error:
        raise UnsupportedOperatorError(found.name, [(*layers.current, str(error))]) from error
    channels, given = layers.builder.graph.inputs["input"].channels, _image(input_shapes)
    if given and given[0] != channels:
        raise ValueError(f"input_shapes: {given[0]} channels are not the {channels} that the tensors take.")
    unused = re.compile(re.escape(found.prefix) + f"(?:{family.unused})")
    left = [name for name in shapes if name not in layers.taken and not unused.fullmatch(name)]
    if left:
        raise InvalidModelError(
            f"{len(left)} tensors are not of {layers.what}: {_listed(left)}. It is another network with the same names."
        )
    return layers.builder.graph


def _image(input_shapes: Mapping[str, Sequence[int]] | Sequence[int] | None) -> tuple[int, int, int] | None:
    """Return channels, height and width."""
    if isinstance(input_shapes, Mapping):
        if input_shapes.keys() != {"input"}:
            raise ValueError(
                f'input_shapes has the names {sorted(map(str, input_shapes))}; there is one input, "input".'
            )
        input_shapes = input_shapes["input"]
    if input_shapes is None:
        return None
    shape = tuple(input_shapes)
    if len(shape) != 4 or any(type(extent) is not int or extent < 1 for extent in shape):
        raise ValueError(f"input_shapes: {shape} is not (batch, channels, height, width), each 1 or more.")
    return shape[1], shape[2], shape[3]


def _size(input_shapes: Mapping[str, Sequence[int]] | Sequence[int] | None, family: Family) -> tuple[int, int]:
    image = _image(input_shapes)
    return family.size if image is None else image[1:]


def _configured(family: Family, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options in a config.json, checked against the types of the family's defaults."""
    known = inspect.signature(family.write).parameters
    architecture = config.get("architecture")
    if isinstance(architecture, str) and re.fullmatch(family.refused, architecture):
        raise UnsupportedOperatorError(
            architecture, [("architecture", architecture, f"it has the tensors of a {family.name}, and other layers")]
        )
    options = {}
    for key, option in family.config.items():
        if key not in config:
            continue
        value, kind = config[key], type(known[option].default)
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise InvalidModelError(f"config.json: {key} ({value!r:.80}) is not of the type {kind.__name__}.")
        options[option] = value
    return options


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(f'"{name:.100}"' for name in names[:8]) + more


def _detect(
    weights: Mapping[str, Any], shapes: Mapping[str, Shape], architecture: str | None
) -> tuple[Architecture, Family, Naming]:
    for family in FAMILIES.values():
        for naming in family.namings:
            marker = naming.markers[0]
            # The shortest first: "layer1.0." is also followed by "conv1.weight".
            prefixes = sorted(
                (name.removesuffix(marker) for name in shapes if name == marker or name.endswith("." + marker)), key=len
            )
            for prefix in prefixes[:1]:
                if not all(prefix + other in shapes for other in naming.markers):
                    continue
                layers = Layers(weights, shapes, prefix, naming.rename, f"{family.name} ({naming.name})")
                if naming.fits is None or naming.fits(layers):
                    return Architecture(family.name, family.variant(layers), naming.name, prefix), family, naming
    known = ", ".join(FAMILIES)
    asked = f' "{architecture}" was asked for.' if architecture else ""
    names = f"The first tensors are {_listed(list(shapes))}." if shapes else "There are no tensors."
    raise InvalidModelError(f"these are not the weights of an architecture that is known ({known}).{asked} {names}")
