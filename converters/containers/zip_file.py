"""A strict zip reader over bytes in memory.

Torch writes plain archives, so everything unusual is refused: encryption, duplicate or
overlapping members, odd names, sizes that disagree. What two readers could see differently is
refused too: names that differ only in case (torch's reader, miniz, compares them without), bytes
that belong to no member, a directory that does not end where the end record begins. All sizes are
checked before any member is expanded. Layout: PKWARE APPNOTE 6.3.10, sections 4.3.7 to 4.3.16.
"""

import struct
import zlib
from dataclasses import dataclass

from converters.errors import CorruptFileError, TooLargeError, safe_repr
from converters.limits import Limits

_LOCAL = struct.Struct("<IHHHHHIIIHH")
_CENTRAL = struct.Struct("<IHHHHHHIIIHHHHHII")
_END = struct.Struct("<IHHHHIIH")
_END64 = struct.Struct("<IQHHIIQQQQ")
_LOCATOR64 = struct.Struct("<IIQI")
_LOCAL_MAGIC, _CENTRAL_MAGIC = 0x04034B50, 0x02014B50
_END_MAGIC, _END64_MAGIC, _LOCATOR64_MAGIC = 0x06054B50, 0x06064B50, 0x07064B50
_ENCRYPTED = 0x0001 | 0x0040 | 0x2000  # encrypted, strongly encrypted, masked headers
_SIZES_FOLLOW = 0x0008
_STORED, _DEFLATED = 0, 8
# Lengths of a data descriptor, without and with its magic, and with 64-bit sizes.
_DESCRIPTORS = (12, 16, 20, 24)
# miniz keeps 511 bytes of a name.
_LONGEST_NAME = 511
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF


@dataclass(frozen=True)
class Member:
    """One file of the archive: sizes in bytes, ``offset`` of its local header."""

    name: str
    method: int
    crc: int
    packed: int
    size: int
    offset: int
    start: int

    @property
    def stored(self) -> bool:
        """Whether the content lies in the file as it is."""
        return self.method == _STORED


class ZipReader:
    """Members of a zip archive by name; see the module for what is refused."""

    def __init__(self, data: bytes, limits: Limits):
        self.data = data
        self.members: dict[str, Member] = {}
        self._lowered: dict[bytes, str] = {}
        count, start, size = _directory(data)
        if not count:
            raise CorruptFileError("the zip has no members")
        if count > limits.members:
            raise TooLargeError(f"{count} zip members, more than Limits.members = {limits.members}")
        position = start
        for _ in range(count):
            member, position = _member(data, position, start + size)
            if member.name in self.members:
                raise CorruptFileError(f"zip member {safe_repr(member.name)} appears twice")
            self.members[member.name] = member
        self._check_case()
        if position != start + size:
            raise CorruptFileError("the zip directory is longer than its entries")
        _check_layout(data, sorted(self.members.values(), key=lambda m: m.offset), start)
        self._check_expansion(limits)

    def _check_case(self) -> None:
        """Refuse two names that miniz, which lowers A to Z, takes for one."""
        for name in self.members:
            other = self._lowered.setdefault(name.encode().lower(), name)
            if other != name:
                raise CorruptFileError(
                    f"zip members {safe_repr(other)} and {safe_repr(name)} differ only in case; "
                    "some readers, such as torch's, may read either"
                )

    def find(self, name: str) -> Member | None:
        """The member of this name, or None.

        Raises:
            CorruptFileError: there is one whose name differs in case, which torch would read.
        """
        member = self.members.get(name)
        if member is None and name.encode().lower() in self._lowered:
            raise CorruptFileError(
                f"zip member {safe_repr(name)} is written in other case; torch would read it"
            )
        return member

    def _check_expansion(self, limits: Limits) -> None:
        total = sum(member.size for member in self.members.values())
        allowed = max(limits.expansion_ratio * len(self.data), limits.free_expansion_bytes)
        if total > min(allowed, limits.file_bytes):
            raise TooLargeError(
                f"the zip of {len(self.data)} bytes expands to {total}; at most "
                f"{min(allowed, limits.file_bytes)} are read (Limits.expansion_ratio, file_bytes)"
            )

    def read(self, name: str) -> memoryview:
        """Bytes of a member; a stored one shares the memory of the file.

        Raises:
            CorruptFileError: missing, damaged, or not of the size it declares.
        """
        member, content = self._packed(name)
        if member.method == _DEFLATED:
            content = memoryview(_inflate(content, member))
        # Torch writes a checksum of 0 when told not to compute any.
        if member.crc and zlib.crc32(content) != member.crc:
            raise CorruptFileError(f"zip member {safe_repr(name)} does not match its checksum")
        return content

    def head(self, name: str, most: int) -> bytes:
        """The first bytes of a member, at most so many; only `read` looks at its checksum.

        Raises:
            CorruptFileError: missing or damaged.
        """
        member, content = self._packed(name)
        if member.method == _DEFLATED:
            return _expanded(zlib.decompressobj(-zlib.MAX_WBITS), content, member, most)
        return bytes(content[:most])

    def _packed(self, name: str) -> tuple[Member, memoryview]:
        """A member and its bytes as they lie in the archive."""
        member = self.members.get(name)
        if member is None:
            raise CorruptFileError(f"the zip has no member {safe_repr(name)}")
        return member, memoryview(self.data)[member.start : member.start + member.packed]


