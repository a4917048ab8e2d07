"""What values settings may have that are numbers: their kinds, told before their ranges."""

from collections.abc import Sequence
from numbers import Integral, Real

from converters.errors import safe_repr

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


def shown(value: object) -> str:
    """A value for a message, short whatever it is.

    >>> shown((64, 10**40))
    '(64, an integer of more than 20 digits)'
    """
    if isinstance(value, tuple | list):
        return f"({', '.join(map(shown, value))})"
    if isinstance(value, int) and value.bit_length() <= _MOST_BITS:
        return str(value)
    return safe_repr(value)
