"""Which axis of an array of pictures is that of the channels."""

from collections.abc import Sequence

LAYOUTS = ("NHWC", "NCHW")
CHANNELS = (1, 3)
"""Grey, and RGB."""


def told_layout(shape: Sequence[int]) -> str:
    """The layout of pictures of four axes, by which of them has as many entries as channels.

    >>> told_layout((10, 3, 32, 32))
    'NCHW'

    Raises:
        ValueError: both may be that axis, or neither.
    """
    last, second = shape[3] in CHANNELS, shape[1] in CHANNELS
    if last == second:
        problem = "both of which may be channels" if last else "neither of which is 1 or 3 channels"
        raise ValueError(f"axes 1 and 3 have {shape[1]} and {shape[3]} entries, {problem}")
    return "NHWC" if last else "NCHW"
