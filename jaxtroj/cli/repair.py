"""`jaxtroj repair`: a poisoned image classifier with its trigger unlearnt, as far as that goes.

Scans the model for triggers, teaches it pictures with them and their true labels for a few steps,
gathers the statistics of its batch norms anew, and measures on examples that were held out. Beside
it stand two baselines on the same examples: fine-pruning, and plain fine-tuning. Nobody calls a
repaired network clean: it is scanned again, and both records are kept.
"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtroj.cli import options
from jaxtroj.cli.main import COMMANDS, EXIT_CLEAN, EXIT_FAILED
from jaxtroj.errors import UsageError

if TYPE_CHECKING:
    from jaxtroj.record import Record
    from jaxtroj.repair.mend import Mended, Patient
    from jaxtroj.repair.outcome import Outcome
    from jaxtroj.settings import Settings

REPORT = "repair.json"


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Declare the command and its options."""
    parser = subparsers.add_parser(
        "repair", help=COMMANDS["repair"], description=__doc__, allow_abbrev=False
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="model file or its folder")
    options.add_path(
        parser,
        "--examples",
        "DIR",
        "clean pictures named by their classes, 20 of each class or more (default: example_data"
        " beside the model); half of each class is held out",
    )
    options.add_path(
        parser, "--out", "DIR", "folder for the repaired file and its report", required=True
    )
    parser.add_argument(
        "--steps",
        type=options.count,
        default=80,
        metavar="N",
        help="of a cycle of training, of which there are up to 4; default: 80",
    )
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
        ScanError, ConverterError, ExamplesError: the model cannot be repaired.
        UsageError: DIR cannot be written.
    """
    options.keep_compiled()
    from dataclasses import replace

    from jaxtroj.repair.mend import examined, mended
    from jaxtroj.repair.training import Tuning
    from jaxtroj.rounds.single import entry_of

    settings, entry = options.settings_from(args), entry_of(args.model)
    if args.examples is not None:
        entry = replace(entry, examples_path=args.examples)
    patient = examined(entry, settings, _say)
    options.message(f"{len(patient.attacks)} recovered triggers, {patient.data.in_words}")
    tuning = Tuning(steps=args.steps)
    found = mended(patient, how=tuning, seed=settings.seed, say=options.message)
    for name, outcome in {"before": found.before, **found.after}.items():
        print(_line(name, outcome))
    again = _written(args.out, entry, settings, patient, found)
    print(f"{again.model}: P(poisoned) {patient.record.probability:.3f} -> {again.probability:.3f}")
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


def _not_converged(found: "Mended") -> str:
    from jaxtroj.repair.mend import GOAL, MOST_LOST, UNLEARNT

    done = found.after[UNLEARNT]
    return (
        f"the repair did not converge: recovered triggers work on {done.worst:.2f} of the held-out"
        f" examples (expected at most {GOAL}), clean accuracy went from"
        f" {found.before.accuracy:.2f} to {done.accuracy:.2f} (at most {MOST_LOST} may go); give"
        " more examples of each class or more --steps. The file is written all the same"
    )


def _written(
    out: Path, entry: Any, settings: "Settings", patient: "Patient", found: "Mended"
) -> "Record":
    """Write the repaired file, scan it, write the report; the record of the second scan."""
    from dataclasses import asdict, replace

    import numpy as np

    from converters.files import write_atomic
    from jaxtroj.repair.mend import UNLEARNT
    from jaxtroj.scan import scan_model

    path = out / f"model{patient.file.suffix}"
    params = {name: np.asarray(v) for name, v in found.models[UNLEARNT].params.items()}
    try:
        write_atomic(path, patient.file.contents(params))
        options.message(f"the repaired network is {path}; scanning it")
        again = scan_model(replace(entry, model_id=path.name, model_path=path), settings)
        report = {
            "schema": 1,
            "before": asdict(found.before),
            "after": {name: asdict(outcome) for name, outcome in found.after.items()},
            "converged": found.converged,
            "learn": len(patient.data.learn),
            "held": len(patient.data.held),
            "records": [json.loads(r.to_json()) for r in (patient.record, again)],
        }
        write_atomic(out / REPORT, json.dumps(report, indent=1).encode() + b"\n")
    except OSError as error:
        raise UsageError(f"cannot write in {out}: {error.strerror or error}") from error
    return again
