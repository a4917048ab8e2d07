"""`jaxtroj bank`: the sentence vectors of texts inserted into carriers, once for an encoder.

A scan of sentiment heads looks every candidate up in the bank instead of running the encoder. A
build that was stopped goes on where it was.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtroj.cli import argument_types as types
from jaxtroj.cli.main import COMMANDS, EXIT_CLEAN
from jaxtroj.cli.options import (
    GOES_ON,
    add_limits,
    add_path,
    add_pooling,
    guarded,
    keep_compiled,
    message,
    pooling_of,
)
from jaxtroj.cli.progress import Progress, remaining
from jaxtroj.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

    from converters.encoders import Encoder
    from converters.encoders.tokenizer import Tokenizer
    from jaxtroj.evidence.texts.bank.build import Embed
    from jaxtroj.evidence.texts.bank.store import BankPlan

# Some 7,000 texts in 8 carriers: a quarter of an hour of two cores with an encoder of BERT's size.
_WORDS, _PHRASES, _SENTENCES, _CARRIERS = 600, 150, 100, 4
_HEADS, _BATCH = 24, 32

KEPT = GOES_ON
"""What is said of an interrupt."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Declare the command and its options."""
    parser = subparsers.add_parser(
        "bank", help=COMMANDS["bank"], description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "encoder",
        type=types.path_of,
        metavar="ENCODER",
        help="Hugging Face folder or pickled encoder",
    )
    add_path(parser, "--out", "DIR", "folder of the bank", required=True)
    add_path(
        parser,
        "--carriers",
        "TEXTS",
        "clean texts to insert into: a folder of examples, .jsonl, .json, or lines",
        required=True,
    )
    parser.add_argument(
        "--carriers-per-class",
        type=types.count_to(types.MOST_IN_MEMORY),
        default=_CARRIERS,
        metavar="N",
        help=f"default: {_CARRIERS}",
    )
    add_path(parser, "--tokenizer", "T", "folder or pickled file (default: ENCODER)")
    add_pooling(parser)
    parser.add_argument(
        "--batch-size",
        type=types.count_to(types.MOST_IN_A_BATCH),
        default=_BATCH,
        help=f"default: {_BATCH} texts",
    )
    _add_candidates(parser)
    _add_references(parser)
    add_limits(parser, "the build", "an encoder may need hours on a CPU, and progress is shown")


