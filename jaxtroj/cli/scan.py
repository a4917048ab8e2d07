"""`jaxtroj scan`: every model of a dataset folder, one record each, resumable."""

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from converters.files import what_is
from jaxtroj.cli import accepting, options
from jaxtroj.cli import argument_types as types
from jaxtroj.cli.interrupt import Interrupts
from jaxtroj.cli.main import COMMANDS, EXIT_CLEAN, EXIT_INCOMPLETE, EXIT_NOTHING
from jaxtroj.cli.statuses import exit_status
from jaxtroj.cli.streams import OutputError
from jaxtroj.errors import UsageError

if TYPE_CHECKING:
    from jaxtroj.cli.progress import Progress
    from jaxtroj.engine.jobs import Engine, Watch
    from jaxtroj.engine.progress import Tally
    from jaxtroj.engine.run import Outcome
    from jaxtroj.rounds import LeftOut, ModelEntry
    from jaxtroj.settings import Settings
    from jaxtroj.store import RunStore

_LINE_SECONDS = 10.0
_MOST_WORKERS = 2**10
KEPT = "finished records are kept"
"""What is said of an interrupt."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Declare the command and its options."""
    parser = subparsers.add_parser(
        "scan", help=COMMANDS["scan"], description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "dataset",
        type=types.path_of,
        metavar="DATASET",
        help="dataset folder, folder of model files, or CSV manifest (columns path, examples, ...)",
    )
    parser.add_argument(
        "--out",
        type=types.path_of,
        required=True,
        metavar="RUN",
        help="run folder; if it exists, the scan goes on where it stopped",
    )
    parser.add_argument(
        "--restart", action="store_true", help="set the records in RUN aside and begin anew"
    )
    parser.add_argument(
        "--retry-failed", action="store_true", help="scan models again whose record says failed"
    )
    _add_choice(parser)
    _add_engine(parser)
    parser.add_argument(
        "--truth",
        action="store_true",
        help="score against the labels in DATASET, all along and at the end (the scan itself"
        " never uses them)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per model on stdout")
    accepting.add_accept(parser, "; RUN keeps a copy for `report`")
    options.add_settings(parser)


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=types.count, metavar="N", help="only the first N models")
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="only the first model of each architecture: does every kind work? The records count,"
        " and the whole scan goes on from them",
    )
    parser.add_argument(
        "--include-errata",
        action="store_true",
        help="with --truth, count models on NIST's errata lists, too; they are scanned anyway",
    )


