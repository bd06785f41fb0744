# SPDX-License-Identifier: Apache-2.0
"""Import of a torch.nn.Module, by torch.export."""

from __future__ import annotations

import collections
import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from .. import _garbage, _sizes
from ..errors import InvalidModelError, UnsupportedOperatorError
from ..graph import Graph
from . import (
    time_limit,
    torch_caches,
    torch_data,
    torch_export,
    torch_independent,
    torch_memory,
    torch_numbers,
    torch_questions,
    torch_recording,
    torch_replay,
    torch_tracing,
    torch_values,
)
from .builder import FREE_KERNELS
from .torch_arguments import OF_BATCH

# Limit of the trace that leaves heights and widths free: this many seconds or, if that is longer, this many times the
# trace for one size. It usually takes twice as long as that one, on any machine; a pathological one, hundreds of times.
FREE_SECONDS = 10.0
FREE_RATIO = 4.0
# Limit of an import with both traces, if the first one leaves so much.
TOTAL_SECONDS = 16.0
# The trace is given up after this part of its limit if it is not half as far as it must be by then.
LATE_PART = 0.25
# Images in a trace for which a batch of one was given.
TRACED_BATCH = 3

_OTHER = (
    "it computes something else than the module. Code that asks whether it is traced, such as"
    " torch.compiler.is_exporting() or a jit's, must compute the same."
)

Shapes = Sequence[int] | Sequence[Sequence[int]] | Mapping[str, Sequence[int]]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]  # positional and by keyword


