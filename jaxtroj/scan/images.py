"""Image classifiers: example pictures in, pictures of recovered triggers out."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtroj.calibration import Verdict
from jaxtroj.evidence.gather import Evidence
from jaxtroj.evidence.stage import Stage, Subject
from jaxtroj.evidence.stages import IMAGE_STAGES
from jaxtroj.record import finite, printable
from jaxtroj.record_text import write_trigger
from jaxtroj.rounds.examples import Examples, Pictures
from jaxtroj.scan.attempt import Attempt
from jaxtroj.scan.image_limits import limits_of, standing_out
from jaxtroj.scan.kinds import Prepared
from jaxtroj.scan.naming import named_class, working_trigger
from jaxtroj.scan.pictures import is_size_said, pictures_of
from jaxtroj.scan.records import Judgement

if TYPE_CHECKING:
    from converters.model import Model
    from jaxtroj.evidence.images.context import ImageContext
    from jaxtroj.evidence.images.matched import Match
    from jaxtroj.form_choice import FormChoice
    from jaxtroj.triggers.measure import RecoveredTrigger

_NOT_COMPARED = (
    "what batch norms remember of the training pictures is not compared with the examples: they"
    " show too few of the classes, where clean networks look poisoned; give pictures of each class"
)


@dataclass
class ImageScan:
    """One image classifier, opened already; see `KindOfScan`.

    Attributes:
        attempt: what is known of it.
        model: the network; once prepared, over pictures in [0, 1].
        trigger_path: where the picture of the trigger goes; None writes none.
    """

    attempt: Attempt
    model: "Model"
    trigger_path: Path | None
    stages: tuple[Stage, ...] = IMAGE_STAGES
    _form: "FormChoice | None" = None
    _shown: "RecoveredTrigger | None" = None
    _given: Examples | None = None
    _match: "Match | None" = None
    _outputs: str = ""
    _counts_left: str = ""
    _of_other_size: float = 0.0
    _unknown_folders: tuple[str, ...] = ()

    def prepare(self) -> Prepared:
        from converters.batch_norms import has_batch_norms
        from jaxtroj.evidence.images.context import check_fit, image_context
        from jaxtroj.evidence.images.evened import evened, evened_classes
        from jaxtroj.evidence.images.labelled_examples import normed, weight_of
        from jaxtroj.scan.forms import form_for, in_form
        from jaxtroj.scan.reference import reference_for

        with self.attempt.step("examples"):
            pictures = pictures_of(self.attempt, self.model)
        self._of_other_size = pictures.of_other_size
        self._unknown_folders = pictures.unknown_folders
        height, width = pictures.pixels.shape[1:3]
        self.attempt.picture_size = (height, width)
        check_fit(self.model, pictures.pixels.shape, pictures.labels)
        choice = self._form = form_for(self.attempt, self.model, pictures)
        self.model = in_form(self.attempt, self.model, choice)
        pictures = self._cut(pictures, choice)
        height, width = pictures.pixels.shape[1:3]
        self.attempt.picture_size = (height, width)
        self._given = pictures.examples(choice.form.channel_order, choice.form.normalization)
        reference = reference_for(self.attempt, self.model, pictures)
        self.attempt.has_reference = reference is not None
        self.model = self._levelled(self._given)
        # A reference sees the examples as they are, so beside one they stay so.
        examples = self._given if reference is not None else self._matched(self._given)
        seed = self.attempt.settings.seed
        counts = self._class_counts()
        plain = image_context(self.model, examples, seed, reference=reference, class_counts=counts)
        with self.attempt.step("shares"):
            context = evened(plain)
        if context is not plain:
            self.attempt.findings += (evened_classes(context),)
        norms = self.attempt.has_batch_norm = context.shared(normed)
        if has_batch_norms(self.model) and not norms:
            self.attempt.findings += (_NOT_COMPARED,)
        self.attempt.weight = weight_of(examples.labels, self.model.num_classes)
        side, beside = max(height, width), reference is not None
        return Prepared(context, Subject(side, has_batch_norm=norms, has_reference=beside))

    def _cut(self, pictures: Pictures, choice: "FormChoice") -> Pictures:
        """The pictures, or the middle of them if only stored logits say that it is taken."""
        from jaxtroj.network import Network
        from jaxtroj.scan.stored_logits import cut_as_stored

        if is_size_said(self.attempt, self.model):
            return pictures
        return cut_as_stored(self.attempt.entry, Network(self.model), pictures, choice.form)

    def _levelled(self, examples: Examples) -> "Model":
        """The network with logits as large as those of trained ones."""
        from jaxtroj.evidence.images.levelled import level, levelled
        from jaxtroj.evidence.logit_size import in_words

        with self.attempt.step("level"):
            found = level(self.model, examples)
        self._outputs = found.outputs
        if found.factor != 1:
            self.attempt.findings += (in_words(found.factor),)
        return levelled(self.model, found.factor)

    def _matched(self, given: Examples) -> Examples:
        """The examples as the network's batch norms remember its training pictures."""
        from jaxtroj.evidence.images.labelled_examples import shows_classes
        from jaxtroj.evidence.images.matched import match, matched

        if not shows_classes(given.labels, self.model.num_classes):
            return given
        with self.attempt.step("match"):
            found = self._match = match(self.model, given)
        if found is None:
            return given
        self.attempt.findings += (str(found),)
        return matched(given, found)

    def _class_counts(self) -> tuple[float, ...] | None:
        """What people said of the training pictures of each class, where it fits the model."""
        counts, classes = self.attempt.settings.class_counts, self.model.num_classes
        if counts is None or len(counts) == classes:
            return counts
        self._counts_left = (
            f"class counts are given for {len(counts)} classes, and the network has {classes}:"
            " they are not used"
        )
        self.attempt.findings += (self._counts_left,)
        return None

    def flags(self, context: "ImageContext") -> tuple[str, ...]:
        from converters.adjusted_logits import unadjusted
        from jaxtroj.diagnostics import (
            diagnose,
            diagnose_folders,
            diagnose_labels,
            diagnose_norms,
            diagnose_sizes,
        )
        from jaxtroj.evidence.images.context import anchored
        from jaxtroj.evidence.images.head_rows import head_rows
        from jaxtroj.evidence.images.reference import labelled_answers
        from jaxtroj.evidence.images.statistics import answered
        from jaxtroj.network import Network
        from jaxtroj.scan.reference import comparison
        from jaxtroj.scan.stored_logits import compare_stored

        if (head := context.known(head_rows)) is not None:
            self.attempt.findings += head.findings
        if context.reference is not None:
            self.attempt.findings += (comparison(self.attempt),)
        examples = context.known(anchored)
        fitted = {} if examples is None else self._fitted(context, len(examples.images))
        asked = context.known(answered) or context.known(labelled_answers)
        found = diagnose(
            self.model, examples, self.attempt.findings, self._form, fitted, asked, self._outputs
        )
        folder = self.attempt.entry.model_path.parent
        assert self._given is not None, "flags are asked for once a model is prepared"
        stored = compare_stored(folder, Network(unadjusted(context.model)), self._given)
        sizes = diagnose_sizes(self._of_other_size)
        tables, classes = self._tables(), self.model.num_classes
        unlabelled = diagnose_folders(self._unknown_folders, classes, tables)
        unlabelled = unlabelled or diagnose_labels(context.examples.labels, tables)
        lag = diagnose_norms(self.attempt.evidence.fields)
        return (*stored, *map(str, (*sizes, *unlabelled, *found, *lag)))

    def _tables(self) -> list[str]:
        """Names of tables beside the examples."""
        from jaxtroj.rounds.folder_content import tables_in

        place = self.attempt.entry.examples_path
        return [] if place is None else tables_in(place)

    def _fitted(self, context: "ImageContext", given: int) -> dict[str, int]:
        """The searches that ran, and to how many of the examples each fits triggers."""
        from jaxtroj.anchors import fitted_count
        from jaxtroj.evidence.images.inversion import InversionBudget
        from jaxtroj.evidence.images.probes import ProbeBudget

        classes = self.model.num_classes
        counts = {
            "probes": fitted_count(context.budget(ProbeBudget).close_per_class, classes, given),
            "inversion": context.budget(InversionBudget).fitted(classes, given),
            # These fit to half of the examples at most, or to the only one.
            "fixed": 1,
            "whole": 1,
        }
        return {name: n for name, n in counts.items() if name in self.attempt.evidence.stages}

    def target(
        self, evidence: Evidence, context: "ImageContext"
    ) -> tuple[int | None, tuple[int, ...]]:
        """Of the class named, and of a trigger that works for it; see `naming`.

        A trigger that sends each class to the next is shown before all others, and names none.
        """
        from jaxtroj.evidence.images.context import anchored
        from jaxtroj.triggers.measure import NO_TARGET

        found = evidence.triggers
        self._shown = next((one for one in found if one.target_class == NO_TARGET), None)
        if self._shown is not None:
            return None, ()
        named = named_class(finite(evidence.fields), evidence.triggers)
        self._shown = next(iter(evidence.triggers), None)
        if self._shown is not None and named is not None:
            examples = context.shared(anchored)
            own = working_trigger(named, evidence.triggers, evidence.for_classes, examples)
            self._shown = own or self._shown
        if self._shown is None or self._shown.target_class != named:
            return named, ()
        return named, tuple(int(c) for c in self._shown.source_classes)

    def judgement(self, evidence: Evidence, verdict: Verdict, context: "ImageContext") -> Judgement:
        trigger, examples = self._shown, context.examples
        made_alike = () if self._match is None else (str(self._match),)
        asks_counts = self.attempt.settings.class_counts is None
        limits = (*limits_of(verdict, trigger, context, asks_counts), *made_alike)
        limits += (self._counts_left,) if self._counts_left else ()
        verdict = replace(verdict, caveats=(*verdict.caveats, *limits))
        if trigger is None:
            return Judgement(verdict, remarks=examples.problems)
        picture, problem, recovered = None, "", dict[str, Any](trigger.as_json())
        if stands_out := "" if verdict.poisoned else standing_out(trigger, context):
            verdict = replace(verdict, caveats=(*verdict.caveats, stands_out))
        if verdict.poisoned or stands_out or self.attempt.settings.calibrator is None:
            picture, problem = self._picture(trigger, examples)
            recovered["flips"] = self._flips(trigger, context)
        leans = _leans(evidence) if verdict.poisoned else ""
        remarks = (*examples.problems, leans, problem)
        if problem:  # who asked for a picture must see it without reading JSON
            verdict = replace(verdict, caveats=(*verdict.caveats, problem))
        return Judgement(verdict, recovered, picture, remarks)

    def _flips(self, trigger: "RecoveredTrigger", context: "ImageContext") -> dict[str, list]:
        from converters.adjusted_logits import unadjusted
        from jaxtroj.evidence.images.context import anchored
        from jaxtroj.network import Network
        from jaxtroj.triggers.flips import flips_of

        network = Network(unadjusted(context.model))
        return flips_of(network, context.shared(anchored), trigger).as_json()

    def _picture(self, trigger: "RecoveredTrigger", examples: Examples) -> tuple[str | None, str]:
        """Write the trigger's picture: its path, or None and why it could not be written."""
        others = np.flatnonzero(examples.labels != trigger.target_class)
        clean = examples.images[others[0] if others.size else 0]
        flip = slice(None, None, -1) if examples.channel_order == "BGR" else slice(None)
        panels = tuple(np.asarray(panel)[..., flip] for panel in trigger.picture(clean))
        self.attempt.panels = panels
        if self.trigger_path is None:
            return None, ""
        try:
            write_trigger(self.trigger_path, panels)
        except OSError as error:  # the answer stands without its picture
            return None, f"cannot write {self.trigger_path}: {error.strerror or error}"
        return printable(str(self.trigger_path)), ""


def _leans(evidence: Evidence) -> str:
    """Which class leans to which, in words, where a reference told; see `stages.reference`."""
    fields = finite(evidence.fields)
    if "reference_lean_source" not in fields:
        return ""
    source, target = (int(fields[f"reference_lean_{name}"]) for name in ("source", "class"))
    return f"beside the reference, clean examples of class {source} lean most to class {target}"
