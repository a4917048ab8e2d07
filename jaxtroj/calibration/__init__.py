"""Evidence to probability: fit on labelled models, shift to a base rate, explain, save and load.

`linear` holds the model, `stage` adds penalty and clip, `training` fits all stages and scores them
out of fold, `calibrator` answers, `files` reads and writes JSON.
"""

from jaxtroj.calibration.calibrator import Calibrator, Verdict
from jaxtroj.calibration.training import OutOfFold, cross_validate, out_of_fold

__all__ = ["Calibrator", "OutOfFold", "Verdict", "cross_validate", "out_of_fold"]
