"""A worker process seen from outside: what it is doing, for how long, in how much memory."""

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from converters.errors import safe_repr
from jaxtroj import runtime
from jaxtroj.engine.jobs import START_STEP, ScanJob, Setup
from jaxtroj.engine.worker import LENGTH
from jaxtroj.errors import EngineError, UsageError
from jaxtroj.held_folder import open_own

_SEND_SECONDS = 30.0
_DUMP_SECONDS = 0.2
_LONGEST_LINE = 64 * 2**20
_GIB = 2**30
TICK_SECONDS = 0.1
"""How often limits are looked at."""
# A pause longer than this was not the work's: the machine or this process was suspended.
_LONGEST_CHARGE = 10 * TICK_SECONDS
# Only what the parent may import; a folder that happens to be the current one is no part of it.
_START = (
    "import sys; fd = int(sys.argv[1]); sys.path[:] = sys.argv[2:];"
    " from jaxtroj.engine.worker import main; main(fd)"
)


@dataclass(frozen=True)
class Guard:
    """What one model may take.

    Attributes:
        timeout: seconds of wall time, waiting for the device not counted; None is no limit.
        memory: bytes resident in the worker process; None is no limit.

    Raises:
        UsageError: a limit is no number above 0.
    """

    timeout: float | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("timeout", self.timeout), ("memory", self.memory)):
            if value is not None and not _is_limit(value):
                raise UsageError(
                    f"limits: {name} must be a number above 0, or None for no limit, got"
                    f" {safe_repr(value)}"
                )

    def too_much(self, held: int) -> str | None:
        """What a process did that holds so many bytes, if that is too many; else None."""
        if self.memory is None or held <= self.memory:
            return None
        return (
            f"took {_gib(held)} GiB of memory, more than the {_gib(self.memory)} allowed;"
            " see --memory (in Python limits=jaxtroj.Guard(memory=...)), and --examples-per-class"
            " where a model has thousands of examples"
        )

    def too_long(self, seconds: float, where: str = "") -> str | None:
        """What became of work that ran for so many seconds, if that is too many; else None."""
        if self.timeout is None or seconds <= self.timeout:
            return None
        return (
            f"was stopped after {self.timeout:g} s{where}; see --timeout (in Python"
            " limits=jaxtroj.Guard(timeout=...))"
        )


def _gib(count: float) -> str:
    """Bytes in GiB; of few of them no zero.

    >>> _gib(2**31), _gib(2**20)
    ('2.00', '0.001')
    """
    size = count / _GIB
    return f"{size:.2f}" if size >= 0.01 else f"{size:.1g}"


def checked(limits: Any) -> Guard | None:
    """Limits as they are, once they are seen to be some.

    Raises:
        UsageError: they are neither None nor limits.
    """
    if limits is None or isinstance(limits, Guard):
        return limits
    raise UsageError(
        f"limits are {safe_repr(limits)}, expected jaxtroj.Guard(timeout=600, memory=8 * 2**30), in"
        " seconds and bytes, or None"
    )


