"""Examples of the documents, run as the files that they tell people to write."""

import re
import textwrap
from pathlib import Path
from types import ModuleType

from tests.loading import module_at

DOCS = Path(__file__).parent.parent / "docs"


def first_example(document: str, folder: Path) -> ModuleType:
    """The first Python block of a document, imported from a file outside the package."""
    block = re.search(r"^```python\n(.*?)^```", (DOCS / document).read_text(), re.M | re.S)
    assert block is not None
    name = "example_" + document.removesuffix(".md").replace("-", "_")
    path = folder / f"{name}.py"
    path.write_text(block[1])
    return module_at(path)


def block_after(document: str, mark: str) -> str:
    """The Python block of a document that follows `<!-- mark -->`."""
    text = (DOCS / document).read_text()
    block = re.search(rf"^ *<!-- {mark} -->\n *```python\n(.*?)^ *```", text, re.M | re.S)
    assert block is not None
    return textwrap.dedent(block[1])
