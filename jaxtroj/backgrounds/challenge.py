"""The Backgrounds Challenge: which foregrounds some background makes the network misclassify.

The number is exact: every foreground is put on every background of `only_bg_t`, those of its own
class and its own picture included, and one wrong answer of any kind makes it vulnerable. Only work
that cannot change the number is left out: a foreground that was fooled once is not tried again, and
its place in the batch goes to another.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from jaxtroj.backgrounds import order
from jaxtroj.backgrounds.classifier import Classifier, Judged, Resident
from jaxtroj.backgrounds.layout import CLASSES, ChallengeData

UNTRIED = -128
"""In a matrix of answers: this pair was not needed."""
_SAFETY = 4.0


class Pairs(NamedTuple):
    """Answers to some pairs, each `[n]`: indices, and the class predicted (-1 for none)."""

    foregrounds: np.ndarray
    backgrounds: np.ndarray
    predicted: np.ndarray


@dataclass(frozen=True)
class Plan:
    """What is asked for.

    Attributes:
        chosen: indices of the backgrounds that take part; all of them for the exact number.
        every_pair: answer every pair, for the matrix, instead of stopping at the first failure.
        adaptive: order backgrounds by how many they fooled; else as sorted.
        recheck_margin: answers of a smaller margin are computed again by the precise classifier.
        depth: batches under way at once; two keep an accelerator busy.
    """

    chosen: np.ndarray
    every_pair: bool = False
    adaptive: bool = True
    recheck_margin: float = 0.0
    depth: int = 1


@dataclass(frozen=True)
class State:
    """Where a search stands.

    Attributes:
        fresh: pairs answered since the last state.
        vulnerable, decided, foregrounds: how many foregrounds were fooled, need no more pairs, and
            are there.
        passes: forward passes of pairs so far, in this run.
        rechecked: how many of these were second, precise ones.
        most_left: pairs that may still be needed, at most.
    """

    fresh: Pairs
    vulnerable: int
    decided: int
    foregrounds: int
    passes: int
    rechecked: int
    most_left: int


def choose_backgrounds(data: ChallengeData, count: int | None) -> np.ndarray:
    """Indices of `count` backgrounds, as evenly over the classes as can be; all for None.

    Keyed by the names, so a larger choice holds every smaller one.
    """
    names, labels = data.backgrounds.names, data.backgrounds.labels
    if count is None or count >= len(names):
        return np.arange(len(names))
    keys = [hashlib.sha256(n.encode("utf-8", "surrogateescape")).hexdigest() for n in names]
    ranks = np.empty(len(names), int)
    for label in range(len(CLASSES)):
        of_class = np.flatnonzero(labels == label)
        ranks[sorted(of_class, key=keys.__getitem__)] = np.arange(len(of_class))
    chosen = sorted(range(len(names)), key=lambda i: (ranks[i], labels[i]))[:count]
    return np.sort(np.array(chosen))


def measured_margin(fast: Classifier, precise: Classifier, data: Resident) -> float:
    """A margin below which the fast classifier's answers are checked.

    Four times the largest difference between the margins of both over one batch of pairs. It is
    measured on a sample, so it makes a flipped answer improbable, not impossible.
    """
    count = fast.batch(data.backgrounds)
    places = np.arange(count)
    foregrounds = places * len(data.labels) // count
    backgrounds = places * 7919 % len(data.backgrounds)
    margins = [c.judge(data, foregrounds, backgrounds)().margin for c in (fast, precise)]
    return float(_SAFETY * np.abs(margins[0] - margins[1]).max())


def search(
    classifier: Classifier,
    data: Resident,
    plan: Plan,
    earlier: Pairs | None = None,
    precise: Classifier | None = None,
) -> Iterator[State]:
    """Answers pairs until every foreground is decided; yields after each batch.

    Args:
        classifier: answers the pairs.
        data: on the device.
        plan: see there.
        earlier: answers of an interrupted search, not computed again.
        precise: answers what `plan.recheck_margin` calls uncertain; needed with a margin above 0.
    Raises:
        EvidenceError, UsageError: see `Classifier.judge`.
    """
    ledger = _Ledger(np.asarray(data.labels), len(data.backgrounds), plan)
    if earlier is not None:
        ledger.recall(earlier)
    yield ledger.state(earlier if earlier is not None else _NONE)
    pipeline = _Pipeline(classifier, precise, data, ledger, plan)
    while (fresh := pipeline.advance()) is not None:
        yield ledger.state(fresh)


def plan_depth() -> int:
    """Batches under way at once that suit the device."""
    return 1 if jax.default_backend() == "cpu" else 2


class _Ledger:
    """Which pairs are taken and answered, and what follows for the foregrounds."""

    def __init__(self, labels: np.ndarray, backgrounds: int, plan: Plan):
        self.labels, self.plan = labels, plan
        self.taken = np.ones((len(labels), backgrounds), bool)
        self.taken[:, plan.chosen] = False
        self.tries = np.zeros(len(labels), int)
        self.answered = np.zeros(len(labels), int)
        self.vulnerable = np.zeros(len(labels), bool)
        self.tally = order.OrderTally(len(CLASSES), backgrounds)
        self.sorted = order.as_sorted(len(CLASSES), backgrounds)
        self.passes = self.rechecked = 0

    def live(self) -> np.ndarray:
        """Foregrounds that have pairs to try."""
        left = self.tries < len(self.plan.chosen)
        return np.flatnonzero(left if self.plan.every_pair else left & ~self.vulnerable)

    def take(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The next pairs, at most `count`; they are not offered again."""
        live = self.live()
        shares = order.shared_out(live, self.tries, count)
        live, shares = live[shares > 0], shares[shares > 0]
        if not len(live):
            return _NONE.foregrounds, _NONE.backgrounds
        adaptive = self.plan.adaptive and not self.plan.every_pair
        promise = self.tally.promise() if adaptive else self.sorted
        # Noise changes how many passes it takes, not the number. It is keyed by the pairs taken, so
        # that a resumed search goes on as it would have.
        random = np.random.default_rng(int(self.tries.sum()))
        chosen = order.best_free(promise, self.labels[live], self.taken[live], shares, random)
        backgrounds = np.concatenate(chosen)
        foregrounds = np.repeat(live, [len(found) for found in chosen])
        self.taken[foregrounds, backgrounds] = True
        np.add.at(self.tries, foregrounds, 1)
        return foregrounds, backgrounds

    def recall(self, earlier: Pairs) -> None:
        """Take over the answers of an earlier search."""
        self.taken[earlier.foregrounds, earlier.backgrounds] = True
        np.add.at(self.tries, earlier.foregrounds, 1)
        self.enter(earlier)

    def enter(self, pairs: Pairs) -> None:
        """Note final answers."""
        labels = self.labels[pairs.foregrounds]
        fooled = pairs.predicted != labels
        self.tally.add(labels, pairs.backgrounds, fooled)
        self.vulnerable[pairs.foregrounds[fooled]] = True
        np.add.at(self.answered, pairs.foregrounds, 1)

    def state(self, fresh: Pairs) -> State:
        total = len(self.plan.chosen)
        open_ = self.answered < total
        open_ &= self.plan.every_pair | ~self.vulnerable
        return State(
            fresh=fresh,
            vulnerable=int(self.vulnerable.sum()),
            decided=int((~open_).sum()),
            foregrounds=len(self.labels),
            passes=self.passes,
            rechecked=self.rechecked,
            most_left=int((total - self.answered[open_]).sum()),
        )


