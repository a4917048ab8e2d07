"""Names, pairs and random draws of the models of a round: by identity alone.

Every draw is keyed by (seed, purpose, number, sub-seed), never by how many models there are, so a
round can be grown, sharded and resumed without changing a model. Models come in pairs, `2 n` and
`2 n + 1`, of which one is poisoned.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")

# Purposes are numbered once for the project: 0 and 1 here, 2 to 9 Round 0, 11 to 39 small networks,
# 61 to 79 zoos, 80 to 99 Rounds 1 to 4, 100 and more sentiment heads. A draw for one purpose never
# moves another.
_PAIR_LABEL, _BLOCK_ORDER = range(2)


def model_id(model: int) -> str:
    """Name of a model's folder.

    >>> model_id(7)
    'id-00000007'
    """
    return f"id-{model:08d}"


def partner(model: int) -> int:
    """The other model of the pair: the same but for the trojan."""
    return model ^ 1


def draw_for(seed: int, purpose: int, number: int, sub_seed: int = 0) -> np.random.Generator:
    """Random numbers of one purpose.

    Args:
        seed: identity of the round, 0 or more.
        purpose: what is drawn; one number for each purpose.
        number: of the model, pair or block that it is drawn for.
        sub_seed: number of the try, from 0.
    """
    return np.random.default_rng([seed, purpose, number, sub_seed])


def is_poisoned(seed: int, model: int) -> bool:
    """Whether this model is the poisoned one of its pair."""
    pair, place = divmod(model, 2)
    return int(draw_for(seed, _PAIR_LABEL, pair).integers(2)) == place


def poisoned_first(seed: int, pair: int) -> tuple[int, int]:
    """Numbers of a pair's poisoned and clean model."""
    first = 2 * pair if is_poisoned(seed, 2 * pair) else 2 * pair + 1
    return first, partner(first)


def architecture_of(seed: int, model: int, architectures: tuple[str, ...]) -> str:
    """Architecture of the model's pair: each block of pairs holds every architecture once."""
    block, place = divmod(model // 2, len(architectures))
    order = draw_for(seed, _BLOCK_ORDER, block).permutation(len(architectures))
    return architectures[int(order[place])]


def in_turn(choices: Sequence[T], seed: int, purpose: int, pair: int) -> T:
    """Each choice once in every round of so many pairs, in an order drawn for the round."""
    block, place = divmod(pair, len(choices))
    return choices[int(draw_for(seed, purpose, block).permutation(len(choices))[place])]
