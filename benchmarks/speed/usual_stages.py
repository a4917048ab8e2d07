"""The stages that a scan by the general calibrator takes of a network, none left out early."""

from jaxtroj.calibration import Calibrator
from jaxtroj.evidence.images.context import ImageContext
from jaxtroj.evidence.images.labelled_examples import normed
from jaxtroj.evidence.stage import Stage, Subject, stages_for
from jaxtroj.evidence.stages import IMAGE_STAGES
from jaxtroj.scan.model import fitted_on
from jaxtroj.settings import DEFAULT_CALIBRATOR


def usual_stages(context: ImageContext) -> tuple[Stage, ...]:
    """In their order, for the network and the pictures of a context."""
    side = max(context.examples.images.shape[1:3])
    fitted = fitted_on(Calibrator.load(DEFAULT_CALIBRATOR))
    subject = Subject(side=side, has_batch_norm=context.shared(normed))
    return stages_for(IMAGE_STAGES, subject, fitted=fitted)
