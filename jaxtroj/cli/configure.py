"""`jaxtroj configure`: learned parameters for `infer`, from a folder of labelled models.

Scans every labelled model in a guarded process (the run folder in the scratch folder can be
resumed), fits a calibrator on their evidence, and writes calibrator.json (for sentiment heads
text_calibrator.json) and the metaparameters used into the learned parameters folder.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtroj.cli import fitting, nist, options, outputs
from jaxtroj.cli.main import COMMANDS, EXIT_CLEAN
from jaxtroj.errors import UsageError

if TYPE_CHECKING:
    from jaxtroj.calibration import Calibrator, Scheme
    from jaxtroj.cli.fitting import Pair
    from jaxtroj.leaderboard.metaparameters import Metaparameters
    from jaxtroj.record import Record
    from jaxtroj.rounds import ModelEntry
    from jaxtroj.settings import Settings

_READ = ("timeout", "memory", "bank")

_NO_BANK = (
    "fitted without a probe bank: the heads were not compared with clean ones, which most of their"
    " evidence is; `jaxtroj bank` makes one for --bank, and `infer` needs the same"
)

KEPT = options.GOES_ON
"""What is said of an interrupt."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Declare the command and its options."""
    parser = subparsers.add_parser(
        "configure", help=COMMANDS["configure"], description=__doc__, allow_abbrev=False
    )
    group = parser.add_argument_group("NIST's flags")
    nist.add_parameter_flags(group)
    group.add_argument("--scale_parameters_filepath", metavar="PATH", help="accepted; not needed")
    options.add_bank(parser)
    options.add_limits(parser)
    remember_options(parser)


def remember_options(parser: argparse.ArgumentParser) -> None:
    """Note the options that --configure_mode would ignore; call once all are declared.

    NIST's flags, which have underscores, are taken as ever: what one round does not know another
    needs.
    """
    unread = [
        (one.option_strings[0] if one.option_strings else str(one.metavar), one.dest, one.default)
        for one in parser._actions
        if one.dest not in _READ and not any("_" in flag for flag in one.option_strings)
    ]
    parser.set_defaults(unread_by_configure=tuple(unread))


def run(args: argparse.Namespace) -> int:
    """Scan, fit and write; returns the exit status.

    Args:
        args: the command's, or with --configure_mode those of `infer` or `detect`.

    Raises:
        UsageError: an option that `infer` and `detect` read and this does not, or no model with
            evidence and a label, or a file with two labels.
        CalibrationError: too few models with evidence, or the file cannot be written.
            Where labels alone are too few it is a UsageError, before any model is scanned.
    """
    from jaxtroj.leaderboard.metaparameters import Metaparameters, calibrator_file
    from jaxtroj.schemas import kind_of

    nist.require(args, "configure_models_dirpath", "scratch_dirpath", "learned_parameters_dirpath")
    _refuse_unread(args)
    options.check_bank(args.bank)
    _keep_inputs(args)
    options.keep_compiled()
    parameters = nist.metaparameters(args) or Metaparameters()
    entries = _labelled(args)
    _make_folder(args.learned_parameters_dirpath)
    _check_enough(entries)
    records = _scan(entries, _settings(parameters, args.bank), args)
    pairs = _with_evidence(records, entries)
    kind = kind_of(record for record, _ in pairs)
    if kind == "text" and args.bank is None:
        options.message(_NO_BANK)
    calibrator = _fit(pairs, kind, parameters, args.automatic_configuration)
    calibrator.save(args.learned_parameters_dirpath / calibrator_file(kind))
    _save(parameters, args)
    for stage, report in calibrator.reports.items():
        print(f"up to {stage}: out-of-fold log score {report.score.log_score:.4f}")
    print(f"learned parameters are in {args.learned_parameters_dirpath}")
    return EXIT_CLEAN


def _refuse_unread(args: argparse.Namespace) -> None:
    """What changes evidence or answers comes from the metaparameters alone."""
    declared = args.unread_by_configure
    unread = [
        flag
        for flag, name, default in declared
        if getattr(args, name, default) not in (default, [])  # no MODEL is an empty list
    ]
    if unread:
        raise UsageError(
            f"{', '.join(unread)}: --configure_mode takes what changes answers from the"
            " metaparameters, and reads no option but NIST's, --bank and the limits; leave the"
            " option out, or name it in --metaparameters_filepath"
        )


def _keep_inputs(args: argparse.Namespace) -> None:
    """The metaparameters alone may lie where they are written: they stay the same."""
    from jaxtroj.leaderboard.metaparameters import CALIBRATOR_FILES, METAPARAMETERS_FILE

    flag, folder = "--learned_parameters_dirpath", args.learned_parameters_dirpath
    schema = args.schema_filepath
    written = [folder / name for name in CALIBRATOR_FILES]
    outputs.keep_inputs(written, (schema, args.metaparameters_filepath), flag)
    outputs.keep_inputs(folder / METAPARAMETERS_FILE, [schema], flag)


