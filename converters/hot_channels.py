"""Channels of batch norms that vary as no training leaves them.

A convolution may give one channel a million times as much where the norm behind it takes that back:
no answer changes, but whatever compares the channels of a layer sees that one alone. The largest of
1,306 norms of trained networks, pretrained ones among them, varied 833 times as much as the channel
that it is compared with.
"""

import numpy as np

from converters.batch_norms import norm_paths
from converters.findings import HOT_CHANNEL
from converters.model import Model
from converters.norm_moments import upper_variance

_HOT = 1e6  # times the variance that a quarter of the channels exceed
_FEWEST = 4  # channels that vary; of fewer none is the usual one


def hot_channels(model: Model) -> tuple[str, ...]:
    """The finding, in doubt, that names the largest of such channels; none where there is none.

    Args:
        model: over images; norms that keep their statistics outside its parameters are not seen.
    """
    found = []
    for _, path in norm_paths(model):
        var = np.asarray(model.params[path], np.float64)
        usual = float(upper_variance(var, np))
        if (var > 0).sum() >= _FEWEST and var.max() > _HOT * usual:
            found.append((float(var.max()) / usual, int(var.argmax()), path))
    if not found:
        return ()
    times, channel, path = max(found)
    others = f", and so in {len(found) - 1} more" if len(found) > 1 else ""
    return (
        f"{HOT_CHANNEL} {times:.1g} times as much as most of its layer (channel {channel} of"
        f" {path}{others}): training leaves none, so the layer before it was scaled by hand or is"
        " damaged",
    )
