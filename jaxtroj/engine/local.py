"""The engine of one machine: a guarded worker process for each GPU, or as many as asked for."""

import selectors
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from converters.errors import safe_repr
from jaxtroj.engine.devices import Slot, local_slots, memory_per_worker
from jaxtroj.engine.guard import (
    TICK_SECONDS,
    Clock,
    Flight,
    Guard,
    WorkerProcess,
    how_it_ended,
)
from jaxtroj.engine.jobs import Answer, ScanJob, Setup, Watch
from jaxtroj.engine.messages import NonsenseError, read_answer, read_identity, read_message
from jaxtroj.engine.plan import WorkPlan
from jaxtroj.engine.worker import LANES
from jaxtroj.errors import EngineError, JaxtrojError
from jaxtroj.record import Record, printable
from jaxtroj.scan import records
from jaxtroj.scan.attempt import Attempt
from jaxtroj.settings import Settings
from jaxtroj.store import RunStore

DEFAULT_TIMEOUT = 3600.0
"""Seconds after which a model is stopped, unless the user says otherwise."""
START_SECONDS = 300.0
LEAST_MEMORY = 2**28
"""Bytes below which a worker is stopped before it has looked at its first model."""
_MOST_FAILED_STARTS = 3


def local_engine(
    settings: Settings,
    store: RunStore,
    workers: int | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    memory: int | None = None,
) -> "LocalEngine":
    """The engine of this machine for one run folder.

    Args:
        settings: what the workers scan with.
        store: its folder takes the pictures and the workers' messages.
        workers: how many processes; None for one per GPU, else one.
        timeout: seconds for one model.
        memory: bytes for one process; None for its share of nine tenths of the machine's.

    Raises:
        EngineError: more workers than the machine has memory to start.
    """
    check_workers(workers or 1)
    slots = local_slots(workers)
    guard = Guard(timeout, memory or memory_per_worker(len(slots)))
    return LocalEngine(Setup(settings, store.pictures), slots, guard, store.log_path)


