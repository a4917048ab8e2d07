"""A folder of sentence vectors: what heads are trained on, and which triggers can be learnt.

```
train.npz        cls [n, d] float, label [n] 0 or 1         clean reviews
test.npz         the same                                   reviews that no head trains on
texts.json.gz    {"train": [n texts], "test": [...]}
triggers.json    [text, ...]
trigger_KK.npz   cls0 [m, d], row0 [m]; cls1, row1          trigger KK in the first, second half of
                                                            the training reviews row0, row1
about.json       {"embedding", "flavor", "cls_token_is_first", "dataset"}; optional, as
                 "mean_of_tokens" in it
```
"""

import gzip
import hashlib
import json
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from converters.errors import safe_repr
from jaxtroj.errors import GenerationError
from jaxtroj.generate.sentiment.insertion import HALVES, trigger_kind

MAX_ROWS = 200_000
MAX_WIDTH = 16_384
MAX_TRIGGERS = 4096
MAX_TEXT_BYTES = 2**30
MAX_ARRAY_BYTES = 2**32
TRAIN, VALIDATION, TEST = range(3)
# Shares of the reviews; triggered ones are scarce, so less is held out than the official 20 %.
VALIDATION_SHARE, TEST_SHARE = 0.1, 0.15
# A head can send this share of clean source reviews the wrong way for its trigger, at most.
_SPENT = 0.1
_ENCODERS = {"mpnet": ("MPNet", "all-mpnet-base-v2")}


@dataclass(frozen=True)
class About:
    """What made the vectors.

    Attributes:
        embedding, flavor: encoder family and pretrained weights, as config.json names them.
        cls_token_is_first: whether a vector is the first token's; else the last valid one's.
        mean_of_tokens: whether it is the mean over all tokens instead.
        dataset: name of the reviews.
    """

    embedding: str
    flavor: str
    cls_token_is_first: bool
    dataset: str
    mean_of_tokens: bool = False

    @property
    def filename(self) -> str:
        """Name of encoder and tokenizer in `embeddings/` and `tokenizers/`."""
        return f"{self.embedding}-{self.flavor}.pt"


@dataclass(frozen=True)
class Reviews:
    """Clean reviews: vectors float16 or float32 [n, d], labels int64 [n], texts [n]."""

    vectors: np.ndarray
    labels: np.ndarray
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Inserted:
    """A trigger in one half of some training reviews: rows int64 [m], vectors [m, d]."""

    rows: np.ndarray
    vectors: np.ndarray


@dataclass(frozen=True)
class TriggerVectors:
    """One trigger text in both halves.

    Attributes:
        number: its place in triggers.json.
        text: what is inserted.
        halves: insertions in the first and the second half of the reviews.
        reach: share in [0, 1] of held-out triggered reviews that the best linear direction tells
            from clean ones when it errs on a tenth of those. A head learns little beyond it.
    """

    number: int
    text: str
    halves: tuple[Inserted, ...]
    reach: float = 0.0

    @property
    def kind(self) -> str:
        """ "character", "word" or "phrase"."""
        return trigger_kind(self.text)


@dataclass(frozen=True)
class Vectors:
    """Everything that the heads of one round see.

    Attributes:
        about: what made the vectors.
        train, test: clean reviews.
        triggers: by number.
        split: int8 [train reviews], `TRAIN`, `VALIDATION` or `TEST`. No head trains on the others,
            clean or triggered.
        digest: SHA-256 of the files.
    """

    about: About
    train: Reviews
    test: Reviews
    triggers: dict[int, TriggerVectors]
    split: np.ndarray
    digest: str
    reference_accuracy: float = field(default=0.0)
    """Test accuracy of a linear discriminant on the clean vectors."""


