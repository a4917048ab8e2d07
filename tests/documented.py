"""Examples of the documents, run as the files that they tell people to write."""

import importlib.util
import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parent.parent / "docs"


def first_example(document: str, folder: Path) -> ModuleType:
    """The first Python block of a document, imported from a file outside the package."""
    block = re.search(r"^```python\n(.*?)^```", (DOCS / document).read_text(), re.M | re.S)
    assert block is not None
    name = "example_" + document.removesuffix(".md").replace("-", "_")
    path = folder / f"{name}.py"
    path.write_text(block[1])
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up the module of their annotations
    spec.loader.exec_module(module)
    return module


def block_after(document: str, mark: str) -> str:
    """The Python block of a document that follows `<!-- mark -->`."""
    text = (DOCS / document).read_text()
    block = re.search(rf"^ *<!-- {mark} -->\n *```python\n(.*?)^ *```", text, re.M | re.S)
    assert block is not None
    return textwrap.dedent(block[1])
