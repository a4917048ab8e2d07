"""Values of options, for argparse's `type`: within bounds, so that what is absurd is said early.

Numbers are ASCII: digits of other scripts and underscores, which Python takes, are refused.
"""

import argparse
import math
import re
from collections.abc import Callable
from pathlib import Path

from converters.errors import safe_repr
from converters.files import read_plain

MOST = 10**9
"""Of any count."""
MOST_PIXELS = 4096
"""Of a side of a picture; `Settings` has the same bound."""
MOST_IN_MEMORY = 10**5
"""Pictures, texts or examples that a command makes or holds at once."""
MOST_IN_A_BATCH = 2**16
LONGEST_SECONDS = 1e9
"""Some thirty years; the system's clocks take no more than nine digits for granted."""
MOST_GIB = 2**20
LONGEST_TEXT = 2000
"""Characters of a text that a calibrator keeps."""
_MOST_SEED = 2**63 - 1
_MOST_LISTED = 2**20  # bytes of a file of numbers
_WHOLE = re.compile(r"[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def refusal(expected: str, text: str) -> argparse.ArgumentTypeError:
    """What argparse shows after the option's name."""
    return argparse.ArgumentTypeError(f"expected {expected}, got {safe_repr(text)}")


def number(text: str) -> float:
    """A decimal number, finite; NaN for any other text.

    >>> number("1e-3"), number("1_0"), number("1e999")
    (0.001, nan, nan)
    """
    value = float(text) if _NUMBER.fullmatch(text.strip()) else math.nan
    return value if math.isfinite(value) else math.nan


def open_unit(text: str) -> float:
    """A number strictly between 0 and 1."""
    value = number(text)
    if not 0 < value < 1:
        raise refusal("a number between 0 and 1", text)
    return value


def path_of(text: str) -> Path:
    """A path; empty text would be the current folder, which nobody meant."""
    if not text:
        raise refusal("a path", text)
    return Path(text)


def name_of(text: str) -> str:
    """A name; empty text would be taken for no option at all."""
    if not text:
        raise refusal("a name", text)
    return text


def count(text: str, most: int = MOST, least: int = 1) -> int:
    """A whole number from `least` to `most`.

    >>> count("12")
    12
    """
    if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
        raise refusal(f"a whole number of at least {least} and at most {most}", text)
    return int(text)


def count_to(most: int) -> Callable[[str], int]:
    """`count` with another bound."""
    return count_within(1, most)


def count_within(least: int, most: int) -> Callable[[str], int]:
    """`count` with other bounds."""
    return lambda text: count(text, most, least)


def seed(text: str) -> int:
    """A whole number of 63 bits, which jax and NumPy both take."""
    if not _WHOLE.fullmatch(text) or int(text) > _MOST_SEED:
        raise refusal("a whole number from 0 to 2**63 - 1", text)
    return int(text)


def numbers(text: str) -> tuple[float, ...]:
    """Finite numbers with commas between them.

    >>> numbers("0.5,1e-3")
    (0.5, 0.001)
    """
    values = tuple(map(number, text.split(",")))
    if any(map(math.isnan, values)):
        raise refusal("numbers like 0.485,0.456,0.406", text)
    return values


def class_counts(text: str) -> tuple[float, ...]:
    """Numbers above 0, two or more, with commas between them; or a file of them, also by lines.

    >>> class_counts("500,5000")
    (500.0, 5000.0)
    """
    values = tuple(map(number, _listed(text)))
    if len(values) < 2 or not all(value > 0 for value in values):
        raise refusal("numbers above 0 like 500,5000, or a file of them", text)
    return values


def _listed(text: str) -> list[str]:
    """Parts between commas, of a text of numbers or of the file that it names."""
    if not math.isnan(number(text.split(",")[0])):
        return text.split(",")
    try:
        content = read_plain(text, _MOST_LISTED + 1)
    except OSError as error:
        raise refusal(f"numbers, or a file of them ({error.strerror or error})", text) from error
    if len(content) > _MOST_LISTED:
        raise refusal(f"a file of at most {_MOST_LISTED} bytes", text)
    return content.decode("ascii", "replace").replace(",", " ").split()


def bounds(text: str) -> tuple[float, float]:
    """Two numbers.

    >>> bounds("-1,1")
    (-1.0, 1.0)
    """
    values = numbers(text)
    if len(values) != 2:
        raise refusal("two numbers like 0,255", text)
    return values[0], values[1]


def image_size(text: str) -> tuple[int, int]:
    """Height and width with an x between them.

    >>> image_size("240x320")
    (240, 320)
    """
    sides = text.lower().split("x")
    if len(sides) != 2 or not all(map(_WHOLE.fullmatch, sides)):
        raise refusal("height and width like 240x320", text)
    height, width = map(int, sides)
    if not (1 <= height <= MOST_PIXELS and 1 <= width <= MOST_PIXELS):
        raise refusal(f"height and width from 1 to {MOST_PIXELS}, like 240x320", text)
    return height, width


def pixels(text: str) -> int:
    """A side of a picture."""
    return count(text, MOST_PIXELS)


def seconds(text: str) -> float:
    """A time limit: above 0."""
    return _positive(text, LONGEST_SECONDS, "of seconds ")


def gibibytes(text: str) -> float:
    """An amount of memory: above 0."""
    return _positive(text, MOST_GIB, "of GiB ")


def positive(text: str) -> float:
    """A finite number above 0."""
    return _positive(text, math.inf, "")


def _positive(text: str, most: float, unit: str) -> float:
    value = number(text)
    if not 0 < value <= most:
        bound = "" if math.isinf(most) else f" and at most {most:.0f}"
        raise refusal(f"a number {unit}above 0{bound}", text)
    return value


def short_text(text: str) -> str:
    """A text that a calibrator can keep."""
    if len(text) > LONGEST_TEXT:
        raise argparse.ArgumentTypeError(
            f"expected a text of at most {LONGEST_TEXT} characters, got {len(text)}"
        )
    return text
