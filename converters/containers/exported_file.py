"""`torch.export`'s files (.pt2), read without executing anything in them.

torch's own reader unpickles what a file asks for, and gives texts in it to `eval`. Here the archive
is opened by our zip reader, weights are read as raw bytes, only ATen operators are let through, and
every symbolic size is parsed as arithmetic before torch sees it. Tensors that torch pickled are
refused.
"""

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from converters.containers.exported_members import has_program, program_root
from converters.containers.zip_file import ZipReader
from converters.errors import (
    CorruptFileError,
    LoadError,
    TooLargeError,
    UnknownFormatError,
    UnsupportedOperatorError,
    safe_repr,
)
from converters.limits import Limits

_JSON_BYTES = 64 * 2**20
_LONGEST_EXPRESSION = 4000
# Simplifying takes time that grows with the square of these, and for extremes far faster.
_MOST_CALLS, _MOST_OPERANDS, _MOST_EXTREMES = 200, 32, 4
_MOST_EXPRESSIONS = 20_000
_MOST_ELEMENTS = 2**28
# `from_file` opens whatever path stands in the graph.
_OPERATOR = re.compile(
    r"torch\.ops\.aten\.(?!from_file\b)\w+\.\w+|torch\.sym_(?:max|min|int|float|not|ite|sum)"
    r"|_operator\.(?:getitem|mul|add|sub|floordiv|truediv|mod|neg|eq|ne|lt|le|gt|ge|and_|or_)"
    r"|math\.(?:ceil|floor|trunc|sqrt)"
)
_SPEC_KEYS = {"type", "context", "children_spec"}
_CONTAINERS = (None, "builtins.tuple", "builtins.list", "builtins.dict")
_SYMBOL = re.compile(r"[a-z]{1,8}\d{1,9}")
_FUNCTIONS = frozenset(
    "Add Mul Pow Max Min Integer Symbol FloorDiv ModularIndexing Where PythonMod Mod CleanDiv "
    "CeilToInt FloorToInt CeilDiv TruncToInt RoundToInt IntTrueDiv ToFloat Identity Eq Ne Lt Le "
    "Gt Ge And Or Not Equality Unequality StrictLessThan LessThan StrictGreaterThan GreaterThan"
    .split()
)  # fmt: skip
_ARITHMETIC = (
    ast.Expression, ast.Call, ast.Name, ast.Load, ast.Constant, ast.keyword, ast.BinOp, ast.UnaryOp,
    ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.USub, ast.Compare, ast.Eq, ast.NotEq,
    ast.Lt, ast.LtE, ast.Gt, ast.GtE,
)  # fmt: skip
# Numbers of the element types in torch's schema.
_TYPES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32",
          8: "float64", 12: "bool", 13: "bfloat16"}  # fmt: skip


def is_exported(data: bytes, limits: Limits) -> bool:
    """Whether the bytes of a zip are those of an exported program.

    A damaged zip is none: who reads it as a torch zip says what is wrong with it, and where it is.
    """
    try:
        return has_program(ZipReader(data, limits))
    except LoadError:
        return False


def read_exported(data: bytes, limits: Limits):
    """The `torch.export.ExportedProgram` in the bytes of a .pt2 file.

    Raises:
      UnknownFormatError: not one program alone, or written by a torch before 2.9.
      CorruptFileError: members or tensors contradict each other.
      UnsupportedOperatorError: it calls something besides ATen operators.
      TooLargeError: a cap is exceeded.
    """
    archive = ZipReader(data, limits)
    root = program_root(archive)
    program = _json(archive, f"{root}models/model.json")
    _refuse_foreign(program)
    weights = _tensors(archive, f"{root}data/weights/", "model_weights_config.json", limits)
    constants = _tensors(archive, f"{root}data/constants/", "model_constants_config.json", limits)
    _refuse_shared(weights, constants)
    return _deserialized(_inert(program), weights, constants)


