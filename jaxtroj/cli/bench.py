"""`jaxtroj bench`: hands its arguments to the benchmarks of the checkout, `python -m benchmarks`.

They stand in the checkout's folder `benchmarks`, not in the installed package, and know their own
options; nothing of them is imported here.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from jaxtroj.cli.main import COMMANDS
from jaxtroj.errors import UsageError

CHECKOUT = Path(__file__).resolve().parents[2]


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Declare the command; every word after it, `--help` too, is for the benchmarks."""
    # No word begins with this prefix, so argparse takes none of them for an option of its own.
    parser = subparsers.add_parser(
        "bench", help=COMMANDS["bench"], add_help=False, prefix_chars="\0"
    )
    parser.add_argument("words", nargs="*")


def run(args: argparse.Namespace) -> int:
    """Run the benchmarks as a process of their own; returns its exit status."""
    if not (CHECKOUT / "benchmarks" / "__main__.py").is_file():
        raise UsageError(
            "the benchmarks are part of the source, not of the installed package;"
            " clone the repository and run bin/jaxtroj bench there"
        )
    paths = [str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    # -P keeps a folder named benchmarks, where the caller stands, from being imported.
    command = [sys.executable, "-P", "-m", "benchmarks", *args.words]
    return subprocess.run(command, env=environment).returncode
