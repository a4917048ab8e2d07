"""Signs that clean networks do not show, for trojans that no network of a fit has.

A fit weighs what its networks show. For a trojan of a kind that none of them has, a search of its
own can say much more than any fit knows, where it finds something that clean networks never show:

    odds = odds of the fit + share * likelihood ratio of the sign            (at even odds)

`share` is the part of all trojans that is taken to be of this kind. The likelihood ratio comes from
counts on networks that were made for it, so it stays finite: half a network is added to each count
(Krichevsky and Trofimov, IEEE Transactions on Information Theory 27(2), 1981). A sign that is not
seen changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jaxtroj.calibration.checked import Node


@dataclass(frozen=True)
class Sign:
    """A field that is seen from some value on, and how often it was."""

    stage: str
    """Where the field is measured."""
    name: str
    """Of the field."""
    least: float
    """Value from which on the sign is seen."""
    meaning: str
    """What was found, in words, with `{value}` where the field's value goes."""
    share: float
    """Part of all trojans that is taken to be of the sign's kind, in (0, 1)."""
    clean: int
    """Clean networks that it was looked for in."""
    clean_seen: int
    poisoned: int
    """Networks with a trojan of its kind."""
    poisoned_seen: int

    @property
    def log_odds(self) -> float:
        """What it adds at even odds, as log-odds."""
        found = (self.poisoned_seen + 0.5) / (self.poisoned + 1)
        alarms = (self.clean_seen + 0.5) / (self.clean + 1)
        return float(np.log(self.share * found / alarms))

    def is_seen(self, fields: Mapping[str, float | None]) -> bool:
        """Whether a network's evidence shows it."""
        value = fields.get(self.name)
        return value is not None and bool(value >= self.least)

    def reason(self, fields: Mapping[str, float | None]) -> str:
        """What was found, and how often clean networks show it, in words."""
        said = self.meaning.replace("{value}", f"{fields[self.name]:.2f}")
        return f"{said}, as in {self.clean_seen} of {self.clean} clean networks"


def seen(signs: Sequence[Sign], fields: Mapping[str, float | None]) -> tuple[Sign, ...]:
    """The signs that a network's evidence shows."""
    return tuple(sign for sign in signs if sign.is_seen(fields))


def with_signs(log_odds: float, signs: Sequence[Sign]) -> float:
    """Log-odds of a fit at even odds with what the signs that are seen add.

    >>> with_signs(-1.0, ())
    -1.0
    """
    return float(np.logaddexp.reduce([log_odds, *(sign.log_odds for sign in signs)]))


def read_sign(node: Node) -> Sign:
    """A sign of a calibrator's file. Raises CalibrationError."""
    clean, poisoned = node["clean"].count(1), node["poisoned"].count(1)
    return Sign(
        stage=node["stage"].text(),
        name=node["name"].text(),
        least=node["least"].number(),
        meaning=node["meaning"].text(),
        share=node["share"].inside(0, 1),
        clean=clean,
        clean_seen=node["clean_seen"].count(0, clean),
        poisoned=poisoned,
        poisoned_seen=node["poisoned_seen"].count(0, poisoned),
    )