def _inflate(packed: memoryview, member: Member) -> bytes:
    """Expand at most one byte more than declared, to notice a lie without paying for it."""
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    content = _expanded(stream, packed, member, member.size + 1)
    if len(content) != member.size or not stream.eof or stream.unused_data:
        raise CorruptFileError(
            f"zip member {safe_repr(member.name)} is not {member.size} bytes long"
        )
    return content


def _expanded(stream: "zlib._Decompress", packed: memoryview, member: Member, most: int) -> bytes:
    try:
        return stream.decompress(packed, most)
    except zlib.error as error:
        raise CorruptFileError(
            f"zip member {safe_repr(member.name)} is damaged: {error}"
        ) from error


def _unpack(layout: struct.Struct, data: bytes, position: int, magic: int, what: str) -> tuple:
    if not 0 <= position <= len(data) - layout.size:
        raise CorruptFileError(f"the zip is truncated: no room for {what} at byte {position}")
    values = layout.unpack_from(data, position)
    if values[0] != magic:
        raise CorruptFileError(f"the zip has no {what} at byte {position}")
    return values[1:]


def _directory(data: bytes) -> tuple[int, int, int]:
    """Number of entries, position and length in bytes of the central directory."""
    end = data.rfind(_END_MAGIC.to_bytes(4, "little"), max(0, len(data) - _END.size - _FULL16))
    if end < 0:
        raise CorruptFileError("the zip has no end record; the file is truncated")
    disk, start_disk, here, count, size, start, comment = _unpack(
        _END, data, end, _END_MAGIC, "end record"
    )
    if end + _END.size + comment != len(data):
        raise CorruptFileError("bytes follow the end record of the zip")
    limit = end
    if end >= _LOCATOR64.size and data[end - _LOCATOR64.size :][:4] == b"PK\x06\x07":
        saved = (count, size, start)
        limit, count, size, start = _directory64(data, end - _LOCATOR64.size)
        for short, full, top in zip(
            saved, (count, size, start), (_FULL16, _FULL32, _FULL32), strict=True
        ):
            if short not in (full, top):
                raise CorruptFileError("the two end records of the zip disagree")
    elif here != count or disk or start_disk:
        raise CorruptFileError("the zip is one part of several")
    if start + size != limit:
        raise CorruptFileError(
            f"the zip directory ends at byte {start + size}, expected {limit}, where its end "
            "record begins"
        )
    return count, start, size


def _directory64(data: bytes, locator: int) -> tuple[int, int, int, int]:
    """Position of the zip64 end record, then entries, length and position of the directory."""
    _, position, _ = _unpack(_LOCATOR64, data, locator, _LOCATOR64_MAGIC, "zip64 locator")
    record = _unpack(_END64, data, position, _END64_MAGIC, "zip64 end record")
    _, _, _, disk, start_disk, here, count, size, start = record
    if disk or start_disk or here != count:
        raise CorruptFileError("the zip is one part of several")
    if position + _END64.size != locator:
        raise CorruptFileError("bytes lie between the two zip64 end records")
    return position, count, size, start


