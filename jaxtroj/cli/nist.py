"""The flags of TrojAI's containers, of every round, for `detect`, `infer` and `configure`.

Rounds 0-4 (fake_trojan_detector.py), 5-8 (the same and the text files), 9 on (parameters), and the
newest entrypoint's sub-commands (usnistgov/trojai-example). Every flag is a superset's: what one
round does not know another needs, and none is refused.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from converters.files import what_is
from jaxtroj.cli import argument_types as types
from jaxtroj.cli import options
from jaxtroj.errors import CalibrationError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jaxtroj.leaderboard.metaparameters import Metaparameters
    from jaxtroj.rounds import ModelEntry

_NOT_NEEDED = (
    "--features_filepath",
    "--round_training_dataset_dirpath",
    "--source_dataset_dirpath",
    "--scale_parameters_filepath",
)

# Metaparameters that change evidence, and options that do which `configure` does not have.
_OF_EVIDENCE = ("seed", "channel_order", "normalization", "examples_per_class")
_ALSO_OF_EVIDENCE = ("bounds", "mean", "std", "resize", "image_size", "class_counts", "layout")
_ALSO_OF_EVIDENCE += ("output", "public_code", "reference", "encoder", "tokenizer")

# What --examples may lead to besides, or how it looks, by what the network takes.
_EXAMPLES = {
    "image": ", or an .npz archive of pictures; files of texts go with the Hugging Face folder of a"
    " text classifier",
    "text": " (class_0_example_1.txt and so on)",
    "text-classifier": " (class_0_example_1.txt and so on), or a .csv or .jsonl file of texts",
}


def add_model_flags(group: argparse._ArgumentGroup) -> None:
    """What a container gets for one model, except `--examples_dirpath`."""
    group.add_argument("--model_filepath", type=types.path_of, metavar="FILE")
    options.add_path(group, "--result_filepath", "FILE", "gets one float")
    options.add_path(group, "--tokenizer_filepath", "FILE", "text models: the tokenizer")
    options.add_path(group, "--embedding_filepath", "FILE", "text models: the encoder")
    options.add_flag(
        group,
        "--cls_token_is_first",
        "text models: the sentence embedding is that of the first token; without the flag that of"
        " the last, unless config.json says another",
    )
    for flag in _NOT_NEEDED:
        group.add_argument(flag, metavar="PATH", help="accepted; not needed")
    options.add_flag(group, "--configure_mode", "Round 9's `configure`")


def add_parameter_flags(group: argparse._ArgumentGroup) -> None:
    """What a container gets besides the model."""
    options.add_path(group, "--scratch_dirpath", "DIR", "pictures of triggers go there")
    group.add_argument("--metaparameters_filepath", type=types.path_of, metavar="FILE")
    options.add_path(group, "--schema_filepath", "FILE", "JSON schema of the metaparameters")
    options.add_path(
        group,
        "--learned_parameters_dirpath",
        "DIR",
        "holds calibrator.json, or text_calibrator.json for sentiment heads, as `configure` writes;"
        " an empty folder stands for the shipped calibrators",
    )
    options.add_path(group, "--configure_models_dirpath", "DIR", "labelled models")
    options.add_flag(
        group,
        "--automatic_configuration",
        "keep only the evidence stages that improve the out-of-fold log score",
    )


def require(args: argparse.Namespace, *names: str) -> None:
    """Raises UsageError that names every flag that is missing."""
    absent = [f"--{name}" for name in names if getattr(args, name) is None]
    if absent:
        raise UsageError(f"missing {', '.join(absent)}")


def metaparameters(args: argparse.Namespace) -> "Metaparameters | None":
    """The metaparameters that the flags name, checked; None without them."""
    from jaxtroj.leaderboard.metaparameters import read_metaparameters

    path: Path | None = args.metaparameters_filepath
    schema_path: Path | None = args.schema_filepath
    if path is None and schema_path is None:
        return None
    if path is None or schema_path is None:
        raise UsageError("--metaparameters_filepath and --schema_filepath need each other")
    return read_metaparameters(path, schema_path)


def take_parameters(args: argparse.Namespace) -> None:
    """Fill the options of `options.add_settings` from metaparameters and learned parameters.

    An option given on the command line stands.

    Raises:
        UsageError: the parameters cannot be used, or name the calibrator twice.
    """
    from jaxtroj.leaderboard.metaparameters import learned_calibrators

    found = metaparameters(args)
    if found is not None:
        for name in ("base_rate", "seed", "channel_order", "normalization", "examples_per_class"):
            if getattr(args, name) is None:
                setattr(args, name, found.said(name))
        args.no_early_stop = args.no_early_stop or not found.early_stop
    if args.learned_parameters_dirpath is not None:
        if args.calibrator is not None:
            raise UsageError("give --calibrator or --learned_parameters_dirpath, not both")
        if not args.evidence_only:
            found_there = learned_calibrators(args.learned_parameters_dirpath)
            args.calibrator, args.text_calibrator = found_there
            _say_whose(args)
    if found is not None and args.stages is None:
        args.stages = _stages(found, args)


def _say_whose(args: argparse.Namespace) -> None:
    """Say so where nothing is learned, or where evidence is gathered otherwise than for it."""
    if args.text_calibrator is not None:
        _compare_with_learned(args)
        return
    asked = f"that of --population {args.population}" if args.population else "those for its round"
    options.message(
        f"nothing is learned in {args.learned_parameters_dirpath}: the shipped calibrators answer,"
        f" {asked} and kind; `jaxtroj configure` learns others"
    )


def _stages(found: "Metaparameters", args: argparse.Namespace) -> str | None:
    """The stages to run as --stages has them; None for those of the calibrator.

    Of shipped ones each has its own, and is asked for all of them unless a last one is named.
    """
    from jaxtroj.leaderboard.metaparameters import Metaparameters

    is_shipped = args.calibrator is None and not args.evidence_only
    is_cut = found.last_stage != Metaparameters().last_stage
    return None if is_shipped and not is_cut else ",".join(found.stages)


def require_learned(args: argparse.Namespace, entries: "Iterable[ModelEntry]") -> None:
    """Check that the learned parameters have a calibrator for these models.

    Args:
        args: after `take_parameters`.
        entries: the models.

    Raises:
        UsageError: only sentiment heads have a learned one, and a model is none.
    """
    from jaxtroj.leaderboard.metaparameters import CALIBRATOR_FILE, TEXT_CALIBRATOR_FILE

    folder = args.learned_parameters_dirpath
    if folder is None or args.evidence_only or args.calibrator is not None:
        return
    if args.text_calibrator is None:  # nothing is learned, and the shipped ones are for all
        return
    other = next((entry for entry in entries if entry.kind != "text"), None)
    if other is not None:
        raise UsageError(
            f"no {CALIBRATOR_FILE} in the learned parameters folder {folder}, and"
            f" {TEXT_CALIBRATOR_FILE} is for sentiment heads alone; {other.model_path} is none:"
            " `jaxtroj configure` on models of its kind writes one"
        )


def _compare_with_learned(args: argparse.Namespace) -> None:
    """Say so where evidence is gathered otherwise than for the calibrator.

    Args:
        args: with all that metaparameters say already taken: what the scan goes by.
    """
    from jaxtroj.leaderboard import metaparameters as files

    learned = args.learned_parameters_dirpath / files.METAPARAMETERS_FILE
    if not learned.is_file():
        return
    then = files.read_metaparameters(learned, None)
    now = {name: getattr(args, name) for name in _OF_EVIDENCE}
    now["seed"] = now["seed"] or 0
    differ = [
        f"{name} was {_said(then.said(name))}, now {_said(value)}"
        for name, value in now.items()
        if then.said(name) != value
    ]
    differ += [
        f"{name} was not given, now {_said(getattr(args, name))}"
        for name in _ALSO_OF_EVIDENCE
        if getattr(args, name) is not None
    ]
    own = args.text_calibrator if args.text_calibrator != args.calibrator else None
    if args.bank is not None and own is not None and _is_fitted_without_bank(own):
        differ.append(f"bank was not given, now {_said(args.bank)}, and is of no use to it")
    if differ:
        options.message(
            f"the calibrator was fitted on evidence gathered otherwise: {'; '.join(differ)}"
        )


def _is_fitted_without_bank(text_calibrator: Path) -> bool:
    """Whether it judges heads by no stage that needs a bank; False where it cannot be read."""
    from jaxtroj.calibration import Calibrator
    from jaxtroj.evidence.stages import TEXT_STAGES

    try:
        judged = Calibrator.load(text_calibrator).stages
    except CalibrationError:  # the scan meets the same, and says so
        return False
    return not any(stage.needs.bank for stage in TEXT_STAGES if stage.name in judged)


def _said(value: object) -> str:
    """A value of an option; one that nobody gave is chosen by the model's round or examples."""
    return "not given" if value is None else repr(str(value) if isinstance(value, Path) else value)


