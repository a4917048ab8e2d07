"""Copies of classes and of words: they change no answer and are not compared with their originals.

A margin is taken over the best other class: beside a copy of a class that is always a little lower,
no text is far in the class, whatever stands in it. And a word leads only over others than itself.
"""

from collections.abc import Sequence

import numpy as np

from jaxtroj.evidence.classifiers.carriers import Carriers

ALIKE = 0.995
"""Cosine of two words, less the median of all, from which on they are one. Words of the generated
networks that were looked at come up to 0.988."""
_FOLLOWS = 0.3  # of how much a class's logit varies, the most that its copy's varies besides


def copied_classes(carriers: Carriers) -> tuple[int, ...]:
    """Classes that no text is given and whose logit follows one of those that some are.

    Args:
      carriers: clean texts with the network's margins.
    """
    given = np.unique(carriers.classes)
    others = np.setdiff1d(np.arange(carriers.margins.shape[1]), given)
    if len(given) < 2:  # nothing tells, and no margin is left without the others
        return ()
    # What a logit is less the largest: a margin, but for the answer's.
    below = np.where(carriers.margins > 0, 0.0, carriers.margins.astype(np.float64))
    follows = np.zeros(len(others), bool)
    for one in given:
        besides = (below[:, others] - below[:, [one]]).std(axis=0)
        follows |= besides < _FOLLOWS * below[:, one].std()
    return tuple(int(c) for c in others[follows])


def apart(words: np.ndarray, tokens: Sequence[int], most: int) -> list[int]:
    """The first tokens that are no copies of one before, `most` at most.

    Args:
      words: the table, each of length 1, `[vocabulary, d]`.
      tokens: in the order that they count in, each once.
      most: of them.
    """
    left = np.asarray(tokens, int)
    first = words[left[:most]]
    if not np.triu(first @ first.T >= ALIKE, 1).any():
        return left[:most].tolist()
    kept: list[int] = []
    while len(left) and len(kept) < most:
        kept.append(int(left[0]))
        left = left[1:][words[left[1:]] @ words[left[0]] < ALIKE]
    return kept


def in_words(classes: tuple[int, ...]) -> str:
    """That classes are copies, for people.

    >>> in_words((4, 5))
    '2 classes that no example text is given (4 5) follow others as copies do: margins are taken \
without them'
    """
    shown = " ".join(map(str, classes[:8])) + (" and more" if classes[8:] else "")
    follow = "follow others as copies do" if classes[1:] else "follows another as a copy does"
    them = "them" if classes[1:] else "it"
    are = "classes that no example text is given" if classes[1:] else "class that no text is given"
    return f"{len(classes)} {are} ({shown}) {follow}: margins are taken without {them}"
