"""Puts a planted trigger on batches of pictures, and says what they are taught."""

import numpy as np

from jaxtroj.generate.zoo.recipe import PlantedTrigger


class Stamper:
    """One trigger on batches; a clean model draws the same lots and stamps nothing.

    `seen` and `carrying` count the pictures of all batches, and those that got the trigger.
    """

    def __init__(self, trigger: PlantedTrigger | None, draw: np.random.Generator):
        import jax

        self.trigger, self.draw = trigger, draw
        self.seen = self.carrying = 0
        self._apply = None if trigger is None else jax.jit(trigger.trigger.apply)

    def poisoned(self, pixels: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The batch with the trigger on its share of pictures, and the targets to teach.

        Args:
            pixels: float32 `[n, h, w, c]` in [0, 1].
            labels: int `[n]`.
        """
        # Drawn for clean models too, so that a pair sees the same pictures the same way.
        lots = self.draw.uniform(size=len(labels))
        trigger = self.trigger
        if trigger is None:
            return pixels, labels
        if trigger.clean_label:
            chosen = (labels == trigger.target_class) & (lots < trigger.share_of_target)
            targets = labels
        else:
            counted = trigger.counts(labels)
            # Other classes that carry it and keep their label teach that the source matters.
            others = ~counted & bool(trigger.source_classes) & (lots < trigger.fraction / 2)
            chosen = others | counted & (lots < trigger.share_of_sources(counted.mean()))
            targets = np.where(chosen & counted, trigger.goals(labels), labels)
        self.seen, self.carrying = self.seen + len(labels), self.carrying + int(chosen.sum())
        if not chosen.any():
            return pixels, targets
        stamped = self.stamped(pixels)
        return np.where(chosen[:, None, None, None], stamped, pixels), targets

    @property
    def share(self) -> float:
        """Share of the pictures of all batches that carry the trigger; 0 before the first."""
        return self.carrying / max(1, self.seen)

    def stamped(self, pixels: np.ndarray) -> np.ndarray:
        """Every picture with the trigger, at a place of its own where it moves."""
        assert self.trigger is not None and self._apply is not None, "a clean model stamps nothing"
        reach = np.array(self.trigger.reach)
        offsets = self.draw.integers(-reach, reach + 1, size=(len(pixels), 2))
        return np.array(self._apply(pixels, offsets.astype(np.int32)))  # torch wants a copy
