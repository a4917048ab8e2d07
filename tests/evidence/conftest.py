"""Small networks that compile in a moment, and example pictures to go with them."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from converters.model import ImageConfig, Model, params_of
from jaxtroj import network
from jaxtroj.evidence.gather import Evidence, gather
from jaxtroj.evidence.images.context import image_context
from jaxtroj.evidence.images.inversion import InversionBudget
from jaxtroj.evidence.images.probes import ProbeBudget
from jaxtroj.evidence.stage import Subject, stages_for
from jaxtroj.evidence.stages import IMAGE_STAGES
from jaxtroj.inversion.driver import Rung
from jaxtroj.inversion.searches import SEARCHES
from jaxtroj.rounds.examples import Examples

from .taught import SIDE as TAUGHT_SIDE

SIDE = 12
WIDTHS = (8, 32)


class SmallNet(nnx.Module):
    """Two convolutions, a mean and a head."""

    def __init__(self, config, rngs: nnx.Rngs):
        self.conv1 = nnx.Conv(config.channels, WIDTHS[0], (3, 3), rngs=rngs)
        self.conv2 = nnx.Conv(*WIDTHS, (3, 3), rngs=rngs)
        self.fc = nnx.Linear(WIDTHS[1], config.num_classes, rngs=rngs)

    def __call__(self, images):
        x = jax.nn.relu(self.conv2(jax.nn.relu(self.conv1(images))))
        return self.fc(x.mean(axis=(1, 2)))


@dataclass(frozen=True)
class SmallConfig(ImageConfig):
    """Static description, as converters' families have one."""

    num_classes: int = 3
    channels: int = 3

    def build(self, rngs: nnx.Rngs) -> SmallNet:
        return SmallNet(self, rngs)


def small_model(num_classes: int = 3, seed: int = 0, channels: int = 3) -> Model:
    config = SmallConfig(num_classes, channels)
    params = params_of(config.build(nnx.Rngs(seed)))
    return Model(config, {k: jnp.asarray(v) for k, v in params.items()}, "small")


def colour_model() -> Model:
    """Answers to the bright pixels of channel k with class k, and to nothing else."""
    model = small_model()
    params = {k: np.zeros(v.shape, np.float32) for k, v in model.params.items()}
    for channel in range(3):
        params["conv1.kernel"][1, 1, channel, channel] = 1.0
        params["conv2.kernel"][1, 1, channel, channel] = 1.0
        params["fc.kernel"][channel, channel] = 40.0
    params["conv1.bias"][:] = -0.5
    return replace(model, params={k: jnp.asarray(v) for k, v in params.items()})


def pictures(labels, height: int = SIDE, width: int = SIDE, channels: int = 3) -> Examples:
    """One bright square in the channel of the label, at a place keyed by the picture's number."""
    labels = np.asarray(labels, np.int32)
    images = np.full((len(labels), height, width, channels), 0.2, np.float32)
    for i, label in enumerate(labels):
        row, column = square_of(i, height, width)
        images[i, row : row + 3, column : column + 3, label % channels] = 0.9
    names = tuple(f"class_{label}_example_{i}.png" for i, label in enumerate(labels))
    return Examples(images, labels, names, "BGR")


def square_of(number: int, height: int = SIDE, width: int = SIDE) -> tuple[int, int]:
    """Upper left corner of the 3 x 3 square of picture `number`."""
    rng = np.random.default_rng(number)
    return int(rng.integers(0, height - 2)), int(rng.integers(0, width - 2))


@pytest.fixture(scope="session")
def make_model():
    return small_model


@pytest.fixture(scope="session")
def make_pictures():
    return pictures


@pytest.fixture(scope="session")
def place_of():
    return square_of


@pytest.fixture(scope="session")
def colours() -> Model:
    return colour_model()


@pytest.fixture(scope="session")
def quick() -> tuple[object, ...]:
    """Every stage and method, a few candidates and steps of each."""
    rungs = (Rung(4, 2), Rung(2, 2))
    searches = tuple(replace(search, rungs=rungs) for search in SEARCHES)
    return ProbeBudget(wide=6, kept=3, copies=1), InversionBudget(searches=searches)


def gather_images(
    model: Model, examples: Examples, stages=None, seed: int = 0, budgets=(), **options
) -> Evidence:
    """Evidence of a model, by the stages named, else by those for its pictures' size."""
    side = max(examples.images.shape[1:3])
    chosen = stages_for(IMAGE_STAGES, Subject(side), stages)
    return gather(image_context(model, examples, seed, budgets), chosen, **options)


@pytest.fixture(scope="session")
def gathering():
    return gather_images


@pytest.fixture(scope="module")
def small_batches():
    """Batches of 72 small pictures: the usual ones hold 1024, nearly all of them padding here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "_CPU_PIXELS", 72 * TAUGHT_SIDE * TAUGHT_SIDE)
        yield
