"""What a stage of evidence declares, which stages a model gets, and tables made from stages.

Imports nothing heavy: reports and settings know the stages without loading jax.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from jaxtroj.errors import EvidenceError

OWN = "this project"
"""Source of a field that is no published measure."""
SUPPORT = "support"
"""`Field.search` of signs that other things than a trigger leave too: a general calibrator counts
them at most like the strongest of its searches, so that alone they decide nothing. One for models
whose examples are drawn as their training pictures were may trust them (`Scheme`)."""


@dataclass(frozen=True)
class Field:
    """One number of evidence.

    Attributes:
      name: its name in records.
      stage: where it is measured.
      direction: +1 when poisoned models have larger values, -1 smaller, 0 when either may be.
      label: in words, for reasons.
      unit: of the number.
      meaning: how it is computed.
      source: the paper that the measure is from, or `OWN`.
      is_judged: False for a number that is gathered and shown, and never judged by.
      search: what it is a result of, where a stage makes several searches: a general calibrator
        pools the fields of one (`calibration.pooled`); "" for its stage's only one.
      is_class: whether it is the class that the other fields of its search are about, -1 for none.
      is_for_few: whether calibrators of few models judge by it (`calibration.linear.Few`).
    """

    name: str
    stage: str
    direction: int
    label: str
    unit: str
    meaning: str
    source: str = OWN
    is_judged: bool = True
    is_for_few: bool = False
    search: str = ""
    is_class: bool = False


@dataclass(frozen=True)
class Subject:
    """What is known of a model before its stages are chosen.

    Attributes:
      side: longest side of its pictures in pixels; None for a model that takes no pictures.
      has_bank: whether a probe bank of its encoder is at hand.
      clean_heads: how many clean models are at hand to compare it with, itself left out.
      has_batch_norm: whether it has batch norms with running statistics.
      has_reference: whether a clean network of the same classes is at hand.
    """

    side: int | None = None
    has_bank: bool = False
    clean_heads: int = 0
    has_batch_norm: bool = False
    has_reference: bool = False


ANY_SIDE = (1, float("inf"))
LARGEST_SIDE = 2**31 - 1
"""Stands for no limit where numbers are whole."""


@dataclass(frozen=True)
class Needs:
    """What a stage needs of a model, besides clean examples.

    Attributes:
      sides: least and most pixels of the longest side of the pictures that the stage is usual for;
        whoever names the stage gets it for other pictures too.
      bank: whether it cannot run without a probe bank.
      clean_heads: how many clean models it must have to compare with.
      batch_norm: whether it cannot run without batch norms.
      reference: whether it cannot run without a clean network of the same classes.
      gradient: whether a network without input gradients that lead anywhere tells it nothing. That
        costs passes to find out, so it is asked when the stage's turn comes
        (`gather.gather_steps`).
    """

    sides: tuple[float, float] = ANY_SIDE
    bank: bool = False
    clean_heads: int = 0
    batch_norm: bool = False
    reference: bool = False
    gradient: bool = False

    @property
    def words(self) -> str:
        """What a model must bring, for people."""
        bank = "a probe bank of its encoder (jaxtroj bank)" if self.bank else ""
        heads = f"{self.clean_heads} clean heads or more in it" if self.clean_heads else ""
        norms = "batch norms" if self.batch_norm else ""
        beside = "a clean network of the same classes (--reference)" if self.reference else ""
        slope = "input gradients" if self.gradient else ""
        return ", ".join(part for part in (bank, heads, norms, beside, slope) if part) or "nothing"

    def possible(self, subject: Subject) -> bool:
        """Whether the stage can run."""
        banked = subject.has_bank or not self.bank
        banked = banked and subject.clean_heads >= self.clean_heads
        banked = banked and (subject.has_reference or not self.reference)
        return banked and (subject.has_batch_norm or not self.batch_norm)

    def usual(self, subject: Subject) -> bool:
        """Whether the stage runs where nobody names stages."""
        fits = subject.side is None or self.sides[0] <= subject.side <= self.sides[1]
        return fits and self.possible(subject)


@dataclass(frozen=True)
class StageResult:
    """What a stage found.

    Attributes:
      fields: by name.
      triggers: candidates for the context to rank.
      for_classes: triggers for more classes than the best, of which those for one may be asked.
    """

    fields: Mapping[str, float]
    triggers: tuple[Any, ...] = ()
    for_classes: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Stage:
    """One stage of evidence; nothing outside its file knows its name but the ordered table.

    Attributes:
      name: in records, settings and calibrators.
      fields: what it measures, in the order of records.
      run: from the context of a model (`evidence.context.Context`) to what was found.
      needs: which models it is for.
      kinds: kinds of trigger that it searches for; none for what only looks for signs of any.
      budget: makes the default of what it may spend, a frozen dataclass, for the documents.
      earlier: stages whose results it starts from; whoever gets it gets them too.
      shows: whether its searches, if it has any, yield triggers that people can see.
    """

    name: str
    fields: tuple[Field, ...]
    run: Callable[[Any], StageResult]
    needs: Needs = Needs()
    kinds: tuple[str, ...] = ()
    budget: Callable[[], Any] | None = field(default=None)
    earlier: tuple["Stage", ...] = ()
    shows: bool = True

    @property
    def has_triggers(self) -> bool:
        """Whether it may find a trigger to show."""
        return bool(self.kinds) and self.shows

    def __post_init__(self) -> None:
        strangers = [f.name for f in self.fields if f.stage != self.name]
        if strangers or not self.fields:
            raise EvidenceError(
                f"stage {self.name} declares {strangers or 'no fields'}; expected fields of its own"
            )


@dataclass(frozen=True)
class Measured:
    """By which table of stages some evidence was measured.

    Attributes:
      kind: of the models.
      version: of the table.
      revision: of the table.
    """

    kind: str
    version: int
    revision: int


@dataclass(frozen=True)
class StageTable:
    """The stages of one kind of model in order, and what is made from them.

    Attributes:
      kind: "image", "text" or "text-classifier".
      version: raised when a field changes its meaning, so that records and calibrators made with
        another meaning are never mixed.
      stages: cheap ones first.
      revision: raised when fields that keep their meaning are measured otherwise: calibrators hold,
        but no scan that was begun before goes on.
    """

    kind: str
    version: int
    stages: tuple[Stage, ...]
    revision: int = 0

    @property
    def measured(self) -> Measured:
        """What evidence that is gathered now is measured by."""
        return Measured(self.kind, self.version, self.revision)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the stages."""
        return tuple(stage.name for stage in self.stages)

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """Every field, in the order in which it is gathered."""
        return tuple(field for stage in self.stages for field in stage.fields)

    @cached_property
    def stage_fields(self) -> Mapping[str, tuple[str, ...]]:
        """Stage -> names of its fields."""
        return {stage.name: tuple(f.name for f in stage.fields) for stage in self.stages}

    @cached_property
    def judged_fields(self) -> Mapping[str, tuple[str, ...]]:
        """Stage -> names of the fields that calibrators judge by, of stages that have some."""
        judged = {s.name: tuple(f.name for f in s.fields if f.is_judged) for s in self.stages}
        return {name: fields for name, fields in judged.items() if fields}

    @cached_property
    def directions(self) -> Mapping[str, int]:
        """Field -> +1 or -1, for those that have a direction."""
        return {field.name: field.direction for field in self.fields if field.direction}

    @cached_property
    def searches(self) -> Mapping[str, str]:
        """Field -> the search that it is a result of, where that is not its stage."""
        return {field.name: field.search for field in self.fields if field.search}

    @cached_property
    def class_fields(self) -> Mapping[str, str]:
        """Search -> the field that holds its class, of signs that name one and no trigger."""
        return {field.search: field.name for field in self.fields if field.is_class}

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """Field -> in words."""
        return {field.name: field.label for field in self.fields}

    @cached_property
    def sides(self) -> Mapping[str, tuple[int, int]]:
        """Stage -> least and most pixels of a picture's side, of those not made for all."""
        return {
            stage.name: (int(stage.needs.sides[0]), int(min(stage.needs.sides[1], LARGEST_SIDE)))
            for stage in self.stages
            if stage.needs.sides != ANY_SIDE
        }

    def holds(self, names: Sequence[str]) -> bool:
        """Whether `names` are some of the stages, at least one, in their order."""
        return bool(names) and tuple(n for n in self.names if n in names) == tuple(names)


