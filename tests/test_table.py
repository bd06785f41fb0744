# SPDX-License-Identifier: Apache-2.0
"""The kernel table and everything that a row requires. A failure names what is missing."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpscnn
from cases import all_cases
from mpscnn import _core
from oracle import (
    MPSCNNBatchNormalization,
    MPSCNNBinaryConvolution,
    MPSCNNConvolution,
    MPSCNNDropout,
    MPSCNNMath,
    MPSCNNNeuron,
    MPSCNNNormalization,
    MPSCNNPooling,
    MPSCNNSoftMax,
    MPSCNNUpsampling,
    MPSNNReduce,
    MPSNNReshape,
    MPSNNResize,
    MPSNNSlice,
)
from oracle.expected import NEURON_KERNELS, SHORT_ACTIVATIONS

ROWS: list[dict[str, Any]] = _core.kernel_table()
# By number of sources.
COMMON: dict[int, list[dict[str, Any]]] = {count: _core.common_params(count) for count in (1, 2)}
BY_NAME = {row["name"]: row for row in ROWS}
# Gradients made from a forward kernel: they use its cases (test_gradient.py), with autograd as the oracle.
MADE_OF_FORWARD = {row["name"] for row in ROWS if row["forward"]}
BATCH_GRADIENTS = {"BatchNormalizationGradient", "BatchNormalizationStatisticsGradient"}  # test_batch_gradient.py
WITH_CASES = set(BY_NAME) - MADE_OF_FORWARD - BATCH_GRADIENTS
CASES = all_cases()

# Module of each kernel's oracle.
ORACLES = {
    "BinaryConvolution": MPSCNNBinaryConvolution.convolution,
    "BinaryFullyConnected": MPSCNNBinaryConvolution.convolution,
    "BatchNormalization": MPSCNNBatchNormalization.normalize,
    "BatchNormalizationStatistics": MPSCNNBatchNormalization.statistics,
    "Convolution": MPSCNNConvolution.convolution,
    "ConvolutionTranspose": MPSCNNConvolution.transpose,
    "FullyConnected": MPSCNNConvolution.fully_connected,
    "Neuron": MPSCNNNeuron.neuron,
    "NeuronGradient": MPSCNNNeuron.slope,
    **MPSCNNMath.OPERATIONS,
    "Compare": MPSCNNMath.compare,
    "CrossChannelNormalization": MPSCNNNormalization.cross_channel,
    "GroupNormalization": MPSCNNBatchNormalization.of_groups,
    "InstanceNormalization": MPSCNNBatchNormalization.of_instances,
    "LocalContrastNormalization": MPSCNNNormalization.local_contrast,
    "SpatialNormalization": MPSCNNNormalization.spatial,
    "DilatedPoolingMax": MPSCNNPooling.maximum,
    "PoolingAverage": MPSCNNPooling.average,
    "PoolingL2Norm": MPSCNNPooling.l2_norm,
    "PoolingMax": MPSCNNPooling.maximum,
    "CropAndResizeBilinear": MPSNNResize.crop_and_resize,
    "Dropout": MPSCNNDropout.dropout,
    "LogSoftMax": MPSCNNSoftMax.log_softmax,
    "Pad": MPSNNReshape.pad,
    "ReduceFeatureChannelsAndWeightsMean": MPSNNReduce.weighted_mean,
    "ReduceFeatureChannelsAndWeightsSum": MPSNNReduce.weighted_sum,
    **dict.fromkeys(MPSNNReduce.KERNELS, MPSNNReduce.reduce),
    "Reshape": MPSNNReshape.reshape,
    "ResizeBilinear": MPSCNNUpsampling.bilinear,
    "Slice": MPSNNSlice.cut,
    "SoftMax": MPSCNNSoftMax.softmax,
    "UpsamplingBilinear": MPSCNNUpsampling.bilinear,
    "UpsamplingNearest": MPSCNNUpsampling.nearest,
    **{kernel: MPSCNNNeuron.FUNCTIONS[name] for kernel, (name, _) in NEURON_KERNELS.items()},
}

# Valid values of parameters that are not their defaults.
COMMON_VALUES: dict[str, list[Any]] = {
    "offset": [(1, -2), (3, 4, 1)],
    "clip_rect": [((1, 2, 0), (3, 4, 1))],
    "edge_mode": ["clamp", "zero"],
    "source_feature_channel_offset": [8],
    "source_feature_channel_max_count": [4],
    "destination_feature_channel_offset": [12],
    "allow_reduced_precision": [True],
    "label": ["first", "zweite Ebene"],
    "primary_offset": [(1, -2), (3, 4, 1)],
    "secondary_offset": [(-3, 2), (1, 0, 2)],
    "primary_edge_mode": ["clamp", "zero"],
    "secondary_edge_mode": ["clamp", "zero"],
    "primary_source_feature_channel_offset": [8],
    "primary_source_feature_channel_max_count": [4],
    "secondary_source_feature_channel_offset": [16],
    "secondary_source_feature_channel_max_count": [5],
}

OWN_VALUES: dict[str, list[Any]] = {"gradient_option": ["data", "weights_and_bias"]}


def common(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the common parameters of the row; a parameter of its own with the same name replaces one."""
    own = {spec["name"] for spec in row["params"]}
    return [spec for spec in COMMON[row["attributes"]] if spec["name"] not in own]


