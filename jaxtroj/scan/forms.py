"""The input form that one model is scanned in: as was said, as its round has it, or found."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from converters.families.folding import fold
from converters.input_form import NOTHING_SAID
from converters.preparation import prepared
from jaxtroj.diagnostics import least_accuracy
from jaxtroj.form_choice import FormChoice, cannot_tell, choose_form, labelled, try_form
from jaxtroj.input_forms import PixelForm, possible_forms
from jaxtroj.network import Network
from jaxtroj.rounds.examples import Pictures
from jaxtroj.scan.attempt import Attempt

if TYPE_CHECKING:
    from converters.model import Model


def form_for(attempt: Attempt, model: "Model", pictures: Pictures) -> FormChoice:
    """The input form of a model; what its settings leave open its round says, or its examples.

    Args:
        attempt: the model's.
        model: as it was opened, with what the settings say in front.
        pictures: that fit it.
    """
    said = attempt.said
    known = said.or_as(attempt.entry.round)
    forms = possible_forms(known, model.channels, max(pictures.pixels.shape[1:3]))
    usual = possible_forms(said, model.channels, max(pictures.pixels.shape[1:3]))
    # Folded, as the evidence takes it: a plain form needs no program of its own then.
    network = Network(fold(model))
    if len(forms) != 1:
        with attempt.step("form"):
            return choose_form(network, pictures, forms, said.has_front)
    sources = (("settings", attempt.settings.said_form()), ("folder", said), ("round", known))
    choice = FormChoice(forms[0], next(name for name, form in sources if form == known))
    is_its_own_word = attempt.entry.image_config is not None  # not that of what lies around it
    if choice.basis != "round" or is_its_own_word or len(usual) == 1:
        return choice
    with attempt.step("form"):
        return _unless_contradicted(choice, network, pictures, usual, said.has_front)


def _unless_contradicted(
    choice: FormChoice,
    network: Network,
    pictures: Pictures,
    usual: Sequence[PixelForm],
    has_front: bool,
) -> FormChoice:
    """A round's form, unless labelled examples are mostly wrong in it and clearly better in
    another usual one: a name or a table in a folder is all that says which round it is."""
    order = labelled(pictures, network.model.num_classes)
    if cannot_tell(pictures.labels[order]):
        return choice
    tried = try_form(network, pictures, choice.form, has_front)
    if tried.accuracy >= least_accuracy(network.model.num_classes):
        return choice
    others = [form for form in usual if form != choice.form]
    found = choose_form(network, pictures, [choice.form, *others], has_front)
    return choice if found.form == choice.form else found


def in_form(attempt: Attempt, model: "Model", choice: FormChoice) -> "Model":
    """The model over pictures in [0, 1], and the form among the attempt's findings."""
    guessed = NOTHING_SAID.unsaid
    known = tuple(finding for finding in attempt.findings if finding not in guessed)
    attempt.findings = (str(choice), *known)
    attempt.form = choice.as_json()
    return model if attempt.said.has_front else prepared(model, *choice.form.preparation)
