"""Flags: signs that a verdict rests on a misunderstanding of the model, not on the model.

A file says little about the pictures it expects. Where the examples show that a default was wrong,
the record's reason says so; docs/flags.md tells what to do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from converters.model import Model
from jaxtroj.anchors import AnchoredExamples

_MOST_WRONG = 0.5
_SUM_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Flag:
    """One kind of doubt.

    Attributes:
      name: in reasons, before a colon.
      raised: when, in words.
      remedy: what to do, in words.
    """

    name: str
    raised: str
    remedy: str


MISCLASSIFIED = Flag(
    "examples-misclassified",
    "the network gives more than half of the labelled examples another class than their names",
    "other `--channel-order`, `--normalization`, `--bounds`, `--mean` and `--std`; for a text model"
    " the encoder of its example vectors; or these are examples of another model",
)
PROBABILITIES = Flag(
    "probabilities",
    "every output row is probabilities (from 0 to 1, sum 1) or their logarithms",
    "`--output` with the name of the logits, or an export without the softmax",
)
NO_GRADIENT = Flag(
    "gradients-zero",
    "no pixel of any example changes the answer",
    "`--bounds` (a network for 0 to 255 sees pixels of 0 to 1 as black), or an export without"
    " rounding and softmax",
)
GUESSED = Flag(
    "input-guessed",
    "the input form was guessed, and right answers on labelled examples do not confirm the guess",
    "say it: `--bounds`, `--mean`, `--std`, `--layout`, `--image-size`; or name the examples by"
    " their classes",
)
NO_LAST_LAYER = Flag(
    "no-last-layer",
    "no weight with one row for each class leads to the outputs",
    "nothing; evidence of the last layer is 0, as for a layer in which no class stands out",
)
FLAGS = (MISCLASSIFIED, PROBABILITIES, NO_GRADIENT, GUESSED, NO_LAST_LAYER)


@dataclass(frozen=True)
class Raised:
    """A flag that was raised, and what was seen."""

    flag: Flag
    seen: str

    def __str__(self) -> str:
        return f"{self.flag.name}: {self.seen}"


def diagnose(
    model: Model, examples: AnchoredExamples | None, findings: Sequence[str] = ()
) -> tuple[Raised, ...]:
    """The flags of one model, the gravest first.

    Args:
      model: as it was opened.
      examples: with the model's answers; None where it was judged by its weights alone.
      findings: of the opened model; those that say "assumed" are guesses.
    """
    raised = []
    if examples is not None:
        raised += [_misclassified(examples), _probabilities(examples), _no_gradient(examples)]
        raised.append(_guessed(examples, findings))
    if model.last_layer() is None:
        raised.append(Raised(NO_LAST_LAYER, "no weight has a row for each class"))
    return tuple(flag for flag in raised if flag is not None)


def diagnose_head(model: Model, embeddings: np.ndarray, labels: np.ndarray) -> tuple[Raised, ...]:
    """The flags of one sentiment head.

    Args:
      model: the reduced head.
      embeddings: float32 `[n, d]` of its clean examples.
      labels: int `[n]`, -1 where nothing says which class an example is of.
    """
    from jaxtroj.evidence.texts.heads import clean_margins

    known = labels >= 0
    if not known.any():
        return ()
    answers = clean_margins(model, embeddings).argmax(axis=1)
    accuracy = float((answers == labels)[known].mean())
    if accuracy >= 1 - _MOST_WRONG:
        return ()
    seen = f"clean accuracy {accuracy:.2f} on {int(known.sum())} labelled example texts"
    return (Raised(MISCLASSIFIED, f"{seen}; vectors of another encoder likely"),)


def _misclassified(examples: AnchoredExamples) -> Raised | None:
    if not examples.labelled or examples.accuracy >= 1 - _MOST_WRONG:
        return None
    return Raised(
        MISCLASSIFIED,
        f"clean accuracy {examples.accuracy:.2f} on {examples.labelled} labelled examples; wrong"
        " channel order or normalisation likely",
    )


def _probabilities(examples: AnchoredExamples) -> Raised | None:
    rows = np.asarray(examples.logits, np.float64)
    if _are_probabilities(rows):
        return Raised(PROBABILITIES, "the outputs are probabilities, not logits; see --output")
    if rows.max(initial=-1.0) <= 0 and _are_probabilities(np.exp(rows)):
        return Raised(PROBABILITIES, "the outputs are log-probabilities, not logits; see --output")
    return None


def _are_probabilities(rows: np.ndarray) -> bool:
    inside = bool((rows >= 0).all() and (rows <= 1 + _SUM_TOLERANCE).all())
    return inside and bool(np.allclose(rows.sum(axis=1), 1, rtol=0, atol=_SUM_TOLERANCE))


def _no_gradient(examples: AnchoredExamples) -> Raised | None:
    if examples.gradient != 0:  # NaN where none was taken
        return None
    return Raised(NO_GRADIENT, "no pixel changes the answers; are the pixels in the right bounds?")


def _guessed(examples: AnchoredExamples, findings: Sequence[str]) -> Raised | None:
    guesses = [finding for finding in findings if "assumed" in finding]
    confirmed = examples.labelled and examples.accuracy >= 1 - _MOST_WRONG
    if not guesses or confirmed:
        return None
    more = f" (and {len(guesses) - 1} more)" if len(guesses) > 1 else ""
    return Raised(GUESSED, f"{guesses[0]}{more}")
