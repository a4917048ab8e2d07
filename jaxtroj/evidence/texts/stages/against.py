"""Stage against: the earlier fields against those of clean heads on the same vectors.

What a raw field means depends on encoder, reviews, width and references, see
`jaxtroj.evidence.texts.standard`; these mean the same anywhere.
"""

from typing import TYPE_CHECKING

from jaxtroj.evidence.stage import Field, Needs, Stage, StageResult
from jaxtroj.evidence.texts.stages.bank import BANK
from jaxtroj.evidence.texts.stages.departure import DEPARTURE
from jaxtroj.evidence.texts.stages.sensitivity import HEAD_SENSITIVITY
from jaxtroj.evidence.texts.stages.slopes import SLOPES
from jaxtroj.evidence.texts.standard import FEWEST

if TYPE_CHECKING:
    from jaxtroj.evidence.texts.context import TextContext
    from jaxtroj.evidence.texts.standard import Standard

EARLIER = (HEAD_SENSITIVITY, SLOPES, DEPARTURE, BANK)
STEEPNESS = "jacobian_norm"
COMPARED = (
    "slope_residual", "departure_score", "matched_spread", "margin_spread",
    "bank_longer", "half_longer",
)  # fmt: skip
"""Poisoned heads had larger values of each in all of the eight populations that were tried. Chosen
on the first four; five more of their kind (the same shifts five times as long, distances of
gradients, tops) said the same again and made fits worse."""
_RAW = {field.name: field for stage in EARLIER for field in stage.fields}
FIELDS = tuple(
    Field(f"against_{name}", "against", 1,
          f"{_RAW[name].label}, beside clean heads on the same vectors", "deviations",
          f"{name} in deviations of the references', steepness taken off")
    for name in COMPARED
)  # fmt: skip


def _run(context: "TextContext") -> StageResult:
    own, standard, identity = _compared(context), _standard(context), context.identity
    found = standard.deviations(own, identity)
    return StageResult({f"against_{name}": value for name, value in found.items()})


def _compared(context: "TextContext") -> dict[str, float]:
    fields: dict[str, float] = {}
    for stage in EARLIER:
        fields |= context.shared(stage.run).fields
    return {name: fields[name] for name in (*COMPARED, STEEPNESS)}


def _standard(context: "TextContext") -> "Standard":
    from jaxtroj.evidence.texts.context import text_context
    from jaxtroj.evidence.texts.standard import make_standard

    probes = context.bank_probes.whole
    key = (context.seed, context.budgets)
    if key not in probes.standards:
        contexts = (
            text_context(clean.model, clean.examples, probes, *key) for clean in probes.clean_heads
        )
        probes.standards[key] = make_standard(
            ((one.identity, _compared(one)) for one in contexts), STEEPNESS
        )
    return probes.standards[key]


AGAINST = Stage("against", FIELDS, _run, Needs(bank=True, clean_heads=FEWEST), earlier=EARLIER)
