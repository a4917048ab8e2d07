"""Mutations of files: members of zips, parts of streams, headers, and two containers in one."""

import io
import json
import pickle
import pickletools
import struct
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

Random = np.random.Generator
Members = list[tuple[str, bytes]]


def mutate(content: bytes, others: list[bytes], random: Random) -> tuple[bytes, str]:
    """A file with one change to its container, and the name of the change.

    Args:
      content: zip, legacy stream, tar or safetensors.
      others: files that may be spliced with it.
      random: of this mutant.
    """
    if random.random() < 0.12:
        return _splice(content, others, random), "splice"
    if content.startswith(b"PK"):
        return _zip(content, random)
    if content[8:9] == b"{":
        change = HEADERS[int(random.integers(len(HEADERS)))]
        return _header(content, change, random), change.__name__.strip("_")
    change = STREAMS[int(random.integers(len(STREAMS)))]
    return change(content, random), change.__name__.strip("_")


def _splice(content: bytes, others: list[bytes], random: Random) -> bytes:
    other = others[int(random.integers(len(others)))]
    kind = int(random.integers(6))
    if kind == 0:
        return content + other
    if kind == 1:
        return other + content
    if kind == 2 and other.startswith(b"PK"):
        out = io.BytesIO(content)
        out.seek(0, 2)
        with zipfile.ZipFile(io.BytesIO(other)) as source, zipfile.ZipFile(out, "a") as target:
            for name in source.namelist():
                target.writestr(name, source.read(name))
        return out.getvalue()
    if kind == 3:
        return content + bytes(int(random.integers(1, 600)))
    if kind == 4:
        return content[: 512 * int(random.integers(1, 4))] + other
    head = bytearray(content[:512].ljust(512, b"\0"))
    head[124:136], head[148:156] = b"%011o\0" % 0, b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + (content[512:] if random.random() < 0.5 else other)


# -- zip ------------------------------------------------------------------------------------------


def _zip(content: bytes, random: Random) -> tuple[bytes, str]:
    with zipfile.ZipFile(io.BytesIO(content)) as source:
        members = [(info.filename, source.read(info)) for info in source.infolist()]
    change = ZIPS[int(random.integers(len(ZIPS)))]
    members = change(members, random)
    packing = np.where(np.asarray(random.random(len(members))) < 0.1, 8, 0)
    packing = packing if random.random() < 0.15 else packing * 0
    wide = random.random() < 0.1
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as target:
        warnings.simplefilter("ignore")
        for (name, data), method in zip(members, packing, strict=True):
            info = zipfile.ZipInfo(name)
            info.compress_type = int(method)
            with target.open(info, "w", force_zip64=wide) as member:
                member.write(data)
        if random.random() < 0.05:
            target.comment = b"a comment"
    made = out.getvalue()
    if random.random() < 0.1:
        made = _zip_bytes(made, random)
    return made, f"zip {change.__name__.strip('_')}"


def _zip_bytes(content: bytes, random: Random) -> bytes:
    """A field of a local or central header takes another value."""
    changed = bytearray(content)
    magic, fields = ((b"PK\x03\x04", 30), (b"PK\x01\x02", 46))[int(random.integers(2))]
    places = [k for k in range(len(content)) if content.startswith(magic, k)]
    if places:
        place = places[int(random.integers(len(places)))]
        changed[place + int(random.integers(4, fields + 10))] = int(random.choice((0, 1, 8, 65)))
    return bytes(changed)


def _one(members: Members, random: Random, part: str = "") -> int:
    found = [k for k, (name, _) in enumerate(members) if part in name] or [0]
    return found[int(random.integers(len(found)))]


def _reorder(members: Members, random: Random) -> Members:
    return [members[k] for k in random.permutation(len(members))]


def _rename(members: Members, random: Random) -> Members:
    at = _one(members, random)
    name, data = members[at]
    names = (
        *(name.upper(), name.lower(), name.replace("/", "//"), f"x/{name}", f"./{name}"),
        *(name.partition("/")[2], name + "/", name.replace("/", "\\"), name + "\0x"),
        name.replace("data", "Data"),
    )
    return [*members[:at], (names[int(random.integers(len(names)))], data), *members[at + 1 :]]


def _duplicate(members: Members, random: Random) -> Members:
    name, data = members[_one(members, random)]
    other = members[_one(members, random)][1] if random.random() < 0.5 else data
    name = name.upper() if random.random() < 0.4 else name
    at = int(random.integers(len(members) + 1))
    return [*members[:at], (name, other), *members[at:]]


def _swap(members: Members, random: Random) -> Members:
    """Two members of one size exchange their content."""
    one = _one(members, random, "/data/")
    alike = [k for k, (_, d) in enumerate(members) if len(d) == len(members[one][1])]
    two = alike[int(random.integers(len(alike)))]
    changed = list(members)
    changed[one] = (members[one][0], members[two][1])
    changed[two] = (members[two][0], members[one][1])
    return changed


