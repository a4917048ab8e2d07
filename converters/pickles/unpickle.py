"""A pickle machine of our own: it builds inert data and can do nothing else.

Python's unpickler calls what a file names. This one has no call at all: names are compared with
`allowlist.resolve`, the allowed constructors are functions of ours, and every other operation
only moves plain values. It runs in one loop, so nesting cannot exhaust the stack, and every
length is checked against the file before it is read. Opcodes as in CPython's ``Lib/pickle.py``.
"""

import codecs
import struct
from collections.abc import Callable
from typing import Any

from converters.errors import CorruptFileError, TooLargeError, UnsafePickleError
from converters.limits import Limits
from converters.pickles.machine import PickleMachine
from converters.pickles.standins import key_of, raw_text

_STOP = ord(".")
# Longest decimal text and longest binary form of a number; torch's magic number takes 10 bytes.
_NUMBER_BYTES = 100
# An empty set takes four times the memory of other small values.
_SET_STEPS = 4


def unpickle(
    data: bytes,
    start: int = 0,
    persistent: Callable[[Any], Any] | None = None,
    limits: Limits | None = None,
) -> tuple[Any, int]:
    """The value of one pickle and the position after it.

    Args:
        data: bytes that hold the pickle.
        start: where it begins.
        persistent: turns a persistent id into an inert value; ids are refused without it.
        limits: caps on size, steps and text.

    Raises:
        UnsafePickleError: it asks for a global or an operation outside the allow-list.
        CorruptFileError: it is truncated or not a well-formed pickle.
        TooLargeError: a cap is exceeded.
    """
    machine = PickleMachine(data, start, persistent, limits or Limits())
    try:
        return _run(machine), machine.position
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"pickle text before byte {machine.position} is invalid") from error


def _run(machine: PickleMachine) -> Any:
    """Perform one operation after the other up to STOP."""
    while True:
        machine.step()
        opcode = machine.take(1)[0]
        if opcode == _STOP:
            return machine.pop()
        operation = _OPERATIONS.get(opcode)
        if operation is None:
            raise CorruptFileError(
                f"byte {opcode:#04x} at {machine.position - 1} is no pickle operation"
            )
        operation(machine)


def _integer(raw: bytes) -> int:
    try:
        return int(raw)
    except ValueError as error:
        raise CorruptFileError(f"{ascii(raw)[:60]} is no integer") from error


def _int_line(machine: PickleMachine) -> None:
    raw = machine.line(_NUMBER_BYTES)
    machine.push({b"00": False, b"01": True}[raw] if raw in (b"00", b"01") else _integer(raw))


def _float_line(machine: PickleMachine) -> None:
    raw = machine.line(_NUMBER_BYTES)
    try:
        machine.push(float(raw))
    except ValueError as error:
        raise CorruptFileError(f"{ascii(raw)[:60]} is no number") from error


def _long(machine: PickleMachine, layout: struct.Struct) -> None:
    count = machine.number(layout)
    if not 0 <= count <= _NUMBER_BYTES:
        raise TooLargeError(f"an integer of {count} bytes; at most {_NUMBER_BYTES} are read")
    machine.push(int.from_bytes(machine.take(count), "little", signed=True))


def _quoted(machine: PickleMachine) -> None:
    """Protocol 0 text of Python 2, ``S'...'``."""
    raw = machine.line().strip()
    if len(raw) < 2 or raw[:1] != raw[-1:] or raw[:1] not in (b"'", b'"'):
        raise CorruptFileError(f"text before byte {machine.position} is not quoted")
    try:
        value, _ = codecs.escape_decode(raw[1:-1])  # type: ignore[attr-defined]
    except ValueError as error:
        raise CorruptFileError(f"text before byte {machine.position} is not valid") from error
    machine.push(raw_text(value))


def _pop(machine: PickleMachine) -> None:
    """Drop one value, or a mark when nothing is above it."""
    if machine.marks and machine.marks[-1] == len(machine.stack):
        machine.marks.pop()
    else:
        machine.pop()


def _mark(machine: PickleMachine) -> None:
    machine.marks.append(len(machine.stack))


def _tuple_of(count: int) -> Callable[[PickleMachine], None]:
    def operation(machine: PickleMachine) -> None:
        values = [machine.pop() for _ in range(count)]
        machine.push(tuple(reversed(values)))

    return operation


def _dict_of(machine: PickleMachine) -> None:
    values = machine.pop_mark()
    machine.push({})
    machine.set_items(values)


def _frozen(machine: PickleMachine) -> None:
    machine.push(frozenset(map(key_of, machine.pop_mark())))


def _empty_set(machine: PickleMachine) -> None:
    machine.step(_SET_STEPS)
    machine.push(set())


def _set_item(machine: PickleMachine) -> None:
    value, key = machine.pop(), machine.pop()
    machine.set_items([key, value])


def _global_lines(machine: PickleMachine) -> None:
    module, name = machine.line(), machine.line()
    machine.name(module.decode("utf-8"), name.decode("utf-8"))


def _instance(machine: PickleMachine) -> None:
    _global_lines(machine)  # Refuses, by its name, a global that is not on the list.
    machine.refuse("INST")


