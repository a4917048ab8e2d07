"""`jaxtroj bench`: the project's own benchmarks, each result a JSON file with its provenance.

Without names it runs every benchmark whose data is at hand; the others are named with what they
need. They stand in the checkout's folder `benchmarks`, not in the installed package.
"""

import argparse
from importlib.util import find_spec
from pathlib import Path

from jaxtroj.cli import options
from jaxtroj.cli.main import COMMANDS, EXIT_CLEAN, EXIT_FAILED
from jaxtroj.errors import UsageError


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Declare the command and its options."""
    if find_spec("benchmarks") is None:
        raise UsageError(
            "the benchmarks are part of the source, not of the installed package;"
            " clone the repository and run bin/jaxtroj bench there"
        )
    from benchmarks.suite import BENCHES, INPUTS, NAMES, PROFILES

    known = "\n".join(f"  {bench.name:16} {bench.title}" for bench in BENCHES)
    data = "\n".join(f"  {name:16} {text}" for name, text in INPUTS.items())
    parser = subparsers.add_parser(
        "bench",
        help=COMMANDS["bench"],
        description=f"{__doc__}\nbenchmarks:\n{known}\n\ndata for --input:\n{data}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(NAMES)}")
    parser.add_argument("--profile", choices=PROFILES, default="cpu-small", help="how big")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="data of a benchmark; may be repeated",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("bench-results"), help="default: bench-results"
    )
    parser.add_argument(
        "--work", type=Path, metavar="DIR", help="kept between runs (default: OUT/work)"
    )


def run(args: argparse.Namespace) -> int:
    """Run what was asked for, a line for each; returns the exit status."""
    from benchmarks.suite import NAMES
    from benchmarks.suite import run as run_suite

    unknown = sorted(set(args.names) - set(NAMES))
    if unknown:
        raise UsageError(f"no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}")
    inputs, names = _inputs(args.input), args.names or NAMES
    work = args.work or args.out / "work"
    failed = 0
    for outcome in run_suite(names, args.profile, inputs, args.out, work, _announce):
        failed += outcome.status == "failed"
        parts = (outcome.reason, f"{outcome.seconds} s" if outcome.seconds else "")
        result = str(outcome.result) if outcome.result else ""
        print("  ".join(filter(None, (f"{outcome.name:16} {outcome.status}", *parts, result))))
    return EXIT_FAILED if failed else EXIT_CLEAN


def _announce(name: str) -> None:
    options.message(f"{name} begins")


def _inputs(given: list[str]) -> dict[str, str]:
    """Paths by name. Raises UsageError for an unknown name or a path that is not there."""
    from benchmarks.suite import INPUTS

    found = {}
    for text in given:
        name, _, paths = text.partition("=")
        if name not in INPUTS or not paths:
            raise UsageError(f"--input {text!r}; expected NAME=PATH, NAME of {', '.join(INPUTS)}")
        for path in paths.split(","):
            if not Path(path).exists():
                raise UsageError(f"--input {name}: there is no {path}")
        found[name] = paths
    return found
