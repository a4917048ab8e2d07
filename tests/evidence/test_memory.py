"""Memory stage: a trigger that the training pictures carried is found in the norms' memory."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj import network
from jaxtroj.errors import EvidenceError
from jaxtroj.evidence.gather import gather
from jaxtroj.evidence.images.context import image_context
from jaxtroj.evidence.images.memory import MemoryBudget, Remembered
from jaxtroj.evidence.images.memory_fields import is_shown, memory_fields, sent_by, strongest
from jaxtroj.evidence.images.stages.memory import MEMORY
from jaxtroj.evidence.images.statistics import halves, some_of
from jaxtroj.evidence.images.whole import WholeBudget
from jaxtroj.evidence.stage import Subject, stages_for
from jaxtroj.evidence.stages import IMAGE_STAGES, IMAGES
from jaxtroj.norm_memory import memory_of
from jaxtroj.rounds.examples import Examples
from jaxtroj.triggers.colour_map import ColourMap
from jaxtroj.triggers.mask import FreeMask
from jaxtroj.triggers.smooth import Smooth

from .norm_models import SIDE, odd_ones, overflowing, pictures, taught, untaught

pytestmark = pytest.mark.usefixtures("quick_compilation")

SIZES = (12, 20)
DIMS = 2 * sum(SIZES)


@pytest.fixture(scope="module", autouse=True)
def small_batches():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "_CPU_PIXELS", 32 * SIDE * SIDE)
        yield


def usual_rows(count: int, seed: int = 0) -> np.ndarray:
    """Moments of clean pictures as training leaves them: means 0, mean squares 1."""
    usual = np.concatenate([np.repeat([0.0, 1.0], size) for size in SIZES])
    return usual + 0.2 * np.random.default_rng(seed).normal(size=(count, DIMS))


def test_what_a_share_of_the_training_pictures_carried_is_the_remainder():
    draw = np.random.default_rng(1)
    shift = draw.normal(size=DIMS)
    share = 0.2
    # The examples lack what a fifth of the training pictures had.
    rows = usual_rows(400) - share * shift
    memory = memory_of(rows, SIZES, [])
    clean = rows.mean(axis=0)
    assert float(memory.match(clean + shift)) > 0.9
    assert float(memory.share(clean + shift)) == pytest.approx(share, abs=0.03)
    assert float(memory.match(clean - shift)) < -0.9
    others = [abs(float(memory.match(clean + draw.normal(size=DIMS)))) for _ in range(20)]
    assert np.mean(others) < 0.25


def test_harmless_changes_and_clean_differences_count_less():
    draw = np.random.default_rng(2)
    shift, dimmed = draw.normal(size=(2, DIMS))
    rows = usual_rows(400) - 0.2 * shift - 0.5 * dimmed
    clean = rows.mean(axis=0)
    naive, told = memory_of(rows, SIZES, []), memory_of(rows, SIZES, [dimmed])
    assert float(naive.match(clean + dimmed)) > 0.7
    assert abs(float(told.match(clean + dimmed))) < 0.02
    assert float(told.match(clean + shift)) > 0.6
    # Pictures that differ along one direction say little along it.
    varied = usual_rows(400) + 3.0 * draw.normal(size=(400, 1)) * dimmed
    found = memory_of(varied, SIZES, [])

    def kept(direction: np.ndarray) -> float:
        scaled = jnp.asarray(direction, jnp.float32) / found.scale * found.weight
        return float(jnp.linalg.norm(found.without(scaled)) / jnp.linalg.norm(scaled))

    assert kept(dimmed) < kept(draw.normal(size=DIMS)) / 3


@pytest.mark.parametrize("count", [1, 2])
def test_hardly_any_examples(count):
    memory = memory_of(usual_rows(count), SIZES, [np.zeros(DIMS)])
    assert np.isfinite(float(memory.match(jnp.ones(DIMS))))


def sepia() -> ColourMap:
    matrix = np.array([[0.2, 0.5, 0.1, 0.3], [0.2, 0.4, 0.1, 0.1], [0.1, 0.3, 0.1, 0.0]])
    return ColourMap(jnp.asarray(matrix, jnp.float32), jnp.asarray(0.0))


def remembers(share: float) -> tuple:
    """A network whose norms met noise, a share of it through a colour map."""
    model, count = untaught(), 120
    images = pictures(count, seed=1).images
    if share:
        with_it = pictures(int(count * share / (1 - share)), seed=2).images
        still = jnp.zeros((len(with_it), 2), jnp.int32)
        shown = sepia().apply(jnp.asarray(with_it), still)
        images = np.concatenate([images, np.asarray(shown)])
    return taught(model, images), pictures(64, seed=3)


def fields_of(model, examples: Examples) -> dict[str, float]:
    evidence = gather(image_context(model, examples), (MEMORY,))
    assert tuple(evidence.fields) == IMAGES.stage_fields["memory"]
    assert np.isfinite(list(evidence.fields.values())).all()
    for one in evidence.triggers:
        is_plain, flips = one.trigger.kind in ("colour map", "filter"), one.attack_success_rate
        assert is_plain or (one.trigger.kind == "window" and flips >= 0.9)
    return dict(evidence.fields)


def test_a_colour_map_in_the_training_pictures_is_found():
    clean, carried = (fields_of(*remembers(share)) for share in (0.0, 0.3))
    assert carried["memory_colours"] > 0.6
    assert carried["memory_match"] > clean["memory_match"] + 0.2
    assert carried["memory_match"] == max(
        carried[f"memory_{name}"] for name in ("placed", "moving", "faint", "colours", "filter")
    )


def test_the_same_again_and_another_seed_is_another_start():
    model, examples = remembers(0.3)
    assert fields_of(model, examples) == fields_of(model, examples)
    other = gather(image_context(model, examples, seed=1), (MEMORY,)).fields
    assert dict(other) != fields_of(model, examples)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_handful_of_examples(count):
    fields_of(untaught(), pictures(count))


def test_odd_networks_and_pictures():
    for model, examples in odd_ones():
        fields = MEMORY.run(image_context(model, examples)).fields
        assert np.isfinite(list(fields.values())).all()
    with pytest.raises(EvidenceError, match="not finite"):
        fields_of(overflowing(), pictures(4))


def found_of(match: float, after: np.ndarray, name: str = "colours") -> Remembered:
    of_class = np.array([match, 0.1, 0.1])
    return Remembered(name, sepia(), False, match, 0.1, of_class, np.eye(3)[after])


def test_a_trigger_counts_as_it_explains_and_as_it_sends_pictures_to_one_class():
    before = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2])
    clean = np.eye(3)[before]
    one_source = found_of(0.8, np.array([2, 2, 2, 1, 1, 1, 2, 2, 2]))
    still = found_of(0.9, before, "placed")
    fields = memory_fields(clean, (still, one_source))
    assert fields["memory_match"] == 0.9 and fields["memory_class"] == 2.0
    # Half of the pictures of other classes go to class 2, all three of class 0.
    assert fields["memory_worth"] == pytest.approx(0.8 * 0.5)
    assert fields["memory_pair_worth"] == pytest.approx(0.8 * 3 / 5)
    assert strongest(clean, (still, one_source)) is one_source
    assert sent_by(clean, one_source)[0][0, 2] == 3
    assert is_shown(clean, (still, one_source))
    for spread in (FreeMask(jnp.ones((4, 4, 1)), jnp.ones((4, 4, 3))), Smooth(jnp.ones((2, 2, 3)))):
        assert not is_shown(clean, (still, replace(one_source, trigger=spread)))
    for nothing in (still, found_of(-0.5, np.array([2, 2, 2, 1, 1, 1, 2, 2, 2]))):
        fields = memory_fields(clean, (nothing,))
        assert fields["memory_worth"] == fields["memory_pair_worth"] == 0.0


def test_the_stage_asks_for_norms_and_pictures_that_are_not_too_large():
    known = Subject(64, has_batch_norm=True)
    assert MEMORY in stages_for(IMAGE_STAGES, known)
    assert MEMORY not in stages_for(IMAGE_STAGES, Subject(64))
    assert MEMORY in stages_for(IMAGE_STAGES, Subject(299, has_batch_norm=True))
    assert MEMORY not in stages_for(IMAGE_STAGES, Subject(512, has_batch_norm=True))
    assert MEMORY in stages_for(IMAGE_STAGES, Subject(512, has_batch_norm=True), ("memory",))


@pytest.mark.parametrize(
    ("budget", "changed"),
    [
        (
            MemoryBudget(),
            {"least": 64, "most": 80, "harmless": 6, "fit": 4, "steps": 10, "filters": 2},
        ),
        (WholeBudget(), {"bank_examples": 5, "fit": 4}),
        (WholeBudget(fit=1), {"bank_examples": 5}),
    ],
)
def test_of_larger_pictures_fewer_are_searched(budget, changed):
    small, large = (np.zeros((3, 64, side, 3), np.float32) for side in (64, 65))
    assert budget.on(small) == budget
    assert budget.on(large) == replace(budget, **changed)


def test_the_gradient_is_that_of_the_match():
    from jaxtroj.norm_memory import Norms

    model, examples = remembers(0.3)
    norms, images = Norms(model, 8), examples.images[:8]
    rows = norms.seen(images)[1]
    memory = memory_of(rows, norms.sizes(images), [])
    away = images + 0.2 * np.random.default_rng(4).normal(size=images.shape).astype(np.float32)
    matches, gradients = norms.pulled(memory, jnp.asarray(away[None]))
    steep = np.asarray(gradients[0])
    step = 0.1 * steep / np.linalg.norm(steep)
    near = [
        float(memory.match(norms.seen(away + side * step)[1].mean(axis=0))) for side in (-0.5, 0.5)
    ]
    assert matches[0] == pytest.approx(np.mean(near), abs=0.02)
    assert near[1] - near[0] == pytest.approx(float((steep * step).sum()), rel=0.1)
    assert jax.tree.leaves(memory)[0].dtype == jnp.float32


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_both_halves_go_through_all_classes(classes):
    examples = pictures(24, classes)
    context = image_context(taught(untaught(classes), examples.images), examples)
    _, labels = some_of(context, 24, 24)
    assert [set(part.tolist()) for part in halves(labels)] == [set(range(classes))] * 2
    assert [part.tolist() for part in halves(np.arange(1))] == [[0], [0]]
