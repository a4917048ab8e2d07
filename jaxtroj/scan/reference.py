"""The clean network that a model is compared with, where the settings name one.

It is opened as the model is, under the same limits, and never executed. A network that does not
suit a model (of other classes, of pictures of another size, or the model itself) leaves it without
a reference, and a flag says so; one that cannot be read at all is an error.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from converters.errors import ConverterError
from jaxtroj.errors import EvidenceError, ExamplesError
from jaxtroj.evidence.images.stages.reference import REFERENCE
from jaxtroj.flags import NO_COMPARISON
from jaxtroj.record import printable
from jaxtroj.rounds.examples import Pictures
from jaxtroj.scan.attempt import Attempt
from jaxtroj.scan.forms import form_for, in_form
from jaxtroj.scan.opening import open_model
from jaxtroj.scan.public_code import TOLD

if TYPE_CHECKING:
    from converters.model import Model
    from jaxtroj.evidence.images.context import Reference


def reference_for(attempt: Attempt, model: "Model", pictures: Pictures) -> "Reference | None":
    """The reference for a model; None where the settings name none, or none that suits it.

    Args:
        attempt: the model's; what speaks against a comparison goes into its findings.
        model: as it was opened.
        pictures: its examples.

    Raises:
        EvidenceError: the file cannot be read as a network.
    """
    if attempt.settings.reference is None:
        return None
    with attempt.step("reference file"):
        beside, opened = _opened(attempt)
        against = _against(attempt, model, beside, opened, pictures)
        if against:
            attempt.findings += (f"{NO_COMPARISON.name}: {against}",)
            return None
        told = (finding for finding in opened.findings if finding.startswith(TOLD))
        attempt.findings += tuple(f"{finding}, of the reference" for finding in told)
        return _in_its_form(beside, opened, pictures)


def comparison(attempt: Attempt) -> str:
    """What became of a reference that suits, once the stages have run: a finding, or a flag."""
    if REFERENCE.name in attempt.evidence.stages:
        return f"compared with the reference {printable(str(attempt.settings.reference))}"
    return f"{NO_COMPARISON.name}: the stages that were run do not look at it"


def _opened(attempt: Attempt) -> tuple[Attempt, "Model"]:
    path = attempt.settings.reference
    assert path is not None
    entry = replace(attempt.entry, model_id=str(path), model_path=path, code=None, problem=None)
    beside = Attempt(entry, attempt.settings)
    try:
        return beside, open_model(beside)
    except ConverterError as error:
        raise EvidenceError(f"the reference {beside.name} cannot be read: {error}") from error


def _against(
    attempt: Attempt, model: "Model", beside: Attempt, opened: "Model", pictures: Pictures
) -> str:
    """What speaks against a comparison, in words; "" for nothing."""
    from jaxtroj.evidence.images.context import check_fit

    if beside.sha256 == attempt.sha256:
        return "it is this file"
    if beside.kind != "image":
        return f"{beside.name} takes no pictures"
    if opened.num_classes != model.num_classes:
        return f"{beside.name} has {opened.num_classes} classes, the model {model.num_classes}"
    if (np.asarray(pictures.labels) < 0).all():
        return "the class of no example is known"
    try:
        check_fit(opened, pictures.pixels.shape, pictures.labels)
    except ExamplesError as error:
        return f"{beside.name}: {error}"
    return ""


def _in_its_form(beside: Attempt, opened: "Model", pictures: Pictures) -> "Reference":
    from converters.families.folding import fold
    from jaxtroj.evidence.images.context import Reference

    choice = form_for(beside, opened, pictures)
    examples = pictures.examples(choice.form.channel_order, choice.form.normalization)
    return Reference(fold(in_form(beside, opened, choice)), examples.images)
