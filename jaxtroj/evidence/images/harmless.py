"""Changes of pictures that say nothing of a trojan: what light does, and how people augment.

Batch norms remember the training pictures as the network saw them. Most networks are taught
pictures that were moved, cropped, cut, turned or mixed, and clean examples lack that as they lack a
trigger. Few triggers look like these, so a search for one counts their directions for nothing.

References:
  Krizhevsky et al., ImageNet Classification with Deep CNNs, NIPS 2012 (moved and enlarged crops).
  DeVries & Taylor, Cutout, https://arxiv.org/abs/1708.04552.
  Zhong et al., Random Erasing, https://arxiv.org/abs/1708.04896.
  Yun et al., CutMix, https://arxiv.org/abs/1905.04899.
  Zhang et al., mixup, https://arxiv.org/abs/1710.09412.
"""

from collections.abc import Iterator

import numpy as np

_TURN = 12.0  # degrees
_MOVED, _SMALL, _LARGE = 8, 4, 2  # parts of a side: of a move, and of the squares
_ENLARGED = 0.8  # of a side that is left


def harmless_changes(images: np.ndarray, draw: np.random.Generator) -> list[np.ndarray]:
    """The pictures `[n, h, w, c]` in [0, 1] after each change, of the same shape and range."""
    changes = (*_of_light(images, draw), *_of_place(images), *_of_parts(images, draw))
    return [np.clip(one, 0, 1).astype(np.float32) for one in changes]


def _of_light(images: np.ndarray, draw: np.random.Generator) -> Iterator[np.ndarray]:
    """Light, contrast, gamma, noise, blur, colours that fade."""
    mean = images.mean(axis=(1, 2), keepdims=True)
    near = [np.roll(images, move, axis) for axis in (1, 2) for move in (-1, 1)]
    yield from (0.7 * images, 1.3 * images, mean + 0.7 * (images - mean))
    yield from (images**1.4, images**0.7)
    yield images + 0.06 * draw.standard_normal(images.shape)
    yield (images + sum(near)) / 5
    yield 0.5 * images + 0.5 * images.mean(axis=-1, keepdims=True)


def _of_place(images: np.ndarray) -> Iterator[np.ndarray]:
    """Mirrored, moved with and without a black edge, enlarged, turned."""
    height, width = images.shape[1:3]
    yield images[:, :, ::-1]
    yield from (np.roll(images, 2, axis=1), np.roll(images, -2, axis=2))
    down, right = np.mgrid[:height, :width].astype(np.float64)
    for by in (max(1, height // _MOVED), -max(1, height // _MOVED)):
        yield _taken(images, down + by, right)
    for by in (max(1, width // _MOVED), -max(1, width // _MOVED)):
        yield _taken(images, down, right + by)
    middle = (height - 1) / 2, (width - 1) / 2
    down, right = down - middle[0], right - middle[1]
    yield _taken(images, _ENLARGED * down + middle[0], _ENLARGED * right + middle[1])
    for turn in np.deg2rad((_TURN, -_TURN)):
        rows = down * np.cos(turn) - right * np.sin(turn) + middle[0]
        yield _taken(images, rows, down * np.sin(turn) + right * np.cos(turn) + middle[1])


def _of_parts(images: np.ndarray, draw: np.random.Generator) -> Iterator[np.ndarray]:
    """Squares of black, of noise and of another picture, on the picture or a crop of it; mixtures.

    What a change of a change does to batch norms is not the sum of both.
    """
    cropped = _cropped(images, draw)
    yield cropped
    for pictures in (images, cropped):
        others = pictures[draw.permutation(len(images))]
        for filling, part in (
            (np.zeros_like(images), _SMALL),
            (np.zeros_like(images), _LARGE),
            (draw.random(images.shape, np.float32), _SMALL),
            (others, _SMALL),
        ):
            yield np.where(_squares(images.shape, part, draw), filling, pictures)
        yield 0.5 * pictures + 0.5 * others


def _cropped(images: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Each picture moved on its own, black beyond its edges."""
    height, width = images.shape[1:3]
    reach = max(1, height // _MOVED), max(1, width // _MOVED)
    down, right = np.mgrid[:height, :width]
    corners = zip(*(draw.integers(-r, r + 1, size=len(images)) for r in reach), strict=True)
    moved = [
        _taken(image[None], down + row, right + column)
        for image, (row, column) in zip(images, corners, strict=True)
    ]
    return np.concatenate(moved)


def _taken(images: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Pixels from places `[h, w]`, the nearest; black beyond the edge."""
    rows, columns = (np.rint(places).astype(int) for places in (rows, columns))
    height, width = images.shape[1:3]
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    places = np.clip(rows, 0, height - 1), np.clip(columns, 0, width - 1)
    return images[:, *places] * inside[..., None]


def _squares(shape: tuple[int, ...], part: int, draw: np.random.Generator) -> np.ndarray:
    """Where each picture has a square of a part of its sides, bool `[n, h, w, 1]`."""
    inside = []
    for length in shape[1:3]:
        side = max(1, length // part)
        first = draw.integers(0, length - side + 1, size=(shape[0], 1))
        places = np.arange(length)
        inside.append((places >= first) & (places < first + side))
    return (inside[0][:, :, None] & inside[1][:, None, :])[..., None]
