"""Which class a head leans to after its stages, and the text that serves that class best."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxtroj.evidence.texts.bank_answers import Banked
from jaxtroj.evidence.texts.encoder_probes import EncoderProbes


@dataclass(frozen=True, eq=False)
class Leaning:
    """How much a search or the bank speaks for each class.

    Attributes:
      by_target: `[targets]`; comparable within one stage only.
      banked: the bank's answers, for the stage that tried it.
    """

    by_target: np.ndarray
    banked: Banked | None = None


@dataclass(frozen=True)
class FoundText:
    """The candidate text that serves a head's likeliest target best.

    Attributes:
      target_class: the class it serves.
      source_classes: the others.
      text: what to insert; empty where no bank was at hand and only a shift is known.
      score: mean sigmoid margin of the target on held-out examples, in [0, 1].
      candidates: numbers of the bank's candidates that part this head most from clean ones, the
        text's own first; empty without a bank.
    """

    target_class: int
    source_classes: tuple[int, ...]
    text: str
    score: float
    candidates: tuple[int, ...] = ()


def found_text(leanings: Sequence[Leaning], probes: EncoderProbes | None) -> FoundText | None:
    """The likeliest target and the text that serves it; None before any search.

    Of several searches the last one counts. It and the bank see different things of a target:
    together they err least.
    """
    searched = [leaning for leaning in leanings if leaning.banked is None][-1:]
    tried = [leaning for leaning in leanings if leaning.banked is not None]
    if not searched and not tried:
        return None
    by_target = sum(leaning.by_target for leaning in (*searched, *tried))
    target = int(np.argmax(by_target))
    sources = tuple(c for c in range(len(np.atleast_1d(by_target))) if c != target)
    banked = tried[0].banked if tried else None
    if banked is None or probes is None:
        return FoundText(target, sources, "", float(np.atleast_1d(by_target)[target]))
    order = np.argsort(-banked.departures[target], kind="stable")
    candidates = tuple(int(number) for number in banked.tried[target, order])
    text = probes.bank.plan.candidates[candidates[0]].text
    return FoundText(target, sources, text, float(banked.scores[target, order[0]]), candidates)
