"""Which of several outputs of a network holds the logits: one rule for all formats."""

from collections.abc import Sequence
from typing import Any

import torch

from converters.errors import ConversionError, safe_repr
from converters.graph.recorder import Captured

_LOGITS = "logits"
_WHOLE = ("int", "uint", "bool")
_SHOWN = 10


def output_number(names: Sequence[str], whole: Sequence[bool], wanted: str | None) -> int:
    """The number of the output that is scanned.

    Without a name it is the one called `logits`, else the only one that is no whole numbers, such
    as the class beside it, else the first.

    Args:
        names: of the outputs, at least one.
        whole: whether each holds whole numbers.
        wanted: the name that the user gave.

    Raises:
        ConversionError: there is none of that name, or whole numbers stand first and no single
            other output holds none.
    """
    if wanted is not None:
        if wanted not in names:
            raise ConversionError(
                f"there is no output {safe_repr(wanted)}; the outputs are {_listed(names)}"
            )
        return list(names).index(wanted)
    called = [k for k, name in enumerate(names) if name.lower() == _LOGITS and not whole[k]]
    scores = called if len(called) == 1 else [k for k, is_whole in enumerate(whole) if not is_whole]
    if len(scores) == 1 or not whole[0]:
        return scores[0]
    raise ConversionError(
        f"output {safe_repr(names[0])} holds whole numbers, expected logits; name the output that "
        f"holds them with --output, of {_listed(names)}"
    )


def taken_finding(names: Sequence[str], number: int, said: str | None) -> tuple[str, ...]:
    """Which output was taken, where there are several and the user named none."""
    others = [name for k, name in enumerate(names) if k != number]
    if said is not None or not others:
        return ()
    shown = ", ".join(safe_repr(name) for name in others[: _SHOWN - 1])
    return (f"output {safe_repr(names[number])} was taken for the logits; others: {shown}",)


def output_of(
    captured: Captured, wanted: str | None, names: Sequence[str] = ()
) -> tuple[int, tuple[str, ...]]:
    """The number of a captured network's output that is scanned, and the finding that says so.

    Args:
        captured: with outputs that are tensors alone.
        wanted: the name that the user gave.
        names: of the outputs; those in `captured` if not given.

    Raises:
        ConversionError: see `output_number`.
    """
    graph = captured.graph
    names = names or captured.output_names or [str(k) for k in range(len(graph.outputs))]
    whole = [graph.specs[ref.name].dtype.startswith(_WHOLE) for ref in graph.outputs]
    number = output_number(names, whole, wanted)
    return number, taken_finding(names, number, wanted)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(safe_repr(name) for name in names[:_SHOWN])


def named_tensors(value: Any, name: str = "") -> list[tuple[str, torch.Tensor]]:
    """The tensors that a module returns, each with its keys and numbers between dots; no None."""
    if isinstance(value, torch.Tensor):
        return [(name or "0", value)]
    if isinstance(value, (dict, tuple, list)):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        front = f"{name}." if name else ""
        return [pair for key, part in parts for pair in named_tensors(part, f"{front}{key}")]
    if value is None:
        return []
    raise ConversionError(f"the module returned a {type(value).__name__}; expected tensors")
