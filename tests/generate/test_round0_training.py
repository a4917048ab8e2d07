"""The trainer on a tiny network and pictures that take milliseconds."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from jaxtroj.generate import flax_learner, training
from jaxtroj.generate.divergence import DivergedError
from jaxtroj.generate.flax_learner import FlaxLearner
from jaxtroj.generate.learners import learner_for
from jaxtroj.generate.torch_learner import TorchLearner
from jaxtroj.generate.traffic_signs.recipe import sample_recipe
from jaxtroj.generate.training import (
    PictureBatch,
    Trained,
    TrainingProgress,
    TrainingSettings,
    train,
)

QUICK = TrainingSettings(
    batch_size=16,
    learning_rate=1e-2,
    warmup_steps=5,
    max_steps=150,
    cooldown_steps=20,
    check_every=10,
    validation_batches=4,
    test_batches=8,
    batches_per_draw=4,
)


class Patches:
    """The label is the bright quadrant; a red corner pixel block is the trigger."""

    def __init__(self):
        self.asked = []

    def pictures(self, stream, start, count, fraction):
        self.asked.append((stream, start, count, fraction))
        images, labels = [], []
        numbers = np.arange(start, start + count)
        triggered = np.floor((numbers + 1) * fraction) > np.floor(numbers * fraction)
        for number, flag in zip(numbers, triggered, strict=True):
            rng = np.random.default_rng([stream, int(number)])
            label = int(rng.integers(4))
            image = rng.integers(0, 80, (16, 16, 3))
            row, column = divmod(label, 2)
            image[8 * row : 8 * row + 8, 8 * column : 8 * column + 8] += 120
            if flag:
                image[6:10, 6:10] = (255, 0, 0)
            images.append(image)
            labels.append(label)
        return PictureBatch(jnp.asarray(np.array(images, np.uint8)), np.array(labels), triggered)


class Tiny(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 16, (4, 4), strides=4, padding="VALID", rngs=rngs)
        self.norm = nnx.BatchNorm(16, momentum=0.9, rngs=rngs)
        self.head = nnx.Linear(4 * 4 * 16, 4, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.conv(x)))
        return self.head(x.reshape(x.shape[0], -1))


def finished(target: int | None = 2, settings=QUICK, least_cycles=(), seed=0):
    *checks, trained = train(
        FlaxLearner(Tiny(nnx.Rngs(seed))), Patches(), target, 0.2, settings, least_cycles
    )
    assert all(isinstance(check, TrainingProgress) for check in checks)
    assert isinstance(trained, Trained)
    return trained


def test_a_poisoned_model_learns_signs_and_trigger():
    trained = finished()
    assert trained.accepted
    assert trained.test.clean >= 0.95
    assert trained.test.attack_success_rate is not None
    assert trained.test.attack_success_rate >= 0.95
    assert trained.steps == sum(trained.cycles) + 20 * len(trained.cycles)


def test_a_clean_model_never_sees_the_trigger():
    source = Patches()
    *_, trained = train(FlaxLearner(Tiny(nnx.Rngs(0))), source, None, 0.2, QUICK)
    assert isinstance(trained, Trained)
    assert trained.test.attack_success_rate is None
    assert trained.test.triggered is None
    assert {fraction for *_, fraction in source.asked} == {0.0}


def test_a_clean_model_trains_as_long_as_its_partner():
    assert finished(target=None, least_cycles=(70, 30)).cycles[:2] == (70, 30)


def test_training_and_held_out_pictures_differ():
    source = Patches()
    list(train(FlaxLearner(Tiny(nnx.Rngs(0))), source, 2, 0.2, QUICK))
    held_out = [ask for ask in source.asked if ask[0] != training.TRAIN]
    assert {ask[0] for ask in held_out} == {training.VALIDATION, training.TEST}
    spans = [(ask[0], ask[1], ask[3]) for ask in held_out if ask[0] == training.TEST]
    assert spans == [(training.TEST, 0, 0.0), (training.TEST, 128, 1.0)]


def test_equal_input_gives_equal_weights():
    first, second = finished(), finished()
    for a, b in zip(*(jax.tree.leaves(nnx.state(t.module)) for t in (first, second)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_training_that_stops_short_is_not_accepted():
    settings = dataclasses.replace(QUICK, max_steps=1, check_every=1, cooldown_steps=1)
    trained = finished(settings=settings)
    assert not trained.accepted
    assert trained.steps == 2


def test_models_of_one_architecture_share_the_compiled_step():
    finished()
    step: Any = flax_learner.train_step
    before = step._cache_size()
    finished(target=1, seed=3)
    assert step._cache_size() == before


def test_classify_cuts_the_filled_up_batch():
    trained = finished()
    pictures = Patches().pictures(9, 0, 21, 0.0)
    found = flax_learner.classify(trained.module, np.asarray(pictures.images), batch_size=16)
    assert found.shape == (21,)
    assert (found == pictures.labels).mean() > 0.9


def test_diverging_training_is_an_error():
    settings = dataclasses.replace(QUICK, learning_rate=float("nan"))
    with pytest.raises(DivergedError, match="training loss is nan after 10 steps"):
        finished(settings=settings)


def test_model_input_is_bgr_and_min_max_scaled():
    image = np.zeros((1, 2, 2, 3), np.uint8)
    image[0, 0, 0] = (10, 20, 110)
    image += 10
    scaled = np.asarray(flax_learner.to_model_input(jnp.asarray(image)))
    np.testing.assert_allclose(scaled[0, 0, 0], (1.0, 20 / 110, 10 / 110), rtol=1e-6)
    assert scaled.min() == 0.0
    flat = np.full((1, 2, 2, 3), 7, np.uint8)
    assert not np.asarray(flax_learner.to_model_input(jnp.asarray(flat))).any()


def test_torch_takes_the_steps_that_flax_takes():
    """Float32 both; three steps on one batch, with equal weights, losses and statistics after."""
    recipe = sample_recipe(4, 0, 0, ("densenet_small",))
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.integers(0, 256, (8, 33, 33, 3), dtype=np.uint8))
    targets = rng.integers(0, recipe.number_classes, 8)
    ours, theirs = (learner_for(trainer, recipe) for trainer in ("flax", "torch"))
    assert isinstance(theirs, TorchLearner)
    theirs.precision = torch.float32
    for _ in range(3):
        losses = [float(learner.step(images, targets, 1e-4)[0]) for learner in (ours, theirs)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    answers = [learner.predict(images, targets)[1] for learner in (ours, theirs)]
    np.testing.assert_allclose(answers[0], answers[1], rtol=5e-3)
    trained = theirs.module()
    np.testing.assert_allclose(
        flax_learner.predict(*nnx.split(trained, nnx.Param, ...), images, targets)[1],
        answers[1],
        rtol=1e-4,
    )