def read(
    module: torch.nn.Module,
    *,
    example_inputs: Any = None,
    input_shapes: Shapes | None = None,
    free_size: bool | None = None,
    name: str | None = None,
    attempt: int | None = None,
    one_batch: bool = False,
) -> Graph:
    """Read the module in eval mode as a Graph.

    The module is traced in eval mode, by `torch_recording` or torch.export; its own mode is restored afterwards.
    Parameters are not copied.
    Heights and widths are free if the trace is valid for all of them; conditions in Python code are evaluated for
    the example only, and become `Input.sizes`. The module is traced for the example's size first, and then for all
    sizes, unless the first trace is known to be valid for all (see `torch_independent`). The second trace may fail,
    refuse an operator, or take longer than its limit (see FREE_SECONDS): then the first one is used. It is left out if
    too little time is left (see TOTAL_SECONDS), if the first one refuses an operator, or if it has a layer that is
    imported for one size only.

    Parameters
    ----------
    module : torch.nn.Module
        Its inputs and outputs are tensors whose first axis is the batch.
    example_inputs : Tensor, tuple or dict, optional
        Arguments of the module: one tensor, positional arguments, or keyword arguments. Values do not matter.
    input_shapes : tuple of int, list of them, or dict, optional
        Instead of `example_inputs`: the shape of the input, (N, C, H, W), shapes of several, or shapes by keyword.
    free_size : bool, optional
        False: fix heights and widths to those of the example; the export takes a third of the time. True: trace for all
        sizes without a limit of time. None: with the limit.
    name : str, optional
        Name in errors; default: its class.
    attempt : int, optional
        See `torch_export.read`; with `free_size` False.
    one_batch : bool
        The graph is for as many images as the example has: conditions on the batch do not matter.

    Raises
    ------
    UnsupportedOperatorError
        No kernel computes some operators (all are listed), or torch.export cannot trace the module.
    InvalidModelError
        The module does not run with these inputs, or an input or parameter does not fit into an image.
    TypeError, ValueError
        `module` is not a module, not exactly one of `example_inputs` and `input_shapes` is given, or a shape is wrong.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module ({type(module).__name__}) is not a torch.nn.Module.")
    if isinstance(module, torch.jit.ScriptModule):
        raise TypeError("module is a torch.jit.ScriptModule, which torch.export does not take; give the module itself.")
    if (example_inputs is None) == (input_shapes is None):
        both = "neither" if example_inputs is None else "both"
        raise ValueError(f"example_inputs and input_shapes: {both} given, not one of them.")
    if isinstance(module, torch.nn.DataParallel):
        module = module.module
    name = type(module).__name__ if name is None else name
    args, kwargs = _inputs(example_inputs) if input_shapes is None else _examples(module, input_shapes)
    clock = time_limit.thread_clock()
    entered, numbers = clock(), torch_numbers.Numbers(module)
    checked = torch_replay.Module(module, lambda one: _untouched(one, numbers))
    modes = (_as_called(), _garbage.few_collections(), torch_export.quiet(), _without_stack_traces())
    with contextlib.ExitStack() as stack:
        for mode in (_in_eval_mode(module), *modes, _without_recurrence(module, name)):
            stack.enter_context(mode)
        is_one = _batch(args, kwargs) == 1 and not one_batch
        several = _with_batch(args, kwargs, TRACED_BATCH) if is_one else None
        if free_size is not False and not one_batch and attempt is None:
            found = _independent(checked, several or _fresh(args, kwargs), name, numbers)
            if found is not None and not _is_other(checked, *found, args, kwargs, others_only=True):
                return found[0]
        _refuse_values(checked, args, kwargs, name, numbers)
        began, first = clock(), several
        graph: Graph | None = None
        refused: UnsupportedOperatorError | InvalidModelError | None = None
        while graph is None:
            try:
                with _in_eval_mode(module):  # each trace begins with the module's own state
                    graph, refused, several = _static(
                        checked, args, kwargs, name, first, numbers, one_batch=one_batch, attempt=attempt
                    )
            except (UnsupportedOperatorError, InvalidModelError) as error:
                refused = error
            if graph is not None or numbers.is_traced or not numbers.asked:
                break
            numbers = torch_numbers.Numbers(module, is_traced=True)
        seconds = _free_seconds(clock() - began, clock() - entered)
        try:
            if free_size or (free_size is None and graph is not None and not _is_fixed(graph)):
                limit = time_limit.limited(seconds, _lateness(numbers))
                with limit if free_size is None else contextlib.nullcontext():
                    given = several or _fresh(args, kwargs)
                    program = _free(module, given, numbers, one_batch=one_batch)
                    if several is None or torch_export.has_free_batch(program):
                        free = torch_export.read(program, name=name, of_module=True)
                        if graph is not None and not torch_export.has_free_batch(program):
                            _take_batch(free, graph)
                        is_known = graph is None or _reads_batch(graph) or not _reads_batch(free)
                        is_right = is_known and _admits(free, args, kwargs, _batch(args, kwargs))
                        if is_right and not _is_other(checked, free, program, args, kwargs):
                            return free
        except time_limit.OverdueError:
            if graph is not None:
                _note_limit(graph, seconds)
        except Exception:  # not for all sizes
            pass
    if graph is None:
        assert refused is not None
        raise refused
    return graph


def _refuse_values(
    checked: torch_replay.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    name: str,
    numbers: torch_numbers.Numbers,
) -> None:
    """Raise UnsupportedOperatorError if the module's code is known to depend on computed values."""
    with torch_questions.Files(numbers):
        if checked.runs((args, kwargs)):
            return
    with _in_eval_mode(checked.module):
        why = torch_values.dependence(checked.module, *_fresh(args, kwargs), numbers)
    if why:
        raise UnsupportedOperatorError(name, [("torch.export", "values", why)])


def _free_seconds(first: float, spent: float) -> float:
    """Return the limit of the trace for all sizes; 0 if that for one size, of `first` seconds, leaves too little."""
    left = TOTAL_SECONDS - spent
    return min(max(FREE_SECONDS, FREE_RATIO * first), left) if left > first else 0.0


def _lateness(numbers: torch_numbers.Numbers) -> Callable[[float], bool]:
    """Return a function that tells of a trace, after this part of its limit, whether it cannot end within it.

    It calls as many functions of tensors as the trace before.
    """
    before, expected = numbers.calls, numbers.calls_of_trace
    return lambda part: part > LATE_PART and numbers.calls - before < expected * part / 2