def _settings(members: Members, random: Random) -> Members:
    """A record that says how to read takes another value, comes or goes."""
    root = members[0][0].partition("/")[0]
    records = (
        ("byteorder", b"big"), ("byteorder", b"little\n"), ("byteorder", None),
        ("BYTEORDER", b"big"), ("version", b"10\n"), ("version", b"1"), ("version", None),
        (".data/version", b"3"), (".format_version", b"1"), (".format_version", None),
        (".storage_alignment", b"1"), (".storage_alignment", None),
        (".data/serialization_id", b"0"), ("constants.pkl", b"\x80\x02)."),
    )  # fmt: skip
    name, data = records[int(random.integers(len(records)))]
    kept = [m for m in members if m[0] != f"{root}/{name}"]
    return kept if data is None else [*kept, (f"{root}/{name}", data)]


def _root(members: Members, random: Random) -> Members:
    roots = ("other", "a/b", "Archive", "")
    root = roots[int(random.integers(len(roots)))]
    stays = int(random.integers(len(members))) if random.random() < 0.2 else None
    return [
        (n if k == stays else f"{root}/{n.partition('/')[2]}", d)
        for k, (n, d) in enumerate(members)
    ]


def _extra(members: Members, random: Random) -> Members:
    root = members[0][0].partition("/")[0]
    names = (f"{root}/extra/x", "readme", "z/data.pkl", f"{root}/sub/data.pkl", f"{root}/data/999")
    added = (names[int(random.integers(len(names)))], b"\x80\x02N.")
    return [*members, added] if random.random() < 0.6 else [added, *members]


def _pickle(members: Members, random: Random) -> Members:
    at = next(k for k, (name, _) in enumerate(members) if name.endswith("data.pkl"))
    name, data = members[at]
    return [*members[:at], (name, operations(data, random)), *members[at + 1 :]]


def _same(members: Members, random: Random) -> Members:
    return members


ZIPS: tuple[Callable[[Members, Random], Members], ...] = (
    *(_reorder, _rename, _duplicate, _swap, _swap, _settings, _settings, _root, _extra),
    *(_pickle, _pickle, _pickle, _pickle, _same),
)


# -- pickles --------------------------------------------------------------------------------------


def operations(data: bytes, random: Random) -> bytes:
    """A pickle in which two operations of one kind change places, or one changes or repeats."""
    ops = [(op, arg, place) for op, arg, place in pickletools.genops(data)]
    ends = [place for _, _, place in ops[1:]] + [len(data)]
    pieces = [data[place:end] for (_, _, place), end in zip(ops, ends, strict=True)]
    kinds = ("BINUNICODE", "BINGET", "LONG_BINGET", "BININT1", "BININT2", "BININT", "NEWTRUE")
    kind = kinds[int(random.integers(len(kinds)))]
    found = [k for k, (op, _, _) in enumerate(ops) if op.name == kind]
    if len(found) < 2:
        return data
    one, two = (found[int(k)] for k in random.integers(len(found), size=2))
    form = random.random()
    if form < 0.5:
        pieces[one], pieces[two] = pieces[two], pieces[one]
    elif form < 0.8:
        pieces[one] = pieces[two]
    elif kind.startswith("BININT"):
        changed = bytearray(pieces[one])
        changed[1] = (changed[1] + int(random.choice((1, 255)))) % 256
        pieces[one] = bytes(changed)
    elif kind == "NEWTRUE":
        pieces[one] = pickle.NEWFALSE
    else:
        pieces[one] += pieces[one] + b"0" if random.random() < 0.5 else b""
    return b"".join(pieces)


def _positions(content: bytes) -> list[int]:
    """Where the five pickles of a legacy stream begin, and where its storages do."""
    stream, places = io.BytesIO(content), [0]
    for _ in range(5):
        for _ in pickletools.genops(stream):
            pass
        places.append(stream.tell())
    return places


def _parts(content: bytes) -> tuple[list[bytes], list[bytes]] | None:
    """Pickles and storages of a legacy stream; None for another file."""
    try:
        places = _positions(content)
        keys = pickle.loads(content[places[4] : places[5]])  # of a file made here
        pickles = [content[a:b] for a, b in zip(places, places[1:], strict=False)]
        return pickles, _storages(content, places[5], len(keys), pickles[3])
    except (ValueError, IndexError, pickle.UnpicklingError, struct.error):
        return None


def _storages(content: bytes, at: int, count: int, root: bytes) -> list[bytes]:
    """Storages one by one; each is an element count and the elements, of four or eight bytes."""
    found, left = [], len(content) - at
    for number in range(count):
        (numel,) = struct.unpack_from("<q", content, at)
        size = 8 + numel * (8 if numel == 1 and left >= 16 else 4)
        size = left if number == count - 1 else size
        found.append(content[at : at + size])
        at, left = at + size, left - size
    return found


def _stream_pickle(content: bytes, random: Random) -> bytes:
    parts = _parts(content)
    if parts is None:
        return content
    pickles, storages = parts
    at = int(random.choice((3, 3, 3, 3, 4, 2)))
    pickles[at] = operations(pickles[at], random)
    return b"".join([*pickles, *storages])


