"""A bank's folder: what it holds as JSON, its vectors as an append-only file of halves.

`bank.json` names candidates, carriers and encoder and carries a digest of all that; `vectors.f16`
grows by whole candidates, so a stopped build goes on at the last whole one, and an open bank maps
the file into memory.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from converters.errors import LoadError, safe_repr
from converters.files import read_json, write_atomic
from jaxtroj.errors import StoreError
from jaxtroj.evidence.texts.bank.candidates import KINDS, BankText
from jaxtroj.evidence.texts.insertion import HALVES
from jaxtroj.held_folder import add_whole, claim_folder, cut_tail, hold, open_own
from jaxtroj.poolings import POOLINGS, Pooling

BANK_VERSION = 1
MANIFEST, VECTORS, CARRIERS = "bank.json", "vectors.f16", "carriers.f32"
_LARGEST_MANIFEST = 2**28
_WIDEST = 2**16
LARGEST = float(np.finfo(np.float16).max)
"""Largest number of a vector: the vectors of a bank are halves."""


@dataclass(frozen=True)
class BankPlan:
    """Everything that decides a bank's vectors.

    Attributes:
      encoder: sha256 of the encoder's weights.
      width: length of a vector.
      pooling: what is the vector, see `jaxtroj.poolings`.
      known_list: whether the candidates are a given list rather than the vocabulary.
      carriers: texts that candidates are inserted into.
      places: for each candidate and carrier, the sentence that it stands before.
      candidates: the texts.
      tokenizer: digest of the tokenizer, see `converters.encoders.tokenizer.tokenizer_digest`;
        empty for a bank of an earlier version, which did not note it.
    """

    encoder: str
    width: int
    pooling: Pooling
    known_list: bool
    carriers: tuple[str, ...]
    places: tuple[tuple[int, ...], ...]
    candidates: tuple[BankText, ...]
    tokenizer: str = ""

    def as_json(self) -> dict[str, Any]:
        """JSON values, with the version of the format."""
        values = asdict(self) | {"version": BANK_VERSION}
        return values if self.tokenizer else {k: v for k, v in values.items() if k != "tokenizer"}

    @cached_property
    def digest(self) -> str:
        """Identity of the plan, hex."""
        text = json.dumps(self.as_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Bank:
    """An opened bank.

    Attributes:
      plan: what it holds.
      carriers: float32 `[r, d]`, vectors of the carriers alone.
      vectors: float16 `[candidates, r, d]`, mapped from the file.
      missing: candidates that a build which did not end has left out.
    """

    plan: BankPlan
    carriers: np.ndarray
    vectors: np.ndarray
    missing: int = 0

    @cached_property
    def digest(self) -> str:
        """Identity of the plan and of the vectors that are there, hex."""
        digest = hashlib.sha256(self.plan.digest.encode())
        for part in (self.carriers, self.vectors):
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    @cached_property
    def shifts(self) -> np.ndarray:
        """Mean shift of each candidate, float32 `[candidates, d]`."""
        return np.asarray(self.vectors, np.float32).mean(axis=1) - self.carriers.mean(axis=0)

    @cached_property
    def half_shifts(self) -> tuple[np.ndarray, ...]:
        """The same over the carriers whose candidates stand in one half, for each half of a text.

        Of a single carrier, which has one half only, the same for both.
        """
        return tuple(self._shifts_in(half) for half in range(HALVES))

    def _shifts_in(self, half: int) -> np.ndarray:
        if len(self.carriers) < HALVES:
            return self.shifts
        inserted = np.asarray(self.vectors[:, half::HALVES], np.float32).mean(axis=1)
        return inserted - self.carriers[half::HALVES].mean(axis=0)

    @cached_property
    def every_shift(self) -> np.ndarray:
        """Shift of each candidate in each carrier, float32 `[candidates * r, d]`."""
        moved = np.asarray(self.vectors, np.float32) - self.carriers
        return moved.reshape(-1, self.plan.width)


class BankWriter:
    """Appends vectors to a bank's folder; goes on where an earlier build stopped.

    Use as a context manager: one writer at a time holds the folder's lock.

    Attributes:
      done: candidates whose vectors are there.
      knows_tokenizer: False for a whole bank of an earlier version, which did not note it.
    """

    def __init__(self, folder: Path, plan: BankPlan):
        """Raises StoreError when the folder holds anything else or is being written, or a part of a
        bank that nobody noted the tokenizer of."""
        self.folder, self.plan = folder, plan
        self._bytes = 2 * len(plan.carriers) * plan.width
        claim_folder(folder, MANIFEST, "bank")
        self._lock = hold(folder)
        try:
            self._begin()
        except BaseException:
            self._lock.close()
            raise

    def _begin(self) -> None:
        manifest = self.folder / MANIFEST
        kept = _read_plan(manifest) if manifest.exists() else None
        if kept is None:
            text = json.dumps(self.plan.as_json(), ensure_ascii=False, indent=1)
            write_atomic(manifest, text.encode())
        elif kept.digest not in (self.plan.digest, replace(self.plan, tokenizer="").digest):
            raise StoreError(
                f"{self.folder} holds a bank of other candidates, carriers or another encoder or"
                " tokenizer; name another folder, or repeat the command that began it"
            )
        self.knows_tokenizer = kept is None or kept.digest == self.plan.digest
        # What a killed build has written of its last candidates is cut off.
        if os.path.lexists(self.folder / VECTORS):
            open_own(self.folder / VECTORS).close()  # refuses a link, which could lead to any file
        self.done = _size(self.folder / VECTORS) // self._bytes
        is_whole = self.has_carriers and self.done >= len(self.plan.candidates)
        if not self.knows_tokenizer and not is_whole:
            raise StoreError(
                f"{self.folder} holds a part of a bank and does not say with which tokenizer an"
                " earlier version began it: two tokenizers must not be mixed; build it in another"
                " folder. The part that is there can be used"
            )
        cut_tail(self.folder / VECTORS, self.done * self._bytes)

    @property
    def has_carriers(self) -> bool:
        """Whether the carriers' own vectors are there."""
        return _size(self.folder / CARRIERS) == 2 * self._bytes

    def write_carriers(self, vectors: np.ndarray) -> None:
        """Keep the carriers' own vectors `[r, d]`."""
        write_atomic(self.folder / CARRIERS, np.asarray(vectors, "<f4").tobytes())

    def append(self, vectors: np.ndarray) -> None:
        """Add the vectors `[n, r, d]` of the next n candidates, on disk when this returns."""
        with np.errstate(over="ignore"):
            halves = np.asarray(vectors, "<f2")
        if not np.isfinite(halves).all():
            raise StoreError("vectors beyond the range of half precision; is this the encoder?")
        with open_own(self.folder / VECTORS) as file:
            add_whole(file, halves.tobytes())
            os.fsync(file.fileno())
        self.done += len(halves)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.close()


