"""What values settings may have: their kinds first, and of those that fit their ranges."""

import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from converters.errors import safe_repr
from jaxtroj.evidence.stages import TABLES
from jaxtroj.input_forms import CHANNEL_ORDERS, NORMALIZATIONS

EVEN_ODDS = 0.5
MOST_COUNT = 1e15
"""Pictures of a class: sums of more would not be exact, or finite."""
MOST_PIXELS = 4096
"""Of a side of a picture."""
_MOST_BITS = 128  # of numbers that messages show in full


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_seed(value: object) -> bool:
    """What jax and NumPy both make a key of: an integer of 63 bits."""
    return isinstance(value, Integral) and _is_whole(value) and 0 <= int(value) < 2**63


def _are_numbers(value: object) -> bool:
    return isinstance(value, Sequence) and all(map(_is_number, value))


def _is_size(value: object) -> bool:
    return isinstance(value, Sequence) and len(value) == 2 and all(map(_is_whole, value))


def names_problem(value: object) -> str:
    """Why a value is no list of names, in words; "" for None and for one that is.

    >>> names_problem("weights"), names_problem(("weights",)), names_problem((1,))
    ("expected a tuple of names, got the text 'weights'", '', 'expected a tuple of names, got (1)')
    """
    if isinstance(value, str):
        return f"expected a tuple of names, got the text {safe_repr(value)}"
    are_names = isinstance(value, Sequence) and all(isinstance(name, str) for name in value)
    return "" if value is None or are_names else f"expected a tuple of names, got {shown(value)}"


NUMBERS = {
    "seed": (_is_seed, "a whole number from 0 to 2**63 - 1"),
    "base_rate": (_is_number, "a number between 0 and 1"),
    "threshold": (_is_number, "a number between 0 and 1"),
    "enough": (_is_number, f"a number between 0 and {EVEN_ODDS}"),
    "examples_per_class": (_is_whole, "a whole number of at least 1"),
    "class_counts": (_are_numbers, "numbers above 0, one for each class"),
    "bounds": (_are_numbers, "two different finite numbers"),
    "mean": (_are_numbers, "finite numbers, one for each channel"),
    "std": (_are_numbers, "finite numbers above 0, one for each channel"),
    "resize": (_is_whole, f"a whole number from 1 to {MOST_PIXELS}"),
    "image_size": (_is_size, f"height and width, whole numbers from 1 to {MOST_PIXELS}"),
}
"""Setting -> what its value must be, before its range is looked at, and that in words."""
OPEN = frozenset(NUMBERS) - {"seed", "threshold"}
"""Those of them that may be None."""
FLAGS = ("early_stop", "recover_words")
PATHS = ("calibrator", "text_calibrator", "classifier_calibrator", "reference", "bank")
PATHS += ("encoder", "tokenizer")
WORDS = ("channel_order", "normalization", "layout", "output", "public_code")
"""Settings that are true or false; a path or None; a text or None."""
_KINDS = (
    (FLAGS, lambda value: isinstance(value, bool), "True or False"),
    (PATHS, lambda value: is_path(value) or value is None, "a path or None"),
    (("special_calibrators",), lambda value: _are_paths(value), "a tuple of paths"),
    (("round_calibrators",), lambda value: _are_pairs(value), "a tuple of pairs (round, path)"),
    (WORDS, lambda value: isinstance(value, str | None), "a text or None"),
)


