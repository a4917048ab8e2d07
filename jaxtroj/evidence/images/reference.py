"""A clean network of the same classes beside the one that is judged, on the same examples."""

import numpy as np

from jaxtroj.anchors import Answered
from jaxtroj.errors import EvidenceError
from jaxtroj.evidence.images.context import ImageContext
from jaxtroj.evidence.images.leans import Leans, leans_beside
from jaxtroj.network import Network


def labelled_answers(context: ImageContext) -> Answered:
    """All examples of a known class: `context.shared(labelled_answers)`."""
    labels = np.asarray(context.examples.labels)
    known = np.flatnonzero(labels >= 0)
    images = context.examples.images[known]
    return Answered(images, labels[known], np.asarray(context.network.logits(images)))


def leans_of(context: ImageContext) -> Leans:
    """How far each class leans to each other; see `leans.leans_beside`.

    Raises:
      EvidenceError: there is no reference, no example of a known class, or logits of the reference
        that are not finite.
    """
    labels, reference = np.asarray(context.examples.labels), context.reference
    if reference is None:
        raise EvidenceError("stage reference needs a clean network to compare with (--reference)")
    known = np.flatnonzero(labels >= 0)
    if not known.size:
        raise EvidenceError(
            "stage reference needs examples whose class is known; got none of"
            f" {len(labels)}: put them into a folder for each class, or leave --reference out"
        )
    own = context.shared(labelled_answers).logits
    clean = np.asarray(Network(reference.model).logits(reference.images[known]))
    if not np.isfinite(clean).all():
        raise EvidenceError("the reference's logits are not finite on the examples; give another")
    return leans_beside(own, clean, labels[known])
