"""Hostile files by name, made by the tests' own makers; each as small as it can be."""

import struct
import zipfile
from collections.abc import Callable, Iterator

Made = tuple[str, str, Callable[[], bytes]]
"""Kind, name, what makes the bytes."""

_SUFFIXES = {"ONNX": ".onnx", "exported program": ".pt2", "safetensors": ".safetensors"}


def hostile_files() -> Iterator[Made]:
    """All files, those that ask for most first, and one sound network to compare with."""
    yield from _graphs()
    yield from _programs()
    yield from _pickles()
    yield from _containers()


def suffix(kind: str) -> str:
    """Of files of a kind."""
    return _SUFFIXES.get(kind, ".pt")


def _graphs() -> Iterator[Made]:
    from tests.onnx.conftest import ModelMaker
    from tests.onnx.test_costs import ABSURD, ASKING

    make = ModelMaker()
    yield "ONNX", "a sound network", lambda: make.classifier().SerializeToString()
    for name, change in {**ASKING, **ABSURD}.items():
        yield "ONNX", name, lambda change=change: change(make).SerializeToString()


def _programs() -> Iterator[Made]:
    from tests.graph.test_hostile_programs import CASES, edited, exported

    for name, (dynamic, change) in CASES.items():
        yield (
            "exported program",
            name,
            lambda dynamic=dynamic, change=change: edited(exported(dynamic), change),
        )


def _pickles() -> Iterator[Made]:
    from tests.hostile.test_pickle_bombs import EXPANDING, PICKLE_BOMBS

    for name, content in {**EXPANDING, **PICKLE_BOMBS}.items():
        yield "pickle", name, lambda content=content: content


def _containers() -> Iterator[Made]:
    from tests.hostile.test_malformed_containers import PLAIN, SAFETENSORS, safe, zipped

    member = ("m/data/1", bytes(2**28))
    yield "zip", "256 MiB of zeros", lambda: zipped([*PLAIN, member], zipfile.ZIP_DEFLATED)
    for name, (header, _) in SAFETENSORS.items():
        yield "safetensors", name, lambda header=header: safe(header)
    lists = b'{"w": [' + b"[]," * 1_300_000 + b"[]]}"
    yield "safetensors", "many lists", lambda: struct.pack("<Q", len(lists)) + lists
