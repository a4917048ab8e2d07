"""Evidence to probability: fit on labelled models, shift to a base rate, explain, save and load.

`labelled` holds what is fitted on, `linear` the model, `stage` adds penalty and clip, `training`
fits all stages and scores them out of fold, `cross_validation` gives each row its answer by those,
`fitting` makes a calibrator of them, which answers with a `verdict`, `files` reads and writes JSON.
"""

from jaxtroj.calibration.calibrator import Calibrator
from jaxtroj.calibration.cross_validation import (
    cross_validate,
    leave_out,
    scores_left_out,
    scores_of_cuts,
)
from jaxtroj.calibration.labelled import Labelled, Origin, Scheme
from jaxtroj.calibration.training import OutOfFold, out_of_fold
from jaxtroj.calibration.verdict import Verdict

__all__ = [
    "Calibrator",
    "Labelled",
    "Origin",
    "OutOfFold",
    "Scheme",
    "Verdict",
    "cross_validate",
    "leave_out",
    "out_of_fold",
    "scores_left_out",
    "scores_of_cuts",
]
