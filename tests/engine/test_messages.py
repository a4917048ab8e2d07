"""What a worker may say to its parent, and what ends it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jaxtroj.engine.jobs import Answer, ScanJob
from jaxtroj.engine.messages import NonsenseError, read_answer, read_identity, read_message
from jaxtroj.engine.ray_cluster import _with_picture
from jaxtroj.record import Record
from jaxtroj.rounds import ModelEntry

JOB = ScanJob(ModelEntry("a model", Path("model.pt"), None, None), known=("on file",))
RECORD = Record("a model", "", 0.5, False, None, (), "ok", "as ordered")


@pytest.mark.parametrize(
    "message",
    [
        {"ready": True},
        {"unusable": "no such device"},
        {"ticket": 7, "step": ["id-00000012", "probes"]},
        {"ticket": 7, "waits": True},
        {"ticket": 7, "identity": ""},
        {"ticket": 7, "record": "{}"},
        {"ticket": 7, "done": True},
        {"ticket": 7, "done": True, "error": "\udcff\n"},
    ],
)
def test_what_workers_say_is_understood(message):
    assert read_message(json.dumps(message).encode()) == message


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\x00",
        b"7",
        b"[]",
        b"{}",
        b'{"waits": true}',
        b'{"ticket": "7", "waits": true}',
        b'{"ticket": true, "waits": true}',
        b'{"ticket": 7, "ticket": 8, "waits": true}',
        b'{"ticket": ' + b"7" * 5000 + b"}",
        b'{"ticket": 7, "step": 3}',
        b'{"ticket": 7, "step": ["only one"]}',
        b'{"ticket": 7, "step": ["a", "\\u001b[2J"]}',
        b'{"ticket": 7, "record": {}}',
        b'{"ticket": 7, "identity": null}',
        b'{"ticket": 7, "done": true, "error": 1}',
        b'{"ticket": 7, "unheard": 1}',
        b'{"unusable": true}',
        b"[" * 10**6,
    ],
)
def test_anything_else_is_nonsense(line):
    with pytest.raises(NonsenseError):
        read_message(line)


def test_an_answer_is_a_record_of_the_model_that_was_asked_for():
    assert read_answer(RECORD.to_json(), JOB, None) == RECORD
    for other in ({"model": "another"}, {"probability": 7.0}, {"status": "fine"}):
        with pytest.raises(NonsenseError):
            read_answer(replace(RECORD, **other).to_json(), JOB, None)
    with pytest.raises(NonsenseError):
        read_answer("no record", JOB, None)


def test_the_path_of_a_picture_is_the_parents_own():
    line = replace(RECORD, model="m", trigger="/etc/hostname").to_json()
    job = ScanJob(ModelEntry("m", Path("model.pt"), None, None))
    assert read_answer(line, job, Path("pictures")).trigger == "pictures/m.png"
    assert read_answer(line, job, None).trigger is None


def test_an_identity_is_one_on_file_or_of_a_model_that_is_given_up():
    assert read_identity("on file", JOB) == "on file"
    assert read_identity("any", replace(JOB, failure="it crashed")) == "any"
    with pytest.raises(NonsenseError):
        read_identity("any", JOB)


def test_a_host_reads_pictures_out_of_its_own_folder_alone(tmp_path):
    """What the record says is the worker's word; any file of the node could have left it so."""
    secret, folder = tmp_path / "secret", tmp_path / "pictures"
    secret.write_bytes(b"secret")
    folder.mkdir()
    answer = Answer(JOB.entry, "", replace(RECORD, model="m", trigger=str(secret)))
    without = _with_picture(answer, folder)
    assert without.picture is None and without.record is not None
    assert without.record.trigger is None and "cannot read" in without.record.reason
    (folder / "m.png").write_bytes(b"picture")
    found = _with_picture(answer, folder)
    assert found.picture == b"picture" and found.record == replace(RECORD, model="m")
    assert secret.read_bytes() == b"secret" and not list(folder.iterdir())
