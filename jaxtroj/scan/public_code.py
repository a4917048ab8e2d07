"""Whose code a state dict is of, where several have its names: told by the labelled examples.

The file is opened as each code would compute it, each in the input form that suits it best, and all
classify the same examples. One is taken only if it is clearly better than every other one, and well
above guessing; else the file is refused.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from converters.errors import ConversionError, SharedNamesError
from converters.input_form import InputForm
from converters.public_codes import PublicCode
from jaxtroj.errors import ExamplesError
from jaxtroj.rounds.examples import Pictures
from jaxtroj.scan.attempt import Attempt, examples_size

if TYPE_CHECKING:
    from converters.model import Model
    from converters.opening import OpenedModel
    from converters.rewriting import Rewritable
    from jaxtroj.form_choice import Tried

Opened = TypeVar("Opened", "OpenedModel", "Rewritable")
_Size = tuple[int, int] | None
TOLD = "public code"
"""How the finding begins that says what examples told."""

# Were two codes equally good, one would look better by so much once in so many files. It takes at
# least 8 examples that one classifies as labelled and the other does not.
_CHANCE = 0.01
# Of the way from guessing to being always right. Networks are published that get most of their own
# pictures right; code that is none of those tried is no better for being the best of them.
_LEAST = 0.5


def settled(attempt: Attempt, opener: Callable[[InputForm, _Size], Opened]) -> Opened:
    """A model file, opened as the settings say, and where they leave it open as examples tell.

    Args:
        attempt: the model's.
        opener: converts the file, for images of the examples' height and width if these are known.

    Raises:
        SharedNamesError: it is of several codes, and neither settings nor examples tell which.
        ConverterError: as `opener`.
        ExamplesError: such a file has no example pictures, or none that fit.
    """
    form, at_size = attempt.settings.input_form(), _at_size(attempt, opener)
    with attempt.step("convert"):
        try:
            return at_size(form)
        except SharedNamesError as error:
            shared = error
    with attempt.step(TOLD):
        opened = {one: at_size(replace(form, public_code=one.name)) for one in shared.codes}
        tried, problem = _tried(attempt, {one: found.model for one, found in opened.items()})
        taken = None if problem else clearly_best(tried)
    if taken is None:
        refusal = SharedNamesError(shared.codes, problem or _shown(tried))
        refusal.digest = shared.digest
        raise refusal from shared
    found = opened[taken]
    told = f"{TOLD}: {_shown({taken: tried[taken], **tried})}"
    return replace(found, model=replace(found.model, findings=(*found.model.findings, told)))


def _at_size(
    attempt: Attempt, opener: Callable[[InputForm, _Size], Opened]
) -> Callable[[InputForm], Opened]:
    """The opener at the size of the examples; where they cannot be used, its errors say why."""
    try:
        size = examples_size(attempt)
    except ExamplesError as error:
        problem = error  # reading the examples meets it again, if the file is converted
    else:
        return lambda form: opener(form, size)

    def at_no_size(form: InputForm) -> Opened:
        try:
            return opener(form, None)
        except SharedNamesError:
            raise
        except ConversionError as error:
            said = str(error).rstrip(".")
            raise ConversionError(f"{said}; the examples told no size: {problem}") from error

    return at_no_size


def _tried(
    attempt: Attempt, models: Mapping[PublicCode, "Model"]
) -> "tuple[dict[PublicCode, Tried], str]":
    """How each model classifies the examples, and why they cannot tell; "" where they may."""
    from converters.one_output import two_classes
    from jaxtroj.evidence.images.context import check_fit
    from jaxtroj.form_choice import cannot_tell, labelled
    from jaxtroj.scan.pictures import pictures_of

    models = {code: two_classes(model)[0] for code, model in models.items()}
    first = next(iter(models.values()))
    pictures = pictures_of(attempt, first)
    check_fit(first, pictures.pixels.shape, pictures.labels)
    problem = cannot_tell(pictures.labels[labelled(pictures, first.num_classes)])
    if problem:
        return {}, problem
    return {code: _tried_one(attempt, model, pictures) for code, model in models.items()}, ""


def _tried_one(attempt: Attempt, model: "Model", pictures: Pictures) -> "Tried":
    from converters.families.folding import fold
    from jaxtroj.form_choice import try_form
    from jaxtroj.network import Network
    from jaxtroj.scan.forms import form_for

    form = form_for(attempt, model, pictures).form
    return try_form(Network(fold(model)), pictures, form, attempt.said.has_front)


def clearly_best(tried: Mapping[PublicCode, "Tried"]) -> PublicCode | None:
    """The code that classifies the examples better than every other one by more than chance.

    None where there is none such, or it is not well above guessing.

    Args:
        tried: at least two, on the same examples.
    """
    best = max(tried, key=lambda code: tried[code].accuracy)
    right = tried[best].right
    others = [how.right for code, how in tried.items() if code is not best]
    is_clear = all(
        by_chance(int((right & ~other).sum()), int((other & ~right).sum())) <= _CHANCE
        for other in others
    )
    guessing = tried[best].guessing
    least = guessing + _LEAST * (1 - guessing)
    return best if is_clear and tried[best].accuracy >= least else None


def by_chance(gains: int, losses: int) -> float:
    """Probability that a fair coin parts so many throws at least as unevenly: the sign test.

    Of paired answers it is McNemar's exact test (https://doi.org/10.1007/BF02295996, 1947).

    Args:
        gains: examples that only the one classifies as labelled.
        losses: those that only the other does.

    >>> by_chance(8, 0), by_chance(3, 2)
    (0.0078125, 1.0)
    """
    throws, most = gains + losses, max(gains, losses)
    tail = sum(math.comb(throws, k) for k in range(most, throws + 1))
    return min(1.0, 2 * tail / 2**throws)


def _shown(tried: Mapping[PublicCode, "Tried"]) -> str:
    """Such as `mixmatch, clean accuracy 0.93 on 200 labelled examples`."""
    return "; ".join(
        f"{code.name}, clean accuracy {how.accuracy:.2f} on {len(how.right)} labelled examples"
        for code, how in tried.items()
    )
