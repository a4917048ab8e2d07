"""A head of far smaller or larger logits than trained ones, as stages look at it: scaled.

Fields that are told beside clean heads do not depend on the size of logits; sigmoids of margins do,
and so does rounding. See `jaxtroj.evidence.logit_size`.
"""

from dataclasses import replace

import numpy as np

from jaxtroj.evidence.logit_size import factor_for, with_larger_layer
from jaxtroj.evidence.texts.heads import Head, margins

LEAST, MOST = 0.0625, 16.0
"""Median margin on clean examples. The heads whose evidence is kept lie from 0.13 to 3.2."""
_LAST = "linear"


def levelled_head(head: Head) -> tuple[Head, float]:
    """The head with logits of usual size, and by what they were multiplied; a power of two.

    So no logit is rounded. The factor is 1 where they are as usual, or all equal.

    Args:
        head: of any family of heads: the last layer of each is called `linear`.
    """
    size = -float(np.median(np.asarray(margins(head.config, head.params, head.sources))))
    factor = factor_for(size, LEAST, MOST)
    if factor == 1:
        return head, factor
    return replace(head, params=with_larger_layer(head.params, _LAST, factor)), factor
