"""Labelled records, and what `calibrate`, `configure` and `evaluate` say of those they fit on."""

from typing import TYPE_CHECKING

from jaxtroj.cli import options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jaxtroj.calibration import Labelled, Scheme
    from jaxtroj.record import Record

Pair = tuple["Record", bool]
"""A record and whether its model is poisoned."""


def matched(records: "Sequence[Record]", truth: "Mapping[str, bool]") -> "list[Pair]":
    """Records that were not skipped, with their label, where there is one.

    Args:
        records: of a run.
        truth: labels by printable name.
    """
    from jaxtroj.record import printable

    def label(model: str) -> bool | None:
        # A truth table that was made from records has the backslash doubled before it is read.
        return truth.get(model, truth.get(printable(model)))

    scored = ((record, label(record.model)) for record in records if record.status != "skipped")
    return [(record, poisoned) for record, poisoned in scored if poisoned is not None]


def without_copies(pairs: "Sequence[Pair]") -> "list[Pair]":
    """One record for each file; a message says how many more there were.

    A copy tells nothing new, and would be judged by a fit that has met it.

    Raises:
        UsageError: a file has two labels.
    """
    from jaxtroj.leaderboard.copies import first_of_each_file

    places = first_of_each_file((record.model, record.sha256, label) for record, label in pairs)
    if copies := len(pairs) - len(places):
        options.message(f"{copies} models are copies of others (one sha256) and are left out")
    return [pairs[place] for place in places]


def say_judged_early(labelled: "Labelled", scheme: "Scheme") -> None:
    """Name the stages that some models lack, so that nothing after those answers for them."""
    from jaxtroj.calibration.lacking import judged_early

    for some in judged_early(labelled, scheme):
        options.message(str(some))


def say_unfitted(labelled: "Labelled", scheme: "Scheme", stages: "Sequence[str]") -> None:
    """Say why a fit left out stages that enough models have evidence of."""
    from jaxtroj.calibration.unfitted import unfitted_stages

    for one in unfitted_stages(labelled, scheme, stages):
        if one.lacks:
            options.message(str(one))
