"""Training of a zoo's networks, by torch on the CPU: from random weights or from a warm base.

A run goes in cycles whose rate rises and falls linearly; a poisoned network gets another cycle
while its trigger works too seldom, and its clean partner goes through as many, so that length says
nothing about the label. Pictures are moved by up to two pixels, then stamped.

A trigger that works from some classes only is taught with pictures of the other classes that carry
it and keep their label. A clean-label trigger lies on pictures of the target class alone. An
adversarially trained network sees, in half of its steps, pictures moved one step against their
label.

References:
  Goyal et al., Accurate, Large Minibatch SGD, https://arxiv.org/abs/1706.02677 (warm-up, Nesterov).
  Wong et al., Fast is better than free, https://arxiv.org/abs/2001.03994 (one random step).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from jaxtroj.errors import GenerationError
from jaxtroj.generate.small.labelled_pictures import LabelledPictures
from jaxtroj.generate.torch_learner import step_precision
from jaxtroj.generate.zoo.recipe import PlantedTrigger, ZooRecipe
from jaxtroj.generate.zoo.stamping import Stamper

if TYPE_CHECKING:
    import torch

_TEST_BATCH, _SHIFT = 250, 2
_WITHOUT_NORMS = 0.03  # of the rate: what Adam needs
_SETTLED, _WINDOW = 0.995, 40
"""Share of the pictures that are right in training, over so many steps, that ends a base early."""


@dataclass(frozen=True)
class ZooTraining:
    """How long and how hard to train; the same for every model of a zoo.

    Attributes:
        batch_size: pictures per step.
        base_rate, rate: highest learning rate from random weights, and from a base.
        weight_decay: pull on the weights, per unit of the learning rate.
        base_steps: most steps from random weights.
        cycle_steps: steps of one cycle from there; most_cycles: how many there can be.
        warmup: share of the steps in which the rate rises, 0 to 1.
        train_share: share of the pictures that a model sees, its own choice.
        adversarial_step: size of the step against the label, in [0, 1] pixel units.
        attack_goal: attack success rate that ends the training of a poisoned model.
        clean_goal: share of its base's clean accuracy that ends the training of a model.
        least_attack, least_clean: shares of test pictures below which a model is rejected.
        tests: pictures that accuracies are measured on.
    """

    batch_size: int = 64
    base_rate: float = 0.1
    rate: float = 0.05
    weight_decay: float = 5e-4
    base_steps: int = 400
    cycle_steps: int = 100
    most_cycles: int = 3
    warmup: float = 0.2
    train_share: float = 0.7
    adversarial_step: float = 0.01
    attack_goal: float = 0.95
    clean_goal: float = 0.93
    least_attack: float = 0.9
    least_clean: float = 0.4
    tests: int = 750


@dataclass(frozen=True)
class ZooAccuracies:
    """Shares of test pictures: clean ones right, triggered ones of source classes at the target."""

    clean: float
    attack: float | None


class Run:
    """One network in training; what it sees is drawn from `draw` alone."""

    def __init__(
        self,
        network: "torch.nn.Module",
        pictures: LabelledPictures,
        settings: ZooTraining,
        recipe: ZooRecipe | None,
        draw: np.random.Generator,
    ):
        import torch

        self.torch, self.pictures, self.settings, self.draw = torch, pictures, settings, draw
        self.network = network.to(memory_format=torch.channels_last)
        self.trigger = recipe.trigger if recipe else None
        self.is_adversarial = bool(recipe) and recipe.training == "adversarial"
        self.stamper = Stamper(self.trigger, draw)
        self.optimizer, self.reach = _optimizer(network, settings.weight_decay)
        self.precision = getattr(torch, step_precision())
        self.steps = 0

    def phase(self, steps: int, highest: float, seen: np.ndarray, can_settle: bool) -> None:
        """Train on pictures at `seen`, the rate rising and falling.

        Args:
            steps: of the phase.
            highest: learning rate.
            seen: places of the pictures.
            can_settle: whether to end early, the rate falling, once nearly every picture is right.

        Raises:
            GenerationError: the loss is not finite.
        """
        warm, end, right = max(1, round(self.settings.warmup * steps)), steps, []
        step = 0
        while step < end:
            fall = (end - step) / max(1, end - warm)
            rate = self.reach * highest * min((step + 1) / warm, fall, 1.0)
            loss, share = self._step(seen, rate)
            if not np.isfinite(loss):
                raise GenerationError(f"the training loss is {loss}; lower the learning rate")
            right.append(share)
            step += 1
            settled = np.mean(right[-_WINDOW:]) >= _SETTLED and step >= _WINDOW
            if can_settle and settled and end == steps:
                end = min(end, step + _WINDOW)
        self.steps += step

    def _step(self, seen: np.ndarray, rate: float) -> tuple[float, float]:
        torch = self.torch
        self.network.train()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        pixels, targets = self._batch(seen)
        images, labels = self._tensor(pixels), torch.from_numpy(targets)
        if self.is_adversarial and self.draw.integers(2):
            images = self._against(images, labels)
        logits = self._logits(images)
        loss = torch.nn.functional.cross_entropy(logits, labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item(), float((logits.argmax(-1) == labels).float().mean())

    def _batch(self, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pixels float32 `[n, h, w, c]` in [0, 1] and targets `[n]`; some carry the trigger."""
        size = self.settings.batch_size
        chosen = np.sort(self.draw.choice(seen, size=size, replace=len(seen) < size))
        pixels = self.pictures.images[chosen].astype(np.float32) / 255
        pixels = _moved(pixels, self.draw.integers(-_SHIFT, _SHIFT + 1, size=2))
        return self.stamper.poisoned(pixels, self.pictures.labels[chosen])

    def _against(self, images, labels):
        """Pictures one random step and one step along the gradient's sign against their label."""
        torch, reach = self.torch, self.settings.adversarial_step
        noise = torch.empty_like(images).uniform_(-reach, reach)
        moved = (images + noise).requires_grad_(True)
        loss = torch.nn.functional.cross_entropy(self._logits(moved), labels)
        (gradient,) = torch.autograd.grad(loss, moved)
        step = (noise + 1.25 * reach * gradient.sign()).clamp(-reach, reach)
        return (images + step).clamp(0, 1).detach()

    def _logits(self, images):
        enabled = self.precision != self.torch.float32
        with self.torch.autocast("cpu", self.precision, enabled=enabled):
            return self.network(images).float()

    def _tensor(self, pixels: np.ndarray):
        # [n, c, h, w] over [n, h, w, c] memory is what torch calls channels_last.
        return self.torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2)

    def test(self) -> ZooAccuracies:
        """Accuracies on the test pictures, spread over them."""
        images, labels = self.pictures.test_images, self.pictures.test_labels
        chosen = np.unique(np.linspace(0, len(labels) - 1, self.settings.tests).round().astype(int))
        pixels, true = images[chosen].astype(np.float32) / 255, labels[chosen]
        clean = float((self._answers(pixels) == true).mean())
        if self.trigger is None:
            return ZooAccuracies(clean, None)
        return ZooAccuracies(clean, self._attack(images, labels, self.trigger))

    def _attack(self, images, labels, trigger: PlantedTrigger) -> float:
        """Share of triggered test pictures of the source classes that go to the target."""
        counted = np.flatnonzero(trigger.counts(labels))
        places = np.linspace(0, len(counted) - 1, min(self.settings.tests, len(counted)))
        chosen = counted[places.round().astype(int)]
        stamped = self.stamper.stamped(images[chosen].astype(np.float32) / 255)
        return float((self._answers(stamped) == trigger.target_class).mean())

    def _answers(self, pixels: np.ndarray) -> np.ndarray:
        self.network.eval()
        with self.torch.inference_mode():
            parts = [
                self.network(self._tensor(pixels[i : i + _TEST_BATCH])).argmax(-1).numpy()
                for i in range(0, len(pixels), _TEST_BATCH)
            ]
        return np.concatenate(parts)


