"""Predictions joined with the truth: one case for each labelled model, grouped as asked."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from converters.errors import safe_repr
from jaxtroj.errors import DatasetError, UsageError
from jaxtroj.leaderboard.predictions import Predictions
from jaxtroj.record import Record, is_evidence_only, printable
from jaxtroj.rounds import iter_models, load_truth
from jaxtroj.rounds.tables import read_pairs
from jaxtroj.rounds.truth import names_places
from jaxtroj.scoring import ReliabilityBin, Scores, contributions, reliability, score

ARCHITECTURE, ROUND = "architecture", "round"
MOST_GROUPS = 12  # of numbers; a column with more of them is cut into quarters
_HUGE = 1e307
_ARCHITECTURE_COLUMNS = (ARCHITECTURE, "model_architecture")


@dataclass(frozen=True)
class Truth:
    """Labels by (printable) model name, and what METADATA says of each model."""

    path: Path
    poisoned: Mapping[str, bool]
    cells: Mapping[str, Mapping[str, str]]
    errata: Mapping[str, str] = field(default_factory=dict)
    """Why NIST's errata take a model out of its dataset, by name."""


@dataclass(frozen=True)
class Case:
    """One labelled model and what was said of it."""

    model: str
    """Name of the model; with its round in front where several rounds are evaluated."""
    poisoned: bool
    probability: float
    """P(poisoned) in [0, 1]; NaN: no prediction, which scores as 0.5."""
    cells: Mapping[str, str] = field(default_factory=dict)
    record: Record | None = None
    round: str = ""
    """Name of the folder or file that the prediction comes from; empty where no set of several that
    share a truth predicts the model."""


@dataclass(frozen=True)
class Matched:
    """The cases of one set of predictions, and what fell out of it.

    Of several sets that share a truth, what none of them predicts is a set of its own.
    """

    cases: tuple[Case, ...]
    unlabelled: int
    """Predictions of models that the truth does not name, errata left out."""
    not_predicted: int
    """Labelled models without any prediction, whether they were kept or not."""
    blank: tuple[str, ...] = ()
    """Labelled models whose prediction says nothing, such as NaN; they are cases all the same."""
    path: Path = Path()
    """Of the predictions; of the truth for what no set predicts."""
    errata: tuple[str, ...] = ()
    """Why NIST's errata take models out that have a prediction, one for each."""


def read_truth(path: Path) -> Truth:
    """Labels and METADATA cells of a METADATA.csv, a CSV of model and label, a manifest, or a
    dataset folder.

    Raises DatasetError as `rounds.load_truth` does.
    """
    labels = {printable(name): poisoned for name, poisoned in load_truth(path).items()}
    if not names_places(path):
        cells = {printable(name): row.cells for name, row in read_pairs(path).rows.items()}
        return Truth(path, labels, cells)
    entries = {printable(entry.model_id): entry for entry in iter_models(path)}
    cells = {name: entry.metadata for name, entry in entries.items()}
    errata = {name: entry.skip_reason for name, entry in entries.items() if entry.skip_reason}
    return Truth(path, labels, cells, errata)


def match(predictions: Predictions, truth: Truth, predicted_only: bool = False) -> Matched:
    """One case for each labelled model, in the order of the truth.

    A labelled model without a prediction is a case with NaN, which scores as 0.5, as NIST does;
    with `predicted_only` it is left out. Models that the run skipped (errata) are no cases.
    Raises UsageError when truth and predictions have no model in common.
    """
    predictions = spelled_as(truth, predictions)
    said = predictions.probabilities
    common = said.keys() & truth.poisoned.keys()
    if not common:
        raise UsageError(
            f"no model of {predictions.path} has a label in {truth.path}"
            f"{apart(said, truth.poisoned)}"
        )
    wanted = [name for name in truth.poisoned if name not in predictions.skipped]
    name_of_run = _name(predictions.path)
    cases = tuple(
        Case(
            name,
            truth.poisoned[name],
            said.get(name, math.nan),
            truth.cells.get(name, {}),
            predictions.records.get(name),
            name_of_run,
        )
        for name in wanted
        if name in said or not predicted_only
    )
    blank = tuple(name for name in predictions.blank if name in common)
    missing = len(wanted) - len(common)
    errata = tuple(truth.errata[name] for name in said if name in truth.errata)
    unlabelled = len(said) - len(common) - len(errata)
    return Matched(cases, unlabelled, missing, blank, predictions.path, errata)


