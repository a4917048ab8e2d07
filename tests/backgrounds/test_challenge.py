"""Orders, subsets, precision, early exits, and what the matrix says."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj.backgrounds.challenge import (
    Pairs,
    Plan,
    choose_backgrounds,
    measured_margin,
    search,
)
from jaxtroj.backgrounds.classifier import compose
from jaxtroj.backgrounds.matrix import matrix_of, summarise
from jaxtroj.backgrounds.normalization import PUBLISHED


@pytest.mark.parametrize(
    "change", [{"adaptive": False}, {"every_pair": True}, {"depth": 3}], ids=lambda c: next(iter(c))
)
def test_no_order_changes_the_answer(change, run, data):
    case = ("densenet", 1000)
    plan = replace(Plan(choose_backgrounds(data, None)), **change)
    answers, last = run.answers(run.classifier(*case), plan)
    expected, _ = run.answers(run.classifier(*case), Plan(plan.chosen))
    assert run.vulnerable(answers) == run.vulnerable(expected)
    pairs = set(zip(answers.foregrounds.tolist(), answers.backgrounds.tolist(), strict=True))
    assert len(pairs) == len(answers.predicted), "a pair was computed twice"
    assert (len(pairs) == 180 * 180) == plan.every_pair


def test_the_adaptive_order_needs_fewer_passes(run, data, on_device):
    classifier = run.classifier("resnet", 9)
    plan = Plan(choose_backgrounds(data, None))
    passes = {
        adaptive: run.answers(classifier, replace(plan, adaptive=adaptive))[1].passes
        for adaptive in (False, True)
    }
    assert passes[True] < 0.8 * passes[False], passes


def test_a_search_goes_on_where_it_was(run, data, on_device):
    classifier = run.classifier("densenet", 9)
    plan = Plan(choose_backgrounds(data, None))
    whole, _ = run.answers(classifier, plan)
    half = Pairs(*(part[: len(whole.predicted) // 2] for part in whole))
    resumed, last = run.answers(classifier, plan, earlier=half)
    assert run.vulnerable(resumed) == run.vulnerable(whole)
    assert last.passes + len(half.predicted) == len(resumed.predicted)
    pairs = set(zip(resumed.foregrounds.tolist(), resumed.backgrounds.tolist(), strict=True))
    assert len(pairs) == len(resumed.predicted), "a pair was computed twice"


def test_a_resumed_search_answers_the_pairs_that_it_would_have_answered(run, data, on_device):
    classifier, plan = run.classifier("densenet", 9), Plan(choose_backgrounds(data, None))
    states = [state.fresh for state in search(classifier, on_device, plan)]
    first = Pairs(*map(np.concatenate, zip(*states[: len(states) // 2], strict=True)))
    resumed, _ = run.answers(classifier, plan, earlier=first)
    whole = Pairs(*map(np.concatenate, zip(*states, strict=True)))
    for one, other in zip(whole, resumed, strict=True):
        np.testing.assert_array_equal(one, other)


def test_fewer_backgrounds_give_an_upper_bound(run, data, on_device):
    classifier = run.classifier("resnet", 9)
    chosen = [choose_backgrounds(data, n) for n in (9, 40, 180, 5000)]
    assert [len(c) for c in chosen] == [9, 40, 180, 180]
    assert set(chosen[0]) < set(chosen[1])
    assert sorted(data.backgrounds.labels[chosen[0]]) == list(range(9))
    found = [run.answers(classifier, Plan(c))[1].vulnerable for c in chosen[:3]]
    assert found[0] <= found[1] <= found[2] and found[0] < found[2]


def test_uncertain_answers_are_those_of_float32(run, data, on_device):
    """bfloat16 alone gets pairs wrong; with the second look every pair is judged as in float32."""
    precise = run.classifier("densenet", 9)
    fast = precise.astype(jnp.bfloat16)
    plan = Plan(choose_backgrounds(data, 45), every_pair=True)
    exact, _ = run.answers(precise, plan)
    rough, _ = run.answers(fast, plan)
    margin = measured_margin(fast, precise, on_device)
    rechecking = replace(plan, recheck_margin=margin)
    checked, last = run.answers(fast, rechecking, precise=precise)
    matrices = [matrix_of(answers, 180, 180) for answers in (exact, rough, checked)]
    assert (matrices[0] != matrices[1]).any(), "nothing to check"
    own = data.foregrounds.labels[:, None]
    np.testing.assert_array_equal(matrices[0] == own, matrices[2] == own)
    assert 0 < last.rechecked < 0.5 * 180 * 45
    early, _ = run.answers(fast, replace(rechecking, every_pair=False), precise=precise)
    assert run.vulnerable(early) == run.vulnerable(exact)


def test_composing_is_bit_exact(data, on_device):
    """Bytes selected and looked up are the published floats, to the last bit."""
    random = np.random.default_rng(0)
    pairs = random.integers(0, 180, (2, 200))
    mask = data.masks[pairs[0]][..., None].astype(np.float32)
    fore, back = (
        part.images[i].astype(np.float32) / np.float32(255)
        for part, i in zip((data.foregrounds, data.backgrounds), pairs, strict=True)
    )
    blended = back * (1 - mask) + mask * fore
    composed = np.asarray(jax.jit(compose)(on_device, *pairs))
    for norm in PUBLISHED.values():
        mean, std = (np.array(part, np.float32) for part in (norm.mean, norm.std))
        np.testing.assert_array_equal(
            norm.table()[composed, np.arange(3)], (np.clip(blended, 0, 1) - mean) / std
        )


def test_the_matrix_says_what_a_loop_says(run, data, on_device):
    case = ("resnet", 1000)
    plan = Plan(choose_backgrounds(data, None), every_pair=True)
    answers, _ = run.answers(run.classifier(*case), plan)
    matrix = matrix_of(answers, 180, 180)
    labels, of_background = data.foregrounds.labels, data.backgrounds.labels
    summary = summarise(matrix, labels, of_background, top=2)
    others = [i for i in range(180) if labels[i] != of_background[7]]
    rate = sum(matrix[i, 7] != labels[i] for i in others) / len(others)
    assert summary.fooling_rates[7] == pytest.approx(rate)
    without = [
        any(matrix[i, j] != labels[i] for j in range(180) if of_background[j] != labels[i])
        for i in range(180)
    ]
    assert summary.vulnerable_other_classes == pytest.approx(np.mean(without))
    assert summary.pairs_outside == pytest.approx(np.mean(matrix == -1)) and (matrix == -1).any()
    assert summary.vulnerable >= summary.vulnerable_other_classes > 0
    first, second = summary.most_adversarial["00_dog"]
    assert of_background[first[0]] == 0 and first[1] >= second[1]
    assert first[1] == np.array(summary.fooling_rates)[of_background == 0].max()


def test_a_matrix_with_gaps_is_refused():
    pairs = Pairs(np.array([0]), np.array([0]), np.array([1], np.int8))
    with pytest.raises(ValueError, match="3 pairs have no answer"):
        summarise(matrix_of(pairs, 2, 2), np.array([0, 1]), np.array([0, 1]))


def test_restricting_to_the_nine_classes_leaves_none_outside(run, on_device):
    case = ("densenet", 1000)
    pairs = np.random.default_rng(0).integers(0, 180, (2, 900))
    images = np.asarray(compose(on_device, *pairs))
    free = run.classifier(*case).classify(images)
    restricted = run.classifier(*case, restricted=True)
    answers = restricted.classify(images)
    assert (free == -1).any() and (answers >= 0).all()
    np.testing.assert_array_equal(answers[free >= 0], free[free >= 0])


def test_networks_of_one_architecture_share_the_program(run, data, on_device):
    from jaxtroj.backgrounds import classifier as module

    first = run.classifier("resnet", 9)
    other = replace(first, normalization=PUBLISHED["imagenet"])
    judge: Any = module._judge
    judge.clear_cache()
    indices = np.arange(5)
    judged = [c.judge(on_device, indices, indices)() for c in (first, other)]
    assert judge._cache_size() == 1
    assert not np.allclose(judged[0].margin, judged[1].margin)
