"""The project's own benchmarks, each result a JSON file with its provenance.

Without names it runs every benchmark whose data is at hand; the others are named with what they
need. `jaxtroj bench` starts it.
"""

import argparse
import os
import sys
from pathlib import Path

from benchmarks.suite import BENCHES, INPUTS, NAMES, PROFILES, run
from jaxtroj.cli.main import EXIT_CLEAN, EXIT_FAILED, EXIT_INTERRUPTED, Parser


def main() -> int:
    """Run what was asked for, a line for each; returns the exit status."""
    parser = _parser()
    args = parser.parse_args()
    unknown = sorted(set(args.names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}")
    inputs, names = _inputs(parser, args.input), args.names or NAMES
    work = args.work or args.out / "work"
    failed = 0
    for outcome in run(names, args.profile, inputs, args.out, work, _announce):
        failed += outcome.status == "failed"
        parts = (outcome.reason, f"{outcome.seconds} s" if outcome.seconds else "")
        result = str(outcome.result) if outcome.result else ""
        line = filter(None, (f"{outcome.name:16} {outcome.status}", *parts, result))
        print("  ".join(line), flush=True)
    return EXIT_FAILED if failed else EXIT_CLEAN


def _parser() -> Parser:
    known = "\n".join(f"  {bench.name:16} {bench.title}" for bench in BENCHES)
    data = "\n".join(f"  {name:16} {text}" for name, text in INPUTS.items())
    parser = Parser(
        prog="jaxtroj bench",
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
    return parser


def _inputs(parser: Parser, given: list[str]) -> dict[str, str]:
    """Paths by name; ends the process over an unknown name or a path that is not there."""
    found = {}
    for text in given:
        name, _, paths = text.partition("=")
        if name not in INPUTS or not paths:
            parser.error(f"--input {text!r}; expected NAME=PATH, NAME of {', '.join(INPUTS)}")
        for path in paths.split(","):
            if not Path(path).exists():
                parser.error(f"--input {name}: there is no {path}")
        found[name] = paths
    return found


def _announce(name: str) -> None:
    print(f"jaxtroj: {name} begins", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        status = main()
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader (such as `head`) has gone; nothing more can be said on stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 128 + 13
    sys.exit(status)
