"""What `jaxtroj detect` costs on files made to cost much: seconds, and memory of all its processes.

    python -m benchmarks.reading.hostile_cost --work SCRATCH

Each file is given to `jaxtroj detect` with the default limits, in a process of its own. Memory
is the sum of what its processes hold, looked at fifty times a second, so what they share counts
more than once; or the peak of one of them, where that is more. A stopped run goes on where its log
ends.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.provenance import RESULTS, provenance
from benchmarks.reading.hostile_files import hostile_files, suffix
from converters.files import write_atomic

_ROOT = Path(__file__).parents[2]
_EXAMPLES = _ROOT / "jaxtroj/data/examples/clean/example_data"
_TICK = 0.02
_MIB = 2**20


def main(argv: list[str] | None = None) -> int:
    """Returns 1 when a file exceeded the limits of time or memory, or detect did not answer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="files and log")
    parser.add_argument("--out", type=Path, default=RESULTS / "hostile_cost.json", metavar="FILE")
    parser.add_argument("--examples", type=Path, default=_EXAMPLES, metavar="DIR")
    parser.add_argument("--kind", action="append", help="default: all")
    parser.add_argument("--files", type=int, default=1000, metavar="N", help="most files")
    args = parser.parse_args(argv)
    args.work.mkdir(parents=True, exist_ok=True)
    rows = _rows(args)
    content = {"provenance": provenance(), "rows": rows}
    write_atomic(args.out, json.dumps(content, indent=1).encode() + b"\n")
    return int(any(not row["answered"] for row in rows))


def _rows(args: argparse.Namespace) -> list[dict[str, Any]]:
    log = args.work / "hostile_cost.jsonl"
    lines = log.read_text().splitlines() if log.is_file() else []
    rows = {(row["kind"], row["name"]): row for row in map(json.loads, lines)}
    wanted = [made for made in hostile_files() if not args.kind or made[0] in args.kind]
    with log.open("a") as out:
        for kind, name, make in wanted[: args.files]:
            if (kind, name) in rows:
                continue
            path = args.work / f"model{suffix(kind)}"
            path.write_bytes(make())
            cost = measured([str(path), "--examples", str(args.examples), "--json"], args.work)
            rows[kind, name] = {"kind": kind, "name": name, "bytes": path.stat().st_size, **cost}
            print(json.dumps(rows[kind, name]), file=out, flush=True)
    return list(rows.values())


def measured(arguments: Sequence[str], folder: Path) -> dict[str, Any]:
    """Wall and processor seconds, MiB and answer of one `jaxtroj detect`."""
    # What bin/jaxtroj becomes, without the environment that it may make first.
    command = [sys.executable, "-P", "-m", "jaxtroj", "detect", *arguments]
    command += ["--out", str(folder / "out")]
    environment = os.environ | {"PYTHONPATH": str(_ROOT)}
    begun, used, peak = time.monotonic(), os.times(), 0
    with open(folder / "stdout", "wb") as stdout, open(folder / "stderr", "wb") as stderr:
        process = subprocess.Popen(
            command, stdout=stdout, stderr=stderr, env=environment, start_new_session=True
        )
        try:
            while process.poll() is None:
                peak = max(peak, _held(process.pid))
                time.sleep(_TICK)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    now = os.times()
    processor = now.children_user + now.children_system - used.children_user - used.children_system
    return {
        "mib": round(peak / _MIB),
        "seconds": round(time.monotonic() - begun, 1),
        "processor_seconds": round(processor, 1),
        "exit_status": process.returncode,
        **_answer(folder / "stdout"),
    }


def _answer(stdout: Path) -> dict[str, Any]:
    """What detect said of the file, and whether it did."""
    lines = stdout.read_text("utf-8", "replace").splitlines()
    try:
        record = json.loads(lines[-1])
    except (IndexError, ValueError):
        return {"answered": False, "status": "", "reason": ""}
    beyond = any(
        word in record["reason"] for word in ("see --timeout", "see --memory", "ended its")
    )
    return {"answered": not beyond, "status": record["status"], "reason": record["reason"][:200]}


def _held(root: int) -> int:
    """Bytes that a process and all below it hold, or the most that one of them ever held."""
    total, most, waiting = 0, 0, [root]
    while waiting:
        pid = waiting.pop()
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            for task in Path(f"/proc/{pid}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except OSError:  # it has ended meanwhile
            continue
        sizes = dict(line.split(":", 1) for line in status.splitlines())
        total += 1024 * int(sizes.get("VmRSS", "0").split()[0])
        most = max(most, 1024 * int(sizes.get("VmHWM", "0").split()[0]))
    return max(total, most)


if __name__ == "__main__":
    sys.exit(main())