@dataclass(frozen=True)
class Fitted:
    """What the calibrator of a model was fitted on.

    Attributes:
      stages: their names.
      needs_all: whether it answers by all of them; else by those that a model usually gets.
      signs: stages of signs that it counts where they are seen, see `calibration.signs`.
    """

    stages: Collection[str] = ()
    needs_all: bool = True
    signs: Collection[str] = ()


NO_CALIBRATOR = Fitted()


def stages_for(
    stages: Sequence[Stage],
    subject: Subject,
    named: Collection[str] | None = None,
    fitted: Fitted = NO_CALIBRATOR,
) -> tuple[Stage, ...]:
    """The stages that a model gets, in order.

    Args:
      stages: of its kind, in order.
      subject: what is known of it.
      named: stages that somebody asks for; None leaves it to what the stages need.
      fitted: what the model's calibrator was fitted on. Where nobody names stages and the
        calibrator knows some that the model can get, it is those: other evidence would change no
        probability. Where those show nobody a trigger, later ones that do follow.

    Raises:
      EvidenceError: none is left.
    """
    if named is not None:
        chosen = [s for s in stages if s.name in named and s.needs.possible(subject)]
    else:
        known = [s for s in stages if s.name in (*fitted.stages, *fitted.signs)]
        fits = Needs.possible if fitted.needs_all else Needs.usual
        chosen = [s for s in known if fits(s.needs, subject)]
        if not chosen:
            chosen = [s for s in stages if s.needs.usual(subject)]
    wanted = {stage.name for one in chosen for stage in (one, *one.earlier)}
    chosen = [s for s in stages if s.name in wanted]
    if named is None and chosen and not any(stage.has_triggers for stage in chosen):
        later = stages[stages.index(chosen[-1]) + 1 :]
        chosen += [s for s in later if s.has_triggers and s.needs.usual(subject)]
    if not chosen:
        asked = ", ".join(named or fitted.stages or (s.name for s in stages))
        raise EvidenceError(
            f"no evidence stage is left of {asked} for this model; name others with --stages, or"
            " give text models a probe bank (see jaxtroj bank)"
        )
    return tuple(chosen)
