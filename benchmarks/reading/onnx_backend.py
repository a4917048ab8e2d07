"""ONNX's own conformance suites against the ONNX front end.

    python -m benchmarks.reading.onnx_backend --out benchmarks/results/onnx_backend.json
    python -m benchmarks.reading.onnx_backend --engine jax --kinds node --only reduce

Each case is passed, refused with an error of ours, mismatched (a wrong number, type or shape) or
crashed (any other exception). `torch` runs the built torch module, `jax` the captured graph. The
cases whose names end in `_expanded` repeat others by their function bodies; they are counted apart.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import time
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from benchmarks.provenance import provenance
from converters.errors import ConverterError
from converters.files import write_atomic

PASSED, REFUSED, MISMATCHED, CRASHED = "passed", "refused", "mismatched", "crashed"
KINDS = {
    "node": "OnnxBackendNodeModelTest",
    "expanded": "OnnxBackendNodeModelTest",
    "simple": "OnnxBackendSimpleModelTest",
    "pytorch-converted": "OnnxBackendPyTorchConvertedModelTest",
    "pytorch-operator": "OnnxBackendPyTorchOperatorModelTest",
    "light": "OnnxBackendRealModelTest",
}


@dataclass(frozen=True)
class SuiteCase:
    """One case of a suite; `run` raises what the backend or the comparison raised."""

    kind: str
    name: str
    run: Callable[[], None]


@dataclass(frozen=True)
class CaseOutcome:
    """What became of one case.

    Attributes:
        kind: suite.
        name: case.
        result: passed, refused, mismatched or crashed.
        message: first line of the exception.
        seconds: wall clock.
    """

    kind: str
    name: str
    result: str
    message: str
    seconds: float


@cache
def _models_folder() -> tempfile.TemporaryDirectory:
    """Where the runner keeps an empty folder per model; the models come with the onnx package."""
    return tempfile.TemporaryDirectory(prefix="onnx-suites-")


def cases(backend: type, kinds: Iterable[str]) -> list[SuiteCase]:
    """The CPU cases of some suites, through `onnx.backend.test`."""
    os.environ["ONNX_MODELS"] = _models_folder().name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suites overflow and divide by zero on purpose
        from onnx.backend.test import BackendTest

        classes = BackendTest(backend, __name__).test_cases
    found = []
    for kind in kinds:
        group = classes[KINDS[kind]]
        for name in sorted(vars(group)):
            expanded = "_expanded" in name
            if (
                not name.endswith("_cpu")
                or kind in ("node", "expanded")
                and (expanded != (kind == "expanded"))
            ):
                continue
            found.append(SuiteCase(kind, name.removesuffix("_cpu"), getattr(group(name), name)))
    return found


def outcome(case: SuiteCase) -> CaseOutcome:
    """Run one case."""
    start = time.perf_counter()
    result, message = PASSED, ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case.run()
    except ConverterError as error:
        result, message = REFUSED, _first_line(error)
    except AssertionError as error:
        result, message = MISMATCHED, _first_line(error)
    except unittest.SkipTest as error:
        result, message = CRASHED, f"skipped: {error}"
    except Exception as error:  # noqa: BLE001 - what nobody foresaw is the finding
        result, message = CRASHED, f"{type(error).__name__}: {_first_line(error)}"
    return CaseOutcome(case.kind, case.name, result, message, round(time.perf_counter() - start, 4))


def _first_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def summary(outcomes: Iterable[CaseOutcome]) -> dict[str, dict[str, int]]:
    """Suite -> result -> number of cases."""
    table: dict[str, Counter] = {}
    for each in outcomes:
        table.setdefault(each.kind, Counter())[each.result] += 1
    return {kind: {"cases": counts.total(), **counts} for kind, counts in table.items()}


def _run(found: Iterable[SuiteCase], show: bool) -> Iterator[CaseOutcome]:
    for case in found:
        result = outcome(case)
        if show and result.result != PASSED:
            print(result.result, result.kind, result.name, result.message, file=sys.stderr)
        yield result


def main(argv: list[str] | None = None) -> int:
    """Run the suites; 1 if a case was mismatched or crashed."""
    parser = argparse.ArgumentParser(description="ONNX conformance suites against the front end")
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    parser.add_argument("--engine", choices=("torch", "jax"), default="torch")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--only", default=".", help="regular expression of case names")
    parser.add_argument("--verbose", action="store_true", help="print each case that fails")
    args = parser.parse_args(argv)
    from converters.graph.onnx.backend import JaxBackend, TorchBackend

    backend = JaxBackend if args.engine == "jax" else TorchBackend
    chosen = [c for c in cases(backend, args.kinds) if re.search(args.only, c.name)]
    outcomes = list(_run(chosen, args.verbose))
    counts = summary(outcomes)
    print(json.dumps(counts, indent=1))
    if args.out:
        failed = [asdict(o) for o in outcomes if o.result != PASSED]
        result = {
            "engine": args.engine,
            "summary": counts,
            "seconds": round(sum(o.seconds for o in outcomes), 1),
            "not passed": failed,
            "provenance": provenance(),
        }
        write_atomic(args.out, (json.dumps(result, indent=1) + "\n").encode())
    return int(any(o.result in (MISMATCHED, CRASHED) for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
