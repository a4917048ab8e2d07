"""`jaxtroj COMMAND`: parses, runs one command, and turns errors into one line and an exit code.

Only the module of the command that was asked for is imported, so `jaxtroj --help` is quick.
"""

import argparse
import importlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from converters.errors import ConverterError
from jaxtroj import __version__
from jaxtroj.cli import streams
from jaxtroj.errors import (
    CalibrationError,
    DatasetError,
    EngineError,
    GenerationError,
    JaxtrojError,
    StoreError,
    UsageError,
)

EXIT_CLEAN, EXIT_POISONED, EXIT_FAILED, EXIT_NOTHING, EXIT_USAGE, EXIT_INCOMPLETE = range(6)
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141
DEBUG = "JAXTROJ_DEBUG"
"""Environment variable that has the traceback of an internal error shown."""
_LONGEST_MESSAGE = 500

COMMANDS = {
    "detect": "probability that given models are poisoned; without a model, two examples",
    "scan": "every model of a dataset folder, into a run folder that can be resumed",
    "calibrate": "fit evidence to probability on a run with known truth",
    "evaluate": "log score, ROC AUC and more of a run with known truth",
    "report": "a run as one HTML page, SARIF, CycloneDX, in-toto, CSV, JSON; plots for papers",
    "compare": "two detectors on the same models, with a paired bootstrap interval",
    "infer": "one model through TrojAI's container interface",
    "configure": "fit learned parameters for `infer` on a folder of labelled models",
    "generate": "make a synthetic round: clean and poisoned models with examples",
    "bank": "vectors of inserted texts, once for an encoder, for scans of sentiment heads",
    "repair": "unlearn the trigger of a poisoned image classifier, and measure what is left",
    "convert": "write a model as a Flax checkpoint, and check that it agrees",
    "backgrounds": "ImageNet-9 and the Backgrounds Challenge: evaluate, challenge, generate",
    "bench": "the project's own benchmarks, in a checkout",
}

_USAGE_ERRORS = (
    UsageError,
    StoreError,
    DatasetError,
    CalibrationError,
    EngineError,
    GenerationError,
)
_DESCRIPTION = "Scanner for poisoned (backdoored, trojaned) neural networks."
_EPILOG = """\
exit status:
  0  done; no model is above the threshold
  1  at least one model is above the threshold (detect, scan)
  2  some model failed; its record says why. Or an internal error: a line on stderr says where
  3  nothing there to scan
  4  usage error, or a folder or file that the command needs cannot be used; also when
     results could not be written to stdout, such as to a full disk
  5  not done (scan): the budget left models over, or no model is above the threshold but
     model files in other places of the folder were not looked at
  130, 141  interrupted; the reader of stdout has gone (`| head`)

Results go to stdout, progress and messages to stderr.
`jaxtroj COMMAND --help` describes a command."""


class Parser(argparse.ArgumentParser):
    """Like argparse's, with status 4 for usage errors: 2 means that a model failed."""

    def parse_known_args(self, args=None, namespace=None):  # pyright: ignore
        """As argparse's, but no argument is left over: the parser that met it names itself."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """One line on stderr that says what was wrong, and exit status 4."""
        said = f"{self.prog}: error: {_escaped(message)} (see {self.prog} --help)"
        self.exit(EXIT_USAGE, f"{said}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status (see `jaxtroj --help`)."""
    return answered(partial(_run, list(sys.argv[1:] if argv is None else argv)))


def answered(work: Callable[[], int]) -> int:
    """The exit status of some work, whose errors and lost output become messages and statuses."""
    streams.guard()
    _end_when_asked()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name that the terminal's encoding lacks is shown escaped, not a crash.
        sys.stdout.reconfigure(errors="backslashreplace")
    status = _status(work)
    lost = streams.stdout_error()
    if lost is None or status == EXIT_INTERRUPTED:
        return status
    return EXIT_PIPE if lost.reader_has_gone else EXIT_USAGE


def _end_when_asked() -> None:
    """As process 1 of a container, end by SIGTERM and SIGHUP, which the kernel keeps from it."""
    if os.getpid() == 1:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda asked, _: os._exit(128 + asked))


def _status(work: Callable[[], int]) -> int:
    try:
        status = work()
        sys.stdout.flush()
    except streams.OutputError as error:
        if not error.reader_has_gone:
            say(f"error: cannot write the results to stdout: {error.strerror}")
        return EXIT_USAGE
    except KeyboardInterrupt as stop:
        say("; ".join(["interrupted", *map(str, stop.args)]))
        return EXIT_INTERRUPTED
    except (*_USAGE_ERRORS, OSError) as error:
        say(f"error: {error}")
        return EXIT_USAGE
    except (JaxtrojError, ConverterError) as error:
        say(f"error: {error}")
        return EXIT_FAILED
    except Exception as error:  # one that nobody foresaw: Python's own status, 1, means poisoned
        _complain_of_fault(error)
        return EXIT_FAILED
    return status


def _run(arguments: list[str]) -> int:
    _refuse_files_as_options(arguments)
    # Options of the top level take no value, so the first plain word is the command.
    name = next((word for word in arguments if not word.startswith("-")), None)
    command = _module(name) if name in COMMANDS else None
    if command is not None and hasattr(command, "before_parsing"):
        command.before_parsing(arguments)
    parser = _parser(name, command)
    try:
        parsed = parser.parse_args(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else EXIT_USAGE
    if command is None:
        parser.print_help()
        return EXIT_CLEAN
    return telling_what_is_kept(partial(command.run, parsed), command)


def _refuse_files_as_options(arguments: Sequence[str]) -> None:
    """Refuse a word that is an option and a file's name: `*.pt` and hooks give names of strangers.

    A file called `--network=evil.py:a.pt` would have its neighbour's code run. Behind `--` all
    words are names.
    """
    for word in takewhile(lambda word: word != "--", arguments):
        if word.startswith("-") and len(word) > 1 and os.path.lexists(word):
            raise UsageError(
                f"{word} is the name of a file here, and would be taken for an option; nothing was"
                f" done. For the file write ./{word}, for the option move the file away"
            )


def telling_what_is_kept(work: Callable[[], int], command: ModuleType) -> int:
    """The exit status of a command's work; an interrupt says what the command's `KEPT` does."""
    try:
        return work()
    except KeyboardInterrupt as stop:
        kept = getattr(command, "KEPT", None)
        raise KeyboardInterrupt(*((kept,) if kept else ())) from stop


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"jaxtroj.cli.{name}")


def _parser(wanted: str | None, command: ModuleType | None) -> Parser:
    parser = Parser(
        prog="jaxtroj",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"jaxtroj {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for name, summary in COMMANDS.items():
        if name == wanted and command is not None:
            command.add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=summary)
    return parser


def _complain_of_fault(error: Exception) -> None:
    """One line that says where; the traceback before it where `DEBUG` asks for that."""
    if os.environ.get(DEBUG, "0") not in ("", "0"):
        traceback.print_exception(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    said = " ".join(str(error).split())[:_LONGEST_MESSAGE]
    say(f"internal error: {type(error).__name__}: {said} ({place}); please report it")


def say(message: str) -> None:
    """One line for people on stderr; what strangers' files put into it moves no cursor."""
    print(f"jaxtroj: {_escaped(message)}", file=sys.stderr, flush=True)


def _escaped(text: str) -> str:
    from jaxtroj.record import shown

    return shown(text)


if __name__ == "__main__":
    raise SystemExit(main())
