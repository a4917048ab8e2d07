"""A command's body in a guarded child process: its limits, its exit status, its end with ours.

The child has our stdout and stderr where they are the process's own. It is killed when a
limit is exceeded or when this process dies; Ctrl-C ends it as it would end the body here.
"""

import io
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, TextIO

from jaxtroj import runtime
from jaxtroj.engine.guard import (
    TICK_SECONDS,
    Clock,
    Guard,
    how_it_ended,
    start_python,
)
from jaxtroj.engine.worker import die_with_parent
from jaxtroj.errors import LimitError

_END_SECONDS = 10.0
_START = (
    "import sys; fd = int(sys.argv[1]); sys.path[:] = sys.argv[2:];"
    " from jaxtroj.engine.guarded_call import serve; serve(fd)"
)
_SHOW_CURSOR = "\r\x1b[K\x1b[?25h"


def guarded_call(body: Callable[[], int], limits: Guard, what: str) -> int:
    """The exit status of a body that a child process runs.

    Args:
        body: what is run; it must survive pickling, and answers Ctrl-C itself.
        limits: of the child.
        what: a name of the child, for the error, such as "the process that converts m.pt".

    Raises:
        LimitError: a limit was exceeded, or the child was ended by a signal.
        EngineError: no child process starts.
        KeyboardInterrupt: and the child did not say so itself.
    """
    with ExitStack() as stack:
        stdout = stack.enter_context(_handed_on(sys.stdout, 1))
        stderr = stack.enter_context(_handed_on(sys.stderr, 2))
        child = _started(body, stdout, stderr)
        try:
            reason = _exceeded(child, limits)
        except KeyboardInterrupt:
            if _interrupted(child) >= 0:  # and has said so
                return child.returncode
            raise
        finally:
            child.kill()
            child.wait()
        if reason is None and child.returncode < 0:
            reason = how_it_ended(child.returncode)
        if reason is None:
            return child.returncode
    if sys.stderr.isatty():  # the child may have left a live line there
        print(_SHOW_CURSOR, end="", file=sys.stderr)
    raise LimitError(f"{what} {reason}")


def _interrupted(child: subprocess.Popen[bytes]) -> int:
    """Pass Ctrl-C on; the exit status, negative if it had to be ended."""
    child.send_signal(signal.SIGTERM)  # to the child this is Ctrl-C, see `serve`
    try:
        return child.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def _exceeded(child: subprocess.Popen[bytes], limits: Guard) -> str | None:
    """Wait for a child: None if it ended by itself, else what it did that the limits forbid."""
    clock, seconds = Clock(), 0.0
    while True:
        try:
            child.wait(TICK_SECONDS)
            return None
        except subprocess.TimeoutExpired:
            seconds += clock.lap()
        reason = limits.too_much(runtime.resident(child.pid)) or limits.too_long(seconds)
        if reason is not None:
            return reason


def _started(
    body: Callable[[], int], stdout: IO[str] | None, stderr: IO[str] | None
) -> subprocess.Popen[bytes]:
    reading, writing = os.pipe()
    with open(writing, "wb", buffering=0) as call:
        with open(reading, "rb"):
            arguments = [str(reading), *sys.path]
            child = start_python(_START, arguments, {}, reading, stdout, stderr)
        with suppress(BrokenPipeError):  # it has died already; its status says so
            call.write(pickle.dumps(body))
    return child


@contextmanager
def _handed_on(stream: TextIO, descriptor: int) -> Iterator[IO[str] | None]:
    """What a child writes to: None for our own descriptor, else a file that is copied in the end.

    A stream that somebody put in the place of ours, such as a notebook, has no descriptor.
    """
    try:
        stream.flush()
        own = stream.fileno() == descriptor
    except (OSError, io.UnsupportedOperation):
        own = False
    if own:
        yield None
        return
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="backslashreplace") as file:
        try:
            yield file
        finally:
            file.seek(0)
            shutil.copyfileobj(file, stream)


def serve(descriptor: int) -> None:
    """In the child: run the body that the parent sends, and end with its exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C, and passes it on once
    die_with_parent()
    with open(descriptor, "rb") as call:
        body = pickle.load(call)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(body())
