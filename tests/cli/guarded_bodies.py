"""What test_guarded.py has child processes do."""

import os
import sys
import time

from jaxtroj.errors import UsageError


def says_and_leaves(status: int) -> int:
    print("result é")
    print("message", file=sys.stderr)
    return status


def refuses() -> int:
    raise UsageError("as ordered")


def sleeps(mark: str) -> int:
    with open(mark, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(60)
    return 0


def grows() -> int:
    held = []
    while True:
        held.append(b"x" * (2**23))
        time.sleep(0.002)
