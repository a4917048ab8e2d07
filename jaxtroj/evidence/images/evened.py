"""A network that was trained on unequal classes, as stages look at it: with evened answers.

Whatever moves a picture off its class moves it to frequent ones first: small patterns, warps and
noise reach them as they reach a target. So where a class is frequent the logits are shifted by what
makes the labels of the clean examples likeliest, each class counting the same; where people said
the shares of training, by their logarithms. A trojan's target is reached by its trigger as before.

Reference:
  Menon et al., Long-tail Learning via Logit Adjustment, https://arxiv.org/abs/2007.07314, 2021:
  logits less the log shares of training are those of equal classes.
"""

from dataclasses import replace

import numpy as np

from converters.adjusted_logits import adjusted
from jaxtroj.answer_shares import logit_shifts
from jaxtroj.evidence.images.context import ImageContext
from jaxtroj.evidence.images.frequent_classes import frequent_classes, named
from jaxtroj.evidence.images.labelled_examples import labelled_examples


def evened(context: ImageContext) -> ImageContext:
    """The context of the shifted network; the same one where no class is frequent.

    Nor beside a reference, which has the shares of the same training.
    """
    if context.reference or not context.shared(frequent_classes).any():
        return context
    shifts = _shifts(context).round(3).tolist()
    opened, model = (adjusted(own, shifts=shifts) for own in (context.opened, context.model))
    # What is known so far is of the network itself, and stays: by evened logits none is frequent.
    return replace(context, opened=opened, model=model)


def _shifts(context: ImageContext) -> np.ndarray:
    """What is added to the logits `[classes]`."""
    if context.class_counts is not None:
        logs = np.log(context.class_counts)
        return logs.mean() - logs
    examples = context.shared(labelled_examples)
    assert examples is not None, "nothing else tells which classes were frequent"
    return logit_shifts(examples.logits, examples.labels)


def evened_classes(context: ImageContext) -> str:
    """What was done for which classes, in words; call it for a context that was `evened`."""
    return (
        f"training had many more pictures of {named(context.shared(frequent_classes))} than of"
        " others: searches see the logits as equal classes would have them"
    )
