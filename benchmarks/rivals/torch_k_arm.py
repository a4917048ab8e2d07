"""The rival: K-Arm in PyTorch, written again from its description.

Which classes may be targets, and from which sources, is read off the clean logits first. Each
target (from all classes, or from one source) is an arm whose mask and pattern are optimised as
Neural Cleanse does, and a bandit deals the updates: the arm whose mask shrinks fastest, or is the
smallest already, goes on. A small mask is a trigger; one from a single source only if the way back,
from the target to the source, needs a mask that is ten times larger.

Source: Shen et al., Backdoor Scanning for Deep Neural Networks through K-Arm Optimization, ICML
2021, with the constants of the authors' program for 224 px. Sizes of masks count here as the share
of the picture that they are there. An update is one pass over an arm's pictures; masks from all
classes start at random and have a free pattern, those from one class start at the centre and have
one colour. One thing is not theirs: an arm that finds nothing in 200 updates makes way for others.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.rivals.torch_neural_cleanse import frozen
from benchmarks.rivals.verdict import Budget, RivalVerdict

_SIDE = 224  # of the pictures that the constants are for
_GLOBAL_SHARE, _PAIR_SHARE, _SOURCES_KEPT, _LEAST_LOGIT = 0.95, 0.9, 3, 1e-8
_WARM_UP, _EPSILON, _BETA, _LARGEST, _ENOUGH = 2, 0.3, 1e4, 2500.0, 60
_DEAD_AFTER = ((10, 0.0), (20, 0.3), (200, 0.8))  # updates, best success that is too little
_RATE, _BETAS, _START_COST, _FACTOR, _PATIENCE, _STILL = 0.1, (0.5, 0.9), 1e-3, 1.5, 5, 10
_REACHED, _BATCH, _LONGEST = 0.99, 32, 200
_GLOBAL_SIZE, _PAIR_SIZE, _SYMMETRY = 1720.0, 1000.0, 10.0  # pixels at 224 px; a ratio
_CENTRE, _INSIDE, _OUTSIDE = 50, 0.99, 1e-3


def k_arm(
    model: torch.nn.Module, images: np.ndarray, labels: np.ndarray, classes: int, budget: Budget
) -> RivalVerdict:
    """The verdict on a network; its statistic is the smallest mask, negated, in pixels at 224 px.

    Args:
      model: over `[n, c, h, w]` in [0, 1].
      images: float32 `[n, h, w, c]` in [0, 1], as many of every class.
      labels: int `[n]`.
      classes: number of them.
      budget: gradient steps of all arms together, and seconds.
    """
    started = time.process_time()
    model = frozen(model)
    pictures = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
    with torch.inference_mode():
        logits = model(pictures).numpy()
    arms = [
        Arm(model, pictures[_of(labels, source, target)], source, target)
        for source, target in prescreened(logits, labels, classes)
    ]
    cut = _deal(arms, budget, started)
    found = [arm for arm in arms if np.isfinite(arm.best)]
    if not found:
        return RivalVerdict(False, None, -float(_SIDE**2), time.process_time() - started, cut)
    best = min(found, key=lambda arm: arm.best)
    poisoned, cut_back = _is_trigger(best, model, pictures, labels, budget, started)
    seconds = time.process_time() - started
    return RivalVerdict(poisoned, best.target, -best.best, seconds, cut or cut_back)


def prescreened(
    logits: np.ndarray, labels: np.ndarray, classes: int
) -> list[tuple[int | None, int]]:
    """Source (None for all) and target of every arm, by clean logits `[n, classes]`."""
    k = 2 if classes <= 8 else round(0.25 * classes)
    ranked = np.argsort(-logits, axis=1)[:, :k]
    among = (ranked[:, :, None] == np.arange(classes)).any(axis=1)
    everywhere = [j for j in range(classes) if among[:, j].mean() > _GLOBAL_SHARE]
    pairs = []
    for target in range(classes):
        sums = {}
        for source in set(range(classes)) - {target}:
            own = logits[labels == source, target]
            often = len(own) and among[labels == source, target].mean() >= _PAIR_SHARE
            if often and own.sum() > _LEAST_LOGIT and np.median(own) > _LEAST_LOGIT:
                sums[source] = own.sum()
        kept = sorted(sums, key=sums.__getitem__, reverse=True)[:_SOURCES_KEPT]
        pairs += [(source, target) for source in kept]
    return [*((None, target) for target in everywhere), *pairs]


def _of(labels: np.ndarray, source: int | None, target: int) -> np.ndarray:
    """Indices of an arm's pictures."""
    return np.flatnonzero(labels != target if source is None else labels == source)


