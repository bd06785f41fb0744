# SPDX-License-Identifier: Apache-2.0
"""Arguments of wrong types, numbers and names: each public callable answers in a sentence that names the argument."""

from __future__ import annotations

import asyncio
import inspect
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpscnn
from mpscnn import _core
from mpscnn.graph import Value
from mpscnn.stream import Stream
from support import Source, random, runtime_arguments

KERNELS = mpscnn.kernels.KERNELS
CLASSES = {name: value for name in mpscnn.__all__ if inspect.isclass(value := getattr(mpscnn, name))}
MODULES = {name: value for name in mpscnn.__all__ if inspect.ismodule(value := getattr(mpscnn, name))}

EXCEPTIONS = {name for name, kind in CLASSES.items() if issubclass(kind, BaseException)}
"""Raised by the package and caught by others, who make none; Python makes them complete in __new__."""


BASES = {"BinaryKernel", "GradientKernel", "UnaryKernel"}
"""Between Kernel and the kernels: they have nothing but parameters of the table, and the window of one source."""

CANNOT_BE_MADE = {"Optimizer", "OptimizerState"}
"""By their own name: others make them."""


class Stranger:
    """Is nothing that any parameter takes."""

    def __repr__(self) -> str:
        return "<a stranger>"


X = (1, 5, 7, 4)
W = (8, 4, 3, 3)
BOXES = (1, 2, 3, 7)


def commands() -> mpscnn.CommandBuffer:
    return mpscnn.CommandBuffer()


def image() -> mpscnn.Image:
    return mpscnn.Image.from_array(random(X))


def temporary() -> mpscnn.Image:
    return mpscnn.Image.temporary(commands(), X)


def labels() -> mpscnn.LossLabels:
    return mpscnn.LossLabels(random(X))


def graph() -> mpscnn.Graph:
    made = mpscnn.Graph()
    x = made.input("x", channels=4)
    made.output(made.add("NeuronReLU", x, name="relu"), "y")
    return made


LAYERS = [("conv", "Conv2d", {"in_channels": 4, "out_channels": 3, "kernel_size": (5, 7)})]
CHECKPOINT = "checkpoint"


def trainer() -> mpscnn.Trainer:
    return mpscnn.Trainer(LAYERS, input_shapes=(2, 4, 5, 7))


def batch() -> dict[str, Any]:
    return {"x": random((2, 4, 5, 7)), "labels": [0, 2]}


def saved() -> Path:
    folder = Path(SCRATCH.name) / CHECKPOINT
    trainer().save(folder)
    return folder


ADAM = mpscnn.OptimizerAdam()
"""States are of one optimizer."""

SCRATCH = tempfile.TemporaryDirectory()
"""Where files are written."""

