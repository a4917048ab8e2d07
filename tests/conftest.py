"""Fixtures for all tests."""

import os
import sys
from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
_MOST_RESIDENT = 3 * 2**30


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="takes minutes; run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of large test data beside the checkout; the test is skipped where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("needs the data folder ../shared/data beside the checkout")
    return SHARED_DATA


@pytest.fixture(scope="module", autouse=True)
def _bounded_memory():
    """Drops compiled programs between files once they fill memory; thousands of tests compile."""
    yield
    if "jax" in sys.modules and _resident_bytes() > _MOST_RESIDENT:
        sys.modules["jax"].clear_caches()


def _resident_bytes() -> int:
    """Memory of this process, 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
