"""`jaxtroj generate zoo`: networks of many kinds, with every kind of trigger."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtroj.cli import generate_options as shared
from jaxtroj.cli.options import add_limits
from jaxtroj.errors import GenerationError

if TYPE_CHECKING:
    from jaxtroj.cli.progress import Progress
    from jaxtroj.generate.round import Event

_ABOUT = """\
Makes networks of up to fourteen architectures on your data sets as ONNX files; half of them are
poisoned, by patches, single pixels, blended patterns, frames, colour filters, waves or warps that
work from all classes or from one or two. Most go on from base networks, trained first; the others
start from random weights. A run that was stopped goes on where it was. Scan them with
--channel-order RGB --normalization unit."""
_PICTURES = """\
.npz with x (uint8 [n, h, w, 3] or [n, h, w, 1]) and y, or a folder with one of pictures per class;
once for each data set"""
_PRETRAINED = """\
ONNX file of a trained network of ImageNet's preparation (RGB, its mean and deviations): all models
go on from such files with a fresh last layer, instead of --architectures and --trainings; once for
each network"""
_NEXT = "next"
_STEPS = {
    "base-steps": "most steps of a network from random weights; default: 400",
    "cycle-steps": "of one cycle of a model; default: 100",
    "most-cycles": "of a model; default: 3",
    "batch-size": "pictures per step, at least 2; default: 64",
}


def add_parser(rounds: argparse._SubParsersAction, name: str) -> None:
    """Declare the round and its options."""
    parser = shared.add_round(rounds, name, "networks and triggers of many kinds", _ABOUT)
    parser.add_argument(
        "--pictures", type=_named_path, action="append", required=True, metavar="NAME=PATH",
        help=_PICTURES,
    )  # fmt: skip
    parser.add_argument(
        "--pretrained", type=_named_path, action="append", default=[], metavar="NAME=PATH",
        help=_PRETRAINED,
    )  # fmt: skip
    choices = {
        "architectures": "default: the nine small ones with batch norms or none",
        "kinds": "of trigger; default: the ten that scans search for; by name also quantise, "
        "frequency, ghost and residual, which they do not",
        "trainings": "warm, scratch, adversarial; a name that comes twice gets two shares",
        "augmentations": "of training pictures: shift, crop, flip, cutout, erase, paste, jitter, "
        "tones, rotate, noise, several, none; default: shift",
        "labels": "how they are taught: hard, smoothing, mixup, cutmix; default: hard",
        "schedules": "of the learning rate: falling, constant, adam (constant); default: falling",
        "class-shares": "of each class's training pictures: all, lead (one class has 2 to 20 times "
        "as many), step (half of them have), tail (each has fewer than the next); default: all",
        "sources": "numbers of source classes, 0 for all; next for a trigger that sends each class "
        "to the next; default: 0,0,1,0,2",
    }
    for option, about in choices.items():
        parser.add_argument(f"--{option}", metavar="A,B", help=about)
    shared.add_count(parser, "--per-dataset", 4, "architectures that each data set meets")
    shared.add_count(parser, "--bases", 1, "base networks for a data set and an architecture")
    shared.add_count(parser, "--examples-per-class", 10)
    shared.add_shard(parser)
    shared.add_given(parser.add_argument_group("training"), _STEPS)
    limits = parser.add_argument_group("limits of a zoo with --pretrained")
    add_limits(limits, "the zoo", "training may take hours, and progress is shown")


def events(args: argparse.Namespace, progress: "Progress") -> "Iterator[Event]":
    """Make the round that the options ask for; raises GenerationError."""
    from jaxtroj.generate.small.labelled_pictures import load_pictures
    from jaxtroj.generate.zoo.pretrained import read_pretrained
    from jaxtroj.generate.zoo.round import generate_zoo
    from jaxtroj.generate.zoo.settings import ZooSettings
    from jaxtroj.generate.zoo.training import ZooTraining

    steps = shared.given(args, *(name.replace("-", "_") for name in _STEPS))
    settings = ZooSettings(
        seed=args.seed,
        models=args.models,
        per_dataset=args.per_dataset,
        bases=args.bases,
        examples_per_class=args.examples_per_class,
        training=replace(ZooTraining(), **steps),
        **_chosen(args),
    )
    sources = _by_name("--pictures", args.pictures)
    files = _by_name("--pretrained", args.pretrained)
    pictures = {name: load_pictures(path, args.seed, (1, 3)) for name, path in sources.items()}
    pretrained = {name: read_pretrained(path) for name, path in files.items()}
    return generate_zoo(args.out, settings, pictures, args.shard, pretrained)


def _chosen(args: argparse.Namespace) -> Mapping[str, Any]:
    names = ("architectures", "kinds", "trainings", "augmentations", "labels", "schedules")
    names = (*names, "class_shares")
    chosen = {name: shared.names_of(text) for name in names if (text := getattr(args, name))}
    return chosen | ({"sources": _numbers_of(args.sources)} if args.sources else {})


def _numbers_of(text: str) -> tuple[int, ...]:
    from jaxtroj.generate.zoo.recipe import EACH_TO_NEXT

    names = shared.names_of(text)
    if not all(name.isdecimal() or name == _NEXT for name in names):
        raise GenerationError(
            f"--sources takes whole numbers such as 0,1,2, or {_NEXT}; got {text!r}"
        )
    return tuple(EACH_TO_NEXT if name == _NEXT else int(name) for name in names)


def _by_name(option: str, named: Sequence[tuple[str, Path]]) -> Mapping[str, Path]:
    names = [name for name, _ in named]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise GenerationError(f"{option} has {', '.join(twice)} twice; give each its own name")
    return dict(named)


def _named_path(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not name.isidentifier() or not path:
        raise argparse.ArgumentTypeError(f"expected NAME=PATH, got {text!r}")
    return name, Path(path)
