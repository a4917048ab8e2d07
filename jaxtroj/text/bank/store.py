"""A bank's folder: what it holds as JSON, its vectors as an append-only file of halves.

`bank.json` names candidates, carriers and encoder and carries a digest of all that; `vectors.f16`
grows by whole candidates, so a stopped build goes on at the last whole one, and an open bank maps
the file into memory.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from converters.files import write_atomic
from jaxtroj.errors import StoreError
from jaxtroj.text.bank.candidates import KINDS, Candidate

BANK_VERSION = 1
MANIFEST, VECTORS, CARRIERS = "bank.json", "vectors.f16", "carriers.f32"
_LARGEST_MANIFEST = 2**28


@dataclass(frozen=True)
class Plan:
    """Everything that decides a bank's vectors.

    Attributes:
      encoder: sha256 of the encoder's weights.
      width: length of a vector.
      cls_token_is_first: which token's state is the vector.
      known_list: whether the candidates are a given list rather than the vocabulary.
      carriers: texts that candidates are inserted into.
      places: for each candidate and carrier, the sentence that it stands before.
      candidates: the texts.
    """

    encoder: str
    width: int
    cls_token_is_first: bool
    known_list: bool
    carriers: tuple[str, ...]
    places: tuple[tuple[int, ...], ...]
    candidates: tuple[Candidate, ...]

    def as_json(self) -> dict[str, Any]:
        """JSON values, with the version of the format."""
        return asdict(self) | {"version": BANK_VERSION}

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
    """

    plan: Plan
    carriers: np.ndarray
    vectors: np.ndarray

    @cached_property
    def shifts(self) -> np.ndarray:
        """Mean shift of each candidate, float32 `[candidates, d]`."""
        return np.asarray(self.vectors, np.float32).mean(axis=1) - self.carriers.mean(axis=0)

    @cached_property
    def every_shift(self) -> np.ndarray:
        """Shift of each candidate in each carrier, float32 `[candidates * r, d]`."""
        moved = np.asarray(self.vectors, np.float32) - self.carriers
        return moved.reshape(-1, self.plan.width)


class BankWriter:
    """Appends vectors to a bank's folder; goes on where an earlier build stopped."""

    def __init__(self, folder: Path, plan: Plan):
        """Raises StoreError when the folder holds another bank."""
        self.folder, self.plan = folder, plan
        self._bytes = 2 * len(plan.carriers) * plan.width
        folder.mkdir(parents=True, exist_ok=True)
        manifest = folder / MANIFEST
        if not manifest.exists():
            text = json.dumps(plan.as_json(), ensure_ascii=False, indent=1)
            write_atomic(manifest, text.encode())
        elif _read_plan(manifest).digest != plan.digest:
            raise StoreError(
                f"{folder} holds a bank of other candidates, carriers or another encoder; name "
                "another folder, or repeat the command that began it"
            )
        self.done = _size(folder / VECTORS) // self._bytes
        if _size(folder / VECTORS) % self._bytes:
            os.truncate(folder / VECTORS, self.done * self._bytes)

    def write_carriers(self, vectors: np.ndarray) -> None:
        """Keep the carriers' own vectors `[r, d]`."""
        write_atomic(self.folder / CARRIERS, np.asarray(vectors, "<f4").tobytes())

    def append(self, vectors: np.ndarray) -> None:
        """Add the vectors `[n, r, d]` of the next n candidates, on disk when this returns."""
        halves = np.asarray(vectors, "<f2")
        if not np.isfinite(halves).all():
            raise StoreError("vectors beyond the range of half precision; is this the encoder?")
        with open(self.folder / VECTORS, "ab") as file:
            file.write(halves.tobytes())
            file.flush()
            os.fsync(file.fileno())
        self.done += len(halves)


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
        raise StoreError(f"{home} holds no vectors yet; finish: jaxtroj bank")
    carriers = np.fromfile(home / CARRIERS, "<f4").reshape(shape)
    vectors = np.memmap(home / VECTORS, "<f2", "r", shape=(done, *shape))
    if not (np.isfinite(carriers).all() and np.isfinite(vectors).all()):
        raise StoreError(f"{home} holds vectors that are not finite; build it again")
    if done < len(plan.candidates):
        plan = Plan(**{**vars_of(plan), "candidates": plan.candidates[:done],
                       "places": plan.places[:done]})  # fmt: skip
    return Bank(plan, carriers, vectors)


def vars_of(plan: Plan) -> dict[str, Any]:
    """Field name -> value of a plan, not copied."""
    return {name: getattr(plan, name) for name in Plan.__dataclass_fields__}


def _read_plan(path: Path) -> Plan:
    if _size(path) > _LARGEST_MANIFEST:
        raise StoreError(f"{path} is larger than {_LARGEST_MANIFEST} bytes; it is no bank of ours")
    try:
        values = json.loads(path.read_bytes())
        if values["version"] != BANK_VERSION:
            raise StoreError(f"{path} has version {values['version']}, expected {BANK_VERSION}")
        return _plan(values)
    except OSError as error:
        raise StoreError(f"{path.parent} holds no bank: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path} is no bank's manifest ({error}); build the bank again") from error


def _plan(values: dict[str, Any]) -> Plan:
    carriers = tuple(map(_text, values["carriers"]))
    candidates = tuple(Candidate(_text(c["text"]), _text(c["kind"])) for c in values["candidates"])
    places = tuple(tuple(map(int, row)) for row in values["places"])
    width = int(values["width"])
    sound = (
        carriers
        and 0 < width <= 2**16
        and len(places) == len(candidates)
        and all(len(row) == len(carriers) for row in places)
        and all(c.kind in KINDS for c in candidates)
    )
    if not sound:
        raise ValueError("its parts do not fit each other")
    return Plan(
        _text(values["encoder"]),
        width,
        bool(values["cls_token_is_first"]),
        bool(values["known_list"]),
        carriers,
        places,
        candidates,
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