def path_problem(value: object) -> str:
    """Why a value cannot be the path of a file, in words; "" for one that can.

    >>> path_problem("a b"), path_problem("a\\0b"), path_problem(3)
    ('', "'a\\\\x00b', which holds a NUL character", 'of type int')
    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str):
        return f"of type {type(value).__name__}"
    if "\0" in text:
        return f"{safe_repr(text)}, which holds a NUL character"
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return f"{safe_repr(text)}, which holds half of a character"
    return ""


def is_path(value: object) -> bool:
    """Whether a value can be the path of a file."""
    return not path_problem(value)


def _are_paths(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(map(is_path, value))


def _are_pairs(value: object) -> bool:
    return isinstance(value, Sequence) and all(
        isinstance(pair, tuple | list)
        and len(pair) == 2
        and isinstance(pair[0], str)
        and is_path(pair[1])
        for pair in value
    )


def kind_problems(values: Mapping[str, Any]) -> list[str]:
    """A sentence for each value that is no number or name, or not as many, where it must be.

    Args:
        values: name -> value of every setting.
    """
    found = []
    for name, (is_fit, expected) in NUMBERS.items():
        value = values[name]
        if not is_fit(value) and not (value is None and name in OPEN):
            found.append(f"{name} must be {expected}, got {shown(value)}")
    for names, is_fit, expected in _KINDS:
        found += [
            f"{name} must be {expected}, got {shown(values[name])}"
            for name in names
            if not is_fit(values[name])
        ]
    if problem := names_problem(values["stages"]):
        found.append(f"stages: {problem}")
    return found


def range_problems(values: Mapping[str, Any]) -> list[str]:
    """A sentence for each value that is outside its range; all are of their kinds.

    Args:
        values: as for `kind_problems`.
    """
    return [problem for found in _RANGES if (problem := found(values))]


def _of_share(name: str) -> Callable[[Mapping[str, Any]], str]:
    def found(values: Mapping[str, Any]) -> str:
        value = values[name]
        is_fit = value is None or 0 < value < 1
        return "" if is_fit else f"{name} must lie between 0 and 1, got {value}"

    return found


def _of_enough(values: Mapping[str, Any]) -> str:
    enough, stops = values["enough"], values["early_stop"]
    if enough is None or (0 < enough < EVEN_ODDS and stops):
        return ""
    return (
        f"enough must lie between 0 and {EVEN_ODDS}, and early_stop be on, got {enough} and"
        f" {'on' if stops else 'off'}"
    )


def _of_stages(values: Mapping[str, Any]) -> str:
    stages = values["stages"]
    if stages is None or any(table.holds(stages) for table in TABLES.values()):
        return ""
    known = " or of ".join(f"{', '.join(t.names)} ({k} models)" for k, t in TABLES.items())
    return f"stages must be some of {known} in this order, got {', '.join(stages) or 'none'}"


def _of_name(name: str, known: Sequence[str]) -> Callable[[Mapping[str, Any]], str]:
    def found(values: Mapping[str, Any]) -> str:
        is_known = values[name] in (None, *known)
        return "" if is_known else f"{name} must be one of {known} or None"

    return found


def _of_examples(values: Mapping[str, Any]) -> str:
    count = values["examples_per_class"]
    is_fit = count is None or count >= 1
    return "" if is_fit else f"examples_per_class must be at least 1, got {count}"


def _of_counts(values: Mapping[str, Any]) -> str:
    counts = values["class_counts"]
    if counts is None or (len(counts) > 1 and all(0 < n <= MOST_COUNT for n in counts)):
        return ""
    return (
        f"class_counts must be numbers above 0 and at most {MOST_COUNT:g}, two or more, got"
        f" {shown(counts)}"
    )


def _of_resize(values: Mapping[str, Any]) -> str:
    pixels = values["resize"]
    is_fit = pixels is None or 1 <= pixels <= MOST_PIXELS
    return "" if is_fit else f"resize must be from 1 to {MOST_PIXELS} pixels, got {pixels}"


def _of_cut(values: Mapping[str, Any]) -> str:
    """What is cut out of a resized picture lies within it."""
    pixels, size = values["resize"], values["image_size"]
    if pixels is None or max(size or (0,)) <= pixels:
        return ""
    return f"resize must be at least the sides of image_size, {shown(size)}, got {pixels}"


_RANGES = (
    _of_share("base_rate"),
    _of_share("threshold"),
    _of_enough,
    _of_stages,
    _of_name("channel_order", CHANNEL_ORDERS),
    _of_name("normalization", NORMALIZATIONS),
    _of_examples,
    _of_counts,
    _of_resize,
    _of_cut,
)


def shown(value: object) -> str:
    """A value for a message, short whatever it is.

    >>> shown((64, 10**40))
    '(64, an integer of more than 20 digits)'
    """
    if isinstance(value, os.PathLike):
        return safe_repr(os.fspath(value))
    if isinstance(value, tuple | list):
        return f"({', '.join(map(shown, value))})"
    if isinstance(value, int) and value.bit_length() <= _MOST_BITS:
        return str(value)
    return safe_repr(value)
