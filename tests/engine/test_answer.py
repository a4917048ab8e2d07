"""`detect`, `infer` and Python's `answer` open models in one guarded worker."""

import json
import resource
from functools import partial
from pathlib import Path

import pytest

from jaxtroj import Guard, answer
from jaxtroj.cli.main import main
from jaxtroj.engine import run
from jaxtroj.engine.jobs import Setup
from jaxtroj.settings import Settings

DETECTOR = "detectors_by_content:answer"
GUILTY = {
    "grows": "GiB of memory, more than the 0.40 allowed; see --memory",
    "stuck": "was stopped after 1.5 s, in the step read; see --timeout",
    "crashes": "ended its process by SIGSEGV",
}
LIMITS = ("--timeout", "1.5", "--memory", "0.4")


@pytest.fixture(autouse=True)
def obedient(monkeypatch, tmp_path):
    monkeypatch.setattr(run, "Setup", partial(Setup, detector=DETECTOR))
    monkeypatch.chdir(tmp_path)


def call(*words) -> int:
    return main([str(word) for word in words])


def test_detect_gives_one_record_a_model_in_order(orders, capfd):
    entries = orders("first", "grows", "picture", "stuck", "crashes", "last")
    paths = [str(entry.model_path) for entry in entries]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert call("detect", *paths, "--json", *LIMITS, "--base-rate", "0.2", "--out", ".") == 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 2**10  # KiB
    records = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [record["model"] for record in records] == paths
    for entry, record in zip(entries, records, strict=True):
        order = entry.model_path.stem.split("-", 1)[1]
        if order in GUILTY:
            assert (record["status"], record["probability"]) == ("failed", 0.2)
            assert GUILTY[order] in record["reason"]
        else:
            assert (record["status"], record["reason"]) == ("ok", "by content")
    assert Path(records[2]["trigger"]).is_file()


@pytest.mark.parametrize("order", GUILTY)
def test_infer_leaves_the_base_rate_and_says_why(orders, tmp_path, capfd, order):
    (entry,) = orders(order)
    flags = ("--model_filepath", entry.model_path, "--result_filepath", tmp_path / "result.txt")
    assert call("infer", *flags, *LIMITS, "--base-rate", "0.25") == 2
    assert float((tmp_path / "result.txt").read_text()) == 0.25
    captured = capfd.readouterr()
    assert captured.out.count("\n") == 1 and GUILTY[order] in captured.out


def test_answer_takes_entries_one_at_a_time_and_ends_its_worker(orders):
    taken = []

    def entries():
        for entry in orders("first", "stuck", "last"):
            taken.append(entry.model_id)
            yield entry

    records = answer(entries(), Settings(base_rate=0.3), Guard(timeout=1.0))
    assert next(records).status == "ok" and len(taken) == 1
    assert next(records).reason == (
        "was stopped after 1 s, in the step read; see --timeout (in Python"
        " limits=jaxtroj.Guard(timeout=...))"
    )
    records.close()
    assert len(taken) == 2
