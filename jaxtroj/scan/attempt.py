"""One model on its way to its record: what is known so far, which a failed record says too."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from jaxtroj.calibration import Calibrator
from jaxtroj.calibration.transfer import Traits
from jaxtroj.evidence.gather import Evidence
from jaxtroj.input_forms import SaidForm
from jaxtroj.model_files import digest_or_reason
from jaxtroj.populations import Asked
from jaxtroj.record import printable
from jaxtroj.rounds import ModelEntry
from jaxtroj.rounds.examples import usual_size
from jaxtroj.rounds.image_config import middle_of
from jaxtroj.settings import Settings, base_rate, choice_of, load_calibrator

if TYPE_CHECKING:
    from converters.hub.processor import FolderForm
    from converters.model import Model
    from jaxtroj.evidence.context import Context

_KINDS = {"image": "image", "embedding": "text", "tokens": "text-classifier"}
OnStep = Callable[[str, str], None]
"""Called with the model's name and the step that begins: read, convert, examples, form, a stage."""


def silent(model: str, step: str) -> None:
    """Ignores every step."""


@dataclass
class Attempt:
    """A model, its settings, and what was found out so far.

    Attributes:
        entry, settings: what is scanned, and how.
        on_step: called as each step begins.
        kind: what the network takes; until it is read, what its folder looks like.
        sha256, architecture, findings: of the model file, once it is read.
        outline: its layers in words, where its architecture is a digest.
        classes: how many it tells apart.
        form: of the pixels, as `Record.input_form`.
        folder_form: how the model's folder wants pictures; None where it does not say.
        class_names: what the model's folder calls its classes, in their order.
        picture_size: height and width of its examples in pixels, once they are read.
        is_apart: whether the clean heads that it is compared with come from another dataset.
        has_reference: whether a clean network of its classes is at hand.
        has_batch_norm: whether it has batch norms with running statistics that the examples can be
            compared with; None until both are read.
        weight: what its evidence counts, see `Traits`.
        evidence, flags: what was gathered, and doubts about it.
        unsearched: kinds of trigger that nothing looked for, although a model of a size that its
            calibrator has met usually gets the stage that does: its pictures are too large for
            that, somebody named other stages, or the search was ended.
        panels: of the trigger that the record shows, see `Trigger.picture`, in RGB or grey.
        context: what its stages were given, once they begin.
        seconds: wall time by step.
    """

    entry: ModelEntry
    settings: Settings
    on_step: OnStep = silent
    kind: str = ""
    sha256: str = ""
    architecture: str | None = None
    findings: tuple[str, ...] = ()
    outline: str = ""
    classes: int | None = None
    form: dict[str, object] = field(default_factory=dict)
    folder_form: "FolderForm | None" = None
    class_names: tuple[str, ...] = ()
    picture_size: tuple[int, int] | None = None
    is_apart: bool = False
    has_reference: bool = False
    has_batch_norm: bool | None = None
    weight: float = 1.0
    evidence: Evidence = Evidence()
    flags: tuple[str, ...] = ()
    unsearched: tuple[str, ...] = ()
    panels: tuple[np.ndarray, ...] = ()
    context: "Context | None" = None
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kind = self.kind or self.entry.kind

    @property
    def name(self) -> str:
        """The model's name, printable."""
        return printable(self.entry.model_id)

    @property
    def calibrator(self) -> Calibrator | None:
        """The calibrator for this kind of model and size of pictures; raises CalibrationError."""
        return load_calibrator(self.settings, self.asked)

    @property
    def asked(self) -> Asked:
        """What the choice of a calibrator goes by."""
        return Asked(
            self.kind,
            self.picture_size,
            self.entry.round,
            self.is_apart,
            self.has_reference,
            self.has_batch_norm,
        )

    @property
    def calibrator_in_words(self) -> str:
        """The calibrator that answers, the start of its digest, and why it; "" for none."""
        choice = choice_of(self.settings, self.asked)
        if choice is None:
            return ""
        return f"{printable(choice.path.name)} ({digest_or_reason(choice.path)[:12]}), {choice.why}"

    @property
    def traits(self) -> Traits:
        """What a calibrator may or may not have met of it."""
        side = None if self.picture_size is None else max(self.picture_size)
        return Traits(self.architecture, self.outline, side, self.classes, self.weight)

    @property
    def base_rate(self) -> float:
        """P(poisoned) before any evidence."""
        return base_rate(self.settings, self.asked)

    @property
    def said(self) -> SaidForm:
        """What is said of the pixels: by the settings, and where they leave it open by the model's
        folder."""
        said, own = self.settings.said_form(), self.folder_form
        if own is None:
            return said
        order = said.channel_order or own.channel_order
        if said.normalization is not None or said.has_front:
            return replace(said, channel_order=order)
        return SaidForm(order, "unit", own.bounds, own.mean, own.std)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Announce a step and note its wall time, even if it fails."""
        self.on_step(self.name, name)
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(time.perf_counter() - started, 4)

    def gathered(self, evidence: Evidence) -> None:
        """Note evidence as far as it is known."""
        self.evidence = evidence
        self.seconds |= {name: round(s, 4) for name, s in evidence.seconds.items()}


def taken(attempt: Attempt, model: "Model") -> "Model":
    """A converted network as it is searched, up to its logits; the attempt knows it then.

    One of a single output is searched as one of two classes.
    """
    from converters.graph.logits import with_logits
    from converters.graph.straight_through import passing_gradients
    from converters.graph.structure import outline_in
    from converters.hot_channels import hot_channels
    from converters.one_output import two_classes

    model, cut = with_logits(model)
    model, rounded = passing_gradients(model)
    model, taken_for = two_classes(model, by_sigmoid=bool(cut))
    hot = hot_channels(model) if model.input_kind == "image" else ()
    attempt.findings = (*model.findings, *cut, *taken_for, *rounded, *hot)
    attempt.architecture, attempt.classes = model.architecture, model.num_classes
    attempt.outline = outline_in(attempt.findings, model.architecture)
    # What the network takes outranks what the folder looks like.
    attempt.kind = _KINDS[model.input_kind]
    return model


def examples_size(attempt: Attempt) -> tuple[int, int] | None:
    """Height and width of the examples: what a file that leaves them open is scanned at.

    None where there are none to look at; raises ExamplesError where they cannot be used.
    """
    if attempt.kind != "image" or attempt.entry.examples_path is None:
        return None
    shorter = attempt.settings.resize
    own = usual_size(attempt.entry.examples_path)
    if own is None:
        return None
    size = own if shorter is None else (shorter, shorter)
    side = middle_of(attempt.entry.image_config, attempt.entry.round, size).side
    return size if side is None else (side, side)
