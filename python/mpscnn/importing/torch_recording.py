# SPDX-License-Identifier: Apache-2.0
"""Programs of modules that read neither sizes nor values, without torch.export, in a tenth of its time.

torch.export traces any Python code, with symbols, constants and regions. Most modules call operators with their own
parameters and with results of other operators alone; of these, the calls are the program. They are recorded in front
of PyTorch's decompositions, as torch.export does, while a copy of the module on the device "meta" runs. Everything else
raises `LeftError`: torch.export traces the module then.
"""

from __future__ import annotations

import contextlib
import inspect
import operator
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.export import graph_signature as signatures
from torch.export.exported_program import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
from torch.utils import _pytree as pytree

from . import torch_replay, torch_results

# Functions that tell the device of a tensor.
OF_DEVICE = {torch.Tensor.device.__get__, torch.Tensor.is_cuda.__get__}  # type: ignore[attr-defined]


class LeftError(BaseException):
    """The module does something that is left to torch.export. No Exception: code of modules does not handle it."""


def program(
    checked: torch_replay.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    inside: Callable[[torch.nn.Module], contextlib.AbstractContextManager[Any]],
) -> ExportedProgram:
    """Return the program of a module for arguments of these shapes.

    Its tensors without values are on the device "meta", and parameters that are not used are no inputs.

    Parameters
    ----------
    checked : torch_replay.Module
    args, kwargs
        Arguments of forward().
    inside : callable
        Returns a context in which the copy is called: eval mode, and attributes that are restored.

    Raises
    ------
    LeftError
    """
    copy, tensors = checked.without_values()
    names = _input_names(checked.module, args, kwargs)
    made = pytree.tree_map(
        lambda one: torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device="meta"), (args, kwargs)
    )
    inputs = pytree.tree_leaves(made)
    recorder = _Recorder(_owners(checked.module, tensors), copy)
    for name, one in zip(names, inputs, strict=True):
        recorder.add_input(name, one)
    with torch.no_grad(), inside(copy), enable_python_dispatcher(), recorder:
        result = copy(*made[0], **made[1])
    return recorder.program(made, result)


def _input_names(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """Return the names that torch.export gives to the arguments."""
    if not all(isinstance(one, torch.Tensor) for one in (*args, *kwargs.values())):
        raise LeftError("containers")
    parameters = inspect.signature(module.forward).parameters
    bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    if any(
        parameters[name].kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD) for name in bound
    ):
        raise LeftError("any number of arguments")
    names = [name.lower() for name in (*list(bound)[: len(args)], *kwargs)]
    if len(set(names)) < len(names):
        raise LeftError("names that differ in their case")
    return names


@dataclass(frozen=True)
class _Owner:
    """A tensor of the module, and where it has it."""

    kind: signatures.InputKind
    name: str
    value: torch.Tensor
    is_in_state: bool


def _owners(module: torch.nn.Module, tensors: dict[int, torch.Tensor]) -> dict[int, _Owner]:
    """Return the owners of the tensors of a copy of a module, by identity."""
    found: dict[int, _Owner] = {}
    for path, part in module.named_modules(remove_duplicate=False):
        for kind, attributes in (
            (signatures.InputKind.PARAMETER, part._parameters),
            (signatures.InputKind.BUFFER, part._buffers),
            (signatures.InputKind.CONSTANT_TENSOR, vars(part)),
        ):
            for name, value in attributes.items():
                if isinstance(value, torch.Tensor) and id(value) in tensors:
                    is_in_state = attributes is not vars(part) and name not in part._non_persistent_buffers_set
                    owner = _Owner(kind, f"{path}.{name}" if path else name, value, is_in_state)
                    found[id(tensors[id(value)])] = owner
    return found