class _Pipeline:
    """Batches under way, and uncertain answers that wait until they fill a batch."""

    def __init__(self, classifier, precise, data: Resident, ledger: _Ledger, plan: Plan):
        self.classifier, self.precise, self.data = classifier, precise, data
        self.ledger, self.plan = ledger, plan
        self.size = classifier.batch(data.backgrounds)
        self.under_way: list = []
        self.uncertain = _NONE

    def advance(self) -> Pairs | None:
        """Final answers of one more batch; None when there is nothing left."""
        while len(self.under_way) < self.plan.depth and self._start():
            pass
        full = len(self.uncertain.foregrounds) >= self.size
        if len(self.uncertain.foregrounds) and (full or not self.under_way):
            fresh = self._recheck()
        elif self.under_way:
            fresh = self._finish(*self.under_way.pop(0))
        else:
            return None
        self.ledger.enter(fresh)
        return fresh

    def _start(self) -> bool:
        foregrounds, backgrounds = self.ledger.take(self.size)
        if len(foregrounds):
            answers = self.classifier.judge(self.data, foregrounds, backgrounds)
            self.under_way.append((foregrounds, backgrounds, answers))
            self.ledger.passes += len(foregrounds)
        return bool(len(foregrounds))

    def _finish(self, foregrounds, backgrounds, answers) -> Pairs:
        judged: Judged = answers()
        pairs = Pairs(foregrounds, backgrounds, judged.predicted)
        unsure = np.abs(judged.margin) < self.plan.recheck_margin
        self.uncertain = _joined(self.uncertain, _where(pairs, unsure))
        return _where(pairs, ~unsure)

    def _recheck(self) -> Pairs:
        first, self.uncertain = _split(self.uncertain, self.size)
        # A foreground that another pair has decided since needs no second look.
        if not self.plan.every_pair:
            first = _where(first, ~self.ledger.vulnerable[first.foregrounds])
        if not len(first.foregrounds):
            return first
        answers = self.precise.judge(self.data, first.foregrounds, first.backgrounds)()
        self.ledger.passes += len(first.foregrounds)
        self.ledger.rechecked += len(first.foregrounds)
        return first._replace(predicted=answers.predicted)


_NONE = Pairs(np.zeros(0, int), np.zeros(0, int), np.zeros(0, np.int8))


def _where(pairs: Pairs, chosen: np.ndarray) -> Pairs:
    return Pairs(*(part[chosen] for part in pairs))


def _joined(first: Pairs, second: Pairs) -> Pairs:
    return Pairs(*(np.concatenate(parts) for parts in zip(first, second, strict=True)))


def _split(pairs: Pairs, count: int) -> tuple[Pairs, Pairs]:
    return Pairs(*(p[:count] for p in pairs)), Pairs(*(p[count:] for p in pairs))