# Objects whose methods are called, and arguments that are right, by the name of the callable.
OWNERS: dict[str, Callable[[], Any]] = {
    "BatchNormalizationState": lambda: mpscnn.BatchNormalizationState(4),
    "Buffer": lambda: mpscnn.Buffer(4096),
    "CommandBuffer": commands,
    "DataSource": mpscnn.DataSource,
    "Device": mpscnn.Device,
    "ForwardLoss": lambda: mpscnn.ForwardLoss("huber"),
    "Graph": graph,
    "Image": image,
    "ImageConversion": mpscnn.ImageConversion,
    "ImageCopyToMatrix": mpscnn.ImageCopyToMatrix,
    "Kernel": mpscnn.NeuronReLU,
    "InitialGradient": mpscnn.InitialGradient,
    "Loss": lambda: mpscnn.Loss("huber"),
    "LossGradient": lambda: mpscnn.LossGradient("huber"),
    "LossLabels": labels,
    "Matrix": lambda: mpscnn.Matrix(3, 5),
    "MatrixCopyToImage": mpscnn.MatrixCopyToImage,
    "Network": lambda: mpscnn.Network(graph()),
    "NormalizationDataSource": mpscnn.NormalizationDataSource,
    "Optimizer": lambda: ADAM,
    "OptimizerState": lambda: mpscnn.OptimizerAdam().state_for(mpscnn.Buffer(8)),
    "Trainer": trainer,
    "YOLOLoss": lambda: mpscnn.YOLOLoss([[1, 2]]),
    "profile": mpscnn.profile,
}
OF_OPTIMIZERS: dict[str, Any] = {
    "learning_rate": np.float32(0.1),
    "gradient_rescale": 2,
    "gradient_clip": (-1, 1),
    "regularization": "l2",
    "regularization_scale": 0.1,
    "device": None,
}
RIGHT: dict[str, Callable[[], dict[str, Any]]] = {
    "BatchNorm": lambda: {"mean": [0], "variance": [1], "gamma": [1], "beta": [0], "epsilon": 1e-3},
    "BatchNormalizationState": lambda: {"channels": 4, "device": None},
    "Buffer": lambda: {"source": 16, "device": None},
    "Buffer.__array__": lambda: {"dtype": "uint8", "copy": None},
    "Buffer.numpy": lambda: {"dtype": "uint8", "shape": (4096,)},
    "CommandBuffer": lambda: {"device": mpscnn.Device(), "label": "one"},
    "CommandBuffer.add_completed_handler": lambda: {"handler": lambda: None},
    "CommandBuffer.label": lambda: {"label": "one"},
    "ConvolutionDescriptor": lambda: {
        "kernel_size": 3,
        "in_channels": 4,
        "out_channels": 8,
        "stride": 1,
        "dilation": 1,
        "groups": 1,
        "depthwise": False,
        "sub_pixel_scale_factor": 1,
        "activation": None,
        "batch_norm": None,
    },
    "ForwardLoss": lambda: {**LOSS_OPTIONS, "reduction": "mean", "reduce_across_batch": True},
    "ForwardLoss.__call__": lambda: {"x": random(X), "labels": random(X), "weights": random(X), "out": None},
    "ForwardLoss.encode": lambda: {
        "command_buffer": commands(),
        "x": image(),
        "labels": image(),
        "weights": None,
        "out": None,
        "temporary": False,
    },
    "Graph.add": lambda: {"kernel": "NeuronReLU", "name": "second", "origin": "a (ReLU)"},
    "Graph.concatenate": lambda: {"name": "second", "origin": "a (Concat)"},
    "Graph.input": lambda: {
        "name": "z",
        "height": 5,
        "width": np.int64(7),
        "channels": 4,
        "layout": "NCHW",
        "fixed_by": "a (Flatten)",
    },
    "Graph.node": lambda: {"name": "relu"},
    "Graph.output": lambda: {"value": Value("x"), "name": "z", "layout": "NCHW", "shape": (140,)},
    "Graph.unique": lambda: {"name": "x"},
    "Image": lambda: {"shape": X, "dtype": "float16", "device": None},
    "Image.__array__": lambda: {"dtype": "float32", "copy": True},
    "Image.channels": lambda: {"first": 0, "count": 4},
    "Image.from_array": lambda: {"x": random(X), "layout": "NHWC", "copy": None, "device": None},
    "Image.label": lambda: {"label": "one"},
    "Image.numpy": lambda: {"layout": "NHWC", "out": np.empty(X, np.float32), "copy": None},
    "Image.read_count": lambda: {"read_count": 0},
    "Image.temporary": lambda: {"command_buffer": commands(), "shape": X, "dtype": "float32"},
    "Image.most_images": lambda: {"channels": 4},
    "Image.write": lambda: {"x": random(X), "layout": "NHWC"},
    "ImageConversion": lambda: {
        "dtype": "float16",
        "source_alpha": "premultiplied",
        "destination_alpha": "alpha_is_one",
        "background_color": (0, 0.5, 1),
        "device": None,
        "offset": None,
        "clip_rect": None,
        "edge_mode": "clamp",
    },
    "ImageConversion.clip_rect": lambda: {"clip_rect": ((0, 1, 0), (2, 3, 1))},
    "ImageConversion.edge_mode": lambda: {"edge_mode": "clamp"},
    "ImageConversion.offset": lambda: {"offset": (1, -2, 0)},
    "ImageConversion.__call__": lambda: {"x": random(X), "out": None},
    "ImageConversion.encode": lambda: {"command_buffer": commands(), "x": image(), "out": None, "temporary": False},
    "ImageCopyToMatrix": lambda: {"layout": "CHW", "origin": (0, 0), "device": None},
    "ImageCopyToMatrix.__call__": lambda: {"x": image(), "out": None},
    "ImageCopyToMatrix.encode": lambda: {"command_buffer": commands(), "x": image(), "out": None, "temporary": False},
    "Kernel": lambda: {"name": "NeuronReLU", "arguments": {}, "device": None},
    "Kernel.__call__": lambda: {"x": random(X), "out": None, "state": None, "dtype": None, "with_state": True},
    "Kernel.encode": lambda: {
        "command_buffer": commands(),
        "x": image(),
        "out": None,
        "temporary": False,
        "state": None,
        "dtype": None,
        "with_state": np.False_,
    },
    "Kernel.export_weights": lambda: {"command_buffer": commands()},
    "Kernel.update": lambda: {
        "command_buffer": commands(),
        "state": mpscnn.NeuronReLU()(random(X), with_state=True)[1],
    },
    "Kernel.update_on_cpu": lambda: {"state": mpscnn.NeuronReLU()(random(X), with_state=True)[1]},
    "Kernel.reload": lambda: {"command_buffer": None, "state": None},
    "Kernel.result_shape": lambda: {"shape": X},
    "InitialGradient": lambda: {"device": None},
    "InitialGradient.__call__": lambda: {"x": random(X), "out": None},
    "InitialGradient.encode": lambda: {"command_buffer": commands(), "x": image(), "out": None, "temporary": False},
    "Loss": lambda: {**LOSS_OPTIONS, "reduction": "mean", "reduce_across_batch": True},
    "Loss.__call__": lambda: {"x": random(X), "labels": random(X), "weights": random(X), "out": None},
    "Loss.encode": lambda: {
        "command_buffer": commands(),
        "x": image(),
        "labels": labels(),
        "out": None,
        "temporary": False,
    },
    "LossGradient": lambda: {**LOSS_OPTIONS, "compute_label_gradients": True},
    "LossGradient.__call__": lambda: {
        "grad": random((1, 1, 1, 1)),
        "x": random(X),
        "labels": random(X),
        "weights": random(X),
        "out": None,
    },
    "LossGradient.encode": lambda: {
        "command_buffer": commands(),
        "grad": image(),
        "x": image(),
        "labels": image(),
        "weights": None,
        "out": None,
        "temporary": False,
    },
    "LossLabels": lambda: {
        "labels": random(X),
        "weights": random(X),
        "number_of_classes": 4,
        "loss_shape": X[1:],
        "device": None,
    },
    "LossLabels.write": lambda: {"labels": random(X), "weights": None},
    "Matrix": lambda: {"rows": 3, "columns": 5, "dtype": "int32", "device": None},
    "Matrix.__array__": lambda: {"dtype": "float32", "copy": None},
    "Matrix.from_array": lambda: {"x": random((3, 5)), "copy": None, "device": None},
    "Matrix.read_count": lambda: {"read_count": 0},
    "Matrix.temporary": lambda: {"command_buffer": commands(), "rows": 3, "columns": 5, "dtype": "uint8"},
    "MatrixCopyToImage": lambda: {"layout": "HWC", "origin": (0, 0), "device": None},
    "MatrixCopyToImage.__call__": lambda: {"x": mpscnn.Matrix(1, 140), "out": image()},
    "MatrixCopyToImage.encode": lambda: {"command_buffer": commands(), "x": mpscnn.Matrix(1, 140), "out": image()},
    "ConvolutionWeightsAndBiasesState": lambda: {"weights": random(W), "biases": [1.0] * 8, "device": None},
    "NormalizationGammaAndBetaState": lambda: {"gamma": [1, 2], "beta": random((2,)), "device": None},
    "NormalizationMeanAndVarianceState": lambda: {"mean": [1, 2], "variance": mpscnn.Buffer(8), "device": None},
    "Network": lambda: {
        "graph": graph(),
        "dtype": "float16",
        "mean": 0.5,
        "std": {"x": [0.5] * 4},
        "allow_reduced_precision": True,
        "optimize": False,
        "device": None,
    },
    "Network.__call__": lambda: {"x": random(X), "out": None},
    "Network.apredict": lambda: {"x": random(X), "out": None},
    "Network.encode": lambda: {"command_buffer": commands(), "out": None},
    "Network.input_layout": lambda: {"input_layout": "NCHW"},
    "Network.layers": lambda: {"input_shapes": X},
    "Network.output_layout": lambda: {"output_layout": {"y": "NCHW"}},
    "Network.save": lambda: {"path": Path(SCRATCH.name) / "a.mpscnn"},
    "Network.stream": lambda: {"batches": [random(X)], "in_flight": 2, "progress": None},
    "Network.summary": lambda: {"input_shapes": {"x": X}},
    "NeuronDescriptor": lambda: {"type": "prelu", "a": 0, "b": 0.0, "c": np.float32(0), "data": [0.25]},
    "Optimizer.encode": lambda: {
        "command_buffer": commands(),
        "gradient": mpscnn.Buffer(8),
        "state": ADAM.state_for(mpscnn.Buffer(8)),
    },
    "Optimizer.learning_rate": lambda: {"learning_rate": 1},
    "Optimizer.state_for": lambda: {"values": mpscnn.Buffer(8)},
    "OptimizerAdam": lambda: {"beta1": 0.5, "beta2": 0.5, "epsilon": 0, "amsgrad": True, **OF_OPTIMIZERS},
    "OptimizerRMSProp": lambda: {"decay": 0.5, "epsilon": 0, **OF_OPTIMIZERS},
    "OptimizerState.load_state_dict": lambda: {
        "saved": {"momentum": np.zeros(2), "velocity": np.zeros(2), "time_step": 3}
    },
    "OptimizerState.time_step": lambda: {"time_step": 3},
    "OptimizerStochasticGradientDescent": lambda: {
        "momentum_scale": 0.5,
        "use_nesterov_momentum": np.True_,
        **OF_OPTIMIZERS,
    },
    "YOLOLoss": lambda: {
        "anchor_boxes": [(1, 2.5)],
        "xy_loss": "huber",
        "wh_loss": mpscnn.Loss("huber"),
        "confidence_loss": "log",
        "classes_loss": "mean_squared_error",
        "reduction": "none",
        "rescore": np.True_,
        "scale_xy": 1,
        "scale_wh": np.float32(2),
        "scale_no_object": 3.0,
        "scale_object": 4,
        "scale_class": 5,
        "min_iou_for_object_presence": 1,
        "max_iou_for_object_absence": 0,
        "reduce_across_batch": False,
        "device": None,
    },
    "YOLOLoss.__call__": lambda: {"x": random(BOXES), "labels": random(BOXES), "weights": random(BOXES), "out": None},
    "YOLOLoss.encode": lambda: {
        "command_buffer": commands(),
        "x": mpscnn.Image(BOXES),
        "labels": mpscnn.LossLabels(random(BOXES)),
        "out": None,
        "temporary": True,
    },
    "Trainer": lambda: {
        "model": LAYERS,
        "state_dict": {"conv.weight": random((3, 4, 5, 7)), "conv.bias": random((3,))},
        "input_shapes": (2, 4, 5, 7),
        "loss": mpscnn.Loss("huber"),
        "optimizer": None,
        "frozen": (),
        "batch_norm_momentum": np.float32(0.5),
        "in_flight": 1,
        "seed": 3,
        "device": None,
    },
    "Trainer.evaluate": lambda: {**batch(), "batch_size": 1},
    "Trainer.fit": lambda: {
        **batch(),
        "epochs": 1,
        "batch_size": 2,
        "validation": None,
        "shuffle": np.False_,
        "learning_rate": None,
        "augment": None,
        "checkpoint": None,
        "plot": None,
        "progress": None,
    },
    "Trainer.load": lambda: {"folder": saved()},
    "Trainer.load_state_dict": lambda: {"state_dict": trainer().state_dict()},
    "Trainer.network": lambda: {"dtype": "float32"},
    "Trainer.save": lambda: {"folder": Path(SCRATCH.name) / CHECKPOINT},
    "Trainer.step": batch,
    "empty": lambda: {"shape": (2, 3), "dtype": "float32"},
    "importing.read": lambda: {"model": graph(), **GIVEN_WITH_A_MODEL},
    "kernel": lambda: {"name": "Convolution"},
    "load": lambda: {
        "model": graph(),
        **GIVEN_WITH_A_MODEL,
        "dtype": None,
        "mean": None,
        "std": [1.0],
        "allow_reduced_precision": False,
        "optimize": True,
        "device": None,
    },
    "map_weights": lambda: {"path": Path(__file__), "shape": (Path(__file__).stat().st_size,), "dtype": "uint8"},
    "memory.cached": lambda: {"device": None},
    "memory.clear": lambda: {"device": None},
    "memory.current": lambda: {"device": None},
    "memory.peak": lambda: {"device": mpscnn.Device()},
    "memory.reset": lambda: {"device": None},
    "pack_bits": lambda: {"weight": random(W), "layout": "OIHW"},
    "profile": lambda: {"per_kernel": np.False_},
    "profile.save": lambda: {"path": Path(SCRATCH.name) / "trace.json"},
    "reorder": lambda: {
        "array": random(W),
        "source": "OIHW",
        "target": "OHWI",
        "out": None,
        "feature_map": None,
        "copy": None,
        "threads": None,
    },
    "reorder_linear": lambda: {
        "array": random((8, 24)),
        "feature_map": (2, 3, 4),
        "out": None,
        "copy": None,
        "threads": None,
    },
    # without arguments
    "BatchNormalizationState.reset": dict,
    "Buffer.__dlpack__": dict,
    "Buffer.__dlpack_device__": dict,
    "Buffer.__len__": dict,
    "CommandBuffer.__enter__": dict,
    "CommandBuffer.commit": dict,
    "CommandBuffer.wait": dict,
    "DataSource.load": dict,
    "DataSource.purge": dict,
    "Device": dict,
    "Device.all": dict,
    "Device.free_cached_bytes": dict,
    "Device.reset_peak_bytes": dict,
    "GradientState": dict,
    "Graph": dict,
    "Graph.__iter__": dict,
    "Graph.__len__": dict,
    "Graph.consumers": dict,
    "Graph.copy": dict,
    "Image.__dlpack__": dict,
    "Image.__dlpack_device__": dict,
    "Matrix.__dlpack__": dict,
    "Matrix.__dlpack_device__": dict,
    "Matrix.numpy": dict,
    "NormalizationDataSource.load": dict,
    "NormalizationDataSource.purge": dict,
    "OptimizerState.state_dict": dict,
    "Trainer.state_dict": dict,
    "Trainer.wait": dict,
    "profile.__enter__": dict,
    "profile.table": dict,
    "profile.trace": dict,
    # of any object
    "CommandBuffer.__exit__": lambda: {"type": None, "value": None, "traceback": None},
    "profile.__exit__": lambda: {"kind": None, "value": None, "traceback": None},
}
LOSS_OPTIONS: dict[str, Any] = {
    "type": "huber",
    "weight": 2,
    "label_smoothing": 0.5,
    "number_of_classes": 4,
    "epsilon": 0,
    "delta": np.float32(2),
    "device": None,
}
GIVEN_WITH_A_MODEL: dict[str, Any] = {
    "input_shapes": None,
    "architecture": None,
    "layers": None,
    "example_inputs": None,
    "options": None,
}
BY_POSITION: dict[str, tuple[tuple[str, ...], Callable[[], tuple[Any, ...]]]] = {
    "Graph.add": (("kernel",), lambda: (Value("x"),)),
    "Graph.concatenate": ((), lambda: (Value("x"), Value("relu"))),
    "Network.encode": (("command_buffer",), lambda: (image(),)),
}
"""What is given before `*sources`, and these."""
TAKES_ANYTHING = {"CommandBuffer.__exit__", "profile.__exit__"}
SEVERAL_SOURCES = {"Kernel.__call__", "Kernel.encode", "Kernel.result_shape"}
TEMPORARIES: dict[str, Callable[[], Any]] = {
    "Image.read_count": temporary,
    "Matrix.read_count": lambda: mpscnn.Matrix.temporary(commands(), 3, 5),
}
"""Owners of properties that others have not."""

