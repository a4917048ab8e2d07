"""A sentiment head as its stages see it: source examples, their spread, the encoder's probes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from converters.model import Model
from jaxtroj.errors import EvidenceError
from jaxtroj.evidence.context import Context
from jaxtroj.evidence.texts.encoder_probes import EncoderProbes
from jaxtroj.evidence.texts.found import FoundText, Leaning, found_text
from jaxtroj.evidence.texts.heads import Head, head_with_sources
from jaxtroj.evidence.texts.levelled_head import levelled_head
from jaxtroj.evidence.texts.metric import spread_metric
from jaxtroj.evidence.texts.references import head_key
from jaxtroj.evidence.texts.shift_search import ShiftBudget


@dataclass(frozen=True)
class TextBudget:
    """How much the searches may spend; the same on every device, so answers agree.

    Attributes:
      per_target: source examples of each target class, half of them held out.
      axes: of both metrics.
      shift: search in the spread of clean texts.
      departure: search in that of insertions, held back by clean references.
      references: how many of them hold the search back.
    """

    per_target: int = 16
    axes: int = 64
    shift: ShiftBudget = field(default=ShiftBudget(radii=(2.0, 4.0)))
    departure: ShiftBudget = field(default=ShiftBudget(radii=(3.0, 10.0), steps=10))
    references: int = 6


@dataclass(frozen=True, kw_only=True)
class TextContext(Context):
    """See `Context`.

    Attributes:
      head: with the examples that it puts outside each class, and logits of usual size.
      identity: its `head_key`.
      spread: metric `[axes, d]` of its clean examples.
      probes: what is known of its encoder, the head itself left out of the clean ones; None
        without a probe bank.
      factor: what the head's logits were multiplied by; 1 where they are as usual.
    """

    head: Head
    identity: str
    spread: np.ndarray
    probes: EncoderProbes | None = None
    factor: float = 1.0

    @cached_property
    def bank_probes(self) -> EncoderProbes:
        """The probes, for stages that need a bank; raises EvidenceError without one."""
        if self.probes is None:
            raise EvidenceError("this stage needs a probe bank, see jaxtroj bank")
        return self.probes

    def recover(self, candidates: Sequence[Leaning]) -> tuple[FoundText, ...]:
        """The text or shift that serves the likeliest target; none before any search."""
        found = found_text(candidates, self.probes)
        return () if found is None else (found,)


def text_context(
    model: Model,
    embeddings: np.ndarray,
    probes: EncoderProbes | None = None,
    seed: int = 0,
    budgets: tuple[object, ...] = (),
) -> TextContext:
    """The context of a head and its clean examples.

    Args:
      model: a head with what acts on one step only.
      embeddings: float32 `[n, d]` of its clean examples.
      probes: of the encoder that made the embeddings.
      seed: of the searches' starts.
      budgets: a `TextBudget`, where it is not the default.

    Raises:
      EvidenceError: the head gives no finite answers, the examples are all equal, or the bank has
        no other clean head than this one.
    """
    budget = next((b for b in budgets if isinstance(b, TextBudget)), TextBudget())
    head, factor = levelled_head(head_with_sources(model, embeddings, budget.per_target))
    spread = spread_metric(embeddings, budget.axes)
    identity = head_key(model)
    others = None if probes is None else probes.besides(identity)
    if others is not None and not others.references.count:
        raise EvidenceError(
            "the bank's only clean head is this one, which cannot be compared with itself; expected"
            " another one: remove references.json from the bank, then jaxtroj bank with"
            " --reference-heads (default: 24)"
        )
    return TextContext(
        *(seed, budgets),
        head=head,
        identity=identity,
        spread=spread,
        probes=others,
        factor=factor,
    )
