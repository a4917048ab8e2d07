"""The fuzzer of second readings: mutants keyed by number, and a runtime that outlives its files."""

import os
import pickle

import pytest

from benchmarks.reading.differential.formats import FORMATS
from benchmarks.reading.differential.run import mutant, replayed, run

pytestmark = pytest.mark.filterwarnings("ignore")
QUICK = [kind for kind in FORMATS if kind.name in ("safetensors", "bare pickle", "torch tar")]


class _Ends:
    """Ends the process that unpickles it."""

    def __reduce__(self):
        return os._exit, (7,)


@pytest.mark.parametrize("kind", FORMATS, ids=lambda kind: kind.name)
def test_mutants_are_keyed_by_seed_and_number(kind):
    made = [mutant(kind, 0, number) for number in range(4)]
    again = [mutant(kind, 0, number) for number in range(4)]
    assert [change for _, change in made] == [change for _, change in again]
    # The legacy stream names storages by their addresses, which differ from call to call.
    assert made == again or "legacy" in kind.name
    assert len({content for content, _ in made}) > 1


def test_a_file_that_ends_its_process_takes_no_other_with_it(runtime, tmp_path):
    contents = [pickle.dumps({"w": 1}), pickle.dumps(_Ends()), pickle.dumps({"w": 2})]
    paths = [tmp_path / f"{number}.pkl" for number in range(3)]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    runtime.ask(paths, ["pickle.load"], (1,))
    answers = [reading["pickle.load"].answer for reading in runtime.answers(paths)]
    assert answers == ["read", "died", "read"]


@pytest.mark.parametrize("kind", QUICK, ids=lambda kind: kind.name)
def test_a_stopped_run_goes_on(kind, runtime, tmp_path):
    first = run(kind, runtime, tmp_path, 20, 0, step=8)
    assert (first.done, first.findings) == (8, [])
    (log,) = tmp_path.glob("*.jsonl")
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"number": 8, "chan')
    assert replayed(log).done == 8
    second = run(kind, runtime, tmp_path, 20, 0)
    assert (second.done, second.findings) == (20, []) and log.read_bytes().startswith(whole)
    assert second.outcomes["both"]
