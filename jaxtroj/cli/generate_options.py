"""Options that the rounds of `jaxtroj generate` share."""

import argparse
import re
from collections.abc import Mapping
from typing import Any

from jaxtroj.cli import argument_types as types
from jaxtroj.cli.options import add_path

_WIDEST = 2**16
_MOST_MODELS = 10**6  # their numbers have eight digits
_BOUNDS = {
    "batch-size": types.MOST_IN_A_BATCH,
    "pictures": types.MOST_IN_MEMORY,
    "examples-per-class": types.MOST_IN_MEMORY,
    "slots": 2**10,
}
"""Of counts that memory is needed for."""


def add_round(
    rounds: argparse._SubParsersAction, name: str, about: str, description: str
) -> argparse.ArgumentParser:
    """A round's parser with its folder, size and seed."""
    parser = rounds.add_parser(name, help=about, description=description, allow_abbrev=False)
    add_path(parser, "--out", "DIR", "folder of the round", required=True)
    parser.add_argument(
        "--models",
        type=types.count_to(_MOST_MODELS),
        required=True,
        metavar="N",
        help="how many models; even",
    )
    parser.add_argument("--seed", type=types.seed, default=0, metavar="S", help="default: 0")
    return parser


def add_count(
    parser: argparse._ActionsContainer, name: str, default: int, about: str = "", metavar: str = "N"
) -> None:
    """An option that takes a whole number of at least 1, with the default in its help."""
    text = f"{about}; default: {default}" if about else f"default: {default}"
    bound = types.count_to(_BOUNDS.get(name.removeprefix("--"), types.MOST))
    parser.add_argument(name, type=bound, default=default, metavar=metavar, help=text)


def add_size(parser: argparse._ActionsContainer, name: str, default: int, about: str = "") -> None:
    """An option that takes a side of pictures, with the default in its help."""
    text = f"{about}; default: {default}" if about else f"default: {default}"
    parser.add_argument(name, type=types.pixels, default=default, metavar="PX", help=text)


def add_given(parser: argparse._ActionsContainer, options: Mapping[str, str]) -> None:
    """Options that take a count and are None unless given; names to their help."""
    for name, about in options.items():
        bound = types.count_to(_BOUNDS.get(name, types.MOST))
        parser.add_argument(f"--{name}", type=bound, metavar="N", help=about)


def add_shard(parser: argparse._ActionsContainer) -> None:
    """Declare --shard."""
    parser.add_argument(
        "--shard",
        type=_shard,
        default=(0, 1),
        metavar="I/N",
        help="make the I-th of N parts, counted from 0: several processes can share one folder",
    )


def given(args: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Those of the options that were given, by name."""
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def names_of(text: str) -> tuple[str, ...]:
    """`A,B`, for argparse; empty text is no choice.

    >>> names_of("wrn16, plain5")
    ('wrn16', 'plain5')
    """
    return tuple(name.strip() for name in text.split(","))


def counts_of(text: str) -> tuple[int, ...]:
    """`N,N`, for argparse: sizes of layers."""
    return tuple(types.count(part, _WIDEST) for part in names_of(text))


def _shard(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,18})/([0-9]{1,18})", text)
    if not match or int(match[1]) >= int(match[2]):
        raise argparse.ArgumentTypeError(f"expected I/N with 0 <= I < N, got {text!r}")
    return int(match[1]), int(match[2])
