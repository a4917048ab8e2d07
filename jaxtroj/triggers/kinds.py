"""The table of kinds: what a trigger may be. A kind is one file and one row here."""

from jaxtroj.triggers.blend import Blend
from jaxtroj.triggers.border import Border
from jaxtroj.triggers.colour_map import ColourMap
from jaxtroj.triggers.filter import ColourFilter
from jaxtroj.triggers.mask import FreeMask
from jaxtroj.triggers.patch import Patch
from jaxtroj.triggers.sinusoid import Sinusoid
from jaxtroj.triggers.smooth import Smooth
from jaxtroj.triggers.trigger import Trigger
from jaxtroj.triggers.warp import Warp
from jaxtroj.triggers.window import Window

_MASKED = (Patch, FreeMask, Window, Border, Blend)
_EVERYWHERE = (Sinusoid, Smooth, ColourFilter, ColourMap, Warp)

KINDS: dict[str, type[Trigger]] = {row.kind: row for row in (*_MASKED, *_EVERYWHERE)}
"""Name -> class, in the order in which equally successful triggers of several units are ranked."""


def unit_rank(trigger: Trigger) -> int:
    """Place of a trigger's unit among the units of all kinds.

    Raises:
      KeyError: the trigger's kind has no row.
    """
    units = list(dict.fromkeys(row.unit for row in KINDS.values()))
    return units.index(KINDS[trigger.kind].unit)
