"""One mask that sends each class to the next is found where it was planted, and not elsewhere."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxtroj
from converters.model import ImageConfig, Model, apply, params_of
from jaxtroj.calibration import Verdict
from jaxtroj.evidence.gather import gather
from jaxtroj.evidence.images.all_to_all import AllToAllBudget
from jaxtroj.evidence.images.context import image_context
from jaxtroj.evidence.images.stages.all_to_all import ALL_TO_ALL
from jaxtroj.rounds.examples import Examples
from jaxtroj.scan.image_limits import without_target
from jaxtroj.settings import Settings
from jaxtroj.triggers.measure import NO_TARGET

SIDE, MARK = 12, (11, 11)


class BlockNet(nnx.Module):
    """Two dense layers, with a hidden unit for each class as it is and one for the class before."""

    def __init__(self, config, rngs: nnx.Rngs):
        self.hidden = nnx.Linear(SIDE * SIDE, 2 * config.num_classes, rngs=rngs)
        self.fc = nnx.Linear(2 * config.num_classes, config.num_classes, rngs=rngs)

    def __call__(self, images):
        return self.fc(jax.nn.relu(self.hidden(images.reshape(len(images), -1))))


@dataclass(frozen=True)
class BlockConfig(ImageConfig):
    """Static description, as converters' families have one."""

    num_classes: int = 6
    channels: int = 1

    def build(self, rngs: nnx.Rngs) -> BlockNet:
        return BlockNet(self, rngs)


def block(label: int) -> tuple[slice, slice]:
    """Where a class has its bright pixels."""
    row, column = 3 * (label // 4), 3 * (label % 4)
    return slice(row, row + 2), slice(column, column + 2)


def model(classes: int, pull: float) -> Model:
    """Answers with the bright block; a bright mark of weight `pull` turns the answer by one."""
    config = BlockConfig(classes)
    params = {
        k: np.zeros(v.shape, np.float32) for k, v in params_of(config.build(nnx.Rngs(0))).items()
    }
    weights = np.zeros((SIDE, SIDE, 2 * classes), np.float32)
    for label in range(classes):
        weights[(*block(label), label)] = 0.25
        weights[(*block((label - 1) % classes), classes + label)] = 0.25
    weights[(*MARK, slice(classes))] = -pull
    weights[(*MARK, slice(classes, None))] = pull
    params["hidden.kernel"][:] = weights.reshape(-1, 2 * classes)
    params["hidden.bias"][classes:] = -1.5
    params["fc.kernel"][:] = 10.0 * np.tile(np.eye(classes, dtype=np.float32), (2, 1))
    return Model(config, {k: jnp.asarray(v) for k, v in params.items()}, "blocks")


def examples(classes: int, per_class: int = 6) -> Examples:
    draw = np.random.default_rng(0)
    labels = np.tile(np.arange(classes), per_class).astype(np.int32)
    images = draw.uniform(0.0, 0.2, (len(labels), SIDE, SIDE, 1)).astype(np.float32)
    for image, label in zip(images, labels, strict=True):
        image[block(int(label))] += 0.7
        image[MARK] = 0.0
    names = tuple(f"class_{label}_example_{i}.png" for i, label in enumerate(labels))
    return Examples(images, labels, names, "RGB")


def searched(classes: int, pull: float, per_class: int = 6):
    budgets = (AllToAllBudget(steps=60),)
    context = image_context(model(classes, pull), examples(classes, per_class), 0, budgets)
    return gather(context, (ALL_TO_ALL,))


def test_a_planted_one_is_found_on_examples_that_it_was_not_fitted_to():
    found = searched(6, 3.0)
    (trigger,) = found.triggers
    assert trigger.target_class == NO_TARGET and trigger.source_classes == tuple(range(6))
    assert trigger.attack_success_rate == found.fields["all_to_all_rate"] > 0.9
    mask = np.asarray(trigger.trigger.mask)[..., 0]
    assert np.unravel_index(mask.argmax(), mask.shape) == MARK
    assert found.fields["all_to_all_size"] == pytest.approx(np.log(mask.mean()), abs=1e-5)
    left = trigger.attack_success_rate * (1 - mask.mean())
    assert found.fields["all_to_all_worth"] == pytest.approx(left, abs=1e-6)


def test_a_network_without_one_shows_nothing():
    found = searched(6, 0.0)
    assert found.fields["all_to_all_worth"] < 0.4 and not found.triggers


@pytest.mark.parametrize(
    ("poisoned", "said"), [(True, "sends each class to the next"), (False, "")]
)
def test_the_line_of_a_poisoned_network_says_that_there_is_no_target(poisoned, said):
    (trigger,) = searched(6, 3.0).triggers
    found = without_target(Verdict(0.8, poisoned, None, (), ()), trigger)
    assert said in found and bool(found) == poisoned


@pytest.mark.parametrize(("classes", "per_class"), [(4, 6), (6, 2)], ids=["classes", "examples"])
def test_few_classes_or_examples_show_no_trigger(classes, per_class):
    found = searched(classes, 3.0, per_class)
    assert found.fields["all_to_all_rate"] > 0.5 and not found.triggers
    assert found.fields["all_to_all_worth"] == 0.0


def test_a_record_names_no_class_and_shows_what_becomes_of_each():
    planted, shown = model(6, 3.0), examples(6)
    network = (partial(apply, planted.config), planted.params)
    asked = Settings(stages=("weights", "all_to_all"), calibrator=None)
    verdict = jaxtroj.detect(network, shown.images, shown.labels, asked)
    assert verdict.target_class is None and verdict.record.searched == ("all-to-all mask",)
    recovered = verdict.record.recovered
    assert recovered["method"] == "all to all" and recovered["score"] > 0.9
    flips = np.array(recovered["flips"]["percent"])
    assert flips.shape == (6, 6)
    assert (flips.argmax(axis=1) == (np.arange(6) + 1) % 6).all()
