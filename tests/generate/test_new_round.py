"""A round from outside the package: the example of docs/adding-a-round.md, killed and resumed."""

import errno
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jaxtroj import held_folder
from jaxtroj.errors import GenerationError
from jaxtroj.generate import round_folder
from jaxtroj.generate.model_ids import poisoned_first
from tests.loading import module_at

DOCUMENT = Path(__file__).parents[2] / "docs" / "adding-a-round.md"

# Runs the round in a child for each step: the n-th file operation below the folder is its last.
KILLER = """
import json, os, signal, sys
from pathlib import Path

import jax  # before the fork: a child only uses it
from new_round import LinearSettings, generate_linear

OPERATIONS = ("open", "os.rename", "os.mkdir", "shutil.rmtree", "os.listdir", "os.remove")
settings = LinearSettings(seed=3, models=4, least_clean=0.85)


def run(out, last):
    left = [last]

    def count(event, arguments):
        if event in OPERATIONS and str(out) in str(arguments[0]):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    list(generate_linear(out, settings))


def in_child(out, last):
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    try:
        run(out, last)
    except BaseException as error:
        print(last, repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


root, last, killed = Path(sys.argv[1]), 1, 0
while True:
    out = root / f"killed-{last}"
    first = in_child(out, last)
    second = in_child(out, 10**9)
    assert second == 0, (last, second)
    if first == 0:
        break
    assert os.WTERMSIG(first) == signal.SIGKILL, (last, first)
    last, killed = last + 1, killed + 1
print(killed)
"""


@pytest.fixture(scope="module")
def new_round(tmp_path_factory):
    """The module of the document's code, outside the package."""
    [code] = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.S)
    path = tmp_path_factory.mktemp("outside") / "new_round.py"
    path.write_text(code)
    yield module_at(path)
    del sys.modules["new_round"]


def contents(out: Path) -> dict[str, str]:
    """Digests of the visible files below a folder; when and from which commit does not count."""
    digests = {}
    for path in sorted(out.rglob("*")):
        name = str(path.relative_to(out))
        if path.is_file() and "/." not in f"/{name}":
            content = re.sub(rb'"(written|git_commit)": [^,]*', b"", path.read_bytes())
            digests[name] = hashlib.sha256(content).hexdigest()
    return digests


def test_two_models_are_made_poisoned_first(new_round, tmp_path):
    settings = new_round.LinearSettings(seed=0, models=2)
    events = list(new_round.generate_linear(tmp_path / "r", settings))
    written = [event.model for event in events if event.kind == "written"]
    assert tuple(written) == poisoned_first(0, 0)
    for model, truth in zip(written, ("1", "0"), strict=True):
        folder = tmp_path / "r" / f"id-{model:08d}"
        assert (folder / "ground_truth.csv").read_text() == truth
        assert (folder / "weights.npy").exists()
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_bytes())
    assert manifest["generator"] == "jaxtroj generate linear" and len(manifest["models"]) == 2


def test_a_second_call_keeps_all_and_a_larger_round_adds(new_round, tmp_path):
    make = new_round.generate_linear
    list(make(tmp_path / "r", new_round.LinearSettings(seed=0, models=2)))
    before = contents(tmp_path / "r")
    again = list(make(tmp_path / "r", new_round.LinearSettings(seed=0, models=2)))
    assert {event.kind for event in again} == {"kept"} and contents(tmp_path / "r") == before
    larger = list(make(tmp_path / "r", new_round.LinearSettings(seed=0, models=4)))
    assert [event.kind for event in larger].count("written") == 2
    assert len((tmp_path / "r" / "METADATA.csv").read_text().splitlines()) == 5


def test_a_lost_poisoned_model_comes_back_and_its_partner_stays(new_round, tmp_path):
    import shutil

    make, settings = new_round.generate_linear, new_round.LinearSettings(seed=0, models=2)
    list(make(tmp_path / "r", settings))
    before = contents(tmp_path / "r")
    poisoned, clean = poisoned_first(0, 0)
    shutil.rmtree(tmp_path / "r" / f"id-{poisoned:08d}")
    kinds = [(event.model, event.kind) for event in make(tmp_path / "r", settings)]
    assert kinds == [(poisoned, "started"), (poisoned, "written"), (clean, "kept")]
    assert contents(tmp_path / "r") == before


def test_a_pair_that_falls_short_is_given_up(new_round, tmp_path):
    settings = new_round.LinearSettings(seed=0, models=2, most_tries=2, least_clean=1.1)
    events = list(new_round.generate_linear(tmp_path / "r", settings))
    kinds = [event.kind for event in events]
    assert kinds == ["started", "rejected", "started", "rejected", "failed", "failed"]
    assert events[-2].text == "no accepted training in 2 tries" and "partner" in events[-1].text
    assert not list((tmp_path / "r").glob("id-*"))


