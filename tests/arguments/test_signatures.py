# SPDX-License-Identifier: Apache-2.0
"""Arguments of wrong types, names and numbers: every public callable raises a message that names the argument."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest
from argument_objects import KERNELS, Stranger, W
from public_callables import PYTHONS_OWN, RAW, attribute_of, call, is_settable, public_callables, refused, signature_of
from right_arguments import RIGHT, SEVERAL_SOURCES, TAKES_ANYTHING

import mpscnn
from mpscnn import _core
from support import APPLE, random


def test_the_table_has_every_public_callable() -> None:
    assert public_callables() == set(RIGHT)


@pytest.mark.parametrize("name", sorted(RIGHT))
def test_right_arguments_are_taken(name: str) -> None:
    if name in ("CommandBuffer.wait", "GradientState") or name.startswith(
        ("Kernel.export_weights", "Kernel.reload", "Kernel.update")
    ):
        with pytest.raises(
            (RuntimeError, TypeError),
            match=r"before commit|no data source|no weights to exp|forward enc|no gradients of weights",
        ):
            call(name, RIGHT[name]())
    elif APPLE and name in ("Device.free_cached_bytes", "memory.cached", "memory.clear"):
        with pytest.raises(NotImplementedError, match=r"does not tell what memory it keeps"):
            call(name, RIGHT[name]())
    elif APPLE and name in ("get_num_threads", "set_num_threads"):
        with pytest.raises(NotImplementedError, match="has no number of threads"):
            call(name, RIGHT[name]())
    elif name == "Network.tune":  # tests/conftest.py
        with pytest.raises(
            NotImplementedError if APPLE else RuntimeError, match=r"" if APPLE else r"tune: MPSCNN_TUNED is 0\."
        ):
            call(name, RIGHT[name]())
    else:
        call(name, RIGHT[name]())


PARAMETERS = [
    (name, argument) for name in sorted(RIGHT) for argument in dict.fromkeys([*signature_of(name)[0], *RIGHT[name]()])
]


@pytest.mark.parametrize(("name", "argument"), PARAMETERS)
def test_a_stranger_is_refused_by_name(name: str, argument: str) -> None:
    right = RIGHT[name]()
    assert argument in right, "the table has each parameter"
    if name in TAKES_ANYTHING:
        call(name, right | {argument: Stranger()} if argument not in ("type", "kind") else right)
        return
    text = refused(name, right | {argument: Stranger()})
    assert re.search(rf"\b{argument}\b", text), text
    assert "tranger" in text, f"{text!r} does not tell what was given"


CALLED = sorted(name for name in set(RIGHT) - PYTHONS_OWN if not is_settable(attribute_of(name)))


@pytest.mark.parametrize("name", CALLED)
def test_wrong_names_and_numbers_of_arguments(name: str) -> None:
    subject = re.escape(name) + r"\(\)"
    right, (names, optional) = RIGHT[name](), signature_of(name)
    if not name.endswith("__dlpack__"):  # passes its keywords on
        assert re.fullmatch(rf"{subject} has no argument 'nonsense'\.", refused(name, right | {"nonsense": 1}))
    many = (None,) * 20
    if name in SEVERAL_SOURCES:
        refused(name, {}, *many)
    else:
        assert re.fullmatch(
            rf"{subject} takes at most \d positional arguments? \(20 given\)\.", refused(name, {}, *many)
        )
    if names:
        twice = refused(name, {names[0]: right[names[0]]}, right[names[0]])
        assert re.fullmatch(rf"{subject} got '{names[0]}' twice\.", twice)
    for missing in set(names) - optional:
        few = {argument: value for argument, value in right.items() if argument != missing}
        assert re.fullmatch(rf"{subject} misses the argument '{missing}'\.", refused(name, few))


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_a_stranger_is_no_parameter_of_a_kernel(name: str) -> None:
    signature = inspect.signature(KERNELS[name])
    required = {
        "weight": np.ones((8, 3, 3, 1), np.uint32)
        if name.startswith("Binary")
        else random((8, 32) if name.startswith("FullyConnected") else W),
        "type": "linear",
        "activation": "relu",
        "a": random((4,)),
        "comparison": "less",
        "kernel_size": 3,
        "regions": [[0.0, 0.0, 1.0, 1.0]],
        "scale_factor": 2,
        "shape": (1, 1, -1),
        "size": 3,
        "gamma": random((4,)),
    }
    right = {
        parameter: required[parameter]
        for parameter, spec in signature.parameters.items()
        if spec.default is inspect.Parameter.empty
    }
    if "gamma" in right and "groups" in signature.parameters:
        right["groups"] = 2  # optional with data sources, which have their own
    KERNELS[name](**right)
    for parameter in signature.parameters:
        with pytest.raises(TypeError) as caught:
            KERNELS[name](**(right | {parameter: Stranger()}))
        text = str(caught.value)
        assert re.search(rf"\b{parameter}\b", text), text
        assert "tranger" in text, text
        assert not RAW.search(text), text


@pytest.mark.parametrize("spec", _core.common_params(), ids=lambda spec: spec["name"])
def test_a_stranger_is_no_attribute_of_a_kernel(spec: dict[str, Any]) -> None:
    kernel = mpscnn.NeuronReLU()
    with pytest.raises(TypeError, match=rf"NeuronReLU: {spec['name']} \(<a stranger>\) is not "):
        setattr(kernel, spec["name"], Stranger())
