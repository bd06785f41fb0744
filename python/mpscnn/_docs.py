# SPDX-License-Identifier: Apache-2.0
"""Docstrings of kernels, generated from their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._typing import Param, Row

_TYPES = {
    "boolean": "bool",
    "integer": "int",
    "real": "float",
    "text": "str",
    "pair": "int or (int, int)",
    "padding": 'int, (int, int), ((int, int), (int, int)), "same", "valid" or PaddingPolicy',
    "offset": "(int, int) or (int, int, int)",
    "region": "((int, int, int), (int, int, int))",
    "shape": "(int, int, int)",
    "extents": "(int, int, int)",
    "array": "array",
    "weights": "array or DataSource",
    "activation": "str, NeuronDescriptor, neuron kernel or None",
    "channel_values": "array or NormalizationDataSource",
}

_WEIGHTS = """
Weights are read while the kernel is made, and by ``reload()``: in place if they are OHWI, C-contiguous and not
bfloat16, otherwise from a temporary reordered copy."""


_VALUES = """
Values are read while the kernel is made, and by ``reload()``: in place if they are contiguous float32, otherwise from
a converted copy."""

_IMAGE = """
{shape} and the dtype of {first}. Arithmetic is float32, rounded once
when the result is stored."""
_STATE = """
a {shape}, float32."""


def _number(value: float) -> str:
    return f"{int(value)}" if value == int(value) else f"{value:g}"


def parameter(spec: Param) -> str:
    """Return two lines in numpydoc form: type and range, and meaning."""
    head = " or ".join(f'"{choice}"' for choice in spec["choices"]) or _TYPES[spec["type"]]
    if not spec["default"]:
        head = head.removesuffix(" or None")
    if spec["unit"]:
        head += f", {spec['unit']}"
    if spec["min"] is not None:
        head += f", >= {_number(spec['min'])}"
    if spec["max"] is not None:
        head += f", <= {_number(spec['max'])}"
    if spec["default"]:
        head += ", optional" if spec["default"] == "None" else f", default {spec['default']}"
    return f"{spec['name']} : {head}\n    {spec['summary']} Apple: {spec['apple']}."


def kernel(row: Row, common: list[str]) -> str:
    """Return the docstring of a row's class; `common` has the parameters that it shares with others."""
    parameters = "\n".join(parameter(spec) for spec in row["params"])
    shared = "\n".join(common)
    kinds = {spec["type"] for spec in row["params"]}
    weights = _WEIGHTS if "weights" in kinds else _VALUES if "channel_values" in kinds else ""
    sources = row["sources"]
    subject = " and ".join(sources) + (" have" if len(sources) > 1 else " has")
    listed = ", ".join(sources)
    result = (_IMAGE if row["result"] == "image" else _STATE).format(shape=row["shape"], first=sources[0])
    state = (
        f"""

State
-----
``kernel({listed}, state)`` and ``kernel.encode(command_buffer, {listed}, state)`` take a
{"GradientState" if row["forward"] else "BatchNormalizationState"}. {row["state"]}"""
        if row["state"]
        else ""
    )
    outputs = f"{listed} and ``out`` are" if row["result"] == "image" else f"{listed} is"
    gradient = f"\n\nGradient: {row['gradient']}." if row["gradient"] else ""
    return f"""{row["summary"]}

    {row["formula"]}

{subject} shape (N, H, W, C), float32, float16, uint8 or uint16; the result{result}{gradient}{state}

Parameters
----------
{parameters}

Other Parameters
----------------
{shared}
device : Device, optional
    Where the kernel runs.

Sharing
-------
{outputs} used in place if ``Device.shares_images`` is true, the channels are adjacent and the strides positive;
otherwise each is copied once. None may change while a committed command buffer is running.{weights}

Raises
------
ValueError
    A number outside of its range, or shapes that do not fit:
    "{row["name"]}: <name> (<value>) is less than the minimum (<limit>)."
TypeError
    An argument of the wrong type, or a dtype that MPS does not support.
RuntimeError
    A command buffer that is already committed, a temporary image after its last read, or a device failure.
NotImplementedError
    The platform lacks {row["apple_class"]}.

See Also
--------
Kernel.__call__ : kernel({listed}) on a command buffer of its own.
Kernel.encode : Encode several kernels on one command buffer.

Source
------
{row["source"]} (macOS {row["macos"]}).
"""
