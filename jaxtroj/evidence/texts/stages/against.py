"""Stage against: the earlier fields against those of clean heads on the same vectors.

What a raw field means depends on encoder, reviews, width and references, see
`jaxtroj.evidence.texts.standard`; these mean the same anywhere.
"""

from typing import TYPE_CHECKING

from jaxtroj.evidence.stage import Field, Needs, Stage, StageResult
from jaxtroj.evidence.texts.stages.bank import BANK
from jaxtroj.evidence.texts.stages.departure import DEPARTURE
from jaxtroj.evidence.texts.stages.directions import DIRECTIONS
from jaxtroj.evidence.texts.stages.sensitivity import HEAD_SENSITIVITY
from jaxtroj.evidence.texts.stages.slopes import SLOPES
from jaxtroj.evidence.texts.standard import FEWEST

if TYPE_CHECKING:
    from jaxtroj.evidence.texts.context import TextContext
    from jaxtroj.evidence.texts.encoder_probes import EncoderProbes
    from jaxtroj.evidence.texts.standard import Standard

EARLIER = (HEAD_SENSITIVITY, SLOPES, DIRECTIONS, DEPARTURE, BANK)
STEEPNESS = "jacobian_norm"
KEPT = 1  # raised when values of kept fields change their meaning
COMPARED = (
    "slope_residual", "departure_score", "matched_spread", "margin_spread",
    "bank_longer", "half_longer", "direction_residual",
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
    """Of the context's probes, seed and budgets; computed once for a process, or kept already."""
    probes, key = context.bank_probes.whole, (context.seed, context.budgets)
    if key not in probes.standards:
        kept = None if context.budgets else _kept(probes, context.seed)
        probes.standards[key] = kept or compute_standard(probes, *key)
    return probes.standards[key]


def compute_standard(
    probes: "EncoderProbes", seed: int = 0, budgets: tuple[object, ...] = ()
) -> "Standard":
    """Judge every clean head of the probes by all the others."""
    from jaxtroj.evidence.texts.context import text_context
    from jaxtroj.evidence.texts.standard import make_standard

    contexts = (
        text_context(clean.model, clean.examples, probes, seed, budgets)
        for clean in probes.clean_heads
    )
    return make_standard(((one.identity, _compared(one)) for one in contexts), STEEPNESS)


def identity_of(probes: "EncoderProbes", seed: int) -> str:
    """What a kept standard of these probes must say it is."""
    from jaxtroj.evidence.texts.bank.kept_standard import standard_identity

    fields = (*COMPARED, STEEPNESS)
    return standard_identity(probes.bank.plan.digest, probes.references.digest, KEPT, seed, fields)


def _kept(probes: "EncoderProbes", seed: int) -> "Standard | None":
    from jaxtroj.evidence.texts.bank.kept_standard import kept_standard

    if probes.folder is None:
        return None
    return kept_standard(probes.folder, identity_of(probes, seed), STEEPNESS)


AGAINST = Stage("against", FIELDS, _run, Needs(bank=True, clean_heads=FEWEST), earlier=EARLIER)
