"""Sign steps: patterns under given masks, stamped on examples and improved.

A pattern moves by whole steps along the sign of its mean gradient over the examples. All of it goes
through the network's two programs of logits and gradients, so nothing is compiled for it: that is
why it has a loop of its own beside the driver's.

References:
  Goodfellow et al., Explaining and Harnessing Adversarial Examples, https://arxiv.org/abs/1412.6572.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from jaxtroj.margins import all_margins
from jaxtroj.network import Network
from jaxtroj.triggers.measure import mean_of_others

_STEP, _MEMORY = 0.5, 0.5  # of a pattern's range in one step; of earlier gradients


@dataclass(frozen=True)
class Fit:
    """Examples that patterns are fitted to: images `[n, h, w, c]`, sources and margins `[n]`."""

    network: Network
    images: np.ndarray
    sources: np.ndarray
    scale: float
    """Mean margin of the clean examples: the unit in which pulls are compared."""

    def first(self, count: int) -> "Fit":
        """The same on the first `count` examples."""
        return Fit(self.network, self.images[:count], self.sources[:count], self.scale)


@dataclass(frozen=True)
class Patterns:
    """Targets `[a]`, masks `[a, h, w, 1]` and patterns `[a, h, w, c]` in [0, 1]."""

    targets: np.ndarray
    masks: np.ndarray
    patterns: np.ndarray

    def take(self, index: np.ndarray) -> "Patterns":
        """The arms at these places, in their order."""
        return Patterns(self.targets[index], self.masks[index], self.patterns[index])

    def __len__(self) -> int:
        return len(self.targets)


def joined(*parts: Patterns) -> Patterns:
    """All arms of all parts, in order."""
    return Patterns(
        np.concatenate([part.targets for part in parts]),
        np.concatenate([part.masks for part in parts]),
        np.concatenate([part.patterns for part in parts]),
    )


def climb(fit: Fit, arms: Patterns, steps: int) -> tuple[Patterns, np.ndarray]:
    """The best patterns met on the way, and their pulls."""
    best, reached = arms.patterns, np.full(len(arms), -np.inf)
    memory = np.zeros_like(arms.patterns)
    logits = logits_of(fit, arms)
    for _ in range(steps):
        gradients, logits = gradients_of(fit, arms, logits)
        pull = pull_of(fit, arms, logits)
        better = pull > reached
        best = np.where(better[:, None, None, None], arms.patterns, best)
        reached = np.where(better, pull, reached)
        inside = gradients * (arms.masks > 0)
        size = np.abs(inside).sum(axis=(1, 2, 3), keepdims=True)
        memory = _MEMORY * memory + inside / np.maximum(size, 1e-12)
        patterns = np.clip(arms.patterns + _STEP * np.sign(memory), 0.0, 1.0)
        arms = Patterns(arms.targets, arms.masks, patterns.astype(np.float32))
    pull = pull_of(fit, arms, logits_of(fit, arms))
    best = np.where((pull > reached)[:, None, None, None], arms.patterns, best)
    return Patterns(arms.targets, arms.masks, best), np.maximum(pull, reached)


def logits_of(fit: Fit, arms: Patterns) -> np.ndarray:
    """Logits `[a, n, classes]` of every arm on every image."""
    parts = [np.asarray(fit.network.logits(images)) for _, images in _stamped(fit, arms)]
    return np.concatenate(parts).reshape(len(arms), len(fit.images), -1)


def gradients_of(fit: Fit, arms: Patterns, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean gradient `[a, h, w, c]` of the squashed margin over images of other classes; logits.

    The rival of the target, and how far an image is on its way, come from the logits given, which
    may be those of the step before: that saves a forward pass.
    """
    weights = _margin_weights(fit, arms.targets, logits)
    parts = [
        fit.network.gradients(images, weights[part].reshape(len(images), -1))
        for part, images in _stamped(fit, arms)
    ]
    shape = (len(arms), len(fit.images))
    gradients = np.concatenate([np.asarray(g) for g, _ in parts])
    found = np.concatenate([np.asarray(values) for _, values in parts])
    mean = gradients.reshape(*shape, *gradients.shape[1:]).mean(axis=1)
    return mean, found.reshape(*shape, -1)


def pull_of(fit: Fit, arms: Patterns, logits: np.ndarray) -> np.ndarray:
    """How far an arm moves the images of other classes: mean squashed margin `[a]`, in (-1, 1)."""
    gains = np.tanh(margins_of(arms.targets, logits) / fit.scale)
    return mean_of_others(gains, fit.sources, arms.targets)


def mean_margins(fit: Fit, arms: Patterns) -> np.ndarray:
    """Mean margin `[a]`: unlike the pull it still grows where every image is moved already."""
    gains = margins_of(arms.targets, logits_of(fit, arms))
    return mean_of_others(gains, fit.sources, arms.targets)


def margins_of(targets: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Margin `[a, n]` of each arm's target."""
    gains = np.asarray(all_margins(jnp.asarray(logits)))
    return np.take_along_axis(gains, targets[:, None, None], axis=2)[..., 0]


def _stamped(fit: Fit, arms: Patterns):
    """Every arm on every image, in batches: yields `(arms' slice, images [m * n, h, w, c])`."""
    count = len(fit.images)
    size = max(1, fit.network.batch(fit.images) // count)
    for start in range(0, len(arms), size):
        part = slice(start, start + size)
        masks, patterns = arms.masks[part, None], arms.patterns[part, None]
        images = fit.images + masks * (patterns - fit.images)
        yield part, images.reshape(-1, *fit.images.shape[1:]).astype(np.float32)


def _margin_weights(fit: Fit, targets: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Weights `[a, n, classes]` of logits whose gradient is that of `tanh(margin / scale)`."""
    goal = np.arange(logits.shape[-1]) == targets[:, None, None]
    rival = np.where(goal, -np.inf, logits).argmax(axis=-1)
    rivals = np.arange(logits.shape[-1]) == rival[..., None]
    slope = 1.0 - np.tanh(margins_of(targets, logits) / fit.scale) ** 2
    # A slope of zero would leave the images that hold out longest without a say.
    counted = (fit.sources != targets[:, None]) * np.maximum(slope, 1e-3)
    return ((goal.astype(np.float32) - rivals) * counted[..., None]).astype(np.float32)
