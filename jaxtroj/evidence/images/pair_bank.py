"""The bank of the pairs stage: what a few triggers do to each source's pictures, for all targets.

Reference:
  Tang et al., Demon in the Variant, https://arxiv.org/abs/1908.00686, 2019: triggers of one source.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.anchors import AnchoredExamples
from jaxtroj.margins import all_margins
from jaxtroj.network import Network
from jaxtroj.triggers.filter import known_filters
from jaxtroj.triggers.measure import all_gains
from jaxtroj.triggers.patch import Patch, random_patches
from jaxtroj.triggers.trigger import Trigger

_SPREAD = 0.45  # of places of patches about the picture's middle, share of its side
_BEST = 2  # candidates whose leads are averaged: one lucky candidate is no trigger


@dataclass(frozen=True)
class Parted:
    """Which examples are for what.

    Attributes:
      sources: int `[s]`, classes that the model gives some of the examples.
      fit: int `[s, m]`, places of each one's examples that triggers are fitted to; some twice.
      held: places of those that measure, of all sources.
    """

    sources: np.ndarray
    fit: np.ndarray
    held: np.ndarray


@dataclass(frozen=True)
class BankAnswers:
    """What the bank does to each pair, in clean margins; -inf for a class and itself.

    Attributes:
      leads: `[s, classes]`, how much further the best candidates move a source's pictures towards
        a class than those of other sources.
      reached: `[s, classes]`, margin under the candidate that gets furthest.
    """

    leads: np.ndarray
    reached: np.ndarray


def parted(examples: AnchoredExamples, per_class: int, held_out: int, most: int) -> Parted:
    """At most `most` sources; half of a source's examples are fitted to, one for both if alone."""
    answers = np.asarray(examples.sources)
    sources = np.unique(answers)[:most]
    fit, held = [], []
    for source in sources:
        own = np.flatnonzero(answers == source)
        count = max(1, min(per_class, len(own) // 2))
        fit.append(np.resize(own[:count], per_class))
        held.append((own[count:] if len(own) > count else own)[:held_out])
    return Parted(sources, np.stack(fit), np.sort(np.concatenate(held)))


def bank_answers(
    network: Network,
    examples: AnchoredExamples,
    parts: Parted,
    bank: Sequence[tuple[Trigger, np.ndarray]],
    scale: float,
) -> BankAnswers:
    """The bank stamped on the fitted examples; `scale` is the clean margin."""
    rows = np.unique(parts.fit)
    some = examples.at(rows)
    clean = np.asarray(all_margins(some.logits), np.float64) / scale
    gains = [np.asarray(all_gains(network, some, *part), np.float64) / scale for part in bank]
    of_source = np.asarray(some.sources) == parts.sources[:, None]
    weights = of_source / of_source.sum(axis=1, keepdims=True)
    reached = np.einsum("sn,knt->kst", weights, np.concatenate(gains))
    moved = reached - weights @ clean
    leads = np.sort(moved - _of_others(moved, parts.sources), axis=0)[-_BEST:].mean(axis=0)
    itself = parts.sources[:, None] == np.arange(examples.classes)
    return BankAnswers(*(np.where(itself, -np.inf, x) for x in (leads, reached.max(axis=0))))


def make_bank(
    key: jax.Array, count: int, radii: tuple[float, ...], channels: int, order: str, at_places: bool
) -> list[tuple[Trigger, np.ndarray]]:
    """Triggers of each kind, and which of them move to the anchors.

    Args:
      key: of the patches; count: of them.
      radii: of circles of their area, shares of the picture's side.
      channels, order: of the pictures.
      at_places: whether patches lie all over the picture instead of on the object.
    """
    patches = _patches(key, count, radii, channels, at_places)
    bank: list[tuple[Trigger, np.ndarray]] = [(patches, np.full(count, not at_places))]
    if channels in (1, 3):
        filters = known_filters(order)
        bank.append((filters, np.zeros(len(filters.number), bool)))
    return bank


def _patches(key, count: int, radii: tuple[float, ...], channels: int, at_places: bool) -> Patch:
    patches = random_patches(key, count, channels, radii)
    # Every other one has a colour at the ends of the range, as drawn triggers mostly have.
    pure = (jnp.arange(count) % 2 == 0)[:, None]
    patches = replace(patches, colour=jnp.where(pure, jnp.round(patches.colour), patches.colour))
    if not at_places:
        return patches

    def place(number: jax.Array) -> jax.Array:
        own = jax.random.fold_in(jax.random.fold_in(key, 1), number)
        return jax.random.uniform(own, (2,), jnp.float32, -_SPREAD, _SPREAD)

    return replace(patches, offset=jax.vmap(place)(jnp.arange(count)))


def _of_others(moved: np.ndarray, sources: np.ndarray) -> np.ndarray:
    """Mean of `moved [k, s, classes]` over the sources that are neither this one nor the target."""
    classes = np.arange(moved.shape[-1])
    counted = ~np.eye(len(sources), dtype=bool)[..., None] & (sources[:, None] != classes)[None]
    total = np.einsum("zst,kst->kzt", counted.astype(float), moved)
    return total / np.maximum(counted.sum(axis=1), 1)


def likely_pairs(answers: BankAnswers, count: int) -> np.ndarray:
    """`[p, 2]` places of sources, and targets: by the bank's leads and by its reach in turn."""
    orders = [np.argsort(-x, axis=None, kind="stable") for x in (answers.leads, answers.reached)]
    flat = np.stack(orders, axis=1).ravel()
    _, first = np.unique(flat, return_index=True)
    in_order = flat[np.sort(first)]
    possible = in_order[np.isfinite(answers.leads.ravel()[in_order])][:count]
    return np.stack(np.unravel_index(possible, answers.leads.shape), axis=1)
