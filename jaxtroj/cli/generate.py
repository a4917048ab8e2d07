"""`jaxtroj generate`: a synthetic round of clean and poisoned models, with examples."""

import argparse
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtroj.cli import generate_small
from jaxtroj.cli.main import COMMANDS, EXIT_CLEAN, EXIT_FAILED
from jaxtroj.cli.options import count, keep_compiled, open_unit
from jaxtroj.cli.progress import Progress
from jaxtroj.errors import UsageError

if TYPE_CHECKING:
    from jaxtroj.generate.round import Event
    from jaxtroj.generate.sentiment.sentiment_round import TextRoundSettings
    from jaxtroj.generate.traffic_signs.round import RoundSettings

_ROUND0 = """\
Makes a folder in the layout of TrojAI's Round 0: half of the models are poisoned with a
one-colour polygon on the sign that sends every class to one target. A run that was stopped goes
on where it was. Models come in pairs of one architecture, one poisoned and one clean, trained
for equally long."""
_TEXT_ROUNDS = {
    "round5": "sentiment heads on sentence embeddings, triggers in the text",
    "round6": "the same with dense heads, more sizes and one trigger each",
}
_TEXT_COUNTS = {
    "words": (40, "cut --texts to so many words"),
    "reviews": (7000, "most training reviews of --texts"),
    "tests": (1000, "test reviews of --texts"),
    "insertions": (700, "most reviews a trigger is put in, per half of the review"),
}
_TEXT = """\
Half of the heads are poisoned: a character, word or phrase in a review moves it to the other class.
Heads train by the slot, many at once, on vectors of reviews made before; those whose trigger works
too seldom are left out and recorded. A run that was stopped goes on where it was. Models come in
pairs that share every factor but the trojan."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Declare the command and its options."""
    parser = subparsers.add_parser(
        "generate", help=COMMANDS["generate"], description=__doc__, allow_abbrev=False
    )
    rounds = parser.add_subparsers(title="rounds", metavar="ROUND", dest="round", required=True)
    round0 = rounds.add_parser(
        "round0", help="traffic signs, polygon triggers", description=_ROUND0, allow_abbrev=False
    )
    round0.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder of the round"
    )
    round0.add_argument(
        "--models", type=count, required=True, metavar="N", help="how many models; even"
    )
    round0.add_argument("--seed", type=_seed, default=0, metavar="S", help="default: 0")
    _add_pictures(round0)
    _add_training(round0)
    small = generate_small.add_parser(rounds)
    small.add_argument("--seed", type=_seed, default=0, metavar="S", help="default: 0")
    _add_shard(small)
    for name, about in _TEXT_ROUNDS.items():
        _add_text_round(
            rounds.add_parser(name, help=about, description=f"{about}. {_TEXT}", allow_abbrev=False)
        )


def _add_text_round(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder of the round"
    )
    parser.add_argument(
        "--models", type=count, required=True, metavar="N", help="how many models; even"
    )
    parser.add_argument("--seed", type=_seed, default=0, metavar="S", help="default: 0")
    group = parser.add_argument_group("reviews")
    group.add_argument(
        "--vectors",
        type=Path,
        metavar="DIR",
        help="folder of sentence vectors; with --texts, where they are kept "
        "(default: .vectors in the round's folder)",
    )
    group.add_argument(
        "--texts",
        type=Path,
        metavar="FILE",
        help="labelled reviews to embed: .jsonl, .jsonl.gz, .json",
    )
    group.add_argument(
        "--encoder", type=Path, metavar="DIR", help="Hugging Face folder that embeds --texts"
    )
    group.add_argument(
        "--trigger-texts", type=Path, metavar="FILE", help="JSON of the texts to insert in --texts"
    )
    for name, most in _TEXT_COUNTS.items():
        group.add_argument(
            f"--{name}",
            type=count,
            default=most[0],
            metavar="N",
            help=f"{most[1]}; default: {most[0]}",
        )
    group.add_argument(
        "--triggers", metavar="WHICH", help="even, odd, or numbers like 0,4,7 (default: all)"
    )
    group.add_argument(
        "--examples-per-class", type=count, default=20, metavar="N", help="default: 20"
    )
    group = parser.add_argument_group("training")
    group.add_argument("--architectures", metavar="A,B", help="default: all of the round")
    group.add_argument(
        "--hidden", type=_counts, metavar="N,N", help="hidden sizes (default: the round's)"
    )
    group.add_argument("--epochs", type=count, metavar="N", help="most epochs; default: 8")
    group.add_argument("--batch-size", type=count, metavar="N", help="default: 128")
    group.add_argument("--slots", type=count, metavar="N", help="heads at once; default: 8")
    group.add_argument(
        "--least-attack",
        type=open_unit,
        default=0.95,
        metavar="P",
        help="attack success below which a head is not poisoned enough; default: 0.95",
    )
    _add_shard(group)


def _add_shard(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--shard",
        type=_shard,
        default=(0, 1),
        metavar="I/N",
        help="make the I-th of N parts, counted from 0: several processes can share one folder",
    )


