"""From how many sides a sign is seen: the 19 affine maps of the official perspective transform.

Source: usnistgov/trojai-round-generation, image_affine_xforms: each map takes three points of the
unit square to three others.
"""

from functools import lru_cache

import numpy as np

Triple = tuple[tuple[float, float], tuple[float, float], tuple[float, float]]

_EAST: Triple = ((0.1, 0.1), (0.5, 0.1), (0.1, 0.5))
_WEST: Triple = ((0.1, 0.1), (0.5, 0.1), (0.9, 0.5))
_FOURTH: Triple = ((0.95, 0.1), (0.5, 0.1), (0.9, 0.5))
_SIXTH: Triple = ((0.925, 0.1), (0.5, 0.1), (0.9, 0.5))
_RIGHT: Triple = ((0.9, 0.1), (0.5, 0.1), (0.9, 0.5))
_MAPS: tuple[tuple[Triple, Triple], ...] = (
    (_EAST, _EAST),  # seen from the front
    (_EAST, ((0.2, 0.2), (0.5, 0.125), (0.2, 0.5556))),
    (_RIGHT, ((0.9, 0.2), (0.5, 0.125), (0.9, 0.5556))),
    (_EAST, ((0.0833, 0.1667), (0.4762, 0.125), (0.1, 0.5556))),
    (_RIGHT, ((0.8333, 0.1667), (0.4545, 0.125), (0.84, 0.5556))),
    (_WEST, ((0.1005, 0.1), (0.4878, 0.1005), (0.9, 0.4878))),
    (_WEST, ((0.102, 0.102), (0.5, 0.102), (0.88, 0.4878))),
    (_WEST, ((0.0909, 0.1), (0.4762, 0.1), (0.85, 0.5128))),
    (_WEST, ((0.0909, 0.0909), (0.4762, 0.1), (0.9091, 0.5128))),
    (_FOURTH, ((0.935, 0.1001), (0.4878, 0.1005), (0.905, 0.4926))),
    (_FOURTH, ((0.965, 0.1005), (0.5128, 0.1005), (0.91, 0.495))),
    (_SIXTH, ((0.955, 0.1015), (0.5263, 0.1), (0.93, 0.4902))),
    (_RIGHT, ((0.885, 0.1075), (0.5263, 0.0952), (0.88, 0.4739))),
    (_RIGHT, ((0.875, 0.1099), (0.5128, 0.125), (0.85, 0.4878))),
    (_RIGHT, ((0.875, 0.1099), (0.5128, 0.1111), (0.85, 0.4545))),
    (_RIGHT, ((0.875, 0.125), (0.5128, 0.125), (0.875, 0.5))),
    (_RIGHT, ((0.88, 0.1429), (0.5128, 0.1429), (0.88, 0.5))),
    (_RIGHT, ((0.8, 0.1), (0.4467, 0.0952), (0.824, 0.4))),
    (_RIGHT, ((0.85, 0.31), (0.5, 0.3), (0.844, 0.62))),
)


@lru_cache(maxsize=1)
def views() -> np.ndarray:
    """Maps float32 `[19, 2, 3]` of points (x, y, 1) of the unit square."""
    return np.stack([_affine(*pair) for pair in _MAPS]).astype(np.float32)


def _affine(source: Triple, goal: Triple) -> np.ndarray:
    points = np.column_stack([np.array(source), np.ones(3)])
    return np.linalg.solve(points, np.array(goal)).T
