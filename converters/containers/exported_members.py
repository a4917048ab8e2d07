"""Which members a .pt2 archive may have: those that `torch.export.save` writes, and no others.

A reader that finds more takes another network: `torch.export.load` prefers the pickle
`data/weights/model.pt`, which torch 2.8 wrote, to the tensors beside it, and starts compiled code;
`torch.load` goes by `data.pkl`; `load_pt2` gives every program there is.
"""

import re

from converters.containers.zip_file import ZipReader
from converters.errors import UnknownFormatError, safe_repr

# torch finds members in any case, and takes the first folder, whatever its name, for the root.
_SIGN = re.compile(
    r"([^/]+/)?(archive_format|models/[^/]+\.json|serialized_exported_program\.json)", re.IGNORECASE
)
_KNOWN = re.compile(
    r"archive_format|archive_version|byteorder|\.data/(version|serialization_id)"
    r"|models/model\.json|data/sample_inputs/model\.pt|extra/.+"
    r"|data/weights/(weight_[0-9]+|model_weights_config\.json)"
    r"|data/constants/(tensor_[0-9]+|model_constants_config\.json)"
)
# torch refuses other formats and versions; bytes in another order it reads as if in this one.
_SAID = {"archive_format": b"pt2", "archive_version": b"0", "byteorder": b"little"}
_EXPECTED = (
    "expected one program, models/model.json, with its tensors and no more, as torch.export.save of"
    " torch 2.9 and later writes it; export the network again"
)


def has_program(archive: ZipReader) -> bool:
    """Whether some reader would take the archive for an exported program."""
    return any(map(_SIGN.fullmatch, archive.members))


def program_root(archive: ZipReader) -> str:
    """The folder, with its slash, of the one program in the archive.

    Raises:
      UnknownFormatError: other members, or another version of the format.
    """
    root = next(iter(archive.members)).partition("/")[0] + "/"
    for name in archive.members:
        if not name.startswith(root) or not _KNOWN.fullmatch(name, len(root)):
            raise UnknownFormatError(
                f"the exported program has {safe_repr(name)} in its archive, which some readers may"
                f" read instead; {_EXPECTED}"
            )
    for name, expected in _SAID.items():
        _check_said(archive, root + name, expected)
    return root


def _check_said(archive: ZipReader, name: str, expected: bytes) -> None:
    said = bytes(archive.head(name, 16)) if name in archive.members else None
    if said != expected:
        got = "missing" if said is None else safe_repr(said)
        raise UnknownFormatError(
            f"{safe_repr(name)} of the exported program is {got}, expected {safe_repr(expected)};"
            f" {_EXPECTED}"
        )
