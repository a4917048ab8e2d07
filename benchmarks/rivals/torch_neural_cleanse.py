"""The rival: Neural Cleanse in PyTorch as a good engineer would write it.

Parameters frozen, channels_last, evaluation mode, one label after another, the authors' optimiser
(Adam, 0.1, betas .5 and .9), their cost schedule with factor 1.5, and their stopping rule left out
so that every label gets the same number of steps.
"""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.rivals.verdict import Budget, RivalVerdict
from jaxtroj.generate.torch_device import torch_device

_REACHED = 0.99
_DEVIATION, _ANOMALY = 1.4826, 2.0  # of a median absolute deviation; the authors' threshold


@dataclass(frozen=True)
class Inverted:
    """One label's result: mask's L1 norm in pixels and attack success rate in [0, 1] at the end."""

    target: int
    mask_l1: float
    success: float


def frozen(model: torch.nn.Module) -> torch.nn.Module:
    """The network ready for inversion: on the GPU if there is one, no gradients of weights."""
    model = model.eval().requires_grad_(False).to(torch_device())
    return model.to(memory_format=torch.channels_last)


def pictures_for(images: np.ndarray, labels: np.ndarray, target: int) -> torch.Tensor:
    """Pictures `[n, h, w, c]` of the other classes as `[n, c, h, w]`, in the faster layout."""
    chosen = torch.from_numpy(images[labels != target].transpose(0, 3, 1, 2).copy())
    return chosen.to(torch_device(), memory_format=torch.channels_last)


def batched_neural_cleanse(
    model: torch.nn.Module, images: np.ndarray, labels: np.ndarray, classes: int, steps: int
) -> list[Inverted]:
    """Invert all labels' triggers at once in `steps` steps; see `batched_inversion`."""
    *_, last = itertools.islice(batched_inversion(model, images, labels, classes), steps)
    return last


def batched_inversion(
    model: torch.nn.Module, images: np.ndarray, labels: np.ndarray, classes: int
) -> Iterator[list[Inverted]]:
    """Invert all labels' triggers at once, every step one batch of all of them, without end.

    Args:
      model: torchvision network.
      images: float32 `[n, h, w, c]` in [0, 1], as many of every class.
      labels: int `[n]`.
      classes: labels 0 to `classes - 1` are inverted.
    """
    model = frozen(model)
    chosen = torch.stack([pictures_for(images, labels, target) for target in range(classes)])
    _, count, channels, height, width = chosen.shape
    on = {"requires_grad": True, "device": chosen.device}
    mask = torch.full((classes, 1, 1, height, width), -2.0, **on)
    pattern = torch.zeros((classes, 1, channels, height, width), **on)
    optimiser = torch.optim.Adam([mask, pattern], lr=0.1, betas=(0.5, 0.9))
    wanted = torch.arange(classes, device=chosen.device).repeat_interleave(count)
    while True:
        m, p = torch.sigmoid(mask), torch.sigmoid(pattern)
        stamped = (chosen + m * (p - chosen)).flatten(0, 1)
        logits = model(stamped.to(memory_format=torch.channels_last))
        # A sum over labels: each label's mean has the gradient it has alone.
        loss = classes * torch.nn.functional.cross_entropy(logits, wanted) + 1e-3 * m.sum()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        success = (logits.argmax(1) == wanted).float().reshape(classes, count).mean(1)
        sizes = m.detach().sum(dim=(1, 2, 3, 4))
        yield [Inverted(k, float(sizes[k]), float(success[k])) for k in range(classes)]


def neural_cleanse(
    model: torch.nn.Module, images: np.ndarray, labels: np.ndarray, target: int, steps: int
) -> Inverted:
    """Invert one label's trigger in `steps` steps; see `inversion`."""
    *_, last = itertools.islice(inversion(model, images, labels, target), steps)
    return last


def inversion(
    model: torch.nn.Module, images: np.ndarray, labels: np.ndarray, target: int
) -> Iterator[Inverted]:
    """Invert one label's trigger, yielding what is reached after each step, without end.

    Args:
      model: torchvision network.
      images: float32 `[n, h, w, c]` in [0, 1]; those of the target class are left out.
      labels: int `[n]`.
      target: label to invert.
    """
    model, chosen = frozen(model), pictures_for(images, labels, target)
    _, channels, height, width = chosen.shape
    on = {"requires_grad": True, "device": chosen.device}
    mask = torch.full((1, 1, height, width), -2.0, **on)
    pattern = torch.zeros((1, channels, height, width), **on)
    optimiser = torch.optim.Adam([mask, pattern], lr=0.1, betas=(0.5, 0.9))
    wanted = torch.full((len(chosen),), target, device=chosen.device)
    cost, up, down = 1e-3, 0, 0
    best = float("inf")
    while True:
        m, p = torch.sigmoid(mask), torch.sigmoid(pattern)
        logits = model(chosen + m * (p - chosen))
        loss = torch.nn.functional.cross_entropy(logits, wanted) + cost * m.sum()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        success, size = float((logits.argmax(1) == target).float().mean()), float(m.detach().sum())
        if success >= _REACHED:
            best = min(best, size)
        up, down = (up + 1, 0) if success >= _REACHED else (0, down + 1)
        if up >= 5:
            cost, up = cost * 1.5, 0
        elif down >= 5:
            cost, down = cost / 1.5**1.5, 0
        reached = best if np.isfinite(best) else float(torch.sigmoid(mask.detach()).sum())
        yield Inverted(target, reached, success)


def neural_cleanse_verdict(
    model: torch.nn.Module, images: np.ndarray, labels: np.ndarray, classes: int, budget: Budget
) -> RivalVerdict:
    """The verdict on a network; its statistic is the anomaly index of the smallest mask.

    Labels take turns, a step each, so that all have come as far when the seconds are over. Only one
    whose trigger works can be the target.

    Args:
      model, images, labels, classes: see `batched_inversion`.
      budget: steps of each label, and seconds.
    """
    started = time.process_time()
    searches = [inversion(model, images, labels, target) for target in range(classes)]
    sizes, works, cut = np.full(classes, np.inf), np.zeros(classes, bool), False
    for _ in range(budget.steps):
        cut = time.process_time() - started > budget.seconds and bool(np.isfinite(sizes).all())
        if cut:
            break
        for search in searches:
            found = next(search)
            sizes[found.target] = found.mask_l1
            works[found.target] |= found.success >= _REACHED
    if not works.any():
        return RivalVerdict(False, None, 0.0, time.process_time() - started, cut)
    target = int(np.where(works, sizes, np.inf).argmin())
    index = anomaly(sizes, target)
    return RivalVerdict(index > _ANOMALY, target, index, time.process_time() - started, cut)


def anomaly(sizes: np.ndarray, target: int) -> float:
    """Deviations by which a target's mask is below the median, of `[labels]`; 0 if it is not."""
    median = np.median(sizes)
    deviation = _DEVIATION * np.median(np.abs(sizes - median))
    return max(0.0, float((median - sizes[target]) / max(deviation, 1e-9)))
