"""What the config.json of an image model of Rounds 2 to 4 says: its round, and the cut of pictures.

```
Round 2     {"MODEL_ARCHITECTURE": ..., "CNN_IMG_SIZE_PIXELS": 224, "POISONED": false, ...}
Rounds 3, 4 {"py/object": "round_config.RoundConfig", "cnn_img_size_pixels": 224, ...}
```

A stranger's file: it is read as data, and a value of the wrong type is a problem of its model. The
example pictures of these rounds are larger than what a network takes, which is their middle: 224 of
256 pixels, or as the config says.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters.errors import safe_repr
from converters.files import once_each
from jaxtroj.errors import DatasetError
from jaxtroj.rounds.tables import read_text
from jaxtroj.rounds.text_config import CONFIG_CLASS, MAX_BYTES

ROUNDS_WITH_MARGIN = ("round2", "round3", "round4")
_FEW_EXAMPLES = 5  # Round 4 ships 2 or 5 pictures of a class, Round 3 ships 10 or 20
_MARGIN = 7
SHOWN, TAKEN = 256, 224  # sides of NIST's pictures, and of what its networks take
_SIZES = {"img_size_pixels": 4096, "cnn_img_size_pixels": 4096, "number_classes": 100_000,
          "number_example_images": 100_000}  # fmt: skip


@dataclass(frozen=True)
class ImageConfig:
    """What is used of a config.json; None where it does not say.

    Attributes:
        round: "round2", "round3" or "round4".
        taken: side of the middle that the network takes, pixels.
        classes: how many the network tells apart.
        poisoned: the label.
    """

    round: str
    taken: int | None = None
    classes: int | None = None
    poisoned: bool | None = None


def read_image_config(path: Path) -> ImageConfig | None:
    """The config of an image model of Rounds 2 to 4; None for any other JSON object.

    Raises:
        DatasetError: not a file, too large, not JSON, or a size or label of the wrong type.
    """
    text = read_text(path, MAX_BYTES)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is no model config: {error}") from error
    if not isinstance(content, dict):
        return None
    values = {key.lower(): value for key, value in content.items()}
    round_name = _round(content, values)
    if round_name is None:
        return None
    try:
        json.loads(text, object_pairs_hook=once_each)  # other programs' files may have twins
        sizes = {name: _size(values, name, most) for name, most in _SIZES.items()}
        poisoned = _label(values)
    except ValueError as error:
        raise DatasetError(f"{path} is no model config: {error}") from error
    return ImageConfig(round_name, sizes["cnn_img_size_pixels"], sizes["number_classes"], poisoned)


def shown_side(taken: int) -> int:
    """Side of the example pictures whose middle a network of `taken` pixels takes.

    >>> shown_side(TAKEN) == SHOWN, shown_side(64)
    (True, 74)
    """
    return taken + 2 * round(taken / (2 * _MARGIN))


@dataclass(frozen=True)
class Middle:
    """Which part of its example pictures a network takes.

    Attributes:
        side: of the middle that is cut out, pixels; None for whole pictures.
        note: what a reader should know of that; "" for nothing.
    """

    side: int | None = None
    note: str = ""


def middle_of(
    config: ImageConfig | None, name: str | None, size: tuple[int, int], by_nist: bool = False
) -> Middle:
    """The part of example pictures that a network takes.

    Args:
        config: of the model, if there is one.
        name: of its round, if that is known.
        size: height and width of its examples in pixels.
        by_nist: whether NIST's flags name the model. No other of its rounds has pictures as large
            as those of Rounds 2 to 4, and a server hides the round.
    """
    taken = config.taken if config else None
    has_margin = name in ROUNDS_WITH_MARGIN or (by_nist and size == (SHOWN, SHOWN))
    if taken is None and not has_margin:
        return Middle()
    if taken is None and size == (SHOWN, SHOWN):
        return Middle(TAKEN, f"config.json does not say it: the middle {TAKEN} pixels were taken")
    if taken is None:
        text = f"no config.json says which part of {size[0]} x {size[1]} pixels the network takes"
        return Middle(None, f"{text}; they were taken whole")
    if taken > min(size):
        text = f"the pictures are {size[0]} x {size[1]} pixels, config.json says {taken} are taken"
        return Middle(None, f"{text}; they were taken whole")
    return Middle(taken if (taken, taken) != size else None)


def _round(content: dict[str, Any], values: dict[str, Any]) -> str | None:
    if "cnn_img_size_pixels" not in values:
        return None
    if "CNN_IMG_SIZE_PIXELS" in content:
        return "round2"
    if content.get("py/object") != CONFIG_CLASS:
        return None
    examples = values.get("number_example_images")
    return "round4" if type(examples) is int and examples <= _FEW_EXAMPLES else "round3"


def _size(values: dict[str, Any], name: str, most: int) -> int | None:
    value = values.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 < value <= most:
        raise ValueError(f"{name} is {safe_repr(value)}, expected 1 to {most}")
    return value


def _label(values: dict[str, Any]) -> bool | None:
    value = values.get("poisoned")
    if value is not None and type(value) is not bool:
        raise ValueError(f"poisoned is {safe_repr(value)}, expected true or false")
    return value
