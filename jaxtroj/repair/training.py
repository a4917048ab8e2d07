"""Fine-tuning on few examples, plain or with triggers that are to be unlearnt.

Every step sees clean pictures and as many others with a trigger (Wang et al., Neural Cleanse,
https://doi.org/10.1109/SP.2019.00031, section VI-B). Batch norms use the statistics of the batch
while weights change; afterwards their running statistics are gathered anew from clean pictures,
since those in the file hold the triggered ones of the training.

Plain fine-tuning teaches the true labels. Unlearning has a teacher, the network as it was, and
teaches what that says of the clean picture, with and without a trigger (distillation, Hinton et
al., https://arxiv.org/abs/1503.02531): the labels of a few hundred pictures are learnt by heart at
the cost of all others.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from converters.batch_norms import by_batch, has_batch_norms, norm_paths
from converters.errors import safe_repr
from converters.model import Model, apply
from jaxtroj.errors import RepairError
from jaxtroj.repair.data import Labelled
from jaxtroj.triggers.measure import RecoveredTrigger
from jaxtroj.triggers.trigger import Trigger


@dataclass(frozen=True)
class Tuning:
    """How long and how hard.

    Attributes:
        steps: of the optimiser, in one cycle.
        batch: clean pictures of a step; as many triggered ones are added.
        rate: highest learning rate of Adam, falling to a tenth as a cosine.
        shift: pixels that pictures are moved by at most, each way.
        faintest: triggers are blended in with a weight from here to 1.
    """

    steps: int = 80
    batch: int = 32
    rate: float = 1e-3
    shift: int = 2
    faintest: float = 0.6

    def times(self, cycles: int) -> "Tuning":
        """As long as so many cycles of this."""
        return replace(self, steps=cycles * self.steps)


@dataclass(frozen=True)
class Stamp:
    """A trigger to be unlearnt.

    Attributes:
        trigger: of any kind.
        reach: pixels (rows, columns) that it moves by at most, at random in each picture.
    """

    trigger: Trigger
    reach: tuple[int, int] = (0, 0)

    def on(self, images: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        """The pictures `[n, h, w, c]` with the trigger, at a place of its own where it moves."""
        reach = np.array(self.reach)
        offsets = draw.integers(-reach, reach + 1, size=(len(images), 2)).astype(np.int32)
        return np.asarray(_stamped(self.trigger, jnp.asarray(images), jnp.asarray(offsets)))


@jax.jit
def _stamped(trigger, images, offsets):
    return trigger.apply(images, offsets)


def stamp_of(found: RecoveredTrigger) -> Stamp:
    """A recovered trigger as it is unlearnt: one that moved to the objects moves anywhere near."""
    reach = (found.shape[0] // 4, found.shape[1] // 4) if found.moves else (0, 0)
    return Stamp(found.trigger, reach)


def tuned(
    model: Model,
    examples: Labelled,
    stamps: Sequence[Stamp] = (),
    how: Tuning | None = None,
    seed: int = 0,
    frozen: Mapping[str, jax.Array] | None = None,
    teacher: Model | None = None,
    weights: Container[str] | None = None,
) -> Model:
    """The model after fine-tuning; without `stamps` on clean pictures alone.

    Args:
        model: over images, batch norms as in the file.
        examples: to learn from.
        stamps: triggers to unlearn.
        how: long and hard.
        seed: of batches, places and strengths.
        frozen: flat path -> mask of 0 and 1; where it is 0, weights stay 0 (pruned).
        teacher: says what is right of a clean picture; None: its label does.
        weights: flat paths of what may change, as `Rewritable.weights` has them; None: all.

    Raises:
        RepairError: a weight has become no finite number.
    """
    how, draw = how or Tuning(), np.random.default_rng(seed)
    statistics = {name for pair in norm_paths(model) for name in pair}
    params = model.params
    free = {n: v for n, v in params.items() if n not in statistics and _may(n, weights)}
    fixed = {name: value for name, value in params.items() if name not in free}
    optimiser = _optimiser(how.rate, how.steps)
    state, masks = optimiser.init(free), dict(frozen or {})
    for _ in range(how.steps):
        images, clean, labels = _batch(examples, stamps, how, draw)
        wanted = _wanted(model.num_classes, clean, labels, teacher)
        free, state = _step(model.config, optimiser, free, fixed, masks, state, images, wanted)
    after = refreshed(replace(model, params={**free, **fixed}), examples, how, draw)
    _check_finite(after, {*free, *statistics})
    return after


def _may(name: str, weights: Container[str] | None) -> bool:
    return weights is None or name in weights


def _check_finite(model: Model, names: Iterable[str]) -> None:
    """Raise a RepairError where training made something of these parameters that is no number."""
    odd = sorted(name for name in names if not np.isfinite(model.params[name]).all())
    if odd:
        raise RepairError(
            f"training made weights that are not finite, such as {safe_repr(odd[0])}"
            f" ({len(odd)} tensors): the network's gradients are no numbers. Export it again, with"
            " whole layers (ONNX opset 17 or later), or repair its torch weights with --network"
        )


def refreshed(
    model: Model, examples: Labelled, how: Tuning, draw: np.random.Generator, rounds: int = 8
) -> Model:
    """The model with the running statistics of its batch norms taken from clean pictures."""
    paths = norm_paths(model)
    if not paths:
        return model
    sums: dict[str, np.ndarray] = {}
    for _ in range(rounds):
        images, _, _ = _batch(examples, (), replace(how, batch=2 * how.batch), draw)
        _, found = by_batch(model, images)
        for (mean, var), own in zip(paths, found, strict=True):
            for name, value in ((mean, own.mean), (var, own.var)):
                sums[name] = sums.get(name, 0.0) + np.asarray(value, np.float64) / rounds
    new = {name: jnp.asarray(value.astype(np.float32)) for name, value in sums.items()}
    return replace(model, params={**model.params, **new})


def _batch(
    examples: Labelled, stamps: Sequence[Stamp], how: Tuning, draw: np.random.Generator
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Clean pictures, then triggered ones, twice as many where there is a trigger or not; the same
    without a trigger; labels."""
    size = min(how.batch, 2 * len(examples))
    places = draw.choice(len(examples), size=2 * size, replace=2 * size > len(examples))
    clean = images = _moved(examples.images[places], how.shift, draw)
    if stamps:
        stamp = stamps[int(draw.integers(len(stamps)))]
        own = images[size:]
        weight = draw.uniform(how.faintest, 1, size=(size, 1, 1, 1)).astype(np.float32)
        images = np.concatenate([images[:size], own + weight * (stamp.on(own, draw) - own)])
    return jnp.asarray(images), jnp.asarray(clean), jnp.asarray(examples.labels[places])