def _add_engine(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("who does the work, and how much of it")
    group.add_argument("--engine", choices=("local", "ray"), default="local", help="default: local")
    group.add_argument(
        "--workers",
        type=types.count_to(_MOST_WORKERS),
        metavar="N",
        help="processes (default: one per GPU, else one; with ray one per GPU or node)",
    )
    group.add_argument(
        "--address",
        metavar="ADDRESS",
        help="of the Ray cluster (default: RAY_ADDRESS, else Ray is started on this machine)",
    )
    options.add_limits(group)
    group.add_argument(
        "--budget",
        type=types.seconds,
        metavar="S",
        help="stop the whole scan after S seconds; the status is 5 if models are left, and the same"
        " command goes on later",
    )


def run(args: argparse.Namespace) -> int:
    """Scan the folder, print one line for each model; returns the exit status."""
    from jaxtroj.engine.progress import Tally
    from jaxtroj.record_text import summary
    from jaxtroj.rounds import left_out, tables_aside
    from jaxtroj.store import RunStore, iter_records

    deadline = float("inf") if args.budget is None else time.monotonic() + args.budget
    options.keep_compiled()
    settings = options.settings_from(args)
    accepted = accepting.accepted_from(args.accept)
    entries = _entries(args)
    if not entries:
        return EXIT_NOTHING
    session, others = _session(args), left_out(args.dataset)
    with RunStore(args.out, settings.as_json(), restart=args.restart, session=session) as store:
        if len(store):
            options.message(f"{args.out} has {len(store)} records; going on from there")
        store.keep_accepted(accepted.source)
        _tell([*tables_aside(args.dataset), *others.lines(), *_errata(entries)], store)
        tally = Tally(len(entries), accepted=accepted)
        _scan(entries, settings, store, tally, deadline, args)
    options.message(f"{summary(tally.kinds(), accepted)}; records in {args.out}")
    left = len(entries) - tally.done
    if len(store):
        is_whole = not (left or others.is_partial or args.limit or args.smoke)
        accepting.complain(accepted, iter_records(args.out), is_whole)
    if left:
        options.message(f"the budget is spent: {left} models are left for the same command")
    if args.truth:
        _score(tally, options.message if args.json else print)
    return _status(exit_status(tally.kinds(), accepted, args.evidence_only), left, others)


def _tell(lines: list[str], store: "RunStore") -> None:
    for line in lines:
        options.message(line)
        store.log(line)


def _errata(entries: "list[ModelEntry]") -> list[str]:
    """That labels of some models are wrong by NIST's lists."""
    said = Counter(entry.erratum for entry in entries if entry.erratum)
    return [
        f"{count} scanned model{'' if count == 1 else 's'} with an {why}; no scores count the label"
        for why, count in said.items()
    ]


def _status(status: int, left: int, others: "LeftOut") -> int:
    """The exit status: models that the budget left over outrank all, files left out only "done".

    Hidden files are said and change no status: hiding one is how people leave it out.
    """
    if left or (others.is_partial and status == EXIT_CLEAN):
        return EXIT_INCOMPLETE
    return status


def _entries(args: argparse.Namespace) -> "list[ModelEntry]":
    from jaxtroj.engine.plan import first_of_each_group
    from jaxtroj.rounds import NoModelsError, iter_models

    kind = what_is(args.dataset)
    if kind not in ("a file", "a folder"):
        raise UsageError(f"{args.dataset} is {kind}; expected a dataset folder or a CSV manifest")
    if kind == "a file" and args.dataset.suffix.lower() != ".csv":
        raise UsageError(
            f"{args.dataset} is no folder and no CSV manifest; for one model use: jaxtroj detect"
        )
    try:
        # An erratum is about a label: who hands a model in names and labels it as they like.
        models = iter_models(args.dataset, include_errata=True)
        chosen = list(itertools.islice(models, args.limit))
        return first_of_each_group(chosen) if args.smoke else chosen
    except NoModelsError as error:
        options.message(f"error: {error}")
        return []


def _session(args: argparse.Namespace) -> dict[str, Any]:
    """What environment.json keeps of how this session works; none of it changes an answer."""
    from jaxtroj.engine.devices import visible_gpus

    names = ("engine", "workers", "timeout", "memory", "budget", "limit", "smoke")
    return {name: getattr(args, name) for name in names} | {"gpus": visible_gpus()}


def _engine(
    args: argparse.Namespace, settings: "Settings", store: "RunStore", models: int
) -> "Engine":
    from jaxtroj.engine.guard import Guard
    from jaxtroj.engine.jobs import Setup
    from jaxtroj.engine.local import local_engine

    given = options.memory_from(args)
    # One without a model would do nothing but take its share of the memory from the others.
    workers = None if args.workers is None else min(args.workers, models)
    if args.engine == "ray":
        from jaxtroj.engine.ray_cluster import RayEngine

        return RayEngine(Setup(settings), Guard(args.timeout, given), workers, args.address)
    return local_engine(settings, store, workers, args.timeout, given)


def _scan(
    entries: "list[ModelEntry]",
    settings: "Settings",
    store: "RunStore",
    tally: "Tally",
    deadline: float,
    args: argparse.Namespace,
) -> None:
    from jaxtroj.cli.progress import Progress
    from jaxtroj.engine.run import run_scan

    # Ray prints what happens to its hosts; stdout has results alone.
    with Progress() as progress, Interrupts() as interrupts, redirect_stdout(sys.stderr):
        engine = _engine(args, settings, store, len(entries))
        store.log(f"scan of {len(entries)} models begins")
        display = _Display(progress, tally, args.json, interrupts)
        watch = display.watch(store, deadline)
        for outcome in run_scan(entries, settings, store, engine, watch, args.retry_failed):
            counts = args.truth and (args.include_errata or outcome.entry.erratum is None)
            truth = outcome.entry.poisoned if counts else None
            tally.add(outcome.record, outcome.fresh, truth)
            display.show(outcome)
    store.log(
        f"scan ends with {tally.done} of {len(entries)} models done, {tally.fresh} of them now"
    )


@dataclass
class _Display:
    """Results on stdout; how far the scan is, live on a terminal, else a line now and then."""

    progress: "Progress"
    tally: "Tally"
    as_json: bool
    interrupts: Interrupts
    started: float = field(default_factory=time.monotonic)
    step: str = ""
    said: float = float("-inf")

    def watch(self, store: "RunStore", deadline: float) -> "Watch":
        from jaxtroj.engine.jobs import Watch

        return Watch(self.on_step, self.on_tick, store.log, deadline)

    def on_step(self, model: str, step: str) -> None:
        self.step = f"{model}: {step}"

    def on_tick(self) -> None:
        self.interrupts.check()
        self.progress.update(f"{self.text()}  {self.step}")

    def show(self, outcome: "Outcome") -> None:
        from jaxtroj.cli.progress import record_format

        self.interrupts.check()
        record = outcome.record
        try:
            formatted = record_format(self.as_json, self.progress.results)
            self.progress.result(formatted(record, self.tally.accepted))
        except OutputError as error:  # the records are what the scan is for
            self.progress.line(
                f"stdout takes no more results ({error.strerror}); the scan goes on, and its run"
                " folder has them all"
            )
        now, tally = time.monotonic(), self.tally
        if not self.progress.is_live and (
            now - self.said >= _LINE_SECONDS or tally.done == tally.total
        ):
            self.said = now
            self.progress.line(self.text())

    def text(self) -> str:
        """Such as `[12/40] 3.1 a minute  9.0 min left  log score 0.2103`."""
        from jaxtroj.cli.progress import remaining

        tally, seconds = self.tally, time.monotonic() - self.started
        parts = []
        if tally.fresh:
            parts.append(_rate(tally.fresh / seconds))
            left = tally.total - tally.done
            parts.append(remaining(tally.fresh, tally.fresh + left, seconds))
        if tally.log_score is not None:
            parts.append(f"log score {tally.log_score:.4f}")
        return f"[{tally.done}/{tally.total}] {'  '.join(filter(None, parts))}".rstrip()


def _rate(per_second: float) -> str:
    for unit, seconds in (("second", 1), ("minute", 60)):
        if per_second * seconds >= 1:
            return f"{per_second * seconds:.1f} a {unit}"
    return f"{per_second * 3600:.1f} an hour"


def _score(tally: "Tally", say: Callable[[str], None]) -> None:
    from jaxtroj.cli.evaluate import scores_text

    scores = tally.scores()
    if scores is None:
        options.message("no labels in the dataset folder; nothing to score")
        return
    say(scores_text("all", scores))
    if tally.at_base_rate:
        say(f"{tally.at_base_rate} of them have no answer and count with the base rate")
