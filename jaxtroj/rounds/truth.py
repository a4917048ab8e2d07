"""Which models are poisoned: the labels to calibrate and score against."""

import os
from pathlib import Path

from jaxtroj.errors import DatasetError
from jaxtroj.rounds import errata
from jaxtroj.rounds.layout import iter_models
from jaxtroj.rounds.metadata import metadata_of
from jaxtroj.rounds.places import model_places
from jaxtroj.rounds.tables import LABEL_COLUMNS, is_manifest, read_pairs
from jaxtroj.rounds.which import official_set


def names_places(path: Path) -> bool:
    """Whether a truth is a dataset folder or a manifest, whose models `iter_models` finds.

    Raises DatasetError for a file that is no table.
    """
    return path.is_dir() or is_manifest(path)


def load_truth(path: str | os.PathLike[str], include_errata: bool = False) -> dict[str, bool]:
    """Labels by model id: True is poisoned.

    Args:
        path: a METADATA.csv (columns `model_name` and `poisoned` or `ground_truth`), a CSV of two
            columns (model, label) with or without a header, a manifest, or a dataset folder. Models
            on NIST's errata lists are left out unless `include_errata`, where names of folder or
            table say which round it is.
    Raises:
        DatasetError: nothing readable, no label in it, or any label that cannot be read: a truth
            file with holes would give scores of fewer models than it seems.
    """
    path = Path(path)
    if names_places(path):
        truth, problems = _found_truth(path, include_errata)
    else:
        table = read_pairs(path)
        if not set(table.columns) & set(LABEL_COLUMNS):
            raise DatasetError(f"{path} has no column {' or '.join(LABEL_COLUMNS)}")
        truth = {name: row.poisoned for name, row in table.rows.items() if row.poisoned is not None}
        if not include_errata:
            truth = _without_errata(truth, official_set(path.parent, table))
        problems = [f"{name}: {row.problem}" for name, row in table.rows.items() if row.problem]
    if problems:
        raise DatasetError(
            f"{len(problems)} unreadable label(s) in {path}; the first: {problems[0]}"
        )
    if not truth:
        raise DatasetError(f"no label in {path}, expected ground_truth.csv files or a METADATA.csv")
    return truth


def _without_errata(truth: dict[str, bool], dataset: str | None) -> dict[str, bool]:
    """The labels of a table but those that an erratum against its round says are wrong."""

    def is_wrong(name: str, poisoned: bool) -> bool:
        reasons = (errata.skip_reason(dataset, name, kind, poisoned) for kind in ("image", "text"))
        return any(reasons)

    return {name: label for name, label in truth.items() if not is_wrong(name, label)}


def _found_truth(dataset: Path, include_errata: bool) -> tuple[dict[str, bool], list[str]]:
    truth: dict[str, bool] = {}
    problems: list[str] = []
    unlabelled = 0
    for entry in iter_models(dataset, include_errata):
        if entry.poisoned is None and entry.problem:
            problems.append(f"{entry.model_id}: {entry.problem}")
        elif entry.poisoned is None:
            unlabelled += 1
        elif entry.skip_reason is None:
            truth[entry.model_id] = entry.poisoned
    if unlabelled and dataset.is_dir():  # what cannot be read may hold their labels
        problems += metadata_of(dataset, model_places(dataset)).unread
    return truth, problems