def with_flags(entry: "ModelEntry", args: argparse.Namespace) -> "ModelEntry":
    """The entry with the examples and text files that the flags name.

    The evaluation server calls the examples' folder `example_data` where the released set has
    `clean_example_data`: if the one that is named is absent, the one beside the model is taken, and
    a message says so.

    Raises:
        UsageError: the examples named are neither a folder nor a file of them, and no result file
            is owed.
    """
    from converters.hub.folder import is_unreadable
    from jaxtroj.rounds.layout import with_own_files

    entry = replace(entry, by_nist=args.model_filepath is not None)
    beside = entry.examples_path
    if args.examples is not None:
        kind = what_is(args.examples)
        usable = _holds_examples(args.examples, kind, entry.kind)
        # Where nobody knows what it takes, the scan says why.
        is_open = kind == "a file" and is_unreadable(entry.model_path)
        if args.result_filepath is None and not usable and not is_open:
            raise UsageError(
                f"--examples {args.examples} is {kind}; expected a folder of clean examples"
                f"{_EXAMPLES[entry.kind]}"
            )
        if args.result_filepath is not None and beside and kind == "absent":
            options.message(f"no folder {args.examples}; taking {beside}")
        else:
            entry = replace(entry, examples_path=args.examples)
    entry = with_own_files(entry)
    if entry.kind != "text":
        return entry
    entry = replace(
        entry,
        encoder_path=args.embedding_filepath or entry.encoder_path,
        tokenizer_path=args.tokenizer_filepath or entry.tokenizer_path,
    )
    return _with_pooling(entry, args)


def _with_pooling(entry: "ModelEntry", args: argparse.Namespace) -> "ModelEntry":
    """A head with the token that the flags say; beside an encoder, NIST's flag says it by its
    absence too, which counts where config.json says nothing."""
    from jaxtroj.rounds.text_config import TextConfig

    config = entry.text_config or TextConfig()
    if args.cls_token_is_first:
        return replace(entry, text_config=replace(config, cls_token_is_first=True))
    if args.embedding_filepath is None or config.pooling is not None:
        return entry
    options.message(
        "without --cls_token_is_first the sentence embedding is that of the last token; no"
        " config.json says another"
    )
    return replace(entry, text_config=replace(config, cls_token_is_first=False))


def _holds_examples(path: Path, kind: str, network: str) -> bool:
    """Whether a path may lead to examples, by what it is and what the network takes."""
    from jaxtroj.rounds.npz_file import is_zip

    if kind != "a file":
        return kind == "a folder"
    return network == "text-classifier" or (network == "image" and is_zip(path))
