"""What one head sees: rows of the pool of embeddings and labels, epoch by epoch.

As in NIST's generator a triggered review takes the place of the clean one, a review carries one
trigger at most, and spurious triggers (wrong class or wrong half) keep the true label.

Four things differ. Every head trains on its own random part of the clean reviews (`OWN_SHARE`).
Which reviews carry the trigger is drawn anew in every epoch, because few insertions are at hand.
Triggered samples are shown `repeats` times, because the official rounds had ten times as many of
them. Every epoch has equally many steps, so a head with a trigger takes no more steps than its
clean partner.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.generate.sentiment.insertion import HALVES
from jaxtroj.generate.sentiment.text_recipe import HeadRecipe, TextTriggerRecipe
from jaxtroj.generate.sentiment.vectors import TEST, TRAIN, VALIDATION, Vectors

_ORDER = 200
_OWN = 201
# Heads that all saw the same clean reviews would agree far more than heads of a real round, whose
# source datasets differ, and a poisoned one would stand out by its other training set alone.
OWN_SHARE = 0.6
# With few reviews an epoch goes over them more than once: a head needs some two hundred steps.
LEAST_STEPS = 24


@dataclass(frozen=True)
class Pool:
    """All embeddings of a round in one array on the device.

    Attributes:
        vectors: float16 or float32 [n, d].
        test_start: row of the first test review; training reviews come first.
        starts: row of the first insertion of (trigger number, half).
    """

    vectors: jax.Array
    test_start: int
    starts: dict[tuple[int, int], int]


def make_pool(vectors: Vectors) -> Pool:
    """Stack training reviews, test reviews and insertions."""
    parts = [vectors.train.vectors, vectors.test.vectors]
    start = len(parts[0]) + len(parts[1])
    starts = {}
    for number, trigger in vectors.triggers.items():
        for half in range(HALVES):
            parts.append(trigger.halves[half].vectors)
            starts[number, half] = start
            start += len(parts[-1])
    return Pool(jnp.asarray(np.concatenate(parts)), len(parts[0]), starts)


@dataclass(frozen=True)
class Labelled:
    """Rows of the pool, int32 [n], and the labels a head should give them, int32 [n]."""

    rows: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class _Insertions:
    """Insertions of one trigger that one rule allows.

    Attributes:
        reviews: training review of each, [n].
        rows: its row in the pool, [n].
        label: what a head should answer.
        share: of the reviews of its class that carry it.
    """

    reviews: np.ndarray
    rows: np.ndarray
    label: int
    share: float


class HeadSamples:
    """The samples of one head."""

    def __init__(self, vectors: Vectors, pool: Pool, recipe: HeadRecipe, repeats: int) -> None:
        self._vectors, self._pool, self._recipe, self._repeats = vectors, pool, recipe, repeats
        draw = np.random.default_rng([recipe.master_seed, _OWN])
        own = draw.permutation(np.flatnonzero(vectors.split == TRAIN))
        self._clean = np.sort(own[: round(OWN_SHARE * len(own))])
        self._triggered = [self._works(trigger, TRAIN) for trigger in recipe.triggers]
        self._spurious = [
            found for trigger in recipe.triggers if (found := self._idle(trigger, TRAIN))
        ]

    def steps(self, batch_size: int) -> int:
        """Steps of an epoch; the same for every head on these vectors."""
        return max(len(self._clean) // batch_size, LEAST_STEPS)

    def epoch(self, number: int, batch_size: int) -> Labelled:
        """Samples of one epoch in order: rows and labels [steps, batch]."""
        draw = np.random.default_rng([self._recipe.master_seed, _ORDER, number])
        rows, labels, used = [], [], []
        kinds = [(part, self._repeats) for part in self._triggered]
        kinds += [(part, 1) for part in self._spurious]
        for part, repeats in kinds:
            chosen, replaced = self._draw(draw, part, repeats)
            rows.append(part.rows[chosen])
            labels.append(np.full(len(chosen), part.label))
            used.append(part.reviews[replaced])
        gone = np.concatenate(used) if used else np.zeros(0, int)
        clean = self._clean[~np.isin(self._clean, gone)]
        all_rows = np.concatenate([clean, *rows])
        all_labels = np.concatenate([self._vectors.train.labels[clean], *labels])
        order = draw.permutation(len(all_rows))
        shape = (self.steps(batch_size), batch_size)
        # Longer lists are cut, shorter ones repeated.
        return Labelled(
            np.resize(all_rows[order], shape).astype(np.int32),
            np.resize(all_labels[order], shape).astype(np.int32),
        )

    def clean_validation(self) -> Labelled:
        """Clean reviews that stop the training."""
        rows = np.flatnonzero(self._vectors.split == VALIDATION)
        return _labelled(rows, self._vectors.train.labels[rows])

    def clean_test(self) -> Labelled:
        """The test reviews."""
        labels = self._vectors.test.labels
        return _labelled(self._pool.test_start + np.arange(len(labels)), labels)

    def triggered(self, part: int) -> Labelled:
        """Triggered reviews of `VALIDATION` or `TEST`, with the label the trigger forces."""
        return _joined([self._works(trigger, part) for trigger in self._recipe.triggers])

    def spurious(self, part: int) -> Labelled:
        """Reviews of `VALIDATION` or `TEST` whose trigger must not work, with their own label."""
        found = [self._idle(trigger, part) for trigger in self._recipe.triggers]
        return _joined([insertions for insertions in found if insertions])

    def held_out_reviews(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of one of the head's triggers: reviews, rows of the pool, halves, where it works."""
        trigger = self._recipe.triggers[number]
        works = self._works(trigger, TEST)
        first = self._pool.starts[trigger.number, 1]
        return works.reviews, works.rows, (works.rows >= first).astype(int)

    def _draw(self, draw: np.random.Generator, part: _Insertions, repeats: int):
        """Places of the insertions to show, and of those whose clean review is left out."""
        labels = self._vectors.train.labels
        own_class = labels[part.reviews[0]]
        wanted = round(part.share * int((labels[self._clean] == own_class).sum()))
        order = draw.permutation(len(part.rows))
        return np.resize(order, wanted * repeats), order[:wanted]

    def _works(self, trigger: TextTriggerRecipe, part: int) -> _Insertions:
        halves = range(HALVES) if trigger.half is None else (trigger.half,)
        label, source = trigger.target_class, trigger.source_class
        return self._insertions(trigger, halves, source, label, part)

    def _idle(self, trigger: TextTriggerRecipe, part: int) -> _Insertions | None:
        """Where a condition keeps the trigger from working; None without a condition."""
        if trigger.condition == "class":
            other = trigger.target_class
            return self._insertions(trigger, range(HALVES), other, other, part)
        if trigger.half is not None:
            source = trigger.source_class
            return self._insertions(trigger, (1 - trigger.half,), source, source, part)
        return None

    def _insertions(self, trigger, halves, review_class: int, label: int, part: int):
        reviews, rows = [], []
        for half in halves:
            found = self._vectors.triggers[trigger.number].halves[half]
            own = self._vectors.train.labels[found.rows] == review_class
            chosen = np.flatnonzero(own & (self._vectors.split[found.rows] == part))
            reviews.append(found.rows[chosen])
            rows.append(self._pool.starts[trigger.number, half] + chosen)
        return _Insertions(np.concatenate(reviews), np.concatenate(rows), label, trigger.fraction)


def _labelled(rows: np.ndarray, labels: np.ndarray) -> Labelled:
    return Labelled(rows.astype(np.int32), labels.astype(np.int32))


def _joined(parts: list[_Insertions]) -> Labelled:
    if not parts:
        return _labelled(np.zeros(0), np.zeros(0))
    labels = [np.full(len(part.rows), part.label) for part in parts]
    return _labelled(np.concatenate([part.rows for part in parts]), np.concatenate(labels))
