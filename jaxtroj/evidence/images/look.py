"""Changes of light, colour and sharpness that all pictures get alike."""

from dataclasses import dataclass, fields

import numpy as np
from scipy.ndimage import gaussian_filter

_BLUR = 0.7  # pixels: deviation of the blur that sharpness is measured by


@dataclass(frozen=True)
class Look:
    """A change of pictures, made in the order of these numbers; 0 leaves what it says as it is.

    Attributes:
        size: log of how much larger things are, about the middle; below 0 edges go on outwards.
        sharpness: what is added of a picture less its blurred self; below 0 it is blurred.
        contrast: log of the factor of distances from each picture's mean.
        gamma: log of the power that values from 0 to 1 are raised to.
        black: the value that becomes black, where white stays; below 0 black becomes lighter.
        light: log of the factor of all values.
        red: log of the factor of red; pictures of one channel have none, nor blue.
        blue: log of the factor of blue.
    """

    size: float = 0.0
    sharpness: float = 0.0
    contrast: float = 0.0
    gamma: float = 0.0
    black: float = 0.0
    light: float = 0.0
    red: float = 0.0
    blue: float = 0.0

    def of(self, images: np.ndarray) -> np.ndarray:
        """Pictures `[n, h, w, c]` in [0, 1] with this change; `c` is 1, or 3 for RGB."""
        if self.size:
            images = _enlarged(images, float(np.exp(self.size)))
        if self.sharpness:
            soft = gaussian_filter(images, (0, _BLUR, _BLUR, 0))
            images = images + self.sharpness * (images - soft)
        means = images.mean(axis=(1, 2, 3), keepdims=True)
        images = np.clip(means + np.exp(self.contrast) * (images - means), 0, 1)
        images = (images ** np.exp(self.gamma) - self.black) / (1 - self.black)
        images = images * np.exp(self._logs(images.shape[-1]))
        return np.clip(images, 0, 1).astype(np.float32)

    def _logs(self, channels: int) -> np.ndarray:
        """Of the factor of each channel."""
        own = [self.red, 0.0, self.blue] if channels == 3 else [0.0] * channels
        return self.light + np.array(own)

    def __str__(self) -> str:
        said = {
            "size": f"{np.exp(self.size):.2f} times as large",
            "sharpness": f"sharpness {self.sharpness:+.1f}",
            "contrast": f"{np.exp(self.contrast):.2f} times the contrast",
            "gamma": f"gamma {np.exp(self.gamma):.2f}",
            "black": f"black from {self.black:.2f}",
            "light": f"{np.exp(self.light):.2f} times as light",
            "red": f"red {np.exp(self.red):.2f} times",
            "blue": f"blue {np.exp(self.blue):.2f} times",
        }
        return ", ".join(said[one.name] for one in fields(self) if getattr(self, one.name))


def _enlarged(images: np.ndarray, factor: float) -> np.ndarray:
    """Pictures enlarged about their middle, by cubic convolution."""
    high, wide = (_between(side, factor) for side in images.shape[1:3])
    return np.einsum("ij,njkc,lk->nilc", high, images, wide, optimize=True)


def _between(side: int, factor: float) -> np.ndarray:
    """What each old pixel of a line counts in each new one, `[side, side]`; rows sum to 1.

    Reference:
        Keys, Cubic convolution interpolation for digital image processing, 1981, a = -1/2.
    """
    middle, pixels = (side - 1) / 2, np.arange(side)
    places = (middle + (pixels - middle) / factor).clip(0, side - 1)
    far = np.abs(places[:, None] - pixels)
    near, next_ = 1.5 * far**3 - 2.5 * far**2 + 1, -0.5 * far**3 + 2.5 * far**2 - 4 * far + 2
    weights = np.where(far < 1, near, np.where(far < 2, next_, 0))
    return weights / weights.sum(axis=1, keepdims=True)