SOURCES = {"DataSource", "NormalizationDataSource", "PaddingPolicy"}
# Nothing that pybind11 says about C++, signatures or casts.
RAW = re.compile(r"incompatible|pybind|C\+\+|argument types are|Invoked with|mpscnn\._core|std::|[Uu]nable to cast")
DEFAULT_MEMBERS = {"__copy__", "__doc__", "__eq__", "__hash__", "__init__", "__module__", "__reduce__", "__repr__"}


def own_members(kind: type) -> Iterator[tuple[str, Any]]:
    """What a class offers: of Kernel what its base in the extension has, too."""
    spaces = [vars(kind), vars(_core.Kernel)] if kind is mpscnn.Kernel else [vars(kind)]
    for space in spaces:
        for name, value in space.items():
            is_dunder = name.startswith("__")
            if name in DEFAULT_MEMBERS or (name.startswith("_") and not is_dunder) or name == "__weakref__":
                continue
            yield name, value


def public_callables() -> set[str]:
    """Functions, classes, methods and properties that can be set."""
    names = set(mpscnn.__all__) - {
        *SOURCES,
        *BASES,
        *KERNELS,
        *EXCEPTIONS,
        *CANNOT_BE_MADE,
    }  # a data source has no arguments
    found = {name for name in names if callable(getattr(mpscnn, name))}
    found |= {f"{name}.{member}" for name, module in MODULES.items() for member in module.__all__}
    of_kernels = {f"Kernel.{spec['name']}" for spec in _core.common_params()}
    for name in set(CLASSES) - set(KERNELS) - BASES - EXCEPTIONS:
        for member, value in own_members(CLASSES[name]):
            if getattr(value, "__isabstractmethod__", False):
                continue
            if inspect.isfunction(value) or is_bound_by_pybind11(value) or is_settable(value):
                found.add(f"{name}.{member}")
    return found - of_kernels


