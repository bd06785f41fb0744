# SPDX-License-Identifier: Apache-2.0
"""One class per row of the kernel table, with its signature, attributes and docstring."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from typing import Any

from . import _core, _docs

Kernel = _core.Kernel

_TABLE: list[dict[str, Any]] = _core.kernel_table()
_COMMON: list[dict[str, Any]] = _core.common_params()

NEURON_TYPES: tuple[str, ...] = tuple(
    next(p for row in _TABLE if row["name"] == "Neuron" for p in row["params"] if p["name"] == "type")["choices"]
)


class NeuronDescriptor(_core._NeuronDescriptor):
    """An activation function and its parameters, to fuse into a kernel.

    Parameters
    ----------
    type : str
        "relu", "linear", "sigmoid", "hard_sigmoid", "tanh", "absolute", "softplus", "softsign", "elu", "prelu",
        "relun", "power", "exponential", "logarithm", "gelu" or "none".
    a, b, c : float, default 0
        Parameters of the formula, which the docstring of the neuron kernel of that type gives.
    data : sequence of float, optional
        PReLU: one slope per channel.

    Raises
    ------
    ValueError
        'NeuronDescriptor: type ("selu") is not one of "none", "relu", …'

    Source
    ------
    MPSNeuralNetwork/MPSCNNNeuron.h, MPSNNNeuronDescriptor.
    """

    def __init__(self, type: str, a: float = 0.0, b: float = 0.0, c: float = 0.0, data: Sequence[float] = ()) -> None:
        if type not in NEURON_TYPES:
            known = ", ".join(f'"{name}"' for name in NEURON_TYPES)
            raise ValueError(f'NeuronDescriptor: type ("{type}") is not one of {known}.')
        if (type == "prelu") != (len(data) > 0):
            raise ValueError(
                f'NeuronDescriptor: data has {len(data)} values; type is "{type}" and only "prelu" takes some.'
            )
        super().__init__(NEURON_TYPES.index(type), a, b, c, [float(value) for value in data])


def _default(spec: dict[str, Any]) -> Any:
    return ast.literal_eval(spec["default"]) if spec["default"] else inspect.Parameter.empty


def _signature(row: dict[str, Any]) -> inspect.Signature:
    parameters = []
    for index, spec in enumerate(row["params"] + _COMMON):
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        if index >= row["positional"]:
            kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(spec["name"], kind, default=_default(spec)))
    device = inspect.Parameter("device", inspect.Parameter.KEYWORD_ONLY, default=None)
    return inspect.Signature([*parameters, device])


def _attribute(spec: dict[str, Any]) -> property:
    name, default = spec["name"], _default(spec)

    def get(self: Kernel) -> Any:
        value = self._get(name)
        return default if value is None else value

    def set(self: Kernel, value: Any) -> None:
        self._set(name, value)

    return property(get, set, doc=_docs.parameter(spec))


def _make_class(row: dict[str, Any]) -> type[Kernel]:
    name, signature = row["name"], _signature(row)

    def __init__(self: Kernel, *args: Any, **kwargs: Any) -> None:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}: {error}.") from None
        arguments = dict(bound.arguments)
        device = arguments.pop("device", None)
        Kernel.__init__(self, name, arguments, device)

    def __repr__(self: Kernel) -> str:
        label = f' "{self.label}"' if self.label else ""  # type: ignore[attr-defined]
        return f"<mpscnn.{name}{label}>"

    members: dict[str, Any] = {
        "__init__": __init__,
        "__repr__": __repr__,
        "__doc__": _docs.kernel(row, _COMMON),
        "__module__": "mpscnn",
        "__signature__": signature,
        "apple_class": row["apple_class"],
    }
    members |= {spec["name"]: _attribute(spec) for spec in _COMMON}
    return type(name, (Kernel,), members)


KERNELS: dict[str, type[Kernel]] = {row["name"]: _make_class(row) for row in _TABLE}


def kernel(name: str) -> type[Kernel]:
    """Class of a kernel by Apple's name or Python's.

    Parameters
    ----------
    name : str
        "MPSCNNConvolution" or "Convolution".

    Raises
    ------
    NotImplementedError
        "MPSCNNPoolingMax is not implemented yet." for a class of Apple's that mpscnn has no kernel for.
    KeyError
        for any other name.
    """
    for row in _TABLE:
        if name in (row["name"], row["apple_class"]):
            return KERNELS[row["name"]]
    if name.startswith(("MPSCNN", "MPSNN")):
        raise NotImplementedError(f"{name} is not implemented yet.")
    raise KeyError(f'there is no kernel "{name}".')
