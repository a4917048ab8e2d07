"""The whole stage finds a frame that a network was taught, and runs for pictures of any sort."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj.anchors import anchor
from jaxtroj.evidence.images.whole import FAMILIES, Whole, WholeBudget, search_whole, whole_fields
from jaxtroj.evidence.images.whole_banks import BankBudget, bank_of
from jaxtroj.evidence.stages import IMAGES
from jaxtroj.generate.small.recipe import SmallTrigger
from jaxtroj.inversion.value_arms import BorderFamily, SmoothFamily, WarpFamily, value_arms
from jaxtroj.network import Network
from jaxtroj.triggers.measure import all_gains, gains_together

from .conftest import gather_images as gather
from .conftest import pictures, small_model
from .taught import SIDE, TARGET, examples, trained

SMALL = WholeBudget(BankBudget(maps=2, frequencies=(2, 3), warps=2), fit=4)
pytestmark = pytest.mark.usefixtures("small_batches", "quick_compilation")


def frame() -> SmallTrigger:
    mask, pattern = np.ones((SIDE, SIDE, 1), np.float32), np.zeros((SIDE, SIDE, 3), np.float32)
    mask[1:-1, 1:-1] = 0.0
    pattern[::2], pattern[:, ::2] = (1.0, 0.0, 1.0), (0.0, 1.0, 0.0)
    return SmallTrigger("patch", "frame", TARGET, 0.25, mask, pattern)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The poisoned network and the clean one."""
    folder = tmp_path_factory.mktemp("networks")
    return trained(frame(), folder), trained(None, folder)


@pytest.fixture(scope="module")
def found(models):
    """What is found in the poisoned network, and in the clean one."""
    results = []
    for model in models:
        caller = Network(model)
        anchored = anchor(caller, examples(), 18)
        budget = replace(SMALL, border=0.07)
        results.append(search_whole(caller, anchored, jax.random.key(0), "RGB", budget))
    return results


def test_the_taught_class_stands_out(found):
    poisoned, twin = (whole_fields(each) for each in found)
    assert poisoned["whole_border_edge"] > twin["whole_border_edge"] + 0.5
    searched = found[0].found["border"][-1]
    best = int(searched.margins.argmax())
    assert searched.targets[best] == TARGET and searched.rates[best] > 0.9
    assert searched.found.triggers.kind == "border" and searched.found.method == "border search"


@pytest.mark.parametrize(
    ("margins", "ratio", "edge"),
    [
        ([6.0, 4.0], 1.0, 1 / 3),  # two classes nearly alike, far as they are
        ([4.0, 6.0, 1.0], 1.0, 1 / 3),
        ([6.0, -2.0], 3.0, 4.0),  # a second class that is not reached does not count
        ([-2.0, -4.0], -1.0, 1.0),
        ([6.0], 0.75, 0.0),  # of one class alone nothing says that it stands out
    ],
)
def test_a_push_counts_beside_that_to_the_second_best_class(margins, ratio, edge):
    measured: Any = SimpleNamespace(margins=np.array(margins))
    fields = whole_fields(Whole({name: (measured,) for name in FAMILIES}, 0.25, 2.0))
    assert tuple(fields) == IMAGES.stage_fields["whole"] and fields["whole_sink"] == 0.25
    assert fields["whole_warp_ratio"] == pytest.approx(ratio)
    assert fields["whole_warp_edge"] == pytest.approx(edge)


def test_fields_are_those_of_the_schema_and_the_same_again(models):
    first, again = (gather(models[0], examples(), ("whole",), budgets=(SMALL,)) for _ in range(2))
    assert tuple(first.fields) == IMAGES.stage_fields["whole"] and first.fields == again.fields
    assert np.isfinite(list(first.fields.values())).all()
    assert first.searched == ("filter", "colour map", "sinusoid", "smooth", "warp", "border")
    assert {t.trigger.kind for t in first.triggers} == set(first.searched)
    assert first.triggers[0].target_class == TARGET


@pytest.mark.parametrize(
    ("labels", "classes", "channels"),
    [([0, 1], 3, 3), ([0, 1, 2] * 2, 3, 1), (range(14), 14, 3), ([1], 3, 3), ([0, 1] * 3, 2, 3)],
)
def test_any_number_of_classes_examples_and_channels(labels, classes, channels):
    """Also where few examples are left to measure on, and more classes than are searched."""
    model = small_model(classes, channels=channels)
    shown = pictures(labels, 12, 20, channels)
    fields = gather(model, shown, ("whole",), budgets=(SMALL,)).fields
    assert np.isfinite(list(fields.values())).all()


def test_kinds_together_are_each_alone(colours):
    caller = Network(colours)
    anchored = anchor(caller, pictures([0, 1, 2]), 3)
    bank = bank_of(jax.random.key(0), (12, 12, 3), "RGB", BankBudget(maps=3, warps=2))
    kinds = [kind for family in bank.values() for kind in family]
    assert set(bank) < set(FAMILIES)
    for kind, gains in zip(kinds, gains_together(caller, anchored, kinds), strict=True):
        still = np.zeros(len(gains), bool)
        alone = all_gains(caller, anchored, kind, still)
        np.testing.assert_allclose(gains, alone, atol=1e-4)


def test_gradients_of_values_are_those_of_the_triggers():
    """Mixed arms pull back what each family alone would, with no value beyond its own moved."""
    families = (SmoothFamily(0.1, 3), WarpFamily(1.0, 3), BorderFamily(1.5))
    rng = np.random.default_rng(0)
    images = rng.random((2, 6, 7, 3)).astype(np.float32)
    arms = value_arms(families, np.arange(2), (6, 7, 3), jax.random.key(0))
    weights = rng.normal(size=(len(arms), *images.shape)).astype(np.float32)
    pulled = arms.pulled(images, weights)
    assert arms.kinds.tolist() == [0, 1, 2] * 2 and arms.targets.tolist() == [0] * 3 + [1] * 3
    for place, kind in enumerate(arms.kinds):
        family = families[kind]
        shape = family.shape((6, 7, 3))
        size = int(np.prod(shape))
        own = jnp.asarray(arms.values[place, :size].reshape(shape))

        def weighed(values, family=family, place=place):
            shown = family.trigger(values).apply(jnp.asarray(images), jnp.zeros((2, 2), int))
            return (shown * weights[place]).sum() / len(images)

        np.testing.assert_allclose(
            pulled[place, :size], jax.grad(weighed)(own).ravel(), rtol=1e-3, atol=1e-4
        )
        assert not pulled[place, size:].any()
    assert pulled.shape == (6, 6 * 7 * 3)