def _is_other(
    checked: torch_replay.Module,
    graph: Graph,
    program: torch.export.ExportedProgram,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    one_batch: bool = False,
    others_only: bool = False,
) -> bool:
    """Return whether the program is not what the module computes, for some arguments for which the graph is right.

    These are the example's, and others with another batch, and another size if that is free.
    """
    own = _batch(args, kwargs)
    given = [(args, kwargs)]
    if not one_batch and _with_batch(args, kwargs, own) is not None:
        is_free = all(spec.height is None and spec.width is None for spec in graph.inputs.values())
        batches = [1, 2] if own > 2 else [3 - own]
        given += torch_replay.samples((args, kwargs), batches, is_free=is_free)
    given = given[-1:] if others_only else given
    return any(_admits(graph, *one, _batch(*one)) and checked.agrees(program, one) is False for one in given)


def _independent(
    checked: torch_replay.Module, given: Arguments, name: str, numbers: torch_numbers.Numbers
) -> tuple[Graph, torch.export.ExportedProgram] | None:
    """Return graph and program if one trace, without symbols for heights and widths, is known to be valid for all."""
    module = checked.module
    if _batch(*given) == 1 or not torch_independent.can_watch(module):
        return None
    if any(type(part) in _RECURRENT for part in module.modules()):
        return None  # they are refused before a trace
    for trace in (_recorded, _watched):
        program, watch = None, torch_independent.Watch(numbers)
        with contextlib.suppress(Exception, torch_caches.SizeReadError, torch_recording.LeftError), numbers.noted():
            program = trace(checked, given, watch)
        if numbers.late or watch.is_read:
            return None  # it is traced again
        if program is not None:
            break
    if program is None or not watch.set_batch(program):
        return None
    if not torch_independent.is_independent(program):
        return None
    try:
        graph = torch_export.read(program, name=name, of_module=True, attempt=0, is_free=True)
        is_fixed = any(spec.fixed_by for spec in graph.inputs.values())
        if not is_fixed or not any(node.kernel in FREE_KERNELS for node in graph.nodes):
            return graph, program  # read for one size, it has the same nodes
        named = torch_export.read(program, name=name, of_module=True, name_dependence=True)
    except (UnsupportedOperatorError, InvalidModelError):
        return None
    return named if _is_fixed(named) else graph, program


def _recorded(
    checked: torch_replay.Module, given: Arguments, watch: torch_independent.Watch
) -> torch.export.ExportedProgram:
    """Return the program that is recorded of a module, unless `torch_recording` leaves it to torch.export."""

    @contextlib.contextmanager
    def inside(copy: torch.nn.Module) -> Iterator[None]:
        with _in_eval_mode(copy), torch_data.traced(copy), watch.over(copy):
            yield

    watch.left = torch_recording.OF_DEVICE
    with torch_tracing.quick():
        return torch_recording.program(checked, *given, inside)


def _watched(
    checked: torch_replay.Module, given: Arguments, watch: torch_independent.Watch
) -> torch.export.ExportedProgram:
    with _in_eval_mode(checked.module), watch.over(checked.module):
        return _traced(checked.module, *given)


def _is_fixed(graph: Graph) -> bool:
    """Return whether a node of the trace for one size is known to fix the sizes in any trace."""
    found = {spec.fixed_by for spec in graph.inputs.values()}
    return not found <= {"", torch_export.FIXED_BY_TRACE}


def _note_limit(graph: Graph, seconds: float) -> None:
    """Say in the graph why its sizes are fixed, unless a node fixed them."""
    for name, spec in graph.inputs.items():
        if spec.fixed_by == torch_export.FIXED_BY_TRACE:
            reason = (
                f'a limit of time: the trace for all sizes takes over {seconds:.0f} s; {{"free_size": True}} has none'
            )
            graph.inputs[name] = replace(spec, fixed_by=reason)


