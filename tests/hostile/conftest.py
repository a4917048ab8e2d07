"""Containers around hand-written pickles without torch, and a process with it."""

import io
import pickle
import struct
import tarfile
import zipfile

import pytest

MAGIC = 0x1950A86A20F9469CFC6C


def zip_around(pickled: bytes, root: str = "archive", storages: dict[str, bytes] | None = None):
    """A torch zip with the given ``data.pkl``."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(f"{root}/data.pkl", pickled)
        archive.writestr(f"{root}/byteorder", "little")
        for key, content in (storages or {}).items():
            archive.writestr(f"{root}/data/{key}", content)
        archive.writestr(f"{root}/version", "3\n")
    return out.getvalue()


def legacy_around(pickled: bytes, storages: dict[str, tuple[int, bytes]] | None = None) -> bytes:
    """A legacy stream with the given object pickle; storages are (numel, bytes)."""
    storages = storages or {}
    head = [MAGIC, 1001, {"protocol_version": 1001, "little_endian": True}]
    parts = [pickle.dumps(value, 2) for value in head]
    parts += [pickled, pickle.dumps(list(storages), 2)]
    parts += [struct.pack("<q", numel) + content for numel, content in storages.values()]
    return b"".join(parts)


def tar_around(pickled: bytes) -> bytes:
    """A legacy tar with the given object pickle, without tensors."""
    out = io.BytesIO()
    members = {
        "sys_info": pickle.dumps({}, 2),
        "pickle": pickled,
        "tensors": pickle.dumps(0, 2),
        "storages": pickle.dumps(0, 2) + pickle.dumps([], 2),
    }
    with tarfile.open(fileobj=out, mode="w:", format=tarfile.PAX_FORMAT) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


CONTAINERS = {
    "zip": zip_around,
    "zip-other-root": lambda pickled: zip_around(pickled, "Net.pt"),
    "legacy": legacy_around,
    "tar": tar_around,
    "bare": lambda pickled: pickled,
}


@pytest.fixture(params=sorted(CONTAINERS))
def container(request):
    """Each container in turn, as a function from pickle bytes to file bytes."""
    return CONTAINERS[request.param]


@pytest.fixture
def make_zip():
    return zip_around


@pytest.fixture
def make_legacy():
    return legacy_around


@pytest.fixture(scope="session")
def runtime(tmp_path_factory):
    """torch in a process of its own, which shows what it reads."""
    from benchmarks.reading.differential.runtime import Runtime

    with Runtime(tmp_path_factory.mktemp("runtime")) as process:
        yield process
