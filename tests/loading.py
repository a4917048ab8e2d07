"""Python files outside the packages, imported as the tests need them."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def module_at(path: Path) -> ModuleType:
    """The module of a file, by its stem in `sys.modules`: dataclasses and pickles look there."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
