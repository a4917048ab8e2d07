"""stdout and stderr that may be closed, full, or left by their reader while a command works.

What cannot be said on stderr is dropped: a message is no reason to stop. The first result that
cannot be written to stdout raises `OutputError`, those after it are dropped; a command whose
results are also in files catches it and goes on.
"""

import errno
import io
import os
import select
import sys
from typing import TextIO

_STDIN, _STDOUT, _STDERR = range(3)


class OutputError(OSError):
    """stdout takes no more results; `errno` says why (`EPIPE`: its reader has gone)."""

    @property
    def reader_has_gone(self) -> bool:
        """Whether a reader, such as `head`, closed its end of the pipe."""
        return self.errno == errno.EPIPE


class _Guarded(io.RawIOBase):
    """A file descriptor whose first failed write is noted, and the last that reaches it."""

    def __init__(self, descriptor: int, raises: bool):
        self._descriptor, self._raises = descriptor, raises
        self.error: OutputError | None = None

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        if self.error is not None:
            return len(data)
        try:
            return _write(self._descriptor, data)
        except OSError as error:
            self.error = OutputError(error.errno, os.strerror(error.errno or 0))
            if self._raises:
                raise self.error from error
            return len(data)


def _write(descriptor: int, data) -> int:
    while True:
        try:
            return os.write(descriptor, data)
        except BlockingIOError:  # someone who shares the terminal set it to not blocking
            select.select([], [descriptor], [])


def guard() -> None:
    """Put guarded streams in the place of stdout and stderr; a closed one leads to /dev/null.

    A closed descriptor is taken at once: the next file that is opened would get its number, and
    what is printed. Streams that somebody else put there, such as tests, stay as they are.
    """
    for descriptor in (_STDIN, _STDOUT, _STDERR):
        _occupy(descriptor)
    sys.stdout = _guarded(sys.stdout, _STDOUT, raises=True)
    sys.stderr = _guarded(sys.stderr, _STDERR, raises=False)


def stdout_error() -> OutputError | None:
    """What went wrong with stdout, if anything did."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.error if isinstance(raw, _Guarded) else None


def _occupy(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != descriptor:
            os.dup2(opened, descriptor)
            os.close(opened)
        os.set_inheritable(descriptor, True)


def _guarded(stream: TextIO | None, descriptor: int, raises: bool) -> TextIO:
    if isinstance(stream, io.TextIOWrapper) and _is_plain(stream):
        encoding, by_line = stream.encoding, stream.line_buffering or stream.write_through
    elif stream is None:
        encoding, by_line = "utf-8", True
    else:
        return stream
    raw = _Guarded(descriptor, raises)
    # A name that the terminal's encoding lacks is shown escaped, not a crash.
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=encoding,
        errors="backslashreplace",
        line_buffering=by_line,
    )


def _is_plain(stream: TextIO) -> bool:
    """Whether a stream is Python's own over a file descriptor; unbuffered ones have no `raw`."""
    return isinstance(getattr(stream.buffer, "raw", stream.buffer), io.FileIO)
