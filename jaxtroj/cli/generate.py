"""`jaxtroj generate`: a synthetic round of clean and poisoned models, with examples."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtroj import runtime
from jaxtroj.cli import (
    generate_later,
    generate_sentiment,
    generate_signs,
    generate_small,
    generate_zoo,
)
from jaxtroj.cli.main import COMMANDS, EXIT_CLEAN, EXIT_FAILED
from jaxtroj.cli.options import guarded, keep_compiled
from jaxtroj.cli.progress import Progress
from jaxtroj.errors import GenerationError

if TYPE_CHECKING:
    from jaxtroj.generate.round import Event

ROUNDS = {
    "round0": generate_signs,
    "round1": generate_later,
    "round2": generate_later,
    "round3": generate_later,
    "round4": generate_later,
    "small": generate_small,
    "zoo": generate_zoo,
    "round5": generate_sentiment,
    "round6": generate_sentiment,
}
"""Each has `add_parser(rounds, name)` and `events(args, progress)`."""
KEPT = "models that are complete are kept, and the same command goes on where it stopped"
"""What is said of an interrupt."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Declare the command and its options."""
    parser = subparsers.add_parser(
        "generate", help=COMMANDS["generate"], description=__doc__, allow_abbrev=False
    )
    rounds = parser.add_subparsers(title="rounds", metavar="ROUND", dest="round", required=True)
    for name, options in ROUNDS.items():
        options.add_parser(rounds, name)


def run(args: argparse.Namespace) -> int:
    """Generate; returns 0, or 2 when some model could not be trained.

    A round that opens strangers' files, an encoder or networks, is made in a guarded process.

    Raises:
        LimitError: that took too much time or memory.
        GenerationError: see `_generate`.
    """
    files = [str(path) for _, path in getattr(args, "pretrained", ())]
    if encoder := getattr(args, "encoder", None):
        files.append(str(encoder))
    if not files:
        return _generate(args)
    return guarded(args, _generate, f"the process that runs {', '.join(files)}")


def _generate(args: argparse.Namespace) -> int:
    """Make the round in this process.

    Raises:
        GenerationError: impossible settings, or a folder of another round or that cannot be
            written.
        EngineError: jax does not have what JAX_PLATFORMS asks for.
    """
    runtime.check_backend()
    keep_compiled()
    failed: list[str] = []
    with Progress() as progress:
        try:
            for event in ROUNDS[args.round].events(args, progress):
                _show(progress, event)
                if event.kind == "failed":
                    failed.append(f"id-{event.model:08d}")
        except OSError as error:
            raise GenerationError(_not_written(args.out, error)) from error
    if failed:
        progress.line(f"not generated: {', '.join(failed)}")
        return EXIT_FAILED
    print(args.out)
    return EXIT_CLEAN


def _not_written(out: Path, error: OSError) -> str:
    place = f" ({error.filename})" if error.filename else ""
    return (
        f"cannot write in {out}: {error.strerror or error}{place}; models that are complete are"
        " kept, and the same command goes on where it stopped"
    )


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
