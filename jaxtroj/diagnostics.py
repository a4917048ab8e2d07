"""Flags: signs that a verdict rests on a misunderstanding of the model, not on the model.

A file says little about the pictures it expects. Where the examples show that a default was wrong,
the record's reason says so; docs/flags.md tells what to do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from converters.input_form import is_assumption
from converters.model import Model
from converters.one_output import AS_LOGIT
from jaxtroj.anchors import AnchoredExamples, Answered
from jaxtroj.flags import (
    CLASSES_UNKNOWN,
    GUESSED,
    LAGGING,
    LEFT_OUT,
    MISCLASSIFIED,
    MISLEADING,
    NO_GRADIENT,
    NO_LAST_LAYER,
    NONE_HELD_OUT,
    NOT_FINITE,
    ONE_OUTPUT,
    PROBABILITIES,
    UNLABELLED,
    Flag,
)
from jaxtroj.label_shift import LabelShift
from jaxtroj.rounds.class_folders import in_words
from jaxtroj.rounds.turns import MANY_CLASSES

if TYPE_CHECKING:
    from jaxtroj.form_choice import FormChoice

# Of the way from guessing to being always right: what a network classifies at the least.
_LEAST = 0.25
_MOST_LEFT_OUT = 0.5
# Of the examples; a rounding below the 1 in 20 that the flag names.
_LEAST_LAG = 0.05 - 1e-9


@dataclass(frozen=True)
class Raised:
    """A flag that was raised, and what was seen."""

    flag: Flag
    seen: str

    def __str__(self) -> str:
        return f"{self.flag.name}: {self.seen}"


def diagnose(
    model: Model,
    examples: AnchoredExamples | None,
    findings: Sequence[str] = (),
    form: "FormChoice | None" = None,
    fitted: Mapping[str, int] | None = None,
    answered: Answered | None = None,
    outputs: str = "",
) -> tuple[Raised, ...]:
    """The flags of one model, the gravest first.

    Args:
      model: as it was opened.
      examples: with the model's answers; None where it was judged by its weights alone.
      findings: of the opened model; assumptions about its input are guesses.
      form: how its input form was settled, and the accuracy that it was settled by.
      fitted: searches that ran, and to how many examples each fits triggers.
      answered: what a stage asked the network about where no stage needed `examples`.
      outputs: what its own outputs look like that are no logits, see `outputs.as_probabilities`.
    """
    answers = _answers(examples or answered, form)
    raised = [_misclassified(model.num_classes, answers)]
    if examples is not None:
        raised += [Raised(PROBABILITIES, outputs) if outputs else None, _no_gradient(examples)]
        raised.append(_guessed(examples, answers, findings))
        raised.append(_not_finite(examples))
        raised.append(_one_output(examples, answers, findings))
        raised.append(_none_held_out(examples, fitted or {}))
    if model.last_layer() is None:
        raised.append(Raised(NO_LAST_LAYER, "no weight has a row for each class"))
    return tuple(flag for flag in raised if flag is not None)


def diagnose_sizes(of_other_size: float) -> tuple[Raised, ...]:
    """The flag of example pictures, a share of which (0 to 1) was left out for its size."""
    if of_other_size <= _MOST_LEFT_OUT:
        return ()
    return (Raised(LEFT_OUT, f"{of_other_size:.0%} of the pictures are of another size than most"),)


def diagnose_folders(
    unknown: Sequence[str], classes: int, tables: Sequence[str] = ()
) -> tuple[Raised, ...]:
    """The flag of class folders that are not those of all classes of a network.

    Args:
        unknown: their names; none where there is nothing to say.
        classes: of the network.
        tables: names of the tables that lie beside the folders.
    """
    if not unknown:
        return ()
    seen = f"{len(unknown)} class folders ({in_words(list(unknown))}), the network has {classes}"
    seen = f"{seen} classes: the pictures count as unlabelled{_unread(tables)}"
    return (Raised(CLASSES_UNKNOWN, seen),)


def diagnose_labels(labels: np.ndarray, tables: Sequence[str]) -> tuple[Raised, ...]:
    """The flag of example pictures of which none names its class.

    Args:
        labels: int `[n]`, -1 where a name says no class.
        tables: names of the tables that lie beside the pictures.
    """
    if (labels >= 0).any():
        return ()
    seen = (
        "no picture names its class, so that the input form was not checked; name them"
        " class_0_example_0.png and so on, or put them into a folder for each class"
    )
    return (Raised(UNLABELLED, seen + _unread(tables)),)


def _unread(tables: Sequence[str]) -> str:
    """That tables are no labels, in words; "" for none."""
    if not tables:
        return ""
    are = "is" if len(tables) == 1 else "are"
    return f" ({in_words(list(tables))} beside them {are} not read)"


def diagnose_norms(fields: Mapping[str, float]) -> tuple[Raised, ...]:
    """The flag of batch norms whose statistics suit the network less than those of the examples.

    Args:
      fields: evidence of the model; without that of the stage statistics there is no flag.
    """
    gained = -fields.get("norm_accuracy_drop", 0.0)
    if not gained >= _LEAST_LAG:  # a NaN is none
        return ()
    seen = f"{gained:.0%} more of the examples are right by the examples' own batch statistics"
    return (Raised(LAGGING, f"{seen} than by those of the file"),)


def diagnose_head(model: Model, embeddings: np.ndarray, labels: np.ndarray) -> tuple[Raised, ...]:
    """The flags of one sentiment head.

    Args:
      model: the reduced head.
      embeddings: float32 `[n, d]` of its clean examples.
      labels: int `[n]`, -1 where nothing says which class an example is of.
    """
    from jaxtroj.evidence.texts.heads import clean_margins

    if not (labels >= 0).any():
        return ()
    likely = "vectors of another encoder likely"
    return diagnose_texts(clean_margins(model, embeddings), labels, likely)


def diagnose_texts(margins: np.ndarray, labels: np.ndarray, likely: str) -> tuple[Raised, ...]:
    """The flags of a network of texts.

    Args:
      margins: its own on clean examples, `[n, classes]`.
      labels: int `[n]`, -1 where nothing says which class an example is of.
      likely: what is wrong where it does not know them, in words.
    """
    known = labels >= 0
    if not known.any():
        return ()
    accuracy = float((margins.argmax(axis=1) == labels)[known].mean())
    if accuracy >= least_accuracy(margins.shape[1]):
        return ()
    seen = f"clean accuracy {accuracy:.2f} on {int(known.sum())} labelled example texts"
    return (Raised(MISCLASSIFIED, f"{seen}; {likely}"),)


def least_accuracy(classes: int) -> float:
    """The accuracy below which a network is taken for one that does not know its examples.

    >>> round(least_accuracy(10), 3), least_accuracy(2)
    (0.325, 0.625)
    """
    guessing = 1 / classes
    return guessing + _LEAST * (1 - guessing)


@dataclass(frozen=True)
class _Answers:
    """What labelled examples say.

    Attributes:
      accuracy: of the network on them.
      labelled: how many they are.
      forms: in how many input forms they were tried.
      shift: by how much all labels are off; None where they are not.
      other: accuracy in the next of these forms, where it is higher, in words; else "".
      one_class: whether all that are known are of one class.
    """

    accuracy: float
    labelled: int
    forms: int = 1
    shift: LabelShift | None = None
    other: str = ""
    one_class: bool = False


def _answers(examples: AnchoredExamples | Answered | None, form: "FormChoice | None") -> _Answers:
    """What labelled examples say: all that the form was settled by, else those of the evidence."""
    if form is not None and form.accuracy is not None:
        return _Answers(form.accuracy, form.examples, form.tried, form.shift, form.more_accurate)
    if examples is None:
        return _Answers(1.0, 0)
    shows_one = form is not None and form.shows_one_class
    return _Answers(examples.accuracy, examples.labelled, shift=examples.shift, one_class=shows_one)


def _misclassified(classes: int, answers: _Answers) -> Raised | None:
    if not answers.labelled or answers.accuracy >= least_accuracy(classes):
        return None
    seen = (
        f"clean accuracy {answers.accuracy:.2f} on {answers.labelled} labelled examples"
        f" ({1 / classes:.2f} is guessing)"
    )
    if answers.shift is not None:
        return Raised(MISCLASSIFIED, f"{seen}; {answers.shift}")
    if answers.forms > 1:
        # Forms are compared by it: a few right answers more may be luck.
        better = f"none of {answers.forms} usual input forms has a clearly better log score"
        return Raised(MISCLASSIFIED, f"{seen}; {better}{answers.other}")
    return Raised(MISCLASSIFIED, f"{seen}; wrong channel order or normalisation likely")


def _no_gradient(examples: AnchoredExamples) -> Raised | None:
    if examples.is_led:
        return None
    if examples.gradient == 0 and examples.not_finite:
        return None  # told by `_not_finite`: what is no number is not nothing
    if examples.gradient == 0:
        seen = "no pixel changes the answers; are the pixels in the right bounds?"
        return Raised(NO_GRADIENT, seen)
    seen = f"of the examples only {examples.led:.0%} are answered as the gradients say"
    return Raised(MISLEADING, f"{seen} after a small step (chance is 50%)")


def _not_finite(examples: AnchoredExamples) -> Raised | None:
    if not examples.not_finite:
        return None
    seen = f"the gradients of {examples.not_finite:.0%} of the examples are infinite or no numbers"
    return Raised(NOT_FINITE, f"{seen}, and counted nothing in searches")


def _guessed(
    examples: AnchoredExamples, answers: _Answers, findings: Sequence[str]
) -> Raised | None:
    guesses = [finding for finding in findings if is_assumption(finding) or _is_guess(finding)]
    right = answers.labelled and answers.accuracy >= least_accuracy(examples.classes)
    # In a wrong form a network may be stuck on one class, and right on all examples of it.
    several = len(np.unique(np.asarray(examples.sources))) > 1 and not answers.one_class
    if not guesses or (right and several):
        return None
    more = f" (and {len(guesses) - 1} more)" if len(guesses) > 1 else ""
    return Raised(GUESSED, f"{guesses[0]}{more}")


def _one_output(
    examples: AnchoredExamples, answers: _Answers, findings: Sequence[str]
) -> Raised | None:
    """Of a network stuck on one answer, the accuracy is the share of examples of that class."""
    count, given = len(examples.images), np.unique(np.asarray(examples.sources))
    # Those of the evidence are as many of each class, if there are so many.
    right = answers.labelled and min(answers.accuracy, examples.accuracy) >= least_accuracy(2)
    if AS_LOGIT not in findings or (right and len(given) > 1):
        return None
    seen = "too few labelled examples confirm it" if answers.labelled else "no example is labelled"
    stuck = f", all {count} examples get the answer {int(given[0])}" if len(given) == 1 else ""
    return Raised(ONE_OUTPUT, f"{AS_LOGIT}; {seen}{stuck}")


def _is_guess(finding: str) -> bool:
    """Whether a finding is `FormChoice.finding` of a form that nobody said and no example told."""
    return finding.startswith("input form: ") and ": assumed " in finding


def _none_held_out(examples: AnchoredExamples, fitted: Mapping[str, int]) -> Raised | None:
    """See `AnchoredExamples.after`, which gives all examples where none is left."""
    given = len(examples.images)
    short = {search: count for search, count in fitted.items() if count >= given}
    if not short:
        return None
    most = max(short.values())
    # Searches of very many classes do not look at examples of each.
    enough = f"{most // examples.classes + 1} of each class"
    enough = f"more than {most}" if examples.classes > MANY_CLASSES else enough
    seen = (
        f"{', '.join(short)} measured on the {given} examples that were fitted to: too few"
        f" examples, give {enough}"
    )
    return Raised(NONE_HELD_OUT, seen)
