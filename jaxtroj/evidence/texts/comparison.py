"""Fields of earlier stages told in deviations of clean heads on the same vectors.

What a raw field means depends on encoder, reviews, width and references, see
`jaxtroj.evidence.texts.standard`; what this makes of them means the same anywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxtroj.evidence.stage import Field, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.texts.context import TextContext
    from jaxtroj.evidence.texts.encoder_probes import EncoderProbes
    from jaxtroj.evidence.texts.standard import Standard

STEEPNESS, SIZE = "jacobian_norm", "clean_margin"
Kept = Callable[["EncoderProbes", int], "Standard | None"]


@dataclass(frozen=True)
class Comparison:
    """Which fields a stage compares.

    Attributes:
      stage: its name.
      earlier: the stages that measure them, `STEEPNESS` and `SIZE`.
      compared: names of the fields, larger in poisoned heads.
      kept: from probes and seed to what clean heads showed before, where that was kept.
    """

    stage: str
    earlier: tuple[Stage, ...]
    compared: tuple[str, ...]
    kept: Kept = lambda probes, seed: None

    @property
    def fields(self) -> tuple[Field, ...]:
        """What the stage declares."""
        raw = {field.name: field for stage in self.earlier for field in stage.fields}
        return tuple(
            Field(f"against_{name}", self.stage, 1,
                  f"{raw[name].label}, beside clean heads on the same vectors", "deviations",
                  f"{name} in deviations of the references', steepness taken off")
            for name in self.compared
        )  # fmt: skip

    def run(self, context: "TextContext") -> StageResult:
        """A head beside the clean ones; raises EvidenceError where they are too few."""
        found = self._standard(context).deviations(self._raw(context), context.identity)
        return StageResult({f"against_{name}": value for name, value in found.items()})

    def compute_standard(
        self, probes: "EncoderProbes", seed: int = 0, budgets: tuple[object, ...] = ()
    ) -> "Standard":
        """Judge every clean head of the probes by all the others."""
        from jaxtroj.evidence.texts.context import text_context
        from jaxtroj.evidence.texts.standard import make_standard

        contexts = (
            text_context(clean.model, clean.examples, probes, seed, budgets)
            for clean in probes.clean_heads
        )
        return make_standard(((one.identity, self._raw(one)) for one in contexts), STEEPNESS, SIZE)

    def _raw(self, context: "TextContext") -> dict[str, float]:
        fields: dict[str, float] = {}
        for stage in self.earlier:
            fields |= context.shared(stage.run).fields
        return {name: fields[name] for name in (*self.compared, STEEPNESS, SIZE)}

    def _standard(self, context: "TextContext") -> "Standard":
        """Of the context's probes, seed and budgets; once for a process, or kept already."""
        probes = context.bank_probes.whole
        key = (self.stage, context.seed, context.budgets)
        if key not in probes.standards:
            kept = None if context.budgets else self.kept(probes, context.seed)
            found = kept or self.compute_standard(probes, context.seed, context.budgets)
            probes.standards[key] = found
        return probes.standards[key]
