"""`jaxtroj generate round1`, `round2`, `round3` and `round4`: many signs, many architectures."""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jaxtroj.cli import argument_types as types
from jaxtroj.cli import generate_options as shared
from jaxtroj.cli.options import add_path

if TYPE_CHECKING:
    from jaxtroj.cli.progress import Progress
    from jaxtroj.generate.round import Event

_ABOUT = {
    "round1": "5 signs, 3 architectures, one polygon from all classes",
    "round2": "5 to 24 signs, 23 architectures, polygons and filters from all, one or two classes",
    "round3": "Round 2 with adversarially trained networks",
    "round4": "15 to 44 signs, 16 architectures, up to two triggers with conditions, hardened",
}
_DESCRIPTION = """\
A folder in the layout of TrojAI's round, trained by torch, on a GPU where it finds one. A run that
was stopped goes on where it was. Models come in pairs, one poisoned and one clean, that share all
but the trojan. A third are trained from random weights, the others go on from base networks,
trained first. Models that have not converged after the last try are kept; METADATA.csv says so."""
_TRAINING = {
    "base-steps": "most steps from random weights; default: 400",
    "cycle-steps": "of one cycle; default: 100",
    "most-cycles": "of a model; default: 4",
    "batch-size": "pictures per step; default: 32",
    "pictures": "rendered for a model to be trained on; default: 6000",
}


def add_parser(rounds: argparse._SubParsersAction, name: str) -> None:
    """Declare the round and its options."""
    about = f"{_ABOUT[name][0].upper()}{_ABOUT[name][1:]}. {_DESCRIPTION}"
    parser = shared.add_round(rounds, name, _ABOUT[name], about)
    group = parser.add_argument_group("pictures")
    shared.add_size(group, "--image-size", 224, "that networks take")
    group.add_argument(
        "--inception-size", type=types.pixels, metavar="PX", help="for Inception v3; at least 75"
    )
    signs = "real signs: a folder per class, or files CLASS_name.png (default: drawn)"
    add_path(group, "--foregrounds", "DIR", signs)
    add_path(group, "--backgrounds", "DIR", "real road pictures (default: drawn)")
    group.add_argument(
        "--examples-per-class",
        type=types.count_to(types.MOST_IN_MEMORY),
        metavar="N",
        help="default: the round's numbers",
    )
    group = parser.add_argument_group("training")
    group.add_argument("--architectures", metavar="A,B", help="default: all of the round")
    trainings = "warm, scratch; a name that comes twice gets two shares; default: warm,warm,scratch"
    group.add_argument("--trainings", metavar="A,B", help=trainings)
    group.add_argument(
        "--adversaries", metavar="A,B", help="PGD, FBF, in Rounds 3 and 4; default: both"
    )
    shared.add_count(group, "--bases", 1, "base networks for an architecture")
    group.add_argument(
        "--base-size", type=types.pixels, metavar="PX", help="for base networks (default: models')"
    )
    shared.add_count(group, "--tries", 2, "trainings before a model that falls short is kept")
    shared.add_given(group, _TRAINING)
    shared.add_shard(group)


def events(args: argparse.Namespace, progress: "Progress") -> "Iterator[Event]":
    """Make the round that the options ask for; raises GenerationError."""
    from jaxtroj.generate.traffic_signs.later.design import DESIGNS
    from jaxtroj.generate.traffic_signs.later.round import generate_later
    from jaxtroj.generate.traffic_signs.later.settings import LaterSettings
    from jaxtroj.generate.traffic_signs.later.training import SignTraining

    names = ("architectures", "trainings", "adversaries")
    chosen: dict[str, Any] = {
        name: shared.names_of(text) for name in names if (text := getattr(args, name))
    }
    steps = shared.given(args, *(name.replace("-", "_") for name in _TRAINING))
    settings = LaterSettings(
        design=DESIGNS[args.round],
        seed=args.seed,
        models=args.models,
        image_size=args.image_size,
        inception_size=args.inception_size,
        foregrounds=args.foregrounds,
        backgrounds=args.backgrounds,
        examples_per_class=args.examples_per_class,
        most_tries=args.tries,
        bases=args.bases,
        base_size=args.base_size,
        training=replace(SignTraining(), **steps),
        **chosen,
    )
    return generate_later(args.out, settings, args.shard)
