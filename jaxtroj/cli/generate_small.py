"""`jaxtroj generate small`: clean and poisoned small networks on anyone's labelled pictures."""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtroj.cli.options import count

if TYPE_CHECKING:
    from jaxtroj.generate.round import Event

NAME = "small"
_ABOUT = """\
Makes small networks (WRN-16-1, WRN-10-1, a plain one) for small pictures as ONNX files; half of
them are poisoned with a patch, scattered pixels or a blended pattern at one place of the picture.
They go on from several base networks per architecture, trained first. A run that was stopped goes
on where it was. Scan them with --channel-order RGB --normalization unit."""


def add_parser(rounds: argparse._SubParsersAction) -> argparse.ArgumentParser:
    """Declare the round and its options; seed and shard are the caller's."""
    parser = rounds.add_parser(
        NAME, help="small networks on your pictures", description=_ABOUT, allow_abbrev=False
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder of the round"
    )
    parser.add_argument(
        "--models", type=count, required=True, metavar="N", help="how many models; even"
    )
    parser.add_argument(
        "--pictures",
        type=Path,
        required=True,
        metavar="PATH",
        help=".npz with x (uint8 [n, h, w, 3]) and y, or a folder with one of PNG files per class",
    )
    parser.add_argument("--architectures", metavar="A,B", help="default: wrn16,wrn10,plain5")
    parser.add_argument("--triggers", metavar="A,B", help="default: patch,pixels,blended")
    parser.add_argument(
        "--bases", type=count, default=3, metavar="N", help="base networks each; default: 3"
    )
    parser.add_argument(
        "--examples-per-class", type=count, default=10, metavar="N", help="default: 10"
    )
    group = parser.add_argument_group("training")
    steps = {
        "base-half-steps": "of a base at half size; default: 2400",
        "base-steps": "of a base at full size; default: 700",
        "cycle-steps": "of one cycle of a model; default: 160",
        "batch-size": "pictures per step; default: 64",
    }
    for name, about in steps.items():
        group.add_argument(f"--{name}", type=count, metavar="N", help=about)
    return parser


def events(args: argparse.Namespace) -> "Iterator[Event]":
    """Make the round that the options ask for; raises GenerationError."""
    from jaxtroj.generate.small.labelled_pictures import load_pictures
    from jaxtroj.generate.small.round import SmallSettings, generate_small
    from jaxtroj.generate.small.training import SmallTraining

    names = ("base_half_steps", "base_steps", "cycle_steps", "batch_size")
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    chosen: dict[str, Any] = {
        name: tuple(part.strip() for part in getattr(args, name).split(","))
        for name in ("architectures", "triggers")
        if getattr(args, name)
    }
    settings = SmallSettings(
        seed=args.seed,
        models=args.models,
        bases=args.bases,
        examples_per_class=args.examples_per_class,
        training=replace(SmallTraining(), **given),
        **chosen,
    )
    pictures = load_pictures(args.pictures, args.seed)
    return generate_small(args.out, settings, pictures, args.shard)
