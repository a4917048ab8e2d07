"""Clean examples, divided: some to repair with, the others to measure on."""

from dataclasses import dataclass

import numpy as np

from jaxtroj.errors import ExamplesError
from jaxtroj.rounds.example_names import UNKNOWN_LABEL

LEAST_PER_CLASS = 2
ASKED_PER_CLASS = 20
"""With so many examples of a class repair was measured; see docs/repair.md."""


@dataclass(frozen=True)
class Labelled:
    """Pictures `[n, h, w, c]` in [0, 1] with their true classes, int `[n]`."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class RepairData:
    """What is learnt from and what is measured on; no picture is in both."""

    learn: Labelled
    held: Labelled

    @property
    def in_words(self) -> str:
        """How many examples there are, and whether these are few."""
        classes = len(np.unique(self.learn.labels))
        each = (len(self.learn) + len(self.held)) / classes
        few = "" if each >= ASKED_PER_CLASS else f"; {ASKED_PER_CLASS} of each class are asked for"
        return f"{len(self.learn)} examples to learn from, {len(self.held)} held out{few}"


def divided(images: np.ndarray, labels: np.ndarray) -> RepairData:
    """The first half of each class to learn from, the second to measure on.

    Searches for triggers look at the first examples of each class: 4 (of networks of two, three
    and four classes 16, 8 and 6), and with batch norms 160 in all. So no search has seen the
    second half where there are twice as many.

    Args:
        images: float32 `[n, h, w, c]` in [0, 1].
        labels: int `[n]`, -1 where the class is not known; those are left out.

    Raises:
        ExamplesError: a class has fewer than two examples, or no class is known.
    """
    known = np.unique(labels[labels != UNKNOWN_LABEL])
    counts = {int(c): int((labels == c).sum()) for c in known}
    few = [c for c, count in counts.items() if count < LEAST_PER_CLASS]
    if len(known) < 2 or few:
        raise ExamplesError(
            f"repair needs {LEAST_PER_CLASS} labelled examples of each class at the very least, and"
            f" {ASKED_PER_CLASS} to be worth it; got"
            f" {f'one of class {few[0]}' if few else f'{len(known)} classes'}"
        )
    learn = np.zeros(len(labels), bool)
    held = np.zeros(len(labels), bool)
    for label in known:
        places = np.flatnonzero(labels == label)
        half = (len(places) + 1) // 2
        learn[places[:half]], held[places[half:]] = True, True
    return RepairData(Labelled(images[learn], labels[learn]), Labelled(images[held], labels[held]))