def _stack_global(machine: PickleMachine) -> None:
    name, module = machine.pop(), machine.pop()
    machine.name(module, name)


def _put(read: Callable[[PickleMachine], int]) -> Callable[[PickleMachine], None]:
    def operation(machine: PickleMachine) -> None:
        machine.memo[read(machine)] = machine.top()

    return operation


def _get(read: Callable[[PickleMachine], int]) -> Callable[[PickleMachine], None]:
    return lambda machine: machine.recall(read(machine))


def _extension(layout: struct.Struct) -> Callable[[PickleMachine], None]:
    return lambda machine: machine.refuse(f"EXT (copyreg extension {machine.number(layout)})")


def _text_identity(machine: PickleMachine) -> None:
    raise UnsafePickleError(
        "a pickle of protocol 0, whose persistent ids (operation PERSID) are text and name no "
        "storage; save the model again with torch.save, whose pickle protocol is 2"
    )


_U8, _U16, _I32 = struct.Struct("<B"), struct.Struct("<H"), struct.Struct("<i")
_U32, _U64, _F64 = struct.Struct("<I"), struct.Struct("<Q"), struct.Struct(">d")


def _text(layout: struct.Struct) -> Callable[[PickleMachine], None]:
    return lambda machine: machine.push(machine.counted(layout).decode("utf-8", "surrogatepass"))


def _old_text(layout: struct.Struct) -> Callable[[PickleMachine], None]:
    return lambda machine: machine.push(raw_text(machine.counted(layout)))


def _binary(layout: struct.Struct) -> Callable[[PickleMachine], None]:
    return lambda machine: machine.push(machine.counted(layout))


def _number(layout: struct.Struct) -> Callable[[PickleMachine], None]:
    return lambda machine: machine.push(machine.number(layout))


def _line_number(machine: PickleMachine) -> int:
    return _integer(machine.line(_NUMBER_BYTES))


_OPERATIONS: dict[int, Callable[[PickleMachine], Any]] = {
    ord(code): operation
    for code, operation in {
        "\x80": lambda m: m.take(1),  # PROTO
        "\x95": lambda m: m.take(8),  # FRAME: its length is only a reading hint
        "(": _mark,
        "0": _pop,
        "1": lambda m: m.pop_mark(),
        "2": lambda m: m.push(m.top()),
        "N": lambda m: m.push(None),
        "\x88": lambda m: m.push(True),
        "\x89": lambda m: m.push(False),
        "I": _int_line,
        "L": lambda m: m.push(_integer(m.line(_NUMBER_BYTES).rstrip(b"L"))),
        "F": _float_line,
        "J": _number(_I32),
        "K": _number(_U8),
        "M": _number(_U16),
        "G": _number(_F64),
        "\x8a": lambda m: _long(m, _U8),
        "\x8b": lambda m: _long(m, _I32),
        "S": _quoted,
        "V": lambda m: m.push(m.line().decode("raw-unicode-escape")),
        "T": _old_text(_I32),
        "U": _old_text(_U8),
        "X": _text(_U32),
        "\x8c": _text(_U8),
        "\x8d": _text(_U64),
        "B": _binary(_U32),
        "C": _binary(_U8),
        "\x8e": _binary(_U64),
        "\x96": _binary(_U64),  # BYTEARRAY8
        ")": lambda m: m.push(()),
        "]": lambda m: m.push([]),
        "}": lambda m: m.push({}),
        "\x8f": _empty_set,
        "t": lambda m: m.push(tuple(m.pop_mark())),
        "\x85": _tuple_of(1),
        "\x86": _tuple_of(2),
        "\x87": _tuple_of(3),
        "l": lambda m: m.push(m.pop_mark()),
        "d": _dict_of,
        "\x91": _frozen,
        "a": lambda m: m.extend([m.pop()]),
        "e": lambda m: m.extend(m.pop_mark()),
        "s": _set_item,
        "u": lambda m: m.set_items(m.pop_mark()),
        "\x90": lambda m: m.add_members(),
        "p": _put(_line_number),
        "q": _put(lambda m: m.number(_U8)),
        "r": _put(lambda m: m.number(_U32)),
        "\x94": _put(lambda m: len(m.memo)),  # MEMOIZE
        "g": _get(_line_number),
        "h": _get(lambda m: m.number(_U8)),
        "j": _get(lambda m: m.number(_U32)),
        "c": _global_lines,
        "\x93": _stack_global,
        "i": _instance,
        "o": lambda m: m.refuse("OBJ"),
        "\x81": lambda m: m.new_object(),
        "\x92": lambda m: m.refuse("NEWOBJ_EX"),
        "R": lambda m: m.reduce(),
        "b": lambda m: m.build(),
        "Q": lambda m: m.persistent_value(),
        "P": _text_identity,
        "\x82": _extension(_U8),
        "\x83": _extension(_U16),
        "\x84": _extension(_I32),
        "\x97": lambda m: m.refuse("NEXT_BUFFER"),
        "\x98": lambda m: m.refuse("READONLY_BUFFER"),
    }.items()
}
