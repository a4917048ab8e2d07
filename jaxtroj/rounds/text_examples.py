"""The clean texts shipped with a model, and their sentence embeddings where those are shipped.

Rounds 5 and 6: `class_{c}_example_{n}.txt` (n from 1) in `clean_example_data/`; texts with a
trigger are `source_class_{s}_target_class_{t}_example_{n}.txt` in `poisoned_example_data/`. The
vectors lie beside the folder in `clean-example-cls-embedding.csv`; with them a scan needs no
encoder.
"""

import hashlib
import os
import re
import stat
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxtroj.errors import DatasetError, ExamplesError
from jaxtroj.rounds.example_names import MAX_FILES, UNKNOWN_LABEL, natural_key
from jaxtroj.rounds.layout import ModelEntry
from jaxtroj.rounds.places import EXAMPLE_FOLDERS
from jaxtroj.rounds.text_tables import EMBEDDING_TABLE, ExampleVectors, read_cls_embeddings

MAX_TEXT_BYTES = 2**20  # the longest IMDB review has 14 KB
MAX_TOTAL_BYTES = 2**28
MAX_CONTROL_SHARE = 0.1  # of a text's characters; more is taken for binary content
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")
_CLEAN_NAME = re.compile(r"class_(\d{1,6})_example_\d+\.txt", re.IGNORECASE)
_POISONED_NAME = re.compile(
    r"source_class_(\d{1,6})_target_class_(\d{1,6})_example_\d+\.txt", re.IGNORECASE
)


@dataclass(frozen=True)
class TextExamples:
    """Example texts of one model in natural order of their names."""

    texts: tuple[str, ...]
    """The texts as the official detector reads them, [n]; "" where only a vector is at hand."""
    labels: np.ndarray
    """int32 [n], the class in the file name; -1 where the name does not say."""
    names: tuple[str, ...]
    """File names, [n]."""
    embeddings: np.ndarray | None
    """float32 [n, d], finite: the shipped sentence embeddings; None where there are none."""
    problems: tuple[str, ...] = ()
    """One sentence for each kind of text or vector that was left out."""


class _TextFileError(Exception):
    """One text cannot be used; the message is the reason, without the file's name."""


def label_of(name: str) -> int:
    """Class of a TrojAI example text, the source class of a poisoned one, -1 for other names.

    >>> label_of("class_1_example_20.txt"), label_of("example_0.txt")
    (1, -1)
    >>> label_of("source_class_0_target_class_1_example_3.txt")
    0
    """
    match = _CLEAN_NAME.fullmatch(name) or _POISONED_NAME.fullmatch(name)
    return int(match.group(1)) if match else UNKNOWN_LABEL


def load_text_examples(
    place: str | os.PathLike[str] | ModelEntry,
    limit_per_class: int | None = None,
    poisoned: bool = False,
) -> TextExamples:
    """Reads the example texts of a model.

    Where a table of embeddings lies beside the texts, its rows are the examples and a text
    without a row is left out; a table that cannot be read is named in `problems` and the texts
    stand alone. A single text that is empty, larger than `MAX_TEXT_BYTES`, not UTF-8 or binary is
    left out and named in `problems`; texts in any script are used. One usable example is enough.

    Args:
        place: an entry of `iter_models`, a model's folder, or the folder of texts itself. Names
            that do not give a class get label -1; files that are not named `.txt` are ignored.
        limit_per_class: at least 1, the first so many usable examples of each class in natural
            order; None for all.
        poisoned: reads `poisoned_example_data` instead, and its table. Otherwise texts named as
            poisoned examples are left out.
    Raises:
        ExamplesError: no folder of texts and no table, no usable example in them, or more than
            `MAX_FILES` files or `MAX_TOTAL_BYTES`.
        ValueError: limit_per_class is below 1.
    """
    if limit_per_class is not None and limit_per_class < 1:
        raise ValueError(f"limit_per_class must be at least 1 or None, got {limit_per_class}")
    folder, table = _places(place, poisoned)
    texts, problems = _read_texts(folder, poisoned) if folder else ({}, [])
    vectors, notes = _read_vectors(table)
    names, vectors, mismatches = _matched(texts, vectors, poisoned)
    problems += notes + mismatches
    if not names:
        raise ExamplesError(
            f"no usable example text in {folder or table}: {'; '.join(problems) or 'no .txt file'}."
            " Expected UTF-8 texts named class_0_example_1.txt and so on."
        )
    names = _first_of_each(names, limit_per_class)
    return TextExamples(
        texts=tuple(texts.get(name, "") for name in names),
        labels=np.array([label_of(name) for name in names], dtype=np.int32),
        names=names,
        embeddings=None if vectors is None else vectors.of(names),
        problems=tuple(problems),
    )


def text_examples_digest(place: str | os.PathLike[str] | ModelEntry) -> str:
    """Identity of a model's example texts: sha256 over names and contents, and over the table.

    As `rounds.examples_digest`: independent of place, file times and other files; what cannot be
    read counts by its name and the reason. Raises ExamplesError where there is nothing to read.
    """
    folder, table = _places(place, poisoned=False)
    paths = [folder / name for name in _text_names(folder)] if folder else []
    digest = hashlib.sha256()
    for path in [*paths, table]:
        if path is None:
            continue
        try:
            content = hashlib.sha256(_read_bytes(path, MAX_TOTAL_BYTES)).digest()
        except _TextFileError as error:
            content = hashlib.sha256(f"unreadable: {error}".encode()).digest()
        digest.update(hashlib.sha256(os.fsencode(path.name)).digest() + content)
    return digest.hexdigest()


