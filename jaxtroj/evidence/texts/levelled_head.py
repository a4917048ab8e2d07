"""A head of far smaller or larger logits than trained ones, as stages look at it: scaled.

To multiply the last layer changes no answer, and whoever uploads a head can do it. What is told in
sigmoids of margins would change, or be lost in rounding. All trained heads stay as they are, to the
bit.
"""

from dataclasses import replace

import numpy as np

from jaxtroj.evidence.texts.heads import Head, margins

LEAST, MOST = 0.0625, 16.0
"""Median margin on clean examples. The heads whose evidence is kept lie from 0.13 to 3.2."""
_FURTHEST = 100  # powers of two; a factor beyond would leave the range of float32
_LAST = "linear."


def levelled_head(head: Head) -> tuple[Head, float]:
    """The head with logits of usual size, and by what they were multiplied; a power of two.

    So no logit is rounded. The factor is 1 where they are as usual, or all equal.

    Args:
        head: of any family of heads: the last layer of each is called `linear`.
    """
    size = -float(np.median(np.asarray(margins(head.config, head.params, head.sources))))
    if not 0 < size < np.inf or LEAST <= size <= MOST:
        return head, 1.0
    power = np.round(np.log2(np.clip(size, LEAST, MOST) / size))
    factor = 2.0 ** float(np.clip(power, -_FURTHEST, _FURTHEST))
    params = {
        name: value * np.float32(factor) if name.startswith(_LAST) else value
        for name, value in head.params.items()
    }
    return replace(head, params=params), factor
