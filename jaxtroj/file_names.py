"""File names for models of any name: harmless, and different where the names are."""

import hashlib
import re
from pathlib import Path

_DIGEST_LETTERS = 24
_DIGEST_END = re.compile(rf"-[0-9a-f]{{{_DIGEST_LETTERS}}}$")


def picture_file(folder: Path, model: str) -> Path:
    """Where in a folder of pictures the one of this model's trigger belongs."""
    return folder / f"{file_stem(model)}.png"


def file_stem(name: str) -> str:
    """A file name for any model name: the same if harmless, else shortened with a digest.

    Different names stay different: one that ends like a digest gets one as well.

    >>> file_stem("id-00000001")
    'id-00000001'
    >>> file_stem("../a b")
    'a_b-2c2c791a0618990cda102121'
    """
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")[:70]
    if safe and safe == name and not _DIGEST_END.search(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{safe}-{digest[:_DIGEST_LETTERS]}"
