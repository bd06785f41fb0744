# SPDX-License-Identifier: Apache-2.0
"""Backend of torch.compile: the parts of a module that have kernels run as networks, the others stay with PyTorch."""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.fx.passes.split_module import split_module
from torch.utils import _pytree as pytree

from ..errors import ImportError, UnsupportedOperatorError
from . import torch_export, torch_module

# Max splits of a part into smaller ones: an operator may hide others behind it.
SPLITS = 4

_OPTIONS = {"fallback", "dtype", "allow_reduced_precision", "device"}


def backend(
    graph_module: fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile a graph of TorchDynamo, for ``torch.compile(module, backend="mpscnn")``.

    The graph is imported at its first call with inputs of these shapes. Nodes that have no kernel are computed by
    PyTorch, between networks for the others, and a RuntimeWarning lists them with the reasons. Weights that have
    changed since then are read again. There are no gradients: where they are needed, PyTorch computes the graph, with a
    RuntimeWarning.

    Parameters
    ----------
    graph_module : torch.fx.GraphModule
    example_inputs : list of torch.Tensor
    options : dict, optional
        torch.compile's ``options``. "fallback" (default True): whether PyTorch computes what has no kernel; False
        raises instead. "dtype", "allow_reduced_precision", "device": those of `Network`.

    Returns
    -------
    callable
        Takes the graph's inputs and returns its results.

    Raises
    ------
    TypeError
        "options: size is none of allow_reduced_precision, device, dtype, fallback."
    UnsupportedOperatorError
        In the first call, with ``options={"fallback": False}``: some nodes have no kernel.
    """
    given = dict(options or {})
    for name in given:
        if name not in _OPTIONS:
            raise TypeError(f"options: {name} is none of {', '.join(sorted(_OPTIONS))}.")
    fallback = given.pop("fallback", True)
    if not isinstance(fallback, bool):
        raise TypeError(f'options: "fallback" ({type(fallback).__name__}) is not a bool.')
    places = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    weights = {i for i, (node, value) in enumerate(zip(places, example_inputs, strict=True)) if _is_weight(node, value)}
    return _Part(graph_module, weights, given, fallback, SPLITS)


def _is_weight(node: fx.Node, value: Any) -> bool:
    """Return whether an input of the graph is a parameter or buffer of the module."""
    if isinstance(value, nn.Parameter):
        return True
    source = getattr(node.meta.get("grapharg"), "source", None)
    name = source.name if source is not None else ""
    return bool(re.search(r"\._(parameters|buffers)\[|\.(get_)?buffer\(", name if isinstance(name, str) else name()))


def _is_complex(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_complex()


class _Bound(nn.Module):
    """A graph whose weights are its own, and whose inputs are the others."""

    def __init__(self, module: nn.Module, arguments: Sequence[Any], inputs: Sequence[int]) -> None:
        super().__init__()
        self.module, self.inputs = module, tuple(inputs)
        self.arguments: list[Any] = list(arguments)
        for i, value in enumerate(arguments):
            if i not in self.inputs and isinstance(value, torch.Tensor):
                self.register_buffer(f"weight_{i}", value.detach())

    def forward(self, *inputs: torch.Tensor) -> Any:
        arguments = [getattr(self, f"weight_{i}", value) for i, value in enumerate(self.arguments)]
        for i, value in zip(self.inputs, inputs, strict=True):
            arguments[i] = value
        return self.module(*arguments)


class _Part(nn.Module):
    """A graph that is imported when it is called."""

    def __init__(
        self, module: nn.Module, weights: set[int], options: dict[str, Any], fallback: bool, splits: int
    ) -> None:
        super().__init__()
        self.module, self.weights, self.options, self.fallback, self.splits = (
            *(module, weights, options, fallback, splits),
        )
        self.made: dict[Any, tuple[Any, Callable[..., Any]]] = {}

    def forward(self, *arguments: Any) -> Any:
        tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
        if torch.is_grad_enabled() and any(value.requires_grad for value in tensors):
            return self._with_gradients(arguments)
        key = tuple(
            (tuple(value.shape), value.dtype, value.device) if isinstance(value, torch.Tensor) else value
            for value in arguments
        )
        versions = [(arguments[i].data_ptr(), arguments[i]._version) for i in sorted(self.weights)]
        made = self.made.get(key)
        if made is None or made[0] != versions:
            made = self.made[key] = versions, self._make(arguments)
        return made[1](*arguments)

    def _with_gradients(self, arguments: Sequence[Any]) -> Any:
        text = "PyTorch computes a graph whose gradients are needed: call it within torch.no_grad()"
        if not self.fallback:
            raise RuntimeError(f'{text}, or leave out options={{"fallback": False}}.')
        warnings.warn(f"mpscnn: {text}.", RuntimeWarning, stacklevel=2)
        return self.module(*arguments)

    def _make(self, arguments: Sequence[Any]) -> Callable[..., Any]:
        """Return a function of all arguments: a network, parts of one, or the module itself."""
        inputs = [i for i, value in enumerate(arguments) if isinstance(value, torch.Tensor) and i not in self.weights]
        given = tuple(arguments[i].detach() for i in inputs)
        bound = _Bound(self.module, arguments, inputs).eval()
        try:
            return _network(bound, given, inputs, self.options)
        except ImportError as error:
            if not self.fallback:
                raise
            refused = error
        run = self._parts(bound, given, inputs) if isinstance(refused, UnsupportedOperatorError) else None
        if run is None:
            warnings.warn(f"mpscnn: PyTorch computes this graph. {refused}", RuntimeWarning, stacklevel=2)
            return self.module
        warnings.warn(f"mpscnn: PyTorch computes the nodes without a kernel. {refused}", RuntimeWarning, stacklevel=2)
        return run

    def _parts(
        self, bound: nn.Module, given: tuple[torch.Tensor, ...], inputs: Sequence[int]
    ) -> Callable[..., Any] | None:
        """Return a function of networks and PyTorch's operators in turn; None if nothing is gained."""
        if self.splits == 0:
            return None
        try:
            with torch_export.quiet(), torch.no_grad():
                program = torch.export.export(bound, given).run_decompositions({})
                refused = torch_export.refused(program)
                whole = program.module()
        except Exception:
            return None
        for node in [node for node in whole.graph.nodes if node.op == "call_module"]:  # checks of the inputs' shapes
            whole.graph.erase_node(node)
        whole.recompile()
        nodes = [node for node in whole.graph.nodes if node.op == "call_function"]
        kinds: dict[str, bool] = {}
        for node in nodes:
            first = node.args[0] if node.args and node.target is operator.getitem else None
            kind = node.name not in refused and not any(map(_is_complex, node.all_input_nodes))
            kinds[node.name] = kinds.get(first.name, kind) if isinstance(first, fx.Node) else kind
        if all(kinds.values()) or not any(kinds.values()):
            return None
        numbers: dict[str, int] = {}
        number, before = 0, None
        for node in nodes:
            number += before is not None and kinds[node.name] != before
            before = kinds[node.name]
            numbers[node.name] = number
        split = split_module(whole, whole, lambda node: numbers[node.name])
        has_kernels = {numbers[node.name]: kinds[node.name] for node in nodes}
        for node in split.graph.nodes:
            if node.op != "call_module" or not has_kernels[int(str(node.target).removeprefix("submod_"))]:
                continue
            weights = {i for i, value in enumerate(node.args) if isinstance(value, fx.Node) and value.op == "get_attr"}
            child = split.get_submodule(str(node.target))
            setattr(split, str(node.target), _Part(child, weights, self.options, True, self.splits - 1))

        def run(*arguments: Any) -> Any:
            found = split(*(arguments[i] for i in inputs))
            leaves = list(found) if isinstance(found, (tuple, list)) else [found]
            return pytree.tree_unflatten(leaves, program.call_spec.out_spec)

        return run


def _network(
    module: nn.Module, given: tuple[torch.Tensor, ...], inputs: Sequence[int], options: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return a function of all arguments that runs the module as a network."""
    from ..network import Network

    graph = torch_module.read(
        module, example_inputs=given, free_size=False, name="torch.compile's graph", one_batch=True
    )
    with torch.no_grad():
        example = module(*given)
    leaves = example if isinstance(example, (tuple, list)) else (example,)
    if len(graph.outputs) != len(leaves):
        raise UnsupportedOperatorError("torch.compile's graph", [("output", "output", "a result that is no tensor")])
    dtypes = [leaf.dtype for leaf in leaves]
    network = Network(graph, **options)

    def run(*arguments: Any) -> Any:
        with torch.no_grad():
            found = network(*(arguments[i].detach().contiguous() for i in inputs))
        results = found if isinstance(found, tuple) else (found,)
        tensors = [torch.from_numpy(one).to(dtype) for one, dtype in zip(results, dtypes, strict=True)]
        return type(example)(tensors) if isinstance(example, (tuple, list)) else tensors[0]

    return run