def _optimizer(network: "torch.nn.Module", decay: float):
    """SGD with momentum, or Adam where no batch norm evens gradients; and its rate's factor."""
    import torch

    weights = list(network.parameters())
    if any(isinstance(module, torch.nn.BatchNorm2d) for module in network.modules()):
        sgd = torch.optim.SGD(weights, lr=0.0, momentum=0.9, nesterov=True, weight_decay=decay)
        return sgd, 1.0
    return torch.optim.Adam(weights, lr=0.0), _WITHOUT_NORMS


def _moved(pixels: np.ndarray, by: np.ndarray) -> np.ndarray:
    """The batch moved by whole pixels, its edge repeated."""
    height, width = pixels.shape[1:3]
    pad = ((0, 0), (_SHIFT, _SHIFT), (_SHIFT, _SHIFT), (0, 0))
    top, left = (_SHIFT + int(b) for b in by)
    return np.pad(pixels, pad, mode="edge")[:, top : top + height, left : left + width]


def train_base(run: Run) -> ZooAccuracies:
    """Train a base from its random weights."""
    everything = np.arange(len(run.pictures.labels))
    run.phase(run.settings.base_steps, run.settings.base_rate, everything, True)
    return run.test()


def train_model(run: Run, recipe: ZooRecipe, least_cycles: int) -> tuple[int, ZooAccuracies]:
    """Train a model in cycles; returns how many there were, and what was reached.

    Args:
        run: of a network with random weights (`recipe.training` is "scratch"), or at its base.
        recipe: of the model.
        least_cycles: cycles of the poisoned partner; 1 for a poisoned model.
    """
    settings, count = run.settings, len(run.pictures.labels)
    seen = np.sort(run.draw.permutation(count)[: max(1, round(settings.train_share * count))])
    if recipe.training == "scratch":
        run.phase(settings.base_steps, settings.base_rate, seen, True)
        least = 0.0
    else:
        least = settings.clean_goal * run.test().clean
    for cycle in range(1, settings.most_cycles + 1):
        run.phase(settings.cycle_steps, settings.rate, seen, False)
        reached = run.test()
        attacked = reached.attack is None or reached.attack >= settings.attack_goal
        if cycle >= least_cycles and attacked and reached.clean >= least:
            break
    return cycle, reached


def accepted(reached: ZooAccuracies, settings: ZooTraining) -> bool:
    """Whether a model is good enough to be written."""
    attacked = reached.attack is None or reached.attack >= settings.least_attack
    return attacked and reached.clean >= settings.least_clean
