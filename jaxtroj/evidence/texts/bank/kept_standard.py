"""What clean heads show, kept with their bank: a scan need not judge them all again.

`BANK/standard.json` holds the values of every reference's fields. It is written by `jaxtroj bank`,
and taken only where its identity is that of the bank, its references, the seed and the fields
asked for; else the values are computed anew.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from converters.errors import LoadError
from converters.files import read_json, write_atomic
from jaxtroj.evidence.texts.standard import Standard

STANDARD = "standard.json"
_LARGEST = 2**24


def standard_identity(
    bank: str, references: str, version: int, seed: int, fields: Sequence[str]
) -> str:
    """Hex digest of all that the values follow from.

    Args:
      bank, references: digests of the bank with its vectors, and of its clean heads with their
        examples.
      version: of what the fields mean.
      seed: of the searches.
      fields: names of those kept.
    """
    said = json.dumps([bank, references, version, seed, list(fields)])
    return hashlib.sha256(said.encode()).hexdigest()


def keep_standard(folder: Path, standard: Standard, identity: str) -> None:
    """Write the values into a bank's folder; raises OSError."""
    values = {name: column.tolist() for name, column in standard.values.items()}
    content = {"identity": identity, "keys": list(standard.keys), "values": values}
    write_atomic(folder / STANDARD, json.dumps(content).encode())


def kept_standard(folder: Path, identity: str, steepness: str, size: str) -> Standard | None:
    """The values that were kept; None where there are none, of another identity or damaged."""
    try:
        content = read_json(folder / STANDARD, _LARGEST)
        if content.get("identity") != identity:
            return None
        keys = tuple(str(key) for key in content["keys"])
        values = {
            str(name): np.array(column, np.float64) for name, column in content["values"].items()
        }
    except (LoadError, KeyError, TypeError, ValueError, AttributeError):
        return None
    good = {steepness, size} <= values.keys() and all(
        column.shape == (len(keys),) and np.isfinite(column).all() for column in values.values()
    )
    return Standard(keys, values, steepness, size) if good and keys else None