def is_bound_by_pybind11(value: Any) -> bool:
    return isinstance(value, staticmethod) or type(value).__name__ == "instancemethod"


def is_settable(value: Any) -> bool:
    return isinstance(value, property) and value.fset is not None


def test_the_table_has_every_public_callable() -> None:
    assert public_callables() == set(RIGHT)


def attribute_of(name: str) -> Any:
    owner, _, member = name.partition(".")
    return getattr((CLASSES | MODULES)[owner] if member else mpscnn, member or owner)


def is_pythons(value: Any) -> bool:
    """Written in Python, which itself counts its arguments."""
    return inspect.isfunction(value.__init__ if inspect.isclass(value) else value)


PYTHONS_OWN = {name for name in RIGHT if is_pythons(attribute_of(name))}


def call(name: str, arguments: dict[str, Any], *more: Any, made: Any = None) -> Any:
    """Calls it by keywords, of `made` or a new object; `more` follows what can only be given by position."""
    owner, _, member = name.partition(".")
    if not member:
        return getattr(mpscnn, owner)(*more, **arguments)
    if owner in MODULES:
        return getattr(MODULES[owner], member)(*more, **arguments)
    if name in BY_POSITION:
        first, sources = BY_POSITION[name]
        more = (*(arguments[one] for one in first), *sources(), *more)
        arguments = {one: value for one, value in arguments.items() if one not in first}
    kind = CLASSES[owner]
    attribute = inspect.getattr_static(kind, member)
    if isinstance(attribute, staticmethod):
        return getattr(kind, member)(*more, **arguments)
    made = TEMPORARIES.get(name, OWNERS.get(owner))() if made is None else made
    if isinstance(attribute, property):
        (value,) = arguments.values()
        return setattr(made, member, value)
    if member == "__exit__":
        made.__enter__()
    result = getattr(made, member)(*more, **arguments)
    if member == "__enter__":
        made.__exit__(None, None, None)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def refused(name: str, arguments: dict[str, Any], *more: Any) -> str:
    """The sentence of the TypeError."""
    with pytest.raises(TypeError) as caught:
        call(name, arguments, *more)
    text = str(caught.value)
    assert not RAW.search(text), text
    assert re.fullmatch(r"\S.*\.", text, re.DOTALL), f"{text!r} is no sentence"
    return text


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
    else:
        call(name, RIGHT[name]())


