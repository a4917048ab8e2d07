"""Clean models without a value in a column, such as a kind of trigger, held out with the groups.

A group of clean models alone cannot be left out: the others would hold too few. NIST's tables and
those of generated rounds write such a cell as `None`, others leave it empty or write what their
tools make of nothing.
"""

from collections.abc import Callable, Sequence

from jaxtroj.calibration.groups import assign_groups
from jaxtroj.leaderboard.cases import Case, groups, value_of

NO_VALUES = frozenset({"", "none", "[]", "null", "nan"})
"""Words for nothing, in small letters."""


def without_value(cases: Sequence[Case], column: str) -> list[bool]:
    """Whether each case is of a clean model that has no value in a column, [n].

    A word for nothing that a poisoned model has too, as where `None` is a kind of augmentation, is
    a value; an empty cell never is one.
    """
    meant = {_word(case, column) for case in cases if case.poisoned} - {""}
    no_values = NO_VALUES - meant
    return [not case.poisoned and _word(case, column) in no_values for case in cases]


def group_names(cases: Sequence[Case], column: str) -> list[str]:
    """Each case's value of a column; "" for a clean model without one, [n].

    Raises DatasetError as `cases.value_of` does.
    """
    values = [value_of(case, column) for case in cases]
    nothing = without_value(cases, column)
    return ["" if none else value for value, none in zip(values, nothing, strict=True)]


def dealt_groups(
    cases: Sequence[Case], column: str, file_of: Callable[[Case], str], seed: int
) -> dict[str, list[Case]]:
    """As `cases.groups`, with clean models without a value dealt out among the groups.

    Args:
        cases: of different names.
        column: as `cases.value_of` takes it.
        file_of: names a case's model file; copies without a value go to one group.
        seed: of the dealing, which is that of `assign_groups`.

    Raises:
        DatasetError: as `cases.value_of`.
    """
    nothing = without_value(cases, column)
    found = groups([c for c, none in zip(cases, nothing, strict=True) if not none], column)
    if not any(nothing) or len(found) < 2:
        return found
    group_of = {case.model: name for name, kept in found.items() for case in kept}
    files = dict.fromkeys(map(file_of, cases), "")
    for case in cases:
        files[file_of(case)] = files[file_of(case)] or group_of.get(case.model, "")
    folds = assign_groups(list(files.values()), list(files), seed=f"{seed}:groups")
    names = sorted(found)  # the folds' order
    dealt = {file: names[fold] for file, fold in zip(files, folds.tolist(), strict=True)}
    for case, none in zip(cases, nothing, strict=True):
        if none:
            found[dealt[file_of(case)]].append(case)
    return found


def _word(case: Case, column: str) -> str | None:
    """A cell in small letters; None where the model has none in that column."""
    cell = case.cells.get(column)
    return None if cell is None else cell.strip().lower()
