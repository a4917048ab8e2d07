"""Vectors of the example texts of a clean head, `examples.npy` in its folder.

A bank may come from a stranger as a model does: the file is read as an array of an archive is.
"""

import io
from pathlib import Path

import numpy as np

from converters.errors import LoadError
from converters.files import read_at_most, write_atomic
from jaxtroj.errors import StoreError
from jaxtroj.evidence.texts.bank.contents import EXAMPLES
from jaxtroj.evidence.texts.bank.store import LARGEST, is_usual
from jaxtroj.rounds.npy_header import NpyError, read_npy_header

AGAIN = "add what is missing: jaxtroj bank with --references"
"""What to do about clean heads that are missing or damaged."""
_MOST_BYTES = 2**27


def read_examples(place: Path) -> np.ndarray:
    """The vectors in the folder of a head, float32 `[n, d]`, n of at least 1.

    Raises:
      StoreError: they are missing, no regular file, no such array, or of unusual numbers.
    """
    path = place / EXAMPLES
    try:
        content = read_at_most(path, _MOST_BYTES)
        header = read_npy_header(content)
        if len(header.shape) != 2 or header.dtype != np.float32:
            raise NpyError(f"{header}, expected float32 vectors")
        found = header.array(content).copy()
    except (LoadError, NpyError) as error:
        raise StoreError(f"{path} holds no vectors of example texts: {error}; {AGAIN}") from error
    if not is_usual(found):
        raise StoreError(
            f"{path} holds numbers that are not finite or beyond {LARGEST:.0f}, expected vectors of"
            f" example texts; {AGAIN}"
        )
    return found


def write_examples(place: Path, vectors: np.ndarray) -> None:
    """Keep vectors float32 `[n, d]` in the folder of a head. Raises OSError."""
    buffer = io.BytesIO()
    np.save(buffer, vectors, allow_pickle=False)
    write_atomic(place / EXAMPLES, buffer.getvalue())
