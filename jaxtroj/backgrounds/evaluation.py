"""Accuracy of networks on the variants of ImageNet-9."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from converters.errors import ConverterError
from jaxtroj.backgrounds.classifier import Classifier
from jaxtroj.backgrounds.head import PUBLISHED_SHA256
from jaxtroj.backgrounds.layout import (
    AS_IS,
    CLASSES,
    PUBLISHED_COUNT,
    PUBLISHED_SIZE,
    VARIANTS,
    Reading,
    list_variant,
    load_variant,
)
from jaxtroj.errors import JaxtrojError, UsageError


@dataclass(frozen=True)
class VariantScore:
    """Answers to one variant.

    Attributes:
        variant: its name.
        counts: `counts[true][predicted + 1]`, pictures; the first column is none of the nine.
        size: height and width in pixels.
    """

    variant: str
    counts: tuple[tuple[int, ...], ...]
    size: tuple[int, int]

    @property
    def pictures(self) -> int:
        """Pictures in the variant."""
        return sum(map(sum, self.counts))

    @property
    def accuracy(self) -> float:
        """Share right, in [0, 1]."""
        return sum(row[i + 1] for i, row in enumerate(self.counts)) / self.pictures

    @property
    def per_class(self) -> dict[str, float]:
        """Share right of each class, in [0, 1]."""
        return {CLASSES[i]: row[i + 1] / sum(row) for i, row in enumerate(self.counts)}

    @property
    def outside(self) -> float:
        """Share of predictions outside the nine classes, in [0, 1]."""
        return sum(row[0] for row in self.counts) / self.pictures


def bg_gap(scores: Mapping[str, VariantScore]) -> float | None:
    """Accuracy on mixed_same less that on mixed_rand; None without both."""
    if "mixed_same" not in scores or "mixed_rand" not in scores:
        return None
    return scores["mixed_same"].accuracy - scores["mixed_rand"].accuracy


def check_variants(variants: Sequence[str]) -> tuple[str, ...]:
    """The variants asked for. Raises UsageError for an unknown one, or one that is there twice."""
    odd = [name for name in variants if name not in VARIANTS]
    if odd or len(set(variants)) != len(variants) or not variants:
        raise UsageError(
            f"variants {', '.join(variants) or 'none'}; expected different ones of "
            f"{', '.join(VARIANTS)}"
        )
    return tuple(variants)


def evaluate(
    classifiers: Mapping[str, Classifier],
    data: Path,
    variants: Sequence[str] = VARIANTS,
    reading: Reading = AS_IS,
    on_failure: Callable[[str, Exception], None] | None = None,
) -> Iterator[tuple[str, VariantScore]]:
    """Classifies every picture of the variants with every network.

    Args:
        classifiers: by name; all are run over a variant while it is in memory.
        data: folder of an ImageNet-9 data set; all variants are listed before any is read.
        variants: some of `VARIANTS`.
        reading: how pictures are read.
        on_failure: told name and error of a network that fails, which is left out from then on;
            None raises the error.
    Yields:
        Name of the network, and its score on one variant.
    Raises:
        DatasetError: see `layout.load_variant`.
        UsageError, EvidenceError: see `Classifier.classify`.
    """
    for variant in check_variants(variants):
        list_variant(Path(data), variant)
    left = dict(classifiers)
    for variant in variants:
        pictures = load_variant(data, variant, reading)
        height, width = pictures.images.shape[1:3]
        for name in list(left):
            try:
                predicted = left[name].classify(pictures.images)
            except (JaxtrojError, ConverterError) as error:
                if on_failure is None:
                    raise
                del left[name]
                on_failure(name, error)
                continue
            table = _counted(pictures.labels, predicted)
            yield name, VariantScore(variant, table, (height, width))


def _counted(labels: np.ndarray, predicted: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """See `VariantScore.counts`."""
    counts = np.zeros((len(CLASSES), len(CLASSES) + 1), int)
    np.add.at(counts, (labels, predicted + 1), 1)
    return tuple(tuple(map(int, row)) for row in counts)


def reservations(
    size: tuple[int, int], pictures: int, reading: Reading, description: Mapping[str, Any]
) -> list[str]:
    """Why figures are not comparable with published ones; empty if they are.

    Args:
        size: height and width of the pictures.
        pictures: how many there are.
        reading: how they were read.
        description: of the network, see `Candidate.describe`.
    """
    notes = _of_head(description)
    if reading.resize is not None:
        notes.append(f"pictures were stretched to {reading.resize} x {reading.resize} pixels")
    elif size != PUBLISHED_SIZE:
        notes.append(f"pictures are {size[1]} x {size[0]} pixels, the published ones 224 x 224")
    if reading.convert_grayscale:
        notes.append("grayscale pictures were converted to RGB")
    if pictures != PUBLISHED_COUNT:
        notes.append(f"{pictures} pictures, the published set has {PUBLISHED_COUNT}")
    return notes


def _of_head(description: Mapping[str, Any]) -> list[str]:
    """The reservations about how logits become classes."""
    notes = []
    if description["mapping_sha256"] not in ("", PUBLISHED_SHA256):
        notes.append("the mapping is not the published one")
    if description["restricted_to_mapped"]:
        notes.append("only the mapped classes competed")
    return notes
