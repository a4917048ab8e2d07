"""How many tensors one operation may give: each takes memory, even where it is a view or has none.

Sizes are checked elsewhere (`converters.graph.guard`).
"""

from typing import Any

from converters.errors import TooLargeError
from converters.graph.light_mode import LightMode

_MOST_RESULTS = 2**14
_OF_ONE = ("unbind", "unbind_copy")
_OF_SIZE = ("split", "split_copy", "unsafe_split")
_OF_COUNT = ("chunk", "unsafe_chunk", "tensor_split")


class ResultGuard(LightMode):
    """While active, a call of too many results, or too many calls, end in TooLargeError.

    For programs that torch traces without values: nothing else has a size there.

    Attributes:
        calls: most calls.
    """

    def __init__(self, calls: int) -> None:
        super().__init__()
        self._most, self._calls = calls, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self._calls += 1
        if self._calls > self._most:
            raise TooLargeError(
                f"the exported program makes more torch calls than the {self._most} allowed"
            )
        refuse_many_results(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def refuse_many_results(func, args: Any, kwargs: Any) -> None:
    """Raise TooLargeError where an operation would cut a tensor into too many."""
    count = _results(func, args, kwargs)
    if count > _MOST_RESULTS:
        raise TooLargeError(
            f"{func} would make {count} tensors of one, more than the {_MOST_RESULTS} allowed"
        )


def _results(func, args: Any, kwargs: Any) -> int:
    """Tensors that a call cuts one into; 0 where that is not known, or it is another call."""
    name = func.overloadpacket.__name__
    if name not in _OF_ONE + _OF_SIZE + _OF_COUNT:
        return 0
    given = {**dict(zip((one.name for one in func._schema.arguments), args)), **kwargs}  # noqa: B905
    whole, axis = given.get("self"), given.get("dim", 0)
    parts = [v for k, v in given.items() if k in ("split_size", "chunks", "sections")]
    part = parts[0] if parts else 0
    if name in _OF_COUNT:
        return part if isinstance(part, int) else 0
    if not isinstance(axis, int) or whole is None or not -whole.dim() <= axis < whole.dim():
        return 0
    size = whole.shape[axis]
    if not isinstance(size, int) or not isinstance(part, int):
        return 0
    return size if name in _OF_ONE else -(-size // max(part, 1))