def _is_limit(value: object) -> bool:
    """Whether it is a number above 0; NaN, true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


@dataclass
class Flight:
    """A job in a worker: for how many seconds it ran, and whether it is answered."""

    job: ScanJob
    seconds: float = 0.0
    waits: bool = False
    step: str = START_STEP
    answered: bool = False


class WorkerProcess:
    """One child process; see `worker.py` for what is said.

    Args:
        setup: what it is told first.
        environment: changes to this process's own, such as the GPU it may use; None unsets.
        stderr: file that its messages are appended to; None leaves them where ours go.
    """

    def __init__(self, setup: Setup, environment: Mapping[str, str | None], stderr: Path | None):
        ours, theirs = socket.socketpair()
        self.link = ours
        with theirs:
            self._process = _started(theirs.fileno(), environment, stderr)
        self._logs = stderr is not None
        self.flights: dict[int, Flight] = {}
        self.ready = False
        self.jobs_done = 0
        self.starting = 0.0
        self._tickets = 0
        self._buffer = bytearray()
        self._send(setup)
        self.link.setblocking(False)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def give(self, job: ScanJob) -> bool:
        """Hand a job over; False if the process does not listen any more."""
        self._tickets += 1
        self.flights[self._tickets] = Flight(job)
        return self._send((self._tickets, job))

    def _send(self, message: Any) -> bool:
        data = pickle.dumps(message)
        self.link.settimeout(_SEND_SECONDS)
        try:
            self.link.sendall(LENGTH.pack(len(data)) + data)
        except OSError:  # it is dead or stuck; the one who waits for its answers will see
            return False
        finally:
            self.link.setblocking(False)
        return True

    def lines(self) -> tuple[list[bytes], bool]:
        """What it has said since, see `messages.py`; and whether it is still there to say more."""
        alive = True
        while len(self._buffer) <= _LONGEST_LINE:  # one that never stops talking is heard in parts
            try:
                part = self.link.recv(2**18)
            except BlockingIOError:
                break
            except OSError:
                part = b""
            if not part:
                alive = False
                break
            self._buffer += part
        *lines, rest = self._buffer.split(b"\n")
        if len(rest) > _LONGEST_LINE:
            alive = False
        self._buffer = bytearray(rest)
        return [bytes(line) for line in lines], alive

    def resident(self) -> int:
        """Bytes of memory that it holds; 0 if it has gone."""
        return runtime.resident(self.pid)

    def dump(self) -> None:
        """Have it write to its log where every thread is; works whatever it is stuck in."""
        if self.ready and self._logs:
            self._process.send_signal(signal.SIGUSR1)
            time.sleep(_DUMP_SECONDS)

    def end(self) -> None:
        """Kill it, if it still lives."""
        self._process.kill()
        self._process.wait()
        self.link.close()

    def exit_status(self) -> int | None:
        """How it ended by itself; None if it still lives, without its socket."""
        try:
            return self._process.wait(_DUMP_SECONDS)
        except subprocess.TimeoutExpired:
            return None


class Clock:
    """Seconds since the last look, without those that the machine was suspended for."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def lap(self) -> float:
        """Seconds to charge for since the last lap."""
        last, self._last = self._last, time.monotonic()
        return min(self._last - last, _LONGEST_CHARGE)


def how_it_ended(status: int | None) -> str:
    """What a child process did, by its exit status; None where that is not known."""
    if status is None or status >= 0:
        return f"ended its process with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = "; often for want of memory" if name == "SIGKILL" else ""
    return f"ended its process by {name}{hint}"


def start_python(
    code: str,
    arguments: Sequence[str],
    environment: Mapping[str, str | None],
    descriptor: int,
    stdout: IO[Any] | int | None,
    stderr: IO[Any] | None,
) -> subprocess.Popen[bytes]:
    """A child process that runs lines of Python, under the settings that `runtime` has for jax.

    It has no stdin.

    Args:
        code: what it runs.
        arguments: its `sys.argv[1:]`.
        environment: changes to this process's own; None unsets.
        descriptor: a file of ours that stays open in it, under the same number.
        stdout, stderr: where its output goes; None leaves it where ours goes.

    Raises:
        EngineError: it does not start.
    """
    changed: dict[str, str | None] = {**os.environ, **environment}
    variables = {name: value for name, value in changed.items() if value is not None}
    try:
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env=variables | runtime.variables(variables),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(descriptor,),
        )
    except OSError as error:
        raise EngineError(f"cannot start a worker process: {error.strerror or error}") from error


def _started(
    descriptor: int, environment: Mapping[str, str | None], stderr: Path | None
) -> subprocess.Popen[bytes]:
    target = None if stderr is None else open_own(stderr)
    try:
        return start_python(
            _START,
            [str(descriptor), *sys.path],
            environment,
            descriptor,
            stdout=target if target is not None else subprocess.DEVNULL,
            stderr=target,
        )
    finally:
        if target is not None:
            target.close()
