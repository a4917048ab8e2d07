"""The child process that scans models: jobs in by a socket, lines of JSON out.

Two lanes take turns: while one lane's model is on the device, the other reads and converts the
next. Answers leave in the order of the jobs. What is stuck or grows without end is ended from
outside, see `guard.py`.

From the parent: an 8-byte length and a pickle, first a `Setup`, then (ticket, `ScanJob`) pairs. To
the parent, which trusts nobody who has read a model file, a JSON object a line:

    {"ready": true}                            it takes jobs
    {"unusable": "..."}                        instead of that: it never will, and why
    {"ticket": 7, "step": ["id-00000012", "probes"]}   this begins
    {"ticket": 7, "waits": true}                       for others; its time stands still
    {"ticket": 7, "identity": "..."}                   the record on file stands
    {"ticket": 7, "record": "{...}"}                   the answer
    {"ticket": 7, "done": true, "error": "..."}        no more of this job; why, if too early
"""

import ctypes
import faulthandler
import importlib
import json
import os
import pickle
import queue
import signal
import socket
import struct
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from jaxtroj import runtime
from jaxtroj.engine.jobs import DETECTOR, START_STEP, Detector, ScanJob, Setup
from jaxtroj.engine.programs import Programs
from jaxtroj.errors import EngineError
from jaxtroj.record import printable
from jaxtroj.scan import identify

LANES = 2
READING_STEPS = frozenset({"read", "convert", "examples"})
"""Steps that leave the device alone."""

# Two lanes that import packages with circular imports at once could meet them half made.
_IMPORTED_FIRST = {
    DETECTOR: (
        "converters.conversion",
        "converters.artifact",
        "jaxtroj.evidence.images.context",
        "jaxtroj.evidence.texts.context",
    )
}

LENGTH = struct.Struct("<Q")
_DIE_WITH_PARENT = 1  # prctl(2), PR_SET_PDEATHSIG


def main(descriptor: int) -> None:
    """Serve jobs from the socket until the parent closes it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    die_with_parent()
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # the guard asks where it is stuck
    with socket.socket(fileno=descriptor) as link:
        _Child(link).serve()


def load_detector(name: str) -> Detector:
    """The function named `module:function`."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


class _Child:
    def __init__(self, link: socket.socket):
        self._link = link
        self._sending = threading.Lock()
        self._device = threading.Lock()
        self._programs = Programs()
        self._importing = threading.Lock()
        self._to_import: tuple[str, ...] = ()
        self._turn = threading.Condition()
        self._now_serving = 1
        self._jobs: queue.SimpleQueue[tuple[int, ScanJob]] = queue.SimpleQueue()

    def serve(self) -> None:
        self._setup: Setup = self._receive()
        try:
            runtime.check_backend()
        except EngineError as error:
            self.say(unusable=str(error))
            return
        self._detector = load_detector(self._setup.detector)
        self._to_import = _IMPORTED_FIRST.get(self._setup.detector, ())
        for _ in range(LANES):
            threading.Thread(target=self._lane, daemon=True).start()
        self.say(ready=True)
        while True:
            self._jobs.put(self._receive())

    def _receive(self) -> Any:
        """The parent's next message; ends the process, lanes and all, when the parent has gone."""
        (length,) = LENGTH.unpack(self._exactly(LENGTH.size))
        return pickle.loads(self._exactly(length))

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._link.recv(min(size - len(parts), 2**20))
            if not part:
                os._exit(0)
            parts += part
        return bytes(parts)

    def say(self, **message: Any) -> None:
        line = json.dumps(message).encode() + b"\n"
        with self._sending:
            try:
                self._link.sendall(line)
            except OSError:  # the parent has gone
                os._exit(0)

    def _lane(self) -> None:
        while True:
            ticket, job = self._jobs.get()
            gate = _DeviceGate(self, ticket, self._device)
            error = {}
            try:
                self._answer(ticket, job, gate)
            # The parent owes a record for every model. Nothing is above this thread: what got out,
            # such as the panic of a Rust package, would end it without a word.
            except BaseException as fault:
                error = {"error": _described(fault)}
            gate.leave()
            runtime.give_back()
            self._await_turn(ticket)
            self.say(ticket=ticket, done=True, **error)
            with self._turn:
                self._now_serving += 1
                self._turn.notify_all()
            if self._programs.too_many():
                with self._device:  # or a model that is being searched would compile again
                    self._programs.drop()

    def _answer(self, ticket: int, job: ScanJob, gate: "_DeviceGate") -> None:
        settings = self._setup.settings
        key = identify(job.entry, settings) if job.known or job.failure else None
        if key is not None and (job.failure or key in job.known):
            self._await_turn(ticket)
            self.say(ticket=ticket, identity=key)
            return
        self._import(ticket, printable(job.entry.model_id))
        record = self._detector(job.entry, settings, self._setup.picture_of, gate.step)
        gate.leave()  # or the lane whose turn it is would wait for the device for ever
        self._await_turn(ticket)
        self.say(ticket=ticket, record=record.to_json())

    def _import(self, ticket: int, model: str) -> None:
        """Load what takes seconds once, when the first model needs it, and at nobody's expense."""
        if not self._to_import:
            return
        self.say(ticket=ticket, waits=True)
        with self._importing:
            for name in self._to_import:
                importlib.import_module(name)
            self._to_import = ()
        self.say(ticket=ticket, step=[model, START_STEP])

    def _await_turn(self, ticket: int) -> None:
        """Until all jobs before this one are done."""
        with self._turn:
            if self._now_serving != ticket:
                self.say(ticket=ticket, waits=True)
                self._turn.wait_for(lambda: self._now_serving == ticket)


class _DeviceGate:
    """Lets one lane at a time use the device, as the steps of its model begin."""

    def __init__(self, child: _Child, ticket: int, device: threading.Lock):
        self._child, self._ticket, self._device = child, ticket, device
        self._inside = False

    def step(self, model: str, step: str) -> None:
        if step in READING_STEPS:
            self.leave()
        elif not self._inside:
            if not self._device.acquire(blocking=False):
                self._child.say(ticket=self._ticket, waits=True)
                self._device.acquire()
            self._inside = True
        self._child.say(ticket=self._ticket, step=[model, step])

    def leave(self) -> None:
        if self._inside:
            self._inside = False
            self._device.release()


def die_with_parent() -> None:
    """A child that is stuck in C code would not notice that its parent has gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def _described(fault: BaseException) -> str:
    frame = traceback.extract_tb(fault.__traceback__)[-1]
    return f"{type(fault).__name__}: {fault} ({Path(frame.filename).name}:{frame.lineno})"