def _json(archive: ZipReader, name: str) -> dict[str, Any]:
    member = archive.members.get(name)
    if member is None:
        raise UnknownFormatError(
            f"the exported program lacks {safe_repr(name)}; export it with torch 2.9 or newer"
        )
    if member.size > _JSON_BYTES:
        raise TooLargeError(
            f"{safe_repr(name)} has {member.size} bytes, expected at most {_JSON_BYTES}"
        )
    try:
        value = json.loads(bytes(archive.read(name)), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{safe_repr(name)} is no JSON: {safe_repr(str(error))}") from error
    if not isinstance(value, dict):
        raise CorruptFileError(f"{safe_repr(name)} holds {safe_repr(value)}, expected an object")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; raises ValueError where a key is there twice, for readers differ on it."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _refuse_foreign(program: Mapping[str, Any]) -> None:
    """Refuse what torch would run or import while it reads the program."""
    expressions = 0
    for key, value in _pairs(program):
        if key == "target" and isinstance(value, str) and not _OPERATOR.fullmatch(value):
            raise UnsupportedOperatorError(
                f"the exported program calls {safe_repr(value)}; only ATen operators are "
                "supported, "
                f"nothing was executed{_branches(value)}",
                value[:200],
            )
        if key == "expr_str":
            expressions += 1
            _check_expression(value)
            if expressions > _MOST_EXPRESSIONS:
                raise TooLargeError(f"more than {_MOST_EXPRESSIONS} symbolic sizes")
        if key in ("in_spec", "out_spec"):
            _check_structure(value)
    for node in _nodes(program):
        _check_creation(node)


def _branches(target: str) -> str:
    """What is said of a call that chooses what to run by values."""
    if not re.search(r"\b(cond|while_loop|switch|map_impl)\b", target):
        return ""
    return "; a branch or loop on values of the image is a possible architectural backdoor"


def _pairs(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key with its value; of lists, the parts. A stack of its own: depth is the file's."""
    pending = [("", value)]
    while pending:
        key, current = pending.pop()
        if isinstance(current, dict):
            # What a node's argument is called may be "target" as well; those hold objects.
            pending += current.items()
        elif isinstance(current, list):
            pending += [("", part) for part in current]
        yield key, current


def _nodes(program: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for _, value in _pairs(program):
        if isinstance(value, dict) and isinstance(value.get("target"), str) and "inputs" in value:
            yield value


def _check_expression(text: Any) -> None:
    """Refuse a symbolic size that is more than arithmetic."""
    try:
        if not isinstance(text, str) or len(text) > _LONGEST_EXPRESSION:
            raise ValueError("no short text")
        parts = list(ast.walk(ast.parse(text, mode="eval")))
        _check_effort(parts)
        for part in parts:
            _check_part(part)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise CorruptFileError(
            f"the size {safe_repr(text)} in the exported program is no arithmetic: {error}"
        ) from error


def _check_effort(parts: list[ast.AST]) -> None:
    """Refuse an expression that takes long to simplify."""
    calls = [part for part in parts if isinstance(part, ast.Call)]
    sums = sum(isinstance(part, ast.BinOp) for part in parts)
    names = [part.func.id for part in calls if isinstance(part.func, ast.Name)]
    extremes = [part for part, name in zip(calls, names, strict=False) if name in ("Max", "Min")]
    operands = max((len(part.args) for part in calls), default=0)
    fewer = max((len(part.args) for part in extremes), default=0)
    if (
        len(calls) + sums > _MOST_CALLS
        or operands > _MOST_OPERANDS
        or max(len(extremes), fewer) > _MOST_EXTREMES
        or names.count("Pow") > _MOST_EXTREMES
    ):
        raise ValueError("it has more terms, extremes or powers than sizes of a network have")


def _check_part(part: ast.AST) -> None:
    if not isinstance(part, _ARITHMETIC):
        raise ValueError(f"{type(part).__name__} in it")
    if isinstance(part, ast.Call):
        if not isinstance(part.func, ast.Name) or part.func.id not in _FUNCTIONS:
            raise ValueError("it calls an unknown function")
        if part.func.id == "Pow" and not _is_small_power(part):
            raise ValueError("a power in it is not small")
    if isinstance(part, ast.Name) and part.id not in _FUNCTIONS and not _SYMBOL.fullmatch(part.id):
        raise ValueError("an unknown name in it")
    if isinstance(part, ast.Constant):
        known = isinstance(part.value, bool) or isinstance(part.value, int)
        symbol = isinstance(part.value, str) and _SYMBOL.fullmatch(part.value)
        if not known and not symbol:
            raise ValueError("an unknown constant in it")


def _is_small_power(call: ast.Call) -> bool:
    exponent = call.args[1] if len(call.args) == 2 else None
    text = "" if exponent is None else ast.unparse(exponent)
    return re.fullmatch(r"Integer\(-?[0-4]\)|-?[0-4]", text) is not None


def _check_creation(node: Mapping[str, Any]) -> None:
    """Refuse a tensor of absurd size that depends on nothing: it would be computed on reading."""
    arguments = [list(_pairs(argument)) for argument in node["inputs"]]
    if any(key in ("as_tensor", "as_tensors") for pairs in arguments for key, _ in pairs):
        return
    for pairs in arguments:
        values = [v for k, v in pairs if k in ("as_int", "as_float")]
        values += [n for k, v in pairs if k == "as_ints" and isinstance(v, list) for n in v]
        # Ends of slices are written as the largest integer; they make nothing.
        whole = [abs(n) for n in values if isinstance(n, int | float) and 1 < abs(n) < 2**62]
        if math.prod(whole) > _MOST_ELEMENTS:
            raise TooLargeError(
                f"{safe_repr(node['target'])} in the exported program makes a tensor of more than "
                f"{_MOST_ELEMENTS} elements out of nothing"
            )


def _check_structure(text: Any) -> None:
    """Refuse a description of inputs or outputs that names more than plain containers."""
    try:
        pending = [json.loads(text)]
        while pending:
            part = pending.pop()
            if isinstance(part, list):
                pending += part
            elif isinstance(part, dict):
                context = json.loads(part.get("context") or "null")
                flat = context is None or all(isinstance(key, str | int) for key in context)
                if set(part) != _SPEC_KEYS or part["type"] not in _CONTAINERS or not flat:
                    raise ValueError("an unknown container in it")
                pending += part["children_spec"]
    except (ValueError, TypeError, RecursionError) as error:
        raise CorruptFileError(
            f"inputs or outputs of the exported program are no plain containers: {error}"
        ) from error


def _tensors(archive: ZipReader, folder: str, config: str, limits: Limits) -> dict[str, Any]:
    """Tensors of a folder of the archive as torch tensors that share the file's memory."""
    import torch

    entries = _json(archive, folder + config).get("config")
    if not isinstance(entries, dict) or len(entries) > limits.tensors:
        raise CorruptFileError(f"{safe_repr(folder + config)} lists no tensors, or too many")
    room = limits.view_ratio * max(len(archive.data), limits.free_expansion_bytes)
    tensors: dict[str, Any] = {}
    types: dict[str, int] = {}
    for name, entry in entries.items():
        array = _array(archive, folder, name, entry)
        _refuse_two_types(types, name, entry)
        room -= array.nbytes
        if room < 0 or array.nbytes > limits.tensor_bytes:
            raise TooLargeError(f"tensor {safe_repr(name)} exceeds the caps on memory of one file")
        # NumPy makes one axis of none, and torch's types depend on whether there is any.
        whole = np.ascontiguousarray(array).reshape(array.shape)
        tensors[name] = _torch_tensor(torch, whole, entry)
    return tensors


def _refuse_two_types(types: dict[str, int], name: str, entry: Mapping[str, Any]) -> None:
    """Refuse a second element type of one member: torch reads all of it by the first entry's.

    Args:
      types: of the members so far; that of the entry's is added.
    """
    path, dtype = entry["path_name"], entry["tensor_meta"]["dtype"]
    if types.setdefault(path, dtype) != dtype:
        raise CorruptFileError(
            f"tensor {safe_repr(name)} of the exported program is {_TYPES[dtype]} and another in"
            f" {safe_repr(path)} is {_TYPES[types[path]]}, expected one element type; export the"
            " network again"
        )


def _refuse_shared(weights: Mapping[str, Any], constants: Mapping[str, Any]) -> None:
    """Refuse a name in both tables: torch picks by what the graph says the tensor is."""
    shared = [name for name in weights if name in constants]
    if shared:
        raise CorruptFileError(
            f"{safe_repr(shared[0])} of the exported program is both a weight and a constant,"
            " expected one of them; export the network again"
        )


def _array(archive: ZipReader, folder: str, name: str, entry: Any) -> np.ndarray:
    if not isinstance(entry, dict) or entry.get("use_pickle") or not entry.get("tensor_meta"):
        raise LoadError(
            f"{safe_repr(name)} of the exported program is a pickled object; only plain tensors "
            "are "
            "read, nothing was executed"
        )
    try:
        meta = entry["tensor_meta"]
        dtype = _numpy_type(_TYPES[meta["dtype"]])
        sizes = [part["as_int"] for part in meta["sizes"]]
        strides = [part["as_int"] for part in meta["strides"]]
        offset = meta["storage_offset"]["as_int"]
        content = archive.read(folder + entry["path_name"])
    except (KeyError, TypeError) as error:
        raise CorruptFileError(
            f"tensor {safe_repr(name)} is described wrongly: {error!r}"
        ) from error
    numbers = [*sizes, *strides, offset]
    if not all(isinstance(n, int) and 0 <= n < 2**40 for n in numbers):
        raise CorruptFileError(f"tensor {safe_repr(name)} has sizes that are no counts")
    if len(sizes) != len(strides) or len(content) % dtype.itemsize:
        raise CorruptFileError(f"tensor {safe_repr(name)} contradicts its bytes")
    if not math.prod(sizes):
        return np.zeros(sizes, dtype)
    last = offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    flat = np.frombuffer(content, dtype)
    if last >= len(flat):
        raise CorruptFileError(
            f"tensor {safe_repr(name)} reaches element {last} of {len(flat)}; the file is damaged"
        )
    steps = [stride * dtype.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(flat[offset:], sizes, steps, writeable=False)


def _numpy_type(name: str) -> np.dtype:
    return np.dtype(np.uint16) if name == "bfloat16" else np.dtype(name)


def _torch_tensor(torch, array: np.ndarray, entry: Mapping[str, Any]):
    tensor = torch.from_numpy(array.copy())
    if entry["tensor_meta"]["dtype"] == 13:
        tensor = tensor.view(torch.bfloat16)
    return torch.nn.Parameter(tensor, requires_grad=False) if entry.get("is_param") else tensor


def _inert(program: dict[str, Any]) -> dict[str, Any]:
    """The program without guards (Python code) and without remarks of where calls came from."""
    for node in _nodes(program):
        stack = node.get("metadata", {}).get("nn_module_stack")
        node["metadata"] = {"nn_module_stack": stack} if isinstance(stack, str) else {}
    return {**program, "guards_code": []}


def _deserialized(program: dict[str, Any], weights: dict, constants: dict):
    from torch._export.serde import schema, serialize

    try:
        parsed: Any = serialize._dict_to_dataclass(schema.ExportedProgram, program)
        return serialize.ExportedProgramDeserializer().deserialize(parsed, weights, constants)
    except Exception as error:  # torch raises whatever its reader meets in a damaged program
        raise CorruptFileError(
            f"torch cannot read the exported program: {type(error).__name__}: "
            f"{safe_repr(str(error)[:300])}; export it with this version of torch"
        ) from error
