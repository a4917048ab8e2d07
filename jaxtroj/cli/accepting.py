"""--accept FILE of `detect`, `scan` and `report`: read before any work, complained of after it."""

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtroj.cli import options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jaxtroj.accepted import Accepted
    from jaxtroj.record import Record


def add_accept(parser: argparse._ActionsContainer, default: str = "") -> None:
    """Declare the option; `default` says what holds without it."""
    options.add_path(
        parser,
        "--accept",
        "FILE",
        "TOML with models that somebody answers for, by sha256, reason, owner and last day: they"
        " are shown as accepted and do not make the exit status 1" + default,
    )


def accepted_from(path: Path | None) -> "Accepted":
    """The acceptances of a file that hold today (UTC); none without a file.

    Raises UsageError where it is not such a file.
    """
    from jaxtroj.accepted import NONE, read_accepted

    return NONE if path is None else read_accepted(path, datetime.now(UTC).date())


def complain(accepted: "Accepted", records: "Iterable[Record]", is_whole: bool) -> None:
    """Say what is wrong with the entries, see `Accepted.warnings`."""
    if accepted.name:
        for warning in accepted.warnings(records, is_whole):
            options.message(f"warning: {warning}")
