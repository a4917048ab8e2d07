"""ONNX's own conformance suites, through `onnx.backend.test`."""

import re
import tomllib
from pathlib import Path

import pytest

from benchmarks.reading import onnx_backend
from converters.graph.onnx.backend import JaxBackend, TorchBackend

EXCLUDED = tomllib.loads(Path(__file__).with_name("excluded.toml").read_text())
# (engine, suite) -> fewest cases that must pass. onnx2torch alone passes 276 of the node cases.
FEWEST = {
    ("torch", "node"): 1268,
    ("torch", "simple"): 21,
    ("torch", "pytorch-converted"): 82,
    ("torch", "pytorch-operator"): 35,
    ("jax", "pytorch-operator"): 35,
}
SLOW = {
    ("torch", "light"): 9,
    ("torch", "expanded"): 452,
    ("jax", "node"): 1228,
    ("jax", "simple"): 15,
    ("jax", "pytorch-converted"): 82,
}


def expected(name: str, engine: str) -> str:
    """What a case should come to: the engine's own table first."""
    for table in (EXCLUDED["jax"], EXCLUDED["torch"])[engine == "torch" :]:
        for result, patterns in table.items():
            if any(re.search(pattern, name) for pattern in patterns):
                return result
    return "passed"


@pytest.mark.parametrize(
    ("engine", "kind", "fewest"),
    [
        *((*key, fewest) for key, fewest in FEWEST.items()),
        *(pytest.param(*key, n, marks=pytest.mark.slow) for key, n in SLOW.items()),
    ],
)
def test_suite(engine, kind, fewest):
    backend = TorchBackend if engine == "torch" else JaxBackend
    outcomes = [onnx_backend.outcome(case) for case in onnx_backend.cases(backend, [kind])]
    wrong = [o for o in outcomes if o.result != expected(o.name, engine)]
    assert not wrong, "\n".join(f"{o.name}: {o.result} {o.message}" for o in wrong[:30])
    assert sum(o.result == "passed" for o in outcomes) >= fewest


def test_every_exclusion_is_needed():
    names = [case.name for case in onnx_backend.cases(TorchBackend, ["node", "simple"])]
    tables = [table for engine in EXCLUDED.values() for table in engine.values()]
    patterns = [pattern for table in tables for pattern in table]
    unused = [p for p in patterns if not any(re.search(p, name) for name in names)]
    assert not unused
