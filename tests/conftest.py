"""Fixtures for all tests."""

import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import pytest

from jaxtroj import runtime

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
_MOST_RESIDENT = 2**30

# Programs that one test compiled serve every other one: in this process, in other workers of
# pytest-xdist, in the commands that tests start, and in the next run. Settings of XLA are part of
# a program's key, so they are the same everywhere: those of every jaxtroj command.
_CACHES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
_COMPILED = _CACHES / "jaxtroj" / f"tests-{version('jax')}-{version('jaxlib')}"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_COMPILED))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# Hundreds of commands start: without bytecode each one parses a third of a second.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
runtime.prepare()


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="takes minutes; run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


def pytest_collection_finish():
    """What was imported and collected stays: no collection of garbage goes through it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of large test data beside the checkout; the test is skipped where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("needs the data folder ../shared/data beside the checkout")
    return SHARED_DATA


@pytest.fixture(scope="session")
def lowered():
    """What `benchmarks.speed.programs` says of a scan, in a process of its own: a row a program."""

    def programs(*words) -> list[dict]:
        command = [sys.executable, "-m", "benchmarks.speed.programs", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
        assert done.stdout, done.stderr[-2000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    return programs


@pytest.fixture
def quick_compilation(request, monkeypatch) -> Iterator[None]:
    """Programs compile without optimisations, in half the time: for those that run a few times.

    Those of the commands that a test starts, too. Tests marked slow keep the optimisations, so that
    networks are compared as users compile them. Not for comparisons bit for bit with what a fixture
    of a wider scope computed.
    """
    if "slow" in request.keywords:
        yield
        return
    with _compiled_quickly(monkeypatch):
        yield


@pytest.fixture(scope="module")
def quick_module() -> Iterator[None]:
    """The same for all of a file, its own fixtures of that scope included."""
    with pytest.MonkeyPatch.context() as patch, _compiled_quickly(patch):
        yield


@contextmanager
def _compiled_quickly(patch: pytest.MonkeyPatch) -> Iterator[None]:
    import jax

    patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def unguarded(monkeypatch) -> None:
    """Commands and doors open models in this process, not in a guarded one that imports for
    seconds.

    For tests of answers. What guards, starts processes or reads their messages has tests of its
    own, in `tests/engine` and `tests/cli/test_guarded.py`.
    """
    from tests import unguarded

    monkeypatch.setattr("jaxtroj.engine.guarded_call.guarded_call", unguarded.called_here)
    for user in ("run", "local"):
        monkeypatch.setattr(f"jaxtroj.engine.{user}.LocalEngine", unguarded.HereEngine)


@pytest.fixture(autouse=True)
def _free_memory_given_back():
    """Nothing that a test freed stays with the process once it is large."""
    yield
    if _resident_bytes() > _MOST_RESIDENT:
        runtime.give_back(above=_MOST_RESIDENT // 4)


@pytest.fixture(scope="module", autouse=True)
def _bounded_memory():
    """Drops compiled programs between files once they fill memory; thousands of tests compile."""
    yield
    if "jax" in sys.modules and _resident_bytes() > _MOST_RESIDENT:
        sys.modules["jax"].clear_caches()
        gc.collect()
        runtime.give_back(above=0)


def _resident_bytes() -> int:
    """Memory of this process, 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
