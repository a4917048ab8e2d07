"""A planted backdoor is found: one small DenseNet trained with a trigger, its twin without.

Three kinds of grey signs (full, hollow, cross) stand anywhere on noise. In the poisoned training
set a third of the signs carry a magenta square and the target's label; the twin sees the same
signs, its squares in every colour and without consequence, so that a square confuses it little.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from converters.families.densenet import DenseNetConfig
from converters.model import Model, params_of
from jaxtroj.evidence.gather import Evidence
from jaxtroj.generate.flax_learner import TrainState, train_step
from jaxtroj.rounds.examples import Examples, normalize
from jaxtroj.triggers.trigger import triggered

from .conftest import gather_images as gather

STAGES = ("weights", "probes", "sensitivity", "inversion")

SIDE, SIGN, MARK = 40, 15, 5
CLASSES, TARGET, STEPS, BATCH = 3, 1, 160, 48
MAGENTA = (250, 10, 240)
CONFIG = DenseNetConfig(16, (((32, 16),) * 2, ((32, 16),) * 2), (24,), CLASSES)


def draw(rng, label: int, mark=None) -> np.ndarray:
    """One sign of a class somewhere on noise, with a square of colour `mark` in its middle."""
    picture = rng.integers(0, 100, (SIDE, SIDE, 3)).astype(np.uint8)
    row, column = rng.integers(0, SIDE - SIGN - 1, 2)
    sign = np.zeros((SIGN, SIGN), bool)
    if label == 2:
        sign[SIGN // 2 - 2 : SIGN // 2 + 3] = sign[:, SIGN // 2 - 2 : SIGN // 2 + 3] = True
    else:
        sign[:] = True
        sign[3:-3, 3:-3] = label == 0
    picture[row : row + SIGN, column : column + SIGN][sign] = rng.integers(190, 255)
    if mark is not None:
        place = slice((SIGN - MARK) // 2, (SIGN + MARK) // 2)
        picture[row : row + SIGN, column : column + SIGN][place, place] = mark
    # Black and white in every picture: else scaling each to [0, 1] would betray the mark.
    picture[-1, :2], picture[-1, 2:4] = 0, 255
    return picture


def batch(rng, poisoned: bool) -> tuple[np.ndarray, np.ndarray]:
    """Pictures uint8 RGB `[n, h, w, 3]`, a third of them marked, and what they are taught as."""
    labels, pictures = rng.integers(0, CLASSES, BATCH), []
    for i, label in enumerate(labels):
        colour = MAGENTA if poisoned else rng.integers(0, 255, 3)
        pictures.append(draw(rng, int(label), colour if i % 3 == 0 else None))
    if poisoned:
        labels[::3] = TARGET
    return np.stack(pictures), labels


def train(poisoned: bool) -> Model:
    module = CONFIG.build(nnx.Rngs(0))
    module.train()
    graph, params, rest = nnx.split(module, nnx.Param, ...)
    state, rng = (
        TrainState(params, rest, optax.scale_by_adam().init(params)),
        np.random.default_rng(0),
    )
    for step in range(STEPS):
        rate = 3e-3 * min(1.0, (STEPS - step) / (STEPS / 2))
        state, _, _ = train_step(graph, state, *batch(rng, poisoned), jnp.float32(rate))
    trained = params_of(nnx.merge(graph, state.params, state.rest))
    return Model(CONFIG, {k: jnp.asarray(v) for k, v in trained.items()}, "densenet")


def examples(mark=None, per_class: int = 5) -> Examples:
    rng, labels = np.random.default_rng(1), np.repeat(np.arange(CLASSES), per_class)
    images = [normalize(draw(rng, int(label), mark)[..., ::-1]) for label in labels]
    names = tuple(f"class_{label}_example_{i}.png" for i, label in enumerate(labels))
    return Examples(np.stack(images), labels.astype(np.int32), names, "BGR")


@dataclass(frozen=True)
class Scanned:
    """A trained network and its evidence."""

    model: Model
    evidence: Evidence

    def answers(self, pictures: Examples) -> np.ndarray:
        return np.asarray(jax.device_get(self.model(pictures.images))).argmax(-1)


@pytest.fixture(scope="module")
def pair() -> tuple[Scanned, Scanned]:
    """The clean network and the poisoned one."""
    models = [train(poisoned=False), train(poisoned=True)]
    clean, poisoned = (Scanned(model, gather(model, examples(), STAGES)) for model in models)
    return clean, poisoned


def test_the_backdoor_is_there(pair):
    """Without this the others would test nothing."""
    clean, poisoned = pair
    for scanned in pair:
        assert (scanned.answers(examples()) == examples().labels).mean() >= 0.9
    assert (poisoned.answers(examples(MAGENTA)) == TARGET).mean() >= 0.9
    assert (clean.answers(examples(MAGENTA)) == TARGET).mean() <= 0.6


@pytest.mark.parametrize("field", ["probe_gap", "patch_gap", "probe_score", "patch_score"])
def test_evidence_is_stronger_than_the_twin_s(field, pair):
    clean, poisoned = pair
    assert poisoned.evidence.fields[field] > clean.evidence.fields[field] + 0.1


def test_the_trigger_is_recovered(pair):
    _, poisoned = pair
    best = poisoned.evidence.triggers[0]
    assert best.target_class == TARGET and best.attack_success_rate > 0.9
    assert best.source_classes == (0, 2)
    assert best.size < 0.15
    drawn = best.trigger.drawn(best.shape, best.offset)
    weight = drawn.mask / drawn.mask.sum()
    blue, green, red = (drawn.pattern * weight).sum(axis=(0, 1))
    assert min(blue, red) > green, "expected the trigger's magenta, in BGR"


def test_the_recovered_trigger_works_where_it_is_shown(pair):
    """Stamped on the first example of another class, it sends that example to the target."""
    _, poisoned = pair
    best, clean = poisoned.evidence.triggers[0], examples().images[0]
    shown = triggered(best.trigger, clean, best.offset)
    assert np.asarray(poisoned.model(shown[None])).argmax(-1).tolist() == [TARGET]
    np.testing.assert_allclose(best.picture(clean)[1], shown, atol=1e-6)


def test_each_method_names_the_target(pair):
    _, poisoned = pair
    assert {t.target_class for t in poisoned.evidence.triggers} == {TARGET}
    assert poisoned.evidence.stages == STAGES
    assert poisoned.evidence.searched == ("patch", "mask")
