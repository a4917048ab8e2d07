"""What travels between a scan and its workers: jobs there, answers back."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from jaxtroj.record import Record
from jaxtroj.rounds import ModelEntry
from jaxtroj.scan.work import OnStep
from jaxtroj.settings import Settings

DETECTOR = "jaxtroj.scan:scan_batch"
"""What answers: `module:function`, called as `Detector`."""

PictureOf = Callable[[str], Path]
Detector = Callable[
    [Sequence[ModelEntry], Settings, PictureOf | None, OnStep | None], Iterator[Record]
]
"""Entries to their records, in order, identities set; see `jaxtroj.scan.scan_batch`."""


@dataclass(frozen=True)
class Setup:
    """What every worker of a scan is told once.

    Attributes:
        settings: what changes the answers.
        pictures: folder for pictures of recovered triggers; None writes none.
        detector: `module:function` to call, see `Detector`.
    """

    settings: Settings
    pictures: Path | None = None
    detector: str = DETECTOR


@dataclass(frozen=True)
class Job:
    """Models that one worker answers in one go.

    Attributes:
        entries: at least one model.
        known: per entry the identities that have a record already; an entry that still has one of
            them is not scanned again.
        group: jobs of equal group share compiled programs.
        alone: nothing else may run in the worker meanwhile, so that what it does is this job's.
        failure: why the models are given up; only their identities are still wanted.
    """

    entries: tuple[ModelEntry, ...]
    known: tuple[tuple[str, ...], ...]
    group: str = ""
    alone: bool = False
    failure: str | None = None


@dataclass(frozen=True)
class Answer:
    """One model's answer.

    Attributes:
        entry: the model.
        identity: of the answer.
        record: the new record; None where the one on file with this identity stands.
        picture: bytes of the PNG of the trigger where the worker could not write it itself.
    """

    entry: ModelEntry
    identity: str
    record: Record | None
    picture: bytes | None = None


def _silent(*_: object) -> None:
    """Tells nobody."""


@dataclass(frozen=True)
class Watch:
    """What a scan tells while it runs.

    Attributes:
        on_step: a model's name and the step that begins.
        on_tick: called several times a second.
        log: one line for the log of the run.
        deadline: on `time.monotonic`; the engine stops then and leaves the rest.
    """

    on_step: OnStep = _silent
    on_tick: Callable[[], None] = _silent
    log: Callable[[str], None] = _silent
    deadline: float = field(default=float("inf"))


class Engine(Protocol):
    """Runs jobs somewhere."""

    def run(self, jobs: Sequence[Job], watch: Watch) -> Iterator[Answer]:
        """One answer for every entry, as they come; fewer only when the deadline has passed."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...
