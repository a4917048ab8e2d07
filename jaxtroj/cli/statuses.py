"""The exit status that tells of a scan's records."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from jaxtroj.cli.main import (
    EXIT_CLEAN,
    EXIT_FAILED,
    EXIT_INCOMPLETE,
    EXIT_NOTHING,
    EXIT_POISONED,
    say,
)

if TYPE_CHECKING:
    from jaxtroj.accepted import Accepted
    from jaxtroj.record import Record

_BY_WORD = {
    "failed": EXIT_FAILED,
    "poisoned": EXIT_POISONED,
    "gathered": EXIT_INCOMPLETE,
    "clean": EXIT_CLEAN,
    "accepted": EXIT_CLEAN,
}
"""What there is of these decides, the first one that there is."""


def exit_status(
    records: "Iterable[Record]", accepted: "Accepted", evidence_only: bool = False
) -> int:
    """The exit status that tells of these records; says so where a model has no verdict.

    A model that nobody judged is not one below the threshold: a build that trusts status 0 would
    pass it.

    Args:
        records: of a scan.
        accepted: models called poisoned that count as accepted.
        evidence_only: whether no verdict was asked for.
    """
    from jaxtroj.record_text import word_of

    words = [word_of(record, accepted) for record in records]
    if evidence_only:
        words = ["clean" if word == "gathered" else word for word in words]
    say_unjudged(words.count("gathered"))
    return next((status for word, status in _BY_WORD.items() if word in words), EXIT_NOTHING)


def say_unjudged(count: int) -> None:
    """Say how many models have no verdict though one was asked for, if any."""
    if count:
        have = "1 model has" if count == 1 else f"{count} models have"
        say(f"{have} evidence and no verdict (gathered): the reason in the record says why")
