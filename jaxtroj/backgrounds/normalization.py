"""What a network does to pixels before its first layer: (clip(x, 0, 1) - mean) / std."""

import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from converters.errors import safe_repr
from converters.files import read_plain, strict_json
from jaxtroj.errors import UsageError

Triple = tuple[float, float, float]
_MAX_CONFIG_BYTES = 2**20
_CONFIG_KEYS = (("mean", "std"), ("image_mean", "image_std"))


@dataclass(frozen=True)
class Normalization:
    """Mean and standard deviation per RGB channel, of pixels in [0, 1]; `name` says whose."""

    name: str
    mean: Triple
    std: Triple

    def __post_init__(self):
        fine = all(map(math.isfinite, (*self.mean, *self.std))) and min(self.std) > 0
        if len(self.mean) != 3 or len(self.std) != 3 or not fine:
            raise UsageError(
                f"normalization with mean {self.mean} and std {self.std}; expected three finite "
                "numbers each, std above 0"
            )

    def table(self) -> np.ndarray:
        """float32 `[256, 3]`: what each byte of each channel becomes.

        One float32 operation after another, as the published code does. A compiled program may
        multiply by reciprocals instead of dividing; looking values up keeps every bit.
        """
        values = np.arange(256, dtype=np.float32)[:, None] / np.float32(255)
        mean, std = (np.array(part, np.float32) for part in (self.mean, self.std))
        return (np.clip(values, 0, 1) - mean) / std


PUBLISHED = {
    "imagenet": Normalization("imagenet", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "in9": Normalization("in9", (0.4717, 0.4499, 0.3837), (0.2600, 0.2516, 0.2575)),
}
"""The original's two settings: for networks of 1000 classes, and for those of nine (`--in9`)."""
NAMED = {
    **PUBLISHED,
    "half": Normalization("half", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "none": Normalization("none", (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}


def from_config(path: Path) -> Normalization:
    """The normalization in a timm or Hugging Face configuration.

    Args:
        path: JSON with `mean` and `std` (timm's, at the top or under `pretrained_cfg`) or
            `image_mean` and `image_std` (a preprocessor's).
    Raises:
        UsageError: the file cannot be read or does not say.
    """
    try:
        values = strict_json(read_plain(path, _MAX_CONFIG_BYTES + 1))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no configuration: {error}") from error
    for part in (values, values.get("pretrained_cfg") if isinstance(values, dict) else None):
        for mean, std in _CONFIG_KEYS:
            if isinstance(part, dict) and mean in part and std in part:
                return Normalization(
                    f"from {path.name}", _triple(path, part[mean]), _triple(path, part[std])
                )
    raise UsageError(
        f"{path} names no mean and std (image_mean and image_std); use --mean and --std"
    )


def _triple(path: Path, values: object) -> Triple:
    if isinstance(values, list) and len(values) == 3:
        numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
        numbers = [v for v in numbers if abs(v) <= sys.float_info.max]
        if len(numbers) == 3:
            return float(numbers[0]), float(numbers[1]), float(numbers[2])
    raise UsageError(f"{path}: got {safe_repr(values)} as mean or std, expected three numbers")
