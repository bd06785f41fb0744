# SPDX-License-Identifier: Apache-2.0
"""Files of torch.export.save (.pt2), read without running their code.

torch.export.load is not safe for untrusted files: it evaluates the text of symbolic shapes, unpickles example inputs,
custom objects and tensors, imports modules named by call specifications, looks operators up by any path into PyTorch,
and compiles Python source with names from the file. So it is not called. The archive is parsed here: the fields below
are checked against a grammar and copied into a new program, from which PyTorch makes its objects. Tensors are views of
the file's bytes. All other contents of an archive are ignored.
"""

from __future__ import annotations

import ast
import importlib
import json
import math
import re
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch

from .. import _sizes, errors
from ..errors import InvalidModelError, UnsupportedOperatorError
from ..graph import Graph
from . import torch_export, weights_files
from .aten import OPERATORS
from .mapped_files import content, opened

JSON_LIMIT = 64 << 20  # bytes of a program or a list of tensors; a U-Net's have 0.24 MB
MEMBERS_LIMIT = 100_000
EXPRESSION_LIMIT = 2000  # characters; a U-Net's have 217
EXPRESSIONS_LIMIT = 4 << 20  # characters of all expressions; a DenseNet-121's have 0.6 million
COST_LIMIT = 4096  # of an expression: bits of its numbers, weighted where SymPy is slow

# torch/_export/serde/schema.py: ScalarType.
DTYPES = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    12: torch.bool,
    13: torch.bfloat16,
}

# Operators besides those of the importer: on constants and extents, and parts of the patterns in torch_patterns.
# PyTorch runs them, so the list excludes operators with access beyond their arguments, such as aten.from_file.
_OF_CONSTANTS = """
    _assert_async _assert_scalar _assert_tensor_metadata _weight_norm _weight_norm_interface arange atan
    avg_pool3d broadcast_to ceil cos cumsum diag diagonal dot einsum eq expm1 eye floor floor_divide fmod full
    full_like gather ge gt hardshrink item le lift_fresh linspace log1p log2 logical_and logical_not
    logical_or lt meshgrid mv ne new_full new_ones new_zeros numel ones ones_like outer pixel_unshuffle prod
    reciprocal remainder roll round scalar_tensor sign sin sym_constrain_range sym_constrain_range_for_size
    sym_is_contiguous sym_numel sym_size sym_storage_offset sym_stride t tan tril triu trunc unsafe_split vdot
    zeros zeros_like
"""
OF_CONSTANTS = frozenset(_OF_CONSTANTS.split())

# Modules that define the importer's operators of other domains.
LIBRARIES = {"torchvision": "torchvision", "quantized_decomposed": "torch.ao.quantization.fx._decomposed"}

# Operators of these domains on constants.
OF_WEIGHTS = frozenset({"quantized_decomposed.dequantize_per_channel"})

# Arithmetic of extents.
OF_NUMBERS = frozenset(
    [f"_operator.{name}" for name in ("add", "sub", "mul", "floordiv", "mod", "truediv", "neg", "pos", "and_", "or_")]
    + [f"_operator.{name}" for name in ("eq", "ne", "le", "ge", "lt", "gt")]
    + [f"torch.sym_{name}" for name in ("not", "int", "float", "ite", "max", "min")]
    + ["math.trunc"]
)

# Regions, such as torch.no_grad(): the operators inside are part of the program.
REGIONS = frozenset(f"torch.ops.higher_order.wrap_with_{name}" for name in ("set_grad_enabled", "autocast"))

_DESERIALIZER = threading.Lock()  # PyTorch's deserializer has global state

Checker = Callable[[Any, str], Any]


class _WrongError(Exception):
    """The file is invalid; the message names the place and the error."""


class _CodeError(_WrongError):
    """The file may be valid, but PyTorch would run code to read it."""


