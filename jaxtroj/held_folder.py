"""A folder that one process writes at a time, always with the same settings, and never half a line.

Run folders, challenge folders, banks and generated rounds are made of these steps: claim a folder,
hold its lock, agree on the settings, cut off what a crash tore, add whole pieces.
"""

import errno
import fcntl
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from converters.files import read_plain, strict_json, what_is, write_atomic
from jaxtroj.errors import HeldError, StoreError

MOST_JSON_BYTES = 2**26
"""Of a folder's settings, or of what is kept of its sessions; a larger file is damaged."""
LOCK = "lock"
"""Name of the file that is held; the system frees it when the process ends, however it ends."""


def claim_folder(folder: Path, marker: str, kind: str) -> None:
    """Make a folder, or check that it is empty or holds `marker`; hidden files do not count.

    Args:
        folder: made with its parents if absent.
        marker: name of the file that every folder of this kind has, such as `settings.json`.
        kind: what such a folder is called in messages.

    Raises:
        StoreError: it holds something else, or cannot be made or read.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = folder.iterdir()
        names = {path.name for path in paths if not path.name.startswith(".")} - {LOCK}
    except OSError as error:
        raise StoreError(f"cannot use {folder} as {kind}: {error.strerror or error}") from error
    if names and marker not in names:
        raise StoreError(
            f"{folder} is not empty and not a {kind} (it has no {marker}); name a new folder"
        )


def hold(folder: Path, wait: bool = False, name: str = LOCK) -> IO[bytes]:
    """The folder's lock; close it to let go.

    Args:
        folder: must exist.
        wait: wait until the holder lets go, instead of raising.
        name: of the file that is held.

    Raises:
        HeldError: another process holds it.
        StoreError: the lock cannot be written, as on a full disk, or is no plain file, or the disk
            knows no locks.
    """
    is_new = not os.path.lexists(folder / name)
    try:
        file = open_own(folder / name)
    except OSError as error:
        raise StoreError(f"cannot write in {folder}: {error.strerror or error}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        file.truncate(0)
        file.write(b"%d\n" % os.getpid())
    except BlockingIOError as error:
        file.seek(0)
        holder = file.read(32).decode("ascii", "replace").strip()
        file.close()
        raise HeldError(
            f"another process ({holder or 'unknown'}) is writing to {folder}; wait for it or name"
            " another folder"
        ) from error
    except OSError as error:
        if is_new:  # an empty lock is of no use to anybody
            (folder / name).unlink(missing_ok=True)
        file.close()
        raise StoreError(_why_not_held(folder, error)) from error
    return file


def _why_not_held(folder: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"cannot write in {folder}: {error.strerror}; make room on this disk, or name a folder"
            " on another one"
        )
    return f"cannot lock {folder}: {error.strerror or error}; name a folder on another disk"


def open_own(path: Path) -> IO[bytes]:
    """A file of the folder, made if absent, to read and to append to, without a buffer.

    Links are not followed: a folder of somebody else could lead to any file of the user.

    Raises:
        StoreError: it is a link or no plain file.
        OSError: it cannot be opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0)
    if not path.is_symlink():
        descriptor = os.open(path, flags, 0o666)
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            return open(descriptor, "a+b", buffering=0)
        os.close(descriptor)
    raise _no_plain_file(path)


def read_own(path: Path) -> bytes | None:
    """The start of a small file of the folder, `MOST_JSON_BYTES` at most; None where there is none.

    Links are not followed, and a pipe is not waited for.

    Raises:
        StoreError: it is a link or no plain file.
        OSError: it cannot be read.
    """
    if path.is_symlink() or path.exists() and not path.is_file():
        raise _no_plain_file(path)
    return read_plain(path, MOST_JSON_BYTES) if path.exists() else None


def _no_plain_file(path: Path) -> StoreError:
    found = "a symbolic link" if path.is_symlink() else what_is(path)
    return StoreError(f"{path} is {found}, expected a plain file; remove it or name another folder")


def agree(path: Path, settings: Mapping[str, Any], remedy: str = "name another folder") -> None:
    """Write a folder's settings if it has none yet, else check that they are the same.

    Args:
        path: the JSON file.
        settings: JSON values.
        remedy: what to do where they differ, besides taking the same settings.

    Raises:
        StoreError: the stored settings differ, all of them named, or are damaged or no plain file.
        OSError: the file cannot be read or written.
    """
    wanted = json.loads(json.dumps(dict(settings), allow_nan=False))
    stored = read_own(path)
    if stored is None:
        write_atomic(path, json_bytes(wanted))
        return
    try:
        differ = differences(strict_json(stored), wanted)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise StoreError(f"{path} is damaged ({error}); {remedy}") from error
    if differ:
        raise StoreError(
            f"{path.parent} was made with other settings: {'; '.join(differ)}. Use the same"
            f" settings, or {remedy}"
        )


def differences(
    stored: Mapping[str, Any], wanted: Mapping[str, Any], prefix: str = ""
) -> list[str]:
    """Settings that differ, each in words; those of objects by their own names.

    >>> differences({"seed": 0, "train": {"steps": 5}}, {"seed": 1, "train": {"steps": 5}})
    ['seed was 0, now 1']
    >>> differences({"rate": float("nan")}, {"rate": float("nan")})  # one value, though unequal
    []
    """
    lines = []
    for name in sorted(stored.keys() | wanted.keys()):
        old, new = stored.get(name), wanted.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            lines += differences(old, new, f"{prefix}{name}.")
        elif old != new and (old == old or new == new):
            lines.append(f"{prefix}{name} was {old!r}, now {new!r}")
    return lines


def cut_tail(path: Path, end: int) -> None:
    """Cut a file off after its last whole piece; what a killed process tore is lost.

    Raises:
        OSError: it cannot be written.
    """
    if path.exists() and path.stat().st_size > end:
        os.truncate(path, end)


def add_whole(file: IO[bytes], data: bytes) -> int:
    """Append all of `data`, or nothing; returns where it begins.

    A full disk takes a part and then complains: that part is cut off again. `file` is opened for
    appending, without a buffer.

    Raises:
        OSError: it cannot be written.
    """
    end = file.seek(0, os.SEEK_END)
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        file.truncate(end)
        raise
    return end


def json_bytes(values: Any) -> bytes:
    """JSON for a file that people read too: sorted, indented, no NaN."""
    return json.dumps(values, indent=2, sort_keys=True, allow_nan=False).encode() + b"\n"
