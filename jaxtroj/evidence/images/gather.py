"""Evidence of one image classifier, stage by stage, cheap first."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from converters.families.folding import fold
from converters.model import Model
from jaxtroj.anchors import AnchoredExamples, anchor
from jaxtroj.errors import EvidenceError, ExamplesError
from jaxtroj.evidence.images.fixed import FixedBudget, fixed_fields, locate, search_fixed
from jaxtroj.evidence.images.inversion import (
    InversionBudget,
    Measured,
    cleanse,
    inversion_fields,
    search_patches,
)
from jaxtroj.evidence.images.probes import (
    ProbeBudget,
    Probed,
    probe_fields,
    run_probes,
    try_patches,
)
from jaxtroj.evidence.images.schema import STAGE_FIELDS, STAGES, usual_stages
from jaxtroj.evidence.images.sensitivity import SensitivityBudget, sensitivity_fields
from jaxtroj.evidence.images.weights import last_layer, weight_fields
from jaxtroj.network import Network
from jaxtroj.rounds.examples import Examples
from jaxtroj.settings import Settings
from jaxtroj.triggers.mask import Trigger, shift
from jaxtroj.triggers.patch import patch_trigger, take

OnStage = Callable[[str, Mapping[str, float]], bool]
"""Told of a finished stage and all fields so far; True ends the gathering."""


@dataclass(frozen=True)
class Budget:
    """How much each stage may spend; the same on every device, so answers agree."""

    examples_per_class: int = 4
    probes: ProbeBudget = field(default=ProbeBudget())
    sensitivity: SensitivityBudget = field(default=SensitivityBudget())
    inversion: InversionBudget = field(default=InversionBudget())
    fixed: FixedBudget = field(default=FixedBudget())


@dataclass(frozen=True)
class RecoveredTrigger:
    """A candidate trigger and how well it works on examples it was not fitted to.

    Attributes:
      target_class: the class it serves.
      source_classes: classes of which it flips more than half of the examples.
      mask: `[h, w, 1]` and pattern `[h, w, c]` in [0, 1], where the first example that is not of
        the target class has its object.
      attack_success_rate: fraction of held-out examples of other classes that it flips.
      mask_l1: size in pixels.
      method: what found it.
    """

    target_class: int
    source_classes: tuple[int, ...]
    mask: np.ndarray
    pattern: np.ndarray
    attack_success_rate: float
    mask_l1: float
    method: str


@dataclass(frozen=True)
class Evidence:
    """What was gathered: fields by name, triggers best first, wall seconds by stage.

    `seconds` has two more entries: "fold" (batch norms, before) and "triggers" (choosing, after).
    `anchored` are the examples with the model's answers; None where the weights alone decided.
    """

    fields: Mapping[str, float]
    triggers: tuple[RecoveredTrigger, ...]
    seconds: Mapping[str, float]
    stages: tuple[str, ...]
    anchored: AnchoredExamples | None = None


def gather(
    model: Model,
    examples: Examples,
    settings: Settings,
    on_stage: OnStage | None = None,
    budget: Budget = Budget(),
) -> Evidence:
    """Run the stages of `settings` in order; of all stages, those for the pictures' size.

    The same model, examples and settings give the same evidence, alone or among others: random
    choices are keyed by the seed alone and by class and candidate number.

    Raises:
      ExamplesError: the examples do not fit the model.
      EvidenceError: the model gives no finite answers on them.
    """
    _check(model, examples)
    started = time.perf_counter()
    work = _Work(fold(model), examples, settings, budget)
    work.seconds["fold"] = time.perf_counter() - started
    stages = stages_of(settings, examples)
    for stage in stages:
        started = time.perf_counter()
        found = work.run(stage)
        work.fields |= {name: found[name] for name in STAGE_FIELDS[stage]}
        work.seconds[stage] = time.perf_counter() - started
        if on_stage is not None and on_stage(stage, work.fields):
            break
    started = time.perf_counter()
    triggers = work.triggers()
    work.seconds["triggers"] = time.perf_counter() - started
    done = tuple(stage for stage in stages if stage in work.seconds)
    return Evidence(work.fields, triggers, work.seconds, done, work.anchored)


def stages_of(settings: Settings, examples: Examples) -> tuple[str, ...]:
    """The stages to run: those of the settings, or if they leave it open those of the size."""
    height, width = examples.images.shape[1:3]
    return usual_stages((height, width)) if settings.stages == STAGES else settings.stages


def _check(model: Model, examples: Examples) -> None:
    if not len(examples.images):
        raise ExamplesError("no example pictures were given; expected at least one")
    channels = examples.images.shape[-1]
    if channels != model.channels:
        raise ExamplesError(
            f"the examples have {channels} channels, the model expects {model.channels}"
        )
    size, takes = examples.images.shape[1:3], getattr(model.config, "image_size", None)
    if takes is not None and tuple(takes) != size:
        raise ExamplesError(
            f"the examples are {size[0]} x {size[1]} pixels, the network takes {takes[0]} x"
            f" {takes[1]}; give pictures of that size, made as the network's own were, or where the"
            f" file leaves the size open --image-size {size[0]}x{size[1]}"
        )
    if model.num_classes < 2:
        raise EvidenceError(
            f"the model has {model.num_classes} output; expected at least 2 classes"
        )
    if examples.labels.max(initial=-1) >= model.num_classes:
        raise ExamplesError(
            f"an example is named for class {examples.labels.max()}, the model has classes 0 to "
            f"{model.num_classes - 1}; are these the examples of another model?"
        )


@dataclass
class _Work:
    """One model on its way through the stages; later stages start from what earlier ones found."""

    model: Model
    examples: Examples
    settings: Settings
    budget: Budget
    fields: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    anchored: AnchoredExamples | None = None
    probed: Probed | None = None
    measured: tuple[Measured, ...] = ()

    def run(self, stage: str) -> dict[str, float]:
        """Fields of one stage."""
        return {
            "weights": self.weights,
            "probes": self.probes,
            "sensitivity": self.sensitivity,
            "inversion": self.inversion,
            "fixed": self.fixed,
        }[stage]()

    @property
    def network(self) -> Network:
        return Network(self.model)

    @property
    def key(self) -> jax.Array:
        return jax.random.key(self.settings.seed)

    def weights(self) -> dict[str, float]:
        params = {k: np.asarray(v) for k, v in self.model.params.items()}
        return weight_fields(params, last_layer(self.model))

    def probes(self) -> dict[str, float]:
        return probe_fields(self.bank(), last_layer(self.model))

    def sensitivity(self) -> dict[str, float]:
        return sensitivity_fields(self.network, self.anchors(), self.budget.sensitivity)

    def inversion(self) -> dict[str, float]:
        budget, anchored = self.budget.inversion, self.anchors()
        patches = search_patches(self.network, anchored, self.bank(), budget)
        masks = cleanse(
            self.network, anchored, self.bank(), jax.random.fold_in(self.key, 2), budget
        )
        self.measured = (*self.measured, patches, masks)
        return inversion_fields(patches, masks, anchored.classes)

    def fixed(self) -> dict[str, float]:
        budget, anchored = self.budget.fixed, self.anchors()
        windows, blends, scale = search_fixed(self.network, anchored, budget)
        located = locate(self.network, anchored, windows, budget)
        self.measured = (*self.measured, located, blends)
        return fixed_fields(windows, blends, scale)

    def anchors(self) -> AnchoredExamples:
        if self.anchored is None:
            limit = self.budget.examples_per_class * self.model.num_classes
            self.anchored = anchor(self.network, self.examples, limit)
        return self.anchored

    def bank(self) -> Probed:
        if self.probed is None:
            self.probed = run_probes(self.network, self.anchors(), self.key, self.budget.probes)
        return self.probed

    def triggers(self) -> tuple[RecoveredTrigger, ...]:
        """Candidates of every method that ran, the strongest first."""
        found = [self._best_of(measured) for measured in self.measured]
        if self.probed is not None:
            found.insert(0, self._probe_trigger(self.probed))
        return tuple(sorted(found, key=lambda t: (-t.attack_success_rate, t.mask_l1)))

    def _probe_trigger(self, probed: Probed) -> RecoveredTrigger:
        anchored = self.anchors()
        target = int(np.sort(probed.scores, axis=0)[-6:].mean(axis=0).argmax())
        place = int(probed.scores[:, target].argmax())
        patch = take(probed.patches, jnp.asarray([place]))
        seen = len(anchored.spread(self.budget.probes.close_per_class).images)
        rest = anchored.after(seen)
        gains = try_patches(self.network, rest, patch)
        height, width = anchored.images.shape[1:3]
        centre = jnp.asarray([height // 2, width // 2], jnp.float32)
        trigger = patch_trigger(jax.tree.map(lambda x: x[0], patch), centre, height, width)
        return self._recovered("probe", target, float(gains[0][0, target]), None, trigger, True)

    def _best_of(self, measured: Measured) -> RecoveredTrigger:
        place = int(measured.scores.argmax())
        target = int(measured.targets[place])
        trigger = jax.tree.map(lambda x: x[place], measured.triggers)
        sources, flips = measured.sources, measured.flips[place]
        others = sources != target
        rate = float(flips[others].mean()) if others.any() else 0.0
        by_class = [c for c in np.unique(sources[others]) if flips[sources == c].mean() > 0.5]
        anchored_arm = bool(measured.anchored[place])
        return self._recovered(
            measured.method, target, rate, tuple(int(c) for c in by_class), trigger, anchored_arm
        )

    def _recovered(
        self,
        method: str,
        target: int,
        rate: float,
        sources: tuple[int, ...] | None,
        trigger: Trigger,
        moves: bool,
    ) -> RecoveredTrigger:
        anchored = self.anchors()
        if moves:
            shown = np.flatnonzero(np.asarray(anchored.sources) != target)
            trigger = shift(trigger, anchored.offsets()[int(shown[0]) if shown.size else 0])
        if sources is None:
            sources = tuple(c for c in range(anchored.classes) if c != target) if rate > 0.5 else ()
        mask = np.asarray(trigger.mask)
        pattern = np.asarray(trigger.pattern)
        return RecoveredTrigger(target, sources, mask, pattern, rate, float(mask.sum()), method)
