"""Stage beside: which way the head's margins rise, against those of clean heads."""

from jaxtroj.evidence.stage import Needs, Stage
from jaxtroj.evidence.texts.comparison import Comparison
from jaxtroj.evidence.texts.stages.directions import DIRECTIONS
from jaxtroj.evidence.texts.stages.sensitivity import HEAD_SENSITIVITY
from jaxtroj.evidence.texts.stages.slopes import SLOPES
from jaxtroj.evidence.texts.standard import FEWEST

EARLIER = (HEAD_SENSITIVITY, SLOPES, DIRECTIONS)
COMPARISON = Comparison("beside", EARLIER, ("slope_residual", "direction_residual"))
BESIDE = Stage(
    "beside",
    COMPARISON.fields,
    COMPARISON.run,
    Needs(bank=True, clean_heads=FEWEST),
    earlier=EARLIER,
)
