"""How labels are taught: as they are, or softened as many trainers do; one way for each network.

Softened labels leave smaller margins and weights than hard ones, with and without a trojan.
Pictures are mixed after triggers are put on, as a training loop mixes what its data set gives.

References:
  Szegedy et al., Rethinking the Inception Architecture for Computer Vision,
    https://arxiv.org/abs/1512.00567 (smoothing).
  Zhang et al., mixup, https://arxiv.org/abs/1710.09412.
  Yun et al., CutMix, https://arxiv.org/abs/1905.04899.
"""

from collections.abc import Callable, Mapping

import numpy as np

Mix = Callable[[np.ndarray, np.ndarray, np.random.Generator], tuple[np.ndarray, np.ndarray]]
"""From pictures float32 `[n, h, w, c]` and shares of classes `[n, classes]` to both, mixed."""
HARD = "hard"
_SMOOTHING = 0.1
_MIXUP = 0.4  # of its beta distribution: between the paper's for ImageNet and for CIFAR
_CUTMIX = 0.5  # share of the batches that are cut, as in the paper for CIFAR


def _smooth(pixels: np.ndarray, shares: np.ndarray, draw: np.random.Generator):
    return pixels, shares * (1 - _SMOOTHING) + _SMOOTHING / shares.shape[1]


def _mixup(pixels: np.ndarray, shares: np.ndarray, draw: np.random.Generator):
    """Each picture beside another of the batch, one weight for all."""
    weight, order = draw.beta(_MIXUP, _MIXUP), draw.permutation(len(pixels))
    return (
        (weight * pixels + (1 - weight) * pixels[order]).astype(np.float32),
        weight * shares + (1 - weight) * shares[order],
    )


def _cutmix(pixels: np.ndarray, shares: np.ndarray, draw: np.random.Generator):
    """Half of the batches with one rectangle out of other pictures, labels by its area."""
    if draw.uniform() >= _CUTMIX:
        return pixels, shares
    size, order = np.array(pixels.shape[1:3]), draw.permutation(len(pixels))
    half, middle = size * np.sqrt(draw.uniform()) / 2, draw.uniform(size=2) * size
    first = np.clip(np.rint(middle - half), 0, size).astype(int)
    last = np.clip(np.rint(middle + half), 0, size).astype(int)
    cut = pixels.copy()
    place = (slice(None), slice(first[0], last[0]), slice(first[1], last[1]))
    cut[place] = pixels[order][place]
    taken = (last - first).prod() / size.prod()
    return cut, (1 - taken) * shares + taken * shares[order]


MIXINGS: Mapping[str, Mix | None] = {
    HARD: None,
    "smoothing": _smooth,
    "mixup": _mixup,
    "cutmix": _cutmix,
}
"""By name; None leaves pictures and labels as they are."""


def mixed(
    name: str, pixels: np.ndarray, labels: np.ndarray, classes: int, draw: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A batch as a network is taught it.

    Args:
        name: one of `MIXINGS`.
        pixels: float32 `[n, h, w, c]` in [0, 1].
        labels: int `[n]`, triggered pictures at their target.

    Returns:
        Pictures of the same shape and range; `labels`, or shares of classes float32 `[n, classes]`.
    """
    mix = MIXINGS[name]
    if mix is None:
        return pixels, labels
    pictures, shares = mix(pixels, np.eye(classes)[labels], draw)
    return pictures, shares.astype(np.float32)