def attributes(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [spec for spec in row["params"] if spec["attribute"]] + common(row)


def may_differ(spec: dict[str, Any]) -> bool:
    """Return whether the row's own spec of a common parameter leaves a choice."""
    return not (spec["min"] == spec["max"] == 0) and len(spec["choices"]) != 1


def allows(spec: dict[str, Any], value: Any) -> bool:
    return may_differ(spec) and (not spec["choices"] or value in spec["choices"])


def minimal(name: str) -> mpscnn.Kernel:
    """Make a kernel with required parameters only."""
    arguments: dict[str, tuple[Any, ...]] = {
        "BinaryConvolution": (np.ones((4, 3, 3, 1), np.uint32),),
        "BinaryFullyConnected": (np.ones((4, 1, 1, 1), np.uint32),),
        "BatchNormalization": (np.ones(4, np.float32),),
        "Convolution": (np.ones((4, 4, 3, 3), np.float32),),
        "Compare": ("less",),
        "CropAndResizeBilinear": (3, [[0.0, 0.0, 1.0, 1.0]]),
        "ConvolutionTranspose": (np.ones((4, 4, 3, 3), np.float32),),
        "FullyConnected": (np.ones((4, 4), np.float32),),
        "DilatedPoolingMax": (3,),
        "GroupNormalization": (np.ones(4, np.float32), None, 2),
        "InstanceNormalization": (np.ones(4, np.float32),),
        "LocalContrastNormalization": (3,),
        "Neuron": ("relu",),
        "NeuronGradient": ("relu",),
        "NeuronPReLU": (np.ones(4, np.float32),),
        "PoolingAverage": (3,),
        "PoolingL2Norm": (3,),
        "PoolingMax": (3,),
        "Reshape": ((-1, 1, 1),),
        "ResizeBilinear": (3,),
        "UpsamplingBilinear": (2,),
        "UpsamplingNearest": (2,),
        "SpatialNormalization": (3,),
    }
    return getattr(mpscnn, name)(*arguments.get(BY_NAME[name]["forward"] or name, ()))


@cache
def facts() -> dict[str, Any]:
    """Apple's interfaces, as collected for the headers."""
    path = Path(__file__).parent.parent / "tools" / "api" / "mps_api.json"
    return json.loads(path.read_text())


def selectors(class_name: str) -> set[str]:
    """Return methods and properties of a class and of its base classes."""
    found: set[str] = set()
    name: str | None = class_name
    while name and name in facts()["classes"]:
        described = facts()["classes"][name]
        found |= {method["selector"] for method in described.get("methods", [])}
        found |= {entry["name"] for entry in described.get("properties", [])}
        name = described.get("super")
    return found


# ------------------------------------------------------------------------------------- a row and its company


def test_every_row_has_an_oracle() -> None:
    assert sorted(WITH_CASES - set(ORACLES)) == []
    assert sorted(set(ORACLES) - WITH_CASES) == []


def test_every_row_has_cases() -> None:
    assert sorted(WITH_CASES - {case.kernel for case in CASES}) == []
    assert sorted({case.kernel for case in CASES} - WITH_CASES) == []


def test_every_gradient_has_cases() -> None:
    """At least two cases, which are its forward kernel's."""
    from test_gradient import CASES as DIFFERENTIATED

    tried = [case.kernel for case in DIFFERENTIATED]
    assert sorted(name for name in MADE_OF_FORWARD if tried.count(BY_NAME[name]["forward"]) < 2) == []


@pytest.mark.parametrize("name", sorted(MADE_OF_FORWARD))
def test_a_gradient_has_the_parameters_of_its_forward_kernel(name: str) -> None:
    row, forward = BY_NAME[name], BY_NAME[BY_NAME[name]["forward"]]
    assert forward["gradient"] == row["apple_class"]
    own = {"gradient_option", "of"}
    assert [spec for spec in row["params"] if spec["name"] not in own] == forward["params"]
    assert row["attributes"] == len(forward["sources"])
    assert row["sources"][0] == "grad_y"
    assert row["state"]


def test_every_row_has_an_error_case() -> None:
    from errors.test_rows import ROWS as ERRORS

    assert sorted(set(BY_NAME) - {error.kernel for error in ERRORS}) == []


def test_every_row_has_a_mutation() -> None:
    """Each mutation can be applied; `make mutations` checks that tests detect it."""
    tool = Path(__file__).parent.parent / "tools" / "mutations.py"
    done = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_row_has_two_benchmarks() -> None:
    from bench import gradients, images, kernels, normalization

    rows = [row.kernel for row in kernels.ROWS] + [row.kernel for row in normalization.ROWS]
    rows += [type(row.kernel()).__name__ for row in images.rows()] + [row.kernel for row in gradients.ROWS]
    neurons = {name for name in BY_NAME if name.startswith("Neuron")}
    assert sorted(name for name in set(BY_NAME) - neurons if rows.count(name) < 2) == []
    assert sorted(neurons - set(rows)) == []


def test_every_parameter_has_a_case() -> None:
    """Some case has each parameter of each row, and each choice of a text."""
    fields = {"weight": "weight", "bias": "bias", "activation": "activation"}
    missing = []
    for row in (BY_NAME[name] for name in sorted(WITH_CASES)):
        cases = [case for case in CASES if case.kernel == row["name"]]
        for spec in row["params"]:
            name = spec["name"]
            given: list[Any] = [case.params[name] for case in cases if name in case.params]
            of_weights = name in fields and (name != "bias" or bool(cases[0].weight))
            given += [value for case in cases if of_weights and (value := getattr(case, fields[name]))]
            given += [name for case in cases if case.quantized == name or name in case.given]
            given += [name for case in cases if case.is_binary and name == "in_channels"]
            given += [case.params["type"] for case in cases if case.params.get("type") == "prelu" and name == "data"]
            given += [name for case in cases if case.kernel == "NeuronPReLU" and name == "a"]
            if not given and may_differ(spec):
                missing.append(f"{row['name']}: {name}")
            default = ast.literal_eval(spec["default"]) if spec["default"] else None
            missing += [
                f'{row["name"]}: {name}="{choice}"'
                for choice in spec["choices"]
                if choice not in given and choice != default
            ]
    assert missing == []


def test_every_common_parameter_has_a_case_by_family() -> None:
    one, two = ({spec["name"] for spec in specs} - {"label"} for specs in COMMON.values())
    inert = {"allow_reduced_precision"}
    families = {"convolution": one, "neuron": one - inert, "arithmetic": two - inert, "neuron_gradient": two - inert}
    families |= dict.fromkeys(
        ("binary_convolution", "dropout", "pad", "pooling", "slice", "softmax", "upsampling"), one - inert
    )
    families["resize"] = one - inert
    # Reductions and reshaping read whole sources, or have their own rectangles.
    placed = {
        "offset",
        "edge_mode",
        *(f"{source}_{name}" for source in ("primary", "secondary") for name in ("offset", "edge_mode")),
    }
    families["reshape"] = one - inert - placed
    families["reduction"] = (one | two) - inert - placed
    families |= dict.fromkeys(("pooling", "local_normalization", "normalization"), one - inert)
    families["batch_statistics"] = {f"source_feature_channel_{name}" for name in ("offset", "max_count")}
    assert set(families) <= {row["family"] for row in ROWS}
    for family, wanted in families.items():
        used = {name for case in CASES if BY_NAME[case.kernel]["family"] == family for name in case.params}
        assert sorted(wanted - used) == [], family


def test_every_activation_is_fused_somewhere() -> None:
    plain = [case for case in CASES if case.kernel == "Convolution"]
    fused = {case.activation[0] for case in plain if isinstance(case.activation, tuple)}
    assert sorted({name for name, _ in MPSCNNNeuron.TYPES} - fused - {"none"}) == []
    short = {case.activation for case in CASES if isinstance(case.activation, str)}
    assert sorted(set(SHORT_ACTIVATIONS) - short) == []
    assert set(SHORT_ACTIVATIONS) | {"prelu"} == {row["name"] for row in _core.neuron_names()}


def test_rows_of_cases_are_distinct() -> None:
    """Two cases for the same reason are one too many; each text selects one row."""
    for texts in ([case.why for case in CASES], [str(case) for case in CASES]):
        assert sorted({text for text in texts if texts.count(text) > 1}) == []
    assert all(case.why for case in CASES)
    assert all(case.tolerance.reason for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_text_is_a_filter(case: Any) -> None:
    """A single word for pytest -k (by its scanner's own expression)."""
    assert re.fullmatch(r"(:?\w|:|\+|-|\.|\[|\]|\\|/)+", str(case))


def test_pytest_selects_by_text(pytestconfig: pytest.Config) -> None:
    expression = pytest.importorskip("_pytest.mark.expression").Expression
    texts = [str(case) for case in CASES]
    for wanted in texts[::10]:
        word = expression.compile(wanted)
        chosen = [text for text in texts if word.evaluate(lambda part, text=text, **_: part in text)]
        assert wanted in chosen
        # Kernels whose names end with that of another one are selected too.
        assert all(text.startswith((wanted, f"Log{wanted}")) for text in chosen)


# ------------------------------------------------------------------------------------------- names, classes


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_names(row: dict[str, Any]) -> None:
    kind = getattr(mpscnn, row["name"])
    assert kind.apple_class == row["apple_class"]
    assert kind.__name__ == row["name"]
    assert kind.__module__ == "mpscnn"
    assert row["name"] in mpscnn.__all__
    assert mpscnn.kernel(row["name"]) is kind
    assert mpscnn.kernel(row["apple_class"]) is kind
    assert issubclass(kind, mpscnn.Kernel)
    assert row["apple_class"] in (f"MPSCNN{row['name']}", f"MPSNN{row['name']}")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_class_is_found_on_this_platform(row: dict[str, Any]) -> None:
    kernel = minimal(row["name"])
    assert type(kernel) is getattr(mpscnn, row["name"])
    assert row["name"] in repr(kernel)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_row_agrees_with_apple(row: dict[str, Any]) -> None:
    """Class, first macOS version and header agree with the collected facts; the gradient's class exists."""
    described = facts()["classes"][row["apple_class"]]
    # For a few classes, the sources of the facts disagree; either is accepted.
    since = {value for name, value in described.items() if name.startswith("since_macos")}
    if since == {None}:  # not in the facts: equal to the forward kernel's
        since = {BY_NAME[row["forward"]]["macos"]}
    assert row["macos"] in since
    gradient = f"{row['apple_class']}Gradient"
    assert row["gradient"] in facts()["classes"] if row["gradient"] else gradient not in facts()["classes"]
    header, symbol = row["source"].split(", ")
    assert symbol == row["apple_class"]
    assert header.startswith(("MPSNeuralNetwork/", "MPSCore/", "MPSImage/"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_parameters_resolve(row: dict[str, Any]) -> None:
    """Each parameter of a row refers to an existing property, method, class or enumerator of Apple's."""
    around = {row["apple_class"], "MPSCNNConvolutionDescriptor", "MPSCNNSubPixelConvolutionDescriptor"}
    if row["forward"]:
        around.add(BY_NAME[row["forward"]]["apple_class"])
    known = set().union(*(selectors(name) for name in around))
    owner_class = BY_NAME[row["forward"] or row["name"]]["apple_class"]
    for protocol in ("MPSCNNConvolutionDataSource", f"{owner_class}DataSource"):
        described = facts()["protocols"].get(protocol, {})
        known |= {method["selector"] for method in described.get("methods", [])}
        known |= {entry["name"] for entry in described.get("properties", [])}
    known |= {"destinationImage"}  # an argument of encode
    known |= set(facts()["classes"]) | set(facts()["enums"])
    known |= {case for enum in facts()["enums"].values() for case in enum["cases"]}
    unknown = []
    for spec in row["params"] + common(row):
        for name in re.split(r",\s*", spec["apple"]):
            owner, _, member = name.rpartition(".")
            if not (name in known or (owner in known and member in selectors(owner))):
                unknown.append(f"{spec['name']}: {name}")
    assert unknown == []


# --------------------------------------------------------------------------------------------- Python's view


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_docstring(row: dict[str, Any]) -> None:
    text = inspect.getdoc(getattr(mpscnn, row["name"])) or ""
    for part in (row["summary"], row["formula"], row["source"], row["shape"], f"macOS {row['macos']}"):
        assert part, row["name"]
        assert part in text, f"{part!r} is not in the docstring of {row['name']}"
    assert row["gradient"] in text
    assert f"kernel({', '.join(row['sources'])})" in text
    for spec in row["params"] + common(row):
        lines = [line for line in text.splitlines() if line.startswith(f"{spec['name']} : ")]
        assert len(lines) == 1, f"{row['name']}: {spec['name']} is described {len(lines)} times"
        assert spec["summary"] in text
        assert spec["apple"] in text
        for choice in spec["choices"]:
            assert f'"{choice}"' in lines[0]
        if spec["unit"]:
            assert spec["unit"] in lines[0]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_signature(row: dict[str, Any]) -> None:
    parameters = inspect.signature(getattr(mpscnn, row["name"])).parameters
    specs = row["params"] + common(row)
    assert list(parameters) == [spec["name"] for spec in specs] + ["device"]
    for index, spec in enumerate(specs):
        given = parameters[spec["name"]]
        default = ast.literal_eval(spec["default"]) if spec["default"] else inspect.Parameter.empty
        assert given.default == default or (given.default is default)
        by_position = given.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        assert by_position == (index < row["positional"])


@pytest.mark.parametrize(
    ("row", "spec"),
    [pytest.param(row, spec, id=f"{row['name']}-{spec['name']}") for row in ROWS for spec in attributes(row)],
)
def test_attributes_come_back(row: dict[str, Any], spec: dict[str, Any]) -> None:
    name = spec["name"]
    kernel = minimal(row["name"])
    default = ast.literal_eval(spec["default"])
    assert spec["attribute"]
    assert getattr(kernel, name) == default
    transposed_clamp = "ConvolutionTranspose" in row["name"] and name == "edge_mode"
    values = COMMON_VALUES.get(name) or OWN_VALUES[name]
    for value in [] if transposed_clamp else [value for value in values if allows(spec, value)]:
        setattr(kernel, name, value)
        assert getattr(kernel, name) == value
    setattr(kernel, name, default)
    assert getattr(kernel, name) == default


def test_every_attribute_is_tried() -> None:
    assert set(COMMON_VALUES) == {spec["name"] for specs in COMMON.values() for spec in specs}


@pytest.mark.parametrize("name", ["NeuronReLU", "Subtract"])
def test_common_parameters_can_be_given_at_once(name: str) -> None:
    given = {spec["name"]: COMMON_VALUES[spec["name"]][0] for spec in common(BY_NAME[name])}
    kernel = getattr(mpscnn, name)(**given)
    assert {name: getattr(kernel, name) for name in given} == given


def test_neuron_kernels_describe_their_function() -> None:
    """Type, a, b, c of each neuron kernel with its defaults, as fused into a convolution."""
    for kernel, (name, defaults) in NEURON_KERNELS.items():
        descriptor = minimal(kernel).neuron_descriptor
        assert descriptor.type == name, kernel
        if name == "prelu":
            assert list(descriptor.data) == [1.0] * 4
        else:
            numbers = [descriptor.a, descriptor.b, descriptor.c]
            wanted = [float(np.float32(number)) for number in (*defaults, 0.0, 0.0, 0.0)[:3]]
            assert numbers == wanted, kernel


def test_neuron_types_stand_in_apples_order() -> None:
    choices = next(spec["choices"] for spec in BY_NAME["Neuron"]["params"] if spec["name"] == "type")
    names = _core.neuron_names()
    assert choices == [row["name"] for row in names]
    printed = list(dict.fromkeys(row["type"] for row in names))
    assert printed == [name for name, _ in MPSCNNNeuron.TYPES]
    assert set(printed) <= set(choices)
    variants = {row["name"]: row["variant"] for row in ROWS if row["family"] == "neuron"}
    assert variants.pop("Neuron") == -1
    assert variants == {kernel: MPSCNNNeuron.NUMBERS[name] for kernel, (name, _) in NEURON_KERNELS.items()}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_bases(row: dict[str, Any]) -> None:
    """With one source or two: the base class, and its attributes."""
    kind = getattr(mpscnn, row["name"])
    is_binary = row["attributes"] == 2
    base = mpscnn.GradientKernel if row["forward"] else mpscnn.BinaryKernel if is_binary else mpscnn.UnaryKernel
    assert issubclass(kind, base)
    assert hasattr(kind, "primary_offset") == is_binary
    assert hasattr(kind, "offset") != is_binary


# ---------------------------------------------------------------------------------------- classes without a row


def _kernels_without_row() -> list[str]:
    """Return Apple's subclasses of MPSKernel that are named like CNN kernels and have no row."""
    classes = facts()["classes"]

    def is_kernel(name: str | None) -> bool:
        return name == "MPSKernel" or (name in classes and is_kernel(classes[name].get("super")))

    known = {row["apple_class"] for row in ROWS}
    ours = (name for name in classes if name.startswith(("MPSCNN", "MPSNN")) and is_kernel(name))
    return sorted(name for name in ours if name not in known)


@pytest.mark.parametrize("name", _kernels_without_row())
def test_missing_kernels_say_so(name: str) -> None:
    with pytest.raises(NotImplementedError, match=rf"\b{name}\b"):
        mpscnn.kernel(name)


def test_there_are_missing_kernels() -> None:
    """The list above is not empty by mistake."""
    assert {"MPSCNNYOLOLoss", "MPSCNNLoss"} <= set(_kernels_without_row())


@pytest.mark.parametrize("name", ["PoolingMaximum", "convolution", "NSObject", "", "MPSImage"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(KeyError, match=re.escape(f'"{name}"')):
        mpscnn.kernel(name)
