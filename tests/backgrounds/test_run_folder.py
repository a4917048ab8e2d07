"""Answers on disk: kept, cut off where torn, refused where damaged."""

import json

import numpy as np
import pytest

from jaxtroj.backgrounds.challenge import Pairs
from jaxtroj.backgrounds.run_folder import RunFolder
from jaxtroj.errors import StoreError

SETTINGS = {"model": "a", "data": "b"}
SHAPE = (300, 400)


def some_pairs(seed: int, count: int = 50) -> Pairs:
    flat = np.random.default_rng(seed).choice(SHAPE[0] * SHAPE[1] // 2, count, replace=False)
    flat = flat * 2 + seed % 2
    predicted = np.random.default_rng(seed).integers(-1, 9, count).astype(np.int8)
    return Pairs(flat // SHAPE[1], flat % SHAPE[1], predicted)


def as_set(pairs: Pairs) -> set:
    return set(zip(*(part.tolist() for part in pairs), strict=True))


def filled(folder) -> None:
    with RunFolder(folder, SETTINGS, SHAPE) as run:
        run.append(some_pairs(0))
        run.flush()
        run.append(some_pairs(1))


def test_what_was_appended_is_there_again(tmp_path):
    filled(tmp_path / "run")
    with RunFolder(tmp_path / "run", SETTINGS, SHAPE) as run:
        assert as_set(run.earlier) == as_set(some_pairs(0)) | as_set(some_pairs(1))


def test_a_torn_block_is_cut_off_and_the_rest_kept(tmp_path):
    filled(tmp_path)
    path = tmp_path / "pairs.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    with RunFolder(tmp_path, SETTINGS, SHAPE) as run:
        assert as_set(run.earlier) == as_set(some_pairs(0))
        run.append(some_pairs(1))
    with RunFolder(tmp_path, SETTINGS, SHAPE) as run:
        assert len(run.earlier.predicted) == 100


def test_a_block_that_stands_there_twice_counts_once(tmp_path):
    filled(tmp_path)
    path = tmp_path / "pairs.jsonl"
    path.write_bytes(path.read_bytes() * 2)
    with RunFolder(tmp_path, SETTINGS, SHAPE) as run:
        assert len(run.earlier.predicted) == 100


def test_answers_that_are_a_link_are_refused_and_what_it_leads_to_stays(tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("kept")
    filled(tmp_path / "run")
    (tmp_path / "run" / "pairs.jsonl").unlink()
    (tmp_path / "run" / "pairs.jsonl").symlink_to(mine)
    with pytest.raises(StoreError, match="is a symbolic link, expected a plain file"):
        RunFolder(tmp_path / "run", SETTINGS, SHAPE)
    assert mine.read_text() == "kept"


def test_other_settings_are_named(tmp_path):
    filled(tmp_path)
    with pytest.raises(StoreError, match=r"other settings: data was"):
        RunFolder(tmp_path, SETTINGS | {"data": "c"}, SHAPE)


def test_one_writer_at_a_time(tmp_path):
    with RunFolder(tmp_path, SETTINGS, SHAPE):
        with pytest.raises(StoreError, match="another process"):
            RunFolder(tmp_path, SETTINGS, SHAPE)


def test_a_foreign_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(StoreError, match="not a run of the challenge"):
        RunFolder(tmp_path, SETTINGS, SHAPE)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def changed(line: bytes, **values) -> bytes:
    return json.dumps(json.loads(line) | values).encode()


DAMAGED = {
    "no_json": lambda line: b"{",
    "a_list": lambda line: b"[]",
    "checksum": lambda line: changed(line, crc32=1),
    "lying_count": lambda line: changed(line, pairs=10**9),
    "negative_count": lambda line: changed(line, pairs=-1),
    "truth_as_count": lambda line: changed(line, pairs=True),
    "no_base64": lambda line: changed(line, answers="@@@"),
    "no_text": lambda line: changed(line, answers=7),
    "missing": lambda line: b'{"pairs": 1}',
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_block_is_one_clear_error(tmp_path, kind):
    filled(tmp_path)
    path = tmp_path / "pairs.jsonl"
    first, second = path.read_bytes().splitlines()
    path.write_bytes(DAMAGED[kind](first) + b"\n" + second + b"\n")
    with pytest.raises(StoreError, match="line 1 is damaged"):
        RunFolder(tmp_path, SETTINGS, SHAPE)


def test_pairs_outside_the_data_are_refused(tmp_path):
    filled(tmp_path)
    with pytest.raises(StoreError, match="pairs outside the data"):
        RunFolder(tmp_path, SETTINGS, (2, 2))


@pytest.mark.parametrize("content", [b"", b"[1]", b"{"])
def test_damaged_settings(tmp_path, content):
    filled(tmp_path)
    (tmp_path / "settings.json").write_bytes(content)
    with pytest.raises(StoreError, match="is damaged"):
        RunFolder(tmp_path, SETTINGS, SHAPE)
