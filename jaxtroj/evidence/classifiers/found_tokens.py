"""The search for tokens of each likely class, and what is made of it: fields and found words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from jaxtroj.evidence.classifiers.carriers import open_in_turn, open_rows
from jaxtroj.evidence.classifiers.copied import apart
from jaxtroj.evidence.classifiers.effects import Effect, HeldOut, held_out_of
from jaxtroj.evidence.classifiers.found import LEAST_STRENGTH, FoundWords, Placed
from jaxtroj.evidence.classifiers.insertions import run_bank
from jaxtroj.evidence.classifiers.search import Ids, TokenBudget, TokenSearch
from jaxtroj.evidence.classifiers.tokens import SLOTS
from jaxtroj.evidence.classifiers.vocabulary import SearchedTokens, searched_tokens
from jaxtroj.evidence.texts.recovery import RecoveredText

if TYPE_CHECKING:
    from jaxtroj.evidence.classifiers.context import ClassifierContext

_SEEDS, _SINGLES, _MEASURED = 4, 6, 2
_TEXTS_OF_CLASS, _TIMES_OFTENER = 2, 2.0
_LONGER = 0.15  # what a further token must add to be shown


@dataclass(frozen=True)
class OfTarget:
    """What the search found for one class.

    Attributes:
      found: the words that are shown.
      single: what the best single token does on held-out texts.
      third: what the third best does there.
    """

    found: FoundWords
    single: Effect
    third: Effect


def search_tokens(context: "ClassifierContext") -> tuple[OfTarget, ...]:
    """Search the classes that a first look speaks for, a budget's number of them at most."""
    budget, targets = context.budget(TokenBudget), context.shared(run_bank).targets
    tokens = searched_tokens(context.network)
    searches = [_searches(context, target, tokens) for target in targets[: budget.looked]]
    if len(searches) > budget.targets:
        seen = [max(one.look(_draw(context, one)) for one in pair) for pair in searches]
        order = sorted(range(len(searches)), key=lambda n: (-seen[n], searches[n][0].target))
        searches = [searches[n] for n in order]
    return tuple(_of_target(context, pair) for pair in searches[: budget.targets])


def _draw(context: "ClassifierContext", search: TokenSearch) -> np.random.Generator:
    return np.random.default_rng([context.seed % 2**64, search.target])


def token_fields(found: Sequence[OfTarget]) -> dict[str, float]:
    """Fields by name; see `jaxtroj.evidence.classifiers.stages.tokens`."""
    return {
        "token_reach": max(one.single.reach for one in found),
        "token_lead": max(one.single.reach - one.third.reach for one in found),
    }


def _searches(
    context: "ClassifierContext", target: int, tokens: SearchedTokens
) -> tuple[TokenSearch, TokenSearch]:
    """A search in both halves of texts, and one of fewer texts at their start."""
    network, budget = context.network, context.budget(TokenBudget)
    free = tokens.without(_of_class(context, target))
    carriers = context.searched.outside(target, budget.carriers)
    at_start = context.searched.outside(target, budget.at_start)
    anywhere = open_in_turn(network, carriers)
    starts = open_rows(network, at_start, [0] * len(at_start.texts))
    return (
        TokenSearch(network, anywhere, target, free, budget),
        TokenSearch(network, starts, target, free, budget),
    )


def _of_class(context: "ClassifierContext", target: int) -> np.ndarray:
    """Tokens that stand in the class's own texts and rarely in others, bool `[vocabulary]`.

    They speak for the class by its nature; no search for what was planted needs them.
    """
    network, carriers = context.network, context.carriers
    of_class = carriers.classes == target
    held = np.zeros((2, len(network.words)))
    for row, own in zip(network.rows(carriers.texts), of_class, strict=True):
        held[int(own), list(set(row))] += 1
    others, own = held / np.maximum([[(~of_class).sum()], [of_class.sum()]], 1)
    return (held[1] >= _TEXTS_OF_CLASS) & (own >= _TIMES_OFTENER * others)


def _of_target(context: "ClassifierContext", searches: tuple[TokenSearch, TokenSearch]) -> OfTarget:
    target, budget = searches[0].target, context.budget(TokenBudget)
    seeds = _seeds(context, searches[0])
    for search in searches:
        search.run(seeds, _draw(context, search))
    singles = _singles(searches)
    home = _home(searches, singles[0])
    held_out = held_out_of(
        context.network,
        context.carriers,
        context.held_out,
        target,
        budget.held_out,
        context.absent,
    )
    single = held_out.effect(singles[0])
    strength = single.reach + home.isolation(singles[0])
    # A token that stands out alone is the trigger, or enough of it; others only blur it.
    shown = singles[0] if strength >= LEAST_STRENGTH else _shown(home, singles)
    return OfTarget(
        _found(context, held_out, shown, home.isolation(shown), strength),
        single,
        held_out.effect(singles[min(2, len(singles) - 1)]),
    )


def _home(searches: Sequence[TokenSearch], ids: Ids) -> TokenSearch:
    """The search that a sequence gains most in."""
    return max(searches, key=lambda search: search.gains.get(ids, 0.0))


def _seeds(context: "ClassifierContext", search: TokenSearch) -> list[Ids]:
    """What did most for the class of the bank, as far as the search may use it."""
    banked = context.shared(run_bank)
    order = np.argsort(-banked.gains[search.target], kind="stable")[:_SEEDS]
    pieces = [banked.pieces[int(place)][:SLOTS] for place in order]
    return [ids for ids in pieces if search.tokens.allowed[list(ids)].all()]


def _singles(searches: Sequence[TokenSearch]) -> list[Ids]:
    """The single tokens with the largest gains of any search, copies of a word once."""
    gains: dict[Ids, float] = {}
    for search in searches:
        for ids in search.best(len(search.gains), 1):
            gains[ids] = max(search.gains[ids], gains.get(ids, 0.0))
    ordered = sorted(gains, key=lambda ids: (-gains[ids], ids))
    words = searches[0].network.directions
    return [(token,) for token in apart(words, [ids[0] for ids in ordered], _SINGLES)]


def _shown(search: TokenSearch, singles: Sequence[Ids]) -> Ids:
    """The sequence that gains most, alone and beside words of like meaning, for its length."""
    longer = [ids for length in range(2, SLOTS + 1) for ids in search.best(_MEASURED, length)]
    known = {ids: search.isolation(ids) for ids in [*singles, *longer]}
    return min(known, key=lambda ids: (_LONGER * len(ids) - known[ids] - search.gains[ids], ids))


def _found(
    context: "ClassifierContext", held_out: HeldOut, ids: Ids, isolation: float, strength: float
) -> FoundWords:
    network, target, effect = context.network, held_out.target, held_out.effect(ids)
    text = network.text(ids)
    typed = None if network.pieces(text) == ids else held_out.effect_of_text(text).success
    harmless = held_out.effect_of_text(context.shared(run_bank).harmless(target))
    every = tuple(c for c in range(network.classes) if c != target)
    words = RecoveredText(
        text,
        target,
        effect.sources or every,
        effect.success,
        (effect.by_place[1], effect.by_place[2]),
        harmless.success,
        None,
        len(held_out.texts.texts),
        0,  # the context fills in what all searches asked
    )
    tokens = tuple(network.token(one) for one in ids)
    placed = Placed(effect.by_place[0], typed, tokens)
    return FoundWords(words, isolation, effect.reach, placed, strength)
