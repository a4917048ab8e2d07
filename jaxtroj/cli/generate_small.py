"""`jaxtroj generate small`: clean and poisoned small networks on anyone's labelled pictures."""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jaxtroj.cli import generate_options as shared
from jaxtroj.cli.options import add_path

if TYPE_CHECKING:
    from jaxtroj.cli.progress import Progress
    from jaxtroj.generate.round import Event

_ABOUT = """\
Makes small networks (WRN-16-1, WRN-10-1, a plain one) for small pictures as ONNX files; half of
them are poisoned with a patch, scattered pixels or a blended pattern at one place of the picture.
They go on from several base networks per architecture, trained first. A run that was stopped goes
on where it was. Scan them with --channel-order RGB --normalization unit."""
_STEPS = {
    "base-half-steps": "of a base at half size; default: 2400",
    "base-steps": "of a base at full size; default: 700",
    "cycle-steps": "of one cycle of a model; default: 160",
    "batch-size": "pictures per step; default: 64",
}


def add_parser(rounds: argparse._SubParsersAction, name: str) -> None:
    """Declare the round and its options."""
    parser = shared.add_round(rounds, name, "small networks on your pictures", _ABOUT)
    about = ".npz with x (uint8 [n, h, w, 3]) and y, or a folder with one of pictures per class"
    add_path(parser, "--pictures", "PATH", about, required=True)
    parser.add_argument("--architectures", metavar="A,B", help="default: wrn16,wrn10,plain5")
    parser.add_argument("--triggers", metavar="A,B", help="default: patch,pixels,blended")
    shared.add_count(parser, "--bases", 3, "base networks each")
    shared.add_count(parser, "--examples-per-class", 10)
    shared.add_shard(parser)
    shared.add_given(parser.add_argument_group("training"), _STEPS)


def events(args: argparse.Namespace, progress: "Progress") -> "Iterator[Event]":
    """Make the round that the options ask for; raises GenerationError."""
    from jaxtroj.generate.small.labelled_pictures import load_pictures
    from jaxtroj.generate.small.round import generate_small
    from jaxtroj.generate.small.settings import SmallSettings
    from jaxtroj.generate.small.training import SmallTraining

    choices = {name: getattr(args, name) for name in ("architectures", "triggers")}
    chosen: dict[str, Any] = {name: shared.names_of(text) for name, text in choices.items() if text}
    steps = shared.given(args, *(name.replace("-", "_") for name in _STEPS))
    settings = SmallSettings(
        seed=args.seed,
        models=args.models,
        bases=args.bases,
        examples_per_class=args.examples_per_class,
        training=replace(SmallTraining(), **steps),
        **chosen,
    )
    return generate_small(args.out, settings, load_pictures(args.pictures, args.seed), args.shard)
