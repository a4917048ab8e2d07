"""The one loop of trigger inversion: all arms, in rounds, the better half going on.

An arm is a (target class, start, placement). All arms of a round run in one compiled program,
`vmap`ped in chunks of one size, so one network compiles once per method whatever the number of
arms, steps or models.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.anchors import AnchoredExamples
from jaxtroj.inversion.spread import dealt, devices_for, everywhere, on_each
from jaxtroj.network import Network, apply_searched
from jaxtroj.pytrees import pytree
from jaxtroj.rows import joined, taken
from jaxtroj.triggers.measure import Candidates
from jaxtroj.triggers.trigger import Trigger


@pytree
@dataclass(frozen=True)
class ArmTask:
    """What one arm is to do: send images of other classes to `target`.

    Attributes:
      images: clean ones, `[n, h, w, c]` in [0, 1].
      offsets: int `[n, 2]`, pixels that the trigger moves by in each; zero for an arm whose trigger
        stays where it is.
      sources: int `[n]`, class of each image.
      target: int, traced.
    """

    images: jax.Array
    offsets: jax.Array
    sources: jax.Array
    target: jax.Array

    @property
    def others(self) -> jax.Array:
        """Which images count: bool `[n]`, those that are not of the target class."""
        return self.sources != self.target


class Method(Protocol):
    """A trigger inversion: a frozen value with pure functions; see `NeuralCleanse`."""

    name: ClassVar[str]

    def init(self, start: Any, shape: tuple[int, int, int]) -> Any:
        """State of one arm, from what it starts at, for images of `shape` `[h, w, c]`."""
        ...

    def step(self, state: Any, forward, task: ArmTask) -> Any:
        """One step of one arm; `forward` takes images `[n, h, w, c]` to logits."""
        ...

    def rank(self, state: Any) -> jax.Array:
        """What successive halving sorts by, larger is better."""
        ...

    def trigger(self, state: Any) -> Trigger:
        """The trigger of a state, of any kind."""
        ...


@dataclass(frozen=True)
class Rung:
    """One round of successive halving: how many arms go in, and for how many steps."""

    arms: int
    steps: int


@dataclass(frozen=True)
class Arms:
    """Arms along the leading axis of every leaf.

    Attributes:
      states: the method's states.
      targets: int `[arms]`.
      anchored: bool `[arms]`, whether the trigger moves to each image's anchor.
    """

    states: Any
    targets: np.ndarray
    anchored: np.ndarray

    def __len__(self) -> int:
        return len(self.targets)

    def labels(self) -> tuple[np.ndarray, np.ndarray]:
        """Targets and placements."""
        return self.targets, self.anchored

    def take(self, index: np.ndarray) -> "Arms":
        """The arms at `index`."""
        return Arms(taken(self.states, index), self.targets[index], self.anchored[index])


def begin(method: Method, starts: Any, labels, shape: tuple[int, int, int]) -> Arms:
    """Arms at their starts.

    Args:
      method: frozen hyperparameters.
      starts: what `method.init` takes, with a leading axis of arms.
      labels: targets int `[arms]`, and whether each moves to the anchors, bool `[arms]`.
      shape: of the images, `[h, w, c]`.
    """
    targets, anchored = labels
    return Arms(_started(method, shape, starts), np.asarray(targets), np.asarray(anchored))


def candidates(method: Method, arms: Arms) -> Candidates:
    """The arms' triggers, to be measured."""
    return Candidates(method.name, _triggers(method, arms.states), *arms.labels())


@partial(jax.jit, static_argnums=(0, 1))
def _started(method: Method, shape: tuple[int, int, int], starts):
    return jax.vmap(lambda start: method.init(start, shape))(starts)


@partial(jax.jit, static_argnums=0)
def _triggers(method: Method, states) -> Trigger:
    return jax.vmap(method.trigger)(states)


@partial(jax.jit, static_argnames="method")
def _ranks(method, states) -> jax.Array:
    return jax.vmap(method.rank)(states)


@partial(jax.jit, static_argnums=(0, 1))
def _step(method: Method, config, params, states, tasks, examples):
    """One step of every arm of a chunk.

    Args:
      method, config: static.
      params: of the network.
      states: the arms'.
      tasks: of each arm its target, whether it moves (1 or 0), and its rows of the examples.
      examples: images, offsets and sources, the same for every arm.
    """
    images, offsets, sources = examples

    def arm(state, task):
        target, moves, own = task
        forward = partial(apply_searched, config, params)
        return method.step(
            state, forward, ArmTask(images[own], moves * offsets[own], sources[own], target)
        )

    return jax.vmap(arm)(states, tasks)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _spread_step(method: Method, config, devices: int, params, states, tasks, examples):
    """`_step` of a chunk on each device."""
    return on_each(partial(_step, method, config), devices)(params, states, tasks, examples)


