"""What NIST published about single models after a round came out.

Round 1: models labelled poisoned whose trigger does nothing. Labels are left out for this reason,
because a wrong one harms calibration and scores silently; the models are scanned as all others,
since names and labels are whatever who hands them in says. Round 0 came with no promise of
convergence: the models that missed it are noted, and their labels count. Round 5: models labelled
clean that got a trigger in packaging (`contaminated.py`). No list touches a dataset that merely
uses the same ids: the round must be recognised, and the model be of its kind and have the label
that the list says is wrong. One without a label is scanned.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from jaxtroj.rounds.contaminated import CONTAMINATED
from jaxtroj.rounds.tables import PATH_COLUMNS, Table

NO_TRIGGER = "erratum by NIST: labelled poisoned, but no trigger works on it"
HAS_TRIGGER = "erratum by NIST: labelled clean, but contaminated with a trigger in packaging"
ERRATA: Mapping[str, frozenset[str]] = {
    "round1-train": frozenset({"id-00000184", "id-00000599", "id-00000858", "id-00001088"}),
    "round1-test": frozenset({"id-00000077", "id-00000083"}),
}
# id: (master_seed in METADATA, clean test accuracy %, accuracy on its own examples %)
ROUND0_UNCONVERGED: Mapping[str, tuple[str, float, float]] = {
    "id-00000029": ("203664994", 59.6, 60.0),
    "id-00000039": ("2675109835", 89.9, 88.8),
    "id-00000041": ("2344675514", 99.8, 0.0),
    "id-00000045": ("879411745", 80.0, 80.0),
    "id-00000076": ("2645788278", 99.7, 21.2),
    "id-00000090": ("2151987722", 80.0, 80.6),
    "id-00000147": ("1102720414", 64.4, 65.6),
    "id-00000165": ("1228263193", 80.0, 80.0),
    "id-00000166": ("467481899", 99.3, 50.8),
    "id-00000192": ("3739985827", 79.4, 79.4),
    "id-00000199": ("1394892663", 98.5, 20.6),
}
# A word of its own: background2 and underground-0 are no rounds, TrojAIRound3 and nist_round4 are.
WORD = r"(?:(?<![A-Za-z])(?i:(?:trojai)?round)|Round)"
# The letter alone only where a name begins: yolo-r0 and net-r1 are no rounds, r1-train is.
_LETTER = r"(?:(?<![^/])|(?i:trojai)[-_ ]?)[Rr]"
_ROUND = re.compile(rf"(?:{WORD}[-_ ]?([0-4])|{_LETTER}[-_ ]?([01]))(?![0-9])")
_SPLIT = re.compile(r"(train|test|holdout)", re.IGNORECASE)
TRAIN_ROWS = 1000  # models in Round 1's training set; its test and holdout sets have 100 each
_ROUND5 = re.compile(
    rf"(?:{WORD}|{_LETTER})[-_ ]?5(?![0-9])|(?i:nlp-sentiment-classification-mar2021)"
)
_FIRST = "id-00000000"
# master_seed of the first model in the official METADATA.csv; that of the test set is not known
ROUND5_FIRST_SEEDS = {"1050372071": "round5-train", "1563759677": "round5-holdout"}
_MANIFEST = "manifest.json"  # what `jaxtroj generate` leaves in a round's folder; NIST does not


def dataset_name(folder: Path, table: Table | None) -> str | None:
    """Which official set a folder is: "round0", "round1-train", "round5-holdout" ... or None.

    Rounds 0 to 4: the round comes from the name of the folder (or of its METADATA file), else
    from the paths inside its first metadata row, in columns of paths; the split from those names,
    else from the number of rows. Round 5: the master seed of its first model says it, else the
    names do.

    >>> dataset_name(Path("round1-dataset-train"), None)
    'round1-train'
    >>> dataset_name(Path("round5-test-dataset"), None)
    'round5-test'
    >>> dataset_name(Path("mine"), None) is None
    True
    """
    folder = folder.resolve()  # it may be named "." or by a link
    names = [folder.name, table.path.name if table else ""]
    if folder.name == "models":
        names.insert(1, folder.parent.name)
    first = next(iter(table.rows.values()), None) if table else None
    cells = [text for name, text in first.cells.items() if _is_of_paths(name)] if first else []
    found = next((match for text in [*names, *cells] if (match := _ROUND.search(text))), None)
    split = next((match.group(1).lower() for name in names if (match := _SPLIT.search(name))), None)
    if found is None:
        return _round5_name(folder, names, split, table)
    number = found.group(1) or found.group(2)
    if number == "0":
        return "round0"
    if number == "1" and split is None and table and len(table.rows) == TRAIN_ROWS:
        split = "train"
    return f"round{number}-{split}" if split else f"round{number}"


def _is_of_paths(column: str) -> bool:
    """Whether a column holds paths, as `available_foregrounds_filepath` of Round 0 does: a remark
    in another may speak of any round."""
    return column in PATH_COLUMNS or column.endswith("_filepath")


def _round5_name(
    folder: Path, names: list[str], split: str | None, table: Table | None
) -> str | None:
    """Round 5's set, told by a seed where there is one; a generated round is none of them."""
    row = table.rows.get(_FIRST) if table else None
    known = ROUND5_FIRST_SEEDS.get(row.cells.get("master_seed", "")) if row else None
    if known is not None:
        return known
    home = folder.parent if folder.name == "models" else folder
    named = any(_ROUND5.search(name) for name in names)
    if not named or split is None or (home / _MANIFEST).exists():
        return None
    name = f"round5-{split}"
    is_another = row is not None and name in ROUND5_FIRST_SEEDS.values()
    return None if is_another else name


def skip_reason(dataset: str | None, model_id: str, kind: str, poisoned: bool | None) -> str | None:
    """The erratum that takes a model out of a recognised round, or None.

    >>> skip_reason("round1-train", "id-00000184", "image", True)
    'erratum by NIST: labelled poisoned, but no trigger works on it'
    >>> skip_reason("round1-test", "id-00000184", "image", True) is None
    True
    >>> skip_reason("round5-train", "id-00000007", "text", False)
    'erratum by NIST: labelled clean, but contaminated with a trigger in packaging'
    """
    if model_id in ERRATA.get(dataset or "", frozenset()):
        return NO_TRIGGER if kind == "image" and poisoned is True else None
    if model_id in CONTAMINATED.get(dataset or "", frozenset()):
        return HAS_TRIGGER if kind == "text" and poisoned is False else None
    return None


def notes(dataset: str | None, model_id: str, cells: Mapping[str, str]) -> tuple[str, ...]:
    """Known facts about a model that do not take it out: Round 0 models that did not converge.

    The row's master seed must be the official one, so generated rounds are never mistaken for it.
    """
    known = ROUND0_UNCONVERGED.get(model_id) if dataset == "round0" else None
    if known is None or cells.get("master_seed") != known[0]:
        return ()
    return (f"did not converge: clean accuracy {known[1]} %, on its examples {known[2]} %",)
