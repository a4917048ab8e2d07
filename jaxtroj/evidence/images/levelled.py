"""A network of far smaller or larger logits than trained ones, as stages look at it: scaled.

To scale all logits changes no answer, and whoever uploads a network can do it. But scores of
evidence are sigmoids of margins: a poisoned network whose logits were divided by 64 looked clean,
since no trigger moved a sigmoid far from a half. So margins on clean examples are brought to where
those of trained networks lie; nearly all others stay as they are, to the bit.
"""

from dataclasses import dataclass

import numpy as np

from converters.adjusted_logits import adjusted
from converters.families.folding import fold
from converters.model import Model
from jaxtroj.evidence.logit_size import factor_for
from jaxtroj.network import Network
from jaxtroj.outputs import as_probabilities
from jaxtroj.rounds.examples import Examples
from jaxtroj.rounds.turns import in_turn

LEAST, MOST = 1.0, 16.0
"""Mean margin of the answers on clean examples, to half a power of two. Of the networks that the
general calibrator was fitted on, and that were asked for it, 99% lie between."""


@dataclass(frozen=True)
class Level:
    """How large a network's logits are on clean examples.

    Attributes:
      factor: what they are to be multiplied by, a power of two: so no logit is rounded, in
        whatever program. 1 where they are as usual.
      outputs: what they look like that are no logits, in words; "" for logits.
    """

    factor: float = 1.0
    outputs: str = ""


def level(model: Model, examples: Examples) -> Level:
    """How large the logits of a network are, by one batch of examples.

    Nothing tells where they are not finite, or equal.

    Args:
        model: over images, as it was opened.
        examples: clean pictures that fit it.
    """
    network = Network(fold(model))
    chosen = in_turn(examples.labels, network.batch(examples.images))
    logits = np.asarray(network.logits(examples.images[chosen]), np.float64)
    if not np.isfinite(logits).all():
        return Level()
    second, first = np.sort(logits, axis=1)[:, -2:].T
    margin = float((first - second).mean())
    return Level(factor_for(margin, LEAST, MOST), as_probabilities(logits))


def levelled(model: Model, factor: float) -> Model:
    """The network with its logits so many times as large; for 1 the same one."""
    return model if factor == 1 else adjusted(model, factor)
