"""An engine that answers in the caller's process: a guarded worker imports for two seconds."""

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path

from jaxtroj.engine.jobs import Answer, ScanJob, Setup, Watch
from jaxtroj.engine.messages import read_answer, read_identity
from jaxtroj.engine.worker import load_detector
from jaxtroj.record import Record
from jaxtroj.scan import identify


def across(value):
    """What arrives in another process, as only what can be sent there can be scanned there."""
    return pickle.loads(pickle.dumps(value))


def called_here(body, limits, what: str) -> int:
    """In the place of `guarded_call`."""
    return across(body)()


class HereEngine:
    """In the place of `LocalEngine`: what its worker does with jobs, without limits or retries."""

    def __init__(self, setup: Setup, slots: Sequence = (), guard=None, stderr: Path | None = None):
        self._setup: Setup = across(setup)

    def run(self, jobs: Sequence[ScanJob], watch: Watch) -> Iterator[Answer]:
        """One answer for every entry, in order."""
        for job in jobs:
            key = identify(job.entry, self._setup.settings) if job.known else None
            if key in job.known:
                yield Answer(job.entry, read_identity(key, job), None)
            else:
                record = self._answer(across(job), watch)
                yield Answer(job.entry, record.identity, record)
            watch.on_tick()

    def close(self) -> None:
        """Nothing was started."""

    def _answer(self, job: ScanJob, watch: Watch) -> Record:
        setup, detector = self._setup, load_detector(self._setup.detector)
        record = detector(job.entry, setup.settings, setup.picture_of, watch.on_step)
        return read_answer(record.to_json(), job, setup.pictures)
