"""`torch.export`'s files (.pt2), read without executing anything in them.

torch's own reader unpickles what a file asks for, and gives texts in it to `eval`. Here the archive
is opened by our zip reader, weights are read as raw bytes, and every text has to fit a rule
(`exported_names`) before torch sees it: names of operators, of values, symbolic sizes. Tensors that
torch pickled are refused.
"""

import json
import math
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from converters.containers.exported_members import has_program, program_root
from converters.containers.exported_names import check_texts
from converters.containers.exported_numbers import check_numbers
from converters.containers.exported_scopes import inline_scopes
from converters.containers.exported_sizes import LONGEST
from converters.containers.exported_tensors import read_tensors, refuse_shared
from converters.containers.generated_code import checked_code
from converters.containers.zip_file import ZipReader
from converters.errors import (
    ConverterError,
    CorruptFileError,
    LoadError,
    TooLargeError,
    UnknownFormatError,
    safe_repr,
)
from converters.limits import Limits

_JSON_BYTES = 64 * 2**20
_MOST_EXPRESSIONS = 20_000
_MOST_ELEMENTS = 2**28
_WORD = re.compile(r"[a-z]+[0-9]+")
_DEVICES = ("cpu", "cuda", "mps", "xpu", "hpu", "xla")
_reading = threading.Lock()


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
    inline_scopes(program)
    parsed = _parsed(_inert(program))
    check_texts(parsed)
    _refuse_costly(program)
    weights, constants = (
        _tensors(archive, root, name, limits) for name in ("weights", "constants")
    )
    refuse_shared(weights, constants)
    return _deserialized(parsed, weights, constants)


def _tensors(archive: ZipReader, root: str, name: str, limits: Limits) -> dict[str, Any]:
    folder = f"{root}data/{name}/"
    config = f"{folder}model_{name}_config.json"
    return read_tensors(archive, folder, _json(archive, config).get("config"), limits)


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


def _refuse_costly(program: Mapping[str, Any]) -> None:
    """Refuse what would take long to read."""
    expressions = sum(key == "expr_str" for key, _ in _pairs(program))
    if expressions > _MOST_EXPRESSIONS:
        raise TooLargeError(f"more than {_MOST_EXPRESSIONS} symbolic sizes")
    for node in _nodes(program):
        _check_creation(node)
    check_numbers(program["graph_module"]["graph"]["nodes"])


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


def _inert(program: dict[str, Any]) -> dict[str, Any]:
    """The program without what torch reads and no answer needs.

    Guards (Python code), names for the arguments of `forward`, remarks of where calls came from,
    what was called by submodules, ranges of symbols that nothing uses, and devices go.
    """
    for node in _nodes(program):
        stack = node.get("metadata", {}).get("nn_module_stack")
        node["metadata"] = {"nn_module_stack": stack} if isinstance(stack, str) else {}
    sizes: set[str] = set()
    for key, value in _pairs(program):
        if key in ("device", "as_device") and isinstance(value, dict):
            _move_to_cpu(value)
        if key == "expr_str" and isinstance(value, str):
            sizes.update(_WORD.findall(value[:LONGEST]))
    ranges = program.get("range_constraints")
    if isinstance(ranges, dict):
        program["range_constraints"] = {k: v for k, v in ranges.items() if k in sizes}
    _cut_calls(program.get("graph_module"))
    return {**program, "guards_code": []}


def _move_to_cpu(device: dict[str, Any]) -> None:
    if device.get("type") in _DEVICES:
        device.update(type="cpu", index=None)


def _cut_calls(graph_module: Any) -> None:
    """Leave of the calls of modules the whole program's, without names for its arguments."""
    if not isinstance(graph_module, dict):
        return
    graph_module.update(metadata={}, treespec_namedtuple_fields={})
    calls = graph_module.get("module_call_graph")
    if isinstance(calls, list) and calls and isinstance(calls[0], dict):
        graph_module["module_call_graph"] = [{**calls[0], "fqn": calls[0].get("fqn", "")}]
        signature = calls[0].get("signature")
        if isinstance(signature, dict):
            signature["forward_arg_names"] = None


def _parsed(program: dict[str, Any]) -> Any:
    """The program as torch's schema has it: plain objects, of which no text is used yet."""
    from torch._export.serde import schema, serialize

    try:
        return serialize._dict_to_dataclass(schema.ExportedProgram, program)
    except Exception as error:  # torch raises whatever its reader meets in a damaged program
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> CorruptFileError:
    return CorruptFileError(
        f"torch cannot read the exported program: {type(error).__name__}: "
        f"{safe_repr(str(error)[:300])}; export it with this version of torch"
    )


def _deserialized(parsed: Any, weights: dict, constants: dict):
    from torch._export.serde import serialize

    try:
        # torch's reader keeps a global of its own.
        with _reading, checked_code():
            reader = serialize.ExportedProgramDeserializer()
            return reader.deserialize(parsed, weights, constants)
    except ConverterError:
        raise
    except Exception as error:  # torch raises whatever its reader meets in a damaged program
        raise _unreadable(error) from error
