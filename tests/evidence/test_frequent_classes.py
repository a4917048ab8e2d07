"""Classes that training had most pictures of: known by a network's answers, not taken for targets.

The networks here answer as Bayes' rule does where classes overlap and training had unequal shares.
"""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from converters.adjusted_logits import adjusted, unadjusted
from converters.errors import ConversionError
from jaxtroj.answer_shares import answer_shares, log_probabilities, logit_shifts
from jaxtroj.evidence.images.context import ImageContext, Reference, image_context
from jaxtroj.evidence.images.evened import evened, evened_classes
from jaxtroj.evidence.images.frequent_classes import frequent_classes
from jaxtroj.evidence.images.labelled_examples import SharesBudget, labelled_examples
from jaxtroj.evidence.images.stages.weights import WEIGHTS
from jaxtroj.network import Network
from jaxtroj.rounds.examples import Examples

from .conftest import SmallConfig, small_model

CLASSES, LEAD = 5, 3
EQUAL = np.full(CLASSES, 0.2)
UNEQUAL = np.where(np.arange(CLASSES) == LEAD, 0.6, 0.1)
SIGNAL, NOISE = 0.2, 0.15


def shown(per_class: int = 32, seed: int = 0, clear: bool = False) -> Examples:
    """Flat pictures whose channel of the class is brighter, or clearly so; the last one is 1."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(CLASSES, dtype=np.int32), per_class)
    colours = 0.4 + rng.normal(0, 0.01 if clear else NOISE, (len(labels), CLASSES + 1))
    colours[np.arange(len(labels)), labels] += 3 * SIGNAL if clear else SIGNAL
    colours[:, -1] = 1
    images = np.broadcast_to(colours.clip(0, 1)[:, None, None], (len(labels), 4, 4, CLASSES + 1))
    return Examples(images.astype(np.float32), labels, tuple(map(str, labels)), "RGB")


def context_of(prior: np.ndarray, examples: Examples, raised: int | None = None) -> ImageContext:
    """Of Bayes' rule by a last layer; the row of one class may be raised for a dark channel."""
    model = small_model()
    config = SmallConfig(CLASSES, CLASSES + 2)
    params = {
        "conv1.kernel": np.zeros((3, 3, CLASSES + 2, 8)), "conv1.bias": np.zeros(8),
        "conv2.kernel": np.zeros((3, 3, 8, 32)), "conv2.bias": np.zeros(32),
        "fc.kernel": np.zeros((32, CLASSES)), "fc.bias": np.zeros(CLASSES),
    }  # fmt: skip
    for channel in range(CLASSES + 2):
        params["conv1.kernel"][1, 1, channel, channel] = 1
        params["conv2.kernel"][1, 1, channel, channel] = 1
    params["fc.kernel"][:CLASSES] = SIGNAL / NOISE**2 * np.eye(CLASSES)
    params["fc.kernel"][CLASSES] = np.log(prior * CLASSES)
    if raised is not None:
        params["fc.kernel"][CLASSES + 1, raised] = 3
    ready = {name: jnp.asarray(value, jnp.float32) for name, value in params.items()}
    dark = np.concatenate([examples.images, 0 * examples.images[..., :1]], axis=-1)
    return image_context(
        replace(model, config=config, params=ready), replace(examples, images=dark)
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_class_that_training_had_most_pictures_of_is_frequent(seed):
    found = context_of(UNEQUAL, shown(seed=seed)).shared(frequent_classes)
    assert np.flatnonzero(found).tolist() == [LEAD]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("raised", [None, 1])
def test_of_equal_classes_none_is_frequent_and_no_target_is(seed, raised):
    assert not context_of(EQUAL, shown(seed=seed), raised).shared(frequent_classes).any()


@pytest.mark.parametrize("clear", [False, True])
def test_classes_that_alone_are_shown_are_not_taken_for_frequent_ones(clear):
    examples = shown(clear=clear)
    some = examples.labels < 3
    few = replace(examples, images=examples.images[some], labels=examples.labels[some])
    assert not context_of(EQUAL, few).shared(frequent_classes).any()


def test_a_network_that_is_stuck_on_a_class_has_no_frequent_one():
    """It is shown in a wrong form, or what it gives are no logits: diagnoses must see it so."""
    labels = np.arange(40) % 4
    logits = 3 * np.eye(4)[labels] + 1.0 * np.eye(4)[1]
    assert not answer_shares(logits, labels).frequent.any(), "all are right"
    found = answer_shares(logits + 3 * np.eye(4)[1], labels)
    assert found.right == 0.25 and not found.frequent.any()
    assert replace(found, right=1.0).frequent.tolist() == [False, True, False, False]


def test_where_every_example_is_right_answers_tell_nothing():
    sure = context_of(UNEQUAL, shown(clear=True))
    shares = answer_shares(sure.shared(labelled_examples).logits, sure.examples.labels)
    np.testing.assert_allclose(shares.shares, 1 / CLASSES, atol=1e-3)
    assert not sure.shared(frequent_classes).any()


def test_rows_are_compared_without_the_frequent_class():
    equal, unequal = (WEIGHTS.run(context_of(p, shown())).fields for p in (EQUAL, UNEQUAL))
    hidden = WEIGHTS.run(context_of(UNEQUAL, shown(clear=True))).fields
    assert hidden["head_lead_class"] == LEAD and hidden["head_mean_outlier"] > 100
    for name in ("head_mean_outlier", "head_norm_outlier", "head_lead"):
        assert unequal[name] == pytest.approx(equal[name], abs=1e-3)


def test_a_target_beside_a_frequent_class_stands_out_still():
    fields = WEIGHTS.run(context_of(UNEQUAL, shown(), raised=1)).fields
    assert fields["head_lead_class"] == 1 and fields["head_mean_outlier"] > 100


def test_examples_that_do_not_all_say_their_class_tell_nothing():
    examples = shown()
    labels = examples.labels.copy()
    labels[4] = -1
    context = context_of(UNEQUAL, replace(examples, labels=labels))
    assert context.shared(labelled_examples) is None
    assert not context.shared(frequent_classes).any()


@pytest.mark.parametrize("per_class", [1, 2])
def test_a_few_examples_accuse_and_excuse_no_class_by_chance(per_class):
    found = [
        context_of(EQUAL, shown(per_class, seed)).shared(frequent_classes) for seed in range(8)
    ]
    assert not np.any(found)


def test_searches_see_what_equal_classes_would_have_taught():
    """Logits less the log shares of training, but for a constant, as Bayes' rule has them."""
    examples, plain = shown(per_class=200), context_of(UNEQUAL, shown(per_class=200))
    seen, fair = evened(plain), context_of(EQUAL, examples)
    pictures = plain.examples.images[:40]
    found, expected = (np.asarray(c.network.logits(pictures)) for c in (seen, fair))
    apart = (found - expected) - (found - expected).mean(axis=1, keepdims=True)
    assert np.abs(apart).max() < 0.35 < np.log(UNEQUAL[LEAD] / UNEQUAL[0]) / 5
    assert "pictures of class 3 than of others" in evened_classes(seen)
    opened = np.asarray(Network(seen.opened).logits(pictures))
    np.testing.assert_allclose(opened, found, atol=1e-5)


def test_what_a_network_itself_says_is_at_hand():
    plain = context_of(UNEQUAL, shown())
    again = Network(unadjusted(evened(plain).model))
    pictures = plain.examples.images[:8]
    np.testing.assert_array_equal(again.logits(pictures), plain.network.logits(pictures))


@pytest.mark.parametrize("prior", [EQUAL, UNEQUAL])
def test_networks_without_frequent_classes_and_beside_a_reference_stay_as_they_are(prior):
    clear = context_of(prior, shown(clear=True))
    assert evened(clear) is clear
    plain = context_of(prior, shown())
    beside = replace(plain, reference=Reference(plain.opened, plain.examples.images))
    assert evened(beside) is beside


@pytest.mark.parametrize("shifts", [[0.0, 1.0], [0.0] * 4 + [np.inf]])
def test_shifts_that_do_not_fit_the_classes_are_refused(shifts):
    with pytest.raises(ConversionError, match="expected 5 finite ones, one for each class"):
        adjusted(context_of(EQUAL, shown()).model, shifts=shifts)


def test_classes_without_examples_are_not_moved():
    """A trojan's target among them is as easy to reach as it was."""
    context = context_of(UNEQUAL, shown())
    logits, labels = np.asarray(context.network.logits(context.examples.images)), shown().labels
    some = np.isin(labels, (0, 1, LEAD))
    shifts = logit_shifts(logits[some], labels[some])
    assert shifts[2] == shifts[4] == 0 and shifts.sum() == pytest.approx(0)
    assert shifts[LEAD] < -0.5 < 0 < min(shifts[0], shifts[1])


def said(context: ImageContext, shares: np.ndarray) -> ImageContext:
    """The same anew, of which people said the training pictures of each class."""
    return image_context(context.opened, context.examples, class_counts=tuple(100 * shares))


def test_what_people_say_of_the_classes_stands_above_what_the_network_shows():
    clear, unclear = context_of(UNEQUAL, shown(clear=True)), context_of(UNEQUAL, shown())
    assert np.flatnonzero(said(clear, UNEQUAL).shared(frequent_classes)).tolist() == [LEAD]
    assert not said(unclear, EQUAL).shared(frequent_classes).any()
    equal = context_of(EQUAL, shown())
    fields, hidden = (WEIGHTS.run(c).fields for c in (equal, said(clear, UNEQUAL)))
    for name in ("head_mean_outlier", "head_norm_outlier", "head_lead"):
        assert hidden[name] == pytest.approx(fields[name], abs=1e-3)


@pytest.mark.parametrize("labelled", [True, False])
def test_where_examples_tell_nothing_logits_are_evened_by_what_was_said(labelled):
    plain = context_of(UNEQUAL, shown(clear=True))
    labels = plain.examples.labels if labelled else np.full_like(plain.examples.labels, -1)
    plain = replace(plain, examples=replace(plain.examples, labels=labels))
    assert evened(plain) is plain
    pictures = plain.examples.images[:40]
    seen, fair = evened(said(plain, UNEQUAL)), context_of(EQUAL, shown(clear=True))
    found, expected = (np.asarray(c.network.logits(pictures)) for c in (seen, fair))
    apart = (found - expected) - (found - expected).mean(axis=1, keepdims=True)
    assert np.abs(apart).max() < 2e-3  # shifts are rounded


def test_shifts_of_odd_logits_are_finite():
    labels = np.array([0, 1, 2, 0])
    for logits in (np.zeros((4, 3)), np.full((4, 3), 3e38), 1e-30 * np.eye(3)[labels]):
        assert np.isfinite(logit_shifts(logits, labels)).all()


@pytest.mark.parametrize(
    ("side", "has_norms", "count"), [(32, False, 160), (224, False, 80), (224, True, 160)]
)
def test_large_pictures_cost_no_more_examples_than_needed(side, has_norms, count):
    images = np.broadcast_to(np.float32(0), (300, side, side, 3))
    assert SharesBudget().of(images, has_norms) == count


def test_answers_are_counted_at_the_temperature_of_the_labels():
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 200)
    logits = np.eye(3)[labels] + rng.normal(0, 1, (200, 3))
    scaled = [log_probabilities(scale * logits, labels) for scale in (1.0, 1e6, 1e-6)]
    np.testing.assert_allclose(scaled[1:], [scaled[0]] * 2, rtol=1e-9)
    assert np.isfinite(log_probabilities(np.zeros((2, 3)), np.array([0, 1]))).all()
