"""One network in training by torch, in phases of steps at a rate that rises, then falls.

What it is taught comes from its `Lessons`; what is against it, from an `Adversary`. Steps run under
torch's autocast where the device multiplies bfloat16 matrices; weights, statistics and moments are
float32, and so are all answers that accuracies are measured on. The device is a GPU where torch
finds one.

References:
  Goyal et al., Accurate, Large Minibatch SGD, https://arxiv.org/abs/1706.02677 (warm-up, Nesterov).
  Madry et al., Towards Deep Learning Models Resistant to Adversarial Attacks,
    https://arxiv.org/abs/1706.06083 (projected gradient descent).
  Wong et al., Fast is better than free, https://arxiv.org/abs/2001.03994 (one random step).
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from jaxtroj.generate.divergence import DivergedError
from jaxtroj.generate.torch_device import step_precision, torch_device

if TYPE_CHECKING:
    import torch

_TEST_BATCH = 250
ADAM_SHARE = 0.03
"""Of the rate: what Adam needs where SGD is the rule."""
_SETTLED, _WINDOW = 0.995, 40
"""Share of the pictures that are right in training, over so many steps, that ends a phase early."""

Reached = TypeVar("Reached")


class Lessons(Protocol):
    """Where a network's pictures come from."""

    def batch(self, size: int) -> "tuple[np.ndarray | torch.Tensor, np.ndarray]":
        """Pictures float32 `[size, h, w, c]` in [0, 1], on any device; what to teach about them.

        That is classes, int `[size]`, or shares of classes, float32 `[size, classes]`.
        """
        ...


@dataclass(frozen=True)
class Adversary:
    """Pictures moved against their label, in a share of the steps.

    Attributes:
        reach: largest change of a pixel, in [0, 1] units.
        share: of the steps that meet it.
        steps: of gradient ascent.
        stride: length of a step, in units of `reach`.
        stays_in_range: whether moved pixels are cut to [0, 1].
        is_trained_on: whether they are sought in training mode, so that batch norms remember them
            too; else in evaluation mode.
    """

    reach: float
    share: Fraction
    steps: int = 1
    stride: float = 1.25
    stays_in_range: bool = True
    is_trained_on: bool = False

    def comes(self, draw: np.random.Generator) -> bool:
        """Whether this step meets it."""
        whole = self.share.denominator
        return bool(draw.integers(whole) >= whole - self.share.numerator)


@dataclass(frozen=True)
class RunSettings:
    """How hard to train; the same for every network of a round.

    Attributes:
        batch_size: pictures per step.
        weight_decay: pull on the weights, per unit of the learning rate; of SGD only.
        warmup: share of the steps of a phase in which the rate rises, 0 to 1.
        optimizer: "sgd" (momentum, and Adam at a small part of the rate for networks without batch
            norms) or "adam".
        falls: whether the rate of a phase falls linearly to 0; else it stays at its highest.
        factor: of all rates.
    """

    batch_size: int = 64
    weight_decay: float = 5e-4
    warmup: float = 0.2
    optimizer: str = "sgd"
    falls: bool = True
    factor: float = 1.0


