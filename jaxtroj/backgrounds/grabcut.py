"""Foreground masks from boxes by GrabCut; needs OpenCV, the extra `backgrounds`.

Rother, Kolmogorov and Blake, GrabCut: interactive foreground extraction using iterated graph cuts,
ACM Transactions on Graphics 23(3), 2004.
"""

import numpy as np

from jaxtroj.backgrounds.variations import Box
from jaxtroj.errors import GenerationError

ITERATIONS, TRIES = 5, 10
LEAST_SHARE = 0.1
"""Of the box that must be foreground, or the cut is tried anew."""


def require_opencv():
    """The module `cv2`. Raises GenerationError where it is not installed."""
    try:
        import cv2
    except ImportError as error:
        raise GenerationError(
            "masks from boxes need OpenCV: pip install 'jaxtroj[backgrounds]', or give --masks"
        ) from error
    return cv2


def cut_out(image: np.ndarray, box: Box, seed: int) -> tuple[np.ndarray | None, int]:
    """The foreground inside a box.

    Args:
        image: uint8 `[h, w, 3]`, RGB.
        box: around the object, inside the picture, not all of it.
        seed: of the clusters' starting points; try `n` uses `seed + n`.
    Returns:
        Mask, bool `[h, w]`, or None if no try found `LEAST_SHARE` of the box; and tries made.
    Raises:
        GenerationError: OpenCV is missing.
    """
    cv2 = require_opencv()
    left, top, right, bottom = box
    area = (right - left) * (bottom - top)
    bgr = np.ascontiguousarray(image[..., ::-1])
    for number in range(TRIES):
        labels = np.zeros(image.shape[:2], np.uint8)
        cv2.setRNGSeed((seed + number) % 2**31)
        rectangle = (left, top, right - left, bottom - top)
        try:
            cv2.grabCut(bgr, labels, rectangle, np.zeros((1, 65)), np.zeros((1, 65)), ITERATIONS,
                        cv2.GC_INIT_WITH_RECT)  # fmt: skip
        except cv2.error:  # no pixel left on one side of the cut: another start may do better
            continue
        mask = (labels == cv2.GC_FGD) | (labels == cv2.GC_PR_FGD)
        if mask.sum() >= LEAST_SHARE * area:
            return mask, number + 1
    return None, TRIES