def signature_of(name: str) -> tuple[list[str], set[str]]:
    """Names of the arguments, and those that may be left out."""
    owner, _, member = name.partition(".")
    value = attribute_of(name)
    if isinstance(value, property):
        return [member], set()
    if is_pythons(value):
        # What *arrays and **named stand for is in the table; what *sources are, in BY_POSITION and SENTENCES.
        open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        signature = inspect.signature(value).parameters.values()
        parameters = [one for one in signature if one.name != "self" and one.kind not in open_ended]
        return [one.name for one in parameters], {one.name for one in parameters if one.default is not one.empty}
    is_class = inspect.isclass(value)
    parsed = runtime_arguments(value.__init__ if is_class else value, "__init__" if is_class else member or owner)
    by_position = [one.arg for one in [*parsed.posonlyargs, *parsed.args]]
    by_keyword = [one.arg for one in parsed.kwonlyargs]
    optional = {*by_position[len(by_position) - len(parsed.defaults) :], *by_keyword}
    return [one for one in [*by_position, *by_keyword] if one != "self"], optional


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
    if not name.endswith("__dlpack__"):  # hands its keywords on
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
        right["groups"] = 2  # optional for data sources, which have their own
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


# ------------------------------------------------------------------------------------------------- sentences


NO_ARRAY = "is not an array: it has neither DLPack, __array_interface__ nor the buffer protocol."
SENTENCES: list[tuple[Callable[[], Any], str]] = [
    (lambda: mpscnn.CommandBuffer(label=3), "label (int) is not a str."),
    (lambda: mpscnn.CommandBuffer(label=b"one"), "label (bytes) is not a str."),
    (lambda: setattr(commands(), "label", 3), "label (int) is not a str."),
    (lambda: setattr(image(), "label", 3), "label (int) is not a str."),
    (mpscnn.GradientState, "GradientState: a forward encode makes it (with_state=True)."),
    (
        lambda: mpscnn.NeuronReLU()(random(X), with_state=1),
        "NeuronReLU: with_state (int) is not True, False or a GradientState.",
    ),
    (lambda: mpscnn.CommandBuffer("gpu"), "device (str) is not a Device."),
    (lambda: mpscnn.Convolution(random(W), device="gpu"), "device (str) is not a Device."),
    (lambda: image().channels(0.5, 4), "first (float) is not an int."),
    (lambda: image().channels(True, 4), "first (bool) is not an int."),
    (lambda: image().numpy(None), "layout (NoneType) is not a str."),
    (lambda: image().numpy(copy="yes"), "copy (str) is not True or False."),
    (lambda: image().numpy(copy=1), "copy (int) is not True or False."),
    (lambda: mpscnn.NeuronReLU().encode(None, image()), "command_buffer (NoneType) is not a CommandBuffer."),
    (lambda: mpscnn.NeuronReLU().encode(commands(), random(X)), "x (ndarray) is not an Image."),
    (lambda: mpscnn.NeuronReLU().encode(commands(), None), "x (NoneType) is not an Image."),
    (lambda: mpscnn.NeuronReLU().encode(commands(), image(), temporary=1), "temporary (int) is not True or False."),
    (lambda: mpscnn.Image.channels(3, 0, 4), "self (int) is not an Image."),
    (lambda: mpscnn.Image.shape.fget(3), "self (int) is not an Image."),
    (lambda: mpscnn.Image.channels(), "Image.channels() misses the argument 'self'."),
    (lambda: mpscnn.Device(1), "Device() takes at most 0 positional arguments (1 given)."),
    (lambda: mpscnn.ConvolutionDescriptor(3, "4", 8), "in_channels (str) is not an int."),
    (lambda: mpscnn.ConvolutionDescriptor(3, 4, 8, depthwise=1), "depthwise (int) is not True or False."),
    (lambda: mpscnn.ConvolutionDescriptor(3, 4, 8, batch_norm=1), "batch_norm (int) is not a BatchNorm."),
    (lambda: mpscnn.BatchNorm(0, [1], [1], [0]), "mean (int) is not a sequence of numbers."),
    (lambda: mpscnn.BatchNorm([0], ["1"], [1], [0]), "variance (list) is not a sequence of numbers."),
    (lambda: mpscnn.BatchNorm([0], [1], "1", [0]), "gamma (str) is not a sequence of numbers."),
    (lambda: mpscnn.BatchNorm([0], [1], [1], np.array(["1"])), "beta (ndarray) is not a sequence of numbers."),
    (lambda: mpscnn.BatchNorm([0], [1], [1], [0], "small"), "epsilon (str) is not a number."),
    (lambda: mpscnn.Image(X, "float"[:4]), "dtype ('floa') is not a dtype."),
    (lambda: mpscnn.empty(3, "float4"), "dtype ('float4') is not a dtype."),
    (lambda: mpscnn.reorder(random(W), threads="all"), "threads (str) is not an int."),
    (lambda: mpscnn.reorder(random(W), threads=1.5), "threads (float) is not an int."),
    (lambda: mpscnn.reorder(random(W), 3), "source (int) is not a str."),
    (lambda: mpscnn.kernel(3), "name (int) is not a str."),
    (lambda: mpscnn.map_weights(3, (4,)), "path (int) is not a path."),
    (lambda: mpscnn.map_weights("w.bin", 4), "shape (4) is not a tuple of int."),
    (lambda: mpscnn.map_weights("w.bin", (4.5,)), "shape ((4.5,)) is not a tuple of int."),
    (lambda: mpscnn.map_weights("w.bin", (4,), "f32"), "dtype ('f32') is not a dtype."),
    (lambda: mpscnn.NeuronDescriptor(1), "type (int) is not a str."),
    (lambda: mpscnn.NeuronDescriptor("relu", "steep"), "a (str) is not a number."),
    (lambda: mpscnn.NeuronDescriptor("prelu", data=0.5), "data (float) is not a sequence of numbers."),
    (lambda: mpscnn.Matrix(1.5, 2), "rows (float) is not an int."),
    (lambda: mpscnn.ImageCopyToMatrix()(random(X)), "x (ndarray) is not an Image."),
    (lambda: mpscnn.MatrixCopyToImage()(image(), image()), "x (Image) is not a Matrix."),
    (lambda: mpscnn.MatrixCopyToImage()(mpscnn.Matrix(1, 140), None), "out (NoneType) is not an Image."),
    (lambda: mpscnn.ImageConversion(source_alpha=1), "source_alpha (int) is not a str."),
    (lambda: mpscnn.ImageConversion(background_color="red"), "background_color ('red') is not a sequence of numbers."),
    (
        lambda: mpscnn.ImageConversion(background_color=(1, 2, "3")),
        "background_color ((1, 2, '3')) is not a sequence of numbers.",
    ),
    (lambda: mpscnn.ImageConversion()(image(), random(X)), "ImageConversion: x is an Image; out is not."),
    (lambda: graph().input("z", height=True), "height (bool) is not an int."),
    (lambda: graph().input("z", channels=4.0), "channels (float) is not an int."),
    (lambda: graph().add(3), "kernel (int) is not a kernel's name or its class in mpscnn."),
    (lambda: graph().add(mpscnn.Kernel), "kernel (pybind11_type) is not a kernel's name or its class in mpscnn."),
    (lambda: graph().add("NeuronReLU", "x"), "NeuronReLU: source (str) is not a Value of the graph."),
    (lambda: graph().add("Add", Value("x")), "Add: the number of sources (1) is not 2 (a, b)."),
    (
        lambda: graph().add("NeuronReLU", Value("x"), slope=2),
        "NeuronReLU: got an unexpected keyword argument 'slope'.",
    ),
    (lambda: graph().concatenate(3), "Concatenate: source (int) is not a Value of the graph."),
    (lambda: graph().concatenate(Value("x"), 3), "Concatenate: source (int) is not a Value of the graph."),
    (lambda: graph().output("x"), "output: value (str) is not a Value of the graph."),
    (lambda: graph().output(Value("x"), shape="140"), "shape (str) is not a tuple of int."),
    (lambda: graph().output(Value("x"), shape=(140.0,)), "shape[0] (float) is not an int."),
    (lambda: mpscnn.Network("model.onnx"), "graph (str) is not a Graph."),
    (lambda: mpscnn.Network(graph(), dtype="double"), "dtype (float64) is not float32 or float16."),
    (lambda: mpscnn.Network(graph(), dtype="floa"), "dtype ('floa') is not float32 or float16."),
    (lambda: mpscnn.Network(graph(), dtype=16), "dtype (int) is not float32 or float16."),
    (lambda: mpscnn.Network(graph(), optimize=1), "optimize (int) is not True or False."),
    (
        lambda: mpscnn.Network(graph(), mean="0.5f"),
        "mean (str) is not a number, a sequence of numbers or a dict of them.",
    ),
    (lambda: mpscnn.Network(graph())(3), f"x (int) {NO_ARRAY}"),
    (lambda: mpscnn.Network(graph())(None), f"x (NoneType) {NO_ARRAY}"),
    (lambda: mpscnn.Network(graph())(random(X), out=3), f"out (int) {NO_ARRAY}"),
    (lambda: mpscnn.Network(graph())(random(X), out=[3]), f"out (int) {NO_ARRAY}"),
    (lambda: mpscnn.Network(graph()).encode(commands(), random(X)), "x (ndarray) is not an Image."),
    (lambda: mpscnn.Network(graph()).encode(commands(), image(), out=random(X)), "out (ndarray) is not an Image."),
    (lambda: mpscnn.Network(graph()).encode(commands(), image(), out=[3]), "out[0] (int) is not an Image."),
    (
        lambda: mpscnn.Network(graph()).encode(commands(), image(), out=[None] * 2),
        "the number of images in out (2) is not 1.",
    ),
    (lambda: mpscnn.Network(graph()).encode(None, image()), "command_buffer (NoneType) is not a CommandBuffer."),
    (lambda: mpscnn.Network(graph()).stream(3), "batches (int) is not iterable."),
    (lambda: mpscnn.Network(graph()).stream([], in_flight=1.5), "in_flight (float) is not an int."),
    (lambda: mpscnn.Network(graph()).stream([], progress=1), "progress (int) is not a bool, a callable or None."),
    (
        lambda: mpscnn.load(3),
        "model (int) is no path, module, exported program, ONNX model, mapping of arrays or Graph.",
    ),
    (lambda: mpscnn.load(graph(), options={"epsilon": 1e-3}), "options was given; graphs take none."),
    (lambda: mpscnn.load(graph(), options=3), "options (int) is not a dict."),
    (lambda: mpscnn.load(graph(), architecture="resnet18"), "architecture was given; graphs take none."),
    (lambda: mpscnn.load(graph(), input_shapes="x"), "input_shapes (str) is not a tuple of int or a dict of them."),
    (lambda: mpscnn.load(graph(), input_shapes={"x": 3}), 'input_shapes["x"] (int) is not a tuple of int.'),
    (lambda: mpscnn.load(graph(), input_shapes=(1, 3.0)), "input_shapes[1] (float) is not an int."),
    (lambda: mpscnn.memory.peak("gpu"), "device (str) is not a Device."),
    (lambda: mpscnn.profile(per_kernel=1), "per_kernel (int) is not True or False."),
]


