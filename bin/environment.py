"""The Python that the commands in bin/ run with: one that has jaxtroj, or the project's own.

Standard library only, and plain enough for an old Python to read, so that it can say it is too
old. The project's own environment is PROJECT/.venv, made on first use.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec

PROJECT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
VENV = os.path.join(PROJECT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, "jaxtroj-installed.json")
LOCK = os.path.join(PROJECT, "build", "install.lock")
STARTED = os.path.join(PROJECT, "build", "install.started")
TEST_TOOLS = ("beartype", "cv2", "cyclonedx", "hypothesis", "pyright", "pytest", "ray", "ruff")


def python(extras=()):
    """Path of a Python that has jaxtroj and these extras; installs into PROJECT/.venv if need be.

    Exits with status 4 and one line on stderr if that cannot be done.
    """
    if sys.version_info >= (3, 11) and has_jaxtroj(extras):
        return sys.executable
    if not is_complete(extras):
        with locked() as lock:
            if not is_complete(extras):
                install(extras, lock)
    return PYTHON


def has_jaxtroj(extras):
    """Whether the Python that runs this has jaxtroj and the tools of the extras installed."""
    try:
        metadata.distribution("jaxtroj")
    except metadata.PackageNotFoundError:
        return False
    return "test" not in extras or all(find_spec(tool) for tool in TEST_TOOLS)


def is_complete(extras):
    """Whether PROJECT/.venv was installed to the end from the present pyproject.toml.

    An environment that somebody else made there, with jaxtroj in it, is taken as it is.
    """
    if os.path.exists(STAMP):
        stamp = read_stamp()
        return stamp["pyproject"] == pyproject_digest() and set(extras) <= set(stamp["extras"])
    if os.path.exists(STARTED) or not os.path.exists(PYTHON):
        return False
    check = "import sys; sys.path.insert(0, sys.argv[1]); import environment; " + (
        "raise SystemExit(not environment.has_jaxtroj(sys.argv[2:]))"
    )
    here = os.path.dirname(os.path.realpath(__file__))
    return subprocess.run([PYTHON, "-c", check, here, *extras]).returncode == 0


def pyproject_digest():
    """sha256 of pyproject.toml, hex."""
    with open(os.path.join(PROJECT, "pyproject.toml"), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class locked:
    """Held while installing; a second first call waits here, and a killed one lets go."""

    def __enter__(self):
        try:
            os.makedirs(os.path.dirname(LOCK), exist_ok=True)
            self.file = open(LOCK, "w")
        except OSError as error:
            give_up(f"cannot write in {PROJECT} ({error.strerror}); pip install jaxtroj elsewhere")
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another first call to finish installing")
            fcntl.flock(self.file, fcntl.LOCK_EX)
        return self.file

    def __exit__(self, *error):
        self.file.close()


def install(extras, lock):
    """Make PROJECT/.venv and install jaxtroj into it; the stamp is written last."""
    interrupted = os.path.exists(STARTED)
    extras = set(extras) | set(read_stamp()["extras"] if os.path.exists(STAMP) else ())
    fresh = interrupted or not os.path.exists(PYTHON)
    with open(STARTED, "w"):
        pass
    if os.path.exists(STAMP):
        os.unlink(STAMP)
    if fresh:
        say(f"making a virtual environment in {VENV}" + (" again" if interrupted else ""))
        run([modern_python(), "-m", "venv", "--clear", VENV], lock, "making the environment")
    what = PROJECT + (f"[{','.join(sorted(extras))}]" if extras else "")
    say(f"installing {what}: once, some minutes and up to 7 GB, mostly torch")
    quiet = ["--disable-pip-version-check", "--no-input"]
    run([PYTHON, "-m", "pip", "install", *quiet, "--editable", what], lock, "pip")
    write_stamp(extras)
    os.unlink(STARTED)
    say("installed; going on with the command")


def read_stamp():
    """What the last complete install was made from: {"pyproject": digest, "extras": [...]}."""
    with open(STAMP) as file:
        return json.load(file)


def write_stamp(extras):
    """Note for later calls what was installed, whole or not at all."""
    with open(STAMP + ".part", "w") as file:
        json.dump({"pyproject": pyproject_digest(), "extras": sorted(extras)}, file)
    os.replace(STAMP + ".part", STAMP)


def modern_python():
    """A Python of at least 3.11: this one, or a newer one on the PATH."""
    if sys.version_info >= (3, 11):  # noqa: UP036 - this file may be read by an older one
        return sys.executable
    for minor in (13, 12, 11):
        found = shutil.which(f"python3.{minor}")
        if found:
            return found
    give_up(f"needs Python 3.11 or newer; this is {sys.version.split()[0]} ({sys.executable})")


def run(command, lock, what):
    """Run a command with its output on stderr; give up if it fails.

    It inherits the lock: if this process is killed, the next call waits until pip has ended.
    """
    hold = (lock.fileno(),)
    status = subprocess.run(command, stdout=sys.stderr.fileno(), pass_fds=hold).returncode
    if status:
        give_up(f"{what} failed with status {status}; its own message stands above")


def say(message):
    """One line on stderr."""
    print(f"jaxtroj: {message}", file=sys.stderr, flush=True)


def give_up(message):
    """One line on stderr, and exit status 4."""
    say(f"error: {message}")
    raise SystemExit(4)
