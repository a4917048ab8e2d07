"""Whether a model's files were changed while it was scanned.

A digest taken before and one taken after do not tell: a file may have been another one in between,
and be back. The system's own marks do: writing, replacing or moving a file changes them, and
nothing sets the time of the last change of a file back.
"""

import hashlib
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from jaxtroj.model_files import model_files
from jaxtroj.rounds import ModelEntry
from jaxtroj.rounds.text_tables import LOGITS_TABLE

_LEVELS = 2  # classes in a folder of examples, pictures in those
_MOST_FILES = 100_000  # below one folder; its digest still tells of the rest


def state_of(entry: ModelEntry) -> str:
    """The marks of all files that an answer depends on, as 32 hex digits; nothing is opened but
    what says which files a model consists of."""
    home = entry.model_path.parent
    alone = [entry.model_path, *model_files(entry.model_path), home / LOGITS_TABLE]
    around = [entry.examples_path, entry.encoder_path, entry.tokenizer_path]
    if entry.kind == "text":  # texts and tables of several names lie beside a head
        around.append(home)
    if entry.code is not None:
        alone.append(entry.code.path)
    found = hashlib.sha256()
    for path in alone:
        found.update(_mark(path))
    for path in around:
        if path is not None:
            for one in islice(_below(path, _LEVELS), _MOST_FILES):
                found.update(_mark(one))
    return found.hexdigest()[:32]


def _mark(path: Path) -> bytes:
    """What changes when a file is written, replaced or taken away; nobody can set `ctime` back."""
    try:
        info = os.stat(path)
        marks = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
    except (OSError, ValueError):  # it may hold NUL
        marks = ()
    return os.fsencode(path.name) + f"\0{marks}\0".encode()


def _below(path: Path, levels: int) -> Iterator[Path]:
    """A file; or a folder, and what lies in it."""
    yield path
    try:
        entries = islice(os.scandir(path), _MOST_FILES) if levels and path.is_dir() else ()
        names = sorted(entry.name for entry in entries)
    except (OSError, ValueError):
        return
    for name in names:
        yield from _below(path / name, levels - 1)
