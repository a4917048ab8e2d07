"""Stage against: what insertions and shifts do, against what they do to clean heads."""

from typing import TYPE_CHECKING

from jaxtroj.evidence.stage import Needs, Stage
from jaxtroj.evidence.texts.comparison import SIZE, STEEPNESS, Comparison
from jaxtroj.evidence.texts.stages.bank import BANK
from jaxtroj.evidence.texts.stages.beside import BESIDE
from jaxtroj.evidence.texts.stages.departure import DEPARTURE
from jaxtroj.evidence.texts.stages.sensitivity import HEAD_SENSITIVITY
from jaxtroj.evidence.texts.standard import FEWEST

if TYPE_CHECKING:
    from jaxtroj.evidence.texts.encoder_probes import EncoderProbes
    from jaxtroj.evidence.texts.standard import Standard

EARLIER = (HEAD_SENSITIVITY, DEPARTURE, BANK)
KEPT = 2  # raised when values of kept fields change their meaning
COMPARED = ("departure_score", "matched_spread", "margin_spread", "bank_longer", "half_longer")
"""Poisoned heads had larger values of each in all of the eight populations that were tried. Chosen
on the first four; five more of their kind (the same shifts five times as long, distances of
gradients, tops) said the same again and made fits worse."""


def identity_of(probes: "EncoderProbes", seed: int) -> str:
    """What a kept standard of these probes must say it is."""
    from jaxtroj.evidence.texts.bank.kept_standard import standard_identity

    fields = (*COMPARED, STEEPNESS, SIZE)
    return standard_identity(probes.bank.digest, probes.heads_digest, KEPT, seed, fields)


def _kept(probes: "EncoderProbes", seed: int) -> "Standard | None":
    from jaxtroj.evidence.texts.bank.kept_standard import kept_standard

    if probes.folder is None:
        return None
    return kept_standard(probes.folder, identity_of(probes, seed), STEEPNESS, SIZE)


COMPARISON = Comparison("against", EARLIER, COMPARED, _kept)
AGAINST = Stage(
    "against",
    COMPARISON.fields,
    COMPARISON.run,
    Needs(bank=True, clean_heads=FEWEST),
    earlier=(*EARLIER, *BESIDE.earlier, BESIDE),  # all that is told in deviations
)
