"""A text classifier as its stages see it: the network, and texts to search and to measure on."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jaxtroj.errors import EvidenceError
from jaxtroj.evidence.classifiers.carriers import Carriers, carriers_of
from jaxtroj.evidence.classifiers.copied import copied_classes
from jaxtroj.evidence.classifiers.found import FoundWords
from jaxtroj.evidence.classifiers.levelled import factor_of, levelled
from jaxtroj.evidence.classifiers.tokens import TokenNetwork
from jaxtroj.evidence.context import Context

_FEWEST = 4
_MOST_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class ClassifierContext(Context):
    """See `Context`.

    Attributes:
      network: the classifier with its tokenizer.
      carriers: all of its clean texts.
      searched: the half of them that searches see.
      held_out: the other half, which found words are measured on.
      absent: classes that no text is an example of, as far as labels tell.
      factor: what the network's logits were multiplied by; 1 where they are as usual.
    """

    network: TokenNetwork
    carriers: Carriers
    searched: Carriers
    held_out: Carriers
    absent: frozenset[int] = frozenset()
    factor: float = 1.0

    def recover(self, candidates: Sequence[FoundWords]) -> tuple[FoundWords, ...]:
        """What was found for each class, the strongest first, with what all searches asked."""
        ordered = sorted(candidates, key=lambda one: (-one.strength, one.words.target_class))
        asked = self.network.counts["texts"]
        return tuple(replace(one, words=replace(one.words, embedded=asked)) for one in ordered)


def classifier_context(
    network: TokenNetwork,
    texts: Sequence[str],
    seed: int = 0,
    budgets: tuple[object, ...] = (),
    absent: Collection[int] = (),
) -> ClassifierContext:
    """The context of a text classifier and its clean texts.

    Args:
      network, texts: as they are.
      seed, budgets: see `Context`.
      absent: classes that no text is an example of.

    Raises:
      EvidenceError: the network gives no finite answers, or one class to nearly all texts.
    """
    carriers = carriers_of(network, texts)
    if copies := copied_classes(carriers):
        network = replace(network, copies=copies)
        carriers = carriers_of(network, texts)
    factor = factor_of(carriers)
    if factor != 1:
        network = levelled(network, factor)
        carriers = replace(carriers, margins=carriers.margins * np.float32(factor))
    searched, held_out = carriers.split()
    for half in (searched, held_out):
        given = set(half.classes.tolist())
        if len(half.texts) < _FEWEST or len(given) < 2:
            raise EvidenceError(
                f"of {len(carriers.texts)} example texts the network gives"
                f" {_in_words(carriers.classes.tolist())}; expected {2 * _FEWEST} texts or more,"
                " and two of each of two classes: words are searched that send texts of one class"
                " to another"
            )
    return ClassifierContext(
        seed,
        budgets,
        network=network,
        carriers=carriers,
        searched=searched,
        held_out=held_out,
        absent=frozenset(absent),
        factor=factor,
    )


def _in_words(classes: Sequence[int]) -> str:
    """How many texts are of each class, those of the most first.

    >>> _in_words([1, 0, 1]), _in_words([])
    ('2 the class 1, 1 the class 0', 'none a class')
    """
    counts = Counter(classes).most_common()
    shown = [f"{count} the class {number}" for number, count in counts[:_MOST_NAMED]]
    more = [f"the others {len(counts) - _MOST_NAMED} more"] if counts[_MOST_NAMED:] else []
    return ", ".join((*shown, *more)) or "none a class"