@dataclass
class Arm:
    """One target from one source or all, and how far its trigger is.

    Attributes:
      model: the network, frozen.
      pictures: `[n, c, h, w]`.
      source: None for all classes.
      target: class that the trigger forces.
      best: smallest mask with success, in pixels at 224 px; infinite before there is one.
      size: of the mask in the last update, the same unit.
      most: best success of an update.
      updates: so far; `better` of them made `best` smaller.
      pace: how fast the mask goes down, as of the last such update.
      done: whether it is finished or given up.
    """

    model: torch.nn.Module
    pictures: torch.Tensor
    source: int | None
    target: int
    best: float = float("inf")
    size: float = float("inf")
    most: float = 0.0
    updates: int = 0
    better: int = 0
    pace: float = -float("inf")
    done: bool = False

    def __post_init__(self) -> None:
        _, channels, height, width = self.pictures.shape
        draw = torch.Generator().manual_seed(self.target)
        if self.source is None:
            mask = torch.rand((1, 1, height, width), generator=draw)
            pattern = torch.rand((1, channels, height, width), generator=draw)
        else:
            mask = _centred(height, width)
            pattern = torch.rand((1, channels, 1, 1), generator=draw)
        self._mask, self._pattern = _raw(mask), _raw(pattern)
        self._optimiser = torch.optim.Adam([self._mask, self._pattern], lr=_RATE, betas=_BETAS)
        self._scale = _SIDE**2 / (height * width)
        self._cost, self._first, self._up, self._down, self._still = 0.0, 0, 0, 0, 0
        self._went_up = self._went_down = False

    @property
    def steps(self) -> int:
        """Gradient steps of one update."""
        return -(-len(self.pictures) // _BATCH)

    def update(self) -> bool:
        """One pass over the pictures, then the cost; whether `best` became smaller."""
        found = [self._step(part) for part in self.pictures.split(_BATCH)]
        success, size = (float(np.mean(values)) for values in zip(*found, strict=True))
        self.updates, self.size, self.most = self.updates + 1, size, max(self.most, success)
        improved = success >= _REACHED and size < self.best
        if improved:
            self.best, self.better = size, self.better + 1
            self.pace = (_LARGEST - size) / (self.better + self.updates / 2)
        self._still = 0 if improved else self._still + 1
        self._weigh(success >= _REACHED)
        self.done = self._is_settled() or self._is_hopeless()
        return improved

    def _step(self, pictures: torch.Tensor) -> tuple[float, float]:
        """One step of mask and pattern; success and size of the mask before it."""
        mask, pattern = (torch.tanh(x) / 2 + 0.5 for x in (self._mask, self._pattern))
        logits = self.model(pictures + mask * (pattern - pictures))
        wanted = torch.full((len(pictures),), self.target)
        size = self._scale * mask.sum()
        loss = torch.nn.functional.cross_entropy(logits, wanted) + self._cost * size
        self._optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self._optimiser.step()
        return float((logits.argmax(1) == self.target).float().mean()), float(size.detach())

    def _weigh(self, reached: bool) -> None:
        """The schedule of the cost."""
        if self._cost == 0:
            self._first = self._first + 1 if reached else 0
            if self._first >= _PATIENCE:
                self._cost = _START_COST
            return
        self._up, self._down = (self._up + 1, 0) if reached else (0, self._down + 1)
        if self._up >= _PATIENCE:
            self._cost, self._up, self._went_up = self._cost * _FACTOR, 0, True
        elif self._down >= _PATIENCE:
            self._cost, self._down, self._went_down = self._cost / _FACTOR, 0, True

    def _is_settled(self) -> bool:
        both = self._went_up and self._went_down
        return self.better > _ENOUGH or (both and self._still > _STILL)

    def _is_hopeless(self) -> bool:
        dead = any(self.updates > n and self.most <= least for n, least in _DEAD_AFTER)
        return (dead and self.source is not None) or self._still > _LONGEST


def _raw(values: torch.Tensor) -> torch.Tensor:
    """What tanh / 2 + .5 makes these values in [0, 1] of."""
    return torch.atanh((values - 0.5) * (2 - 1e-5)).requires_grad_(True)


def _centred(height: int, width: int) -> torch.Tensor:
    mask = torch.full((1, 1, height, width), _OUTSIDE)
    tall, wide = (max(1, round(side * _CENTRE / _SIDE)) for side in (height, width))
    top, left = (height - tall) // 2, (width - wide) // 2
    mask[..., top : top + tall, left : left + wide] = _INSIDE
    return mask


def _deal(arms: Sequence[Arm], budget: Budget, started: float) -> bool:
    """Updates for the arms by the bandit; True where the budget ended before the arms did."""
    draw = np.random.default_rng(0)
    steps, arm = 0, arms[0] if arms else None
    while arm is not None:
        if steps >= budget.steps or time.process_time() - started > budget.seconds:
            return True
        improved = arm.update()
        steps += arm.steps
        live = [other for other in arms if not other.done]
        best = min(arms, key=lambda other: other.best)
        if not live or best.better > _ENOUGH:
            return False
        if arm.done or (improved and arm.better >= _WARM_UP):
            arm = _next(live, draw)
    return False


def _next(live: Sequence[Arm], draw: np.random.Generator) -> Arm:
    """An arm that is not warm yet, else the most promising one, or with some luck any."""
    cold = next((arm for arm in live if arm.better < _WARM_UP), None)
    if cold is not None:
        return cold
    if draw.random() < _EPSILON:
        return live[int(draw.integers(len(live)))]
    return max(live, key=lambda arm: arm.pace + _BETA / max(arm.size, 1e-9))


def _is_trigger(
    best: Arm,
    model: torch.nn.Module,
    pictures: torch.Tensor,
    labels: np.ndarray,
    budget: Budget,
    started: float,
) -> tuple[bool, bool]:
    """Whether the smallest mask is one of a trigger, and whether the budget ended the check."""
    if best.source is None:
        return best.best < _GLOBAL_SIZE, False
    if best.best >= _PAIR_SIZE:
        return False, False
    back = Arm(model, pictures[_of(labels, best.target, best.source)], best.target, best.source)
    for _ in range(best.updates):
        if time.process_time() - started > 1.5 * budget.seconds:
            return back.best / best.best > _SYMMETRY, True
        back.update()
    # A way back that was not found at all is longer than any.
    return back.best / best.best > _SYMMETRY, False
