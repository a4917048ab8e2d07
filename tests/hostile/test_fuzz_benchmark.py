"""A short run of the fuzz benchmark: every format, mutations keyed by number, failures seen."""

import pytest

from benchmarks.reading import fuzz
from benchmarks.reading.fuzz_mutations import mutated
from benchmarks.reading.fuzz_seeds import seeds

pytestmark = pytest.mark.filterwarnings("ignore")
INPUTS = 200


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return seeds(tmp_path_factory.mktemp("fuzz") / "seeds")


def test_the_files_themselves_are_read(files, tmp_path):
    answers = {name: fuzz.answer(tmp_path / "x", content) for name, content in files.items()}
    assert set(answers.values()) == {"read"}, answers


def test_mutations_are_keyed_by_seed_and_number(files):
    made = [mutated(files, 0, number) for number in range(INPUTS)]
    assert made == [mutated(files, 0, number) for number in range(INPUTS)]
    assert {name for name, _ in made} == set(files)
    changed = sum(content != files[name] for name, content in made)
    assert changed > 0.9 * INPUTS
    assert mutated(files, 1, 7) != made[7]


def test_mutated_files_are_read_or_refused(files, tmp_path):
    for number in range(INPUTS):
        name, content = mutated(files, 0, number)
        answer = fuzz.answer(tmp_path / "x", content)
        assert answer in ("read", "refused"), (number, name, answer)


def test_what_a_reader_does_wrong_is_seen(files, tmp_path, monkeypatch):
    def crash(path):
        raise KeyError("unforeseen")

    monkeypatch.setattr(fuzz, "_read", crash)
    assert fuzz.answer(tmp_path / "x", b"").startswith("failed: KeyError")


def test_a_tally_counts_and_remembers():
    tally = fuzz.FuzzTally(0)
    tally.add(0, "a.pt", "read", 0.1, 10)
    tally.add(1, "a.pt", "failed: KeyError: x", 0.2, 30)
    tally.add(2, "b.pt", "refused", fuzz.MOST_SECONDS + 1, 20)
    tally.add(3, "b.pt", "hung", 10.0, 0)
    assert (tally.done, tally.peak, tally.slowest) == (4, 30, (10.0, 3))
    assert tally.outcomes == {"a.pt": {"failed": 1, "read": 1}, "b.pt": {"hung": 1, "refused": 1}}
    assert [failure["number"] for failure in tally.failures] == [1, 2, 3]