def _make_folder(folder: Path) -> None:
    """Before hours of scanning: they would be for nothing if this cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror or error}") from error


def _labelled(args: argparse.Namespace) -> "list[ModelEntry]":
    from jaxtroj.rounds import iter_models

    found = [e for e in iter_models(args.configure_models_dirpath) if e.skip_reason is None]
    labelled = [entry for entry in found if entry.poisoned is not None]
    if not labelled:
        raise UsageError(f"no model in {args.configure_models_dirpath} has a label")
    if len(labelled) < len(found):
        options.message(f"{len(found) - len(labelled)} models have no label and are left out")
    return labelled


def _check_enough(labelled: "Sequence[ModelEntry]") -> None:
    """Before hours of scanning: labels alone tell that no fit can follow."""
    import numpy as np

    from jaxtroj.calibration.training import MIN_MODELS, MIN_OF_A_KIND, is_enough

    poisoned = np.array([bool(entry.poisoned) for entry in labelled])
    if not is_enough(poisoned):
        raise UsageError(
            f"too little to calibrate on: {poisoned.sum()} poisoned and {(~poisoned).sum()} clean"
            f" models have a label; expected at least {MIN_MODELS} models, {MIN_OF_A_KIND} of each"
            " kind: label more; nothing was scanned"
        )


def _settings(parameters: "Metaparameters", bank: Path | None = None) -> "Settings":
    from jaxtroj.settings import Settings

    return Settings(
        stages=parameters.stages,
        early_stop=False,
        seed=parameters.seed,
        calibrator=None,
        text_calibrator=None,
        classifier_calibrator=None,
        bank=bank,
        recover_words=False,
        base_rate=parameters.base_rate,
        channel_order=parameters.said("channel_order"),
        normalization=parameters.said("normalization"),
        examples_per_class=parameters.examples_per_class,
    )


def _scan(
    entries: "Sequence[ModelEntry]", settings: "Settings", args: argparse.Namespace
) -> "list[Record]":
    from jaxtroj.cli.progress import Progress
    from jaxtroj.engine.local import local_engine
    from jaxtroj.engine.run import run_scan
    from jaxtroj.store import RunStore

    records: list[Record] = []
    run_folder = args.scratch_dirpath / "configure"
    remedy = f"name another --scratch_dirpath, or remove {run_folder}"
    with RunStore(run_folder, settings.as_json(), remedy=remedy) as store, Progress() as progress:
        memory = options.memory_from(args)
        engine = local_engine(settings, store, timeout=args.timeout, memory=memory)
        for outcome in run_scan(entries, settings, store, engine):
            record = outcome.record
            records.append(record)
            progress.line(f"[{len(records)}/{len(entries)}] {record.model} {record.status}")
    return records


def _with_evidence(records: "Sequence[Record]", entries: "Sequence[ModelEntry]") -> "list[Pair]":
    """The records that can be fitted on, one of each file, with their labels."""
    from jaxtroj.record import printable

    truth = {printable(entry.model_id): bool(entry.poisoned) for entry in entries}
    pairs = [pair for pair in fitting.matched(records, truth) if pair[0].whole_evidence]
    if len(pairs) < len(records):
        options.message(f"{len(records) - len(pairs)} models gave no evidence and are left out")
    if not pairs:
        raise UsageError(f"no model gave evidence; the first failed with: {records[0].reason}")
    return fitting.without_copies(pairs)


def _fit(
    pairs: "Sequence[Pair]", kind: str, parameters: "Metaparameters", automatic: bool
) -> "Calibrator":
    from jaxtroj.calibration import Calibrator, Labelled, Origin, scores_of_cuts
    from jaxtroj.evidence.stages import TABLES
    from jaxtroj.schemas import scheme_of

    gathered = [record for record, _ in pairs]
    scheme = scheme_of(gathered)
    labelled = Labelled(
        [record.whole_evidence for record in gathered],
        [label for _, label in pairs],
        [record.architecture for record in gathered],
    )
    population = f"{len(pairs)} models given to `jaxtroj configure`"
    origin = Origin(parameters.seed, population, evidence=TABLES[kind].measured)

    def chosen(stages: Sequence[str]) -> "Scheme":
        return replace(scheme, stages={stage: scheme.stages[stage] for stage in stages})

    stages = _stages(scheme, kind, parameters)
    if automatic:
        scores = scores_of_cuts(labelled, chosen(stages), origin.seed)
        best = min(scores, key=scores.__getitem__)
        options.message(
            f"evidence up to {best} has the best out-of-fold log score of all {len(pairs)} models,"
            f" {scores[best]:.4f}"
        )
        stages = stages[: stages.index(best) + 1]
    calibrator = Calibrator.fit(labelled, chosen(stages), origin)
    fitting.say_judged_early(labelled, chosen(stages))
    fitting.say_unfitted(labelled, chosen(stages), calibrator.unfitted)
    return calibrator


def _stages(scheme: "Scheme", kind: str, parameters: "Metaparameters") -> tuple[str, ...]:
    """Those to fit: what the metaparameters name and some model has evidence of.

    The metaparameters name stages of images; text models run all of theirs.
    """
    if kind != "image":
        return tuple(scheme.stages)
    absent = [stage for stage in parameters.stages if stage not in scheme.stages]
    if absent:
        options.message(
            f"no model has evidence of the stages {', '.join(absent)}: the calibrator is fitted"
            " without them"
        )
    return tuple(stage for stage in parameters.stages if stage in scheme.stages)


def _save(parameters: "Metaparameters", args: argparse.Namespace) -> None:
    """Keep what the evidence was gathered with beside the calibrator."""
    from converters.files import write_atomic
    from jaxtroj.leaderboard.metaparameters import METAPARAMETERS_FILE

    path = args.learned_parameters_dirpath / METAPARAMETERS_FILE
    try:
        write_atomic(path, json.dumps(asdict(parameters), indent=2).encode() + b"\n")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