def _places(
    place: str | os.PathLike[str] | ModelEntry, poisoned: bool
) -> tuple[Path | None, Path | None]:
    """The folder of texts and the table of their embeddings; raises when neither is there.

    The table must lie beside the folder that is read: names repeat between models, so another
    model's table would fit any folder.
    """
    folders = ("poisoned_example_data",) if poisoned else EXAMPLE_FOLDERS
    if isinstance(place, ModelEntry):
        model_folder = place.model_path.parent
        place = model_folder if poisoned else place.examples_path or model_folder
    home = Path(place)
    folder = next((home / name for name in folders if os.path.isdir(home / name)), None)
    table = _table(home, poisoned)
    if folder is None and table is None and not os.path.isfile(home / "model.pt"):
        folder = home  # not a model's folder but the texts themselves
        table = _table(Path(os.path.abspath(home)).parent, poisoned)
    if folder is None and table is None:
        raise ExamplesError(
            f"no example texts in {home}; expected a folder {folders[0]} of"
            " class_{c}_example_{n}.txt files"
        )
    return folder, table


def _table(home: Path, poisoned: bool) -> Path | None:
    name = EMBEDDING_TABLE.replace("clean", "poisoned") if poisoned else EMBEDDING_TABLE
    return home / name if os.path.lexists(home / name) else None


def _text_names(folder: Path) -> list[str]:
    """Names ending in .txt (any case) in natural order. Raises ExamplesError for no folder."""
    try:
        names = [name for name in os.listdir(folder) if name.lower().endswith(".txt")]
    except OSError as error:
        raise ExamplesError(
            f"cannot read the examples folder {folder} ({error.strerror or error}); expected a "
            "folder of class_{c}_example_{n}.txt files"
        ) from error
    if len(names) > MAX_FILES:
        raise ExamplesError(f"{len(names)} texts in {folder}, expected at most {MAX_FILES}")
    return sorted(names, key=natural_key)


def _read_texts(folder: Path, poisoned: bool) -> tuple[dict[str, str], list[str]]:
    """Usable texts by name, and sentences about those that were left out."""
    texts: dict[str, str] = {}
    reasons: dict[str, list[str]] = defaultdict(list)
    total = 0
    for name in _text_names(folder):
        try:
            if _is_wanted(name, poisoned):
                texts[name] = _read_text(folder / name)
                total += len(texts[name])
            else:
                reasons["named as a poisoned example"].append(name)
        except _TextFileError as error:
            reasons[str(error)].append(name)
        if total > MAX_TOTAL_BYTES:
            raise ExamplesError(f"the texts in {folder} have over {MAX_TOTAL_BYTES} characters")
    return texts, _sentences(reasons, "left out")


def _is_wanted(name: str, poisoned: bool) -> bool:
    return poisoned or not _POISONED_NAME.fullmatch(name)


def _read_text(path: Path) -> str:
    """One text with newlines as Python's text mode reads them. Raises _TextFileError."""
    content = _read_bytes(path, MAX_TEXT_BYTES)
    if b"\0" in content:
        raise _TextFileError("binary content, expected text")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _TextFileError("not UTF-8 text") from error
    if not text.strip():
        raise _TextFileError("empty text")
    if len(_CONTROL.findall(text)) > MAX_CONTROL_SHARE * len(text):
        raise _TextFileError("binary content, expected text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _read_bytes(path: Path, limit: int) -> bytes:
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise _TextFileError("not a plain file")
        if status.st_size > limit:
            raise _TextFileError(f"larger than {limit} bytes")
        with open(path, "rb") as file:
            return file.read(limit)
    except OSError as error:
        raise _TextFileError(f"cannot be read ({error.strerror or error})") from error


def _read_vectors(table: Path | None) -> tuple[ExampleVectors | None, list[str]]:
    """The shipped embeddings, None where there are none that can be read."""
    if table is None:
        return None, []
    try:
        vectors = read_cls_embeddings(table)
    except DatasetError as error:
        return None, [f"the shipped embeddings are not used: {error}"]
    return vectors, list(vectors.problems)


def _matched(
    texts: dict[str, str], vectors: ExampleVectors | None, poisoned: bool
) -> tuple[tuple[str, ...], ExampleVectors | None, list[str]]:
    """The examples to use in natural order, their vectors, and sentences about mismatches."""
    if vectors is None:
        return tuple(texts), None, []
    rows = {name for name in vectors.names if _is_wanted(name, poisoned)}
    if texts and not rows & texts.keys():
        note = "the shipped embeddings are not used: the table names none of the texts"
        return tuple(texts), None, [note]
    bare, names = [n for n in texts if n not in rows], sorted(rows, key=natural_key)
    wordless = [name for name in names if name not in texts]
    problems = [
        *_sentences({"no row in the table of embeddings": bare}, "left out"),
        *_sentences({"only its shipped embedding is usable": wordless}, "used without its words"),
    ]
    return tuple(names), vectors, problems


def _first_of_each(names: tuple[str, ...], limit: int | None) -> tuple[str, ...]:
    """The first ``limit`` names of each class."""
    if limit is None:
        return names
    counts: Counter[int] = Counter()
    taken = []
    for name in names:
        counts[label_of(name)] += 1
        if counts[label_of(name)] <= limit:
            taken.append(name)
    return tuple(taken)


def _sentences(reasons: dict[str, list[str]], outcome: str) -> list[str]:
    """One sentence for each reason, naming the first text it concerns.

    >>> _sentences({"empty text": ["a.txt", "b.txt"]}, "left out")
    ['2 texts left out (a.txt ...): empty text']
    """
    return [
        f"{len(names)} text{'s' if len(names) > 1 else ''} {outcome} "
        f"({ascii(names[0])[1:-1]}{' ...' if len(names) > 1 else ''}): {reason}"
        for reason, names in reasons.items()
        if names
    ]
