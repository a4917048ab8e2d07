"""Mutations of files, keyed by seed and number."""

import io
import zipfile
from collections.abc import Callable

import numpy as np

# Values that matter to parsers: lengths, signs, pickle's and protobuf's tags, JSON's brackets.
_TOKENS = (
    *(b"\x00", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f"),
    *(b"\x00" * 8, b"\xff" * 8, b"\xff" * 9 + b"\x01", b"\x80\x80\x80\x80\x10"),
    *(b"(", b")", b".", b"R", b"b", b"t", b"}", b"Q", b"\x93", b"c", b"o", b"i", b"2", b"j"),
    *(b"cos\nsystem\n", b"\x8c\x02os\x8c\x06system\x93", b"K\x00", b"J\xff\xff\xff\x7f"),
    *(b'"', b"[", b"]", b"{", b"-1", b"1e999", b"99999999999999999999", b"null", b"NaN"),
    *(b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"../../x", b"\n", b"\xe2\x80\xae"),
)


def mutated(files: dict[str, bytes], seed: int, number: int) -> tuple[str, bytes]:
    """Name of the file that input `number` is made of, and its bytes; the same at every call."""
    random = np.random.default_rng((seed, number))
    names = sorted(files)
    name = names[int(random.integers(len(names)))]
    content = files[name]
    if content.startswith(b"PK") and random.random() < 0.7:
        return name, _inside_zip(content, random)
    return name, _changed(content, random)


def _changed(content: bytes, random: np.random.Generator) -> bytes:
    for _ in range(int(random.choice((1, 1, 1, 2, 3, 8)))):
        content = _KINDS[int(random.integers(len(_KINDS)))](content, random)
    return content


def _at(content: bytes, random: np.random.Generator) -> int:
    """A place, more often near the beginning and the end, where headers are."""
    size = max(len(content), 1)
    near = min(size, 256)
    kind = random.integers(4)
    if kind == 0:
        return int(random.integers(near))
    if kind == 1:
        return size - 1 - int(random.integers(near))
    return int(random.integers(size))


def _bytes(content: bytes, random: np.random.Generator) -> bytes:
    changed = bytearray(content or b"\x00")
    for _ in range(int(random.integers(1, 5))):
        changed[_at(content, random)] = int(random.integers(256))
    return bytes(changed)


def _bit(content: bytes, random: np.random.Generator) -> bytes:
    changed = bytearray(content or b"\x00")
    changed[_at(content, random)] ^= 1 << int(random.integers(8))
    return bytes(changed)


def _token(content: bytes, random: np.random.Generator) -> bytes:
    place, token = _at(content, random), _TOKENS[int(random.integers(len(_TOKENS)))]
    removed = len(token) if random.random() < 0.5 else 0
    return content[:place] + token + content[place + removed :]


def _cut(content: bytes, random: np.random.Generator) -> bytes:
    place = _at(content, random)
    return content[:place] if random.random() < 0.3 else content[:place] + content[place + 1 :]


def _removed(content: bytes, random: np.random.Generator) -> bytes:
    place = _at(content, random)
    return content[:place] + content[place + int(random.integers(1, 64)) :]


def _copied(content: bytes, random: np.random.Generator) -> bytes:
    start, place = _at(content, random), _at(content, random)
    piece = content[start : start + int(random.integers(1, 200))]
    return content[:place] + piece * int(random.choice((1, 1, 2, 50))) + content[place:]


def _number(content: bytes, random: np.random.Generator) -> bytes:
    """Four or eight bytes as a number near a bound."""
    place, size = _at(content, random), int(random.choice((2, 4, 8)))
    value = int(random.choice((0, 1, 2**7, 2**15, 2**31 - 1))) + int(random.integers(-1, 2))
    order = "little" if random.random() < 0.7 else "big"
    raw = (value % 2 ** (8 * size)).to_bytes(size, order)
    return content[:place] + raw + content[place + size :]


_KINDS: tuple[Callable[[bytes, np.random.Generator], bytes], ...] = (
    *(_bytes, _bit, _token, _token, _cut, _removed, _copied, _number),
)


def _inside_zip(content: bytes, random: np.random.Generator) -> bytes:
    """A sound zip around a changed member, as an attacker would make it; or members changed."""
    with zipfile.ZipFile(io.BytesIO(content)) as source:
        members = [(info.filename, source.read(info)) for info in source.infolist()]
    weights = np.array([8.0 if n.endswith((".pkl", ".json", ".py")) else 1.0 for n, _ in members])
    chosen = int(random.choice(len(members), p=weights / weights.sum()))
    name, inner = members[chosen]
    kind = random.integers(8)
    if kind == 0:
        members.append((members[int(random.integers(len(members)))][0], inner))
    elif kind == 1:
        del members[chosen]
    elif kind == 2:
        members[chosen] = (_changed(name.encode(), random).decode("latin-1"), inner)
    else:
        members[chosen] = (name, _changed(inner, random))
    out = io.BytesIO()
    packing = zipfile.ZIP_DEFLATED if random.random() < 0.1 else zipfile.ZIP_STORED
    try:
        _write(out, members, packing)
    except (ValueError, OSError):  # a name that no zip can hold
        return _changed(content, random)
    return out.getvalue()


def _write(out: io.BytesIO, members: list[tuple[str, bytes]], packing: int) -> None:
    import warnings

    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", packing) as archive:
        warnings.simplefilter("ignore")  # names twice, on purpose
        for name, inner in members:
            archive.writestr(zipfile.ZipInfo(name), inner, packing)