def _static(
    checked: torch_replay.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    name: str,
    several: Arguments | None,
    numbers: torch_numbers.Numbers,
    *,
    one_batch: bool,
    attempt: int | None,
) -> tuple[Graph | None, UnsupportedOperatorError | None, Arguments | None]:
    """Return the graph for the heights and widths of the example, or the reason why there is none.

    The batch is free if the module can be traced so. `several` are the arguments with a batch that no view can take for
    an axis of extent 1, if that of `args` is 1. They are also returned, or None if the module takes another branch for
    them than for `args`.
    """
    own, module = _batch(args, kwargs), checked.module
    for given in (several or _fresh(args, kwargs), _fresh(args, kwargs)):
        program = _of_batches(module, given, numbers, one_batch=one_batch)
        if program is None:
            several = None
            continue
        graph, refused = _read(program, name, attempt)
        if refused is not None and (numbers.kept or any(OF_BATCH in reason for *_, reason in refused.nodes)):
            break
        if graph is None:
            return graph, refused, several
        is_right = one_batch or _admits(graph, args, kwargs, own)
        if is_right and not _is_other(checked, graph, program, args, kwargs, one_batch=one_batch):
            return graph, refused, several
        several = None  # the module takes another branch for them
    with numbers.noted():
        program = _export(module, *_fresh(args, kwargs), name)
    graph, refused = _read(program, name, attempt)
    if graph is not None and _is_other(checked, graph, program, args, kwargs, one_batch=True):
        raise UnsupportedOperatorError(name, [("torch.export", "the trace", _OTHER)])
    if graph is not None and not one_batch:
        first = next(iter(graph.inputs))
        graph.inputs[first] = replace(graph.inputs[first], sizes=f"(batch == {own})")
    return graph, refused, None


def _of_batches(
    module: torch.nn.Module, given: Arguments, numbers: torch_numbers.Numbers, *, one_batch: bool
) -> torch.export.ExportedProgram | None:
    """Return the program for all batches whose conditions on the batch are its guards, or None."""

    def traced() -> torch.export.ExportedProgram | None:
        with contextlib.suppress(Exception):
            program = _free(module, given, numbers, batch_only=True, one_batch=one_batch)
            return program if torch_export.has_free_batch(program) else None
        return None

    program = None
    for attempt in range(4):  # each may reach another file that makes numbers of symbols
        numbers.kept, numbers.ends = numbers.found, attempt < 3
        try:
            program = traced()
            break
        except torch_numbers.NumberMadeError:
            continue
        finally:
            numbers.ends = False
    if program is None and numbers.kept:
        numbers.kept = False
        program = traced()
    return program


def _read(
    program: torch.export.ExportedProgram, name: str, attempt: int | None
) -> tuple[Graph | None, UnsupportedOperatorError | None]:
    try:
        return torch_export.read(program, name=name, name_dependence=True, attempt=attempt, of_module=True), None
    except UnsupportedOperatorError as error:
        return None, error


def _free(
    module: torch.nn.Module,
    given: Arguments,
    numbers: torch_numbers.Numbers,
    *,
    batch_only: bool = False,
    one_batch: bool = False,
) -> torch.export.ExportedProgram:
    """Return the program for all sizes, or all batches, whose guards have the conditions on extents of 1 as well.

    By default, torch.export takes free extents to be 2 or more, and conditions such as x.shape[0] > 1 leave no guard.
    """
    shapes = _dynamic_shapes(module, *given, batch_only=batch_only)
    for _ in range(4):  # each may reach files that were not known
        numbers.late = False
        asked = torch_questions.Questions(numbers).over(module)
        ones = contextlib.nullcontext() if one_batch else _with_extents_of_one()
        before = numbers.calls
        with _in_eval_mode(module), asked, numbers.noted(), ones:
            program = _traced(module, *_fresh(*given), dynamic_shapes=shapes)
        numbers.calls_of_trace = numbers.calls - before
        if not numbers.late:
            break
    else:
        raise ValueError("files with code of the module were not known.")
    return program


@contextlib.contextmanager
def _with_extents_of_one() -> Iterator[None]:
    config: Any = getattr(torch.fx.experimental, "_config", None)
    if not hasattr(config, "backed_size_oblivious"):  # another PyTorch
        yield
        return
    with config.patch(backed_size_oblivious=True):
        yield


def _admits(graph: Graph, args: tuple[Any, ...], kwargs: dict[str, Any], batch: int) -> bool:
    """Return whether the graph has the branches that the module takes for a batch with the sizes of `args`."""
    for spec, extents in zip(graph.inputs.values(), _extents(graph, args, kwargs), strict=True):
        if not _sizes.holds(spec.sizes, extents.get("H", 1), extents.get("W", 1), batch):
            return False
    return True


