"""A detector whose models are orders: the first word of a file says how it behaves."""

import ctypes
import hashlib
import os
import re
import sys
import time
from dataclasses import replace

from jaxtroj.record import Record, printable
from jaxtroj.scan import identify


class Panic(BaseException):
    """What the panic of a Rust package looks like in Python."""


def answer(entry, settings, picture_of=None, on_step=None):
    """The record of an entry; see `_behave` for the orders."""
    key = identify(entry, settings)
    name = printable(entry.model_id)
    content = entry.model_path.read_bytes()
    if on_step:
        on_step(name, "read")
    _behave(content.decode().split(), name, on_step)
    trigger = None
    if picture_of and content.startswith(b"picture"):
        path = picture_of(name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"picture of " + name.encode())
        trigger = printable(str(path))
    digest = hashlib.sha256(content).digest()
    record = Record(
        model=name,
        sha256=digest.hex(),
        probability=(digest[0] + 1) / 258,
        poisoned=digest[0] > 127,
        target_class=digest[1] % 5,
        source_classes=(0, 1),
        status="ok",
        reason="by content",
        evidence={f"field_{n}": byte / 255 for n, byte in enumerate(digest)},
        trigger=trigger,
        identity=key,
    )
    return replace(record, **_LIES.get(content.decode().split()[0], {}))


# Records that no scan would write.
_LIES = {
    "unlikely": {"probability": 7.0},
    "thief": {"trigger": "/etc/hostname"},
}
# Lines that no worker would write.
_NONSENSE = {
    "junk": b"\xff\x00 no JSON",
    "stranger": b'{"ticket": 10000, "done": true}',
    "waits": b'{"ticket": 1, "waits": true}',  # a job alone has this ticket
}


def _behave(words, name, on_step):
    order, value = words[0], float(words[1]) if len(words) > 1 and words[1][0].isdigit() else 0.0
    if order in ("device", "both"):
        if order == "both":
            time.sleep(value)
        if on_step:
            on_step(name, "probes")
        time.sleep(value)
    elif order == "reads":
        time.sleep(value)
    elif order == "stuck":
        while True:
            time.sleep(0.01)
    elif order == "stuck-in-c":  # the regular expression machine keeps Python's lock
        re.match(r"(a+)+$", "a" * 64 + "b")
    elif order == "grows":
        held = []
        while True:
            held.append(b"x" * (8 * 2**20))
            time.sleep(0.002)
    elif order == "crashes":
        ctypes.string_at(0)
    elif order == "exits":
        os._exit(3)
    elif order in _NONSENSE:
        os.write(int(sys.argv[1]), _NONSENSE[order] + b"\n")
        time.sleep(60)
    elif order == "panics":
        raise Panic("as ordered")
    elif order == "raises":
        raise RuntimeError("as ordered")
    elif order == "kills-parent":
        os.kill(os.getppid(), 9)
        time.sleep(60)
