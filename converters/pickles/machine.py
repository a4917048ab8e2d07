"""State and building blocks of the pickle machine; `unpickle` has the table of its operations."""

import struct
from collections.abc import Callable, Iterable
from typing import Any

from converters.errors import CorruptFileError, TooLargeError, UnsafePickleError
from converters.limits import AS_TENSORS, Limits
from converters.pickles.allowlist import resolve
from converters.pickles.constructors import construct
from converters.pickles.numpy_values import ArrayRef, DtypeRef
from converters.pickles.standins import (
    JSON_STATE,
    PARTIAL,
    PICTURES,
    Global,
    OrderedMap,
    Standin,
    instance_of,
    key_of,
    named,
)
from converters.tensors import TensorRef


class PickleMachine:
    """State of one run: a stack with marks, a memo, and a position in the bytes."""

    def __init__(
        self,
        data: bytes,
        start: int,
        persistent: Callable[[Any], Any] | None,
        limits: Limits,
    ):
        self.data = data
        self.position = start
        self.end = min(len(data), start + limits.pickle_bytes)
        self.persistent = persistent
        self.limits = limits
        self.steps = 0
        self.copied = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    # -- reading -------------------------------------------------------------------------------

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes; refuses to read past the end."""
        start, stop = self.position, self.position + count
        if stop > self.end:
            if self.end < len(self.data):
                raise TooLargeError(
                    f"the pickle is larger than Limits.pickle_bytes = {self.limits.pickle_bytes}"
                    f"; {AS_TENSORS}"
                )
            raise CorruptFileError(
                f"the pickle ends at byte {self.end}, {stop - self.end} too soon"
            )
        self.position = stop
        return self.data[start:stop]

    def number(self, layout: struct.Struct) -> int:
        return layout.unpack(self.take(layout.size))[0]

    def counted(self, layout: struct.Struct) -> bytes:
        """Bytes preceded by their length, within ``Limits.pickle_text``."""
        count = self.number(layout)
        if count < 0:
            raise CorruptFileError(f"negative length {count} at byte {self.position}")
        if count > self.limits.pickle_text:
            raise TooLargeError(
                f"a value of {count} bytes in the pickle, more than Limits.pickle_text = "
                f"{self.limits.pickle_text}"
            )
        return self.take(count)

    def line(self, longest: int | None = None) -> bytes:
        """Bytes up to the next newline, without it."""
        longest = self.limits.pickle_text if longest is None else longest
        start = self.position
        stop = self.data.find(b"\n", start, min(self.end, start + longest + 1))
        if stop < 0:
            raise CorruptFileError(f"the text line at byte {start} does not end")
        self.position = stop + 1
        return self.data[start:stop]

    def step(self, count: int = 1) -> None:
        """Charge ``count`` steps."""
        self.steps += count
        if self.steps > self.limits.pickle_steps:
            raise TooLargeError(
                f"the pickle takes more steps than Limits.pickle_steps = {self.limits.pickle_steps}"
            )

    def charge(self, values: Iterable[Any]) -> None:
        """Charge for the copies that a call makes of its arguments.

        A pickle can hand the same long list to many calls at two bytes each; without this the
        copies would grow with the square of the file.
        """
        for value in values:
            if isinstance(value, (list, tuple, dict, set, frozenset)):
                self.step(len(value))
            elif isinstance(value, (str, bytes)):
                self.copied += len(value)
        if self.copied > self.limits.pickle_bytes:
            raise TooLargeError(
                f"the pickle copies more text than Limits.pickle_bytes = {self.limits.pickle_bytes}"
                f"; {AS_TENSORS}"
            )

    # -- stack ---------------------------------------------------------------------------------

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise CorruptFileError(f"the pickle takes from an empty stack at byte {self.position}")
        return self.stack.pop()

    def top(self) -> Any:
        value = self.pop()
        self.stack.append(value)
        return value

    def pop_mark(self) -> list[Any]:
        """The values above the last mark, which is removed."""
        if not self.marks:
            raise CorruptFileError(f"the pickle misses a mark at byte {self.position}")
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise CorruptFileError(f"the pickle recalls the unknown memo {index}")
        self.push(self.memo[index])

    # -- building ------------------------------------------------------------------------------

    def set_items(self, values: list[Any]) -> None:
        """Store key, value, key, value, ... in the dict on top of the stack."""
        target = self.top()
        if not isinstance(target, dict) or len(values) % 2:
            raise UnsafePickleError(f"the pickle sets items of a {type(target).__name__}")
        for key, value in zip(values[::2], values[1::2], strict=True):
            target[key_of(key)] = value

    def extend(self, values: list[Any]) -> None:
        target = self.top()
        if type(target) is not list:
            raise UnsafePickleError(f"the pickle appends to a {type(target).__name__}")
        target.extend(values)

    def add_members(self) -> None:
        values = self.pop_mark()
        target = self.top()
        if type(target) is not set:
            raise UnsafePickleError(f"the pickle adds members to a {type(target).__name__}")
        target.update(map(key_of, values))

    def reduce(self) -> None:
        args, target = self.pop(), self.pop()
        if not isinstance(target, Global):
            raise UnsafePickleError(f"the pickle calls a {type(target).__name__}")
        if not isinstance(args, tuple):
            raise CorruptFileError(f"call of {target.name} with a {type(args).__name__}")
        self.charge(args)
        self.push(construct(target, args, self.limits))

    def new_object(self) -> None:
        args, cls = self.pop(), self.pop()
        self.push(instance_of(cls, args))

    def build(self) -> None:
        """Keep the saved state as data; nothing is set on an object and nothing is called."""
        state, target = self.pop(), self.top()
        self.charge(state if isinstance(state, tuple) else (state,))
        if isinstance(target, (DtypeRef, ArrayRef)):
            target.build(state)
        elif isinstance(target, Standin):
            _build_standin(target, state)
        elif not _without_effect(target, state):
            raise UnsafePickleError(f"the pickle sets the state of a {type(target).__name__}")

    def persistent_value(self) -> None:
        identity = self.pop()
        if self.persistent is None:
            raise UnsafePickleError("the pickle refers to an object outside itself")
        self.push(self.persistent(identity))

    def name(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise UnsafePickleError("the pickle builds the name of a global from other values")
        self.push(resolve(module, name))

    def refuse(self, operation: str) -> None:
        raise UnsafePickleError(f"the pickle uses the operation {operation}, which no model needs")


def _without_effect(target: Any, state: Any) -> bool:
    """Whether a state changes nothing that is read.

    A state dict keeps versions of its modules as ``_metadata``; an old Variable its flags and hooks
    in three parts, where four or five would give it another storage; the marker object of old
    modules has no content.
    """
    if isinstance(target, OrderedMap):
        return isinstance(state, dict) and set(state) <= {"_metadata"}
    if isinstance(target, TensorRef):
        return isinstance(state, tuple) and len(state) == 3 and isinstance(state[0], bool)
    return target is None


def _check_partial(target: Standin, state: Any) -> None:
    """The state of a partial names the class once more, and that name is the one that is called."""
    function = state[0] if isinstance(state, tuple) and len(state) == 4 else None
    if not isinstance(function, Global) or function.name != target.state["func"].name:
        raise UnsafePickleError(
            f"the pickle makes a functools.partial of {named(target.state['func'])}, and its state "
            f"one of {named(function)}; expected the same class; nothing was executed",
            global_name=function.name if isinstance(function, Global) else None,
        )


def _build_standin(target: Standin, state: Any) -> None:
    """Take over ``state`` or ``(state, slots)``, dicts with text keys, once."""
    parts = state if isinstance(state, tuple) and len(state) == 2 else (state,)
    if target.class_name in PICTURES:
        return
    if target.built:
        raise UnsafePickleError(f"the pickle sets the state of a {target.class_name} twice")
    if target.class_name == PARTIAL:
        _check_partial(target, state)
        parts = ()
    for part in parts:
        if part is None:
            continue
        if isinstance(part, bytes) and target.class_name.startswith("tokenizers."):
            part = {JSON_STATE: part}
        if not isinstance(part, dict) or not all(isinstance(key, str) for key in part):
            raise CorruptFileError(
                f"the state of a {target.class_name} is a {type(part).__name__}, expected a dict "
                "of attributes"
            )
        target.state.update(part)
    target.built = True
