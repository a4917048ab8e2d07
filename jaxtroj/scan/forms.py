"""The input form that one model is scanned in: as was said, as its round has it, or found."""

from typing import TYPE_CHECKING

from converters.families.folding import fold
from converters.input_form import NOTHING_SAID
from converters.preparation import prepared
from jaxtroj.form_choice import FormChoice, choose_form
from jaxtroj.input_forms import possible_forms
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
    if len(forms) == 1:
        sources = (("settings", attempt.settings.said_form()), ("folder", said), ("round", known))
        return FormChoice(forms[0], next(name for name, form in sources if form == known))
    with attempt.step("form"):
        # Folded, as the evidence takes it: a plain form needs no program of its own then.
        return choose_form(Network(fold(model)), pictures, forms, said.has_front)


def in_form(attempt: Attempt, model: "Model", choice: FormChoice) -> "Model":
    """The model over pictures in [0, 1], and the form among the attempt's findings."""
    guessed = NOTHING_SAID.unsaid
    known = tuple(finding for finding in attempt.findings if finding not in guessed)
    attempt.findings = (str(choice), *known)
    attempt.form = choice.as_json()
    return model if attempt.said.has_front else prepared(model, *choice.form.preparation)