def _add_candidates(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("candidate texts")
    group.add_argument(
        "--words",
        type=_words,
        metavar="N",
        help=f"words of the vocabulary, drawn at random, or all (default: {_WORDS})",
    )
    group.add_argument(
        "--phrases",
        type=types.count_to(types.MOST_IN_MEMORY),
        metavar="N",
        help=f"phrases of random words (default: {_PHRASES})",
    )
    group.add_argument(
        "--sentences",
        type=types.count_to(types.MOST_IN_MEMORY),
        metavar="N",
        help=f"most sentences of texts that are no carriers (default: {_SENTENCES})",
    )
    add_path(
        group,
        "--known-list",
        "FILE",
        "only the texts of this list (JSON or lines); the bank and its results say so",
    )


def _words(text: str) -> int:
    """A count, or more than any vocabulary has for `all`; for argparse."""
    return sys.maxsize if text == "all" else types.count(text)


def _add_references(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("clean heads to compare with")
    add_path(
        group,
        "--references",
        "DATASET",
        "labelled round whose clean heads are copied into the bank",
    )
    group.add_argument(
        "--reference-heads",
        type=types.count_to(types.MOST_IN_MEMORY),
        default=_HEADS,
        metavar="N",
        help=f"default: {_HEADS}",
    )


def run(args: argparse.Namespace) -> int:
    """Build or go on with a bank in a guarded process, since an encoder is a stranger's file.

    Raises:
        LimitError: the build took too much time or memory.
    """
    return guarded(args, _bank, f"the process that runs {args.encoder}")


def _bank(args: argparse.Namespace) -> int:
    """Build or go on with a bank; returns 0.

    Raises:
        UsageError: options contradict each other, or nothing to insert or to insert into.
        DatasetError: texts or dataset cannot be read.
        ConverterError: encoder or tokenizer cannot be read.
        StoreError: the folder holds another bank or cannot be written.
    """
    keep_compiled()
    if args.references:
        _check_references(args.references)
    from converters.encoders import load_encoder
    from converters.encoders.tokenizer import load_tokenizer

    encoder = load_encoder(args.encoder)
    for finding in encoder.findings:
        message(finding)
    if encoder.architecture == "gpt2" and pooling_of(args) == "first":
        raise UsageError("GPT-2's first token sees no other one; add --last-token")
    tokenizer = load_tokenizer(args.tokenizer or args.encoder)
    plan = _plan(args, encoder, tokenizer)
    to_vectors = _embed(args, plan, encoder, tokenizer)
    with Progress() as progress:
        _build(args, plan, to_vectors, progress)
        if args.references:
            _copy_references(args, encoder.architecture, to_vectors, progress)
    print(args.out)
    return EXIT_CLEAN


def _check_references(dataset: Path) -> None:
    """Raise UsageError for a dataset without a clean label, before the bank is built for it."""
    from jaxtroj.rounds import iter_models

    if not any(entry.poisoned is False for entry in iter_models(dataset)):
        raise UsageError(
            f"--references {dataset} has no model that is labelled clean; expected a labelled round"
        )


def _plan(args: argparse.Namespace, encoder: "Encoder", tokenizer: "Tokenizer") -> "BankPlan":
    from converters.encoders.tokenizer import tokenizer_digest
    from jaxtroj.evidence.texts.bank.build import make_plan
    from jaxtroj.evidence.texts.bank.candidates import known_list, list_free, read_list
    from jaxtroj.evidence.texts.labelled_texts import draw_by_content, read_texts_with_notes

    texts, notes = read_texts_with_notes(args.carriers)
    for note in notes:
        message(note)
    carriers = [one.text for one in draw_by_content(texts, args.carriers_per_class)]
    drawn = (args.words, args.phrases, args.sentences)
    if args.known_list is None:
        others = [one.text for one in texts if one.text not in set(carriers)]
        candidates = list_free(
            tokenizer.vocabulary,
            args.words or _WORDS,
            args.phrases or _PHRASES,
            others,
            args.sentences or _SENTENCES,
        )
    elif any(drawn):
        raise UsageError("--known-list excludes --words, --phrases and --sentences; give one kind")
    else:
        candidates = known_list(read_list(args.known_list))
    return make_plan(
        encoder.sha256,
        encoder.width,
        pooling_of(args),
        args.known_list is not None,
        carriers,
        candidates,
        tokenizer_digest(args.tokenizer or args.encoder),
    )


def _build(
    args: argparse.Namespace, plan: "BankPlan", to_vectors: "Embed", progress: Progress
) -> None:
    from jaxtroj.evidence.texts.bank.build import build

    started, earlier, done = time.monotonic(), None, 0
    for built in build(args.out, plan, to_vectors):
        if earlier is None and not built.knows_tokenizer:
            progress.line(
                f"{args.out}: the tokenizer of this bank is not on record, since an earlier version"
                " built it; if it may be another one, build the bank in another folder"
            )
        if earlier is None and built.done < built.candidates:
            _say_time(plan, to_vectors, args.batch_size, progress)
        earlier = built.done if earlier is None else earlier
        done = built.done - earlier
        seconds = time.monotonic() - started
        left = remaining(done, built.candidates - earlier, seconds)
        progress.update(f"{built.done} of {built.candidates} candidates {left}")
    seconds = time.monotonic() - started
    kind = "known-list" if plan.known_list else "list-free"
    whole = f"{kind} bank: {len(plan.candidates)} candidates in {len(plan.carriers)} carriers"
    rate = f"{done} now, {done / seconds:.1f} candidates/s" if done else "all there already"
    progress.line(f"{whole}; {rate}")


def _say_time(plan: "BankPlan", to_vectors: "Embed", size: int, progress: Progress) -> None:
    """How long a whole build takes, by the second of two batches: the first one compiles."""
    texts = [plan.carriers[number % len(plan.carriers)] for number in range(size)]
    for _ in range(2):
        started = time.monotonic()
        to_vectors(texts)
        rate = size / (time.monotonic() - started)
    whole = len(plan.candidates) * len(plan.carriers)
    minutes = whole / rate / 60
    progress.line(f"{whole:,} texts to embed, about {minutes:.0f} minutes at {rate:.1f} texts/s")


def _embed(
    args: argparse.Namespace, plan: "BankPlan", encoder: "Encoder", tokenizer: "Tokenizer"
) -> "Embed":
    from jaxtroj.evidence.texts.embedding import embed

    def to_vectors(texts: Sequence[str]) -> "np.ndarray":
        return embed(encoder, tokenizer, texts, plan.pooling, args.batch_size)

    return to_vectors


def _copy_references(
    args: argparse.Namespace, architecture: str, to_vectors: "Embed", progress: Progress
) -> None:
    from jaxtroj.evidence.texts.bank.reference_heads import copy_references
    from jaxtroj.evidence.texts.standard import FEWEST

    progress.update("reading clean heads")
    count = args.reference_heads
    heads = copy_references(
        args.references, args.out, architecture, count, to_vectors, progress.line
    )
    kinds = ", ".join(sorted({head.architecture for head in heads}))
    few = "" if len(heads) >= FEWEST else f"; too few, a scan needs {FEWEST} or more"
    progress.line(f"{len(heads)} clean heads to compare with: {kinds}{few}")
    progress.update("judging each clean head by the others")
    _keep_standard(args.out)


def _keep_standard(folder: Path) -> None:
    """So that a scan need not judge the clean heads again."""
    from jaxtroj.evidence.texts.bank.kept_standard import keep_standard
    from jaxtroj.evidence.texts.encoder_probes import open_probes
    from jaxtroj.evidence.texts.stages.against import COMPARISON, identity_of
    from jaxtroj.evidence.texts.standard import FEWEST

    probes = open_probes(folder)
    if probes.comparable >= FEWEST:
        keep_standard(folder, COMPARISON.compute_standard(probes), identity_of(probes, 0))
