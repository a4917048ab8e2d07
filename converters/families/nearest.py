"""What a file that no family recognises comes closest to, and how it differs from that.

Without this, an error would quote the first names of the file, which are those that fit.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from converters.errors import EXPORT, ConverterError, UnsupportedArchitectureError
from converters.families.computed import how_to_remove, is_computed_from, without_parametrisations
from converters.families.family import Family, Shapes
from converters.families.names import target_of

_SHOWN, _MOST, _LONGEST = 2, 12, 48
# A few names such as `fc.weight` are those of any network.
_FEWEST_FITTING = 4


def refuse_nearly_fitting(families: Iterable[Family[Any]], shapes: Shapes) -> None:
    """Raise for a file whose names are those of a family but for some, or parametrise weights.

    Args:
      families: those that do not recognise it.
      shapes: torch name -> shape of matrices, convolutions and biases.

    Raises:
      UnsupportedArchitectureError: says which family, what is missing, what is unknown, what to do.
    """
    plain = without_parametrisations(shapes)
    for family in families:
        fitting = {n: s for n, s in plain.items() if target_of(family.table, n)}
        missing = [name for name in _certain_names(family) if name not in fitting]
        unknown = [n for n in shapes if n not in fitting and not _is_ignored(family, n)]
        most = len(fitting) >= _FEWEST_FITTING and 2 * len(fitting) > len(plain)
        if most and (missing or unknown) and _would_fit(family, fitting, missing):
            fits = [name for name in fitting if name in shapes]
            raise UnsupportedArchitectureError(
                f"like {family.name}, but {_differences(missing, unknown, shapes, fits)}"
            )
    computed = [name for name in shapes if is_computed_from(name)]
    if computed:
        said = _differences([], computed, shapes, [])
        raise UnsupportedArchitectureError(f"weights are computed when the network runs: {said}")


def _certain_names(family: Family[Any]) -> list[str]:
    """Names that every network of a family has: those of rules without alternatives."""
    patterns = [rule.pattern.replace(r"\.", ".") for rule in family.table]
    return [pattern for pattern in patterns if re.fullmatch(r"[\w.]+", pattern)]


def _is_ignored(family: Family[Any], name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in family.ignored)


def _would_fit(family: Family[Any], fitting: Mapping[str, Any], missing: list[str]) -> bool:
    """Whether the family knows the network once what every one of its networks has is there."""
    supplied = {name: (1, 1) if name.endswith("weight") else (1,) for name in missing}
    try:
        return family.recognise({**fitting, **supplied}) is not None
    except ConverterError:
        return False


def _differences(missing: list[str], unknown: list[str], shapes: Shapes, fits: list[str]) -> str:
    """What differs and what to do: short at first, since records cut the end off."""
    described = [f"{name[:_LONGEST]} {shapes[name]}" for name in unknown]
    parts = [_counted(missing, "missing"), _counted(described, "unknown")]
    text = f"{' and '.join(filter(None, parts))}; {_remedy(unknown)}"
    if fits:
        text += f". {len(fits)} names fit, the first is {fits[0][:_LONGEST]}"
    more = described[_SHOWN:_MOST]
    end = " ..." if len(described) > _MOST else ""
    return f"{text}. Unknown too: {', '.join(more)}{end}" if more else text


def _counted(names: list[str], what: str) -> str:
    if not names:
        return ""
    shown = ", ".join(names[:_SHOWN])
    if len(names) > _SHOWN:
        return f"{len(names)} names are {what}: {shown} ..."
    return f"{shown} {'is' if len(names) == 1 else 'are'} {what}"


def _remedy(unknown: list[str]) -> str:
    code = f"{EXPORT}; or name its code, if you trust it: --network FILE.py:CLASS"
    return how_to_remove(unknown) or code
