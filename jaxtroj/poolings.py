"""What stands for a text: the state of one of its tokens, or the mean over all of them."""

from typing import Literal

Pooling = Literal["first", "last", "mean"]
"""Which token's state it is (of those that are no padding), or the mean over them."""
POOLINGS: tuple[Pooling, ...] = ("first", "last", "mean")
SAID: dict[Pooling, str] = {
    "first": "states of first tokens",
    "last": "states of last tokens",
    "mean": "means over the tokens",
}
"""In words, of several vectors."""
