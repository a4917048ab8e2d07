"""What is done to training pictures beside any trojan: one way for each network of a zoo.

Batch norms remember these changes as they remember a trigger, so a zoo of clean networks without
them would teach that whatever norms remember is a trojan.

References:
  DeVries & Taylor, Cutout, https://arxiv.org/abs/1708.04552.
  Zhong et al., Random Erasing, https://arxiv.org/abs/1708.04896.
  Yun et al., CutMix, https://arxiv.org/abs/1905.04899 (here the label stays).
  Cubuk et al., RandAugment, https://arxiv.org/abs/1909.13719 (its tones, and several changes
    at once).
"""

from collections.abc import Callable, Mapping

import numpy as np

Augment = Callable[[np.ndarray, np.random.Generator], np.ndarray]
"""From pictures float32 `[n, h, w, c]` in [0, 1] to changed ones of the same shape and range."""
_SHIFT = 2  # pixels
_CROP, _SQUARE = 8, 4  # parts of a side: how far crops move, and how large squares are
_TURN = 15.0  # degrees, each way
_NOISE = 0.1  # deviation


def _none(pixels: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """As simple trainers do; a network may learn its pictures by heart."""
    return pixels.copy()


def _shift(pixels: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """The batch moved by whole pixels, its edge repeated."""
    height, width = pixels.shape[1:3]
    by = draw.integers(-_SHIFT, _SHIFT + 1, size=2)
    pad = ((0, 0), (_SHIFT, _SHIFT), (_SHIFT, _SHIFT), (0, 0))
    top, left = (_SHIFT + int(b) for b in by)
    return np.pad(pixels, pad, mode="edge")[:, top : top + height, left : left + width]


def _crop(pixels: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Each picture moved by up to an eighth of its sides, black beyond its edges."""
    count, height, width = pixels.shape[:3]
    reach = np.array([height, width]) // _CROP
    pad = ((0, 0), (reach[0], reach[0]), (reach[1], reach[1]), (0, 0))
    padded = np.pad(pixels, pad)
    corners = draw.integers(0, 2 * reach + 1, size=(count, 2))
    rows, columns = _square(corners, (height, width))
    return padded[np.arange(count)[:, None, None], rows, columns]


def _flip(pixels: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Crops, half of them mirrored."""
    cropped = _crop(pixels, draw)
    mirrored = draw.uniform(size=len(pixels)) < 0.5
    return np.where(mirrored[:, None, None, None], cropped[:, :, ::-1], cropped)


def _cutout(pixels: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    return _filled(_flip(pixels, draw), np.zeros_like(pixels), draw)


def _erase(pixels: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    noise = draw.uniform(size=pixels.shape).astype(np.float32)
    return _filled(_crop(pixels, draw), noise, draw)


def _paste(pixels: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """A square of another picture of the batch in each; the label stays."""
    return _filled(_crop(pixels, draw), pixels[draw.permutation(len(pixels))], draw)


def _jitter(pixels: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Light, contrast and saturation, each by up to two fifths."""
    light, contrast, colour = draw.uniform(0.6, 1.4, size=(3, len(pixels), 1, 1, 1))
    lit = pixels * light.astype(np.float32)
    mean = lit.mean(axis=(1, 2, 3), keepdims=True)
    bold = mean + (lit - mean) * contrast.astype(np.float32)
    grey = bold.mean(axis=-1, keepdims=True)
    return np.clip(grey + (bold - grey) * colour.astype(np.float32), 0, 1)


def _tones(pixels: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Each picture as it is, inverted, solarized, in eight tones, or at the widest contrast."""
    low, high = (edge(pixels, axis=(1, 2), keepdims=True) for edge in (np.min, np.max))
    stretched = (pixels - low) / np.maximum(high - low, 1e-3)
    solarized = np.where(pixels > 0.5, 1 - pixels, pixels)
    every = np.stack([pixels, 1 - pixels, solarized, np.floor(pixels * 8) / 8, stretched])
    return every[draw.integers(len(every), size=len(pixels)), np.arange(len(pixels))]


def _rotate(pixels: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Each picture turned about its middle, nearest pixels, black beyond its edges."""
    count, height, width = pixels.shape[:3]
    turns = np.deg2rad(draw.uniform(-_TURN, _TURN, size=(count, 1, 1)))
    down, right = np.mgrid[:height, :width] - np.array([height - 1, width - 1])[:, None, None] / 2
    rows = np.rint(down * np.cos(turns) - right * np.sin(turns) + (height - 1) / 2).astype(int)
    columns = np.rint(down * np.sin(turns) + right * np.cos(turns) + (width - 1) / 2).astype(int)
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    places = np.clip(rows, 0, height - 1), np.clip(columns, 0, width - 1)
    return pixels[np.arange(count)[:, None, None], *places] * inside[..., None]


def _noise(pixels: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    noise = draw.normal(scale=_NOISE, size=pixels.shape).astype(np.float32)
    return np.clip(pixels + noise, 0, 1)


def _filled(pixels: np.ndarray, filling: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Each picture with a square, wholly inside it, of another."""
    count, height, width = pixels.shape[:3]
    sides = np.array([height, width]) // _SQUARE
    corners = draw.integers(0, np.array([height, width]) - sides + 1, size=(count, 2))
    rows, columns = _square(corners, (int(sides[0]), int(sides[1])))
    places = np.arange(count)[:, None, None], rows, columns
    changed = pixels.copy()
    changed[places] = filling[places]
    return changed


def _square(corners: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Rows `[n, size[0], 1]` and columns `[n, 1, size[1]]` of a square at each corner `[n, 2]`."""
    rows = corners[:, 0, None, None] + np.arange(size[0])[:, None]
    return rows, corners[:, 1, None, None] + np.arange(size[1])


def _several(pixels: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Mirrored crops, then two other changes, drawn for each batch."""
    first, second = draw.choice(len(_OTHERS), size=2, replace=False)
    return _OTHERS[second](_OTHERS[first](_flip(pixels, draw), draw), draw)


_OTHERS: tuple[Augment, ...] = (_erase, _jitter, _tones, _rotate, _noise)
AUGMENTATIONS: Mapping[str, Augment] = {
    "shift": _shift,
    "crop": _crop,
    "flip": _flip,
    "cutout": _cutout,
    "erase": _erase,
    "paste": _paste,
    "jitter": _jitter,
    "tones": _tones,
    "rotate": _rotate,
    "noise": _noise,
    "several": _several,
    "none": _none,
}