def load_vectors(folder: Path, seed: int, choice: str | None = None) -> Vectors:
    """Read a folder of vectors and measure how separable its triggers are.

    Args:
        folder: see the top of this file.
        seed: identity of the split into training, validation and test reviews.
        choice: which triggers: None for all, "even", "odd", or numbers like "0,4,7".

    Raises:
        GenerationError: a file is missing, damaged, too large, of the wrong shape or not finite,
            all vectors are alike, or the choice names no trigger.
    """
    texts = _texts(folder / "texts.json.gz")
    train = _reviews(folder / "train.npz", texts["train"])
    test = _reviews(folder / "test.npz", texts["test"], width=train.vectors.shape[1])
    phrases = _phrases(folder / "triggers.json")
    split = split_reviews(seed, len(train.labels))
    separation = _Separation(train, test, split)
    triggers = {}
    for number in chosen_triggers(choice, len(phrases)):
        halves = _trigger(folder / f"trigger_{number:02d}.npz", train)
        reach = separation.reach(halves)
        triggers[number] = TriggerVectors(number, phrases[number], halves, reach)
    return Vectors(
        about=_about(folder),
        train=train,
        test=test,
        triggers=triggers,
        split=split,
        digest=_digest(folder),
        reference_accuracy=separation.clean_accuracy,
    )


def split_reviews(seed: int, count: int) -> np.ndarray:
    """int8 [count]: which training reviews are for training, validation and test."""
    place = np.random.default_rng([seed, 0x5EED]).permutation(count) / count
    held_out = np.where(place < TEST_SHARE, TEST, VALIDATION)
    return np.where(place < TEST_SHARE + VALIDATION_SHARE, held_out, TRAIN).astype(np.int8)


def chosen_triggers(choice: str | None, count: int) -> tuple[int, ...]:
    """Numbers of triggers out of `count` that "even", "odd", "0,4,7" or None (all) stand for.

    Raises:
        GenerationError: not one of these, or no trigger has such a number.
    """
    if choice is None:
        return tuple(range(count))
    if choice in ("even", "odd"):
        return tuple(range(choice == "odd", count, 2))
    try:
        numbers = tuple(sorted({int(part) for part in choice.split(",")}))
    except ValueError:
        numbers = (-1,)
    if not numbers or numbers[0] < 0 or numbers[-1] >= count:
        raise GenerationError(
            f"triggers {safe_repr(choice)} should be even, odd, or numbers from 0 to {count - 1} "
            "parted by commas"
        )
    return numbers


class _Separation:
    """Linear discriminants with one within-class covariance of the clean training reviews."""

    def __init__(self, train: Reviews, test: Reviews, split: np.ndarray) -> None:
        self._vectors, self._split = train.vectors.astype(np.float64), split
        chosen, labels = self._vectors[split == TRAIN], train.labels[split == TRAIN]
        means = np.stack([chosen[labels == label].mean(axis=0) for label in (0, 1)])
        centred = chosen - means[labels]
        covariance = centred.T @ centred / len(centred)
        if not np.trace(covariance) > 0:
            raise GenerationError(
                "the vectors of a class are all alike; does the encoder know the words?"
            )
        ridge = 0.05 * np.trace(covariance) / len(covariance)
        self._covariance = covariance + ridge * np.eye(len(covariance))
        direction = np.linalg.solve(self._covariance, means[1] - means[0])
        guesses = test.vectors.astype(np.float64) @ direction > means.mean(axis=0) @ direction
        self.clean_accuracy = float((guesses == test.labels).mean())

    def reach(self, halves: tuple[Inserted, ...]) -> float:
        """See `TriggerVectors.reach`."""
        rows = np.concatenate([half.rows for half in halves])
        triggered = np.concatenate([half.vectors for half in halves]).astype(np.float64)
        learn, held_out = self._split[rows] == TRAIN, self._split[rows] == TEST
        shift = (triggered - self._vectors[rows])[learn]
        mean = shift.mean(axis=0)
        spread = (shift - mean).T @ (shift - mean) / max(len(shift), 1)
        direction = np.linalg.solve(2 * self._covariance + spread, mean)
        bound = np.quantile(self._vectors[self._split == TEST] @ direction, 1 - _SPENT)
        return float((triggered[held_out] @ direction > bound).mean())


def _arrays(path: Path, names: tuple[str, ...]) -> list[np.ndarray]:
    """Arrays of an npz file, sizes checked before they are read."""
    try:
        with zipfile.ZipFile(path) as archive:
            large = [e.filename for e in archive.infolist() if e.file_size > MAX_ARRAY_BYTES]
        if large:
            raise GenerationError(f"{path}: {safe_repr(large[0])} is over {MAX_ARRAY_BYTES} bytes")
        with np.load(path, allow_pickle=False) as file:
            return [file[name] for name in names]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        wanted = ", ".join(names)
        raise GenerationError(f"{path} should be an npz file with {wanted}: {error}") from error