@pytest.mark.parametrize(("wrong", "sentence"), SENTENCES, ids=[sentence for _, sentence in SENTENCES])
def test_sentence(wrong: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(TypeError) as caught:
        wrong()
    assert str(caught.value) == sentence


VALUES: list[tuple[Callable[[], Any], str]] = [
    (lambda: image().channels(2**70, 4), r"first \(1180591620717411303424\) is beyond 64 bits"),
    (lambda: setattr(temporary(), "read_count", 2**70), r"read_count \(1180591620717411303424\) is beyond 64 bits"),
    (lambda: mpscnn.ConvolutionDescriptor(2**70, 4, 8), r"kernel_size.* 1180591620717411303424 is beyond 64 bits"),
    (lambda: mpscnn.ConvolutionDescriptor(3, 2**70, 8), r"in_channels \(1180591620717411303424\) is beyond 64 bits"),
    (lambda: mpscnn.CommandBuffer(label="\ud800"), r"label \('\\ud800'\) is not valid Unicode"),
    (lambda: mpscnn.NeuronReLU(label="\ud800"), r"NeuronReLU: label \('\\ud800'\) is not valid Unicode"),
    (lambda: mpscnn.BatchNorm([0], [1], [1], [0], 10**400), r"epsilon \(10+\) is no float"),
    (lambda: mpscnn.BatchNorm(random((2, 3)), [1], [1], [0]), r"mean\.ndim \(2\) is not 1"),
    (
        lambda: mpscnn.reorder(random(W), threads=2**70),
        r"threads \(1180591620717411303424\) is not between 0 and 65536",
    ),
    (lambda: graph().input("z", width=0), r"width \(0\) is less than the minimum \(1\)"),
    (lambda: graph().input("x"), r'name \("x"\) is taken by another input or node of the graph'),
    (lambda: graph().input("z", layout="CHW"), r'layout \("CHW"\) is not "N" followed by letters of "HWC"'),
    (lambda: graph().add("NeuronReLU", Value("z")), 'NeuronReLU: the source "z" is not of this graph'),
    (lambda: graph().concatenate(Value("z")), 'Concatenate: the source "z" is not of this graph'),
    (lambda: graph().concatenate(), "concatenate: there are no sources"),
    (lambda: graph().output(Value("z")), 'output: the value "z" is not of this graph'),
    (lambda: graph().output(Value("x"), "y"), r'name \("y"\) is taken by another output of the graph'),
    (lambda: graph().output(Value("x"), ""), "name is empty"),
    (lambda: graph().output(Value("x"), shape=(0,)), r"shape\[0\] \(0\) is less than the minimum \(1\)"),
    (lambda: mpscnn.Network(mpscnn.Graph()), "graph has no outputs"),
    (lambda: mpscnn.Network(graph()).stream([], in_flight=0), r"in_flight \(0\) is less than the minimum \(1\)"),
    (lambda: mpscnn.load(graph(), input_shapes=(1, 0)), r"input_shapes\[1\] \(0\) is less than the minimum \(1\)"),
    (lambda: mpscnn.reorder(random(W), "\ud800"), r"source \('\\ud800'\) is not valid Unicode"),
]


@pytest.mark.parametrize(("wrong", "match"), VALUES, ids=[match for _, match in VALUES])
def test_a_value_that_no_number_or_text_can_hold(wrong: Callable[[], Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        wrong()


def test_none_where_it_means_none() -> None:
    assert mpscnn.CommandBuffer(None, None).label is None
    assert mpscnn.CommandBuffer(device=None, label=None).device == mpscnn.Device()
    for labelled in (commands(), image(), mpscnn.NeuronReLU(label="one")):
        labelled.label = "two"
        labelled.label = None
        assert labelled.label is None
    assert mpscnn.Image(X, None, device=None).dtype == np.float32
    assert mpscnn.Image.temporary(commands(), X, None).dtype == np.float32
    assert mpscnn.Buffer(8, device=None).numpy(None, None).dtype == np.uint8
    assert mpscnn.empty(3, None).dtype == np.float32
    assert mpscnn.ConvolutionDescriptor(3, 4, 8, activation=None, batch_norm=None).groups == 1
    assert mpscnn.reorder(random(W), out=None, feature_map=None, threads=None).shape == (8, 3, 3, 4)
    assert image().numpy(out=None, copy=None).shape == X


def test_scalars_of_numpy_are_arguments() -> None:
    assert mpscnn.Image((1, 2, 3, 8)).channels(np.int64(4), np.uint8(4)).shape == (1, 2, 3, 4)
    assert image().numpy(copy=np.True_).base is not image()
    assert mpscnn.ConvolutionDescriptor(np.int32(3), np.int64(4), np.int16(4), depthwise=np.bool_(True)).depthwise
    mpscnn.BatchNorm([np.float32(0)], np.ones(1, np.int8), (value for value in (1,)), range(1), np.float64(1e-3))


def test_errors_of_what_a_function_calls_stay_what_they_are() -> None:
    """A TypeError with pybind11's words that comes from elsewhere is nobody's argument here."""
    words = "reload(): incompatible function arguments. The following argument types are supported:"

    class Foreign(Source):
        def load(self) -> bool:
            raise TypeError(words)

    with pytest.raises(TypeError) as caught:
        mpscnn.Convolution(Foreign(mpscnn.ConvolutionDescriptor(3, 4, 8), random((8, 3, 3, 4))))
    assert str(caught.value) == words
    source = Source(mpscnn.ConvolutionDescriptor(3, 4, 8), random((8, 3, 3, 4)))
    kernel = mpscnn.Convolution(source)
    source.load = Foreign.load.__get__(source)  # type: ignore[method-assign]
    with pytest.raises(TypeError) as caught:
        kernel.reload()
    assert str(caught.value) == words


@pytest.mark.parametrize(
    "interface",
    [
        {"shape": "12", "typestr": "<f4", "data": (0, False), "version": 3},
        {"shape": (1,), "typestr": "<f4", "data": ("address", False), "version": 3},
        {"shape": (1,), "data": (0, False), "version": 3},
    ],
    ids=["shape", "data", "typestr"],
)
def test_an_array_interface_that_is_none(interface: dict[str, Any]) -> None:
    class Malformed:
        __array_interface__ = interface

    with pytest.raises(TypeError, match=r"x\.__array_interface__ of Malformed is not version 3 of NumPy's"):
        mpscnn.NeuronReLU()(Malformed())


# ------------------------------------------------------------------------------------------------- half-made objects


def half_made(kind: type) -> Any:
    """As a debugger sees it whose program has failed in __init__: there is nothing behind it."""

    class Half(kind):  # type: ignore[misc]
        pass

    return Half.__new__(Half)


# Constructors, what prints, what gives back `self` unseen, and pybind11's own.
UNAFFECTED = {"__init__", "__repr__", "__enter__", "_pybind11_conduit_v1_"}


HALF_MADE = set(CLASSES) - set(KERNELS) - SOURCES - EXCEPTIONS | {"NeuronReLU", "Convolution"}


@pytest.mark.parametrize("name", sorted(HALF_MADE))
def test_objects_that_were_not_made(name: str) -> None:
    """Reading them would read memory that is nobody's."""
    half = half_made(CLASSES[name])
    members = {key: value for base in type(half).__mro__ for key, value in vars(base).items()}
    readers: dict[str, Callable[[], Any]] = {}
    for member, value in members.items():
        if isinstance(value, property):
            readers[member] = lambda member=member: getattr(half, member)
        elif type(value).__name__ == "instancemethod" and member not in UNAFFECTED:
            readers[member] = getattr(half, member)
        elif f"{name}.{member}" in PYTHONS_OWN:
            readers[member] = lambda full=f"{name}.{member}": call(full, RIGHT[full](), made=half)
    assert len(readers) >= 2
    for read in readers.values():
        with pytest.raises(TypeError, match=r"(self|network) \(Half\) was not made: its __init__ has not run\."):
            read()
    shown = "object" if name in {"Kernel", *BASES} else "not made>"
    assert shown in repr(half)


def test_half_made_arguments() -> None:
    match = r"(x|out|command_buffer|device|activation|batch_norm|weight) \(Half\) was not made"
    half_image, half_relu = half_made(mpscnn.Image), half_made(mpscnn.NeuronReLU)
    relu = mpscnn.NeuronReLU()
    wrong: list[Callable[[], Any]] = [
        lambda: relu(half_image),
        lambda: relu(random(X), out=half_image),
        lambda: relu.encode(half_made(mpscnn.CommandBuffer), image()),
        lambda: relu.encode(commands(), half_image),
        lambda: mpscnn.CommandBuffer(half_made(mpscnn.Device)),
        lambda: mpscnn.NeuronReLU(device=half_made(mpscnn.Device)),
        lambda: mpscnn.Convolution(random(W), activation=half_relu),
        lambda: mpscnn.Convolution(random(W), activation=half_made(mpscnn.NeuronDescriptor)),
        lambda: mpscnn.ConvolutionDescriptor(3, 4, 8, activation=half_relu),
        lambda: mpscnn.ConvolutionDescriptor(3, 4, 8, batch_norm=half_made(mpscnn.BatchNorm)),
        lambda: mpscnn.Convolution(half_made(_core._DataSource)),
        lambda: mpscnn.Network(graph()).encode(commands(), half_image),
        lambda: mpscnn.Network(graph()).encode(commands(), image(), out=half_image),
        lambda: mpscnn.Network(graph(), device=half_made(mpscnn.Device)),
    ]
    for call_it in wrong:
        with pytest.raises(TypeError, match=match):
            call_it()
    with pytest.raises(TypeError, match=r"data source: descriptor \(Half\) was not made"):
        mpscnn.Convolution(Source(half_made(mpscnn.ConvolutionDescriptor), random((8, 3, 3, 4))))
    # Of an array only its own protocols are asked.
    with pytest.raises(TypeError, match=r"self \(Half\) was not made"):
        mpscnn.Network(graph())(half_image)
    with pytest.raises(TypeError, match=r"network \(Half\) was not made"):
        Stream(half_made(mpscnn.Network), [])
    for look in (memoryview, np.asarray, bytes, len):
        with pytest.raises(TypeError, match=r"self \(Half\) was not made"):
            look(half_made(mpscnn.Buffer))
    for look in (memoryview, np.asarray, bytes):
        with pytest.raises(TypeError, match=r"self \(Half\) was not made"):
            look(half_made(mpscnn.Matrix))


def test_a_subclass_whose_init_fails_can_be_printed() -> None:
    class Failing(mpscnn.Image):
        def __init__(self) -> None:
            raise ValueError(repr(self))

    with pytest.raises(ValueError, match=r"<mpscnn\.Image, not made>"):
        Failing()
