# SPDX-License-Identifier: Apache-2.0
"""Docstrings of kernels, made from rows of the kernel table."""

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

_IMAGE = """ Shape of the result:
{shape}.
Its dtype is that of {first}. Arithmetic is in float32, rounded once when the result is stored."""
_STATE = """ The result is
a {shape}, float32."""


def _number(value: float) -> str:
    return f"{int(value)}" if value == int(value) else f"{value:g}"


def parameter(spec: Param) -> str:
    """Return a parameter's entry in numpydoc form: a line with type and range, and one with the meaning."""
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
    """Return the docstring of a row's class; `common` are the entries of parameters that kernels share."""
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

{subject} shape (N, H, W, C), float32, float16, uint8 or uint16.{result}{gradient}{state}

Parameters
----------
{parameters}

Other Parameters
----------------
{shared}
device : Device, optional
    Device that runs the kernel; None: the default device.

Sharing
-------
{outputs} used in place if ``Device.shares_images`` is true, the channels are adjacent and the strides positive;
otherwise each is copied once. Do not change them while a committed command buffer is running.{weights}

Raises
------
ValueError
    A number is out of range, or shapes do not fit:
    "{row["name"]}: <name> (<value>) is less than the minimum (<limit>)."
TypeError
    An argument has the wrong type, or MPS does not support its dtype.
RuntimeError
    The command buffer is already committed, a temporary image is used after its last read, or the device failed.
NotImplementedError
    The platform lacks {row["apple_class"]}.

See Also
--------
Kernel.__call__ : Run kernel({listed}) on a separate command buffer and wait for the result.
Kernel.encode : Encode several kernels on one command buffer.

Source
------
{row["source"]} (macOS {row["macos"]}).
"""
