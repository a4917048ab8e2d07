"""Models to records through an engine: some, as they come, or a whole scan with its store."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from converters.files import write_atomic
from jaxtroj.engine.devices import local_slots
from jaxtroj.engine.guard import Guard, checked
from jaxtroj.engine.jobs import Answer, Engine, ScanJob, Setup, Watch
from jaxtroj.engine.local import LocalEngine, usual_limits
from jaxtroj.engine.plan import make_jobs
from jaxtroj.record import Record, printable
from jaxtroj.rounds import ModelEntry
from jaxtroj.scan.records import skipped_record, unpictured
from jaxtroj.settings import Settings
from jaxtroj.store import RunStore


@dataclass(frozen=True)
class Outcome:
    """One model's record, and whether this session made it."""

    entry: ModelEntry
    record: Record
    fresh: bool


def answer(
    entries: Iterable[ModelEntry],
    settings: Settings,
    limits: Guard | None = None,
    pictures: Path | None = None,
    watch: Watch | None = None,
) -> Iterator[Record]:
    """The record of every entry, in order, each as soon as it is done; nothing is stored.

    One guarded worker process opens and searches them, one after another; a model that exceeds the
    limits or ends the process gets a record of status `failed` with the reason. The caller's
    process loads neither jax nor torch, and opens no model.

    Args:
        entries: models; each is taken when the one before it is done.
        settings: what changes the answers.
        limits: of one model; None for those of a scan.
        pictures: folder for pictures of recovered triggers; None writes none.
        watch: told what happens.

    Raises:
        EngineError: worker processes do not start.
        UsageError: the limits are none.
    """
    return answers(Setup(settings, pictures), entries, checked(limits), watch)


def answers(
    setup: Setup,
    entries: Iterable[ModelEntry],
    limits: Guard | None = None,
    watch: Watch | None = None,
) -> Iterator[Record]:
    """What `answer` does, by any detector; see there."""
    engine = LocalEngine(setup, local_slots(1), limits or usual_limits())
    try:
        for entry in entries:  # one at a time: what the worker does is this model's
            for found in engine.run([ScanJob(entry)], watch or Watch()):
                assert found.record is not None, "no job of this engine has a record on file"
                yield found.record
    finally:
        engine.close()


def run_scan(
    entries: Sequence[ModelEntry],
    settings: Settings,
    store: RunStore,
    engine: Engine,
    watch: Watch | None = None,
    retry_failed: bool = False,
) -> Iterator[Outcome]:
    """The outcome of every entry as it comes; each record is in the store before it is yielded.

    Args:
        entries: models of a dataset.
        settings: what changes the answers.
        store: where records are and go; only this process writes them.
        engine: who answers; it is closed at the end.
        watch: told what happens; its deadline leaves the rest for the next session.
        retry_failed: scan models again whose record says that they failed.

    Raises:
        StoreError: a record cannot be written.
        EngineError: the engine cannot work.
    """
    watch = watch or Watch()

    def known(entry: ModelEntry) -> tuple[str, ...]:
        return store.identities(printable(entry.model_id), failed=not retry_failed)

    def on_tick() -> None:
        store.sync()
        watch.on_tick()

    try:
        chosen = []
        for entry in entries:
            if entry.skip_reason is None:
                chosen.append(entry)
            else:
                yield _skip(entry, settings, store)
        jobs = make_jobs(chosen, known)
        for answer in engine.run(jobs, replace(watch, on_tick=on_tick)):
            yield _kept(answer, store)
    finally:
        engine.close()


def _skip(entry: ModelEntry, settings: Settings, store: RunStore) -> Outcome:
    return _stored(entry, skipped_record(entry, settings), store)


def _kept(answer: Answer, store: RunStore) -> Outcome:
    record = answer.record
    if record is None:
        model = printable(answer.entry.model_id)
        stored = store.reused(model, answer.identity)
        assert stored is not None, f"{model} was to be known by {answer.identity}"
        return Outcome(answer.entry, stored, False)
    if answer.picture is not None:
        record = _with_picture(record, answer.picture, store)
    store.append(record)
    return Outcome(answer.entry, record, True)


def _with_picture(record: Record, picture: bytes, store: RunStore) -> Record:
    path = store.trigger_path(record.model)
    try:
        write_atomic(path, picture)
    except OSError as error:
        return unpictured(record, path, error)
    return replace(record, trigger=printable(str(path)))


def _stored(entry: ModelEntry, record: Record, store: RunStore) -> Outcome:
    stored = store.reused(record.model, record.identity)
    if stored is None:
        store.append(record)
    return Outcome(entry, stored or record, stored is None)
