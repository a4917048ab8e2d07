"""Evidence of sentiment heads, stage by stage, many heads at once."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from converters.model import Model
from jaxtroj.evidence.texts.bank import Bank
from jaxtroj.evidence.texts.bank_stage import (
    Banked,
    bank_fields,
    expect_bank,
    run_bank,
    top_departures,
)
from jaxtroj.evidence.texts.bank_views import Expected
from jaxtroj.evidence.texts.heads import Heads, stack
from jaxtroj.evidence.texts.metric import insertion_metric, spread_metric
from jaxtroj.evidence.texts.references import References
from jaxtroj.evidence.texts.schema import STAGE_FIELDS, STAGES
from jaxtroj.evidence.texts.sensitivity import sensitivity_fields
from jaxtroj.evidence.texts.shift_search import FoundShifts, ShiftBudget, search_shifts
from jaxtroj.evidence.texts.weights import weight_fields

NEED_PROBES = ("departure", "bank")


@dataclass(frozen=True)
class TextBudget:
    """How much each stage may spend; the same on every device, so answers agree.

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


@dataclass(frozen=True)
class EncoderProbes:
    """What is known of an encoder besides a head: a bank of insertions, and clean heads.

    Attributes:
      bank: texts inserted into carriers.
      references: clean heads on the encoder's vectors.
    """

    bank: Bank
    references: References
    _metrics: dict[int, np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def expected(self) -> Expected:
        """The references' answers to the bank, computed once for all heads."""
        return expect_bank(self.bank, self.references)

    @cached_property
    def inserted(self) -> jax.Array:
        """The bank's vectors on the device, in the type that they are kept in."""
        return jnp.asarray(self.bank.vectors)

    def metric(self, axes: int) -> np.ndarray:
        """Metric `[axes, d]` of what insertions do, computed once for all heads."""
        if axes not in self._metrics:
            self._metrics[axes] = insertion_metric(self.bank.every_shift, axes)
        return self._metrics[axes]


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


@dataclass(frozen=True)
class TextEvidence:
    """What was gathered of one head: fields by name, the best text, wall seconds by stage."""

    fields: Mapping[str, float]
    found: FoundText | None
    seconds: Mapping[str, float]
    stages: tuple[str, ...]


def gather_heads(
    models: Sequence[Model],
    embeddings: Sequence[np.ndarray],
    probes: EncoderProbes | None = None,
    stages: Sequence[str] = STAGES,
    seed: int = 0,
    budget: TextBudget = TextBudget(),
) -> list[TextEvidence]:
    """Evidence of heads of one configuration, each with its own clean examples.

    A head's evidence does not depend on the others. Without probes, the stages `departure` and
    `bank` are left out.

    Args:
      models: `reduced` heads of one configuration.
      embeddings: float32 `[n, d]` of each head's clean examples.
      probes: of the encoder that made the embeddings.
      stages: some of `STAGES`.
      seed: of the searches' starts.
      budget: see `TextBudget`.

    Raises:
      EvidenceError: a head gives no finite answers, or the examples are all equal.
    """
    wanted = tuple(s for s in stages if probes is not None or s not in NEED_PROBES)
    # One head at a time: the programs of a configuration then fit groups of any size, and products
    # with the weights of many heads at once are slower on a CPU.
    pairs = zip(models, embeddings, strict=True)
    return [_gather(model, x, probes, wanted, seed, budget) for model, x in pairs]


def _gather(
    model: Model,
    embeddings: np.ndarray,
    probes: EncoderProbes | None,
    stages: tuple[str, ...],
    seed: int,
    budget: TextBudget,
) -> TextEvidence:
    heads = stack([model], [embeddings], budget.per_target)
    work = _Work(heads, spread_metric(embeddings, budget.axes)[None], probes, seed, budget)
    for stage in stages:
        started = time.perf_counter()
        found = work.run(stage)
        work.fields |= {name: np.asarray(found[name]) for name in STAGE_FIELDS[stage]}
        work.seconds[stage] = time.perf_counter() - started
    return work.evidence(0, stages)


@dataclass
class _Work:
    """Heads, one of them in a scan, on their way through the stages."""

    heads: Heads
    spread: np.ndarray
    probes: EncoderProbes | None
    seed: int
    budget: TextBudget
    fields: dict[str, np.ndarray] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    banked: Banked | None = None
    by_target: np.ndarray | None = None

    def run(self, stage: str) -> dict[str, np.ndarray]:
        """Fields of one stage, `[m]` each."""
        if stage == "weights":
            return weight_fields(self.heads)
        if stage == "sensitivity":
            return sensitivity_fields(self.heads, self.spread)
        if stage == "shift":
            return self.shift()
        assert self.probes is not None
        if stage == "departure":
            return self.departure(self.probes)
        known = self.probes
        self.banked = run_bank(
            self.heads, known.bank, known.inserted, known.references, known.expected
        )
        # The search and the bank see different things of a target; together they err least.
        best = top_departures(self.banked)
        self.by_target = best if self.by_target is None else self.by_target + best
        return bank_fields(self.banked)

    def shift(self) -> dict[str, np.ndarray]:
        found = self.search(self.spread, self.budget.shift, None)
        self.by_target = found.head.mean(axis=1)
        return {
            "shift_score": found.head[:, 0].max(axis=1),
            "shift_gap": np.ptp(found.head, axis=2).max(axis=1),
        }

    def departure(self, probes: EncoderProbes) -> dict[str, np.ndarray]:
        metric = probes.metric(self.budget.axes)
        metric = np.broadcast_to(metric, (len(self.spread), *metric.shape))
        known = probes.references.first(self.budget.references)
        found = self.search(metric, self.budget.departure, known)
        above = found.head - found.reference
        self.by_target = by_target = above.mean(axis=1)
        ordered = np.sort(by_target, axis=1)
        return {
            "departure_score": ordered[:, -1],
            "departure_gap": ordered[:, -1] - ordered[:, -2],
            "departure_margin": found.departure[:, -1].max(axis=1),
            "departure_near": above[:, 0].max(axis=1),
        }

    def search(
        self, metric: np.ndarray, budget: ShiftBudget, references: References | None
    ) -> FoundShifts:
        return search_shifts(self.heads, metric, jax.random.key(self.seed), budget, references)

    def evidence(self, place: int, stages: tuple[str, ...]) -> TextEvidence:
        fields = {name: float(values[place]) for name, values in self.fields.items()}
        return TextEvidence(fields, self.found(place), self.seconds, stages)

    def found(self, place: int) -> FoundText | None:
        """The likeliest target and the text that serves it; None before any search."""
        if self.by_target is None:
            return None
        target = int(self.by_target[place].argmax())
        sources = tuple(c for c in range(self.heads.sources.shape[1]) if c != target)
        if self.banked is None or self.probes is None:
            return FoundText(target, sources, "", float(self.by_target[place, target]))
        order = np.argsort(-self.banked.departures[place, target], kind="stable")
        candidates = tuple(int(number) for number in self.banked.tried[place, target, order])
        text = self.probes.bank.plan.candidates[candidates[0]].text
        score = float(self.banked.scores[place, target, order[0]])
        return FoundText(target, sources, text, score, candidates)
