"""Labelled models in, all of a calibrator out: every stage fitted, and scored out of fold."""

from collections.abc import Sequence

import numpy as np

from jaxtroj.calibration.fitted import Fitted, StageReport, provenance_of
from jaxtroj.calibration.kinds import found_by_kind
from jaxtroj.calibration.labelled import Labelled, Origin, Scheme, make_population
from jaxtroj.calibration.stopping import stop_rule
from jaxtroj.calibration.training import (
    OutOfFold,
    fit_judges,
    last_answers,
    learn_transfer,
    out_of_fold,
    stage_score,
)
from jaxtroj.calibration.transfer import met_by
from jaxtroj.numerics import logit, sigmoid


def fit_calibrator(labelled: Labelled, scheme: Scheme, origin: Origin) -> Fitted:
    """See `Calibrator.fit`."""
    fitted = fit_judges(make_population(labelled), scheme, origin.seed)
    held_out = out_of_fold(labelled, scheme, origin.seed)
    truth, last = labelled.truth, last_answers(held_out)
    names = labelled.families or labelled.architectures
    reports = {
        stage: _report(held_out[stage], last, truth, names) for stage in fitted if stage in held_out
    }
    return Fitted(
        stages={stage: fitted[stage] for stage in reports},
        reports=reports,
        provenance=provenance_of(labelled, origin),
        unfitted=tuple(stage for stage in scheme.stages if stage not in reports),
        met=met_by(labelled.architectures, labelled.sides, labelled.classes),
        transfer=learn_transfer(labelled, scheme, origin.seed),
        kinds=found_by_kind(_probabilities(last, truth), truth, labelled.kinds),
    )


def _probabilities(last: OutOfFold, truth: np.ndarray) -> np.ndarray:
    """Out of fold, [n]; the base rate where no stage answered."""
    return sigmoid(np.where(np.isnan(last.log_odds), logit(truth.mean()), last.log_odds))


def _report(
    held_out: OutOfFold, last: OutOfFold, truth: np.ndarray, architectures: Sequence[str | None]
) -> StageReport:
    names = np.array([name or "" for name in architectures])
    answered = ~np.isnan(held_out.log_odds)
    return StageReport(
        score=stage_score(held_out, truth, np.ones(len(truth), dtype=bool)),
        by_architecture={
            str(name): stage_score(held_out, truth, names == name)
            for name in np.unique(names[answered])
            if name
        },
        stop=stop_rule(held_out, last),
    )
