"""A pickled module must say one thing.

torch keeps some values twice. A recurrent layer computes from a list of its own, `_flat_weights`,
not from the parameters that its state dict shows; and an attribute stored beside a parameter or
submodule of the same name hides it from the network's code. A file where the two differ computes
something else than what is read out of it, so it is refused.
"""

import re
from typing import Any

from converters.errors import CorruptFileError, safe_repr
from converters.pickles.standins import Standin
from converters.tensors import TensorRef

_KINDS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
_RECURRENT = re.compile(rf"({'|'.join(_KINDS)})_l([0-9]{{1,4}})(_reverse)?")


def check_state(name: str, module: Standin) -> None:
    """Compare what a module says twice.

    Args:
      name: dotted path of the module.
      module: with dicts of text keys as `_parameters`, `_buffers` and `_modules`.

    Raises:
      CorruptFileError: two values differ.
    """
    state = module.state
    for part in ("_parameters", "_buffers", "_modules"):
        hidden = sorted(set(state[part]) & set(state))
        if hidden:
            raise CorruptFileError(
                f"module {safe_repr(name)} has {safe_repr(hidden[0])} as an attribute and in its "
                f"{part}: "
                "the attribute would be used and the other shown; expected one of them"
            )
    parameters = state["_parameters"]
    keys = {key: _RECURRENT.fullmatch(key) for key in parameters}
    names = [key for _, key in sorted((_position(m), key) for key, m in keys.items() if m)]
    _check_list(name, "_flat_weights_names", state, names)
    _check_list(name, "_flat_weights", state, [_place(parameters[key]) for key in names])


def _check_list(name: str, key: str, state: dict[str, Any], wanted: list[Any]) -> None:
    """The list under `key`, where there is one, is that of the parameters in torch's order."""
    got = state.get(key, [])
    alike = isinstance(got, (list, tuple)) and len(got) == len(wanted)
    if key in state and not (alike and [*map(_place, got)] == wanted):
        raise CorruptFileError(
            f"recurrent layer {safe_repr(name)}: its {key}, which torch computes with, are not "
            "those "
            "of its parameters, which its state dict shows; save the model again"
        )


def _position(match: re.Match[str]) -> tuple[int, bool, int]:
    """torch's order: layer, direction, kind."""
    return int(match[2]), match[3] is not None, _KINDS.index(match[1])


def _place(value: Any) -> object:
    """Where in the file a tensor lies and how it is laid out; text as it is, else None."""
    if not isinstance(value, TensorRef):
        return value if isinstance(value, str) else None
    storage = (value.storage.key, value.storage.first, str(value.dtype))
    return *storage, value.offset, value.shape, value.stride