def check_workers(workers: int) -> None:
    """Check that each of several workers gets the memory that starting it takes.

    Raises:
        EngineError: there are too many; it says how many there may be.
    """
    if workers > 1 and memory_per_worker(workers) < LEAST_MEMORY:
        most = max(1, memory_per_worker(1) // LEAST_MEMORY)
        raise EngineError(
            f"{workers} workers would get {memory_per_worker(workers) / 2**30:.3f} GiB of memory"
            f" each, and starting one takes {LEAST_MEMORY / 2**30:g}; take --workers {most} at most"
        )


def usual_limits() -> Guard:
    """The limits of a single worker process, unless the user says otherwise."""
    return Guard(DEFAULT_TIMEOUT, memory_per_worker(1))


@dataclass
class _Seat:
    """A place for a worker process: its device, and the process, if one is running."""

    slot: Slot
    worker: WorkerProcess | None = None

    @property
    def flights(self) -> list[Flight]:
        """What the worker is doing."""
        return list(self.worker.flights.values()) if self.worker else []

    @property
    def running(self) -> list[Flight]:
        """Those that wait for no other; if all say that they wait, none can be believed."""
        return [flight for flight in self.flights if not flight.waits] or self.flights


class LocalEngine:
    """Runs jobs in worker processes, ends those that exceed their limits, and goes on.

    A model is given up only for what it did alone: when two were in the worker, each unanswered
    one gets a second try by itself, for memory and crashes in a new process.

    Args:
        setup: what the workers are told.
        slots: one worker each; started when there is work for it.
        guard: limits of one model.
        stderr: file for the messages of the workers.
    """

    def __init__(
        self, setup: Setup, slots: Sequence[Slot], guard: Guard, stderr: Path | None = None
    ):
        self._setup, self._guard, self._stderr = setup, guard, stderr
        self._seats = [_Seat(slot) for slot in slots]
        self._selector = selectors.DefaultSelector()
        self._failed_starts = 0
        self._plan = WorkPlan([])
        self._watch = Watch()

    def run(self, jobs: Sequence[ScanJob], watch: Watch) -> Iterator[Answer]:
        """See `Engine.run`.

        Raises:
            EngineError: worker processes do not start.
        """
        self._plan, self._watch = WorkPlan(jobs), watch
        clock = Clock()
        while True:
            yield from self._assign()
            if not any(seat.flights for seat in self._seats):
                if not len(self._plan):
                    return
                continue  # a worker was found dead when it was given a job, which waits again
            ready = self._selector.select(TICK_SECONDS)
            self._charge(clock.lap())
            for key, _ in ready:
                yield from self._hear(key.data)
            if time.monotonic() >= watch.deadline:
                return
            for seat in self._seats:
                yield from self._judge(seat)
            watch.on_tick()

    def close(self) -> None:
        """Kill all workers. The engine can be used again."""
        for seat in self._seats:
            self._dismiss(seat)

    def _assign(self) -> Iterator[Answer]:
        """Give every worker what it can take; one that had to be ended gets its jobs elsewhere."""
        for depth in range(LANES):
            for seat in self._seats:
                flights = seat.flights
                if len(flights) != depth or any(flight.job.alone for flight in flights):
                    continue
                job = self._plan.take(id(seat), busy=bool(flights))
                if job is not None and not self._employ(seat, job).give(job):
                    yield from self._bury(seat, "stopped listening")

    def _employ(self, seat: _Seat, job: ScanJob) -> WorkerProcess:
        """The seat's worker; a new one if there is none, or the job must be told from others."""
        if seat.worker is not None and seat.worker.jobs_done and job.alone and not job.failure:
            self._dismiss(seat)
        if seat.worker is None:
            seat.worker = WorkerProcess(self._setup, seat.slot.environment, self._stderr)
            self._selector.register(seat.worker.link, selectors.EVENT_READ, seat)
            self._watch.log(f"worker {seat.worker.pid} started on {seat.slot.name}")
        return seat.worker

    def _dismiss(self, seat: _Seat) -> None:
        worker, seat.worker = seat.worker, None
        if worker is not None:
            self._selector.unregister(worker.link)
            self._plan.leave(id(seat))
            worker.end()

    def _charge(self, seconds: float) -> None:
        for seat in self._seats:
            if seat.worker is not None and not seat.worker.ready:
                seat.worker.starting += seconds
                continue
            for flight in seat.running:
                flight.seconds += seconds

    def _hear(self, seat: _Seat) -> Iterator[Answer]:
        worker = seat.worker
        if worker is None:  # ended since the selector looked
            return
        lines, alive = worker.lines()
        try:
            for line in lines:
                yield from self._told(worker, read_message(line))
        except NonsenseError as error:
            yield from self._bury(seat, f"spoke nonsense: {error}")
            return
        if not alive:
            yield from self._bury(seat, how_it_ended(worker.exit_status()))

    def _told(self, worker: WorkerProcess, message: dict[str, Any]) -> Iterator[Answer]:
        """Note what a worker says of a job or of itself; raises NonsenseError, EngineError."""
        if "ready" in message:
            worker.ready, self._failed_starts = True, 0
            return
        if "unusable" in message and not worker.ready:  # it has seen no model yet
            raise EngineError(printable(message["unusable"]))
        if "ticket" not in message:
            raise NonsenseError("it has begun to work, and cannot")
        flight = worker.flights.get(message["ticket"])
        if flight is None:
            raise NonsenseError(f"there is no ticket {safe_repr(message['ticket'])}")
        flight.waits = "waits" in message
        if "step" in message:
            flight.step = message["step"][1]
            self._watch.on_step(printable(flight.job.entry.model_id), flight.step)
        elif "record" in message or "identity" in message:
            if flight.answered:
                raise NonsenseError("it answered twice")
            answer = self._answer(flight.job, message)
            flight.answered = True
            yield answer
        elif "done" in message:
            del worker.flights[message["ticket"]]
            worker.jobs_done += 1
            reason = f"internal error: {message.get('error', 'the detector gave no answer')}"
            yield from self._give_up(flight, reason)

    def _answer(self, job: ScanJob, message: dict[str, Any]) -> Answer:
        """What a worker answers; raises NonsenseError."""
        if "record" in message:
            record = read_answer(message["record"], job, self._setup.pictures)
            return Answer(job.entry, record.identity, record)
        key = read_identity(message["identity"], job)
        if job.failure is not None:
            return self._given_up(job, job.failure, key)
        return Answer(job.entry, key, None)

    def _judge(self, seat: _Seat) -> Iterator[Answer]:
        """End a worker that exceeds its limits."""
        worker, guard = seat.worker, self._guard
        if worker is None:
            return
        if worker.starting > START_SECONDS:
            yield from self._bury(seat, f"did not start within {START_SECONDS:g} s")
        elif worker.flights and (reason := guard.too_much(worker.resident())):
            yield from self._bury(seat, reason)
        else:
            yield from self._late(seat, worker)

    def _late(self, seat: _Seat, worker: WorkerProcess) -> Iterator[Answer]:
        for slow in seat.flights:
            reason = self._guard.too_long(slow.seconds, f", in the step {slow.step}")
            if reason is not None:
                worker.dump()
                yield from self._bury(seat, reason, slow if seat.running == [slow] else None)
                return

    def _bury(self, seat: _Seat, reason: str, guilty: Flight | None = None) -> Iterator[Answer]:
        """End a worker; its unanswered models are given up, or get another try alone.

        Args:
            reason: what it did.
            guilty: the only job that can have done it, where that is known.
        """
        worker, flights = seat.worker, seat.flights
        assert worker is not None
        self._dismiss(seat)
        self._watch.log(f"worker {worker.pid} ended: it {reason}")
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= _MOST_FAILED_STARTS:
                raise EngineError(f"worker processes do not start; the last one {reason}")
            for flight in flights:
                self._plan.put(flight.job, first=True)
            return
        if guilty is None and len(flights) == 1 and not worker.jobs_done:
            guilty = flights[0]
        for flight in flights:
            if flight.job.failure is not None or flight is guilty:
                yield from self._give_up(flight, reason)
            else:
                self._retry(flight)

    def _retry(self, flight: Flight) -> None:
        """Another try, alone, for an unanswered model whose worker was ended."""
        if not flight.answered:
            self._plan.put(replace(flight.job, alone=True), first=flight.job.alone)

    def _give_up(self, flight: Flight, reason: str) -> Iterator[Answer]:
        """An unanswered model failed; what is still wanted is the identity of that answer."""
        job = flight.job
        if flight.answered:
            return
        if job.failure is None:
            self._plan.put(replace(job, alone=True, failure=reason), first=True)
        else:  # not even its identity can be had
            yield self._given_up(job, job.failure)

    def _given_up(self, job: ScanJob, reason: str, identity: str = "") -> Answer:
        self._watch.log(f"{job.entry.model_id!r} failed: {reason}")
        record = failed_record(job.entry, self._setup, reason, identity)
        return Answer(job.entry, identity, record)


def failed_record(entry: Any, setup: Setup, reason: str, identity: str) -> Record:
    """The record of a model that the engine gave up: the base rate, and why."""
    failed = records.failed_record(Attempt(entry, setup.settings), JaxtrojError(reason))
    return replace(failed, identity=identity)
