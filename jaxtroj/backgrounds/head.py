"""From a network's logits to the nine classes: which logits stand for which class.

The size of the head decides: nine logits are the classes themselves, a thousand are ImageNet's and
need the mapping file `in_to_in9.json` of the Backgrounds Challenge. That file states no licence, so
it is not part of this package.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from converters.errors import safe_repr
from converters.files import read_plain, strict_json
from jaxtroj.backgrounds.layout import CLASSES
from jaxtroj.errors import UsageError

NO_CLASS = -1
IMAGENET = 1000
PUBLISHED_SHA256 = "5b72ab44c804129744f5dff9372d8048c3b85da38d48385d73686ee0b0e7b638"
_MAX_BYTES = 2**20


@dataclass(frozen=True)
class Mapping:
    """A read mapping file: int32 `[1000]` of -1 (none) to 8, and the digest of its bytes."""

    class_of: np.ndarray
    sha256: str

    @property
    def is_published(self) -> bool:
        """Whether it is the file that published figures were made with."""
        return self.sha256 == PUBLISHED_SHA256


@dataclass(frozen=True)
class Head:
    """How one network's logits are read.

    Attributes:
        class_of: int32 `[logits]`, class of each logit, -1 for none of the nine.
        restricted: only logits of the nine classes compete. The published way is not: a winner
            outside the nine classes is a wrong answer.
        mapping_sha256: digest of the mapping file, empty for a head of nine.
    """

    class_of: np.ndarray
    restricted: bool = False
    mapping_sha256: str = ""

    def offsets(self) -> np.ndarray:
        """float32 `[logits]`, added before the largest is taken: 0, or -inf for those left out."""
        left_out = (self.class_of == NO_CLASS) & self.restricted
        return np.where(left_out, -np.inf, 0.0).astype(np.float32)


def head_for(
    num_classes: int, mapping: Mapping | None = None, restricted: bool = False, in9: bool = False
) -> Head:
    """The head of a network with so many logits.

    Args:
        num_classes: logits of the network.
        mapping: needed for 1000 logits, see `read_mapping`; not used for nine.
        restricted: see `Head`; only with 1000 logits.
        in9: the caller expects nine logits.
    Raises:
        UsageError: the size of the head contradicts what was asked for, or is neither.
    """
    if num_classes not in (len(CLASSES), IMAGENET):
        raise UsageError(
            f"the network has {num_classes} classes; expected 9 (ImageNet-9) or 1000 (ImageNet)"
        )
    if num_classes == IMAGENET:
        if in9:
            raise UsageError("--in9 expects a network of 9 classes, this one has 1000")
        if mapping is None:
            raise UsageError(
                "a network of 1000 classes needs --mapping FILE: in_to_in9.json of the "
                "Backgrounds Challenge"
            )
        return Head(mapping.class_of, restricted, mapping.sha256)
    if restricted:
        raise UsageError("--restrict-to-mapped is for networks of 1000 classes, this one has 9")
    return Head(np.arange(len(CLASSES), dtype=np.int32))


def read_mapping(path: Path) -> Mapping:
    """Reads `in_to_in9.json`: keys "0" to "999", values -1 to 8.

    Raises:
        UsageError: it cannot be read or is no such table.
    """
    try:
        content = read_plain(path, _MAX_BYTES)
        values = strict_json(content)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no mapping of classes: {error}") from error
    if not isinstance(values, dict) or set(values) != {str(i) for i in range(IMAGENET)}:
        raise UsageError(f'{path}: expected one JSON object with the keys "0" to "999"')
    for key, value in values.items():
        if type(value) is not int or not NO_CLASS <= value < len(CLASSES):
            raise UsageError(f"{path}: class {key} goes to {safe_repr(value)}, expected -1 to 8")
    class_of = np.array([values[str(i)] for i in range(IMAGENET)], np.int32)
    if set(range(len(CLASSES))) - set(class_of.tolist()):
        raise UsageError(f"{path}: some of the nine classes have no class of ImageNet")
    return Mapping(class_of, hashlib.sha256(content).hexdigest())