def read(path: Path, *, mapped: bool = True) -> Graph:
    """Read the exported program in a file as a Graph.

    Parameters
    ----------
    path : Path
    mapped : bool, default True
        As in `mpscnn.load`.

    Raises
    ------
    InvalidModelError
        The file is damaged, or is not an archive of torch.export.save.
    UnsupportedOperatorError
        As in `torch_export.read`.
    ImportError
        The file may be valid, but PyTorch would run code to read it.
    """
    name = f'"{path}"'
    try:
        program, guards = _program(path, mapped)
    except RecursionError:
        raise InvalidModelError(f"{name}: the program is nested too deeply.") from None
    except _CodeError as error:
        raise errors.ImportError(
            f"{name}: {error}, for which code would have to be run. If you trust whoever made the file, read it with"
            ' PyTorch: mpscnn.load(torch.export.load("..."))'
        ) from None
    except _WrongError as error:
        raise InvalidModelError(f"{name}: {error}.") from None
    return torch_export.read(program, name=name, guards=guards)


# ---- the archive


def _program(path: Path, mapped: bool) -> tuple[torch.export.ExportedProgram, list[str]]:
    """Return the program with the text of its guards, which PyTorch would run and gets nothing of."""
    file, size = opened(path)
    with file, weights_files.opened_archive(path, file, MEMBERS_LIMIT) as archive:
        members = _members(path, archive, size)
        model = _model_name(members)
        described = _json(path, archive, members, f"models/{model}.json")
        weights = _json(path, archive, members, f"data/weights/{model}_weights_config.json")
        constants = _json(path, archive, members, f"data/constants/{model}_constants_config.json")
    if isinstance(ranges := described.get("range_constraints"), dict):  # those of 4*s0 follow from those of s0
        described["range_constraints"] = {key: value for key, value in ranges.items() if not _PRODUCT.fullmatch(key)}
    checked = _PROGRAM(described, "the program")
    length = sum(map(len, _expressions(checked)))
    if length > EXPRESSIONS_LIMIT:
        raise _WrongError(f"its expressions have {length} characters, more than the limit ({EXPRESSIONS_LIMIT})")
    _check_operators(path, checked["graph_module"]["graph"])
    data = content(path, mapped=mapped, writable=True)  # PyTorch has no read-only tensors
    program = _deserialized(
        checked,
        _tensors(_PAYLOAD(weights, "the weights"), members, "data/weights/", data),
        _tensors(_PAYLOAD(constants, "the constants"), members, "data/constants/", data),
    )
    return program, _guards(described.get("guards_code"))


def _guards(value: Any) -> list[str]:
    """Return the text of guards, conditions that hold for the sizes of the program's trace."""
    if value is None:
        return []
    found: list[str] = _list(_word(r"(?s:.*)", "text", JSON_LIMIT))(value, "the guards")
    return found


def _members(path: Path, archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """Return the members by their names within the archive's folder."""
    weights_files.check_stored(path, archive.infolist(), size)
    roots = {entry.filename.partition("/")[0] for entry in archive.infolist()}
    members = {entry.filename.partition("/")[2]: entry for entry in archive.infolist()}
    if len(members) != len(archive.infolist()):
        raise _WrongError("members of the archive have the same names")
    if "serialized_exported_program.json" in archive.namelist() or {"data/weights/model.pt"} & members.keys():
        raise _CodeError("it was written by an earlier PyTorch, with pickled weights")
    if len(roots) != 1 or "archive_format" not in members or _read(archive, members["archive_format"]) != b"pt2":
        raise _WrongError("it is a ZIP archive, and not one that torch.export.save writes")
    if "byteorder" in members and _read(archive, members["byteorder"]) != b"little":
        raise _WrongError("its byte order is not little")
    return members


def _model_name(members: dict[str, zipfile.ZipInfo]) -> str:
    models = [name[7:-5] for name in members if name.startswith("models/") and name.endswith(".json")]
    if not models:
        raise _WrongError("it holds no exported program (models/model.json)")
    if "model" not in models and len(models) > 1:
        raise _WrongError(f"it holds {len(models)} programs, and none of them is called model")
    return "model" if "model" in models else models[0]


def _json(path: Path, archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], name: str) -> dict[str, Any]:
    if name not in members:
        raise _WrongError(f"it has no member {name:.200}")
    if members[name].file_size > JSON_LIMIT:
        raise _WrongError(f"{name:.200} has {members[name].file_size} bytes, more than the limit ({JSON_LIMIT})")
    return weights_files.json_object(path, _read(archive, members[name]), name)


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    try:
        return archive.read(member)
    except Exception as error:  # zipfile's and zlib's have no common base class
        raise _WrongError(f"{member.filename:.200} cannot be read: {error!s:.200}") from None


