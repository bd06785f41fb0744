# SPDX-License-Identifier: Apache-2.0
"""Comparison of a module with the program that torch.export traced of it, for several batches and sizes.

A trace may differ from the module: code may ask whether it is traced (``torch.compiler.is_exporting()``), whether an
extent is an int, or handle an exception that PyTorch raises for some sizes only. So both are run with tensors without
values (on the device "meta", or as FakeTensor where the module makes tensors on the CPU), and what their outputs are
computed from is compared: operators, arguments, constants, and views of memory. Where these differ, both compute with
values.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from . import torch_results

Arguments = tuple[tuple[Any, ...], dict[str, Any]]  # positional and by keyword

# Max difference of results with values, as a part of the max: sums may be in another order.
TOLERANCE = 1e-4
# Max values of a constant whose bytes are compared.
_MAXIMUM_COMPARED = 1 << 24


class _UnknownError(Exception):
    """The origin of a value is not known."""


class _Metas:
    """Results of operators on the device "meta"."""

    def __init__(self) -> None:
        self._results = torch_results.Results()

    def result(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of an operator, which is computed unless it is known for such arguments."""
        key = self._results.key(func, args, kwargs)
        known = None if key is None else self._results.get(key)
        if known is not None and known.memory is torch_results.Memory.NEW:
            found = known.results(None)
            return found[0] if known.kind is None else known.kind(found)
        result = func(*args, **kwargs)
        if key is not None:
            self._results.note(key, result, args, kwargs)
        return result


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes what each tensor is computed from, as a number.

    Tensors are views of memory; an operator that changes one changes all views of its memory.

    Parameters
    ----------
    known : dict
        Numbers of the memory of parameters and constants, by its address.
    metas : _Metas, optional
        Results of operators, if all tensors are on the device "meta".
    """

    def __init__(self, known: Mapping[int, Any], metas: _Metas | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._known, self._metas = known, metas
        self._contents: dict[int, int] = {}  # by memory
        self._values: dict[int, tuple[int, torch.Tensor]] = {}  # by memory: what it has, and a tensor with its values
        self._kept: list[torch.Tensor] = []  # their memory is not used again

    def note(self, tensor: torch.Tensor, content: Any) -> None:
        """Note what the memory of a tensor has."""
        self._contents[tensor.untyped_storage()._cdata] = hash(content)
        self._kept.append(tensor)

    def note_values(self, tensor: torch.Tensor, values: torch.Tensor) -> None:
        """Note which values the memory of a tensor would have, until it is changed."""
        key = tensor.untyped_storage()._cdata
        self._values[key] = self._contents[key], values

    def _number(self, tensor: torch.Tensor) -> Any:
        """Return the value of a tensor without values; None if it is not known."""
        key = tensor.untyped_storage()._cdata
        content, values = self._values.get(key, (None, tensor))
        if content is None or self._contents[key] != content or tensor.dtype != values.dtype:
            return None
        return values.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).item()

    def of(self, value: Any) -> Any:
        """Return the number of a tensor, or an argument that compares equal to one that is the same."""
        if isinstance(value, torch.Tensor):
            return self._of_tensor(value)
        if isinstance(value, (list, tuple)):
            return tuple(map(self.of, value))
        if isinstance(value, float):
            return float(f"{value:.9g}")  # computed in another order
        return value if isinstance(value, int) else str(value)

    def _of_tensor(self, tensor: torch.Tensor) -> int:
        key = tensor.untyped_storage()._cdata
        if key not in self._contents:
            if isinstance(tensor, FakeTensor) or tensor.is_meta:
                raise _UnknownError
            self.note(tensor, self._of_values(tensor))
        view = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.dtype)
        return hash((self._contents[key], view))

    def _of_values(self, tensor: torch.Tensor) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() in self._known:
            return self._known[storage.data_ptr()]
        if storage.nbytes() > _MAXIMUM_COMPARED:
            raise _UnknownError
        return ctypes.string_at(storage.data_ptr(), storage.nbytes())  # bytes(storage) reads them one by one

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default and (number := self._number(args[0])) is not None:
            return number
        given = (func, self.of(args), tuple((key, self.of(value)) for key, value in kwargs.items()))
        result = func(*args, **kwargs) if self._metas is None else self._metas.result(func, args, kwargs)
        is_copy = func._opname in ("lift_fresh", "lift_fresh_copy")
        for place, tensor in enumerate(result if isinstance(result, (list, tuple)) else [result]):
            if not isinstance(tensor, torch.Tensor):
                continue
            key = tensor.untyped_storage()._cdata
            if is_copy:
                self.note(tensor, self._contents[args[0].untyped_storage()._cdata])
            elif key not in self._contents or func._schema.is_mutable:
                self.note(tensor, (given, place))
        for place, argument in enumerate(func._schema.arguments if func._schema.is_mutable else ()):
            if argument.alias_info is not None and argument.alias_info.is_write:
                changed = args[place] if place < len(args) else kwargs.get(argument.name)
                for tensor in changed if isinstance(changed, (list, tuple)) else [changed]:
                    if isinstance(tensor, torch.Tensor):
                        self.note(tensor, (given, argument.name))
        return result


class Module:
    """A module whose traces are compared with it.

    Parameters
    ----------
    module : torch.nn.Module
    inside : callable
        Returns a context in which the module is called: eval mode, and attributes that are restored.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        inside: Callable[[torch.nn.Module], contextlib.AbstractContextManager[None]],
    ) -> None:
        self.module, self._inside = module, inside
        tensors = {id(value): value for value in (*module.parameters(), *module.buffers())}
        for part in module.modules():
            tensors |= {id(value): value for value in vars(part).values() if isinstance(value, torch.Tensor)}
        self._tensors = [value for value in tensors.values() if value.layout == torch.strided]
        memory = {value.untyped_storage().data_ptr() for value in self._tensors if value.numel()}
        self._known = {address: ("memory", place) for place, address in enumerate(sorted(memory))}
        self._without_values: tuple[torch.nn.Module, dict[int, torch.Tensor]] | None = None
        self._results: dict[tuple[Any, bool], Any] = {}  # of the module, by shapes
        self._metas = _Metas()

    def runs(self, given: Arguments) -> bool:
        """Return whether the module runs with tensors without values of these shapes."""
        with contextlib.suppress(Exception):
            return self._of_module(given, True) is not None
        return False

    def agrees(self, program: torch.export.ExportedProgram, given: Arguments) -> bool | None:
        """Return whether the program computes what the module does, for arguments of these shapes.

        None: the module does not run with them, or what it computes cannot be told.
        """
        for is_meta in (True, False):
            with contextlib.suppress(Exception):
                found = self._of_module(given, is_meta)
                if found is not None and found == self._of_program(program, given, is_meta):
                    return True
                if found is not None:
                    break
        try:
            return self._is_near(program, given)
        except Exception:  # of the module
            return None

    def _of_module(self, given: Arguments, is_meta: bool) -> Any:
        key = str(pytree.tree_map(lambda x: (x.shape, x.dtype) if isinstance(x, torch.Tensor) else x, given)), is_meta
        if key not in self._results:
            self._results[key] = None
            module = self.without_values()[0] if is_meta else self.module
            with self._inside(module), self._recorded(is_meta) as recorder:
                args, kwargs = self._inputs(given, recorder, is_meta)
                result = module(*args, **kwargs)
                self._results[key] = tuple(map(recorder.of, pytree.tree_leaves(result)))
        return self._results[key]

    def _of_program(self, program: torch.export.ExportedProgram, given: Arguments, is_meta: bool) -> Any:
        with self._recorded(is_meta) as recorder:
            values = self._values(program, *self._inputs(given, recorder, is_meta))
            if is_meta:
                values = [self._like(value, recorder) for value in values]
            returned = program.graph_module(*values)
            return tuple(map(recorder.of, self._outputs(program, returned)))

    def _is_near(self, program: torch.export.ExportedProgram, given: Arguments) -> bool:
        """Return whether the results with random values are the same up to rounding."""
        generator = torch.Generator().manual_seed(0)
        args, kwargs = pytree.tree_map(
            lambda value: _random_like(value, generator) if isinstance(value, torch.Tensor) else value, given
        )
        with torch.no_grad():
            with self._inside(self.module):
                wanted = pytree.tree_leaves(self.module(*args, **kwargs))
            try:
                found = self._outputs(program, program.graph_module(*self._values(program, args, kwargs)))
            except Exception:
                return False
        return len(wanted) == len(found) and all(map(_are_near, wanted, found))

    @contextlib.contextmanager
    def _recorded(self, is_meta: bool) -> Iterator[_Recorder]:
        fakes = contextlib.nullcontext() if is_meta else FakeTensorMode(allow_non_fake_inputs=True)
        recorder = _Recorder(self._known, self._metas if is_meta else None)
        if is_meta:
            copies = self.without_values()[1]
            for value in self._tensors:
                tensor = copies[id(value)]
                recorder.note(tensor, self._known.get(tensor.__dict__["memory"]))
                recorder.note_values(tensor, value.detach())
        with torch.no_grad(), fakes, recorder:
            yield recorder

    def without_values(self) -> tuple[torch.nn.Module, dict[int, torch.Tensor]]:
        """Return a copy of the module without values, and its tensors by the identity of the module's."""
        if self._without_values is None:
            storages: dict[int, Any] = {}
            found: dict[int, torch.Tensor] = {}
            for value in self._tensors:
                storage = value.untyped_storage()
                if storage.data_ptr() not in storages:
                    storages[storage.data_ptr()] = torch.empty(storage.nbytes(), dtype=torch.uint8, device="meta")
                raw = storages[storage.data_ptr()].untyped_storage()
                one = torch.empty(0, dtype=value.dtype, device="meta")
                one.set_(raw, value.storage_offset(), value.shape, value.stride())
                if isinstance(value, torch.nn.Parameter):
                    one = torch.nn.Parameter(one, requires_grad=value.requires_grad)
                one.__dict__["memory"] = storage.data_ptr()
                found[id(value)] = one
            self._without_values = _with_tensors(self.module, found), found
        return self._without_values

    def _like(self, value: Any, recorder: _Recorder) -> Any:
        """Return a tensor without values for a constant of a program."""
        if not isinstance(value, torch.Tensor) or value.is_meta:
            return value
        if id(value) in self.without_values()[1]:
            return self.without_values()[1][id(value)]
        memory = value.untyped_storage().data_ptr()
        like = next((one for one in self.without_values()[1].values() if one.__dict__["memory"] == memory), None)
        if like is None:
            return value  # on the CPU, as the module's are that it makes
        one = torch.empty(0, dtype=value.dtype, device="meta")
        return one.set_(like.untyped_storage(), value.storage_offset(), value.shape, value.stride())

    @staticmethod
    def _inputs(given: Arguments, recorder: _Recorder, is_meta: bool) -> Arguments:
        places = itertools.count()

        def made(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            device = "meta" if is_meta else value.device
            one = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
            recorder.note(one, ("input", next(places)))
            return one

        found: Arguments = pytree.tree_map(made, given)
        return found

    @staticmethod
    def _values(program: torch.export.ExportedProgram, args: Any, kwargs: Any) -> list[Any]:
        """Return the arguments of the program's graph."""
        leaves = iter(pytree.tree_leaves((args, kwargs)))
        values: list[Any] = []
        for spec in program.graph_signature.input_specs:
            if spec.kind == InputKind.USER_INPUT:
                values.append(next(leaves))
            else:
                target = str(spec.target)
                values.append(program.state_dict[target] if target in program.state_dict else program.constants[target])
        return values

    @staticmethod
    def _outputs(program: torch.export.ExportedProgram, returned: Any) -> list[Any]:
        specs = program.graph_signature.output_specs
        return [value for value, spec in zip(returned, specs, strict=True) if spec.kind.name == "USER_OUTPUT"]


def _with_tensors(module: torch.nn.Module, tensors: Mapping[int, torch.Tensor]) -> torch.nn.Module:
    """Return a copy of a module that has these tensors in the place of its own, by their identity.

    All else is shared. What refers to the module's parts in another way than as its submodules has their own tensors.
    """
    copies = {part: object.__new__(type(part)) for part in module.modules()}
    for part, made in copies.items():
        values = vars(part) | {"_modules": {name: copies.get(one) for name, one in part._modules.items()}}  # type: ignore[arg-type]
        for name in ("_parameters", "_buffers"):
            values[name] = {key: tensors.get(id(one), one) for key, one in vars(part)[name].items()}
        vars(made).update({name: tensors.get(id(one), one) for name, one in values.items()})
    return copies[module]


def _random_like(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    made = torch.rand(value.shape, generator=generator) * 2 - 1
    one = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return one.copy_(made if value.dtype.is_floating_point else made * 100)


def _are_near(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return not isinstance(other, torch.Tensor) and bool(one == other)
    if one.shape != other.shape:
        return False
    scale = float(one.abs().max()) if one.numel() else 0.0
    return torch.allclose(other.double(), one.double(), rtol=0, atol=TOLERANCE * scale, equal_nan=True)


def samples(given: Arguments, batches: Sequence[int], *, is_free: bool) -> Iterator[Arguments]:
    """Yield arguments for other batches; the last ones have other sizes as well if these are free."""
    for place, batch in enumerate(batches):
        wider = is_free and place == len(batches) - 1

        def changed(value: Any, batch: int = batch, wider: bool = wider) -> Any:
            if not isinstance(value, torch.Tensor) or not value.ndim:
                return value
            more = (32, 64)[: max(value.ndim - 2, 0)] if wider else ()
            shape = [batch, *value.shape[1:]]
            for axis, extent in enumerate(more, 2):
                shape[axis] += extent
            is_last = value.ndim == 4 and value.is_contiguous(memory_format=torch.channels_last)
            order = torch.channels_last if is_last and not value.is_contiguous() else torch.contiguous_format
            return torch.empty(shape, dtype=value.dtype, device=value.device, memory_format=order)

        yield pytree.tree_map(changed, given)
