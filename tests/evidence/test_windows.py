"""Windows stage: a small square that training pictures carried is found in the norms' memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj import network
from jaxtroj.errors import EvidenceError
from jaxtroj.evidence.gather import gather
from jaxtroj.evidence.images.context import image_context
from jaxtroj.evidence.images.memory import Remembered
from jaxtroj.evidence.images.stages.memory import MEMORY
from jaxtroj.evidence.images.stages.windows import WINDOWS
from jaxtroj.evidence.images.windows import METHOD, Tried, WindowBudget, window_fields
from jaxtroj.evidence.stage import Subject, stages_for
from jaxtroj.evidence.stages import IMAGE_STAGES, IMAGES
from jaxtroj.inversion.memory_search import Square
from jaxtroj.rounds.examples import Examples
from jaxtroj.triggers.mask import FreeMask
from jaxtroj.triggers.window import Window

from .norm_models import SIDE, odd_ones, overflowing, pictures, taught, untaught

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.fixture(scope="module", autouse=True)
def small_batches():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "_CPU_PIXELS", 32 * SIDE * SIDE)
        yield


def remembers(share: float) -> tuple:
    """A network whose norms met noise, a share of it with a bright square anywhere."""
    images = pictures(160, seed=1).images.copy()
    places = np.random.default_rng(2).integers(0, SIDE - 6, size=(int(160 * share), 2))
    for image, (top, left) in zip(images, places, strict=False):
        image[top : top + 6, left : left + 6] = (1.0, 1.0, 0.0)
    return taught(untaught(), images), pictures(64, seed=3)


def evidence_of(model, examples: Examples, seed: int = 0):
    evidence = gather(image_context(model, examples, seed=seed), (MEMORY, WINDOWS))
    fields = {name: evidence.fields[name] for name in IMAGES.stage_fields["windows"]}
    assert np.isfinite(list(fields.values())).all()
    assert all(0 <= fields[name] <= 1 for name in ("window_worth", "window_pair_worth"))
    return fields, [one for one in evidence.triggers if one.method == METHOD]


def test_a_square_in_the_training_pictures_is_found():
    (clean, _), (carried, shown) = (evidence_of(*remembers(share)) for share in (0.0, 0.4))
    assert carried["window_match"] > 0.6 > clean["window_match"] + 0.2
    assert len(shown) == 1 and shown[0].trigger.kind == "window"
    inside = np.asarray(shown[0].trigger.mask)[..., 0] > 0
    red, green, blue = np.asarray(shown[0].trigger.pattern)[inside].mean(axis=0)
    assert min(red, green) > blue  # a yellow one


def test_the_same_again_and_another_seed_is_another_start():
    model, examples = remembers(0.4)
    again = evidence_of(model, examples)[0]
    assert evidence_of(model, examples)[0] == again
    assert evidence_of(model, examples, seed=1)[0] != again


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_handful_of_examples(count):
    evidence_of(untaught(), pictures(count))


def test_odd_networks_and_pictures():
    for model, examples in odd_ones():
        fields = WINDOWS.run(image_context(model, examples)).fields
        assert np.isfinite(list(fields.values())).all()
    with pytest.raises(EvidenceError, match="not finite"):
        evidence_of(overflowing(), pictures(4))


def tried(match: float, sent: list[list[int]], counts=(4, 4, 4)) -> Tried:
    still = FreeMask(jnp.zeros((4, 4, 1)), jnp.zeros((4, 4, 3)))
    of_class = np.array([match, 0.1, 0.1])
    remembered = Remembered("square", still, True, match, 0.1, of_class, np.zeros((1, 3)))
    windows = Window(jnp.zeros((1, 4, 4, 1)), jnp.zeros((1, 4, 4, 3)))
    return Tried(remembered, windows, np.array([sent], float), np.array(counts))


@pytest.mark.parametrize(
    ("match", "sent", "worth", "pair", "target"),
    [
        (0.8, [[0, 0, 4], [0, 0, 2], [0, 0, 0]], 0.8 * 6 / 8, 0.8 * 4 / 6, 2),
        # As many to a second class: no class leads.
        (0.8, [[0, 0, 4], [0, 0, 0], [0, 4, 0]], 0.0, 0.8 * 4 / 6, -1),
        (-0.3, [[0, 0, 4], [0, 0, 4], [0, 0, 0]], 0.0, 0.1 * 4 / 6, -1),
        (0.9, [[0, 0, 0], [0, 0, 0], [0, 0, 0]], 0.0, 0.0, -1),
    ],
)
def test_a_square_counts_as_it_explains_and_as_it_sends(match, sent, worth, pair, target):
    fields = window_fields([tried(match, sent)])
    assert fields["window_match"] == match and fields["window_class"] == target
    assert fields["window_worth"] == pytest.approx(worth)
    assert fields["window_pair_worth"] == pytest.approx(pair)
    # Another square that does less changes nothing.
    assert window_fields([tried(match, sent), tried(-0.5, [[0] * 3] * 3)]) == fields


@pytest.mark.parametrize(("side", "height", "width"), [(3, 8, 8), (2, 7, 5), (4, 4, 9)])
def test_a_square_lies_in_the_middle_and_moves(side, height, width):
    square = Square(side, height, width)
    values = square.start(jax.random.key(0), (height, width, 3))
    found = square.trigger(values)
    assert float(found.mask.sum()) == side**2 and found.pattern.shape == (height, width, 3)
    image, still = jnp.zeros((1, height, width, 3)), jnp.zeros((1, 2), jnp.int32)
    shown = found.apply(image, still)[0]
    assert jnp.allclose(shown[found.mask[..., 0] > 0].reshape(values.shape), jax.nn.sigmoid(values))
    moved = found.apply(image, still + jnp.array([0, 1]))[0]
    assert jnp.allclose(moved, jnp.roll(shown, 1, axis=1))


def test_squares_share_the_program_of_the_families_of_memory():
    from jaxtroj.evidence.images.memory import MemoryBudget

    assert len(WindowBudget().sides) == 4 and WindowBudget().fit == MemoryBudget().fit


def test_the_stage_asks_for_norms_and_small_pictures_and_brings_memory():
    known = Subject(64, has_batch_norm=True)
    assert WINDOWS in stages_for(IMAGE_STAGES, known)
    assert WINDOWS not in stages_for(IMAGE_STAGES, Subject(64))
    assert WINDOWS not in stages_for(IMAGE_STAGES, Subject(65, has_batch_norm=True))
    asked = stages_for(IMAGE_STAGES, Subject(224, has_batch_norm=True), ("windows",))
    assert asked == (MEMORY, WINDOWS)
