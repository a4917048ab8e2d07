"""Options that several commands share. Imports nothing heavy."""

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converters.files import what_is
from jaxtroj import runtime
from jaxtroj.cli import argument_types as types
from jaxtroj.cli.main import (
    answered,
    say,
    telling_what_is_kept,
)
from jaxtroj.cli.picture_options import add_input_form, add_picture_options
from jaxtroj.errors import UsageError
from jaxtroj.populations import BY_NAME, shipped

if TYPE_CHECKING:
    from converters.user_code import NetworkCode
    from jaxtroj.engine.guard import Guard
    from jaxtroj.poolings import Pooling
    from jaxtroj.settings import Settings

_GIB = 2**30
GOES_ON = "what is done is kept, and the same command goes on where it stopped"
"""What an interrupt says of a command that resumes; its module has it, or another, as `KEPT`."""
_MODELS = ("a file", "a folder")  # what a model lies in


def add_path(
    parser: argparse._ActionsContainer, name: str, kind: str, about: str, required: bool = False
) -> None:
    """Declare an option that takes a path; `kind` is what the help calls it, such as DIR."""
    parser.add_argument(name, type=types.path_of, metavar=kind, help=about, required=required)


def add_flag(parser: argparse._ActionsContainer, name: str, about: str) -> None:
    """Declare an option that is true where it is given."""
    parser.add_argument(name, action="store_true", help=about)


def add_pooling(parser: argparse._ActionsContainer) -> None:
    """Declare what stands for a text; see `pooling_of`."""
    which = parser.add_mutually_exclusive_group()
    last = "a text's vector is its last token's state, as always with GPT-2 (default: the first's)"
    add_flag(which, "--last-token", last)
    mean = "it is the mean over its tokens, as in most encoders of sentence-transformers"
    add_flag(which, "--mean-of-tokens", mean)


def pooling_of(args: argparse.Namespace) -> "Pooling":
    """What the options of `add_pooling` choose."""
    if args.mean_of_tokens:
        return "mean"
    return "last" if args.last_token else "first"


def add_limits(
    parser: argparse._ActionsContainer, what: str = "a model", endless: str = ""
) -> None:
    """Declare --timeout and --memory; `limits_from` reads them.

    Args:
        parser: a command's, or a group of its options.
        what: what is stopped that exceeds a limit.
        endless: why it may take for ever where the user does not say how long; empty if not so.
    """
    from jaxtroj.engine.local import DEFAULT_TIMEOUT

    timeout = None if endless else DEFAULT_TIMEOUT
    usual = f"no limit: {endless}" if endless else f"{timeout:g}"
    parser.add_argument(
        "--timeout",
        type=types.seconds,
        default=timeout,
        metavar="S",
        help=f"stop {what} after S seconds, as failed (default: {usual})",
    )
    parser.add_argument(
        "--memory",
        type=types.gibibytes,
        metavar="GIB",
        help=f"stop {what} whose process takes more, as failed (default: nine tenths of the"
        " machine's memory divided by the workers)",
    )


def memory_from(args: argparse.Namespace) -> int | None:
    """Bytes that --memory says; None where it is not given."""
    return None if args.memory is None else int(args.memory * _GIB)


def limits_from(args: argparse.Namespace) -> "Guard":
    """The limits that the options of `add_limits` ask for, of the only worker."""
    from jaxtroj.engine.guard import Guard
    from jaxtroj.engine.local import usual_limits

    return Guard(args.timeout, memory_from(args) or usual_limits().memory)


def guarded(args: argparse.Namespace, body: Callable[[argparse.Namespace], int], what: str) -> int:
    """The exit status of a command's body, run in a child process under the limits of `args`.

    Args:
        args: the command's, with the options of `add_limits`.
        body: a function of a module; its errors become messages and statuses in the child.
        what: a name of the child for errors.

    Raises:
        LimitError: a limit was exceeded, or the child was ended by a signal.
    """
    from jaxtroj.engine.guarded_call import guarded_call

    work = partial(answered, partial(_where_jax_works, body, args))
    return guarded_call(work, limits_from(args), what)


