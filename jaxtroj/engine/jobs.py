"""What travels between a scan and its workers: jobs there, answers back."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from jaxtroj.file_names import picture_file
from jaxtroj.record import Record
from jaxtroj.rounds import ModelEntry
from jaxtroj.scan.attempt import OnStep, silent
from jaxtroj.scan.folder import PictureOf
from jaxtroj.settings import Settings

DETECTOR = "jaxtroj.scan:scan_entry"
"""What answers: `module:function`, called as `Detector`."""

START_STEP = "start"
"""The step before a model's first, while a worker gets ready."""

Detector = Callable[[ModelEntry, Settings, PictureOf | None, OnStep | None], Record]
"""An entry to its record with its identity; see `jaxtroj.scan.scan_entry`."""


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

    @property
    def picture_of(self) -> PictureOf | None:
        """Where a model's picture goes; None for none."""
        folder = self.pictures
        return None if folder is None else lambda model: picture_file(folder, model)


@dataclass(frozen=True)
class ScanJob:
    """A model that a worker answers.

    Attributes:
        entry: the model.
        known: identities that have a record already; if the entry still has one of them, it is not
            scanned again.
        group: jobs of equal group share compiled programs.
        alone: nothing else may run in the worker meanwhile, so that what it does is this job's.
        failure: why the model is given up; only its identity is still wanted.
    """

    entry: ModelEntry
    known: tuple[str, ...] = ()
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


def _ignore(*_: object) -> None:
    """Ignores what it is told."""


@dataclass(frozen=True)
class Watch:
    """What a scan tells while it runs.

    Attributes:
        on_step: a model's name and the step that begins.
        on_tick: called several times a second.
        log: one line for the log of the run.
        deadline: on `time.monotonic`; the engine stops then and leaves the rest.
    """

    on_step: OnStep = silent
    on_tick: Callable[[], None] = _ignore
    log: Callable[[str], None] = _ignore
    deadline: float = field(default=float("inf"))


class Engine(Protocol):
    """Runs jobs somewhere."""

    def run(self, jobs: Sequence[ScanJob], watch: Watch) -> Iterator[Answer]:
        """One answer for every entry, as they come; fewer only when the deadline has passed."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...
