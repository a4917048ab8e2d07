"""Which TrojAI round a dataset folder is: by its METADATA, its name, or the generator's manifest.

Errata go by exact sets (`errata.dataset_name`); calibrators go by rounds, and a generated round is
one too.
"""

import re
from pathlib import Path

from converters.errors import ConverterError
from converters.files import read_json
from jaxtroj.rounds import errata
from jaxtroj.rounds.tables import Table

_MANIFEST, _MOST_BYTES = "manifest.json", 64 * 2**20
_GENERATOR = re.compile(r"jaxtroj generate (round[0-9]+)")
_MODEL_FOLDER = re.compile(r"id-[0-9]+")


def round_of(root: Path, table: Table | None) -> str | None:
    """The round of a dataset folder or of one model's folder in it, such as "round0"; or None.

    Args:
        root: the folder that was named.
        table: its METADATA, if it has one.
    """
    home = root.resolve()
    if _MODEL_FOLDER.fullmatch(home.name):  # one model of a dataset
        home = home.parent
    dataset = errata.dataset_name(home, table)
    if dataset is not None:
        return dataset.partition("-")[0]
    return _generated(home.parent if home.name == "models" else home)


def dataset_of(place: Path) -> Path | None:
    """The folder around a model's folder id-XXXXXXXX, or around that of a file in one; None for any
    other place, which may lie anywhere.

    >>> dataset_of(Path("/round2-train/id-00000003/model.pt"))
    PosixPath('/round2-train')
    >>> dataset_of(Path("/round2-train/model.pt")) is None
    True
    """
    home = (place if place.is_dir() else place.parent).resolve()
    return home.parent if _MODEL_FOLDER.fullmatch(home.name) else None


def _generated(home: Path) -> str | None:
    """The round that our generator wrote into a folder; a manifest of others says nothing."""
    try:
        generator = read_json(home / _MANIFEST, _MOST_BYTES).get("generator")
    except ConverterError:
        return None
    found = _GENERATOR.fullmatch(generator) if isinstance(generator, str) else None
    return found.group(1) if found else None
