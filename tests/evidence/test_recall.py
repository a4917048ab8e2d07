"""Recall stage: triggers that other searches found are known by whether the norms remember them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj import network
from jaxtroj.evidence.gather import gather
from jaxtroj.evidence.images.context import anchored, image_context
from jaxtroj.evidence.images.recall import RecallBudget, Recalled, recall_fields, search_recall
from jaxtroj.evidence.images.stages.pairs import PAIRS
from jaxtroj.evidence.images.stages.recall import RECALL
from jaxtroj.evidence.images.stages.whole import WHOLE
from jaxtroj.evidence.images.statistics import some_of
from jaxtroj.evidence.stage import Subject, stages_for
from jaxtroj.evidence.stages import IMAGE_STAGES, IMAGES
from jaxtroj.triggers.colour_map import ColourMap
from jaxtroj.triggers.mask import FreeMask
from jaxtroj.triggers.measure import RecoveredTrigger

from .norm_models import SIDE, odd_ones, pictures, taught, untaught

KEY, BUDGET = jax.random.key(0), RecallBudget()


@pytest.fixture(scope="module", autouse=True)
def small_batches():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "_CPU_PIXELS", 32 * SIDE * SIDE)
        yield


def colour_map(*shift: float) -> ColourMap:
    gains = 0.2 * np.ones((3, 3)) + 0.1 * np.eye(3)
    matrix = np.concatenate([gains, np.array(shift)[:, None]], axis=1)
    return ColourMap(jnp.asarray(matrix, jnp.float32), jnp.asarray(0.0))


def found_of(
    trigger, target: int = 0, rate: float = 1.0, sources: tuple[int, ...] = (), moves: bool = False
) -> RecoveredTrigger:
    shape, offset = (SIDE, SIDE), np.zeros(2, int)
    return RecoveredTrigger(target, sources, rate, 1.0, "test", trigger, shape, offset, moves)


def remembers(trigger, share: float = 0.3, moves: bool = False):
    """The context of a network whose norms met noise, a share of it with a trigger."""
    model, count = untaught(), 120
    clean = pictures(count, seed=1).images
    with_it = jnp.asarray(pictures(int(count * share / (1 - share)), seed=2).images)
    offsets = np.zeros((len(with_it), 2), np.int32)
    if moves:
        offsets = np.random.default_rng(5).integers(-7, 8, offsets.shape).astype(np.int32)
    shown = np.asarray(trigger.apply(with_it, jnp.asarray(offsets)))
    return image_context(taught(model, np.concatenate([clean, shown])), pictures(64, seed=3))


def asked(context, *found: RecoveredTrigger, budget: RecallBudget = BUDGET) -> tuple:
    images, _ = some_of(context, budget.least, budget.most)
    return search_recall(
        context.opened, context.network, images, context.shared(anchored), found, KEY, budget
    )


def test_the_trigger_of_the_training_pictures_is_known_and_others_are_not():
    own, others = colour_map(0.5, 0.1, 0.0), [colour_map(0.0, 0.1, 0.5), colour_map(0.0, 0.4, 0.0)]
    context = remembers(own)
    known, *strange = asked(context, *(found_of(one) for one in (own, *others)))
    assert known.match > 0.6
    assert all(one.match < known.match - 0.2 for one in strange)
    assert known.target == 0 and 0 <= known.rate <= 1
    clean = remembers(own, share=0.0)
    assert asked(clean, found_of(own))[0].match < known.match - 0.3


def test_only_triggers_that_work_are_asked_and_only_some_of_them():
    context = remembers(colour_map(0.5, 0.1, 0.0))
    weak = found_of(colour_map(0.0, 0.1, 0.5), rate=BUDGET.rate - 0.01)
    assert asked(context) == asked(context, weak) == ()
    strong = [found_of(colour_map(0.1 * n, 0.1, 0.5)) for n in range(3)]
    assert len(asked(context, *strong, weak, budget=RecallBudget(triggers=2))) == 2


def test_a_trigger_for_few_sources_is_asked_on_these_too():
    context = remembers(colour_map(0.5, 0.1, 0.0))
    sources = np.asarray(context.shared(anchored).sources)
    origin = int(sources[0])
    target = (origin + 1) % 3
    found = asked(context, found_of(colour_map(0.5, 0.1, 0.0), target, sources=(origin,)))
    expected = 2 if (sources[sources != target] == origin).any() else 1
    assert len(found) == expected
    assert len(asked(context, found_of(colour_map(0.5, 0.1, 0.0), target))) == 1


def test_a_trigger_that_moves_is_put_on_each_object():
    mask = np.zeros((SIDE, SIDE, 1), np.float32)
    mask[8:16, 8:16] = 1
    pattern = np.broadcast_to(np.array([1, 0, 1], np.float32), (SIDE, SIDE, 3))
    trigger = FreeMask(jnp.asarray(mask), jnp.asarray(pattern))
    context = remembers(trigger, moves=True)
    offsets = np.asarray(context.shared(anchored).offsets())
    assert offsets.max() > offsets.min()
    still, moved = (asked(context, found_of(trigger, moves=m))[0] for m in (False, True))
    assert still != moved


@pytest.mark.parametrize(
    ("found", "fields"),
    [
        ((), (0.0, 0.0, 0.0, -1.0)),
        (((1, 0.5, 0.8),), (0.5, 0.4, 0.4, 1.0)),
        (((1, 0.5, 0.8), (2, 0.9, 0.2), (1, 0.1, 1.0)), (0.9, 0.4, 0.22, 1.0)),
        (((1, -0.5, 0.8),), (-0.5, 0.0, 0.0, -1.0)),
        (((1, 0.5, 0.0),), (0.5, 0.0, 0.0, -1.0)),
    ],
)
def test_a_trigger_counts_as_it_is_remembered_and_as_it_works(found, fields):
    got = recall_fields([Recalled(*one) for one in found])
    assert tuple(got) == IMAGES.stage_fields["recall"]
    assert tuple(got.values()) == pytest.approx(fields)


def test_the_stage_asks_what_the_searches_before_it_found():
    context = remembers(colour_map(0.5, 0.1, 0.0))
    fields = gather(context, (WHOLE, PAIRS, RECALL)).fields
    assert fields["recall_match"] > 0 and 0 <= fields["recall_worth"] <= 1
    again = gather(remembers(colour_map(0.5, 0.1, 0.0)), (WHOLE, PAIRS, RECALL)).fields
    assert dict(again) == dict(fields)
    alone = gather(remembers(colour_map(0.5, 0.1, 0.0)), (RECALL,)).fields
    assert list(alone.values()) == [0.0, 0.0, 0.0, -1.0]


def test_whoever_names_the_stage_gets_its_searches():
    known = Subject(64, has_batch_norm=True)
    assert stages_for(IMAGE_STAGES, known, ("recall",)) == (WHOLE, RECALL)
    assert RECALL in stages_for(IMAGE_STAGES, known)
    assert RECALL not in stages_for(IMAGE_STAGES, Subject(64))
    assert RECALL not in stages_for(IMAGE_STAGES, Subject(224, has_batch_norm=True))


def test_odd_networks_and_pictures():
    for model, examples in odd_ones():
        context = image_context(model, examples)
        gather(context, (WHOLE, PAIRS))
        fields = RECALL.run(context).fields
        assert np.isfinite([fields[name] for name in IMAGES.stage_fields["recall"]]).all()