def _stream_storages(content: bytes, random: Random) -> bytes:
    """Storages or their keys change places."""
    parts = _parts(content)
    if parts is None:
        return content
    pickles, storages = parts
    keys = pickle.loads(pickles[4])
    one, two = (int(k) for k in random.integers(len(keys), size=2))
    form = random.random()
    if form < 0.7:
        keys[one], keys[two] = keys[two], keys[one]
    if form > 0.4:
        storages[one], storages[two] = storages[two], storages[one]
    pickles[4] = pickle.dumps(keys, 2)
    return b"".join([*pickles, *storages])


def _stream_system(content: bytes, random: Random) -> bytes:
    parts = _parts(content)
    if parts is None:
        return content
    systems = ({"little_endian": False}, {}, None, {"little_endian": 0, "protocol_version": 1})
    system = systems[int(random.integers(len(systems)))]
    parts[0][2] = pickle.dumps(system, int(random.integers(5)))
    if random.random() < 0.2:
        parts[0][0] = pickle.dumps(0x1950A86A20F9469CFC6C, int(random.integers(5)))
    return b"".join([*parts[0], *parts[1]])


def _words(content: bytes, random: Random) -> bytes:
    """Eight bytes somewhere become those of another place: sizes and offsets of a tar's tables."""
    one, two = (8 * int(k) for k in random.integers(len(content) // 8, size=2))
    return content[:one] + content[two : two + 8] + content[one + 8 :]


def _blocks(content: bytes, random: Random) -> bytes:
    """Two blocks of a tar change places, or one comes twice."""
    blocks = [content[k : k + 512] for k in range(0, len(content), 512)]
    one, two = (int(k) for k in random.integers(len(blocks), size=2))
    if random.random() < 0.5:
        blocks[one], blocks[two] = blocks[two], blocks[one]
    else:
        blocks.insert(one, blocks[two])
    return b"".join(blocks)


STREAMS: tuple[Callable[[bytes, Random], bytes], ...] = (
    *(_stream_pickle, _stream_pickle, _stream_storages, _stream_system, _words, _blocks),
)


# -- safetensors ----------------------------------------------------------------------------------


def _header(content: bytes, change: Callable[[dict, Random], Any], random: Random) -> bytes:
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    made = change(header, random)
    raw = made if isinstance(made, bytes) else json.dumps(made).encode()
    raw += b" " * int(random.choice((0, 0, 0, 3, 8)))
    return len(raw).to_bytes(8, "little") + raw + content[8 + size :]


def _names(header: dict) -> list[str]:
    return [name for name in header if name != "__metadata__"]


def _swap_offsets(header: dict, random: Random) -> dict:
    names = _names(header)
    one, two = (names[int(k)] for k in random.integers(len(names), size=2))
    fields = ("data_offsets", "shape", "dtype")
    changed = fields[: int(random.choice((1, 2, 3)))]
    for field in changed:
        header[one][field], header[two][field] = header[two][field], header[one][field]
    return header


def _header_order(header: dict, random: Random) -> dict:
    items = list(header.items())
    return dict(items[k] for k in random.permutation(len(items)))


def _header_names(header: dict, random: Random) -> dict:
    names = _names(header)
    one, two = (names[int(k)] for k in random.integers(len(names), size=2))
    header[one], header[two] = header[two], header[one]
    if random.random() < 0.3:
        header[f"{one}é"] = header.pop(one)
    return header


def _header_twice(header: dict, random: Random) -> bytes:
    names = _names(header)
    one, two = (names[int(k)] for k in random.integers(len(names), size=2))
    entry = json.dumps({one: header[two]})[1:-1]
    place = json.dumps(header)
    return (place[:-1] + ", " + entry + "}").encode()


def _header_shape(header: dict, random: Random) -> dict:
    names = _names(header)
    entry = header[names[int(random.integers(len(names)))]]
    shape = entry["shape"]
    forms = (
        shape[::-1],
        [1, *shape],
        [*shape, 1],
        [int(np.prod(shape))],
        [float(n) for n in shape],
    )
    entry["shape"] = forms[int(random.integers(len(forms)))]
    if random.random() < 0.3:
        types = ("F32", "I32", "U32", "BF16", "F16", "F8_E4M3", "BOOL", "C64", "F4", "f32")
        entry["dtype"] = types[int(random.integers(len(types)))]
    if random.random() < 0.2:
        entry["more"] = 1
    return entry and header


def _header_offsets(header: dict, random: Random) -> dict:
    names = _names(header)
    entry = header[names[int(random.integers(len(names)))]]
    offsets = entry["data_offsets"]
    entry["data_offsets"] = [max(0, n + int(random.choice((-4, 0, 4)))) for n in offsets]
    return header


def _header_metadata(header: dict, random: Random) -> dict:
    values: tuple[Any, ...] = ({"format": "pt"}, {}, {"a": 1}, None, [], {"format": "np"})
    header["__metadata__"] = values[int(random.integers(len(values)))]
    return header


HEADERS: tuple[Callable[[dict, Random], Any], ...] = (
    *(_swap_offsets, _header_order, _header_names, _header_twice, _header_shape, _header_offsets),
    *(_header_metadata,),
)
