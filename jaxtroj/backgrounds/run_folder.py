"""The folder of one network's challenge: answers to pairs that survive kill -9, and the result.

RUN/settings.json   what the answers depend on; a resumed run must have the same
RUN/pairs.jsonl     blocks of answers, append-only, each with its checksum
RUN/lock            held while a run writes
RUN/matrix.npy      with --matrix: int8, class predicted for every pair
RUN/result.json     the result, written last
"""

import base64
import json
import os
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from converters.files import write_atomic
from jaxtroj.backgrounds.challenge import Pairs
from jaxtroj.errors import StoreError
from jaxtroj.held_folder import add_whole, agree, claim_folder, cut_tail, hold, open_own

SETTINGS = "settings.json"
_FLUSH_SECONDS, _FLUSH_PAIRS = 5.0, 100_000
_MAX_PAIRS_IN_BLOCK = 2**24
_KINDS = ("<u4", "<u4", "|i1")


class RunFolder:
    """An open run; use as a context manager. Answers are on disk at most 5 s after `append`.

    Args:
        folder: made if absent; an existing one must hold a run with the same settings.
        settings: JSON values that the answers depend on.
        shape: foregrounds and backgrounds; bounds of the indices.

    Raises:
        StoreError: the folder holds something else, other settings, damaged blocks or a link, or
            another process is writing to it.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], shape: tuple[int, int]):
        self.folder, self._shape = Path(folder), shape
        self._waiting: list[Pairs] = []
        self._flushed = time.monotonic()
        claim_folder(self.folder, SETTINGS, "run of the challenge")
        self._lock = hold(self.folder)
        try:
            agree(self.folder / SETTINGS, settings)
            path = self.folder / "pairs.jsonl"
            open_own(path).close()  # refuses a link, which could lead to any file
            self.earlier = self._recover(path)
            self._file = open_own(path)
        except OSError as error:
            self._lock.close()
            raise StoreError(f"cannot use {folder}: {error.strerror or error}") from error
        except BaseException:
            self._lock.close()
            raise

    def append(self, pairs: Pairs) -> None:
        """Keep answers. Raises StoreError when the disk is full; the blocks before stand."""
        if len(pairs.foregrounds):
            self._waiting.append(pairs)
        late = time.monotonic() - self._flushed > _FLUSH_SECONDS
        if late or sum(len(p.foregrounds) for p in self._waiting) > _FLUSH_PAIRS:
            self.flush()

    def flush(self) -> None:
        """Write what waits; when this returns, it survives a crash."""
        self._flushed = time.monotonic()
        if not self._waiting:
            return
        line = _block(Pairs(*map(np.concatenate, zip(*self._waiting, strict=True))))
        try:
            add_whole(self._file, line)
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StoreError(f"cannot add to {self.folder}: {error.strerror or error}") from error
        self._waiting = []

    def _recover(self, path: Path) -> Pairs:
        """All answers on file; a last block torn by a crash is cut off."""
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        blocks = [Pairs(*(np.zeros(0, kind) for kind in _KINDS))]
        for number, line in enumerate(content[:whole].splitlines(), start=1):
            try:
                blocks.append(_parsed(line, self._shape))
            except (ValueError, KeyError, TypeError, zlib.error) as error:
                raise StoreError(
                    f"{path}, line {number} is damaged ({error}); remove that line to compute its "
                    "pairs again"
                ) from error
        cut_tail(path, whole)
        return _once(Pairs(*map(np.concatenate, zip(*blocks, strict=True))))

    def write(self, name: str, content: bytes) -> None:
        """A whole file in the folder, or StoreError."""
        try:
            write_atomic(self.folder / name, content)
        except OSError as error:
            raise StoreError(f"cannot write {self.folder / name}: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.flush()
        finally:
            self._file.close()
            self._lock.close()


def _block(pairs: Pairs) -> bytes:
    """One line: how many pairs, and their columns, compressed, with a checksum."""
    content = b"".join(
        np.asarray(part).astype(kind).tobytes() for part, kind in zip(pairs, _KINDS, strict=True)
    )
    packed = base64.b64encode(zlib.compress(content, 1)).decode()
    values = {"pairs": len(pairs.predicted), "crc32": zlib.crc32(content), "answers": packed}
    return json.dumps(values).encode() + b"\n"


def _parsed(line: bytes, shape: tuple[int, int]) -> Pairs:
    values = json.loads(line)
    count = values["pairs"]
    if type(count) is not int or not 0 < count <= _MAX_PAIRS_IN_BLOCK:
        raise ValueError("not a block of answers")
    sizes = [count * np.dtype(kind).itemsize for kind in _KINDS]
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(base64.b64decode(values["answers"], validate=True), sum(sizes))
    if len(content) != sum(sizes) or zlib.crc32(content) != values["crc32"]:
        raise ValueError("its checksum differs")
    starts = np.cumsum([0, *sizes])
    columns = [
        np.frombuffer(content, kind, count, start)
        for kind, start in zip(_KINDS, starts, strict=False)
    ]
    if columns[0].max() >= shape[0] or columns[1].max() >= shape[1]:
        raise ValueError("pairs outside the data")
    return Pairs(*columns)


def _once(pairs: Pairs) -> Pairs:
    """Every pair once, should a block stand there twice."""
    keys = pairs.foregrounds.astype(np.int64) * 2**32 + pairs.backgrounds
    _, first = np.unique(keys, return_index=True)
    return Pairs(*(part[first] for part in pairs))
