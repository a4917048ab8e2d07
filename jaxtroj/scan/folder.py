"""Many models to many records, one after another; what is on file is not done again."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from jaxtroj.errors import DatasetError
from jaxtroj.record import Record, printable
from jaxtroj.rounds import ModelEntry
from jaxtroj.scan.attempt import Attempt, OnStep
from jaxtroj.scan.file_states import state_of
from jaxtroj.scan.identity import identify
from jaxtroj.scan.model import scan_model
from jaxtroj.scan.records import changed_record, failed_record, skipped_record
from jaxtroj.settings import Settings
from jaxtroj.store import RunStore

PictureOf = Callable[[str], Path]
"""Where the picture of a model's trigger goes, by the model's name."""


def scan(
    entries: Iterable[ModelEntry],
    settings: Settings,
    store: RunStore,
    on_step: OnStep | None = None,
) -> Iterator[Record]:
    """Yield the record of every entry, in order, each as soon as it is done and stored.

    Raises:
        StoreError: a record cannot be written. Faults of a model are in its record.
    """
    for entry in entries:
        key = "" if entry.skip_reason is not None else identify(entry, settings)
        stored = store.reused(printable(entry.model_id), key)
        if stored is None:
            stored = scan_entry(entry, settings, store.trigger_path, on_step)
            store.append(stored)
        yield stored


def scan_entry(
    entry: ModelEntry,
    settings: Settings,
    picture_of: PictureOf | None = None,
    on_step: OnStep | None = None,
) -> Record:
    """The record of one entry with its identity.

    One with a `skip_reason` is skipped, one that is refused has failed; neither is opened.

    Args:
        entry: a model of any kind.
        settings: what changes the answer.
        picture_of: where pictures of recovered triggers go; None writes none.
        on_step: told of each step as it begins.
    """
    if entry.skip_reason is not None:
        return skipped_record(entry, settings)
    path = None if picture_of is None else picture_of(printable(entry.model_id))
    return identified(entry, settings, lambda: scan_model(entry, settings, path, on_step))


def identified(entry: ModelEntry, settings: Settings, answer: Callable[[], Record]) -> Record:
    """An answer with its identity; an entry that is refused has failed and is not asked about.

    An answer about files that changed meanwhile has none: it may be about what was there for a
    moment, and the next session asks again.
    """
    state, key = state_of(entry), identify(entry, settings)
    if entry.is_refused:
        record = failed_record(Attempt(entry, settings), DatasetError(entry.problem))
    else:
        record = answer()
    # Both: marks of files have the grain of the system's clock, and digests miss what came back.
    if (state_of(entry), identify(entry, settings)) != (state, key):
        return changed_record(record)
    return replace(record, identity=key)
