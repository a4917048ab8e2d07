"""Windows stage: small opaque squares that batch norms remember, and where they lead.

A mask over the whole picture (`memory`) has room to explain more than a trigger. An opaque square
of few pixels has none, and norms average over places, so its pattern is fitted while it lies
elsewhere in each picture, to the remainder of the first half of the examples and to no class. It
starts from the plain or noisy squares of a bank that explain most. Only then is it put at one place
after the other, and the pictures with it are classified: the pattern says what the training
pictures had, the place and the classes what it was for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.anchors import AnchoredExamples
from jaxtroj.evidence.images.memory import Half, Remembered, Searched, measured
from jaxtroj.inversion.memory_search import Square, climb, stamped_by
from jaxtroj.network import Network
from jaxtroj.norm_memory import Memory, Norms, matches
from jaxtroj.rounds.turns import in_turn
from jaxtroj.rows import taken
from jaxtroj.triggers.mask import FreeMask, stamp
from jaxtroj.triggers.measure import Candidates, RecoveredTrigger, best_of, measure
from jaxtroj.triggers.window import Window

METHOD = "window search"
_LEVEL = 2.0  # log-odds of a bright colour
_FEW = 2  # added to a class's examples: one of one that flips is no more than chance


@dataclass(frozen=True)
class WindowBudget:
    """Squares, steps and examples of the stage.

    Attributes:
      sides: of the squares, shares of the shorter side of a picture. As many as stage `memory` has
        families: both share one compiled program.
      noise: noisy squares of the bank, beside the plain ones.
      screened: examples of the first half that the bank is tried on.
      fit: those that patterns are fitted on; steps: of the fit.
      kept: patterns that are tried for classes, those that explain most.
      places: along a side that each is tried at.
      examples: pictures that each place is tried on, the classes in turn.
    """

    sides: tuple[float, ...] = (0.1, 0.16, 0.25, 0.25)
    noise: int = 5
    screened: int = 8
    fit: int = 16
    steps: int = 20
    kept: int = 2
    places: int = 4
    examples: int = 96


@dataclass(frozen=True)
class Tried:
    """A fitted square at every place.

    Attributes:
      remembered: how it explains the remainder, wherever it lies.
      windows: it at each place, `[places, ...]`.
      sent: pictures of each class that it newly sends to each, `[places, classes, classes]`.
      counts: pictures of each class, `[classes]`.
    """

    remembered: Remembered
    windows: Window
    sent: np.ndarray
    counts: np.ndarray

    @cached_property
    def shares(self) -> np.ndarray:
        """Share of the pictures of other classes that go to each class, `[places, classes]`."""
        return self.sent.sum(axis=1) / np.maximum(self.counts.sum() - self.counts, 1)

    @cached_property
    def worths(self) -> np.ndarray:
        """Match times the lead of the class that most go to, `[places]`."""
        ranked = np.sort(self.shares, axis=1)
        return max(0.0, self.remembered.match) * (ranked[:, -1] - ranked[:, -2])

    @cached_property
    def pairs(self) -> np.ndarray:
        """Match on each class times the share of it that goes to each, at each place."""
        matches = np.maximum(0.0, self.remembered.of_class)
        return matches[:, None] * self.sent / (self.counts + _FEW)[:, None]


def search_windows(
    network: Network, searched: Searched, key: jax.Array, budget: WindowBudget
) -> tuple[Tried, ...]:
    """Squares that explain the remainder, at every place.

    Args:
      network: the model.
      searched: by stage `memory`: the examples and their remainder.
      key: of where patterns start and lie.
      budget: what may be spent.
    """
    norms, halves = searched.norms, searched.halves
    images = np.concatenate([half.seen.images for half in halves])
    shown = in_turn(searched.clean.argmax(axis=1), budget.examples)
    clean, some = searched.clean[shown].argmax(axis=1), images[shown]
    found = []
    for square, values in _fitted(norms, halves[0], key, budget):
        remembered = measured(norms, halves, square.name, square.trigger(values), True)
        windows = _placed(square, np.asarray(jax.nn.sigmoid(values)), budget.places)
        sent = _sent(network, some, clean, windows, searched.clean.shape[1])
        counts = np.bincount(clean, minlength=searched.clean.shape[1])
        found.append(Tried(remembered, windows, sent, counts))
    return tuple(found)


def _fitted(
    norms: Norms, half: Half, key: jax.Array, budget: WindowBudget
) -> list[tuple[Square, jax.Array]]:
    """The squares that explain most of the half that they are fitted to, the best first."""
    images, rows = half.seen.images[: budget.fit], half.seen.rows[: budget.fit]
    memory = half.seen.memory.about(rows.mean(axis=0))
    height, width, channels = images.shape[1:]
    sides = [max(2, round(share * min(height, width))) for share in budget.sides]
    squares = tuple(Square(side, height, width) for side in sides)
    keys = jax.random.split(key, 2)
    offsets = _scattered(keys[0], len(images), (height - max(sides), width - max(sides)))
    few = slice(0, budget.screened)
    near = half.seen.memory.about(rows[few].mean(axis=0))
    starts = _starts(norms, near, images[few], offsets[few], squares, keys[1], budget.noise)
    values = climb(norms, memory, images, offsets, squares, starts, budget.steps)
    reached, _ = norms.pulled(memory, stamped_by(squares, values, images, offsets))
    best = np.argsort(-reached, kind="stable")[: budget.kept]
    return [(squares[place], values[place]) for place in best]


def _starts(
    norms: Norms,
    memory: Memory,
    images: np.ndarray,
    offsets: np.ndarray,
    squares: Sequence[Square],
    key: jax.Array,
    noise: int,
) -> tuple[jax.Array, ...]:
    """For each square the pattern of a bank that explains most; of equal sides the next best."""
    banks = {}
    for square, own in zip(squares, jax.random.split(key, len(squares)), strict=True):
        if square not in banks:
            bank = _bank(square, images.shape[3], own, noise)
            banks[square] = iter(_by_match(norms, memory, images, offsets, square, bank))
    return tuple(next(banks[square]) for square in squares)


def _by_match(
    norms: Norms,
    memory: Memory,
    images: np.ndarray,
    offsets: np.ndarray,
    square: Square,
    bank: list[jax.Array],
) -> list[jax.Array]:
    """The patterns of a bank, that which explains most first."""
    shown = [np.asarray(stamped_by((square,), (one,), images, offsets)[0]) for one in bank]
    rows = norms.seen(np.concatenate(shown))[1].reshape(len(bank), len(images), -1).mean(axis=1)
    found = np.asarray(matches(memory, np.broadcast_to(memory.centre, rows.shape), rows))
    return [bank[place] for place in np.argsort(-found, kind="stable")]


def _bank(square: Square, channels: int, key: jax.Array, noise: int) -> list[jax.Array]:
    """Values of plain squares of all colours of some levels, and of noisy ones."""
    levels = (-_LEVEL, 0.0, _LEVEL) if channels > 1 else np.linspace(-_LEVEL, _LEVEL, 9)
    shape = (square.side, square.side, channels)
    plain = [jnp.broadcast_to(jnp.array(one), shape) for one in product(levels, repeat=channels)]
    pictures = (square.height, square.width, channels)
    return [*plain, *(square.start(own, pictures) for own in jax.random.split(key, noise))]


def _scattered(key: jax.Array, count: int, room: tuple[int, int]) -> np.ndarray:
    """Offsets from the middle `[count, 2]` that leave a square inside the picture."""
    lots = jax.random.uniform(key, (count, 2), minval=-0.5, maxval=0.5)
    return np.asarray(jnp.round(lots * np.array(room)), np.int32)


def _placed(square: Square, pattern: np.ndarray, places: int) -> Window:
    """The square at every place, with a leading axis."""
    side, (height, width) = square.side, (square.height, square.width)
    tops, lefts = (np.linspace(0, s - side, places).round().astype(int) for s in (height, width))
    masks = np.zeros((places**2, height, width, 1), np.float32)
    patterns = np.zeros((*masks.shape[:3], pattern.shape[-1]), np.float32)
    for place, (top, left) in enumerate((t, x) for t in tops for x in lefts):
        here = place, slice(top, top + side), slice(left, left + side)
        masks[here], patterns[here] = 1.0, pattern
    return Window(jnp.asarray(masks), jnp.asarray(patterns))


def _sent(
    network: Network, images: np.ndarray, clean: np.ndarray, windows: Window, classes: int
) -> np.ndarray:
    """Pictures of each class that each window newly sends to each, `[places, classes, classes]`."""
    sent = np.zeros((len(windows.mask), classes, classes))
    for place, counts in enumerate(sent):
        one = taken(windows, place)
        shown = np.asarray(stamp(jnp.asarray(images), FreeMask(one.mask, one.pattern)))
        after = np.asarray(network.logits(shown)).argmax(axis=1)
        np.add.at(counts, (clean, after), clean != after)
    return sent


def window_fields(tried: Sequence[Tried]) -> dict[str, float]:
    """Fields of `images.stages.windows`."""
    best, place = _strongest(tried)
    worth = float(best.worths[place])
    return {
        "window_match": max(one.remembered.match for one in tried),
        "window_worth": worth,
        "window_pair_worth": max(float(one.pairs.max()) for one in tried),
        "window_class": float(best.shares[place].argmax() if worth > 0 else -1),
    }


def _strongest(tried: Sequence[Tried]) -> tuple[Tried, int]:
    """The square and the place of the largest worth."""
    best = max(tried, key=lambda one: float(one.worths.max()))
    return best, int(best.worths.argmax())


def recovered(
    network: Network, tried: Sequence[Tried], examples: AnchoredExamples
) -> RecoveredTrigger:
    """The strongest window for all classes, or that of a pair where it is stronger.

    Patterns are fitted to no class, so all examples may say where they lead.
    """
    best, place = _strongest(tried)
    target, origins = int(best.shares[place].argmax()), None
    pair = max(tried, key=lambda one: float(one.pairs.max()))
    if pair.pairs.max() > best.worths[place]:
        best = pair
        place, origin, target = map(int, np.unravel_index(pair.pairs.argmax(), pair.pairs.shape))
        origins = np.array([origin])
    window = jax.tree.map(lambda leaf: leaf[None], taken(best.windows, place))
    found = Candidates(METHOD, window, np.array([target]), np.array([False]), origins)
    return best_of(measure(network, examples, found), examples)