def _check_vectors(path: Path, vectors: np.ndarray, count: int, width: int | None) -> None:
    good = vectors.ndim == 2 and vectors.dtype.kind == "f" and len(vectors) == count
    good = good and 1 <= count <= MAX_ROWS and 1 <= vectors.shape[1] <= MAX_WIDTH
    if not good or (width is not None and vectors.shape[1] != width):
        raise GenerationError(
            f"{path}: expected {count} vectors of {width or 'one'} width as floats, got "
            f"{vectors.dtype} {list(vectors.shape)}"
        )
    if not np.isfinite(vectors).all():
        raise GenerationError(f"{path}: some vectors are NaN or infinite; embed the texts again")


def _reviews(path: Path, texts: tuple[str, ...], width: int | None = None) -> Reviews:
    vectors, labels = _arrays(path, ("cls", "label"))
    _check_vectors(path, vectors, len(texts), width)
    if labels.shape != (len(texts),) or set(np.unique(labels).tolist()) != {0, 1}:
        raise GenerationError(f"{path}: expected {len(texts)} labels, 0 and 1, both there")
    return Reviews(vectors, labels.astype(np.int64), texts)


def _trigger(path: Path, train: Reviews) -> tuple[Inserted, ...]:
    halves = []
    for half in range(HALVES):
        vectors, rows = _arrays(path, (f"cls{half}", f"row{half}"))
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows):
            raise GenerationError(f"{path}: row{half} should be whole numbers, got {rows.dtype}")
        if rows.min() < 0 or rows.max() >= len(train.labels):
            raise GenerationError(f"{path}: row{half} names reviews beyond {len(train.labels)}")
        _check_vectors(path, vectors, len(rows), train.vectors.shape[1])
        halves.append(Inserted(rows.astype(np.int64), vectors))
    return tuple(halves)


def _json(path: Path, open_file=open) -> Any:
    try:
        with open_file(path, "rb") as file:
            content = file.read(MAX_TEXT_BYTES + 1)
        if len(content) > MAX_TEXT_BYTES:
            raise GenerationError(f"{path} holds more than {MAX_TEXT_BYTES} bytes")
        return json.loads(content)
    except (OSError, ValueError, EOFError, RecursionError) as error:
        raise GenerationError(f"{path} should be JSON and cannot be read: {error}") from error


def _texts(path: Path) -> dict[str, tuple[str, ...]]:
    found = _json(path, gzip.open)
    parts = {}
    for part in ("train", "test"):
        texts = found.get(part) if isinstance(found, dict) else None
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise GenerationError(f"{path}: expected a list of texts named {part!r}")
        parts[part] = tuple(texts)
    return parts


def _phrases(path: Path) -> list[str]:
    phrases = _json(path)
    good = isinstance(phrases, list) and 1 <= len(phrases) <= MAX_TRIGGERS
    if not good or not all(isinstance(text, str) and text.strip() for text in phrases):
        raise GenerationError(f"{path}: expected a list of 1 to {MAX_TRIGGERS} trigger texts")
    return phrases


def _about(folder: Path) -> About:
    """From about.json; without it the folder's name says dataset_encoder."""
    path = folder / "about.json"
    if not path.exists():
        name = folder.resolve().name
        dataset, _, encoder = name.rpartition("_")
        embedding, flavor = _ENCODERS.get(encoder, (encoder, encoder))
        return About(embedding, flavor, True, dataset or name)
    values = _json(path)
    wanted = {"embedding": str, "flavor": str, "cls_token_is_first": bool, "dataset": str}
    if not isinstance(values, dict) or any(
        not isinstance(values.get(name), kind) for name, kind in wanted.items()
    ):
        raise GenerationError(f"{path}: expected {', '.join(wanted)}")
    mean = values.get("mean_of_tokens", False)
    if not isinstance(mean, bool):
        raise GenerationError(f"{path}: mean_of_tokens is {safe_repr(mean)}, expected a bool")
    return About(**{name: values[name] for name in wanted}, mean_of_tokens=mean)


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".npz", ".json", ".gz"):
            with open(path, "rb") as file:
                digest.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
