"""The engine of a Ray cluster: an actor for each GPU, or node, hosts the same guarded worker.

Only the driver, the process that scans, writes the run folder: answers and pictures travel to it.
A host that dies is replaced as soon as the cluster has room, and its unanswered models go to the
others. A chunk of jobs of one group is in flight per host, no more: that is the back-pressure, and
at most as much is repeated after a death.
"""

import os
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converters.errors import LoadError
from converters.files import read_at_most
from jaxtroj.engine.devices import Slot, memory_per_worker
from jaxtroj.engine.guard import TICK_SECONDS, Guard
from jaxtroj.engine.jobs import Answer, ScanJob, Setup, Watch
from jaxtroj.engine.local import LocalEngine, failed_record
from jaxtroj.engine.plan import WorkPlan
from jaxtroj.engine.worker import LANES
from jaxtroj.errors import EngineError, UsageError
from jaxtroj.file_names import picture_file
from jaxtroj.scan.records import sentences

if TYPE_CHECKING:
    from ray.actor import ActorHandle

MOST_JOBS = 8
"""Jobs of one chunk; less towards the end, so that all hosts end together."""

MOST_DEATHS = 3
"""A model whose host died this often is given up."""

PATIENCE_SECONDS = 300.0
"""How long to wait for the first host of a cluster that has no room."""

_LARGEST_PICTURE = 2**26
_CLOSE_SECONDS = 5.0
_PROBE_SECONDS = 10.0
# What else changes the bits of an answer: it must be on every node as it is here.
_SAME_EVERYWHERE = ("OMP_NUM_THREADS", "XLA_FLAGS", "JAX_PLATFORMS", "JAX_ENABLE_X64")
_SAME_EVERYWHERE += ("JAX_DEFAULT_MATMUL_PRECISION", "JAX_COMPILATION_CACHE_DIR")
_SAME_EVERYWHERE += ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS",)


class Host:
    """The actor: a `LocalEngine` of one worker process, warm from chunk to chunk.

    Args:
        setup: what the worker is told; pictures go to a folder of the node first.
        guard: limits of one model; without one of memory, this node's divided by its hosts.
        environment: of the worker, see `Slot`.
        home: folder that relative paths start at, if the node has it.
        sharing: how many hosts a node has; where each takes a GPU, at most as many as it has GPUs.
    """

    def __init__(
        self,
        setup: Setup,
        guard: Guard,
        environment: Mapping[str, str | None],
        home: str,
        sharing: int = 1,
    ):
        if guard.memory is None:  # of this node, which need not be like the driver's
            guard = replace(guard, memory=memory_per_worker(min(sharing, _gpus_here() or sharing)))
        if os.path.isdir(home):
            os.chdir(home)
        self._folder = tempfile.TemporaryDirectory(prefix="jaxtroj-")
        setup = replace(setup, pictures=Path(self._folder.name))
        self._engine = LocalEngine(setup, [Slot(f"node {os.uname().nodename}", environment)], guard)

    def hello(self) -> int:
        """That there is room for this host; its process id."""
        return os.getpid()

    def scan(self, jobs: Sequence[ScanJob]) -> Iterator[Answer | list[str]]:
        """Answers as they come, and between them lines for the log; ends when it is cancelled."""
        lines: list[str] = []
        try:
            for answer in self._engine.run(jobs, Watch(on_tick=_check_cancelled, log=lines.append)):
                if lines:
                    yield lines[:]
                    lines.clear()
                yield _with_picture(answer, Path(self._folder.name))
        except _CancelledError:
            return
        if lines:  # of what workers said after the last answer
            yield lines

    def close(self) -> None:
        """End the worker and leave nothing behind on the node."""
        self._engine.close()
        self._folder.cleanup()


class _CancelledError(Exception):
    """Nobody waits for the answers of this chunk any more."""


def _check_cancelled() -> None:
    """Raise _CancelledError where the driver ends and this host is busy: `close` waits for it."""
    import ray

    is_canceled = getattr(ray.get_runtime_context(), "is_canceled", None)  # none in older Ray
    if is_canceled is not None and is_canceled():
        raise _CancelledError