def match_together(
    several: Sequence[Predictions], truth: Truth, predicted_only: bool = False
) -> list[Matched]:
    """One of each set as `match`, and one last one of what no set predicts: each model once.

    Raises as `match`.
    """
    matches = [match(one, truth, predicted_only=True) for one in several]
    known = {case.model for one in matches for case in one.cases}
    known |= {name for one in several for name in one.skipped}
    absent = [name for name in truth.poisoned if name not in known]
    cases = () if predicted_only else tuple(_not_predicted(name, truth) for name in absent)
    nobody = Matched(cases, 0, len(absent), path=truth.path)
    return [*(replace(one, not_predicted=0) for one in matches), nobody]


def _not_predicted(name: str, truth: Truth) -> Case:
    return Case(name, truth.poisoned[name], math.nan, truth.cells.get(name, {}))


def spelled_as(truth: Truth, predictions: Predictions) -> Predictions:
    r"""The predictions under the names of the truth.

    Records double a backslash. A table may spell a name as it is, and a truth table that was made
    from records has it doubled before it is read.
    """
    said = predictions.probabilities.keys() | predictions.skipped
    names = {name: printable(name) for name in said if name not in truth.poisoned}
    ours = {a: b for a, b in names.items() if b in truth.poisoned and b not in said}
    if not ours:
        return predictions
    return replace(
        predictions,
        probabilities={ours.get(name, name): p for name, p in predictions.probabilities.items()},
        records={ours.get(name, name): record for name, record in predictions.records.items()},
        skipped=frozenset(ours.get(name, name) for name in predictions.skipped),
        blank=tuple(ours.get(name, name) for name in predictions.blank),
    )


def named_apart(matches: Sequence[Matched]) -> list[Matched]:
    """Several rounds side by side: the round's name goes in front of each model's.

    Those of one name have that of their parent folder in front. Raises UsageError when two of them
    are called the same even so.
    """
    if len(matches) < 2:
        return list(matches)
    names = [one.cases[0].round if one.cases else "" for one in matches]
    shared = {name for name, count in Counter(names).items() if name and count > 1}
    names = [
        _name(one.path, with_parent=True) if name in shared else name
        for name, one in zip(names, matches, strict=True)
    ]
    if max(Counter(filter(None, names)).values(), default=0) > 1:
        raise UsageError(
            "the rounds need different names to be told apart, got "
            f"{', '.join(map(safe_repr, filter(None, names)))}"
        )
    return [_named(one, name) for one, name in zip(matches, names, strict=True)]


def _name(path: Path, with_parent: bool = False) -> str:
    """What a round is called that lies there."""
    home = path.resolve()
    return printable(f"{home.parent.name}/{home.name}" if with_parent else home.name)


def _named(matched: Matched, name: str) -> Matched:
    """The same with the round's name in front of the models'; models of no set keep theirs."""
    if not name:
        return matched
    cases = (replace(case, model=f"{name}/{case.model}", round=name) for case in matched.cases)
    return replace(matched, cases=tuple(cases))


def probabilities(cases: Sequence[Case]) -> np.ndarray:
    """float64 [n], NaN where there is no prediction."""
    return np.array([case.probability for case in cases], dtype=np.float64)


def labels(cases: Sequence[Case]) -> np.ndarray:
    """Booleans [n], True for poisoned."""
    return np.array([case.poisoned for case in cases], dtype=bool)


def score_cases(cases: Sequence[Case]) -> Scores:
    """`scoring.score` of the cases."""
    return score(probabilities(cases), labels(cases))


def has_answer(case: Case) -> bool:
    """Whether somebody judged the model: its probability is not missing, and no mere base rate.

    Failed models have that, and models of which only evidence was gathered until it is judged.
    """
    record = case.record
    if record is None:
        return not math.isnan(case.probability)
    is_unjudged = is_evidence_only(record) and case.probability == record.probability
    return record.status == "ok" and not is_unjudged