def _wanted(classes: int, clean: jax.Array, labels: jax.Array, teacher: Model | None) -> jax.Array:
    """Probabilities `[n, classes]` that are taught."""
    if teacher is None:
        return jax.nn.one_hot(labels, classes)
    return jax.nn.softmax(teacher(clean))


def _moved(images: np.ndarray, most: int, draw: np.random.Generator) -> np.ndarray:
    """A batch moved by up to `most` pixels, its edges repeated."""
    height, width = images.shape[1:3]
    padded = np.pad(images, ((0, 0), (most, most), (most, most), (0, 0)), mode="edge")
    top, left = draw.integers(0, 2 * most + 1, size=2)
    return padded[:, top : top + height, left : left + width]


@lru_cache(maxsize=8)
def _optimiser(rate: float, steps: int) -> optax.GradientTransformation:
    """Equal arguments give the same object, so programs that take it are compiled once."""
    return optax.adam(optax.cosine_decay_schedule(rate, steps, alpha=0.1))


@partial(jax.jit, static_argnums=(0, 1))
def _step(config, optimiser, free, fixed, masks, state, images, wanted):
    def loss(weights):
        params = {**weights, **fixed}
        network = Model(config, params, "")
        logits = by_batch(network, images)[0] if has_batch_norms(network) else None
        logits = apply(config, params, images) if logits is None else logits
        return optax.softmax_cross_entropy(logits, wanted).mean()

    updates, state = optimiser.update(jax.grad(loss)(free), state, free)
    free = cast(dict[str, jax.Array], optax.apply_updates(free, updates))
    return {n: v * masks[n] if n in masks else v for n, v in free.items()}, state