def _member(data: bytes, position: int, end: int) -> tuple[Member, int]:
    """The directory entry at ``position`` and the position of the next."""
    entry = _unpack(_CENTRAL, data, position, _CENTRAL_MAGIC, "directory entry")
    flags, method, crc, packed, size = entry[2], entry[3], entry[6], entry[7], entry[8]
    name_length, extra_length, comment_length, offset = entry[9], entry[10], entry[11], entry[15]
    after_name = position + _CENTRAL.size + name_length
    following = after_name + extra_length + comment_length
    if following > end:
        raise CorruptFileError("the zip directory is truncated")
    raw_name = data[after_name - name_length : after_name]
    name = _checked_name(raw_name)
    size, packed, offset = _wide(data[after_name : after_name + extra_length], size, packed, offset)
    if flags & _ENCRYPTED:
        raise CorruptFileError(f"zip member {safe_repr(name)} is encrypted; decrypt the file first")
    if method not in (_STORED, _DEFLATED) or (method == _STORED and packed != size):
        raise CorruptFileError(f"zip member {safe_repr(name)}: unsupported compression {method}")
    start = _content_start(data, offset, raw_name, entry)
    return Member(name, method, crc, packed, size, offset, start), following


def _checked_name(raw: bytes) -> str:
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"zip member name {ascii(raw[:80])} is not UTF-8") from error
    parts = name.rstrip("/").split("/")
    if len(raw) > _LONGEST_NAME:
        raise CorruptFileError(f"a zip member name of {len(raw)} bytes, expected {_LONGEST_NAME}")
    if "\0" in name or "\\" in name or any(part in ("", ".", "..") for part in parts):
        raise CorruptFileError(f"zip member name {safe_repr(name)} is not a plain relative path")
    return name


def _wide(extra: bytes, *values: int) -> tuple[int, ...]:
    """Size, packed size and offset, with 64-bit values from the extra field where needed."""
    if _FULL32 not in values:
        return values
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, position)
        if kind == 1:
            return _widened(extra[position + 4 : position + 4 + length], length, values)
        position += 4 + length
    raise CorruptFileError("a zip entry misses its 64-bit sizes")


def _widened(record: bytes, length: int, values: tuple[int, ...]) -> tuple[int, ...]:
    """The values, those that did not fit replaced by the 64-bit ones of the record."""
    needed = 8 * values.count(_FULL32)
    if len(record) < length or length < needed:
        raise CorruptFileError(
            f"a zip entry has {len(record)} bytes of 64-bit sizes and says {length}, expected "
            f"{needed} or more"
        )
    wide = iter(struct.unpack_from(f"<{needed // 8}Q", record))
    return tuple(next(wide) if value == _FULL32 else value for value in values)


def _content_start(data: bytes, offset: int, raw_name: bytes, entry: tuple) -> int:
    """Position of the content; the local header must agree with the directory's entry."""
    header = _unpack(_LOCAL, data, offset, _LOCAL_MAGIC, "member header")
    flags, name_length, extra_length = header[1], header[8], header[9]
    start = offset + _LOCAL.size
    # Checksum and sizes follow the content where the flag says so.
    agree = flags & _SIZES_FOLLOW or all(
        local in (central, _FULL32) for local, central in zip(header[5:8], entry[6:9], strict=True)
    )
    if data[start : start + name_length] != raw_name or header[2] != entry[3] or not agree:
        raise CorruptFileError(
            f"zip member {ascii(raw_name)[:80]} disagrees with the directory of the zip"
        )
    if flags & _ENCRYPTED:
        raise CorruptFileError(f"zip member {ascii(raw_name)[:80]} is encrypted; decrypt it first")
    return start + name_length + extra_length


def _check_layout(data: bytes, members: list[Member], directory: int) -> None:
    """Members fill the file from its first byte to the directory.

    Only a data descriptor may follow the content of a member, so that no reader that goes through
    the file from its beginning meets members that the directory does not name.
    """
    if members[0].offset:
        raise CorruptFileError(f"{members[0].offset} bytes lie before the first member of the zip")
    starts = [member.offset for member in members[1:]] + [directory]
    for member, following in zip(members, starts, strict=True):
        end = member.start + member.packed
        if end > following:
            raise CorruptFileError(f"zip member {safe_repr(member.name)} overlaps what follows it")
        left = following - end
        if left and left not in _DESCRIPTORS or data[end : end + 4] == b"PK\x03\x04" and left:
            raise CorruptFileError(
                f"{left} bytes that belong to no member follow the zip member "
                f"{safe_repr(member.name)}"
            )