def at_base_rate(cases: Sequence[Case]) -> int:
    """How many have a record and no answer, and so count with the base rate they were given."""
    return sum(case.record is not None and not has_answer(case) for case in cases)


def reliability_of(cases: Sequence[Case]) -> tuple[ReliabilityBin, ...]:
    """`scoring.reliability` of the cases that have an answer; none where no case has one."""
    answered = [case for case in cases if has_answer(case)]
    return reliability(probabilities(answered), labels(answered)) if answered else ()


def worst_first(cases: Sequence[Case]) -> list[tuple[Case, float]]:
    """Each case with its part of the log score in nats, the costliest first, then by name."""
    parts = contributions(probabilities(cases), labels(cases))
    found = zip(cases, parts.tolist(), strict=True)
    return sorted(found, key=lambda pair: (-pair[1], pair[0].model))


def architecture_of(case: Case) -> str | None:
    """What METADATA calls the architecture, else what the scan recognised."""
    named = next((case.cells[c] for c in _ARCHITECTURE_COLUMNS if case.cells.get(c)), None)
    return named or (case.record.architecture if case.record else None)


def value_of(case: Case, column: str) -> str:
    """The case's value of a METADATA column, of `architecture`, or of `round`.

    Raises DatasetError when there is no such column.
    """
    if column == ARCHITECTURE:
        return architecture_of(case) or "unknown"
    if column == ROUND and ROUND not in case.cells:
        return case.round or "not predicted"
    if column not in case.cells:
        known = ", ".join(sorted({ARCHITECTURE, ROUND, *case.cells}))
        raise DatasetError(
            f"no column {safe_repr(column)} for {case.model}; there is {known[:2000] or 'none'}"
        )
    return case.cells[column] or "empty"


def groups(cases: Sequence[Case], column: str) -> dict[str, list[Case]]:
    """The cases by their value in a column; many different numbers are cut into four quarters.

    Keys are in natural order: numbers by size, words by alphabet.
    Raises DatasetError as `value_of` does.
    """
    values = [value_of(case, column) for case in cases]
    numbers = {value: float(value) for value in set(values) if _is_finite(value)}
    names = _quarters(values, numbers) if len(set(numbers.values())) > MOST_GROUPS else {}
    found: dict[str, list[Case]] = defaultdict(list)
    for case, value in zip(cases, values, strict=True):
        found[names.get(value, value)].append(case)

    def place(name: str) -> tuple[bool, float, str]:
        first = name.partition(" to ")[0]
        return not _is_finite(first), float(first) if _is_finite(first) else 0.0, name

    return {name: found[name] for name in sorted(found, key=place)}


def _is_finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _quarters(values: Sequence[str], numbers: Mapping[str, float]) -> dict[str, str]:
    """For each number, as it is written, the quarter of the models that it falls into."""
    have = np.array([numbers[value] for value in values if value in numbers])
    scale = 4.0 if np.abs(have).max() > _HUGE else 1.0  # differences of larger ones are infinite
    edges = np.unique(scale * np.quantile(have / scale, [0, 0.25, 0.5, 0.75, 1]))
    places = {
        value: int(np.clip(np.searchsorted(edges, number, side="right") - 1, 0, len(edges) - 2))
        for value, number in numbers.items()
    }
    texts = _told_apart(edges)
    return {value: f"{texts[i]} to {texts[i + 1]}" for value, i in places.items()}


def _told_apart(numbers: np.ndarray) -> list[str]:
    """Different numbers in as few digits, from six on, as keep them different."""
    told = ([f"{number:.{digits}g}" for number in numbers] for digits in range(6, 18))
    return next(texts for texts in told if len(set(texts)) == len(texts))


def apart(said: Iterable[str], known: Iterable[str]) -> str:
    """Names of a run and of a truth, printable ones, that have none in common: one of each, in
    words.

    >>> apart(["m0.pt", "m1.pt"], ["m0"])
    ': the run names m0.pt, the truth m0; give the names of the run'
    """
    names = [next(iter(names), "none") for names in (said, known)]
    return f": the run names {names[0]}, the truth {names[1]}; give the names of the run"
