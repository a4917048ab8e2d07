"""`jaxtroj detect`: the probability that given models are poisoned.

Takes NIST's own flags too, of every round (see `infer` and `configure`), and then leaves one float
in the result file whatever happens: the base rate is written before anything else, the answer
replaces it. Only a file that is an input, too, is left as it was.
"""

import argparse
import errno
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtroj.cli import accepting, configure, nist, options, outputs
from jaxtroj.cli import argument_types as types
from jaxtroj.cli.main import COMMANDS, EXIT_NOTHING
from jaxtroj.cli.statuses import exit_status
from jaxtroj.errors import UsageError

if TYPE_CHECKING:
    from jaxtroj.accepted import Accepted
    from jaxtroj.record import Record
    from jaxtroj.rounds import ModelEntry

_RESULT = "--result_filepath"
_NOT_REPLACED = frozenset({errno.EACCES, errno.EBUSY, errno.EPERM, errno.EROFS})
"""What the system says where a file may be written and not replaced: it alone is mounted into a
container, or its folder is closed."""
DEFAULT_OUT = Path("jaxtroj-out")


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Declare the command and its options."""
    parser = subparsers.add_parser(
        "detect", help=COMMANDS["detect"], description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "models",
        nargs="*",
        type=types.path_of,
        metavar="MODEL",
        help="model file, folder id-XXXXXXXX with model.pt and example_data/, Hugging Face or"
        " MLflow folder, hf://ORG/NAME[@REVISION] or models:/NAME/VERSION, which are fetched",
    )
    parser.add_argument(
        "--examples",
        "--examples_dirpath",
        type=types.path_of,
        metavar="PATH",
        help="folder of clean example pictures, or an .npz archive with pictures x and labels y"
        " (default: example_data beside the model)",
    )
    options.add_flag(parser, "--json", "one JSON object per model on stdout")
    options.add_path(
        parser,
        "--out",
        "DIR",
        f"folder for pictures of recovered triggers (default: {DEFAULT_OUT})",
    )
    accepting.add_accept(parser)
    options.add_network(parser)
    options.add_limits(parser)
    options.add_settings(parser, words=True)
    group = parser.add_argument_group("NIST's flags (one model)")
    nist.add_model_flags(group)
    nist.add_parameter_flags(group)
    configure.remember_options(parser)


def before_parsing(arguments: Sequence[str]) -> None:
    """Put the base rate into NIST's result file, before even a usage error can end the run.

    Raises:
        UsageError: the result file cannot be written, or is an input.
    """
    result = _value(arguments, _RESULT)
    if not result:  # the parser refuses empty text
        return
    outputs.keep_named(Path(result), arguments[1:], _RESULT)
    try:
        rate = types.open_unit(_value(arguments, "--base-rate") or "0.5")
    except argparse.ArgumentTypeError:  # the parser says so in a moment
        rate = 0.5
    _write_result(Path(result), rate)


def run(args: argparse.Namespace) -> int:
    """Scan the models, print one line or JSON object for each; returns the exit status."""
    from jaxtroj.record_text import summary

    if args.configure_mode:
        return configure.run(args)
    paths = list(args.models)
    if args.model_filepath is not None:
        paths.append(args.model_filepath)
    accepted = accepting.accepted_from(args.accept)
    records = detect(args, paths, args.json, args.out, accepted)
    if not records:
        options.message("the example models are not part of this installation; name a model")
        return EXIT_NOTHING
    if len(records) > 1:
        options.message(summary(records, accepted))
    accepting.complain(accepted, records, is_whole=False)
    return exit_status(records, accepted, args.evidence_only)


def detect(
    args: argparse.Namespace,
    paths: Sequence[Path],
    as_json: bool,
    out: Path | None,
    accepted: "Accepted | None" = None,
) -> "list[Record]":
    """The records of the models; prints each as it is done, and fills NIST's result file.

    Args:
        args: the options of `nist`, `options.add_settings` and `add_limits`, and `examples`.
        paths: model files or folders; none stands for the package's example models.
        as_json: print JSON objects instead of lines of text.
        out: folder for pictures; None takes the scratch folder, if there is one.
        accepted: models that are shown as accepted.
    """
    from jaxtroj.accepted import NONE
    from jaxtroj.cli.progress import Progress, record_format
    from jaxtroj.engine.jobs import START_STEP, Watch
    from jaxtroj.engine.run import answer

    options.keep_compiled()
    nist.take_parameters(args)
    settings = options.settings_from(args)
    entries = _entries(args, paths)
    nist.require_learned(args, entries)
    pictures: Path = (out or args.scratch_dirpath or DEFAULT_OUT) / "triggers"
    records = []
    with Progress() as progress:

        def on_step(model: str, step: str) -> None:
            progress.update(f"{model}: {step}")
            if not progress.is_live and step != START_STEP:
                progress.line(f"{model}: {step}")

        answers = answer(entries, settings, options.limits_from(args), pictures, Watch(on_step))
        for record in answers:
            if args.result_filepath is not None:
                _write_result(args.result_filepath, record.probability)
            progress.result(record_format(as_json)(record, accepted or NONE))
            if args.learned_parameters_dirpath is not None and record.calibrator:
                progress.line(f"{record.model}: judged by {record.calibrator}")
            records.append(record)
    return records


def _entries(args: argparse.Namespace, paths: Sequence[Path]) -> "list[ModelEntry]":
    from jaxtroj.rounds.single import entry_of

    if args.result_filepath is not None and len(paths) != 1:
        raise UsageError(f"--result_filepath takes the answer for one model, got {len(paths)}")
    if not paths:
        return [replace(entry_of(path), model_id=path.name) for path in _shipped_models()]
    code = options.code_from(args)
    return [replace(nist.with_flags(entry_of(path), args), code=code) for path in paths]


def _shipped_models() -> list[Path]:
    """Folders of the example models in the package: `clean` and `poisoned`."""
    import jaxtroj

    folder = Path(jaxtroj.__file__).parent / "data" / "examples"
    return sorted(path for path in folder.glob("*") if path.is_dir())


def _value(arguments: Sequence[str], flag: str) -> str | None:
    """The value of the last `--flag value` or `--flag=value`."""
    found = None
    for word, following in zip(arguments, [*arguments[1:], None], strict=True):
        if word == flag:
            found = following
        elif word.startswith(flag + "="):
            found = word.removeprefix(flag + "=")
    return found


def _write_result(path: Path, probability: float) -> None:
    from converters.files import write_atomic

    data = f"{probability}\n".encode()
    try:
        write_atomic(path, data)
    except OSError as error:
        if error.errno not in _NOT_REPLACED or not _is_written_over(path, data):
            raise UsageError(f"cannot write the result file {path}: {error.strerror}") from error
        options.message(f"{path} cannot be replaced ({error.strerror}): it was written in place")


def _is_written_over(path: Path, data: bytes) -> bool:
    """Whether the result could be written in place, into the file that is there.

    Half a file may be seen for a moment, which is worse than a whole one and better than none.
    """
    from converters.files import write_over

    try:
        write_over(path, data)
    except OSError:
        return False
    return True