def _where_jax_works(body: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    runtime.check_backend()
    return telling_what_is_kept(partial(body, args), sys.modules[body.__module__])


def add_settings(parser: argparse.ArgumentParser, words: bool = False) -> None:
    """The options that change an answer; `settings_from` reads them.

    Args:
        parser: of the command.
        words: whether the command searches a text trigger's words unless told otherwise.
    """
    parser.set_defaults(
        text_calibrator=None, usual_population=None
    )  # no option: learned parameters may hold one
    group = parser.add_argument_group("what changes the answer")
    add_path(group, "--calibrator", "FILE", "default: the shipped one")
    group.add_argument(
        "--population",
        choices=tuple(BY_NAME),
        metavar="NAME",
        help=f"what your models are like, {', '.join(BY_NAME)}: its calibrator answers for all"
        " of its kind (default: that of the dataset's round, else the general one)",
    )
    add_flag(
        group,
        "--evidence-only",
        "gather evidence, do not calibrate: every probability is the base rate",
    )
    group.add_argument(
        "--base-rate",
        type=types.open_unit,
        metavar="P",
        help="share of poisoned models where yours come from (default: the calibrator's)",
    )
    group.add_argument("--threshold", type=types.open_unit, metavar="P", help="default: 0.5")
    group.add_argument(
        "--stages", metavar="A,B", help="evidence stages to run (default: all, cheap ones first)"
    )
    add_flag(group, "--no-early-stop", "run every stage, also those that cannot change the verdict")
    group.add_argument(
        "--enough",
        type=types.open_unit,
        metavar="P",
        help="end a model's search once its probability is at most P or at least 1 - P (default:"
        " once nothing more can change the verdict)",
    )
    _add_text_options(group, words)
    add_path(
        group,
        "--reference",
        "MODEL",
        "a clean image classifier of the same classes, of any architecture, to compare with",
    )
    group.add_argument("--seed", type=types.seed, metavar="N", help="default: 0")
    add_picture_options(group)
    add_input_form(parser)


def add_bank(group: argparse._ActionsContainer) -> None:
    """Declare --bank."""
    add_path(
        group,
        "--bank",
        "DIR",
        "probe bank of a text model's encoder, or a folder of banks (see jaxtroj bank)",
    )


def check_bank(bank: Path | None) -> None:
    """Raise UsageError for a --bank that is no folder."""
    if bank is not None and (kind := what_is(bank)) != "a folder":
        raise UsageError(f"--bank {bank} is {kind}; expected a folder `jaxtroj bank` wrote")


def _add_text_options(group: argparse._ArgumentGroup, words: bool) -> None:
    add_bank(group)
    add_path(
        group,
        "--encoder",
        "PATH",
        "encoder for example texts that come without embeddings (default: the dataset's)",
    )
    add_path(group, "--tokenizer", "PATH", "its tokenizer")
    group.add_argument(
        "--words",
        action=argparse.BooleanOptionalAction,
        default=words,
        help="search the words of the trigger of text models called poisoned, with bank and encoder"
        f" at hand; half a minute each on a CPU (default: {'yes' if words else 'no'})",
    )


def add_network(parser: argparse._ActionsContainer) -> None:
    """Declare --network and --network-args; `code_from` reads them."""
    parser.add_argument(
        "--network",
        metavar="FILE.py:NAME",
        help="for weights alone: the class or function that makes the network. THIS CODE IS RUN,"
        " in the guarded process: name only code that you trust. The weights are read as data",
    )
    parser.add_argument(
        "--network-args", metavar="JSON", help="its keyword arguments, as in '{\"depth\": 16}'"
    )


def code_from(args: argparse.Namespace) -> "NetworkCode | None":
    """The code that the options of `add_network` name.

    Raises:
        UsageError: they name none, or the file is not there.
    """
    from converters.user_code import UserCodeError, network_code

    if args.network is None and args.network_args is not None:
        raise UsageError("--network-args are those of --network FILE.py:NAME; give both")
    if args.network is None:
        return None
    try:
        code = network_code(args.network, args.network_args)
        code.digest()
    except UserCodeError as error:
        raise UsageError(f"--network: {error}") from error
    return code


def settings_from(args: argparse.Namespace) -> "Settings":
    """The settings that the options of `add_settings` ask for.

    Raises:
        UsageError: options contradict each other or are outside their range.
        CalibrationError: a calibrator cannot be read.
    """
    from jaxtroj.settings import ROUND_CALIBRATORS, Settings

    if args.evidence_only and args.calibrator is not None:
        raise UsageError("--evidence-only and --calibrator exclude each other; give one")
    if args.population is not None and (args.evidence_only or args.calibrator is not None):
        raise UsageError("--population names a calibrator; leave the other option out")
    if args.enough is not None and (args.evidence_only or args.no_early_stop):
        raise UsageError(
            "--enough ends a search by its probability; leave --evidence-only and --no-early-stop"
            " out, or --enough"
        )
    check_bank(args.bank)
    if args.reference is not None and (kind := what_is(args.reference)) not in _MODELS:
        raise UsageError(f"--reference {args.reference} is {kind}; expected a model file")
    names = ("calibrator", "text_calibrator", "base_rate", "threshold", "seed")
    names += ("examples_per_class", "channel_order", "normalization", "layout", "bounds", "mean")
    names += ("std", "output", "image_size", "bank", "encoder", "tokenizer", "enough", "reference")
    names += ("class_counts", "resize", "public_code")
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if "calibrator" in given:  # it says itself for which kind of model it is
        given.setdefault("text_calibrator", given["calibrator"])
        given["classifier_calibrator"] = given["calibrator"]
        given |= {"special_calibrators": (), "round_calibrators": ()}
    elif args.population is not None:
        given |= _of_population(args.population)
    elif args.usual_population is not None:  # of what no folder tells the round of
        given |= _of_population(args.usual_population) | {"round_calibrators": ROUND_CALIBRATORS}
    given["recover_words"] = args.words
    if args.stages is not None:
        given["stages"] = tuple(name.strip() for name in args.stages.split(","))
    if args.evidence_only:
        given |= dict.fromkeys(("calibrator", "text_calibrator", "classifier_calibrator"))
        return Settings(**given, early_stop=False)
    return Settings(**given, early_stop=not args.no_early_stop)


def _of_population(name: str) -> dict[str, Any]:
    """The settings by which a population's calibrator answers for all models of its kind.

    Raises UsageError where it does not ship with this version.
    """
    found = BY_NAME[name]
    if not found.path.is_file():
        there = ", ".join(one.name for one in shipped())
        raise UsageError(f"this version ships no calibrator {name}; expected one of {there}")
    if found.kind == "text":
        return {"text_calibrator": found.path}
    if found.kind == "text-classifier":
        return {"classifier_calibrator": found.path}
    return {"calibrator": found.path, "special_calibrators": (), "round_calibrators": ()}


def keep_compiled() -> None:
    """Let jax keep compiled programs, and memory, between calls; call before jax is imported."""
    os.environ.update(runtime.compiled_programs(os.environ))
    runtime.prepare()


message = say
