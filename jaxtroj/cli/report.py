"""`jaxtroj report`: a run folder as a page to read, or for other programs.

HTML is one file that loads nothing: summary, scores, plots, and a table of models with evidence,
recovered triggers, time and failures. Scores and their plots need --truth.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtroj.cli import accepting, options, outputs
from jaxtroj.cli import argument_types as types
from jaxtroj.cli.main import COMMANDS, EXIT_CLEAN
from jaxtroj.errors import UsageError

if TYPE_CHECKING:
    from jaxtroj.accepted import Accepted
    from jaxtroj.reporting.content import Content

FORMATS = ("html", "json", "csv", "sarif", "markdown", "cyclonedx", "intoto")
STDOUT = "-"


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Declare the command and its options."""
    parser = subparsers.add_parser(
        "report", help=COMMANDS["report"], description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "run", type=types.path_of, metavar="RUN", help="folder that `scan --out` wrote"
    )
    options.add_path(
        parser,
        "--truth",
        "PATH",
        "METADATA.csv, a CSV of model and label, a manifest, or the dataset folder; the folder also"
        " gives the models' paths and texts to show triggers in",
    )
    options.add_path(
        parser,
        "--models",
        "PATH",
        "the folder or manifest that was scanned, without labels too: gives the models' paths from"
        " here, and texts to show triggers in",
    )
    parser.add_argument("--format", choices=FORMATS, default="html", help="default: html")
    parser.add_argument(
        "--out",
        type=_target,
        metavar="FILE",
        help="default: RUN/report.html for html, else stdout, which is also -",
    )
    parser.add_argument(
        "--by",
        action="append",
        default=[],
        type=types.name_of,
        metavar="COLUMN",
        help="scores for each value of a METADATA.csv column too (needs --truth)",
    )
    options.add_flag(
        parser,
        "--predicted-only",
        "leave labelled models without a record out, instead of scoring them as 0.5",
    )
    options.add_path(parser, "--plots", "DIR", "write the plots there as SVG and PNG, too")
    parser.add_argument(
        "--backgrounds",
        type=types.path_of,
        action="append",
        default=[],
        metavar="RESULT",
        help="result of `jaxtroj backgrounds evaluate` or `challenge`, as a table in the HTML"
        " report beside the published rows; may be repeated",
    )
    options.add_path(
        parser,
        "--beside",
        "RUN2",
        "another run of the same models, laid beside this one: verdicts and probabilities",
    )
    accepting.add_accept(parser, " (default: the copy that `scan --accept` left in RUN)")
    parser.add_argument("--seed", type=types.seed, default=0, metavar="N", help="default: 0")


def _target(text: str) -> Path | str:
    return STDOUT if text == STDOUT else types.path_of(text)


def run(args: argparse.Namespace) -> int:
    """Write the report; returns the exit status."""
    from jaxtroj.reporting.content import read_content

    if args.truth is None and (args.by or args.predicted_only):
        raise UsageError("--by and --predicted-only need --truth, the labels of the models")
    if args.beside is not None and args.format != "html":
        raise UsageError("--beside needs --format html; for scores see: jaxtroj compare")
    if args.backgrounds and args.format != "html":
        raise UsageError("--backgrounds needs --format html; see: jaxtroj backgrounds leaderboard")
    path = _path(args)
    if path is not None:
        inputs = (args.run, args.truth, args.models, args.accept, args.beside, *args.backgrounds)
        outputs.keep_inputs(path, inputs)
    accepted = _accepted(args.run, args.accept)
    content = read_content(
        args.run, args.truth, args.by, args.predicted_only, args.seed, accepted, args.models
    )
    _complain(content, args)
    _write(_page(content, args) if args.format == "html" else _render(content, args.format), path)
    if args.plots is not None:
        from jaxtroj.reporting.plots import write_plots

        names = write_plots(args.plots, content)
        options.message(f"{', '.join(names)} are in {args.plots} as SVG and PNG")
    return EXIT_CLEAN


def _accepted(run: Path, given: Path | None) -> "Accepted":
    """The acceptances of `given`, else of the copy in the run folder."""
    from jaxtroj.store import ACCEPTED

    kept = run / ACCEPTED
    return accepting.accepted_from(given or (kept if kept.exists() else None))


def _complain(content: "Content", args: argparse.Namespace) -> None:
    from jaxtroj.cli.evaluate import complain

    for problem in content.problems:
        options.message(problem)
    if args.format == "intoto":
        from jaxtroj.reporting.intoto import unnamed

        if count := unnamed(content):
            options.message(f"{count} models have no digest, so there is no statement about them")
    if content.scored is not None:
        complain((), content.scored.matched, args.predicted_only, str(args.run))


def _page(content: "Content", args: argparse.Namespace) -> str:
    from jaxtroj.reporting.page import render

    beside = None
    if args.beside is not None:
        from jaxtroj.reporting.beside import read_beside

        beside = read_beside(args.beside, content, _accepted(args.beside, args.accept))
    if not args.backgrounds:
        return render(content, beside=beside)
    from jaxtroj.backgrounds.leaderboard import PUBLISHED, rows
    from jaxtroj.backgrounds.results import read_results

    results = [result for path in args.backgrounds for result in read_results(path)]
    return render(content, [*PUBLISHED, *rows(results)], beside)


def _render(content: "Content", form: str) -> str:
    """The report in one of the other formats; each module is imported when it is asked for."""
    if form == "sarif":
        from jaxtroj.reporting.sarif import render
    elif form == "markdown":
        from jaxtroj.reporting.markdown import render
    elif form == "cyclonedx":
        from jaxtroj.reporting.cyclonedx import render
    elif form == "intoto":
        from jaxtroj.reporting.intoto import render
    elif form == "csv":
        from jaxtroj.reporting.tables import render_csv as render
    else:
        from jaxtroj.reporting.tables import render_json as render
    return render(content)


def _path(args: argparse.Namespace) -> Path | None:
    """Where the report goes; None is stdout."""
    if args.out == STDOUT or (args.out is None and args.format != "html"):
        return None
    return args.out or args.run / "report.html"


def _write(text: str, path: Path | None) -> None:
    from converters.files import write_atomic

    if path is None:
        sys.stdout.write(text)
        return
    try:
        write_atomic(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    options.message(f"the report is {path}")
