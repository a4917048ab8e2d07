"""Stage directions: what part of the direction that a head answers to clean heads do not share."""

from typing import TYPE_CHECKING

from jaxtroj.evidence.stage import Field, Needs, Stage, StageResult
from jaxtroj.evidence.texts.standard import FEWEST

if TYPE_CHECKING:
    from jaxtroj.evidence.texts.context import TextContext

FIELDS = (
    Field("direction_residual", "directions", 1,
          "the part of the direction it answers to that clean heads do not share",
          "fraction 0-1", "norm of the unit gradient at random vectors outside the span of the"
          " references' mean and main differences, largest over classes", is_for_few=True),
)  # fmt: skip


def _run(context: "TextContext") -> StageResult:
    known = context.bank_probes.whole.clean_directions
    return StageResult({"direction_residual": known.residual(context.head, context.identity)})


DIRECTIONS = Stage(
    "directions",
    FIELDS,
    _run,
    Needs(bank=True, clean_heads=FEWEST),
    ("shift", "text"),  # of any kind: it looks at all coordinates, and tells no text
    shows=False,
)
