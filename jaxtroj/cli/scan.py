"""`jaxtroj scan`: every model of a dataset folder, one record each, resumable."""

import argparse
import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtroj.cli import options
from jaxtroj.cli.main import COMMANDS, EXIT_NOTHING
from jaxtroj.errors import DatasetError, UsageError

if TYPE_CHECKING:
    from jaxtroj.record import Record
    from jaxtroj.rounds import ModelEntry
    from jaxtroj.settings import Settings
    from jaxtroj.store import RunStore


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Declare the command and its options."""
    parser = subparsers.add_parser(
        "scan", help=COMMANDS["scan"], description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "dataset", type=Path, metavar="DIR", help="dataset folder, or folder of model files"
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="RUN",
        help="run folder; if it exists, the scan goes on where it stopped",
    )
    parser.add_argument(
        "--restart", action="store_true", help="set the records in RUN aside and begin anew"
    )
    parser.add_argument("--limit", type=options.count, metavar="N", help="only the first N models")
    parser.add_argument(
        "--include-errata",
        action="store_true",
        help="scan the models that NIST's errata lists tell to leave out, too",
    )
    parser.add_argument(
        "--truth",
        action="store_true",
        help="at the end, score against the labels in DIR (the scan itself never uses them)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per model on stdout")
    options.add_settings(parser)


def run(args: argparse.Namespace) -> int:
    """Scan the folder, print one line for each model; returns the exit status."""
    from jaxtroj.report import summary
    from jaxtroj.settings import load_calibrator
    from jaxtroj.store import RunStore

    options.keep_compiled()
    settings = options.settings_from(args)
    entries = _entries(args)
    if not entries:
        return EXIT_NOTHING
    load_calibrator(settings)  # hours of work would be for nothing if this cannot be read
    with RunStore(args.out, settings.as_json(), restart=args.restart) as store:
        if store.records:
            options.message(f"{args.out} has {len(store.records)} records; going on from there")
        records = _scan(entries, settings, store, args.json)
    options.message(f"{summary(records)}; records in {args.out}")
    if args.truth:
        _score(entries, records)
    return options.exit_status(records)


def _entries(args: argparse.Namespace) -> "list[ModelEntry]":
    from jaxtroj.rounds import iter_models

    if not args.dataset.is_dir():
        raise UsageError(f"{args.dataset} is no folder; for one model use: jaxtroj detect")
    try:
        models = iter_models(args.dataset, include_errata=args.include_errata)
        return list(itertools.islice(models, args.limit))
    except DatasetError as error:
        options.message(f"error: {error}")
        return []


def _scan(
    entries: "list[ModelEntry]", settings: "Settings", store: "RunStore", as_json: bool
) -> "list[Record]":
    from jaxtroj.cli.progress import Progress, remaining
    from jaxtroj.report import json_line, text_line
    from jaxtroj.scan import scan

    records: list[Record] = []
    earlier = {id(record) for record in store.records}
    fresh, started = 0, time.monotonic()
    with Progress() as progress:

        def on_step(model: str, step: str) -> None:
            progress.update(f"[{len(records) + 1}/{len(entries)}] {model}: {step}  {left}")

        left = ""
        for record in scan(entries, settings, store, on_step):
            records.append(record)
            progress.result(json_line(record) if as_json else text_line(record))
            fresh += id(record) not in earlier
            to_do = fresh + len(entries) - len(records)
            left = remaining(fresh, to_do, time.monotonic() - started)
            if not progress.is_live:
                progress.line(f"[{len(records)}/{len(entries)}] {record.model} {left}".rstrip())
    return records


def _score(entries: "list[ModelEntry]", records: "list[Record]") -> None:
    from jaxtroj.cli.evaluate import matched, scores_text
    from jaxtroj.scoring import score

    names = {entry.model_id: entry.poisoned for entry in entries if entry.poisoned is not None}
    pairs = matched(records, names)
    if not pairs:
        options.message("no labels in the dataset folder; nothing to score")
        return
    print(scores_text("all", score([r.probability for r, _ in pairs], [t for _, t in pairs])))
