"""Logits of a text classifier as large as those of trained networks, so that evidence compares.

A network whose last layer is multiplied by a number above 0 answers the same. Yet effects are told
by sigmoids of margins and by spans of half a logit or more: a poisoned network whose last layer was
multiplied by 0.01 looked clean, though one word moved all texts. So margins of texts far from those
of trained networks are brought to the middle of these; all others stay as they are, to the bit.
"""

from dataclasses import replace

from jaxtroj.evidence.classifiers.carriers import Carriers
from jaxtroj.evidence.classifiers.tokens import TokenNetwork
from jaxtroj.evidence.logit_size import factor_for, with_larger_layer

LEAST, USUAL, MOST = 0.3, 1.5, 16.0
"""Mean margin of the answers to clean texts. Nine generated networks of four families, as the fit
has them, have 1.16 to 1.90. Its stored evidence does not hold it, and networks of eight classes
were not among them, so `LEAST` leaves room. `MOST` is that of pictures."""


def factor_of(carriers: Carriers) -> float:
    """What logits are to be multiplied by, a power of two, so that none is rounded; 1 as a rule."""
    if not len(carriers.margins):
        return 1.0
    return factor_for(float(carriers.margins.max(axis=1).mean()), LEAST, MOST, USUAL)


def levelled(network: TokenNetwork, factor: float) -> TokenNetwork:
    """The network with its logits so many times as large: its last layer is."""
    params = with_larger_layer(network.model.params, network.config.last_path, factor)
    return replace(network, model=replace(network.model, params=params))
