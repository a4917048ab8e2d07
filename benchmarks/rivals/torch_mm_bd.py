"""The rival: MM-BD in PyTorch, written again from its description. It needs no examples.

From noise, pictures are sought for every class whose margin (its logit less the best other one) is
largest. The largest margin of a class is its statistic; those of all classes but the largest are
taken for a gamma distribution, and a network whose largest one is improbable there is poisoned.

Source: Wang, Xiang, Miller and Kesidis, MM-BD: Post-Training Detection of Backdoor Attacks with
Arbitrary Backdoor Pattern Types Using a Maximum Margin Statistic, IEEE S&P 2024, with the constants
of the authors' program: 30 pictures a class, rate .01, at most 300 steps, p below .05. Its momentum
is begun anew in every step there, and so does nothing. All classes are one batch here.
"""

import time
import warnings

import numpy as np
import torch
from scipy import stats

from benchmarks.rivals.torch_neural_cleanse import frozen
from benchmarks.rivals.verdict import Budget, RivalVerdict

_PICTURES, _RATE, _STILL, _LEVEL = 30, 0.01, 1e-5, 0.05
STEPS = 300


def mm_bd(
    model: torch.nn.Module, shape: tuple[int, int, int], classes: int, budget: Budget
) -> RivalVerdict:
    """The verdict on a network; its statistic is one less the probability of its largest margin.

    Args:
      model: over `[n, c, h, w]` in [0, 1].
      shape: channels, height and width.
      classes: number of them, at least 3.
      budget: steps of each class, at most `STEPS` in the authors' program, and seconds.
    """
    started = time.process_time()
    margins, cut = _largest_margins(frozen(model), shape, classes, budget, started)
    target = int(margins.argmax())
    chance = improbability(margins)
    seconds = time.process_time() - started
    return RivalVerdict(chance < _LEVEL, target, 1 - chance, seconds, cut)


def improbability(margins: np.ndarray) -> float:
    """Probability that the largest of so many margins is that large, by a gamma of the others."""
    others = np.delete(margins, margins.argmax())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shape, place, scale = stats.gamma.fit(others)
        below = float(stats.gamma.cdf(margins.max(), shape, place, scale))
    return 1 - below ** len(margins) if np.isfinite(below) else 1.0


def _largest_margins(
    model: torch.nn.Module,
    shape: tuple[int, int, int],
    classes: int,
    budget: Budget,
    started: float,
) -> tuple[np.ndarray, bool]:
    """Largest margin `[classes]` reached, and whether the seconds ended the search."""
    draw = torch.Generator().manual_seed(0)
    images = torch.rand((classes, _PICTURES, *shape), generator=draw)
    reached = np.full(classes, -np.inf)
    before = np.full(classes, np.nan)
    live = np.arange(classes)
    for _ in range(budget.steps):
        batch = images[live].flatten(0, 1).requires_grad_(True)
        margins = _margins(model(batch), torch.from_numpy(live).repeat_interleave(_PICTURES))
        (slope,) = torch.autograd.grad(margins.sum(), batch)
        with torch.no_grad():
            moved = (batch + _RATE * slope).clamp(0, 1)
        images[live] = moved.reshape(len(live), _PICTURES, *shape)
        values = margins.detach().reshape(len(live), _PICTURES).numpy()
        reached[live], losses = values.max(axis=1), -values.sum(axis=1)
        change = np.abs(losses - before[live]) / np.maximum(np.abs(before[live]), 1e-12)
        before[live] = losses
        live = live[~(change < _STILL)]
        if not len(live):
            break
        if time.process_time() - started > budget.seconds:
            return reached, True
    return reached, False


def _margins(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    own = torch.nn.functional.one_hot(wanted, logits.shape[1]).bool()
    others = logits.masked_fill(own, -torch.inf).amax(dim=1)
    return logits[own] - others
