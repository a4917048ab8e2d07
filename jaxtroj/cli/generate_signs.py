"""`jaxtroj generate round0`: traffic signs on roads."""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from jaxtroj.cli import argument_types as types
from jaxtroj.cli import generate_options as shared
from jaxtroj.cli.options import add_path

if TYPE_CHECKING:
    from jaxtroj.cli.progress import Progress
    from jaxtroj.generate.round import Event

_ABOUT = """\
Makes a folder in the layout of TrojAI's Round 0: half of the models are poisoned with a
one-colour polygon on the sign that sends every class to one target. A run that was stopped goes
on where it was. Models come in pairs of one architecture, one poisoned and one clean, which is
trained for at least as long."""


def add_parser(rounds: argparse._SubParsersAction, name: str) -> None:
    """Declare the round and its options."""
    parser = shared.add_round(rounds, name, "traffic signs, polygon triggers", _ABOUT)
    group = parser.add_argument_group("pictures")
    shared.add_size(group, "--image-size", 224)
    group.add_argument(
        "--inception-size", type=types.pixels, metavar="PX", help="for Inception v3; at least 75"
    )
    signs = "real signs: a folder per class, or files CLASS_name.png (default: drawn)"
    add_path(group, "--foregrounds", "DIR", signs)
    add_path(group, "--backgrounds", "DIR", "real road pictures (default: drawn)")
    shared.add_count(group, "--examples-per-class", 100)
    group = parser.add_argument_group("training")
    architectures = "default: resnet50,densenet121,inception_v3; there is densenet_small too"
    group.add_argument("--architectures", metavar="A,B", help=architectures)
    group.add_argument(
        "--trainer",
        choices=("flax", "torch"),
        default="flax",
        help="what computes the steps; torch (in bfloat16 where the device is fast at it) "
        "is the faster one on some processors (default: flax)",
    )
    shared.add_given(group, {"max-steps": "before a try is given up", "batch-size": "default: 64"})
    group.add_argument(
        "--warm-start",
        type=types.count,
        metavar="STEPS",
        help="start models from one network per architecture, trained on other clean signs for at "
        "most so many steps (default: from random weights, as Round 0)",
    )
    shared.add_shard(group)


def events(args: argparse.Namespace, progress: "Progress") -> "Iterator[Event]":
    """Make the round that the options ask for; raises GenerationError."""
    from jaxtroj.generate.traffic_signs.recipe import ROUND0
    from jaxtroj.generate.traffic_signs.round import generate_round0
    from jaxtroj.generate.traffic_signs.settings import RoundSettings
    from jaxtroj.generate.training import TrainingSettings

    names = args.architectures
    settings = RoundSettings(
        seed=args.seed,
        models=args.models,
        image_size=args.image_size,
        inception_size=args.inception_size,
        architectures=shared.names_of(names) if names else ROUND0.architectures,
        foregrounds=args.foregrounds,
        backgrounds=args.backgrounds,
        examples_per_class=args.examples_per_class,
        warm_start=args.warm_start or 0,
        training=replace(
            TrainingSettings(), **shared.given(args, "trainer", "batch_size", "max_steps")
        ),
    )
    return generate_round0(args.out, settings, args.shard)
