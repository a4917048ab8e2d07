"""Groups of models that are left out in turn."""

from dataclasses import replace

import numpy as np
import pytest

from jaxtroj.calibration import Labelled, Scheme, cross_validate, leave_out, out_of_fold
from jaxtroj.calibration.groups import assign_groups, score_left_out
from jaxtroj.errors import CalibrationError

SCHEME = Scheme({"all": ("a", "b")}, {"a": 1, "b": 1})


def two_kinds(models=40):
    """Field a tells of patches, b of blends; and the kinds, "" for clean models."""
    random = np.random.default_rng(0)
    kinds = ["patch" if i % 4 == 0 else "blend" if i % 4 == 2 else "" for i in range(models)]
    rows = [
        {"a": random.normal() + 6 * (k == "patch"), "b": random.normal() + 6 * (k == "blend")}
        for k in kinds
    ]
    return Labelled(rows, [bool(k) for k in kinds], [None] * models, kinds)


def test_rows_of_no_group_go_to_their_twin_or_are_dealt_out_evenly():
    groups = ["x", "y", "z"] * 4 + [""] * 12
    keys = [str(i) for i in range(24)]
    twins = [f"p{i}" if i < 3 else "" for i in range(12)] + ["p0", "p1", "p2"] + [""] * 9
    folds = assign_groups(groups, keys, twins)
    assert folds[:12].tolist() == [0, 1, 2] * 4
    assert folds[12:15].tolist() == [0, 1, 2]
    assert np.bincount(folds[15:]).tolist() == [3, 3, 3]
    for one_group in (["x", "x", ""], ["", ""]):
        with pytest.raises(CalibrationError, match="two or more"):
            assign_groups(one_group, keys[: len(one_group)])


def test_a_left_out_group_has_no_say_in_its_own_answers():
    labelled = two_kinds()
    before = cross_validate(labelled, SCHEME, groups=labelled.kinds)
    rows = [
        {"a": row["a"], "b": row["b"] - 6 * (kind == "blend")}
        for row, kind in zip(labelled.rows, labelled.kinds, strict=True)
    ]
    blunt = Labelled(rows, labelled.poisoned, labelled.architectures, labelled.kinds)
    for values in (labelled, blunt):  # the fit without blends has nothing to weigh b by
        found = leave_out(values, SCHEME, values.kinds)
        assert found.groups["patch"].models + found.groups["blend"].models == 40
        assert found.groups[found.worst].log_score >= found.log_score
    assert before.shape == (40,)


@pytest.mark.parametrize("is_pooled", [False, True])
def test_labels_of_a_group_have_no_say_where_one_of_it_lacks_evidence(is_pooled):
    """Such a model gets the base rate of the 32 others, 16 of them poisoned."""
    labelled, scheme = two_kinds(), replace(SCHEME, is_pooled=is_pooled)
    groups = [str(i % 5) for i in range(40)]
    rows = [{} if i == 1 else row for i, row in enumerate(labelled.rows)]
    for label in (False, True):
        labels = [
            label if own == "1" else other
            for own, other in zip(groups, labelled.poisoned, strict=True)
        ]
        models = replace(labelled, rows=rows, poisoned=labels)
        assert cross_validate(models, scheme, groups=groups)[1] == pytest.approx(0.5, abs=1e-12)


def test_without_groups_a_model_without_evidence_gets_the_base_rate_outside_its_fold():
    labelled = two_kinds()
    rows = [{} if i in (0, 1) else row for i, row in enumerate(labelled.rows)]
    answers = cross_validate(replace(labelled, rows=rows), SCHEME)
    assert answers[:2] == pytest.approx(0.5, abs=0.03)


def test_a_group_without_which_one_label_is_left_is_refused():
    labelled = two_kinds()
    by_label = ["bad" if label else "good" for label in labelled.poisoned]
    expected = "without the group 'bad' 0 poisoned and 20 clean models are left.*both kinds"
    for scheme in (SCHEME, replace(SCHEME, is_pooled=True)):
        with pytest.raises(CalibrationError, match=expected):
            leave_out(labelled, scheme, by_label)


def test_a_stage_says_nothing_of_a_group_whose_others_lack_its_fields():
    """Then the stage before answers, as for every row that a stage cannot judge."""
    labelled, scheme = two_kinds(), Scheme({"first": ("a",), "second": ("b",)})
    groups = ["x" if i < 20 else "y" for i in range(40)]
    rows = [row if i < 20 else {"a": row["a"]} for i, row in enumerate(labelled.rows)]
    found = out_of_fold(replace(labelled, rows=rows), scheme, groups=groups)
    assert np.isnan(found["second"].log_odds).all()
    assert np.isfinite(found["first"].log_odds).all()


def test_order_of_rows_changes_nothing():
    labelled, order = two_kinds(), np.random.default_rng(1).permutation(40)
    first = cross_validate(labelled, SCHEME, groups=labelled.kinds)
    mixed = labelled.take(order.tolist())
    second = cross_validate(mixed, SCHEME, groups=mixed.kinds)
    np.testing.assert_array_equal(first[order], second)


def test_scores_by_group():
    probabilities = np.array([0.9, 0.4, 0.1, 0.8, 0.2])
    truth = np.array([True, True, False, True, False])
    found = score_left_out(probabilities, truth, np.array([0, 0, 0, 1, 1]), ["x", "y"])
    assert found.worst == "x" and found.groups["x"].found == 0.5
    assert found.groups["x"].roc_auc == 1.0 and found.groups["y"].found == 1.0
    alone = score_left_out(probabilities, truth, np.array([0, 0, 1, 0, 1]), ["bad", "clean"])
    assert alone.groups["clean"].roc_auc is None and alone.groups["clean"].found is None
