"""What to expect of the shipped calibrators: the tables of docs/measurements.md.

Each network is judged by a fit that has met no network of its population: those of
`benchmarks.accuracy.zoo` by a fit on the other populations, those of `benchmarks.accuracy.fresh`,
which are in no fit, by the calibrators that ship. Nothing is scanned or fitted here: probabilities
are taken as `zoo.json` and `fresh.json` have them, and grouped by what the rows beside these say of
each network. `python -m benchmarks.tables` writes the tables.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.accuracy.picture_rows import PictureRow, read_rows
from benchmarks.provenance import RESULTS
from benchmarks.suite import read_result
from jaxtroj import scoring
from jaxtroj.generate.zoo.pretrained import TUNED
from jaxtroj.generate.zoo.unsearched import UNSEARCHED
from jaxtroj.numerics import is_above

Rows = list[tuple[str, ...]]
BINS = (0.0, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95, 1.0)
"""Borders of the bins of probability; a bin holds its upper border."""
_LIGHT = ("none", "shift", "flip")
_STRONG = "crop cutout erase paste rotate tones jitter noise several".split()
_FEW = ("one", "two")
_FREQUENT_LEFT_OUT = 8  # revision of the evidence from which frequent classes are left out


@dataclass(frozen=True)
class Judged:
    """A network, and what a fit without its population says of it, 0 to 1."""

    row: PictureRow
    said: float

    def is_augmented(self, ways: Container[str]) -> bool:
        """Whether its training pictures were changed in one of these ways."""
        return self.row.augmentation in ways

    @property
    def is_of_photos(self) -> bool:
        """Whether it classifies photos, whose classes are unequal."""
        return self.row.dataset.startswith("photos")

    @property
    def has_old_evidence(self) -> bool:
        """Whether stages looked at it that took frequent classes like all others."""
        return self.row.revision < _FREQUENT_LEFT_OUT


Group = tuple[str, Callable[[Judged], bool]]
NETWORKS: tuple[Group, ...] = (
    ("all", lambda one: True),
    ("batch norms, up to 32 px", lambda one: one.row.has_norms and one.row.side <= 32),
    ("batch norms, 48 to 80 px", lambda one: one.row.has_norms and 32 < one.row.side <= 80),
    ("batch norms, 112 and 224 px", lambda one: one.row.has_norms and one.row.side > 80),
    ("no batch norms in the file", lambda one: not one.row.has_norms),
    ("training pictures as they are, moved or mirrored", lambda one: one.is_augmented(_LIGHT)),
    ("cropped, cut out, erased, turned, recoloured, noisy", lambda one: one.is_augmented(_STRONG)),
    ("labels softened (mixup, CutMix, smoothing)", lambda one: one.row.labels not in ("", "hard")),
    ("tuned from pretrained networks, 112 and 224 px", lambda one: one.row.training == TUNED),
    (
        "of these on photos, one class frequent, before revision 8",
        lambda one: one.is_of_photos and one.has_old_evidence,
    ),
    (
        "the same, by revision 8 and later ones",
        lambda one: one.is_of_photos and not one.has_old_evidence,
    ),
    ("classes made unequal", lambda one: one.row.class_shares in ("lead", "step", "tail")),
    ("learning rate that never fell", lambda one: one.row.schedule in ("adam", "constant")),
    ("adversarially trained, like Round 3", lambda one: one.row.dataset == "round3"),
    ("the same with conditional triggers, like Round 4", lambda one: one.row.dataset == "round4"),
    ("five classes (of Rounds 1 and 3)", lambda one: one.row.classes == 5),
    ("ResNet50, DenseNet121, Inception v3, like Round 1", lambda one: one.row.dataset == "round1"),
    ("CIFAR-10", lambda one: one.row.dataset == "cifar10"),
    ("GTSRB", lambda one: one.row.dataset == "gtsrb"),
    ("Fashion-MNIST", lambda one: one.row.dataset == "fashion"),
    ("signs on roads", lambda one: one.row.dataset.startswith("roads")),
)
KINDS = (
    *("patch", "pixels", "polygon", "moving", "border"),
    *("blend", "filter", "colour map", "sinusoid", "warp"),
)


def probabilities() -> Rows:
    """Bins of probability, and how many of their networks are poisoned."""
    rows = []
    for low, high in zip(BINS, BINS[1:], strict=False):
        own = [one for one in networks() if low < one.said <= high]
        rows.append((f"{low:g} to {high:g}", _of(own, lambda one: one.row.poisoned)))
    return rows


def by_network() -> Rows:
    """Groups of networks: how many, found, accused, log score and ROC AUC."""
    return [(label, *_scored([o for o in networks() if holds(o)])) for label, holds in NETWORKS]


def by_trigger() -> Rows:
    """Triggers by source classes and kind; scores of the poisoned, ranked among all clean ones."""
    groups = [("any kind", lambda kind: True), *((k, k.__eq__) for k in KINDS)]
    groups.append(("kinds that nobody looks for", UNSEARCHED.__contains__))
    clean = [one for one in networks() if not one.row.poisoned]
    rows = []
    for label, holds in groups:
        own = [one for one in networks() if one.row.poisoned and holds(one.row.kind)]
        found = (_found([o for o in own if o.row.sources in part]) for part in (("all",), _FEW))
        said, truth = _arrays([*own, *clean])
        score = float(scoring.log_score(*_arrays(own)))
        rows.append((label, *found, f"{score:.2f}", f"{scoring.roc_auc(said, truth):.2f}"))
    return rows


@cache
def networks() -> Sequence[Judged]:
    """Every network of `zoo.json` and `fresh.json`, in their order."""
    left_out = read_result(RESULTS / "zoo.json")["predictions_left_out"]["population"]
    said = {name: probability for name, (probability, _) in left_out.items()}
    for population, found in read_result(RESULTS / "fresh.json")["populations"].items():
        said |= {f"{population}/{one['model']}": one["probability"] for one in found["networks"]}
    rows = [*_rows("zoo"), *_rows("fresh")]
    return [Judged(row, said[f"{row.population}/{row.model}"]) for row in rows]


def _rows(name: str) -> list[PictureRow]:
    return read_rows(RESULTS / f"{name}.evidence.jsonl", Path())


def _scored(own: Sequence[Judged]) -> tuple[str, ...]:
    poisoned = [one for one in own if one.row.poisoned]
    clean = [one for one in own if not one.row.poisoned]
    said, truth = _arrays(own)
    scores = f"{scoring.log_score(said, truth):.2f}", f"{scoring.roc_auc(said, truth):.2f}"
    return str(len(own)), _found(poisoned), _found(clean), *scores


def _found(own: Sequence[Judged]) -> str:
    return _of(own, lambda one: bool(is_above(one.said)))


def _of(own: Sequence[Judged], holds: Callable[[Judged], bool]) -> str:
    return f"{sum(map(holds, own))} of {len(own)}" if own else ""


def _arrays(own: Sequence[Judged]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([one.said for one in own]), np.array([one.row.poisoned for one in own])
