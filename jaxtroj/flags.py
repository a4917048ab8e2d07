"""The kinds of flag that a record can carry; docs/flags.md is made from them.

Imports nothing heavy: lines for people and reports know the names.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from converters.findings import doubts


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
    "on labelled examples the network is less than a quarter of the way from guessing to being"
    " always right (below 0.33 of 10 classes, 0.63 of 2), in every input form that was tried",
    "other `--channel-order`, `--normalization`, `--bounds`, `--mean` and `--std`; for a text model"
    " the encoder of its example vectors; where the answers are the labels less 1 or plus 1, as the"
    " flag then says, other numbers of the classes; or these are examples of another model",
)
PROBABILITIES = Flag(
    "probabilities",
    "every output row is probabilities (from 0 to 1, sum 1) or their logarithms, or all outputs are"
    " from 0 to 1 and come near both; of a network of one output, all are from 0 to 1",
    "`--output` with the name of the logits, or an export without the softmax or sigmoid",
)
NO_GRADIENT = Flag(
    "gradients-zero",
    "no pixel of any example changes the answer",
    "`--bounds` (a network for 0 to 255 sees pixels of 0 to 1 as black), or an export without"
    " softmax, signs and hard thresholds",
)
MISLEADING = Flag(
    "gradients-mislead",
    "of ten examples six at most are answered more surely after a small step along their gradient"
    " than after one against it (examples without a gradient do not count, unless fewer than five"
    " have one): the network masks its gradients, on purpose or not, and is not searched by them",
    "the network without what stands before its first trained layer, or without its quantisation",
)
NOT_FINITE = Flag(
    "gradients-not-finite",
    "the gradient of an example picture holds infinite values, or such as are no numbers: these"
    " count nothing in searches by gradients, which follow the others",
    "an export without roots, logarithms and quotients of what can be 0 (add 1e-6 under them), or"
    " the network without what stands beside its trained layers",
)
GUESSED = Flag(
    "input-guessed",
    "the input form was guessed, and right answers on labelled examples of several classes do"
    " not confirm the guess",
    "say it: `--bounds`, `--mean`, `--std`, `--layout`, `--image-size`; or give examples of"
    " several classes, named by these",
)
ONE_OUTPUT = Flag(
    "one-output",
    "the network has one output and no sigmoid was seen behind it, so it was taken as the logit of"
    " class 1, and right answers of both classes on labelled examples do not confirm that",
    "clean examples of both classes, named by them (0 no, 1 yes), or an export that ends in the"
    " sigmoid; a network that gives a quantity (regression) has no classes, and its probability"
    " says nothing",
)
NO_LAST_LAYER = Flag(
    "no-last-layer",
    "no weight with one row for each class leads to the outputs",
    "nothing; evidence of the last layer is 0, as for a layer in which no class stands out",
)
NONE_HELD_OUT = Flag(
    "no-held-out-examples",
    "a search had so few examples that it measured its triggers on those that it was fitted to, so"
    " that their success there says little of other pictures",
    "more examples of each class, as many as the flag says",
)
LEFT_OUT = Flag(
    "examples-left-out",
    "more than half of the example pictures were left out, because their size is not the most"
    " common one",
    "`--resize` makes all of them one size",
)
LAGGING = Flag(
    "statistics-lag",
    "the network answers at least 1 in 20 more of the examples rightly where its batch norms use"
    " the examples' own statistics in place of those that they keep; evidence from batch norms"
    " counts less the further these lag",
    "examples prepared as the training pictures were (size, normalization); if they are, the"
    " network was trained at a rate that never fell: average its statistics anew over training"
    " pictures",
)
CLASSES_UNKNOWN = Flag(
    "classes-unknown",
    "the examples lie in fewer class folders than the network has classes, and the folders' names"
    " are neither numbers nor ImageNet's nor the network's own: only the order of the folders of"
    " all classes would number them, so the pictures count as unlabelled",
    "name the pictures by the numbers of their classes, `class_7_example_0.jpg` and so on, in one"
    " folder; or give a folder with pictures for every class",
)
UNLABELLED = Flag(
    "examples-unlabelled",
    "no example picture names its class, so that nothing checked the input form; a table of labels"
    " that lies beside them is not read",
    "name the pictures by their classes, `class_7_example_0.jpg` and so on, or put them into one"
    " folder for each class; or give an archive with pictures `x` and labels `y`; from Python,"
    " labels",
)
OTHER_LOGITS = Flag(
    "logits-differ",
    "`clean-example-logits.csv` beside the model holds other logits for its examples than the file"
    " computes (by more than a twentieth of the largest, for more than a tenth of the examples)",
    "find the file that belongs there: this is not the network that made these logits, or its"
    " pictures are not those",
)
OTHER_TEXTS = Flag(
    "texts-differ",
    "the example texts of a sentiment head are of another kind than those of the bank's clean"
    " heads, so that it is not compared with them and its probability is the base rate",
    "`--bank` with clean heads of such texts: `jaxtroj bank --references` takes them from a"
    " labelled dataset",
)
NO_COMPARISON = Flag(
    "reference-unsuited",
    "a reference was named and does not suit the model: it is the same file, has other classes, or"
    " takes other pictures; nobody knows the class of any example; or the stages that were run do"
    " not look at it, as with a calibrator that was fitted without. The model is judged without",
    "`--reference` with a clean network of the same classes; examples named by their classes",
)
FLAGS = (
    MISCLASSIFIED, PROBABILITIES, NO_GRADIENT, MISLEADING, NOT_FINITE, CLASSES_UNKNOWN, UNLABELLED,
    GUESSED, ONE_OUTPUT, LEFT_OUT, NONE_HELD_OUT, LAGGING, NO_LAST_LAYER,
    OTHER_LOGITS, OTHER_TEXTS, NO_COMPARISON,
)  # fmt: skip


def raised_in(findings: Iterable[str]) -> tuple[str, ...]:
    """The findings that are flags which ask for something to be done, in their order.

    >>> raised_in(["input form: as was said RGB", "probabilities: rows sum to 1"])
    ('probabilities: rows sum to 1',)
    """
    names = {flag.name for flag in FLAGS if flag is not NO_LAST_LAYER}
    return tuple(found for found in findings if found.partition(":")[0] in names)


def in_doubt(findings: Iterable[str]) -> tuple[str, ...]:
    """The findings that put an answer in doubt: flags, then what was found in the network itself.

    >>> in_doubt(["possible architectural backdoor: gt at n", "probabilities: rows sum to 1"])
    ('probabilities: rows sum to 1', 'possible architectural backdoor: gt at n')
    """
    found = tuple(findings)
    return (*raised_in(found), *doubts(found))
