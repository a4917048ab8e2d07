"""Which examples are taken, in which order, and where their objects are found."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj.anchors import _peaks, anchor, counted_classes, fitted_count, in_turn
from jaxtroj.errors import EvidenceError
from jaxtroj.network import Network

SPREADS = {
    "goes through the classes": ([0, 0, 0, 1, 1, 1, 2, 2, 2], 9, [0, 3, 6, 1, 4, 7, 2, 5, 8]),
    "stops at the limit": ([0, 0, 0, 1, 1, 1], 3, [0, 3, 1]),
    "a class that runs out": ([0, 0, 0, 1], 9, [0, 3, 1, 2]),
    "order of files does not matter": ([1, 0, 1, 0], 4, [1, 0, 3, 2]),
    "no label known": ([-1, -1, -1], 2, [0, 1]),
    "some labels known": ([-1, 0, -1, 0], 4, [0, 1, 2, 3]),
    "one example": ([4], 5, [0]),
    "classes without examples": ([7, 3, 7], 5, [1, 0, 2]),
}


@pytest.mark.parametrize("labels, limit, expected", SPREADS.values(), ids=SPREADS)
def test_in_turn(labels, limit, expected):
    assert in_turn(np.asarray(labels), limit).tolist() == expected


@pytest.mark.parametrize("height, width", [(12, 12), (14, 10), (28, 28)])
def test_the_anchor_is_on_the_object(height, width, colours, make_pictures, place_of):
    """The colour network sees bright pixels only, so the object is where its gradient is."""
    examples = make_pictures([0, 1, 2, 0, 1, 2], height, width)
    found = anchor(Network(colours), examples, 6)
    assert found.sources.tolist() == [0, 1, 2, 0, 1, 2] and found.accuracy == 1.0
    for i, place in enumerate(np.asarray(found.anchors)):
        middle = np.asarray(place_of(i, height, width)) + 1
        assert np.abs(place - middle).max() <= 1.5, f"picture {i}: {place}, object at {middle}"


def test_examples_follow_true_gradients_and_not_false_ones(colours, make_pictures, monkeypatch):
    examples = make_pictures([0, 1, 2, 0, 1, 2])
    found = anchor(Network(colours), examples, 6)
    assert found.led == 1.0 and found.is_led
    true = Network.margin_gradients

    def turned(self, images):
        gradients, logits = true(self, images)
        return -gradients, logits

    monkeypatch.setattr(Network, "margin_gradients", turned)
    found = anchor(Network(colours), examples, 6)
    assert found.led == 0.0 and not found.is_led
    few = anchor(Network(colours), make_pictures([0, 1, 2, 0]), 4)
    assert np.isnan(few.led) and few.is_led, "four examples tell nothing"


@pytest.mark.parametrize("moved", range(10))
def test_examples_without_a_gradient_are_not_led_where_most_have_none(
    moved, colours, make_pictures, monkeypatch
):
    """A softmax is saturated for all but a few examples: searches see hardly anything."""
    true = Network.margin_gradients

    def saturated(self, images):
        gradients, logits = true(self, images)
        return gradients.at[moved:].set(0), logits

    monkeypatch.setattr(Network, "margin_gradients", saturated)
    found = anchor(Network(colours), make_pictures([0, 1, 2] * 4), 12)
    assert found.is_led == (moved >= 5)
    assert found.led == (1 if moved >= 5 else moved / 10)


def test_gradients_that_are_no_numbers_tell_nothing_of_the_others(
    colours, make_pictures, monkeypatch
):
    true = Network.margin_gradients

    def broken(self, images):
        gradients, logits = true(self, images)
        return gradients.at[4:].set(jnp.nan), logits

    monkeypatch.setattr(Network, "margin_gradients", broken)
    found = anchor(Network(colours), make_pictures([0, 1, 2] * 4), 12)
    assert np.isnan(found.led) and found.is_led


def test_offsets_lead_from_the_centre_to_the_anchor(colours, make_pictures):
    found = anchor(Network(colours), make_pictures([0, 1, 2], 14, 10), 3)
    assert found.offsets().dtype == jnp.int32
    np.testing.assert_array_equal(found.offsets() + np.array([7, 5]), found.anchors)


def test_a_flat_saliency_still_has_an_anchor():
    assert np.isfinite(_peaks(jnp.zeros((2, 9, 7, 3)))).all()


def test_accuracy_counts_labelled_examples_only(colours, make_pictures):
    examples = make_pictures([0, 1, 2, 0])
    half = replace(examples, labels=np.array([0, 2, -1, -1], np.int32))
    unknown = replace(examples, labels=np.full(4, -1, np.int32))
    assert anchor(Network(colours), half, 4).accuracy == 0.5
    assert anchor(Network(colours), unknown, 4).accuracy == 1.0


def test_sources_are_the_model_s_answers(colours, make_pictures):
    examples = replace(make_pictures([0, 1, 2]), labels=np.array([2, 2, 2], np.int32))
    assert anchor(Network(colours), examples, 3).sources.tolist() == [0, 1, 2]


def test_first_and_after_part_the_examples(colours, make_pictures):
    found = anchor(Network(colours), make_pictures([0, 1, 2, 0, 1, 2]), 6)
    few, rest = found.first(2), found.after(2)
    for name in ("images", "anchors", "sources", "logits"):
        whole = np.concatenate([getattr(few, name), getattr(rest, name)])
        np.testing.assert_array_equal(whole, getattr(found, name))
    assert few.classes == rest.classes == 3


@pytest.mark.parametrize("count", [6, 7])
def test_with_none_left_all_are_measured_on(count, colours, make_pictures):
    found = anchor(Network(colours), make_pictures([0, 1, 2, 0, 1, 2]), 6)
    assert len(found.after(count).images) == 6 and len(found.first(count).images) == 6


@pytest.mark.parametrize("classes", range(2, 12))
def test_each_target_has_examples_of_as_many_others_as_of_five_classes(classes):
    others = counted_classes(classes) * (classes - 1) / classes
    assert others >= 4  # those of five classes
    assert others < 5 or classes > 5


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("given", [4, 9, 40])
def test_of_few_classes_some_examples_are_left_to_measure_on(classes, given):
    for_each = fitted_count(1, classes, given)
    assert classes <= for_each <= max(classes, given // 2)


def test_non_finite_answers_are_refused(colours, make_pictures):
    broken = replace(colours, params=colours.params | {"fc.bias": jnp.full(3, jnp.nan)})
    with pytest.raises(EvidenceError, match="not finite"):
        anchor(Network(broken), make_pictures([0, 1, 2]), 3)
