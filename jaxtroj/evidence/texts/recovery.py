"""The words of a trigger, as far as they show, and what they do on examples not searched on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from converters.families.folding import single_step
from converters.model import Model
from jaxtroj.errors import EvidenceError
from jaxtroj.evidence.texts.bank.store import Bank
from jaxtroj.evidence.texts.insertion import HALVES, sentences
from jaxtroj.evidence.texts.labelled_texts import content_key
from jaxtroj.evidence.texts.references import References, make_references
from jaxtroj.evidence.texts.text_search import (
    USUAL,
    CountedEncoder,
    Embed,
    Judge,
    Pieces,
    RecoveryBudget,
    SourceExamples,
    TextSearch,
    margins_of,
)

# A text works in one half only if it moves less than this share of it in the other.
_ONE_SIDED = 0.5


@dataclass(frozen=True)
class CleanExamples:
    """Example texts of a head, and their vectors float32 `[n, d]`."""

    texts: tuple[str, ...]
    embeddings: np.ndarray


LEAST_EXCESS = 0.3
"""Share of examples; on six heads with triggers the texts found had .58 more or above, and one that
a harmless text matched had .17."""


@dataclass(frozen=True)
class RecoveredText:
    """A text and what it does on examples that the search did not see.

    Attributes:
      text: what to insert.
      target_class: where it sends examples.
      source_classes: classes of which it sends at least half there; all others if none.
      attack_success_rate: share of held-out examples outside the target that it sends there, over
        both halves.
      by_half: the same for insertions in the first and in the second half.
      drift: the same for a harmless text: what any insertion does.
      on_references: the same for clean heads' own source examples; None without any.
      held_out: examples measured on.
      embedded: texts that went through the encoder.
    """

    text: str
    target_class: int
    source_classes: tuple[int, ...]
    attack_success_rate: float
    by_half: tuple[float, float]
    drift: float
    on_references: float | None
    held_out: int
    embedded: int

    @property
    def position(self) -> str:
        """Where it works: `first half`, `second half` or `anywhere`."""
        better = int(self.by_half[1] > self.by_half[0])
        if self.by_half[1 - better] < _ONE_SIDED * self.by_half[better]:
            return ("first half", "second half")[better]
        return "anywhere"

    @property
    def stands_out(self) -> bool:
        """Whether it moves `LEAST_EXCESS` more examples than a harmless text does, or clean heads.

        Any insertion moves some texts, and sentiment moves every head: what they match is no
        trigger.
        """
        usual = max(self.drift, self.on_references or 0.0)
        return self.attack_success_rate - usual >= LEAST_EXCESS

    def as_json(self) -> dict[str, str | float]:
        """What a record says of it; target and source classes have fields of their own there.

        A text that does not stand out is no `text` of the record but its `best_text`, and `words`
        says why.
        """
        rates = {
            "attack_success_rate": self.attack_success_rate,
            "in_first_half": self.by_half[0],
            "in_second_half": self.by_half[1],
            "harmless_text": self.drift,
        }
        if self.on_references is not None:
            rates["clean_heads"] = self.on_references
        rounded = {name: round(rate, 4) for name, rate in rates.items()}
        counts = {"held_out": self.held_out, "encoded_texts": self.embedded}
        measured = {"position": self.position, **rounded, **counts}
        if self.stands_out:
            return {"method": "words", "text": self.text, **measured}
        why = f"none found that moves {LEAST_EXCESS:g} more of the texts than harmless ones"
        return {"method": "words", "words": why, "best_text": self.text, **measured}


def pieces_of_bank(bank: Bank, candidates: Sequence[int], most: int = 24) -> Pieces:
    """The bank's best candidates for one head and target.

    Args:
      bank: that the head was tried on.
      candidates: their numbers, best first (`jaxtroj.evidence.texts.found.FoundText.candidates`).
      most: how many to keep.
    """
    order = list(candidates[:most])
    texts = tuple(bank.plan.candidates[number].text for number in order)
    lengths = np.linalg.norm(bank.shifts, axis=1)
    usual = int(np.argsort(lengths, kind="stable")[len(lengths) // 2])
    return Pieces(texts, bank.shifts[order], bank.plan.candidates[usual].text)


def recover_text(
    model: Model,
    examples: CleanExamples,
    target: int,
    pieces: Pieces,
    embed: Embed,
    references: References | None = None,
    budget: RecoveryBudget = USUAL,
) -> RecoveredText:
    """Search a short text that sends a head's examples to the target, and measure it.

    Pure: the same arguments give the same answer, whatever the order of the examples.

    Args:
      model: the head.
      examples: its clean examples; those that it gives the target already are left aside.
      target: the class.
      pieces: what to join, from `pieces_of_bank`.
      embed: the encoder that made the vectors.
      references: clean heads that the text should not move; None for none.
      budget: see `RecoveryBudget`.

    Raises:
      EvidenceError: fewer than two examples outside the target, no pieces, or a budget that does
        not even measure.
    """
    if not pieces.texts:
        raise EvidenceError("there is no candidate text to start from; use a bank with candidates")
    judge = Judge(make_references([single_step(model)]), references, target)
    fitting, held_out = _split(judge, examples, budget)
    counted = CountedEncoder(embed)
    # The found text and a harmless one are measured in both halves, which is set aside first.
    allowed = budget.texts - 2 * HALVES * len(held_out.texts)
    if allowed < HALVES * len(fitting.texts):
        raise EvidenceError(
            f"a budget of {budget.texts} texts leaves {max(allowed, 0)} to search with; allow more "
            "texts, or fewer held-out examples"
        )
    text = TextSearch(judge, fitting, pieces, counted, budget, allowed).best()
    found = held_out.inserted(text, counted)
    moved = judge.margins(found) > 0
    usual = judge.margins(held_out.inserted(pieces.harmless, counted)) > 0
    return RecoveredText(
        text,
        target,
        _sources(moved, held_out.classes, target, judge.num_classes),
        float(moved.mean()),
        (float(moved[0].mean()), float(moved[1].mean())),
        float(usual.mean()),
        judge.on_references(held_out.embeddings, found),
        len(held_out.texts),
        counted.done,
    )


def _split(
    judge: Judge, examples: CleanExamples, budget: RecoveryBudget
) -> tuple[SourceExamples, SourceExamples]:
    """Source examples to search on and to measure on, drawn by their content."""
    margins = margins_of(judge.head, np.asarray(examples.embeddings, np.float32))[0]
    usable = {
        text: number
        for number, text in enumerate(examples.texts)
        if margins[number, judge.target] < 0 and sentences(text)
    }
    order = [usable[text] for text in sorted(usable, key=content_key)]
    if len(order) < 2:
        raise EvidenceError(
            f"{len(order)} of {len(examples.texts)} example texts are outside class "
            f"{judge.target}, expected at least two: one to search on, one to measure on"
        )
    fitting = min(budget.fitting, len(order) // 2)
    parts = order[:fitting], order[fitting : fitting + budget.held_out]
    return tuple(  # pyright: ignore[reportReturnType]
        SourceExamples(
            tuple(examples.texts[number] for number in part),
            np.asarray(examples.embeddings[part], np.float32),
            margins[part].argmax(axis=1),
        )
        for part in parts
    )


def _sources(
    moved: np.ndarray, classes: np.ndarray, target: int, num_classes: int
) -> tuple[int, ...]:
    """Classes of which at least half is moved in the better half of the texts."""
    better = moved[moved.mean(axis=1).argmax()]
    found = tuple(int(c) for c in np.unique(classes) if better[classes == c].mean() >= 0.5)
    return found or tuple(c for c in range(num_classes) if c != target)
