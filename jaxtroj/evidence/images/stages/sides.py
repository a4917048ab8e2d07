"""Which pictures a stage is usual for, by their size.

In small pictures a trigger lies at one place and the object fills the picture; in larger ones there
are too many places to try each, and the trigger is looked for on the object.
"""

from dataclasses import replace

from jaxtroj.evidence.stage import Needs

SMALL_SIDE = 32
"""Pixels of the longest side that a small picture has at most."""
ON_OBJECTS = Needs(sides=(SMALL_SIDE + 1, float("inf")))
AT_PLACES = Needs(sides=(1, SMALL_SIDE))
UP_TO_64 = Needs(sides=(1, 64))  # in larger pictures every stage is dear; it can be named there
UP_TO_PHOTOS = Needs(sides=(1, 320))  # networks of photos take 224 to 320 px


def by_gradients(needs: Needs) -> Needs:
    """The same of a stage that searches by gradients, or counts what such searches found."""
    return replace(needs, gradient=True)
