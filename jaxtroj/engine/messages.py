"""What a worker says, as far as it makes sense: nobody trusts a process that read a model file.

See `worker.py` for what is said.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from converters.errors import safe_repr
from converters.files import strict_json
from jaxtroj.engine.jobs import ScanJob
from jaxtroj.errors import EngineError, StoreError
from jaxtroj.file_names import picture_file
from jaxtroj.record import Record, parse_record, printable


class NonsenseError(EngineError):
    """A worker said what no worker says; whatever it reads or runs has got hold of it."""


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_true(value: object) -> bool:
    return value is True


def _is_step(value: object) -> bool:
    """A model's name and a step, both shown to people while the scan runs."""
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(part, str) and part.isprintable() for part in value)
    )


_FITS: dict[str, Callable[[object], bool]] = {
    "ticket": lambda value: type(value) is int,
    "step": _is_step,
    **dict.fromkeys(("ready", "waits", "done"), _is_true),
    **dict.fromkeys(("identity", "record", "error", "unusable"), _is_text),
}
_ABOUT = {"ticket", "ready", "unusable"}


def read_message(line: bytes) -> dict[str, Any]:
    """One line of a worker.

    Raises:
        NonsenseError: it is no JSON object of the fields that workers write, for a ticket or of the
            worker itself.
    """
    try:
        message = strict_json(line)
    except (ValueError, RecursionError) as error:
        raise NonsenseError(f"{safe_repr(line)} is no line of JSON") from error
    if not isinstance(message, dict) or not _ABOUT & message.keys():
        raise NonsenseError(f"{safe_repr(line)} is about no ticket")
    for name, value in message.items():
        if name not in _FITS or not _FITS[name](value):
            raise NonsenseError(f"{safe_repr(name)} is {safe_repr(value)}")
    return message


def read_answer(text: str, job: ScanJob, pictures: Path | None) -> Record:
    """The record that a worker made of a job's model; its picture lies where it was told to put it.

    Raises:
        NonsenseError: it is no record, or another model's.
    """
    try:
        record = parse_record(text)
    except StoreError as error:
        raise NonsenseError(f"its answer is {error}") from error
    name = printable(job.entry.model_id)
    if record.model != name:
        raise NonsenseError(f"its answer is for {safe_repr(record.model)}, expected {name}")
    if record.trigger is None or pictures is None:
        return replace(record, trigger=None)
    return replace(record, trigger=printable(str(picture_file(pictures, name))))


def read_identity(key: str, job: ScanJob) -> str:
    """The identity of a model that is not scanned.

    Raises:
        NonsenseError: the model is to be scanned, as no record on file has this identity.
    """
    if job.failure is None and key not in job.known:
        raise NonsenseError(f"{safe_repr(key)} is no identity of a record on file")
    return key
