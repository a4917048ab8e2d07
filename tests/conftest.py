"""Fixtures for all tests."""

from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of large test data beside the checkout; the test is skipped where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("needs the data folder ../shared/data beside the checkout")
    return SHARED_DATA