def _tensors(
    payload: dict[str, Any], members: dict[str, zipfile.ZipInfo], folder: str, data: memoryview
) -> dict[str, torch.Tensor]:
    tensors = {}
    for name, entry in payload["config"].items():
        tensor = _tensor(name, entry, members.get(folder + entry["path_name"]), data)
        tensors[name] = torch.nn.Parameter(tensor, requires_grad=False) if entry["is_param"] else tensor
    return tensors


def _tensor(name: str, entry: dict[str, Any], member: zipfile.ZipInfo | None, data: memoryview) -> torch.Tensor:
    """Return the bytes of a member as a tensor."""
    where, meta = f'the tensor "{name}"', entry["tensor_meta"]
    if entry["use_pickle"] or meta is None:
        raise _CodeError(f"{where} is pickled")
    if member is None:
        raise _WrongError(f"{where} is in a member {entry['path_name']}, which the archive has not")
    if meta["dtype"] not in DTYPES:
        raise _WrongError(f"{where} has a dtype (ScalarType {meta['dtype']}) that no kernel takes")
    dtype = DTYPES[meta["dtype"]]
    shape, strides = ([_static(extent, where) for extent in meta[key]] for key in ("sizes", "strides"))
    offset = _static(meta["storage_offset"], where)
    if len(shape) != len(strides):
        raise _WrongError(f"{where} has {len(shape)} sizes and {len(strides)} strides")
    elements = member.file_size // dtype.itemsize
    last = offset + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    if 0 not in shape and last >= elements:
        raise _WrongError(f"{where} of shape {tuple(shape)} ends behind its {member.file_size} bytes")
    # Strides of 0 could repeat a few values until they fill the memory.
    if math.prod(shape) > elements:
        raise _WrongError(f"{where} of shape {tuple(shape)} has more values than its {member.file_size} bytes")
    begin = member.header_offset + 30  # the local header, followed by name and extra field [APPNOTE, 4.3.7]
    begin += sum(int.from_bytes(data[begin - back : begin - back + 2], "little") for back in (4, 2))
    values = data[begin : begin + elements * dtype.itemsize]
    if len(values) != elements * dtype.itemsize:
        raise _WrongError(f"{where} ends behind the file")
    if not elements:
        return torch.empty(shape, dtype=dtype)
    aligned = bytearray(values) if begin % dtype.itemsize else values  # PyTorch writes them at multiples of 64
    return torch.frombuffer(aligned, dtype=dtype).as_strided(shape, strides, offset)


def _static(extent: dict[str, Any], where: str) -> int:
    value = extent.get("as_int")
    if not isinstance(value, int) or value < 0:
        raise _WrongError(f"{where} has an extent that is no number of 0 or more")
    return value


def _deserialized(
    checked: dict[str, Any], weights: dict[str, torch.Tensor], constants: dict[str, torch.Tensor]
) -> torch.export.ExportedProgram:
    try:
        with _DESERIALIZER, torch_export.quiet():
            from torch._export.serde import schema, serialize

            described = serialize._dict_to_dataclass(schema.ExportedProgram, checked)  # type: ignore[no-untyped-call]
            return serialize.ExportedProgramDeserializer().deserialize(described, weights, constants)
    except Exception as error:  # PyTorch's have no common base class
        reason = f"{type(error).__name__}: {_last_line(error)}"
        raise _WrongError(f"PyTorch {torch.__version__} makes no program of it: {reason:.300}") from error


