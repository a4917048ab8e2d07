"""The search for tokens of each likely class, and what is made of it: fields and found words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from jaxtroj.evidence.classifiers.carriers import Carriers, open_rows
from jaxtroj.evidence.classifiers.found import FoundWords
from jaxtroj.evidence.classifiers.insertions import run_bank
from jaxtroj.evidence.classifiers.search import Ids, TokenBudget, TokenSearch, allowed_tokens
from jaxtroj.evidence.classifiers.tokens import SLOTS
from jaxtroj.evidence.texts.recovery import RecoveredText

if TYPE_CHECKING:
    from jaxtroj.evidence.classifiers.context import ClassifierContext

_SEEDS, _SINGLES, _MEASURED = 4, 6, 2
_LONGER = 0.05  # what a further token must add to be shown
_LEAST_MARGIN = 1e-3


@dataclass(frozen=True)
class OfTarget:
    """What the search found for one class.

    Attributes:
      found: the words that are shown.
      token_flip: success of the best single token on held-out texts.
      token_isolation: the largest isolation of a good single token.
    """

    found: FoundWords
    token_flip: float
    token_isolation: float


def search_tokens(context: "ClassifierContext") -> tuple[OfTarget, ...]:
    """Search each class that the bank speaks for, a budget's number of them at most."""
    budget, targets = context.budget(TokenBudget), context.shared(run_bank).targets
    allowed = allowed_tokens(context.network)
    return tuple(_of_target(context, target, allowed) for target in targets[: budget.targets])


def token_fields(found: Sequence[OfTarget]) -> dict[str, float]:
    """Fields by name; see `jaxtroj.evidence.classifiers.stages.tokens`."""
    flips = [one.found.words.attack_success_rate for one in found]
    return {
        "token_flip": max(one.token_flip for one in found),
        "token_isolation": max(one.token_isolation for one in found),
        "found_flip": max(flips),
        "found_gap": max(flips) - min(flips),
        "found_isolation": max(one.found.isolation for one in found),
        "found_margin": max(one.found.margin for one in found),
    }


def _of_target(context: "ClassifierContext", target: int, allowed: np.ndarray) -> OfTarget:
    network, budget = context.network, context.budget(TokenBudget)
    carriers = context.searched.outside(target, budget.carriers)
    opened = open_rows(network, carriers, 2 * SLOTS)
    search = TokenSearch(network, opened, target, allowed, budget)
    banked = context.shared(run_bank)
    order = np.argsort(-banked.gains[target], kind="stable")[:_SEEDS]
    seeds = [ids[:SLOTS] for ids in (banked.pieces[int(place)] for place in order)]
    search.run(seeds, np.random.default_rng([context.seed % 2**64, target]))
    isolated = {ids: search.isolation(ids) for ids in search.best(_SINGLES, 1)}
    held_out = context.held_out.outside(target, budget.held_out)
    best = search.best(1, 1)[0]
    ids = _shown(search, isolated)
    return OfTarget(
        _found(context, held_out, target, ids, search.isolation(ids)),
        float(_moved(context, held_out, network.text(best), target).mean()),
        max(isolated.values()),
    )


def _shown(search: TokenSearch, isolated: dict[Ids, float]) -> Ids:
    """The sequence that gains most, alone and beside words of like meaning, for its length."""
    longer = [ids for length in range(2, SLOTS + 1) for ids in search.best(_MEASURED, length)]
    known = isolated | {ids: search.isolation(ids) for ids in longer}
    return min(known, key=lambda ids: (_LONGER * len(ids) - known[ids] - search.gains[ids], ids))


def _moved(context: "ClassifierContext", texts: Carriers, inserted: str, target: int) -> np.ndarray:
    """Which texts a text sends to a class, bool `[halves, n]`."""
    return _margins(context, texts, inserted, target) > 0


def _margins(
    context: "ClassifierContext", texts: Carriers, inserted: str, target: int
) -> np.ndarray:
    network = context.network
    rows = network.rows(texts.inserted(inserted))
    return network.margins(rows)[:, target].reshape(-1, len(texts.texts))


def _found(
    context: "ClassifierContext", held_out: Carriers, target: int, ids: Ids, isolation: float
) -> FoundWords:
    text, network = context.network.text(ids), context.network
    margins = _margins(context, held_out, text, target)
    moved = margins > 0
    harmless = context.shared(run_bank).harmless(target)
    better = moved[moved.mean(axis=1).argmax()]
    classes = held_out.classes
    sources = tuple(int(c) for c in np.unique(classes) if better[classes == c].mean() >= 0.5)
    words = RecoveredText(
        text,
        target,
        sources or tuple(c for c in range(network.classes) if c != target),
        float(moved.mean()),
        (float(moved[0].mean()), float(moved[1].mean())),
        float(_moved(context, held_out, harmless, target).mean()),
        None,
        len(held_out.texts),
        network.counts["texts"],
    )
    own = context.carriers.margins[context.carriers.classes == target, target]
    natural = float(own.mean()) if len(own) else 1.0
    return FoundWords(words, isolation, float(margins.mean()) / max(natural, _LEAST_MARGIN))
