"""JSON values of a stranger's file, each checked as it is read."""

import math
from typing import Any

from jaxtroj.errors import CalibrationError

LARGEST_NUMBER = 1e101
LARGEST_LOG_ODDS = 1e3
"""Of an intercept or a weight; fitted ones are below 10, and 28 leave no probability but 0 or 1."""
RATES = (1e-6, 1 - 1e-6)
"""Of the share of poisoned models: a rarer kind would leave no probability but 0 or 1."""
SEEDS = (-(2**63), 2**63 - 1)
LONGEST_TEXT = 2000


class Node:
    """A JSON value and where it stands; each accessor checks what it returns."""

    def __init__(self, value: Any, place: str):
        self.value, self.place = value, place

    def _fail(self, expected: str) -> CalibrationError:
        got = repr(self.value)
        got = got if len(got) <= 60 else f"{got[:57]}..."
        return CalibrationError(f"{self.place} is {got}, expected {expected}")

    def __getitem__(self, key: str) -> "Node":
        if not isinstance(self.value, dict) or key not in self.value:
            raise CalibrationError(f"{self.place} lacks {key!r}")
        return Node(self.value[key], f"{self.place}.{key}")

    def number(self, low: float = -LARGEST_NUMBER, high: float = LARGEST_NUMBER) -> float:
        """A finite number in [low, high]; true and false are none."""
        value = self.value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not low <= value <= high or not math.isfinite(value):
            raise self._fail(f"a number in [{low:g}, {high:g}]")
        return float(value)

    def inside(self, low: float, high: float) -> float:
        """A number in the open interval (low, high)."""
        value = self.number(low, high)
        if value in (low, high):
            raise self._fail(f"a number in ({low:g}, {high:g})")
        return value

    def log_odds(self) -> float:
        """A number that log-odds, or a weight of them, can be."""
        return self.number(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)

    def count(self, low: int = 0, high: int = 2**63) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self._fail("a whole number")
        if not low <= self.value <= high:  # not as a float, which rounds what is above 2**53
            raise self._fail(f"a whole number from {low} to {high}")
        return self.value

    def text(self) -> str:
        if not isinstance(self.value, str) or len(self.value) > LONGEST_TEXT:
            raise self._fail(f"a text of at most {LONGEST_TEXT} characters")
        return self.value

    def choice(self, known: tuple[str, ...]) -> str:
        if self.value not in known:
            raise self._fail(f"one of {', '.join(known)}")
        return self.text()

    def is_null(self) -> bool:
        return self.value is None

    def items(self) -> list["Node"]:
        if not isinstance(self.value, list):
            raise self._fail("a list")
        return [Node(value, f"{self.place}[{i}]") for i, value in enumerate(self.value)]

    def pairs(self) -> list[tuple[str, "Node"]]:
        if not isinstance(self.value, dict):
            raise self._fail("an object")
        return [
            (Node(key, f"a key of {self.place}").text(), Node(value, f"{self.place}.{key[:40]}"))
            for key, value in self.value.items()
        ]