def invert(
    method: Method,
    network: Network,
    examples: AnchoredExamples,
    arms: Arms,
    rungs: tuple[Rung, ...],
) -> Arms:
    """Run every rung; returns all arms, those that went furthest first.

    Args:
      method: frozen hyperparameters, a static jit argument.
      network: the model.
      examples: images to stamp; the same for every arm.
      arms: their starts.
      rungs: arms beyond a rung's number drop out before it, the worst first.
    """
    dropped: list[Arms] = []
    chunk = _chunk(network, examples, rungs)
    for rung in rungs:
        order = np.argsort(-np.asarray(_ranks(method, arms.states)), kind="stable")
        dropped.insert(0, arms.take(order[rung.arms :]))
        arms = arms.take(order[: rung.arms])
        arms = _advance(method, network, examples, arms, rung.steps, chunk)
    order = np.argsort(-np.asarray(_ranks(method, arms.states)), kind="stable")
    return _joined([arms.take(order), *dropped])


def _advance(
    method, network: Network, examples: AnchoredExamples, arms: Arms, steps: int, chunk: int
) -> Arms:
    rows, parts = _rows(examples, arms.targets), []
    devices = devices_for(-(-len(arms) // chunk))
    width = chunk * devices
    for start in range(0, len(arms), width):
        # The last chunks repeat their first arm to keep the shape; the copies are cut off again.
        index = np.arange(start, start + width)
        index = np.where(index < len(arms), index, start)
        part = arms.take(index)
        moves = jnp.asarray(part.anchored, jnp.int32)
        tasks = (jnp.asarray(part.targets), moves, jnp.asarray(rows[index]))
        states = _stepped(method, network, examples, (part.states, tasks), steps, devices)
        kept = min(width, len(arms) - start)
        parts.append(Arms(states, *part.labels()).take(np.arange(kept)))
    return _joined(parts)


def _stepped(method, network: Network, examples: AnchoredExamples, arms, steps: int, devices: int):
    """States of a chunk on each device after some steps.

    The loop is the host's, whose calls run ahead of the device: inside a compiled loop XLA's
    convolutions are five times slower on CPU.
    """
    model, shown = network.model, (examples.images, examples.offsets(), examples.sources)
    params, (states, tasks) = model.params, arms
    if devices == 1:
        for _ in range(steps):
            states = _step(method, model.config, params, states, tasks, shown)
        return states
    params, shown = everywhere((params, shown), devices)
    states, tasks = dealt((states, tasks), devices)
    for _ in range(steps):
        states = _spread_step(method, model.config, devices, params, states, tasks, shown)
    return jax.device_get(states)  # bound to no device, so that it mixes with other arms


def _chunk(network: Network, examples: AnchoredExamples, rungs: tuple[Rung, ...]) -> int:
    """Arms in one call: as many as fill a batch, dealt evenly over the calls of the narrowest rung.

    A wider chunk would spend most of the last and longest rung on copies that are thrown away.
    """
    fits = max(1, -(-network.batch(examples.images) // _per_arm(examples)))
    narrowest = max(1, min((rung.arms for rung in rungs), default=1))
    calls = -(-narrowest // fits)
    return -(-narrowest // calls)


def _per_arm(examples: AnchoredExamples) -> int:
    """Examples that one arm steps on: all but those of one class."""
    n = len(examples.images)
    return n - n // examples.classes


def _rows(examples: AnchoredExamples, targets: np.ndarray) -> np.ndarray:
    """Examples of each arm, int `[arms, m]`: the first that are not of its target class.

    Those of its own class count nothing in a loss, but cost as much as others; they only fill up
    where the network calls more than its share by that class.
    """
    own = np.asarray(examples.sources)[None] == targets[:, None]
    return np.argsort(own, axis=1, kind="stable")[:, : _per_arm(examples)]


def _joined(parts: list[Arms]) -> Arms:
    states = joined([part.states for part in parts])
    targets, anchored = (np.concatenate(x) for x in zip(*(p.labels() for p in parts), strict=True))
    return Arms(states, targets, anchored)
