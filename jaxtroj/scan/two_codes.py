"""Weights that two public codes have under the same names and shapes: the examples say whose.

Nothing ambiguous is scanned: the file is read both ways, each in the input form that suits it best,
and the way that classifies the labelled examples better is taken, if it does so by more than luck
would have it. Else the model is refused.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from converters.errors import CorruptFileError, MismatchError
from converters.families.folding import fold
from converters.findings import fit_two_codes, settled
from jaxtroj.form_choice import FormChoice, Tried, gain, is_beyond_luck, tried_on
from jaxtroj.network import Network
from jaxtroj.rounds.examples import Pictures
from jaxtroj.scan.attempt import Attempt, open_model
from jaxtroj.scan.forms import form_for

if TYPE_CHECKING:
    from converters.model import Model

_WAY_OUT = (
    "give more labelled examples (--examples), an ONNX file of the network, or its code, if you"
    " trust it: --network FILE.py:CLASS"
)


def in_chosen_form(
    attempt: Attempt, model: "Model", pictures: Pictures
) -> tuple["Model", FormChoice]:
    """The model, of the right code where its weights fit two, and its input form.

    Args:
        attempt: the model's; it knows the network that is taken.
        model: as it was opened.
        pictures: that fit it.

    Raises:
        MismatchError: the weights fit two codes and the examples do not tell which.
        CorruptFileError: the file changed since it was opened.
    """
    choice = form_for(attempt, model, pictures)
    if not fit_two_codes(attempt.findings):
        return model, choice
    with attempt.step("two codes"):
        twin = replace(attempt, findings=(), seconds={})
        other = open_model(twin, is_other=True)
        if twin.sha256 != attempt.sha256:
            raise CorruptFileError(f"{attempt.entry.model_path} changed while it was read")
        other_choice = form_for(twin, other, pictures)
        first = _answers(attempt, model, pictures, choice)
        second = _answers(attempt, other, pictures, other_choice)
    if is_beyond_luck(gain(first, second)):
        attempt.findings = settled(attempt.findings, _told(first, second))
        return model, choice
    if not is_beyond_luck(gain(second, first)):
        raise MismatchError(_undecided(first, second))
    attempt.findings = settled(twin.findings, _told(second, first))
    attempt.architecture, attempt.outline = twin.architecture, twin.outline
    return other, other_choice


def _answers(attempt: Attempt, model: "Model", pictures: Pictures, choice: FormChoice) -> Tried:
    found = tried_on(Network(fold(model)), pictures, choice.form, attempt.said.has_front)
    if isinstance(found, Tried):
        return found
    raise MismatchError(
        "these weights fit two public codes with the same names and shapes, and the examples do"
        f" not tell which: {found}; {_WAY_OUT}"
    )


def _told(taken: Tried, other: Tried) -> str:
    return (
        f"told by {len(taken.scores)} labelled examples ({taken.accuracy:.2f} right,"
        f" {other.accuracy:.2f} as other code with the same names)"
    )


def _undecided(first: Tried, second: Tried) -> str:
    return (
        "these weights fit two public codes with the same names and shapes, and"
        f" {len(first.scores)} labelled examples do not tell which: {first.accuracy:.2f} right as"
        f" one, {second.accuracy:.2f} as the other; {_WAY_OUT}"
    )
