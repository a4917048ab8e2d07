"""What the check for architectural backdoors says of ONNX files that people ship.

    python -m benchmarks.reading.architectural_findings --scratch DIR

The files are those of `benchmarks.reading.real_onnx`, none of which is known to be poisoned, so
every suspicion here is taken for a false alarm until someone has looked. Only the first output is
inspected.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.provenance import RESULTS, provenance
from benchmarks.reading.real_onnx import _filled, _random, download, real_files
from converters.errors import ConverterError
from converters.files import write_atomic


def findings_of(path: Path) -> dict[str, Any]:
    """One file's row; a refusal is its result."""
    from converters.findings import SUSPICION
    from converters.graph.inspection import inspect
    from converters.graph.onnx import read_onnx, to_torch
    from converters.graph.onnx.torch_module import declared_shape, graph_inputs, input_type
    from converters.graph.recorder import Captured
    from converters.graph.structure import architecture_of, outline
    from converters.graph.tape import capture

    started = time.perf_counter()
    try:
        file = read_onnx(path)
        (info,) = graph_inputs(file.model)
        shape = _filled(path, declared_shape(info))
        module = to_torch(file.model, {info.name: shape}, weights=file.weights)
        captured = capture(module, [_random(shape, input_type(info))])
    except ConverterError as error:
        return {"file": path.name, "refused": f"{type(error).__name__}: {error}"[:500]}
    graph = captured.graph.select(0)
    seen = time.perf_counter()
    found = inspect(Captured(graph, captured.params))
    return {
        "file": path.name,
        "architecture": architecture_of(graph),
        "outline": outline(graph),
        "operators": len(graph.nodes),
        "suspicions": [text for text in found if SUSPICION in text],
        "convert_seconds": round(seen - started, 2),
        "inspect_seconds": round(time.perf_counter() - seen, 3),
    }


def main(argv: list[str] | None = None) -> int:
    """Always 0: a suspicion is a result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scratch", type=Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=Path, default=RESULTS / "architectural_findings.json")
    args = parser.parse_args(argv)
    download(args.scratch)
    rows = []
    for path in real_files(args.scratch):
        rows.append(findings_of(path))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    quiet = sum(not row.get("suspicions", True) for row in rows)
    result = {"provenance": provenance(), "files": len(rows), "quiet": quiet, "rows": rows}
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(f"{quiet} of {len(rows)} files without a suspicion")
    return 0


if __name__ == "__main__":
    sys.exit(main())
