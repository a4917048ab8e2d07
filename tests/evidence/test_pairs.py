"""Pairs stage: which pair stands out, and odd examples; what it is worth is in the measurements."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj import network
from jaxtroj.anchors import AnchoredExamples, anchor
from jaxtroj.evidence.gather import gather
from jaxtroj.evidence.images.context import image_context
from jaxtroj.evidence.images.pair_bank import (
    BankAnswers,
    bank_answers,
    likely_pairs,
    make_bank,
    parted,
)
from jaxtroj.evidence.images.pair_fields import Crossings, Pairs, pair_fields, pair_triggers
from jaxtroj.evidence.images.pairs import PairBudget, _dots
from jaxtroj.evidence.images.stages.pairs import PAIRS
from jaxtroj.evidence.stages import IMAGES
from jaxtroj.inversion.own_arms import OwnPatterns, own_fit
from jaxtroj.inversion.sign_steps import Fit, Patterns, climb, gradients_of, logits_of
from jaxtroj.network import Network
from jaxtroj.triggers.filter import ColourFilter, known_filters
from jaxtroj.triggers.mask import FreeMask
from jaxtroj.triggers.measure import Candidates, Measured, best_of
from jaxtroj.triggers.patch import Patch

pytestmark = pytest.mark.usefixtures("quick_compilation")

QUICK = (PairBudget(patches=4, pairs=6, arms=2, steps=2),)


@pytest.fixture(scope="module", autouse=True)
def small_batches():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "_CPU_PIXELS", 32 * 12 * 12)
        yield


def fields_of(model, examples):
    evidence = gather(image_context(model, examples, budgets=QUICK), (PAIRS,))
    assert tuple(evidence.fields) == IMAGES.stage_fields["pairs"]
    assert np.isfinite(list(evidence.fields.values())).all()
    for trigger in evidence.triggers:
        assert trigger.target_class not in trigger.source_classes
        assert 0 <= trigger.attack_success_rate <= 1 and trigger.as_json()["kind"]
    return dict(evidence.fields)


def answered(sources) -> AnchoredExamples:
    count = len(sources)
    return AnchoredExamples(
        jnp.zeros((count, 4, 4, 3)), jnp.zeros((count, 2)), jnp.asarray(sources),
        jnp.zeros((count, 5)), 1.0,
    )  # fmt: skip


def test_half_of_a_source_s_examples_measure():
    parts = parted(answered([3, 0, 3, 3, 1, 3, 1]), per_class=2, held_out=2, most=9)
    assert parts.sources.tolist() == [0, 1, 3]
    assert parts.fit.tolist() == [[1, 1], [4, 4], [0, 2]]
    assert parts.held.tolist() == [1, 3, 5, 6], "an example alone is for both"
    assert parted(answered([3, 0, 1]), 2, 2, most=2).sources.tolist() == [0, 1]


def test_a_pair_leads_by_what_other_sources_do_not_do(colours, monkeypatch):
    """Of two candidates each moves every class to 4, and class 1 to 2 as well."""
    examples = answered([0, 0, 1, 1, 3, 3])
    gains = np.zeros((2, 6, 5))
    gains[:, :, 4], gains[:, 2:4, 2] = 6.0, 3.0
    monkeypatch.setattr(
        "jaxtroj.evidence.images.pair_bank.all_gains", lambda *rest: gains, raising=True
    )
    parts = parted(examples, 2, 2, 9)
    # Each fitted example of the sources is asked.
    monkeypatch.setattr(AnchoredExamples, "at", lambda self, places: self)
    bank = [(known_filters(), np.zeros(2, bool))]
    found = bank_answers(Network(colours), examples, parts, bank, scale=1.0)
    assert found.leads[1, 2] == pytest.approx(3.0) and found.leads[:, 4].tolist() == [0, 0, 0]
    assert np.isneginf(found.leads[0, 0]) and np.isneginf(found.leads[2, 3])
    assert found.reached[0, 4] == pytest.approx(6.0)
    pairs = likely_pairs(found, 4)
    assert pairs[0].tolist() == [1, 2] and pairs[1, 1] == 4 and len(pairs) == 4
    assert len(likely_pairs(found, 99)) == 3 * 5 - 3


def two_found(gains, targets, origins) -> Measured:
    arms = len(targets)
    triggers = FreeMask(jnp.ones((arms, 4, 4, 1)), jnp.zeros((arms, 4, 4, 3)))
    moves, origins = np.zeros(arms, bool), np.asarray(origins)
    found = Candidates("pair search", triggers, np.asarray(targets), moves, origins)
    return Measured(found, np.array([0, 0, 1, 1, 3, 3]), np.asarray(gains, float), np.ones(arms))


def of(gains, targets=(2, 1), clean=-6.0) -> Pairs:
    leads = np.array([[-np.inf, 2.0, 0.5], [1.0, -np.inf, 0.0]])
    clear = crossed([[-6.0] * 6, [-6.0] * 6], (2, 1), clean)
    return Pairs(BankAnswers(leads, leads), crossed(gains, targets, clean), clear)


def crossed(gains, targets, clean) -> Crossings:
    return Crossings(two_found(gains, targets, [0, 0]), np.full((2, 6), clean), scale=2.0)


def test_dots_lie_where_the_gradient_is_largest():
    pulls = np.zeros((2, 3, 4, 3), np.float32)
    pulls[0, 0, 1], pulls[0, 2, 3], pulls[1, 1, 1] = -2.0, 1.0, 5.0
    masks = _dots(pulls, PairBudget(dots=2))
    assert masks.shape == (2, 3, 4, 1) and masks.sum(axis=(1, 2, 3)).tolist() == [2.0, 2.0]
    assert masks[0, 0, 1] == masks[0, 2, 3] == masks[1, 1, 1] == 1.0
    assert _dots(pulls, PairBudget(dots=99)).min() == 1.0, "no more dots than pixels"


def all_six() -> AnchoredExamples:
    return answered([0, 0, 1, 1, 3, 3])


def test_a_trigger_of_one_source_is_measured_on_that_source():
    pairs = of([[8, 8, -2, -2, -6, -6], [1, 1, 1, 1, 1, 1]])
    assert pair_fields(pairs) == pytest.approx(
        {"pair_bank": 2.0, "pair_bank_lead": 1.0, "pair_crossing": 3.0, "pair_lead": 2.5,
         "pair_focus": 6.0, "dots_crossing": -3.0, "dots_lead": 0.0, "dots_focus": 0.0}
    )  # fmt: skip
    (candidate,) = pair_triggers(pairs, PairBudget().standing)
    best = candidate(all_six())
    assert best.target_class == 2 and best.source_classes == (0,)
    assert best.attack_success_rate == 1.0, "the other sources are not what it is for"


def test_a_trigger_that_moves_all_is_measured_on_all():
    pairs = of([[8, 8, 2, 2, 9, -9], [1, 1, 1, 1, 1, 1]])
    best = pair_triggers(pairs, PairBudget().standing)[0](all_six())
    assert best.source_classes == (0, 1) and best.attack_success_rate == pytest.approx(5 / 6)


def test_a_crossing_between_classes_that_are_alike_is_none():
    fields = pair_fields(of([[8, 8, 8, 8, 8, 8], [1, 1, 1, 1, 1, 1]], clean=-0.2))
    assert fields["pair_crossing"] == pytest.approx(0.1)


def test_no_trigger_is_handed_on_where_no_target_stands_out():
    pairs = of([[8, 8, -2, -2, 9, 9], [8, 8, 1, 1, 1, 1]])
    assert pair_fields(pairs)["pair_lead"] == 0.0
    assert pair_triggers(pairs, PairBudget().standing) == ()
    assert pair_fields(of([[8] * 6, [4] * 6], targets=(2, 2)))["pair_lead"] == 0.0


def test_best_of_takes_the_examples_that_a_trigger_is_for():
    found = two_found([[5, 5, -9, -9, 0, 0], [2, 2, 2, 2, 2, 2]], [2, 2], [0, 0])
    assert best_of(found, all_six()).attack_success_rate == 1.0
    np.testing.assert_allclose(found.margins, [5.0, 2.0])


def own_arms(colours, make_pictures, moves) -> tuple[Network, OwnPatterns]:
    caller = Network(colours)
    images = np.asarray(anchor(caller, make_pictures([0, 1, 2]), 3).images)
    masks = np.zeros((3, 12, 12, 1), np.float32)
    masks[:, 2:6, 3:7] = 0.5
    patterns = np.random.default_rng(0).random((3, 12, 12, 3)).astype(np.float32)
    places = np.tile(np.asarray(moves), (3, 1, 1))
    return caller, OwnPatterns(np.array([1, 2, 0]), masks, patterns, images[:, None], places)


def test_arms_with_pictures_of_their_own_do_as_alone(colours, make_pictures):
    caller, arms = own_arms(colours, make_pictures, [[0, 0]])
    together, pulls = climb(own_fit(caller, 1, (12, 12, 3), 1.0), arms, 3)
    for place in range(3):
        own = slice(place, place + 1)
        alone, pull = climb(
            Fit(caller, arms.pictures[place], np.array([place]), 1.0),
            Patterns(arms.targets[own], arms.masks[own], arms.patterns[own]),
            3,
        )
        np.testing.assert_allclose(together.patterns[own], alone.patterns, atol=1e-6)
        assert pulls[place] == pytest.approx(pull[0], abs=1e-5)


def test_patterns_move_with_the_picture_and_gradients_back(colours, make_pictures):
    caller, arms = own_arms(colours, make_pictures, [[2, 3]])
    fit = own_fit(caller, 1, (12, 12, 3), 1.0)
    masks, patterns = (np.roll(x, (2, 3), (1, 2)) for x in (arms.masks, arms.patterns))
    placed = OwnPatterns(arms.targets, masks, patterns, arms.pictures, 0 * arms.moves)
    logits = logits_of(fit, arms)
    np.testing.assert_allclose(logits, logits_of(fit, placed), atol=1e-5)
    back, there = (gradients_of(fit, some, logits)[0] for some in (arms, placed))
    np.testing.assert_allclose(np.roll(back, (2, 3), (1, 2)), there, atol=1e-6)


def test_the_bank_holds_dark_and_bright_patches_all_over():
    (patches, moves), (filters, _) = make_bank(jax.random.key(0), 24, (0.1,), 3, "RGB", True)
    assert isinstance(patches, Patch) and isinstance(filters, ColourFilter)
    colours = np.asarray(patches.colour)
    assert set(np.unique(colours[::2])) == {0.0, 1.0} and not moves.any()
    assert np.ptp(np.asarray(patches.offset)) > 0.6 and len(filters.number) == 5
    assert len(make_bank(jax.random.key(0), 4, (0.1,), 4, "RGB", False)) == 1
    (longer, _), _ = make_bank(jax.random.key(0), 30, (0.1,), 3, "RGB", True)
    assert isinstance(longer, Patch)
    np.testing.assert_array_equal(longer.offset[:24], patches.offset)


EDGES = {
    "two classes": (2, [0, 1, 0, 1]),
    "two examples of each of many": (44, list(range(44)) * 2),
    "one example": (3, [1]),
    "a class without examples": (3, [0, 0, 0, 2, 2]),
    "no label known": (3, [-1, -1, -1]),
}


@pytest.mark.parametrize("classes, labels", EDGES.values(), ids=EDGES)
def test_odd_examples(classes, labels, make_model, make_pictures):
    fields_of(make_model(classes), make_pictures(labels))


@pytest.mark.parametrize("height, width, channels", [(9, 12, 1), (40, 36, 3), (12, 12, 4)])
def test_pictures_of_any_shape(height, width, channels, make_model, make_pictures):
    examples = make_pictures([0, 1, 2, 0, 1, 2], height, width, channels)
    model = make_model(channels=channels)
    assert fields_of(model, examples) == fields_of(model, examples)


def test_a_network_that_answers_nothing(make_model, make_pictures):
    model = make_model()
    dead = replace(model, params={k: jnp.zeros_like(v) for k, v in model.params.items()})
    context = image_context(dead, make_pictures([0, 1, 2, 0]), budgets=QUICK)
    assert gather(context, (PAIRS,)).fields == {}, "no pixel changes its answers"
    assert np.isfinite(list(PAIRS.run(context).fields.values())).all()
