"""What the fields of a record may hold: a line of a run folder may come from anyone.

Every command that reads records relies on this, so what is odd is refused where a line is read.
"""

import math
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from converters.errors import safe_repr

STATUSES = ("ok", "failed", "skipped")
KINDS = ("image", "text", "text-classifier")
"""Kinds of model; those of `jaxtroj.evidence.stages.TABLES`."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LARGEST = sys.float_info.max
_DEEPEST = 8
_NESTS = (dict, list)
_MOST_CLASSES = 2**31
_LONGEST_SECONDS = 1e12  # of a step; their sum over steps is a number too

Rule = tuple[Callable[[Any], bool], str]
"""Whether a value is one that a scan would write, and what is expected in words."""
Range = tuple[float, float, str]
"""Least and largest number, and both in words."""
Odd = tuple[str, object, str]
"""Where it stands, the value, and what is expected there."""


def odd_value(values: Mapping[str, Any]) -> str:
    """The first of a record's fields that no scan would write, in words; "" where all is well.

    Args:
        values: of every field of a record, as they were read from JSON.
    """
    for place, value, expected in _odd(values):
        return f"{place} is {safe_repr(value)}, expected {expected} that a scan would write"
    return ""


def _odd(values: Mapping[str, Any]) -> Iterator[Odd]:
    for name, (fits, expected) in _PLAIN.items():
        if not fits(values[name]):
            yield name, values[name], expected
    for name, rule in _LISTS.items():
        yield from _odd_list(name, values[name], rule)
    for name, within in _NUMBERS.items():
        yield from _odd_numbers(name, values[name], within)
    for name, rules in _OBJECTS.items():
        yield from _odd_object(name, values[name], rules)
    yield from _incomplete(values["recovered"], values["input_form"])


def _odd_list(name: str, found: Any, rule: Rule) -> Iterator[Odd]:
    fits, expected = rule
    if not isinstance(found, list):
        yield name, found, "a list"
    elif not all(map(fits, found)):
        place = next(i for i, one in enumerate(found) if not fits(one))
        yield f"{name}[{place}]", found[place], expected


def _odd_numbers(name: str, found: Any, within: Range) -> Iterator[Odd]:
    """An object of numbers, all of one kind; a hundred in most records, so this must be quick."""
    low, high, expected = within
    if not isinstance(found, dict):
        yield name, found, "an object"
    elif not _all_within(found.values(), low, high):
        key = next(key for key, one in found.items() if not _all_within([one], low, high))
        yield f"{name} of {safe_repr(key)}", found[key], expected
    elif not is_unicode("".join(found)):
        yield f"a name in {name}", next(key for key in found if not is_unicode(key)), "a text"


def _odd_object(name: str, found: Any, rules: Mapping[str, Rule]) -> Iterator[Odd]:
    """An object of which some names are read; others may hold anything that JSON can say."""
    if not isinstance(found, dict):
        yield name, found, "an object"
        return
    for key, (fits, expected) in rules.items():
        if key in found and not fits(found[key]):
            yield f"{name} of {safe_repr(key)}", found[key], expected
    if not has_whole_texts(found):
        yield name, found, "no half of a surrogate pair in it, as"
    if not _is_plain(found, _DEEPEST):
        yield name, found, f"finite numbers in it, and at most {_DEEPEST} objects in one another,"


def _incomplete(recovered: Mapping[str, Any], form: Mapping[str, Any]) -> Iterator[Odd]:
    """Objects that lack what lines for people show of them."""
    if recovered.get("method") == "words":
        wanted = {*_RATES, "words" if "text" not in recovered else "text"}
        if lacking := sorted(wanted - recovered.keys()):
            yield "recovered", recovered, f"the {' and '.join(lacking)} of a search for words"
    if "basis" in form and "name" not in form:
        yield "input_form", form, "the name of a form"


def is_unicode(text: str) -> bool:
    """Whether a text holds characters only: UTF-8, and so strict JSON, has no half of a pair."""
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def has_whole_texts(value: Any) -> bool:
    r"""Whether all texts and names in a value of JSON are `is_unicode`, at any depth.

    >>> has_whole_texts({"a": ["b", {"\U0001f600": 1}]}), has_whole_texts([{"\ud83d": 1}])
    (True, False)
    """
    layer = [value]
    while layer:
        names = [name for one in layer if type(one) is dict for name in one]
        if not is_unicode("".join([*names, *(one for one in layer if type(one) is str)])):
            return False
        nests = [one.values() if type(one) is dict else one for one in layer if type(one) in _NESTS]
        layer = [part for parts in nests for part in parts]
    return True


def _is_text(value: object) -> bool:
    return isinstance(value, str) and is_unicode(value)


def _is_text_or_none(value: object) -> bool:
    return value is None or _is_text(value)


def _is_plain(value: Any, depth: int) -> bool:
    """Whether all numbers in it are finite (1e999 is read as infinity) and it is not too deep."""
    layer = [value]
    for _ in range(depth + 1):
        numbers = [one for one in layer if type(one) is float]
        if not all(map(math.isfinite, numbers)):
            return False
        deeper = [
            one.values() if type(one) is dict else one for one in layer if type(one) in _NESTS
        ]
        if not deeper:
            return True
        layer = [part for parts in deeper for part in parts]
    return False


def _is_digest(value: object) -> bool:
    """Whether it is a sha256 in hex digits, or nothing of a file that could not be read."""
    return value == "" or (isinstance(value, str) and _DIGEST.fullmatch(value) is not None)


def _is_number(value: Any) -> bool:
    """Whether it is a number that a float can hold, neither NaN nor true nor false."""
    kind = type(value)
    return (kind is float or kind is int) and -_LARGEST <= value <= _LARGEST


def _all_within(values: Collection[Any], low: float, high: float) -> bool:
    """Whether all are numbers of a range; strict JSON holds no NaN, which has no order."""
    if not set(map(type, values)) <= {float, int}:
        return False
    return not values or (low <= min(values) and max(values) <= high)


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def _is_class(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST_CLASSES


def _is_class_or_none(value: object) -> bool:
    return value is None or _is_class(value)


def _is_verdict(value: object) -> bool:
    return isinstance(value, bool)


_TEXT: Rule = (_is_text, "a text")
_TEXT_OR_NONE: Rule = (_is_text_or_none, "a text or null")
_NUMBER: Rule = (_is_number, "a finite number")
_SHARE: Rule = (_is_share, "a number in [0, 1]")
_CLASS: Rule = (_is_class, f"a class, a whole number from 0 to {_MOST_CLASSES - 1},")
_RATES = ("attack_success_rate", "harmless_text")

_PLAIN: dict[str, Rule] = {
    "probability": _SHARE,
    "poisoned": (_is_verdict, "true or false"),
    "target_class": (_is_class_or_none, f"null or {_CLASS[1]}"),
    "status": (STATUSES.__contains__, f"one of {', '.join(STATUSES)}"),
    "kind": (KINDS.__contains__, f"one of {', '.join(KINDS)}"),
    "architecture": _TEXT_OR_NONE,
    "trigger": _TEXT_OR_NONE,
    "sha256": (_is_digest, "64 hex digits or nothing"),
    **dict.fromkeys(("model", "reason", "calibrator", "identity"), _TEXT),
}
_LISTS: dict[str, Rule] = {
    "source_classes": _CLASS,
    **dict.fromkeys(("searched", "caveats", "findings"), _TEXT),
}
_NUMBERS: dict[str, Range] = {
    "seconds": (0, _LONGEST_SECONDS, f"a number from 0 to {_LONGEST_SECONDS:g}"),
    "evidence": (-_LARGEST, _LARGEST, _NUMBER[1]),
    "found": (0, 1, _SHARE[1]),
}
_OBJECTS: dict[str, dict[str, Rule]] = {
    "recovered": {
        **dict.fromkeys(("method", "kind", "text", "words", "best_text"), _TEXT),
        **dict.fromkeys(("score", "examples", "clean_heads", *_RATES), _NUMBER),
    },
    "input_form": {"name": _TEXT, "basis": _TEXT, "accuracy": _SHARE},
}
