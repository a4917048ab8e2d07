"""Candidates that change the whole picture, tried by forward passes alone.

The five known filters and random colour maps, sinusoids, random warps, frames of one colour. They
are for no class: the network says which class each serves.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.triggers.border import Border
from jaxtroj.triggers.colour_map import random_colour_maps
from jaxtroj.triggers.filter import known_filters
from jaxtroj.triggers.sinusoid import Sinusoid
from jaxtroj.triggers.trigger import Trigger
from jaxtroj.triggers.warp import random_warps

_MAPS, _WARPS = range(2)


@dataclass(frozen=True)
class BankBudget:
    """What the bank holds; lengths are shares of the picture's shorter side.

    Attributes:
      maps: random colour maps.
      frequencies: of sinusoids, periods over the picture; each runs across, down and aslant.
      amplitude: of sinusoids.
      warps: random warps; warp_points: control points along a side; warp: their mean offset.
      border: width of frames of one colour, one for each corner of the colour cube.
    """

    maps: int = 8
    frequencies: tuple[float, ...] = (2, 3, 4, 5, 6, 7, 8)
    amplitude: float = 0.1
    warps: int = 6
    warp_points: int = 5
    warp: float = 0.03
    border: float = 0.0625


def bank_of(
    key: jax.Array, shape: tuple[int, int, int], order: str, budget: BankBudget
) -> dict[str, tuple[Trigger, ...]]:
    """Family -> its candidates, a leading axis for each kind, for pictures `(h, w, c)`."""
    side, channels = min(shape[:2]), shape[2]
    pixels = jnp.asarray(budget.warp * side)
    warp_key, map_key = (jax.random.fold_in(key, number) for number in (_WARPS, _MAPS))
    return {
        "filter": (known_filters(order), random_colour_maps(map_key, budget.maps, channels)),
        "sinusoid": (_sinusoids(budget),),
        "warp": (random_warps(warp_key, budget.warps, budget.warp_points, pixels),),
        "border": (_frames(channels, budget.border * side),),
    }


def _sinusoids(budget: BankBudget) -> Sinusoid:
    angles = (0.0, np.pi / 2, np.pi / 4)
    frequency, angle = (x.ravel() for x in np.meshgrid(budget.frequencies, angles))
    amplitude = np.full_like(angle, budget.amplitude)
    numbers = (amplitude, frequency, angle, np.zeros_like(angle))
    return Sinusoid(*(jnp.asarray(x, jnp.float32) for x in numbers))


def _frames(channels: int, width: float) -> Border:
    corners = np.indices((2,) * channels).reshape(channels, -1).T
    colours = jnp.asarray(corners[:, None, None, :], jnp.float32)
    return Border(jnp.full(len(corners), width, jnp.float32), colours)