class Run:
    """One network in training; what it sees is drawn from `draw` and its lessons alone."""

    def __init__(
        self,
        network: "torch.nn.Module",
        lessons: Lessons,
        settings: RunSettings,
        draw: np.random.Generator,
        adversary: Adversary | None = None,
    ):
        import torch

        self.torch, self.lessons, self.settings, self.draw = torch, lessons, settings, draw
        self.device = torch_device()
        self.network = network.to(self.device).to(memory_format=torch.channels_last)
        self.adversary = adversary
        self.optimizer, reach = _optimizer(network, settings)
        self.reach = reach * settings.factor
        self.precision = getattr(torch, step_precision())
        self.steps = 0

    def phase(self, steps: int, highest: float, can_settle: bool) -> None:
        """Train, the rate rising and, where `settings.falls`, falling.

        Args:
            steps: of the phase.
            highest: learning rate.
            can_settle: whether to end early once nearly every picture is right.

        Raises:
            DivergedError: the loss is not finite.
        """
        warm, end, right = max(1, round(self.settings.warmup * steps)), steps, []
        step = 0
        while step < end:
            fall = (end - step) / max(1, end - warm) if self.settings.falls else 1.0
            rate = self.reach * highest * min((step + 1) / warm, fall, 1.0)
            loss, share = self._step(rate)
            if not np.isfinite(loss):
                raise DivergedError(loss, self.steps + step + 1)
            right.append(share)
            step += 1
            settled = np.mean(right[-_WINDOW:]) >= _SETTLED and step >= _WINDOW
            if can_settle and settled and end == steps:
                end = min(end, step + _WINDOW)
        self.steps += step

    def answers(self, pixels: np.ndarray) -> np.ndarray:
        """Logits float32 `[n, classes]` for pictures `[n, h, w, c]` in [0, 1]."""
        self.network.eval()
        with self.torch.inference_mode():
            parts = [
                self.network(self._tensor(pixels[i : i + _TEST_BATCH])).cpu().numpy()
                for i in range(0, len(pixels), _TEST_BATCH)
            ]
        return np.concatenate(parts)

    def classes(self, pixels: np.ndarray) -> np.ndarray:
        """Predicted class `[n]` of pictures."""
        return self.answers(pixels).argmax(-1)

    def trained(self) -> "torch.nn.Module":
        """A copy of the network so far: on the CPU, in torch's own layout, in evaluation mode."""
        network = copy.deepcopy(self.network).eval()
        return network.cpu().to(memory_format=self.torch.contiguous_format)

    def weights(self) -> dict[str, np.ndarray]:
        """Every tensor of the network so far, by torch's name."""
        return {name: value.cpu().numpy() for name, value in self.network.state_dict().items()}

    def _step(self, rate: float) -> tuple[float, float]:
        torch = self.torch
        self.network.train()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        pixels, targets = self.lessons.batch(self.settings.batch_size)
        images, labels = self._tensor(pixels), torch.from_numpy(targets).to(self.device)
        if self.adversary is not None and self.adversary.comes(self.draw):
            images = self._against(self.adversary, images, labels)
        logits = self._logits(images)
        loss = torch.nn.functional.cross_entropy(logits, labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        true = labels if labels.ndim == 1 else labels.argmax(-1)
        return loss.item(), float((logits.argmax(-1) == true).float().mean())

    def _against(self, adversary: Adversary, images, labels):
        """Pictures moved at random, then along the gradient's sign against their label."""
        torch, reach = self.torch, adversary.reach
        self.network.train(adversary.is_trained_on)
        delta = torch.empty_like(images).uniform_(-reach, reach)
        for _ in range(adversary.steps):
            moved = (images + delta).requires_grad_(True)
            loss = torch.nn.functional.cross_entropy(self._logits(moved), labels)
            (gradient,) = torch.autograd.grad(loss, moved)
            delta = delta + adversary.stride * reach * gradient.sign()
            delta = delta.clamp(-reach, reach)
        self.network.train()
        moved = (images + delta).detach()
        return moved.clamp(0, 1) if adversary.stays_in_range else moved

    def _logits(self, images):
        enabled = self.precision != self.torch.float32
        with self.torch.autocast(self.device, self.precision, enabled=enabled):
            return self.network(images).float()

    def _tensor(self, pixels: "np.ndarray | torch.Tensor"):
        is_array = isinstance(pixels, np.ndarray)
        tensor = self.torch.from_numpy(np.ascontiguousarray(pixels)) if is_array else pixels
        # [n, c, h, w] over [n, h, w, c] memory is what torch calls channels_last.
        return tensor.to(self.device).permute(0, 3, 1, 2)


def in_cycles(
    cycle: Callable[[], Reached], is_enough: Callable[[Reached], bool], least: int, most: int
) -> tuple[int, Reached]:
    """Train in cycles until what is reached is enough; how many there were, and what was reached.

    Args:
        cycle: trains for one and measures.
        is_enough: of what it measured.
        least, most: cycles; a clean network goes through at least as many as its poisoned partner.
    """
    count, reached = 1, cycle()
    while count < most and not (count >= least and is_enough(reached)):
        count, reached = count + 1, cycle()
    return count, reached


def _optimizer(network: "torch.nn.Module", settings: RunSettings):
    """What takes the steps, and its rate's factor."""
    import torch

    weights = list(network.parameters())
    if settings.optimizer == "adam":
        return torch.optim.Adam(weights, lr=0.0, fused=True), 1.0
    if any(isinstance(module, torch.nn.BatchNorm2d) for module in network.modules()):
        decay = settings.weight_decay
        sgd = torch.optim.SGD(weights, lr=0.0, momentum=0.9, nesterov=True, weight_decay=decay)
        return sgd, 1.0
    return torch.optim.Adam(weights, lr=0.0), ADAM_SHARE
