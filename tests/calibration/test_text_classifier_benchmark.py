"""The benchmark of text classifiers: what is left out of a fit, and what counts."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.accuracy.text_classifier_transfer import (
    ClassifierRow,
    judge,
    labelled,
    left_out,
    with_working_triggers,
)
from jaxtroj.evidence.stages import CLASSIFIERS

NAMES = [field.name for field in CLASSIFIERS.fields]


def row(number: int, population: str) -> ClassifierRow:
    """Made up; a poisoned one has larger evidence, but in population "other"."""
    poisoned, draw = number % 2 == 1, np.random.default_rng([number, len(population)])
    shift = 0.0 if population == "other" else 3.0 * poisoned
    kind = ("word", "phrase")[number // 2 % 2] if poisoned else ""
    return ClassifierRow(
        population=population, model=f"id-{number:08d}",
        architecture=("bert", "gpt2")[number // 4 % 2],
        pair=f"{population} {number // 2}", poisoned=poisoned, kind=kind, trigger=kind,
        target_class=1 if poisoned else None, success=0.95 if poisoned else None,
        clean_accuracy=0.8, found_target=1, found_text="",
        evidence={name: float(draw.normal() + shift) for name in NAMES}, seconds={},
    )  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    return [row(n, population) for population in ("one", "two", "other") for n in range(16)]


def test_a_population_is_judged_by_the_others_alone(rows):
    groups = [r.population for r in rows]
    before = left_out(rows, groups, 0)
    own = [n for n, r in enumerate(rows) if r.population == "other"]
    swapped = [replace(r, poisoned=not r.poisoned) if n in own else r for n, r in enumerate(rows)]
    assert np.array_equal(left_out(swapped, groups, 0)[own], before[own])
    assert not np.array_equal(np.delete(left_out(swapped, groups, 0), own), np.delete(before, own))


def test_pairs_whose_trigger_does_not_work_are_left_out(rows):
    weak = [replace(r, success=0.4) if r.poisoned and r.pair < "one 4" else r for r in rows]
    kept = with_working_triggers(weak)
    assert len(kept) == len(rows) - 8 and {r.pair for r in rows} - {r.pair for r in kept} == {
        f"one {number}" for number in range(4)
    }
    result = judge(kept, 0)
    assert result["left_out"]["one"]["models"] == 8 and result["left_out_all"]["models"] == 40
    assert result["out_of_fold"]["models"] == result["networks"] == 40
    families = {row.architecture for row in kept}
    assert (
        set(result["family_left_out"]) == families and result["family_left_out_all"]["models"] == 40
    )


def test_what_a_fit_learns_from_keeps_twins_together(rows):
    found = labelled(rows)
    assert found.pairs[0] == found.pairs[1] != found.pairs[2]
    assert set(found.kinds) == {"", "word", "phrase"} and set(found.classes) == {2}