class _Recorder(ProxyTorchDispatchMode):  # type: ignore[no-untyped-call]
    """Appends the calls of operators to a graph.

    PyTorch takes its own class alone for modes in front of decompositions; this one has nothing else of it.
    """

    def __init__(self, owners: dict[int, _Owner], module: torch.nn.Module) -> None:
        super().__init__(None, "real", True)  # type: ignore[arg-type]
        self._owners = owners
        self._paths: dict[torch.nn.Module, str] = {}
        self._shared: set[torch.nn.Module] = set()  # parts that have several paths
        for path, part in module.named_modules(remove_duplicate=False):
            if self._paths.setdefault(part, path) != path:
                self._shared.add(part)
        self._inner: dict[torch.nn.Module, dict[torch.nn.Module, str]] = {}  # paths of parts from those that call them
        self._graph = torch.fx.Graph()
        self._nodes: dict[int, tuple[torch.fx.Node, torch.Tensor]] = {}  # of tensors, which are kept, by identity
        self._given: set[int] = set()  # memory of inputs and of the module's tensors
        self._likes: dict[int, torch.fx.Node] = {}  # by memory, which the tensors have that PyTorch returns
        self._results = torch_results.Results()
        self._inputs: list[signatures.InputSpec] = []
        self._specs: list[signatures.InputSpec] = []  # of the module's tensors
        self._state: dict[str, torch.Tensor] = {}
        self._constants: dict[str, torch.Tensor] = {}
        self._first: torch.fx.Node | None = None  # the first input

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # PyTorch would make a function for each call

    def add_input(self, name: str, tensor: torch.Tensor) -> None:
        """Add an input of the program."""
        node = self._placeholder(name, tensor)
        node.name = node.target = name  # without a suffix if it is that of a function of Python
        self._first = self._first or node
        kind = signatures.InputKind.USER_INPUT
        self._inputs.append(signatures.InputSpec(kind, signatures.TensorArgument(node.name), None))

    def _placeholder(self, name: str, tensor: torch.Tensor) -> torch.fx.Node:
        node = self._graph.placeholder(name)
        node.meta["val"] = tensor
        self._nodes[id(tensor)] = node, tensor
        self._given.add(tensor.untyped_storage()._cdata)
        return node

    def _other(self, tensor: torch.Tensor) -> torch.fx.Node:
        """Return the node of a tensor that was not met before."""
        like = self._likes.pop(tensor.untyped_storage()._cdata, None)
        if like is not None:
            self._nodes[id(tensor)] = like, tensor
            return like
        owner = self._owners.get(id(tensor))
        if owner is None:
            raise LeftError("a tensor that is neither a result nor an attribute of a module")
        with self._graph.inserting_before(self._first):
            node = self._placeholder(f"{owner.kind.name[0].lower()}_{owner.name.replace('.', '_')}", tensor)
        argument = signatures.TensorArgument(node.name)
        is_persistent = owner.is_in_state if owner.kind is signatures.InputKind.BUFFER else None
        self._specs.append(signatures.InputSpec(owner.kind, argument, owner.name, is_persistent))
        (self._state if owner.is_in_state else self._constants)[owner.name] = owner.value
        return node

    def _with_nodes(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            known = self._nodes.get(id(value))
            return self._other(value) if known is None else known[0]
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._with_nodes, value))
        return value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
            raise LeftError("a region")
        with torch._C.DisableTorchFunction():
            key = self._results.key(func, args, kwargs)
            if key is None:
                raise LeftError(str(func))
            nodes = self._with_nodes(args), {name: self._with_nodes(value) for name, value in kwargs.items()}
            if func._schema.is_mutable and args[0].untyped_storage()._cdata in self._given:
                raise LeftError("an input or a tensor of the module that is changed")
            if any(isinstance(one, torch.device) for one in (*args, *kwargs.values())):
                raise LeftError("a device")
            known = self._results.get(key)
            if known is None:
                self._results.note(key, func(*args, **kwargs), args, kwargs)
                known = self._results.get(key)
            if known is None:
                raise LeftError(str(func))
            node = self._graph.create_node(
                "call_function", func, *nodes, name=self._graph._target_to_str(func.overloadpacket.__name__)
            )
            self._label(node)
            return self._results_of(node, args, known)

    def _results_of(self, node: torch.fx.Node, args: Any, known: torch_results.Known) -> Any:
        if known.memory is torch_results.Memory.SAME:
            self._nodes[id(args[0])] = node, args[0]
            node.meta["val"] = args[0]
            return args[0]
        results = known.results(args[0])
        if known.kind is None:
            self._nodes[id(results[0])] = node, results[0]
            node.meta["val"] = results[0]
            if node.target in _LIKES:
                self._likes[results[0].untyped_storage()._cdata] = node
            return results[0]
        node.meta["val"] = known.kind(results)
        for place, one in enumerate(results):
            part = self._graph.create_node("call_function", operator.getitem, (node, place), {})
            part.meta["val"] = one
            self._nodes[id(one)] = part, one
        return known.kind(results)

    def _label(self, node: torch.fx.Node) -> None:
        """Note the module whose forward() calls the operator."""
        callers = _callers(sys._getframe(2))
        part = next(callers)
        kind = type(part)
        node.meta["nn_module_stack"] = {"": (self._path(part, callers), f"{kind.__module__}.{kind.__qualname__}")}

    def _path(self, part: torch.nn.Module, callers: Iterator[torch.nn.Module]) -> str:
        """Return the path of a part; of a shared one, that from its callers."""
        path = self._paths.get(part, "")
        caller = next(callers, None) if part in self._shared else None
        if caller is None:
            return path
        if caller not in self._inner:
            names = sorted(caller.named_modules(remove_duplicate=False), key=lambda one: -one[0].count("."))
            self._inner[caller] = {inner: name for name, inner in names}  # the last ones are the shortest
        name = self._inner[caller].get(part)
        return path if name is None else f"{self._path(caller, callers)}.{name}".lstrip(".")

    def program(self, given: Any, result: Any) -> ExportedProgram:
        """Return the program of the calls."""
        leaves, spec = pytree.tree_flatten(result)
        if not all(isinstance(one, torch.Tensor) for one in leaves):
            raise LeftError("a result that is no tensor")
        outputs = [self._with_nodes(one) for one in leaves]
        self._graph.output(tuple(outputs))
        of_outputs = [signatures.TensorArgument(node.name) for node in outputs]
        kind = signatures.OutputKind.USER_OUTPUT
        call = ModuleCallSignature(
            [one.arg for one in self._inputs], list(of_outputs), pytree.tree_structure(given), spec
        )
        return ExportedProgram(
            torch.nn.Module(),
            self._graph,
            signatures.ExportGraphSignature(
                self._specs + self._inputs, [signatures.OutputSpec(kind, one, None) for one in of_outputs]
            ),
            self._state,
            {},
            [ModuleCallEntry("", call)],
            constants={**self._constants},
            verifiers=[_verifier()],
        )


# PyTorch's functions return other tensors than these operators.
_LIKES = {getattr(torch.ops.aten, f"{name}_like").default for name in ("zeros", "ones", "full")}
_CALL = torch.nn.Module._call_impl.__code__


def _callers(frame: Any) -> Iterator[torch.nn.Module]:
    """Yield the modules that are running, the innermost first."""
    while frame is not None:
        if frame.f_code is _CALL:
            yield frame.f_locals["self"]
        frame = frame.f_back


def _verifier() -> Any:
    from torch._export.verifier import TrainingIRVerifier

    return TrainingIRVerifier
