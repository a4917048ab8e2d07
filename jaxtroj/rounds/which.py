"""Which TrojAI round a dataset folder is: by our generator, its METADATA, its name, a manifest.

Errata go by NIST's exact sets (`official_set`); calibrators go by rounds, and a generated round is
one too. Of a folder that our generator made its own word comes first: names are its owner's choice,
and cells of its METADATA name folders of pictures. Anybody who may add a model may add a manifest,
so most of the models must bear the generator's mark for that, too; a manifest alone says the round
where nothing else does, and makes no set of NIST's another.
"""

import re
from pathlib import Path

from converters.errors import ConverterError
from converters.files import read_json
from jaxtroj.errors import DatasetError
from jaxtroj.rounds import errata
from jaxtroj.rounds.places import model_places
from jaxtroj.rounds.tables import Table

_MANIFEST, _MOST_BYTES = "manifest.json", 64 * 2**20
_GENERATOR = re.compile(r"jaxtroj generate (round[0-9]+|[a-z]+)")
_MARK = "generation.json"  # how a model was made, in its own folder
_MODEL_FOLDER = re.compile(r"id-[0-9]+")


def round_of(root: Path, table: Table | None) -> str | None:
    """The round of a dataset folder or of one model's folder in it, such as "round0"; or None.

    Args:
        root: the folder that was named.
        table: its METADATA, if it has one.
    """
    home = _dataset_home(root)
    generated = _generated(_around(home))
    dataset = errata.dataset_name(home, table)
    if generated is None or (dataset is not None and not _is_marked(_around(home))):
        return None if dataset is None else dataset.partition("-")[0]
    return generated if generated.startswith("round") else None


def official_set(root: Path, table: Table | None) -> str | None:
    """Which of NIST's sets a dataset folder is, see `errata.dataset_name`; None of a generated one.

    Args:
        root: the folder that was named.
        table: its METADATA, if it has one.
    """
    dataset = errata.dataset_name(root, table)
    if dataset is None:
        return None
    home = _around(_dataset_home(root))
    return None if _is_marked(home) and _generated(home) is not None else dataset


def _dataset_home(root: Path) -> Path:
    """The folder of a dataset's models; of one model's folder id-XXXXXXXX that around it."""
    home = root.resolve()
    return home.parent if _MODEL_FOLDER.fullmatch(home.name) else home


def _around(home: Path) -> Path:
    """Where a dataset's tables and manifest lie, by the folder of its models."""
    return home.parent if home.name == "models" else home


def _is_marked(home: Path) -> bool:
    """Whether most models of a dataset folder bear the generator's mark, each in its own folder."""
    try:
        places = model_places(home)
    except DatasetError:
        return False
    marked = sum((place / _MARK).is_file() for place in places)
    return 2 * marked > len(places)


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
    """What our generator wrote into a folder, such as "round0" or "zoo"; a manifest of others says
    nothing."""
    try:
        generator = read_json(home / _MANIFEST, _MOST_BYTES).get("generator")
    except ConverterError:
        return None
    found = _GENERATOR.fullmatch(generator) if isinstance(generator, str) else None
    return found.group(1) if found else None
