"""The files of a bank that change an answer, and one digest of them all.

`bank.json` says how vectors were made, not what they are: a bank that is still being built, whose
examples were exchanged or whose clean heads were changed has the same one. So the vectors and the
clean heads count by what they hold. A file that has not changed is read once in a process.

`standard.json` is left out. It is taken only where it says that it follows from all this, and is
computed anew otherwise.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from converters.checkpoint import CONFIG, PARAMS
from jaxtroj.evidence.texts.bank.origin import MANIFEST as HEADS
from jaxtroj.evidence.texts.bank.store import CARRIERS, MANIFEST, VECTORS
from jaxtroj.model_files import digest_once

FOLDER = "references"
"""Holds the clean heads of a bank, each in a folder of its own."""
EXAMPLES = "examples.npy"
"""Vectors of the example texts of a clean head, in its own folder."""
_OWN = (MANIFEST, VECTORS, CARRIERS, HEADS)
_OF_A_HEAD = (CONFIG, PARAMS, EXAMPLES)


def bank_digest(folder: Path) -> str:
    """Identity of a bank, or of a folder of banks: names and digests of their files, hex.

    A file that cannot be read counts by why it cannot.
    """
    digest = hashlib.sha256()
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        digest.update(f"{name}\0{digest_once(path)}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    """Those that a scan reads of a folder and of the banks in it, in a fixed order."""
    for bank in (folder, *_folders(folder)):
        yield from (bank / name for name in _OWN if os.path.lexists(bank / name))
        for head in _folders(bank / FOLDER):
            yield from (head / name for name in _OF_A_HEAD if os.path.lexists(head / name))


def _folders(folder: Path) -> list[Path]:
    """Nothing where there is no folder: whoever needs the bank meets that and says so."""
    try:
        return sorted(one for one in folder.iterdir() if one.is_dir())
    except OSError:
        return []
