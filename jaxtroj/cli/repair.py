"""`jaxtroj repair`: a poisoned image classifier with its trigger unlearnt, as far as that goes.

Scans the model for triggers, teaches it for a few steps to answer pictures with them as it answers
the clean ones, gathers the statistics of its batch norms anew, scans the result, does the same with
triggers that still work, and measures on examples that were held out. Beside it stand two baselines
on the same examples: fine-pruning, and plain fine-tuning. Nobody calls a repaired network clean:
all records are kept.
"""

import argparse
import json
import os
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from converters.files import write_atomic
from jaxtroj.cli import argument_types as types
from jaxtroj.cli import options, outputs
from jaxtroj.cli.main import COMMANDS, EXIT_CLEAN, EXIT_FAILED
from jaxtroj.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from jaxtroj.record import Record
    from jaxtroj.repair.mend import Mended, Patient
    from jaxtroj.repair.outcome import Outcome
    from jaxtroj.repair.rounds import Course
    from jaxtroj.rounds import ModelEntry

REPORT = "repair.json"
MODELS = ("model.onnx", "model.safetensors")
"""Names of the repaired file."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Declare the command and its options."""
    parser = subparsers.add_parser(
        "repair", help=COMMANDS["repair"], description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "model", type=types.path_of, metavar="MODEL", help="model file or its folder"
    )
    options.add_path(
        parser,
        "--examples",
        "PATH",
        "clean pictures named by their classes, 20 of each class or more, or an .npz archive with"
        " pictures x and labels y (default: example_data beside the model); half of each class is"
        " held out",
    )
    options.add_path(
        parser, "--out", "DIR", "folder for the repaired file and its report", required=True
    )
    parser.add_argument(
        "--steps",
        type=types.count,
        default=80,
        metavar="N",
        help="of a cycle of training, of which there are up to 4; default: 80",
    )
    parser.add_argument(
        "--rounds",
        type=types.count,
        default=2,
        metavar="N",
        help="at most: the repaired network is scanned, and triggers that work on it are unlearnt"
        " too; default: 2",
    )
    options.add_network(parser)
    options.add_limits(parser)
    options.add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Repair in a guarded process; the exit status is 2 where the repair did not converge.

    Raises:
        LimitError: the file took too much time or memory.
    """
    return options.guarded(args, _repair, f"the process that repairs {args.model}")


def _repair(args: argparse.Namespace) -> int:
    """Search, repair, write, scan again.

    Raises:
        ScanError, ConverterError, ExamplesError, RepairError: the model cannot be repaired.
        UsageError: DIR cannot be written, or holds another model.
    """
    inputs = (args.model, args.examples, args.calibrator, args.reference)
    outputs.keep_inputs((args.out / name for name in (REPORT, *MODELS)), inputs)
    if outputs.is_same(args.out, args.model):
        raise UsageError(
            f"--out {args.out} is the folder of the model, which would hold two models then; name"
            " another folder"
        )
    outputs.check_folder(args.out)
    options.keep_compiled()
    from jaxtroj.repair.mend import examined
    from jaxtroj.repair.rounds import in_rounds
    from jaxtroj.repair.training import Tuning
    from jaxtroj.rounds.single import entry_of

    settings, entry = options.settings_from(args), entry_of(args.model)
    entry = replace(entry, code=options.code_from(args))
    if args.examples is not None:
        entry = replace(entry, examples_path=args.examples)
    path, report = _path_in(args.out, entry), args.out / REPORT
    patient = examined(entry, settings, _say)
    options.message(f"{len(patient.attacks)} recovered triggers, {patient.data.in_words}")
    tuning, say = Tuning(steps=args.steps), options.message
    try:
        course = in_rounds(patient, entry, settings, path, report, tuning, args.rounds, say)
        write_atomic(report, _report(patient, course))
    except OSError as error:
        raise UsageError(f"cannot write in {args.out}: {error.strerror or error}") from error
    return _told(course, path)


def _path_in(folder: "Path", entry: "ModelEntry") -> "Path":
    """Where the repaired file goes.

    Raises UsageError where the folder holds a model of the other format.
    """
    from converters.rewriting import suffix_of

    name = f"model{suffix_of(entry.model_path, entry.code)}"
    others = [one for one in MODELS if one != name and os.path.lexists(folder / one)]
    if others:
        raise UsageError(
            f"{folder} holds {others[0]}, and {name} would be a second model there; name another"
            " folder, or remove that file"
        )
    return folder / name


def _told(course: "Course", path: "Path") -> int:
    """Print the table of methods and what the last scan says; the exit status."""
    found, again = course.mended, course.records[-1]
    for name, outcome in {"before": found.before, **found.after}.items():
        print(_line(name, outcome))
    if again.status != "ok":
        options.message(_not_scanned(again, path))
        return EXIT_FAILED
    odds = " -> ".join(f"{record.probability:.3f}" for record in course.records)
    print(f"{again.model}: P(poisoned) {odds}")
    options.message(f"what the last scan says: {again.reason}")
    if course.left:
        options.message(_left(course.left))
    if found.converged:
        return EXIT_CLEAN
    options.message(_not_converged(found))
    return EXIT_FAILED


def _say(model: str, step: str) -> None:
    options.message(f"{model}: {step}")


def _line(name: str, outcome: "Outcome") -> str:
    """Such as `unlearning   clean accuracy 0.970  recovered triggers work on at most 0.011`."""
    return (
        f"{name:12} clean accuracy {outcome.accuracy:.3f}  recovered triggers work on at most"
        f" {outcome.worst:.3f}"
    )


def _left(count: int) -> str:
    return (
        f"recovered by the last scan, working, and not unlearnt: {count} (a clean network may have"
        " such triggers too; see docs/repair.md)"
    )


def _not_converged(found: "Mended") -> str:
    from jaxtroj.repair.mend import GOAL, MOST_LOST, UNLEARNT

    before, done = found.before, found.after[UNLEARNT]
    if not found.had_a_trigger:
        weak = (
            f" that works on more than {GOAL} of the held-out examples (the strongest does on"
            f" {before.worst:.3f})"
        )
        return (
            f"no trigger{weak if before.recovered else ''} was recovered, so nothing was unlearnt;"
            " search with more --stages, or give more examples of each class. The file is written"
            " all the same"
        )
    return (
        f"the repair did not converge: recovered triggers work on {done.worst:.3f} of the held-out"
        f" examples (expected at most {GOAL}), clean accuracy went from {before.accuracy:.3f} to"
        f" {done.accuracy:.3f} (at most {MOST_LOST} may go); give more examples of each class or"
        " more --steps. The file is written all the same"
    )


def _not_scanned(again: "Record", path: "Path") -> str:
    """Weights alone, of a network that is no family's, need its code to be scanned."""
    said = f"the repaired file is written, and could not be scanned ({again.reason})"
    if path.suffix == ".onnx":
        return (
            f"{said}, though the original could: do not use {path} unless `jaxtroj detect` opens"
            " it. The figures above were measured on its weights before they were written"
        )
    return (
        f"{said}. Fill your network with its weights and scan that; the figures above were measured"
        " on them"
    )


def _report(patient: "Patient", course: "Course") -> bytes:
    """The contents of `repair.json`."""
    found = course.mended
    report = {
        "schema": 2,
        "before": asdict(found.before),
        "after": {name: asdict(outcome) for name, outcome in found.after.items()},
        "converged": found.converged,
        "learn": len(patient.data.learn),
        "held": len(patient.data.held),
        "triggers": course.triggers,
        "left": course.left,
        "records": [json.loads(record.to_json()) for record in course.records],
    }
    return json.dumps(report, indent=1).encode() + b"\n"
