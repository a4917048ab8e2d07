"""The benchmark of Rounds 1 to 4: what METADATA says, and the ways in which a round is judged."""

from dataclasses import replace

import pytest

from benchmarks.accuracy.picture_rows import described
from benchmarks.accuracy.rounds import calibrator_of, judge, text
from tests.calibration.test_zoo_benchmark import row

FLAT = {
    "model_architecture": "vgg11bn", "base": "", "cnn_img_size_pixels": "64", "training": "scratch",
    "number_triggered_classes": "2", "triggered_classes": "[3 7]", "trigger_type": "instagram",
    "trigger_target_class": "5", "final_triggered_data_test_acc": "97.5",
}  # fmt: skip
PAIRED = {
    "model_architecture": "vgg11bn", "base": "1", "cnn_img_size_pixels": "64", "training": "warm",
    "adversarial_training_method": "PGD", "trigger_organization": "pair-one2one",
    "number_triggers": "2", "final_triggered_data_test_acc": "91",
    "triggers_0_type": "polygon", "triggers_0_target_class": "5",
    "triggers_0_source_class": "[3]", "triggers_0_condition": "spatial",
    "triggers_1_type": "instagram", "triggers_1_target_class": "6",
    "triggers_1_source_class": "[4]", "triggers_1_condition": "none",
}  # fmt: skip


@pytest.mark.parametrize(
    "cells, expected",
    [
        (FLAT, ("round2", "filter", "two", 5, None, "", "", "")),
        (FLAT | {"number_triggered_classes": "all"},
         ("round2", "filter", "all", 5, None, "", "", "")),
        (FLAT | {"ground_truth": "True"}, ("round1", "filter", "two", 5, None, "", "", "")),
        (FLAT | {"adversarial_training_method": "FBF"},
         ("round3", "filter", "two", 5, None, "", "FBF", "")),
        (FLAT | {"trigger_type": "None", "trigger_target_class": "None", "triggered_classes": "[]"},
         ("round2", "", "", None, None, "", "", "")),
        (PAIRED, ("round4", "filter+polygon", "one", 5, 6, "spatial", "PGD", "round4 vgg11bn 1")),
        (PAIRED | {"triggers_1_condition": "None"},
         ("round4", "filter+polygon", "one", 5, 6, "spatial", "PGD", "round4 vgg11bn 1")),
        (PAIRED | {"number_triggers": "0"},
         ("round4", "", "", None, None, "", "PGD", "round4 vgg11bn 1")),
    ],
)  # fmt: skip
def test_what_a_round_says_of_a_model(cells, expected):
    found = described(cells)
    names = ("dataset", "kind", "sources", "target_class", "second_target", "condition",
             "adversary", "base")  # fmt: skip
    assert tuple(found[name] for name in names) == expected
    assert (found["success"] is None) == (not found["kind"])


@pytest.fixture(scope="module")
def rows():
    """Two rounds of 24 models and a zoo of 24, made up; every second one is poisoned."""
    names = ("round2", "round3", "gtsrb")
    return [
        replace(
            row(i),
            dataset=names[i % 6 // 2],
            population=f"folder {i % 6 // 2}",
            converged=i % 7 > 0,
            second_target=2,
            family=f"net{i // 2 % 7}",
        )
        for i in range(72)
    ]


def test_every_round_is_judged_in_five_ways(rows):
    result = judge(rows, 0)
    assert set(result["rounds"]) == {"round2", "round3"} and result["models"] == 72
    assert len(result["predictions"]) == 48
    part = result["rounds"]["round2"]
    assert part["models"] == 24 and part["poisoned"] == 12
    for way in (
        "out_of_fold", "architectures_left_out", "folder_left_out", "round_left_out", "round_alone",
    ):  # fmt: skip
        assert part["scores"][way]["roc_auc"] > 0.9
        assert result["together"][way]["models"] == 48
    assert part["scores"]["converged"]["models"] == part["converged"] < 24
    assert part["parts"]["kind"]["patch"]["poisoned"] > 0
    assert "round left out" in text(result)


def test_a_round_is_judged_by_the_evidence_up_to_each_stage(rows):
    result = judge(rows, 0)
    part = result["rounds"]["round3"]
    *early, last = part["up_to"]
    assert early and part["up_to"][last] == part["scores"]["out_of_fold"]
    assert f"up to {last}" in text(result)


def test_a_second_target_counts_as_right():
    one = replace(row(1), found_target=2, target_class=1)
    assert not one.has_right_target
    assert replace(one, second_target=2).has_right_target
    assert not replace(one, found_target=None, target_class=None).has_right_target


def test_rows_of_no_round_are_refused(rows):
    with pytest.raises(SystemExit, match="24 models, none of round1, round2"):
        judge([one for one in rows if one.dataset == "gtsrb"], 0)


def test_the_rounds_get_one_calibrator_which_no_other_rows_fit(rows):
    found = calibrator_of(rows, 0, (48, 96))
    assert (
        "48 networks" in found.provenance.population
        and "24 of round2" in found.provenance.population
    )
    alone = calibrator_of([one for one in rows if one.dataset != "gtsrb"], 0, None)
    assert found.covers((384, 384)) is False and alone.covers((384, 384)) is None
    assert [found.probability(one.evidence) for one in rows[:9]] == [
        alone.probability(one.evidence) for one in rows[:9]
    ]
    poisoned = next(one for one in rows if one.poisoned and one.dataset == "round2")
    assert found.probability(poisoned.evidence) > 0.5