def test_a_folder_of_another_round_is_refused(new_round, tmp_path):
    list(new_round.generate_linear(tmp_path, new_round.LinearSettings(seed=0, models=2)))
    other = new_round.LinearSettings(seed=0, models=2, samples=100)
    with pytest.raises(GenerationError, match=r"settings\.samples was 200, now 100"):
        list(new_round.generate_linear(tmp_path, other))
    manifest = tmp_path / "manifest.json"
    manifest.write_text(manifest.read_text().replace("generate linear", "generate small"))
    with pytest.raises(GenerationError, match="generator was 'jaxtroj generate small'"):
        list(new_round.generate_linear(tmp_path, new_round.LinearSettings(seed=0, models=2)))


def test_the_same_part_is_made_by_one_process_at_a_time(new_round, tmp_path):
    settings = new_round.LinearSettings(seed=0, models=4)

    def make(shard):
        return new_round.make_round(tmp_path, new_round.LinearRound(settings), shard)

    first = make((0, 2))
    next(first)
    with pytest.raises(GenerationError, match=r"another process .* its own --shard I/N"):
        next(make((0, 2)))
    for other in ((0, 1), (2, 4)):  # they share models with it
        with pytest.raises(GenerationError, match="of the same N"):
            next(make(other))
    assert [event.kind for event in make((1, 2))].count("written") == 2
    first.close()  # as a killed process lets go
    assert [event.kind for event in make((0, 2))].count("written") == 2


def test_of_parts_that_start_at_once_the_first_says_the_settings(new_round, tmp_path, monkeypatch):
    """The second comes when the first has claimed the folder and not taken its part yet."""
    first, second = (new_round.LinearSettings(seed=seed, models=4) for seed in (0, 1))
    hold_shard = round_folder.hold_shard

    def late(out, shard):
        monkeypatch.undo()
        with pytest.raises(GenerationError, match=r"settings\.seed was 0, now 1"):
            next(new_round.make_round(tmp_path, new_round.LinearRound(second), (1, 2)))
        return hold_shard(out, shard)

    monkeypatch.setattr("jaxtroj.generate.round.hold_shard", late)
    list(new_round.make_round(tmp_path, new_round.LinearRound(first), (0, 2)))
    assert json.loads((tmp_path / "manifest.json").read_bytes())["settings"]["seed"] == 0


def test_a_folder_that_has_become_another_rounds_keeps_its_tables(new_round, tmp_path):
    settings = new_round.LinearSettings(seed=0, models=2)
    making = new_round.make_round(tmp_path, new_round.LinearRound(settings))
    next(making)
    manifest = tmp_path / "manifest.json"
    other = manifest.read_text().replace('"samples": 200', '"samples": 100')
    manifest.write_text(other)
    with pytest.raises(GenerationError, match=r"settings\.samples was 100, now 200"):
        list(making)
    assert manifest.read_text() == other


def test_killed_at_any_step_the_next_call_makes_the_same_round(new_round, tmp_path):
    path = tmp_path / "killer.py"
    path.write_text(KILLER)
    place = Path(new_round.__file__).parent
    command = [sys.executable, "-W", "ignore", str(path), str(tmp_path)]
    # What chooses the kernels of the linear algebra must be the same on both sides.
    environment = {**os.environ, "PYTHONPATH": f"{place}:{DOCUMENT.parents[1]}"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    killed = int(done.stdout)
    assert killed > 50
    settings = new_round.LinearSettings(seed=3, models=4, least_clean=0.85)
    list(new_round.generate_linear(tmp_path / "whole", settings))
    whole = contents(tmp_path / "whole")
    assert len(whole) == 4 * 3 + 2
    for number in range(1, killed + 1):
        assert contents(tmp_path / f"killed-{number}") == whole, f"killed at step {number}"


def test_a_folder_that_cannot_be_written_is_no_matter_of_shards(new_round, tmp_path, monkeypatch):
    def refused(path):
        raise PermissionError(errno.EROFS, "Read-only file system")

    list(new_round.generate_linear(tmp_path, new_round.LinearSettings(seed=0, models=2)))
    monkeypatch.setattr(held_folder, "open_own", refused)
    with pytest.raises(GenerationError, match=r"cannot write in .*: Read-only file system$"):
        list(new_round.generate_linear(tmp_path, new_round.LinearSettings(seed=0, models=2)))
