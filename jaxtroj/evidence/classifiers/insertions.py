"""What a bank of words and phrases does to a text classifier, inserted into clean texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from jaxtroj.evidence.classifiers.carriers import Carriers, open_in_turn
from jaxtroj.evidence.classifiers.tokens import INSERTED, Row, TokenNetwork
from jaxtroj.evidence.texts.bank.candidates import list_free
from jaxtroj.numerics import sigmoid

if TYPE_CHECKING:
    from jaxtroj.evidence.classifiers.context import ClassifierContext

_TOP = 3
_LEAST_OUTSIDE = 2


@dataclass(frozen=True)
class BankBudget:
    """How much of a bank is tried.

    Attributes:
      carriers: texts that everything is inserted into.
      words: whole words of the vocabulary, drawn at random.
      phrases: of 3 to 7 such words.
      characters: single ones that are no letters.
    """

    carriers: int = 8
    words: int = 64
    phrases: int = 16
    characters: int = 16


@dataclass(frozen=True, eq=False)
class Inserted:
    """What insertions do.

    Attributes:
      texts: what was inserted.
      pieces: their ids.
      gains: `[targets, texts]`, by how much the mean sigmoid margin of a class rises on texts that
        the network gives other classes; 0 where there are none.
      targets: classes that there are texts outside of, those that the bank speaks for first.
    """

    texts: tuple[str, ...]
    pieces: tuple[Row, ...]
    gains: np.ndarray
    targets: tuple[int, ...]

    def harmless(self, target: int) -> str:
        """A text that does to the network what most insertions do."""
        order = np.argsort(self.gains[target], kind="stable")
        return self.texts[int(order[len(order) // 2])]


def run_bank(context: "ClassifierContext") -> Inserted:
    """Insert every text of the bank into the first carriers of each class."""
    network, budget = context.network, context.budget(BankBudget)
    carriers = context.searched.outside(-1, budget.carriers)
    texts, pieces = _candidates(network, budget, context.seed)
    opened = open_in_turn(network, carriers)
    rows = [row for ids in pieces for row in opened.filled(ids)]
    moved = sigmoid(network.margins(rows)).reshape(len(pieces), len(carriers.texts), -1)
    rises = moved - sigmoid(carriers.margins)
    outside = carriers.classes[:, None] != np.arange(network.classes)
    gains = np.einsum("kcn,cn->nk", rises, outside) / np.maximum(outside.sum(axis=0), 1)[:, None]
    top = np.sort(gains, axis=1)[:, -_TOP:].mean(axis=1)
    halves = (context.searched, context.held_out)
    usable = [
        target
        for target in range(network.classes)
        if min(_sources(half, target) for half in halves) >= _LEAST_OUTSIDE
    ]
    ordered = sorted(usable, key=lambda target: (-top[target], target))
    return Inserted(texts, pieces, gains, tuple(ordered))


def insertion_fields(found: Inserted) -> dict[str, float]:
    """Fields by name; see `jaxtroj.evidence.classifiers.stages.insertions`."""
    gains = found.gains[list(found.targets)]
    top = np.sort(gains, axis=1)[:, -_TOP:].mean(axis=1)
    return {"inserted_top": float(top.max())}


def _sources(carriers: Carriers, target: int) -> int:
    return int((carriers.classes != target).sum())


def _candidates(
    network: TokenNetwork, budget: BankBudget, seed: int
) -> tuple[tuple[str, ...], tuple[Row, ...]]:
    """Texts and their ids within another text; what the tokenizer makes nothing of is left out."""
    listed = list_free(network.tokenizer.vocabulary, budget.words, budget.phrases, seed=seed)
    characters = [one for one in listed if one.kind == "character"][: budget.characters]
    chosen = [one.text for one in (*characters, *(o for o in listed if o.kind != "character"))]
    return _with_pieces(network, chosen)


def _with_pieces(
    network: TokenNetwork, texts: Sequence[str]
) -> tuple[tuple[str, ...], tuple[Row, ...]]:
    found = [(text, network.pieces(text)[:INSERTED]) for text in texts]
    kept = [(text, ids) for text, ids in found if ids]
    return tuple(text for text, _ in kept), tuple(ids for _, ids in kept)
