"""Writing whole files or nothing; reading JSON that may come from anywhere."""

import errno
import json
import os
import secrets
import select
import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from converters.errors import CorruptFileError, LoadError, TooLargeError, safe_repr

_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_MOST_LINKS = 40  # as Linux follows
MOST_LEVELS = 100
"""How deep lists and objects of a JSON file may lie in each other; useful ones need ten."""


def kind_of(mode: int) -> str:
    """What a file of this mode (`os.stat`) is, in words.

    >>> kind_of(os.stat(os.devnull).st_mode)
    'a device'
    """
    return _KINDS.get(stat.S_IFMT(mode), "no regular file")


def what_is(path: str | os.PathLike[str]) -> str:
    """What a path leads to, for messages: "a folder", "absent", "unreadable (...)".

    >>> what_is("/dev/null"), what_is("/nowhere")
    ('a device', 'absent')
    """
    try:
        return kind_of(os.stat(path).st_mode)
    except FileNotFoundError:
        return "a symbolic link to nothing" if os.path.islink(path) else "absent"
    except OSError as error:
        return f"unreadable ({error.strerror or error})"
    except ValueError as error:  # a path with a null byte
        return f"no path ({error})"


def leads_out(path: Path, folder: Path) -> bool:
    """Whether a path in a folder leads out of it, as a link may."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def read_plain(path: str | os.PathLike[str], most: int) -> bytes:
    """The first `most` bytes of a regular file; a pipe or a device is not waited for.

    Raises OSError, whose `strerror` says what the path is if that is the fault.
    """
    with open_plain(path) as file:
        return file.read(most)


def open_plain(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file, opened to read as `read_plain` does it; raises the same."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, f"it is {kind_of(mode)}, expected a file", str(path))
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def write_atomic(path: Path, data: bytes) -> None:
    """Write a whole file or nothing: parents are made, readers never see a part.

    A device, a pipe or an open file of this process, such as /dev/null or /dev/stdout, is written
    to and never replaced by a file. Links to plain files are replaced, not followed.
    Raises OSError if it cannot be written; a pipe that nobody reads cannot.
    """
    special = _open_special(path)
    if special is not None:
        with open(special, "wb", buffering=0):
            _write_all(special, data)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    # A link with that name, which could lead to any file, is not opened.
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_over(path: Path, data: bytes) -> None:
    """Write a few bytes into a plain file that is there, for places where none can be replaced.

    Its old content is cut after the new is written, so that it is empty at no time. A link is not
    followed. Raises OSError.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    with open(descriptor, "wb", buffering=0) as file:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, f"it is {kind_of(mode)}, expected a file", str(path))
        _write_all(descriptor, data)
        file.truncate(len(data))
        os.fsync(descriptor)


def _open_special(path: Path) -> int | None:
    """A new descriptor of what is written to as it is; None for what a file takes the place of."""
    number = _own_descriptor(path)
    if number is not None:
        return os.dup(number)  # goes on where the file stands, as `> FILE` and `>> FILE` need it
    if path.exists() and not (path.is_file() or path.is_dir()):
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    return None


def _own_descriptor(path: Path) -> int | None:
    """Number of the open file that a path such as /dev/stdout, or a link to it, stands for."""
    folders = {os.path.realpath("/dev/fd"), os.path.realpath("/proc/self/fd")}
    for _ in range(_MOST_LINKS):
        if path.name.isdecimal() and os.path.realpath(path.parent) in folders:
            return int(path.name) if path.exists() else None
        if not path.is_symlink():
            return None
        path = path.parent / os.readlink(path)
    return None


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # the pipe is full
            select.select([], [descriptor], [])


def read_at_most(path: Path, most: int) -> bytes:
    """A regular file's bytes.

    Raises:
      LoadError: missing, or no regular file.
      TooLargeError: of more than `most` bytes.
    """
    try:
        # Of a file that says that it is larger nothing is read; it may be larger than it says.
        is_large = os.stat(path).st_size > most
        data = b"" if is_large else read_plain(path, most + 1)
    except OSError as error:
        raise LoadError(f"cannot read {path}: {error.strerror}; check the path") from error
    if is_large or len(data) > most:
        raise TooLargeError(f"{path} is larger than {most} bytes")
    return data


def strict_json(text: str | bytes) -> Any:
    """JSON that can be read in one way only: names stand once, and there is no NaN or Infinity.

    Python's reader takes both, and the last of equal names. For files that decide answers; those
    of other programs (configurations of networks) may hold such numbers. A number too large for a
    float, such as 1e999, is read as infinity all the same.

    Raises:
      ValueError: it is no such JSON, or nested deeper than `MOST_LEVELS`.
      RecursionError: it is nested far deeper.

    >>> strict_json('{"a": [1, 0.5]}')
    {'a': [1, 0.5]}
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    value = _STRICT.decode(text)
    if text.count("[") + text.count("{") > MOST_LEVELS:  # else it cannot be nested so deeply
        check_depth(value)
    return value


def check_depth(value: Any) -> None:
    """Raise ValueError where lists and objects are nested deeper than `MOST_LEVELS`.

    Python's reader stops by the depth of its own stack. What it reads just before that, whoever
    compares or writes it from deeper in a program cannot.

    >>> check_depth({"a": [1, 0.5]})
    """
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        level = [part for part in level if isinstance(part, dict | list)]
        if not level:
            return
        inner = (part.values() if isinstance(part, dict) else part for part in level)
        level = [x for parts in inner for x in parts]
    raise ValueError(f"lists and objects are nested deeper than {MOST_LEVELS} levels")


def once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON whose names differ, for `object_pairs_hook`; raises ValueError."""
    values = dict(pairs)
    if len(values) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the name {safe_repr(twice)} stands twice in an object, expected once")
    return values


def _no_constant(name: str) -> float:
    raise ValueError(f"holds {name}, expected finite numbers")


# Made once: it costs as much as reading a small object.
_STRICT = json.JSONDecoder(object_pairs_hook=once_each, parse_constant=_no_constant)


def read_json(path: Path, most: int, parse: Callable[[bytes], Any] = json.loads) -> dict[str, Any]:
    """A JSON object of at most `most` bytes; `parse` is `json.loads` or `strict_json`.

    Raises:
      LoadError: missing, no regular file, larger, no JSON object, or one that is nested deeper than
        `MOST_LEVELS`.
    """
    try:
        value = parse(read_at_most(path, most))
        check_depth(value)
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{path} is not JSON: {str(error)[:200]}") from error
    if not isinstance(value, dict):
        raise CorruptFileError(f"{path} holds {safe_repr(value)}, expected a JSON object")
    return value