def _with_picture(answer: Answer, folder: Path) -> Answer:
    """The answer with the bytes of its picture, out of the folder where its worker had to put it.

    What the record says of a path is the worker's word, and is not looked at.
    """
    record = answer.record
    if record is None or record.trigger is None:
        return answer
    path = picture_file(folder, record.model)
    record = replace(record, trigger=None)
    try:
        data = read_at_most(path, _LARGEST_PICTURE)
        path.unlink()
    except (LoadError, OSError) as error:  # the answer stands without its picture
        return replace(
            answer, record=replace(record, reason=sentences((record.reason, str(error))))
        )
    return replace(answer, record=record, picture=data)


@dataclass
class _HostSeat:
    """A place for a host: the actor, whether it is up, and what it is doing."""

    actor: "ActorHandle"
    hello: Any
    stream: Any = None
    jobs: list[ScanJob] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)


class RayEngine:
    """Runs jobs on the hosts of a Ray cluster.

    Args:
        setup: what the workers are told; `pictures` is not used.
        guard: limits of one model; without a limit of memory, the node's divided by its hosts.
        workers: hosts; None is one for each GPU, or node where there are no GPUs.
        address: of the cluster; None takes the one that this process is connected to, or
            RAY_ADDRESS, or starts Ray on this machine.

    Raises:
        UsageError: Ray is not installed.
        EngineError: the cluster cannot be reached.
    """

    def __init__(
        self, setup: Setup, guard: Guard, workers: int | None = None, address: str | None = None
    ):
        try:
            import ray
        except ImportError as error:
            raise UsageError(
                "--engine ray needs Ray; install it with: pip install 'jaxtroj[ray]'"
            ) from error
        self._ray, self._setup, self._guard = ray, setup, guard
        self._connected_here = not ray.is_initialized()
        if self._connected_here:
            _connect(ray, address)
        resources = ray.cluster_resources()
        nodes = sum(1 for node in ray.nodes() if node["Alive"])
        self._gpus = int(resources.get("GPU", 0))
        self._workers = workers or self._gpus or nodes
        # Hosts without GPUs spread evenly; those with one each go where the GPUs are.
        self._sharing = self._workers if self._gpus else -(-self._workers // nodes)
        self._seats: list[_HostSeat] = []
        self._plan = WorkPlan([])
        self._deaths: dict[str, int] = {}
        self._failures = 0

    def run(self, jobs: Sequence[ScanJob], watch: Watch) -> Iterator[Answer]:
        """See `Engine.run`.

        Raises:
            EngineError: no host comes up, or every one fails.
        """
        self._plan, self._watch = WorkPlan(jobs), watch
        wanted = min(self._workers, max(1, len(self._plan)))
        self._seats += [self._hire() for _ in range(wanted - len(self._seats))]
        heard = time.monotonic()
        while len(self._plan) or any(seat.stream is not None for seat in self._seats):
            self._assign()
            ready = self._ready()
            for seat in ready:
                yield from self._hear(seat)
            now = time.monotonic()
            if ready or any(seat.stream is not None for seat in self._seats):
                heard = now
            elif now - heard > PATIENCE_SECONDS:
                raise EngineError(
                    f"no node of the Ray cluster had room for a worker within"
                    f" {PATIENCE_SECONDS:g} s; see: ray status"
                )
            if now >= watch.deadline:
                return
            watch.on_tick()

    def close(self) -> None:
        """End all hosts; the connection too, if this engine made it."""
        ray = self._ray
        seats, self._seats = self._seats, []
        # A host in the middle of a chunk does not listen before that is cancelled.
        for seat in seats:
            if seat.stream:
                ray.cancel(seat.stream)
        closing = [seat.actor.close.remote() for seat in seats if not seat.hello]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_SECONDS)
        for seat in seats:
            ray.kill(seat.actor)
        if self._connected_here and ray.is_initialized():
            ray.shutdown()

    def _hire(self) -> _HostSeat:
        needs: dict[str, Any] = {"num_cpus": 1, "max_restarts": 0, "max_task_retries": 0}
        needs |= {"num_gpus": 1} if self._gpus else {"scheduling_strategy": "SPREAD"}
        environment = {name: os.environ.get(name) for name in _SAME_EVERYWHERE}
        actor = self._ray.remote(Host).options(**needs)
        handle = actor.remote(self._setup, self._guard, environment, os.getcwd(), self._sharing)
        return _HostSeat(handle, handle.hello.remote())

    def _assign(self) -> None:
        """A chunk of jobs for every host that is up and idle."""
        for seat in self._seats:
            if seat.hello is None and seat.stream is None and (chunk := self._chunk(seat)):
                seat.jobs, seat.answered = chunk, set()
                stream = seat.actor.scan.options(num_returns="streaming")
                seat.stream = stream.remote(chunk)

    def _chunk(self, seat: _HostSeat) -> list[ScanJob]:
        size = min(MOST_JOBS, -(-len(self._plan) // (2 * len(self._seats))))
        jobs: list[ScanJob] = []
        while len(jobs) < size and (job := self._plan.take(id(seat), busy=bool(jobs))):
            jobs.append(job)
            if job.alone:
                break
        return jobs

    def _ready(self) -> list[_HostSeat]:
        """Hosts that have something to say."""
        waiting = {seat.stream or seat.hello: seat for seat in self._seats}
        waiting.pop(None, None)
        if not waiting:
            time.sleep(TICK_SECONDS)
            return []
        refs = list(waiting)
        ready, _ = self._ray.wait(refs, num_returns=1, timeout=TICK_SECONDS)
        if ready:  # and who else has spoken meanwhile
            ready, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        return [waiting[ref] for ref in ready]

    def _hear(self, seat: _HostSeat) -> Iterator[Answer]:
        from ray.exceptions import RayError

        try:
            if seat.stream is None:
                self._ray.get(seat.hello)
                seat.hello = None
                return
            item = self._ray.get(next(seat.stream))
        except StopIteration:
            unanswered = self._unanswered(seat)
            assert not unanswered, "the host ended its chunk without an answer for every model"
            seat.stream, seat.jobs = None, []
            return
        except RayError as error:
            yield from self._bury(seat, error)
            return
        if isinstance(item, list):
            for line in item:
                self._watch.log(line)
            return
        self._failures = 0
        seat.answered.add(item.entry.model_id)
        yield item

    @staticmethod
    def _unanswered(seat: _HostSeat) -> list[ScanJob]:
        """Jobs whose model is not answered, to be done alone."""
        left = [job for job in seat.jobs if job.entry.model_id not in seat.answered]
        return [replace(job, alone=True) for job in left]

    def _bury(self, seat: _HostSeat, error: Exception) -> Iterator[Answer]:
        """Replace a host that died; its first unanswered models are under suspicion."""
        text = " ".join(str(error).split())[:300]
        self._watch.log(f"a host ended: {type(error).__name__}: {text}")
        self._failures += 1
        if self._failures >= MOST_DEATHS * len(self._seats):
            raise EngineError(f"the hosts of the Ray cluster fail one after another: {text}")
        left = self._unanswered(seat)
        self._plan.leave(id(seat))
        self._ray.kill(seat.actor)
        self._seats[self._seats.index(seat)] = self._hire()
        for place, job in enumerate(left):
            entry = job.entry
            deaths = self._deaths.get(entry.model_id, 0) + (place < LANES)
            self._deaths[entry.model_id] = deaths
            if deaths < MOST_DEATHS:
                self._plan.put(replace(job, alone=place < LANES))
                continue
            reason = f"the process that scanned it died {deaths} times on the cluster"
            yield Answer(entry, "", failed_record(entry, self._setup, reason, ""))


def _gpus_here() -> int:
    """How many GPUs Ray has on the node of this process."""
    import ray

    here = ray.get_runtime_context().get_node_id()
    own = (node["Resources"] for node in ray.nodes() if node["NodeID"] == here)
    return sum(int(resources.get("GPU", 0)) for resources in own)


def _connect(ray: Any, address: str | None) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    given = address or os.environ.get("RAY_ADDRESS")
    try:
        _probe(given or "")
        ray.init(
            address=given,
            include_dashboard=None if given else False,
            log_to_driver=False,
            logging_level="ERROR",
        )
    except (OSError, ValueError, RuntimeError) as error:
        place = given or "this machine"
        raise EngineError(f"cannot use the Ray cluster at {place}: {error}") from error


def _probe(address: str) -> None:
    """Raises OSError if nobody listens at `host:port`; Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), _PROBE_SECONDS).close()