def _last_line(error: BaseException) -> str:
    """Return the last line of an error that contains a traceback."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else ""


# ---- operators


def _check_operators(path: Path, graph: dict[str, Any]) -> None:
    wrong = [
        (
            operator := re.sub(r"^torch\.ops\.(\w+\.\w+).*", r"\1", node["target"]),
            str(node.get("name")),
            _reason(operator),
        )
        for node in _nodes(graph)
        if not _is_known(node["target"])
    ]
    if wrong:
        raise UnsupportedOperatorError(f'"{path}"', wrong)


def _reason(operator: str) -> str:
    """Return why an operator, such as "torchvision.nms", is refused."""
    domain = operator.partition(".")[0]
    if domain in LIBRARIES and (operator in OPERATORS or operator in OF_WEIGHTS):
        return f"the package {LIBRARIES[domain].partition('.')[0]}, which defines it, cannot be imported: install it"
    return torch_export.ADVICE.get(operator, "no kernel computes this, nor is it for the constants of a file")


def _nodes(graph: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for node in graph["nodes"]:
        yield node
        for argument in node["inputs"]:
            if "as_graph" in argument["arg"]:
                yield from _nodes(argument["arg"]["as_graph"]["graph"])


def _is_known(target: str) -> bool:
    if target in OF_NUMBERS or target in REGIONS:
        return True
    match = re.fullmatch(r"torch\.ops\.(\w+)\.(\w+)\.(\w+)", target)
    if match is None:
        return False
    domain, operator, overload = match.groups()
    if domain == "aten":
        name = operator if operator.startswith("__") else operator.rstrip("_")
        is_known = name in OPERATORS or name in OF_CONSTANTS
    else:
        name = f"{domain}.{operator}"
        is_known = domain in LIBRARIES and (name in OPERATORS or name in OF_WEIGHTS)
    if not is_known:
        return False
    packet = _packet(domain, operator)
    return isinstance(packet, torch._ops.OpOverloadPacket) and overload in packet.overloads()  # type: ignore[no-untyped-call]


def _packet(domain: str, operator: str) -> Any:
    """Return an operator; its library is imported if it has one."""
    if domain in LIBRARIES and not hasattr(getattr(torch.ops, domain), operator):
        try:
            importlib.import_module(LIBRARIES[domain])
        except ImportError:
            return None
    return getattr(getattr(torch.ops, domain), operator, None)


# ---- the grammar: functions of a value and its place in the file, which return a rewritten copy of the value


def _refuse(value: Any, where: str, what: str) -> NoReturn:
    raise _WrongError(f"{where} ({value!r:.80}) is not {what}")


def _boolean(value: Any, where: str) -> bool:
    return value if isinstance(value, bool) else _refuse(value, where, "true or false")


def _integer(value: Any, where: str) -> int:
    return value if type(value) is int and abs(value) < 1 << 63 else _refuse(value, where, "an integer of 64 bits")


def _number(value: Any, where: str) -> float | str:
    if isinstance(value, str) and value in ("Infinity", "-Infinity", "NaN"):
        return value
    return value if type(value) is float else float(_integer(value, where))


def _word(pattern: str, what: str, length: int = 1000) -> Checker:
    def check(value: Any, where: str) -> str:
        if isinstance(value, str) and len(value) <= length and re.fullmatch(pattern, value, re.ASCII):
            return value
        _refuse(value, where, what)

    return check


def _constant(value: Any) -> Checker:
    return lambda given, where: value


def _none_or(item: Checker) -> Checker:
    return lambda value, where: None if value is None else item(value, where)


def _list(item: Checker) -> Checker:
    def check(value: Any, where: str) -> list[Any]:
        if not isinstance(value, list):
            _refuse(value, where, "a list")
        return [item(part, f"{where}[{place}]") for place, part in enumerate(value)]

    return check


def _map(key: Checker, item: Checker) -> Checker:
    def check(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            _refuse(value, where, "an object")
        return {key(name, f"a key of {where}"): item(part, f"{where}.{name:.80}") for name, part in value.items()}

    return check


def _record(**fields: Checker) -> Checker:
    """Return the checker of an object with these fields; other fields are dropped, and missing ones are None."""

    def check(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            _refuse(value, where, "an object")
        return {name: field(value.get(name), f"{where}.{name}") for name, field in fields.items()}

    return check


def _one_of(**kinds: Checker) -> Checker:
    """Return the checker of an object with one field, whose name is the kind of its value."""

    def check(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict) or len(value) != 1:
            _refuse(value, where, "an object of one field")
        ((kind, part),) = value.items()
        if kind not in kinds:
            raise _CodeError(f"{where} is {kind!r:.80}")
        return {kind: kinds[kind](part, f"{where}.{kind}")}

    return check


_identifier = _word(r"[A-Za-z_]\w*", "a name of letters, digits and _")
_symbol = _word(r"(s|u|zf|zuf)\d{1,4}", "the name of a symbol: s0")
_PRODUCT = re.compile(r"\d{1,9}\*s\d{1,4}( [+-] \d{1,9})?|s\d{1,4} [+-] \d{1,9}", re.ASCII)
_path = _word(r"(?!__)\w+(\.(?!__)\w+)*", "the name of a tensor: layer1.0.weight")
_text = _word(r"[\w .,:>/-]*", "a word of an operator")
_operator = _word(r"[A-Za-z_#][\w.:]*", "the name of an operator")
_stack = _word(r"[ -~]+", "printable characters", 100_000)  # used for labels only


# ---- expressions: sizes as SymPy's srepr writes them, Add(Symbol('s0', positive=True, integer=True), Integer(-1))

_FUNCTION_NAMES = """
    Add And CeilDiv CeilToInt CleanDiv Equality FloatTrueDiv FloorDiv FloorToInt GreaterThan Identity IntTrueDiv
    LessThan Max Min Mod ModularIndexing Mul Not Or PythonMod RoundToInt StrictGreaterThan StrictLessThan ToFloat
    TruncToFloat TruncToInt Unequality
