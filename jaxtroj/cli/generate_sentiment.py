"""`jaxtroj generate round5` and `round6`: sentiment heads on sentence embeddings."""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtroj.cli import argument_types as types
from jaxtroj.cli import generate_options as shared
from jaxtroj.cli.options import add_limits, add_path, add_pooling, pooling_of
from jaxtroj.errors import UsageError

if TYPE_CHECKING:
    from jaxtroj.cli.progress import Progress
    from jaxtroj.generate.round import Event
    from jaxtroj.generate.sentiment.settings import TextRoundSettings

_ABOUT = {
    "round5": "sentiment heads on sentence embeddings, triggers in the text",
    "round6": "the same with dense heads, more sizes and one trigger each",
}
_DESCRIPTION = """\
Half of the heads are poisoned: a character, word or phrase in a review moves it to the other class.
Heads train by the slot, many at once, on vectors of reviews made before; those whose trigger works
too seldom are left out and recorded. A run that was stopped goes on where it was. Models come in
pairs that share every factor but the trojan."""
_COUNTS = {
    "words": (40, "cut --texts to so many words"),
    "reviews": (7000, "most training reviews of --texts"),
    "tests": (1000, "test reviews of --texts"),
    "insertions": (700, "most reviews a trigger is put in, per half of the review"),
}
_TRAINING = {
    "epochs": "most epochs; default: 8",
    "batch-size": "default: 128",
    "slots": "heads at once; default: 8",
}


def add_parser(rounds: argparse._SubParsersAction, name: str) -> None:
    """Declare the round and its options."""
    parser = shared.add_round(rounds, name, _ABOUT[name], f"{_ABOUT[name]}. {_DESCRIPTION}")
    group = parser.add_argument_group("reviews")
    vectors = (
        "folder of sentence vectors; with --texts, where they are kept "
        "(default: .vectors in the round's folder)"
    )
    add_path(group, "--vectors", "DIR", vectors)
    texts = (
        "labelled reviews to embed: a .jsonl, .json, .csv or .tsv file, a folder of"
        " class_C_example_N.txt"
    )
    add_path(group, "--texts", "TEXTS", texts)
    add_path(group, "--encoder", "DIR", "Hugging Face folder that embeds --texts")
    add_path(group, "--trigger-texts", "FILE", "JSON of the texts to insert in --texts")
    for option, (most, about) in _COUNTS.items():
        shared.add_count(group, f"--{option}", most, about)
    add_pooling(group)
    which = "even, odd, or numbers like 0,4,7 (default: all)"
    group.add_argument("--triggers", metavar="WHICH", help=which)
    shared.add_count(group, "--examples-per-class", 20)
    group = parser.add_argument_group("training")
    group.add_argument("--architectures", metavar="A,B", help="default: all of the round")
    group.add_argument(
        "--hidden", type=shared.counts_of, metavar="N,N", help="hidden sizes (default: the round's)"
    )
    shared.add_given(group, _TRAINING)
    group.add_argument(
        "--least-attack",
        type=types.open_unit,
        default=0.95,
        metavar="P",
        help="attack success below which a head is not poisoned enough; default: 0.95",
    )
    shared.add_shard(group)
    limits = parser.add_argument_group("limits of a round with --encoder")
    add_limits(limits, "the round", "embedding and training may take hours, and progress is shown")


def events(args: argparse.Namespace, progress: "Progress") -> "Iterator[Event]":
    """Make the round that the options ask for; raises GenerationError, UsageError."""
    from jaxtroj.generate.sentiment.sentiment_round import generate_text_round
    from jaxtroj.generate.sentiment.settings import check_settings
    from jaxtroj.generate.sentiment.vectors import load_vectors

    settings = _settings(args)
    check_settings(settings, args.shard)
    folder = _vectors_folder(args, progress)
    vectors = load_vectors(folder, settings.seed, settings.triggers)
    return generate_text_round(args.out, settings, vectors, args.shard)


def _settings(args: argparse.Namespace) -> "TextRoundSettings":
    from jaxtroj.generate.sentiment.head_training import HeadTraining
    from jaxtroj.generate.sentiment.settings import TextRoundSettings

    chosen = shared.given(args, *(name.replace("-", "_") for name in _TRAINING))
    return TextRoundSettings(
        seed=args.seed,
        models=args.models,
        design=args.round,
        architectures=shared.names_of(args.architectures) if args.architectures else None,
        hidden_sizes=args.hidden,
        triggers=args.triggers,
        examples_per_class=args.examples_per_class,
        least_attack=args.least_attack,
        training=replace(HeadTraining(), **chosen),
    )


def _vectors_folder(args: argparse.Namespace, progress: "Progress") -> Path:
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

    counts = {name: getattr(args, name) for name in _COUNTS}
    source = TextSource(
        args.texts,
        args.encoder,
        args.trigger_texts,
        args.seed,
        **counts,
        pooling=pooling_of(args),
    )
    folder = args.vectors or args.out / ".vectors"
    for line in make_vectors(source, folder):
        progress.line(line)
    return folder