def open_bank(folder: str | os.PathLike[str]) -> Bank:
    """A finished bank, or the finished part of one being built.

    Raises:
      StoreError: the folder holds no bank, one of another version, or a damaged one.
    """
    home = Path(folder)
    plan = _read_plan(home / MANIFEST)
    shape = (len(plan.carriers), plan.width)
    done = min(_size(home / VECTORS) // (2 * shape[0] * shape[1]), len(plan.candidates))
    if not done or _size(home / CARRIERS) != 4 * shape[0] * shape[1]:
        raise StoreError(f"{home} holds no vectors yet; finish it: jaxtroj bank")
    carriers = np.fromfile(home / CARRIERS, "<f4").reshape(shape)
    vectors = np.memmap(home / VECTORS, "<f2", "r", shape=(done, *shape))
    if not (is_usual(carriers) and np.isfinite(vectors).all()):
        raise StoreError(
            f"{home} holds vectors with numbers that are not finite or beyond {LARGEST:.0f}; build"
            " it again"
        )
    missing = len(plan.candidates) - done
    if missing:
        plan = replace(plan, candidates=plan.candidates[:done], places=plan.places[:done])
    return Bank(plan, carriers, vectors, missing)


def is_usual(vectors: np.ndarray) -> bool:
    """Whether all numbers are finite and of a size that halves can hold; NaN is not."""
    return bool((np.abs(vectors) <= LARGEST).all())


def _read_plan(path: Path) -> BankPlan:
    try:
        values = read_json(path, _LARGEST_MANIFEST)
    except LoadError as error:
        raise StoreError(f"{path.parent} holds no bank: {error}") from error
    if values.get("version") != BANK_VERSION:
        raise StoreError(
            f"{path} has version {safe_repr(values.get('version'))}, expected {BANK_VERSION}; "
            "build "
            "the bank again"
        )
    try:
        return _plan(values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path} is no bank's manifest ({error}); build the bank again") from error


def _plan(values: dict[str, Any]) -> BankPlan:
    plan = BankPlan(
        encoder=_of(str, values["encoder"]),
        width=_of(int, values["width"]),
        pooling=_pooling(values),
        known_list=_of(bool, values["known_list"]),
        carriers=tuple(_of(str, text) for text in _of(list, values["carriers"])),
        places=tuple(
            tuple(_of(int, place) for place in _of(list, row))
            for row in _of(list, values["places"])
        ),
        candidates=tuple(
            BankText(_of(str, one["text"]), _of(str, one["kind"]))
            for one in _of(list, values["candidates"])
        ),
        tokenizer=_of(str, values.get("tokenizer", "")),
    )
    sound = (
        plan.carriers
        and 0 < plan.width <= _WIDEST
        and len(plan.places) == len(plan.candidates)
        and all(len(row) == len(plan.carriers) for row in plan.places)
        and all(candidate.kind in KINDS for candidate in plan.candidates)
    )
    if not sound:
        raise ValueError("its parts do not fit each other")
    return plan


def _pooling(values: dict[str, Any]) -> Pooling:
    """Banks that were built before there was a mean say whether it is the first token."""
    if "pooling" not in values:
        return "first" if _of(bool, values["cls_token_is_first"]) else "last"
    if values["pooling"] not in POOLINGS:
        raise ValueError(f"pooling is {safe_repr(values['pooling'])}, expected one of {POOLINGS}")
    return values["pooling"]


def _of(kind: type, value: Any) -> Any:
    """The value, if it is of just this type: JSON's true is no number."""
    if type(value) is not kind:
        raise TypeError(f"got {safe_repr(value)}, expected {kind.__name__}")
    return value


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
