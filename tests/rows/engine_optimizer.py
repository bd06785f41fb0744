# SPDX-License-Identifier: Apache-2.0
"""Rows of steps of optimizers (engine/problem/optimize.hpp)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .engine import Alias, Array, chance, floats, pick, real, row, values_of, whole
from .row_file import Row

TYPES = ("descent", "momentum", "nesterov", "rms", "adam", "amsgrad")


def step(p: dict[str, Any], v: Array, gradient: Array, m: Array, s: Array, most: Array) -> dict[str, Array]:
    """Return results by the fields' names, from Apple's description [MPSNNOptimizers.h]."""
    kind = TYPES[p["type"]]
    g = np.where(gradient < p["min"], p["min"], np.where(gradient > p["max"], p["max"], gradient)) * p["rescale"]
    g = g + p["regularization_scale"] * (0.0, np.sign(v), v)[p["regularization"]] if p["regularization"] else g
    rate, decay, beta = p["rate"], p["decay"], p["beta2"]
    second = beta * s + (1 - beta) * g**2
    if kind == "descent":
        return {"result": v - rate * g}
    if kind == "momentum":
        m = decay * m + rate * g
        return {"result": v - m, "momentum": m}
    if kind == "nesterov":
        m = decay * m + g
        return {"result": v - rate * (g + decay * m), "momentum": m}
    if kind == "rms":
        return {"result": v - rate * g / (np.sqrt(second) + p["epsilon"]), "second_moment": second}
    m = decay * m + (1 - decay) * g
    most = np.maximum(most, second)
    under = second if kind == "adam" else most
    results = {"result": v - rate * m / (np.sqrt(under) + p["epsilon"]), "momentum": m, "second_moment": second}
    return results if kind == "adam" else {**results, "max_second_moment": most}


def step_row(seed: int) -> Row:
    rng = np.random.default_rng(700000 + seed)
    large = seed // 6 % 15 == 0
    shape = (whole(rng, 1, 3), 60 if large else whole(rng, 1, 5), 601 if large else pick(rng, (1, 3, 8, 17, 100, 512)))
    bounds = chance(rng, 2)
    p: dict[str, Any] = {
        "type": seed % 6,
        "regularization": seed // 6 % 3,
        "rate": real(rng, 0.01, 0.2),
        "decay": pick(rng, (0.0, 0.5, 0.9)),
        "beta2": pick(rng, (0.5, 0.9, 0.999)),
        "epsilon": pick(rng, (1e-8, 1e-3, 0.1)),
        "rescale": pick(rng, (1.0, 0.25, -2.0)),
        "regularization_scale": real(rng, -0.5, 0.5),
        "min": -0.75 if bounds else -np.inf,
        "max": 0.5 if bounds else np.inf,
    }
    gradient, values = floats(rng, shape), floats(rng, shape)
    if chance(rng, 4):
        values[0, 0, 0] = 0  # the sign of 0 is 0
    state = {"momentum": floats(rng, shape, -1, 1)}
    state |= {key: floats(rng, shape, 0, 1) for key in ("second_moment", "max_second_moment")}
    wanted = step(p, *(values_of(each) for each in (values, gradient, *state.values())))
    in_place = pick(rng, (None, None, "values", "gradient"))
    fields = {
        **dict(zip(("matrices", "rows", "columns"), shape, strict=True)),
        **p,
        "gradient": gradient,
        "values": values,
        "result": Alias(in_place) if in_place else None,
        **{key: array for key, array in state.items() if key in wanted},
    }
    expected = {key: (value, 4e-6 * (1 + np.abs(value))) for key, value in wanted.items()}
    return row("Optimize", f"{TYPES[seed % 6]} {seed}", fields, expected)


def ends() -> Iterator[Row]:
    """NaN stays NaN; a regularization of 0 does not change infinite values."""
    gradient = np.array([[[np.nan, 1, 5, -5, 0, np.inf]]], np.float32)
    values = np.array([[[0, np.nan, 0, 0, np.inf, 0]]], np.float32)
    fields = {"columns": 6, "gradient": gradient, "values": values, "rate": 1.0, "min": -2.0, "max": 3.0}
    yield row("Optimize", "ends", fields, {"result": np.array([[[np.nan, np.nan, -3, 2, np.inf, -3]]])})


def rows() -> Iterator[Row]:
    yield from map(step_row, range(300))
    yield from ends()