def _extents(graph: Graph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[dict[str, int]]:
    """Return the extents of the arguments by axis, for each input of the graph."""
    leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    found = [
        dict(zip(spec.layout, leaf.shape, strict=False))
        for spec, leaf in zip(graph.inputs.values(), leaves, strict=False)
    ]
    return found + [{}] * (len(graph.inputs) - len(found))


def _take_batch(graph: Graph, known: Graph) -> None:
    """Set a condition on the batch, found in the trace for one size, in the graph for all sizes."""
    for name, spec in known.inputs.items():
        if name in graph.inputs and "batch" in _sizes.reads(spec.sizes):
            sizes = " and ".join(filter(None, (graph.inputs[name].sizes, spec.sizes)))
            graph.inputs[name] = replace(graph.inputs[name], sizes=sizes)


def _reads_batch(graph: Graph) -> bool:
    return any("batch" in _sizes.reads(spec.sizes) for spec in graph.inputs.values())


def _batch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    leaves = pytree.tree_leaves((args, kwargs))
    return next((len(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.ndim), 1)


def _fresh(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with new tensors on the same memory: an export may mark the extents of those it is given."""
    found: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map(
        lambda value: value.detach() if isinstance(value, torch.Tensor) else value, (args, kwargs)
    )
    return found


def _with_batch(args: tuple[Any, ...], kwargs: dict[str, Any], batch: int) -> Arguments | None:
    """Return the arguments with another batch; None if they have not all the same."""
    leaves, before = pytree.tree_leaves((args, kwargs)), _batch(args, kwargs)
    if not all(isinstance(leaf, torch.Tensor) and leaf.ndim > 1 and len(leaf) == before for leaf in leaves):
        return None
    found: Arguments = pytree.tree_map(lambda value: zeros_like(value, (batch, *value.shape[1:])), (args, kwargs))
    return found


def zeros_like(value: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return zeros with the type and order in memory of a tensor, which a module may ask for, and another shape."""
    is_last = value.ndim == 4 and value.is_contiguous(memory_format=torch.channels_last) and not value.is_contiguous()
    order = torch.channels_last if is_last else torch.contiguous_format
    return torch.empty(tuple(shape), dtype=value.dtype, device=value.device, memory_format=order).zero_()


@contextlib.contextmanager
def _in_eval_mode(module: torch.nn.Module) -> Iterator[None]:
    """Set eval mode inside of the block, and restore the attributes of each submodule, its mode among them.

    A module that keeps extents or tensors between calls, as YOLO's detectors do, would keep those of the trace, which
    are symbols. One that registers hooks in its first call, as those of transformers do, would register them twice.
    """
    before = [(part, dict(vars(part))) for part in module.modules()]
    plain = [value for _, attributes in before for value in attributes.values() if _is_plain(value)]
    contents = [(value, value.copy() if value else ()) for value in plain]  # most are empty
    for part, _ in before:
        part.training = False
    try:
        yield
    finally:
        for part, attributes in before:
            vars(part).clear()
            vars(part).update(attributes)
        for value, content in contents:
            if (value or content) and _parts(value) != _parts(content):
                value.clear()
                value.extend(content) if isinstance(value, list) else value.update(content)


@contextlib.contextmanager
def _untouched(module: torch.nn.Module, numbers: torch_numbers.Numbers) -> Iterator[None]:
    """Set eval mode inside of the block; restore what a module keeps, also in global variables."""
    with _in_eval_mode(module), numbers.caches.restored():
        yield


class _RecurrentError(BaseException):
    """A recurrent layer was called. No Exception: no other trace is tried."""


@contextlib.contextmanager
def _without_recurrence(module: torch.nn.Module, name: str) -> Iterator[None]:
    """Refuse recurrent layers at their first call; the caller restores the module's attributes.

    Their operators have no kernel, and a trace with symbols computes each step: half a minute for Sequencer.
    """
    parts = {part: f"aten.{type(part).__name__.lower()}" for part in module.modules() if type(part) in _RECURRENT}

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise _RecurrentError

    for part in parts:
        part.forward = refused
    try:
        yield
    except _RecurrentError:
        named = [(parts[part], path or name) for path, part in module.named_modules() if part in parts]
        raise UnsupportedOperatorError(
            name, [(kind, path, "no kernel computes this") for kind, path in named]
        ) from None


_RECURRENT = (torch.nn.LSTM, torch.nn.GRU)


@contextlib.contextmanager
def _as_called() -> Iterator[None]:
    """Set the modes in which networks are called: no gradients, but for attention operators of their own kernels.

    Tensors keep their memory, see `torch_memory`.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), torch_memory.kept():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _parts(value: Any) -> list[Any]:
    """Return what tells whether a container has the same objects in the same order."""
    return [(key, id(value[key])) for key in value] if isinstance(value, dict) else list(map(id, value))


def _is_plain(value: Any) -> bool:
    """Return whether the value is a container of Python's own, such as the hooks of a module."""
    return type(value) in (dict, collections.OrderedDict, list, set)


@contextlib.contextmanager
def _without_stack_traces() -> Iterator[None]:
    """Let torch.export not record the lines of Python code of each node, a fifth of its time, which are not read."""
    config: Any = getattr(torch.fx, "config", None)
    before = getattr(config, "do_not_emit_stack_traces", None)
    if before is None:  # another PyTorch
        yield
        return
    config.do_not_emit_stack_traces = True
    try:
        yield
    finally:
        config.do_not_emit_stack_traces = before


def _first_parameter(module: torch.nn.Module) -> torch.Tensor:
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            return tensor
    return torch.zeros(())


def _inputs(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    kwargs = dict(example) if isinstance(example, Mapping) else {}
    args = () if kwargs else tuple(example) if isinstance(example, (tuple, list)) else (example,)
    found: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map(
        lambda value: torch.from_numpy(value) if isinstance(value, np.ndarray) else value, (args, kwargs)
    )
    return found


def _examples(module: torch.nn.Module, shapes: Shapes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    like = _first_parameter(module)

    def example(shape: Any) -> torch.Tensor:
        if not isinstance(shape, (tuple, list)) or not all(isinstance(extent, int) for extent in shape):
            raise TypeError(f"input_shapes: {shape!r} is not a tuple of ints.")
        if any(extent < 1 for extent in shape):
            raise ValueError(f"input_shapes: {tuple(shape)} has an extent that is less than the minimum (1).")
        return torch.zeros(tuple(shape), dtype=like.dtype, device=like.device)

    if isinstance(shapes, Mapping):
        return (), {name: example(shape) for name, shape in shapes.items()}
    if all(isinstance(extent, int) for extent in shapes):
        return (example(shapes),), {}
    return tuple(example(shape) for shape in shapes), {}


def _export(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], name: str
) -> torch.export.ExportedProgram:
    try:
        return _traced(module, args, kwargs)
    except Exception as error:
        reason = error
    try:
        with torch.no_grad():
            module(*args, **kwargs)
    except Exception as error:
        raise InvalidModelError(
            f"{name} does not run with inputs of shapes {_described(args, kwargs)}: {torch_export.first_line(error)}"
        ) from error
    raise UnsupportedOperatorError(
        name,
        [
            (
                "torch.export",
                type(reason).__name__,
                f"{torch_export.first_line(reason)} The module runs, but torch.export cannot trace it: control flow"
                " must not depend on values of tensors. Import the part that can be traced, or a module without that"
                " control flow.",
            )
        ],
    ) from reason


def _traced(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any = None
) -> torch.export.ExportedProgram:
    """Return the program without the operators that raised an error, which the module handled."""
    options = {} if dynamic_shapes is None else {"dynamic_shapes": dynamic_shapes}
    with torch_tracing.quick(), torch_data.traced(module):
        program = torch.export.export(module, args, kwargs, **options)
        for node in reversed(program.graph.nodes):
            schema = getattr(node.target, "_schema", None)
            if schema is not None and schema.returns and not node.users and node.meta.get("val") is None:
                program.graph.erase_node(node)
                program.graph_module.recompile()
    return program


def _described(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    leaves = pytree.tree_leaves((args, kwargs))
    return [tuple(leaf.shape) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


def _dynamic_shapes(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, batch_only: bool = False
) -> Any:
    """Return dynamic shapes that let torch.export decide for every extent, or for the batch, whether it is free."""

    def free(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return None
        return dict.fromkeys(range(min(value.ndim, 1) if batch_only else value.ndim), torch.export.Dim.AUTO)

    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    return {name: pytree.tree_map(free, value) for name, value in bound.arguments.items()}
