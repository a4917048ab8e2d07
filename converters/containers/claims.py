"""Refuses a file that two containers could claim.

torch.load asks in this order: zip by the first bytes, tar by the first header, then the legacy
stream; torch.jit.load looks for a zip from the end of the file; onnxruntime takes bytes with
"ORTM" at 4 for its own format; other tools go by the suffix. A file that is sound in two of these
ways is two models, and which of them runs is not ours to guess.
"""

import mmap
import struct
import tarfile

from converters.errors import CorruptFileError

_END_MAGIC = b"PK\x05\x06"
_END = struct.Struct("<4s4H2LH")
_DIRECTORY_MAGIC = (b"PK\x01\x02", b"PK\x06\x06")
_TAIL = _END.size + 0xFFFF
_ORT_MAGIC = b"ORTM"  # by which onnxruntime tells its own format in bytes that it is given


def refuse_second_container(data: bytes | mmap.mmap, kind: str) -> None:
    """Refuse a file whose bytes are also those of another container.

    Args:
        data: all bytes of the file.
        kind: the format it was taken for, as `sniff` names it.

    Raises:
        CorruptFileError: it is a tar to Python's tarfile, a zip to a reader that starts from the
            end, or onnxruntime's own format, and was taken for something else.
    """
    claims = {
        "tar": _is_tar(data[: tarfile.BLOCKSIZE]),
        "zip": _ends_as_zip(data),
        "ORT model": data[4:8] == _ORT_MAGIC,
    }
    for container, claimed in claims.items():
        if claimed and container not in kind:
            raise CorruptFileError(
                f"the file is {_with_article(kind)} and {_with_article(container)} in one, which"
                " programs read differently; expected one of them, so save the model again"
            )


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'AO' else 'a'} {name}"


def _is_tar(head: bytes) -> bool:
    """Whether Python's tarfile, which torch.load asks, would read the first header."""
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return False
    return True


def _ends_as_zip(data: bytes | mmap.mmap) -> bool:
    """Whether one of the end records in the tail points to a directory of members.

    The place of a directory counts from the beginning of the file for some readers, and back from
    the end record for those that allow for bytes before the zip.
    """
    position = data.rfind(_END_MAGIC, max(0, len(data) - _TAIL))
    while position >= 0:
        if len(data) - position >= _END.size and _has_directory(data, position):
            return True
        position = data.rfind(_END_MAGIC, max(0, len(data) - _TAIL), position)
    return False


def _has_directory(data: bytes | mmap.mmap, end: int) -> bool:
    _, _, _, _, count, size, start, _ = _END.unpack(data[end : end + _END.size])
    if data[max(0, end - 20) : end].startswith(b"PK\x06\x07"):
        return True
    places = (start, end - size)
    return bool(count) and any(
        data[place : place + 4] in _DIRECTORY_MAGIC for place in places if place >= 0
    )
