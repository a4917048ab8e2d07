"""`jaxtroj detect`: the probability that given models are poisoned.

Takes NIST's own flags too (usnistgov/trojai-example), and then leaves one float in the result
file whatever happens: the base rate is written before anything else, the answer replaces it.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtroj.cli import options
from jaxtroj.cli.main import COMMANDS, EXIT_NOTHING
from jaxtroj.errors import DatasetError, UsageError

if TYPE_CHECKING:
    from jaxtroj.record import Record
    from jaxtroj.rounds import ModelEntry
    from jaxtroj.settings import Settings

DEFAULT_OUT = Path("jaxtroj-out")
_IGNORED_NIST_FLAGS = (
    "--scratch_dirpath",
    "--round_training_dataset_dirpath",
    "--source_dataset_dirpath",
    "--metaparameters_filepath",
    "--schema_filepath",
    "--learned_parameters_dirpath",
    "--features_filepath",
    "--tokenizer_filepath",
    "--embedding_filepath",
)


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Declare the command and its options."""
    parser = subparsers.add_parser(
        "detect", help=COMMANDS["detect"], description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "models",
        nargs="*",
        type=Path,
        metavar="MODEL",
        help="model file, or folder id-XXXXXXXX with model.pt and example_data/",
    )
    parser.add_argument(
        "--examples",
        "--examples_dirpath",
        type=Path,
        metavar="DIR",
        help="folder of clean example pictures (default: example_data beside the model)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per model on stdout")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help=f"folder for pictures of recovered triggers (default: {DEFAULT_OUT})",
    )
    options.add_settings(parser)
    group = parser.add_argument_group("NIST's flags (one model)")
    group.add_argument("--model_filepath", type=Path, metavar="FILE")
    group.add_argument("--result_filepath", type=Path, metavar="FILE", help="gets one float")
    for flag in _IGNORED_NIST_FLAGS:
        group.add_argument(flag, metavar="PATH", help="accepted; not needed")
    group.add_argument("--cls_token_is_first", action="store_true", help="accepted; not needed")


def before_parsing(arguments: Sequence[str]) -> None:
    """Put the base rate into NIST's result file, before even a usage error can end the run.

    Raises:
        UsageError: the result file cannot be written.
    """
    result = _value(arguments, "--result_filepath")
    if result is None:
        return
    try:
        rate = options.open_unit(_value(arguments, "--base-rate") or "0.5")
    except argparse.ArgumentTypeError:  # the parser says so in a moment
        rate = 0.5
    _write_result(Path(result), rate)


def run(args: argparse.Namespace) -> int:
    """Scan the models, print one line or JSON object for each; returns the exit status."""
    from jaxtroj.cli.progress import Progress
    from jaxtroj.report import json_line, summary, text_line

    options.keep_compiled()
    settings = options.settings_from(args)
    entries = _entries(args)
    if not entries:
        options.message("the example models are not part of this installation; name a model")
        return EXIT_NOTHING
    records = []
    with Progress() as progress:
        for entry in entries:
            record = _scan(entry, settings, args, progress)
            progress.result(json_line(record) if args.json else text_line(record))
            records.append(record)
    if len(records) > 1:
        options.message(summary(records))
    return options.exit_status(records)


def _scan(
    entry: "ModelEntry", settings: "Settings", args: argparse.Namespace, progress
) -> "Record":
    from jaxtroj.scan import scan_model
    from jaxtroj.store import file_stem

    def on_step(model: str, step: str) -> None:
        progress.update(f"{model}: {step}")
        if not progress.is_live:
            progress.line(f"{model}: {step}")

    out = args.out or DEFAULT_OUT
    picture = out / "triggers" / f"{file_stem(entry.model_id)}.png"
    record = scan_model(entry, settings, picture, on_step)
    if args.result_filepath is not None:
        _write_result(args.result_filepath, record.probability)
    return record


def _entries(args: argparse.Namespace) -> "list[ModelEntry]":
    paths = list(args.models)
    if args.model_filepath is not None:
        paths.append(args.model_filepath)
    if args.result_filepath is not None and len(paths) != 1:
        raise UsageError(f"--result_filepath takes the answer for one model, got {len(paths)}")
    if not paths:
        return [replace(_entry(path), model_id=path.name) for path in _shipped_models()]
    entries = [_entry(path) for path in paths]
    if args.examples is not None:
        entries = [replace(entry, examples_path=args.examples) for entry in entries]
    return entries


def _shipped_models() -> list[Path]:
    """Folders of the example models in the package: `clean` and `poisoned`."""
    import jaxtroj

    folder = Path(jaxtroj.__file__).parent / "data" / "examples"
    return sorted(path for path in folder.glob("*") if path.is_dir())


def _entry(path: Path) -> "ModelEntry":
    """The model that a path names; what is wrong with the path ends up in the record."""
    from jaxtroj.rounds import ModelEntry, iter_models
    from jaxtroj.rounds.layout import EXAMPLE_FOLDERS

    if not path.is_dir():
        beside = (path.parent / name for name in EXAMPLE_FOLDERS)
        examples = next((folder for folder in beside if folder.is_dir()), None)
        return ModelEntry(str(path), path, examples, None)
    try:
        found = list(iter_models(path, include_errata=True))
    except DatasetError as error:
        return ModelEntry(str(path), path / "model.pt", None, None, problem=str(error))
    if len(found) > 1:
        raise UsageError(f"{path} holds {len(found)} models; use: jaxtroj scan {path} --out RUN")
    return replace(found[0], model_id=str(path))


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

    try:
        write_atomic(path, f"{probability}\n".encode())
    except OSError as error:
        raise UsageError(f"cannot write the result file {path}: {error.strerror}") from error