"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())


def _expression(value: Any, where: str) -> str:
    if not isinstance(value, str) or len(value) > EXPRESSION_LIMIT:
        _refuse(value, where, f"text of at most {EXPRESSION_LIMIT} characters")
    try:
        text, cost = _term(_sizes.syntax_tree(value))
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        raise _CodeError(f"{where} ({value!r:.80}) is not an expression of sizes and integers") from None
    if cost > COST_LIMIT:
        raise _CodeError(f"{where} ({value!r:.80}) is too large an expression")
    return text


def _expressions(value: Any) -> Iterator[str]:
    """Yield all expressions of a program."""
    parts = value.items() if isinstance(value, dict) else ((None, part) for part in value)
    for key, part in parts:
        if key == "expr_str":
            yield part
        elif isinstance(part, (dict, list)):
            yield from _expressions(part)


def _term(node: ast.expr) -> tuple[str, int]:
    """Return the rewritten text of a term, and a bound on its cost to evaluate. ValueError for anything else."""
    if isinstance(node, ast.Name) and node.id in ("true", "false"):
        return node.id, 1
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError
    name, keywords = node.func.id, {keyword.arg: keyword.value for keyword in node.keywords}
    if name == "Symbol":
        return _symbol_term(node.args, keywords)
    if name == "Float":
        return _float_term(node.args, keywords)
    if keywords:
        raise ValueError
    if name == "Integer":
        (argument,) = node.args
        number = _literal(argument)
        return f"Integer({number})", max(8, number.bit_length())
    if name == "Rational":
        above, below = node.args
        return f"Rational({_literal(above)}, {_literal(below)})", 128
    if name == "Pow":
        base, power = node.args
        text, cost = _term(base)
        if not isinstance(power, ast.Call) or not isinstance(power.func, ast.Name) or power.func.id != "Integer":
            raise ValueError
        exponent = _literal(*power.args)
        return f"Pow({text}, Integer({exponent}))", cost * max(1, abs(exponent))
    if name not in _FUNCTIONS or not node.args:
        raise ValueError
    terms = [_term(argument) for argument in node.args]
    cost = sum(cost for _, cost in terms)
    if name in ("Max", "Min", "Mod", "PythonMod", "ModularIndexing"):  # SymPy compares the terms: a Max of 60 takes 9 s
        cost *= max(1, len(terms) ** 2 // 2)
    return f"{name}({', '.join(text for text, _ in terms)})", cost


def _literal(node: ast.expr) -> int:
    is_negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    value = node.operand if is_negative else node  # type: ignore[attr-defined]
    if not isinstance(value, ast.Constant) or type(value.value) is not int or value.value >= 1 << 63:
        raise ValueError
    return -value.value if is_negative else value.value


def _symbol_term(arguments: list[ast.expr], keywords: dict[str | None, ast.expr]) -> tuple[str, int]:
    (argument,) = arguments
    name = argument.value if isinstance(argument, ast.Constant) else None
    if not isinstance(name, str) or not re.fullmatch(r"(s|u|zf|zuf)\d{1,4}", name, re.ASCII):
        raise ValueError
    text = f"Symbol('{name}'"
    for key, value in keywords.items():
        if key not in ("positive", "nonnegative", "negative", "integer", "real", "nonzero", "finite"):
            raise ValueError
        if not isinstance(value, ast.Constant) or not isinstance(value.value, bool):
            raise ValueError
        text += f", {key}={value.value}"
    return f"{text})", 32


def _float_term(arguments: list[ast.expr], keywords: dict[str | None, ast.expr]) -> tuple[str, int]:
    (argument,) = arguments
    text = argument.value if isinstance(argument, ast.Constant) else None
    if not isinstance(text, str) or not re.fullmatch(r"-?\d{1,40}(\.\d{0,40})?(e[+-]?\d{1,3})?", text, re.ASCII):
        raise ValueError
    if keywords and (keywords.keys() != {"precision"} or _literal(keywords["precision"]) != 53):
        raise ValueError
    return f"Float('{text}', precision=53)", 64


# ---- call specifications: how arguments and results are packed, a tree as JSON in a string


def _tree(key: Checker) -> Checker:
    def node(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict) or value.keys() != {"type", "context", "children_spec"}:
            _refuse(value, where, "a node of a call specification")
        kind, context = value["type"], value["context"]
        if kind not in (None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"):
            raise _CodeError(f"{where} is packed as {kind!r:.80}")
        if kind is not None:
            keys = json.loads(context) if isinstance(context, str) else context
            context = json.dumps(_none_or(_list(key))(keys, f"the keys of {where}"))
        elif context is not None:
            _refuse(context, where, "null")
        return {"type": kind, "context": context, "children_spec": _list(node)(value["children_spec"], where)}

    def check(value: Any, where: str) -> str:
        try:
            protocol, root = json.loads(value)
            return json.dumps([_integer(protocol, where), node(root, where)])
        except (ValueError, TypeError, RecursionError):
            _refuse(value, where, "a call specification")

    return check


def _key(value: Any, where: str) -> int | str:
    """Check a key of a dictionary that the program returns."""
    return value if type(value) is int else _word(r"[\w .:/-]+", "a key of letters, digits and . _ - : /")(value, where)


# ---- the program [torch/_export/serde/schema.py]


def _node(value: Any, where: str) -> dict[str, Any]:
    return _NODE(value, where)  # type: ignore[no-any-return]


def _target(value: Any, where: str) -> str:
    """Check an operator; replace empty() by zeros(), so that a program cannot read uninitialized memory."""
    name: str = _operator(value, where)
    return "torch.ops.aten.zeros.default" if name == "torch.ops.aten.empty.memory_format" else name


def _metadata(value: Any, where: str) -> dict[str, Any]:
    """Keep the modules that contain a node."""
    kept = {"nn_module_stack": _stack} if isinstance(value, dict) and "nn_module_stack" in value else {}
    return _record(**kept)(value, where)  # type: ignore[no-any-return]


def _graph(value: Any, where: str) -> dict[str, Any]:
    return _GRAPH(value, where)  # type: ignore[no-any-return]


_HINT = _none_or(_one_of(as_int=_integer, as_bool=_boolean, as_float=_number))
_EXPR = _record(expr_str=_expression, hint=_HINT)
_SYM_INT = _one_of(as_expr=_EXPR, as_int=_integer)
_SYM_FLOAT = _one_of(as_expr=_EXPR, as_float=_number)
_SYM_BOOL = _one_of(as_expr=_EXPR, as_bool=_boolean)
_CPU = _constant({"type": "cpu", "index": None})  # whatever device the program was exported on
_TENSOR_META = _record(
    dtype=_integer,
    sizes=_list(_SYM_INT),
    requires_grad=_constant(False),
    device=_CPU,
    strides=_list(_SYM_INT),
    storage_offset=_SYM_INT,
    layout=_integer,
)
_NAMED = _record(name=_identifier)
_NAMED_INT = _one_of(as_name=_identifier, as_int=_integer)
_NAMED_FLOAT = _one_of(as_name=_identifier, as_float=_number)
_NAMED_BOOL = _one_of(as_name=_identifier, as_bool=_boolean)
_OPTIONAL_TENSOR = _one_of(as_tensor=_NAMED, as_none=_boolean)
_KINDS = {
    "as_none": _boolean,
    "as_tensor": _NAMED,
    "as_tensors": _list(_NAMED),
    "as_optional_tensor": _OPTIONAL_TENSOR,
    "as_optional_tensors": _list(_OPTIONAL_TENSOR),
    "as_int": _integer,
    "as_ints": _list(_integer),
    "as_float": _number,
    "as_floats": _list(_number),
    "as_bool": _boolean,
    "as_bools": _list(_boolean),
    "as_string": _text,
    "as_complex": _record(real=_number, imag=_number),
    "as_sym_int": _NAMED_INT,
    "as_sym_ints": _list(_NAMED_INT),
    "as_sym_float": _NAMED_FLOAT,
    "as_sym_floats": _list(_NAMED_FLOAT),
    "as_sym_bool": _NAMED_BOOL,
    "as_sym_bools": _list(_NAMED_BOOL),
    "as_scalar_type": _integer,
    "as_memory_format": _integer,
    "as_layout": _integer,
    "as_device": _CPU,
}
_ARGUMENT = _one_of(**_KINDS)
_NODE = _record(
    target=_target,
    inputs=_list(
        _record(
            name=_word(r"([A-Za-z_]\w*)?", "the name of an argument"),
            arg=_one_of(**_KINDS, as_graph=_record(name=_identifier, graph=_graph)),
            kind=_none_or(_integer),
        )
    ),
    outputs=_list(_ARGUMENT),
    metadata=_metadata,
    is_hop_single_tensor_return=_none_or(_boolean),
    name=_none_or(_identifier),
)
_GRAPH = _record(
    inputs=_list(_ARGUMENT),
    outputs=_list(_ARGUMENT),
    nodes=_list(_node),
    tensor_values=_map(_identifier, _TENSOR_META),
    sym_int_values=_map(_identifier, _SYM_INT),
    sym_bool_values=_map(_identifier, _SYM_BOOL),
    sym_float_values=_map(_identifier, _SYM_FLOAT),
    is_single_tensor_return=_boolean,
)
_INPUT = _one_of(
    user_input=_record(arg=_ARGUMENT),
    parameter=_record(arg=_NAMED, parameter_name=_path),
    buffer=_record(arg=_NAMED, buffer_name=_path, persistent=_boolean),
    tensor_constant=_record(arg=_NAMED, tensor_constant_name=_path),
    constant_input=_record(
        name=_identifier,
        value=_one_of(as_none=_boolean, as_int=_integer, as_float=_number, as_string=_text, as_bool=_boolean),
    ),
)
_OUTPUT = _one_of(
    user_output=_record(arg=_ARGUMENT),
    buffer_mutation=_record(arg=_NAMED, buffer_name=_path),
    parameter_mutation=_record(arg=_NAMED, parameter_name=_path),
    user_input_mutation=_record(arg=_NAMED, user_input_name=_identifier),
)
_MODULE_CALL = _record(
    fqn=_constant(""),
    signature=_record(
        inputs=_list(_ARGUMENT),
        outputs=_list(_ARGUMENT),
        in_spec=_tree(_identifier),
        out_spec=_tree(_key),
        forward_arg_names=_none_or(_list(_identifier)),
    ),
)


def _module_calls(value: Any, where: str) -> list[Any]:
    """Keep the call of the whole program; those of submodules are only needed to split it into modules."""
    if not isinstance(value, list) or not value:
        _refuse(value, where, "a list of at least one call")
    return [_MODULE_CALL(value[0], f"{where}[0]")]


_PROGRAM = _record(
    graph_module=_record(
        graph=_graph,
        signature=_record(input_specs=_list(_INPUT), output_specs=_list(_OUTPUT)),
        module_call_graph=_module_calls,
        metadata=_constant({}),
        treespec_namedtuple_fields=_constant({}),
    ),
    opset_version=_constant({}),
    range_constraints=_map(_symbol, _record(min_val=_none_or(_integer), max_val=_none_or(_integer))),
    schema_version=_record(major=_integer, minor=_integer),
    verifiers=_list(_word("TRAINING|ATEN", "TRAINING or ATEN")),
    guards_code=_constant([]),
)
_PAYLOAD = _record(
    config=_map(
        _path,
        _record(path_name=_identifier, is_param=_boolean, use_pickle=_boolean, tensor_meta=_none_or(_TENSOR_META)),
    )
)
