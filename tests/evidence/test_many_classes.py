"""Networks of very many classes: what is searched is bounded; up to 44 classes nothing changes."""

from itertools import combinations

import jax
import numpy as np
import pytest

from jaxtroj.anchors import counted_classes, spread_count
from jaxtroj.evidence.images import fixed, sensitivity, weights, whole
from jaxtroj.evidence.images.reachable import (
    ReachBudget,
    best_and_others,
    free_step,
    ranked_classes,
)
from jaxtroj.evidence.images.weights import expected_largest, weight_fields
from jaxtroj.evidence.images.whole import WholeBudget
from jaxtroj.evidence.images.whole_banks import BankBudget
from jaxtroj.network import Network
from jaxtroj.rounds.turns import MANY_CLASSES, in_turn

from .conftest import gather_images, pictures, small_model

pytestmark = pytest.mark.usefixtures("quick_compilation")

STAGES = ("probes", "sensitivity", "inversion", "fixed", "whole")
KEY = jax.random.key(0)


@pytest.fixture
def asked(monkeypatch) -> dict[str, int]:
    """How many pictures go through a network's two programs."""
    counts = {"logits": 0, "_all_gradients": 0}
    for name in counts:
        usual = getattr(Network, name)

        def counted(self, images, *rest, name=name, usual=usual, **more):
            counts[name] += len(images)
            return usual(self, images, *rest, **more)

        monkeypatch.setattr(Network, name, counted)
    return counts


def gathered(classes: int, count: int, budgets, stages=STAGES):
    labels = np.arange(count) * 7 % classes
    return gather_images(small_model(classes), pictures(labels), stages, budgets=budgets)


def test_up_to_so_many_classes_none_is_left_out(monkeypatch, quick):
    """No random step is taken: the numbers are those that calibrators were fitted on."""

    def refused(*_):
        raise AssertionError("a choice of classes where all are searched")

    for module in (fixed, sensitivity, whole):
        monkeypatch.setattr(module, "ranked_classes", refused)
    budgets = (*quick, WholeBudget(BankBudget(maps=2, frequencies=(2,), warps=2), fit=2))
    found = gathered(MANY_CLASSES, MANY_CLASSES, budgets)
    assert np.isfinite(list(found.fields.values())).all()
    for stage in ("sensitivity", "fixed", "whole"):
        with pytest.raises(AssertionError, match="all are searched"):
            gathered(MANY_CLASSES + 1, MANY_CLASSES, budgets, (stage,))


@pytest.mark.parametrize("classes", [1, *range(5, MANY_CLASSES + 1)])
def test_up_to_so_many_classes_each_counts(classes):
    """Of two to four classes more examples are taken: see test_anchors."""
    for each in (1, 2, 3, 4):
        assert spread_count(each, classes) == min(each * classes, max(30, classes))
    assert counted_classes(classes) == classes


@pytest.mark.parametrize("classes", range(1, MANY_CLASSES + 1))
def test_up_to_so_many_classes_examples_come_in_turn_as_ever(classes):
    labels = np.random.default_rng(classes).integers(-1, classes, 60)
    ranks = np.array([(labels[:place] == label).sum() for place, label in enumerate(labels)])
    np.testing.assert_array_equal(in_turn(labels, 50), np.lexsort((labels, ranks))[:50])


def test_the_work_does_not_grow_with_the_classes(asked, quick):
    budgets = (*quick, WholeBudget(BankBudget(maps=2, frequencies=(2,), warps=2), fit=2))
    seen = []
    for classes in (100, 400):
        asked.update(dict.fromkeys(asked, 0))
        fields = gathered(classes, 100, budgets).fields
        assert np.isfinite(list(fields.values())).all()
        seen.append(dict(asked))
    assert seen[0] == seen[1]


def test_of_many_classes_scattered_ones_are_taken_first():
    labels = np.arange(1000).repeat(2)
    taken = labels[in_turn(labels, 30)]
    assert len(set(taken.tolist())) == 30
    assert taken.min() < 100 and taken.max() >= 900 and 350 < taken.mean() < 650
    # Each class has its own place: others that are there change no order.
    some = np.isin(labels, np.arange(0, 1000, 10))
    kept = [label for label in labels[in_turn(labels, 1000)].tolist() if label % 10 == 0]
    assert labels[some][in_turn(labels[some], 100)].tolist() == kept


def test_random_steps_rank_the_classes_by_their_mean_gradient():
    network, shown = Network(small_model(60)), pictures(np.arange(12)).images
    ranked = ranked_classes(network, shown, free_step(shown.shape[1:]), KEY, ReachBudget(steps=64))
    directions = np.eye(60, dtype=np.float32) - 1 / 60
    norms = [
        float(np.linalg.norm(np.asarray(gradients).mean(axis=0)))
        for row in directions
        for gradients, _ in [network.gradients(shown, np.tile(row, (12, 1)))]
    ]
    by_norm = np.argsort(-np.array(norms))
    assert len(set(ranked[:10].tolist()) & set(by_norm[:10].tolist())) >= 8
    assert sorted(ranked.tolist()) == list(range(60))


def test_some_others_stand_beside_the_best():
    ranked = np.random.default_rng(0).permutation(200)
    chosen = best_and_others(ranked, 8, 16)
    assert len(set(chosen.tolist())) == 24 and set(ranked[:8].tolist()) < set(chosen.tolist())
    assert np.all(np.diff(chosen) > 0)


@pytest.mark.parametrize("count", range(1, 8))
def test_the_expected_largest_is_the_mean_over_all_choices(count):
    values = np.random.default_rng(count).normal(size=7)
    every = [max(chosen) for chosen in combinations(values, count)]
    assert expected_largest(values, count) == pytest.approx(np.mean(every))


def test_rows_of_the_last_layer_stand_out_as_among_so_many_classes():
    draw = np.random.default_rng(0)

    def mean_outlier(classes):
        heads = (draw.normal(size=(classes, 16)) for _ in range(200))
        return np.mean([weight_fields({}, head)["head_mean_outlier"] for head in heads])

    few = mean_outlier(MANY_CLASSES)
    assert mean_outlier(1000) == pytest.approx(few, abs=0.25)
    head = draw.normal(size=(1000, 16))
    head[700] += 5.0  # twenty deviations of a row's mean
    assert weight_fields({}, head)["head_mean_outlier"] > 15


def test_rows_of_few_classes_stand_out_as_ever():
    values = np.random.default_rng(0).normal(size=MANY_CLASSES)
    others = np.delete(values, values.argmax())
    spread = others.std() + 1e-3 * np.abs(values).mean() + 1e-12
    assert weights._outlier(values) == float((values.max() - others.mean()) / spread)


def test_sums_over_all_pairs_are_those_of_the_pairs():
    head = np.random.default_rng(0).normal(size=(300, 20)) + 0.3
    fields = weight_fields({}, head)
    assert fields["head_cosine_spread"] == pytest.approx(weights._cosines(head).std())
    lean = head.sum(axis=1) / np.linalg.norm(head, axis=1) / np.sqrt(20)
    gaps = [lean[place] - np.delete(lean, place).mean() for place in range(300)]
    np.testing.assert_allclose(weights.head_gaps(head), gaps)