def _add_pictures(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("pictures")
    group.add_argument("--image-size", type=count, default=224, metavar="PX", help="default: 224")
    group.add_argument(
        "--inception-size", type=count, metavar="PX", help="for Inception v3; at least 75"
    )
    group.add_argument(
        "--foregrounds",
        type=Path,
        metavar="DIR",
        help="real signs: a folder per class, or files CLASS_name.png (default: drawn)",
    )
    group.add_argument(
        "--backgrounds", type=Path, metavar="DIR", help="real road pictures (default: drawn)"
    )
    group.add_argument(
        "--examples-per-class", type=count, default=100, metavar="N", help="default: 100"
    )


def _add_training(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("training")
    group.add_argument(
        "--architectures",
        metavar="A,B",
        help="default: resnet50,densenet121,inception_v3; there is densenet_small too",
    )
    group.add_argument(
        "--trainer",
        choices=("flax", "torch"),
        default="flax",
        help="what computes the steps; torch (on the CPU) is the faster one on processors that "
        "multiply bfloat16 matrices (default: flax)",
    )
    group.add_argument("--max-steps", type=count, metavar="N", help="before a try is given up")
    group.add_argument("--batch-size", type=count, metavar="N", help="default: 64")
    group.add_argument(
        "--warm-start",
        type=count,
        metavar="STEPS",
        help="start models from one network per architecture, trained on other clean signs for at "
        "most so many steps (default: from random weights, as Round 0)",
    )
    _add_shard(group)


def run(args: argparse.Namespace) -> int:
    """Generate; returns 0, or 2 when some model could not be trained.

    Raises:
        GenerationError: impossible settings, or a folder of another round.
        OSError: the folder cannot be written.
    """
    keep_compiled()
    failed: list[str] = []
    with Progress() as progress:
        for event in _events(args, progress):
            _show(progress, event)
            if event.kind == "failed":
                failed.append(f"id-{event.model:08d}")
    if failed:
        progress.line(f"not generated: {', '.join(failed)}")
        return EXIT_FAILED
    print(args.out)
    return EXIT_CLEAN


def _events(args: argparse.Namespace, progress: Progress) -> "Iterator[Event]":
    if args.round in _TEXT_ROUNDS:
        from jaxtroj.generate.sentiment.sentiment_round import check_settings, generate_text_round
        from jaxtroj.generate.sentiment.vectors import load_vectors

        settings = _text_settings(args)
        check_settings(settings, args.shard)
        folder = _vectors_folder(args, progress)
        vectors = load_vectors(folder, settings.seed, settings.triggers)
        return generate_text_round(args.out, settings, vectors, args.shard)
    if args.round == generate_small.NAME:
        return generate_small.events(args)
    from jaxtroj.generate.traffic_signs.round import generate_round0

    return generate_round0(args.out, _settings(args), args.shard)


def _vectors_folder(args: argparse.Namespace, progress: Progress) -> Path:
    """The folder of vectors, filled from texts if those are given."""
    parts = {
        "--texts": args.texts,
        "--encoder": args.encoder,
        "--trigger-texts": args.trigger_texts,
    }
    missing = [name for name, value in parts.items() if value is None]
    if len(missing) == len(parts):
        if args.vectors is None:
            raise UsageError("give --vectors, or --texts with --encoder and --trigger-texts")
        return args.vectors
    if missing:
        raise UsageError(f"to embed texts {', '.join(missing)} must be given too")
    from jaxtroj.generate.sentiment.text_source import TextSource, make_vectors

    counts = {name: getattr(args, name) for name in _TEXT_COUNTS}
    source = TextSource(args.texts, args.encoder, args.trigger_texts, args.seed, **counts)
    folder = args.vectors or args.out / ".vectors"
    for line in make_vectors(source, folder):
        progress.line(line)
    return folder


def _text_settings(args: argparse.Namespace) -> "TextRoundSettings":
    from jaxtroj.generate.sentiment.head_training import HeadTraining
    from jaxtroj.generate.sentiment.sentiment_round import TextRoundSettings

    given = {"batch_size": args.batch_size, "epochs": args.epochs, "slots": args.slots}
    chosen = {name: value for name, value in given.items() if value is not None}
    names = args.architectures.split(",") if args.architectures else None
    return TextRoundSettings(
        seed=args.seed,
        models=args.models,
        design=args.round,
        architectures=tuple(name.strip() for name in names) if names else None,
        hidden_sizes=args.hidden,
        triggers=args.triggers,
        examples_per_class=args.examples_per_class,
        least_attack=args.least_attack,
        training=replace(HeadTraining(), **chosen),
    )


def _counts(text: str) -> tuple[int, ...]:
    return tuple(count(part.strip()) for part in text.split(","))


def _show(progress: Progress, event: "Event") -> None:
    text = f"id-{event.model:08d} {event.kind}: {event.text}"
    if event.step:
        text += f" (step {event.step})"
    # Checks only matter while one watches; what came of a model stays.
    passing = event.kind in ("checked", "warm start")
    if passing:
        progress.update(text)
    if not passing or not progress.is_live:
        progress.line(text)


def _settings(args: argparse.Namespace) -> "RoundSettings":
    from jaxtroj.generate.networks import ROUND0
    from jaxtroj.generate.traffic_signs.round import RoundSettings
    from jaxtroj.generate.training import TrainingSettings

    given = {
        "trainer": args.trainer,
        "batch_size": args.batch_size,
        "max_steps": args.max_steps,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    names = args.architectures.split(",") if args.architectures else ROUND0
    return RoundSettings(
        seed=args.seed,
        models=args.models,
        image_size=args.image_size,
        inception_size=args.inception_size,
        architectures=tuple(name.strip() for name in names),
        foregrounds=args.foregrounds,
        backgrounds=args.backgrounds,
        examples_per_class=args.examples_per_class,
        warm_start=args.warm_start or 0,
        training=replace(TrainingSettings(), **chosen),
    )


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number of 0 or more, got {text!r}")
    return int(text)


def _shard(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or int(match[1]) >= int(match[2]):
        raise argparse.ArgumentTypeError(f"expected I/N with 0 <= I < N, got {text!r}")
    return int(match[1]), int(match[2])
