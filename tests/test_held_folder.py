"""A folder of one writer: claimed, held, of one set of settings, never with half a piece."""

import errno
import os

import pytest

from jaxtroj.errors import HeldError, StoreError
from jaxtroj.held_folder import add_whole, agree, claim_folder, cut_tail, differences, hold

MARKER = "settings.json"


def test_only_an_empty_or_a_marked_folder_is_claimed(tmp_path):
    claim_folder(tmp_path / "a" / "new", MARKER, "run folder")
    (tmp_path / "a" / "new" / "lock").touch()
    claim_folder(tmp_path / "a" / "new", MARKER, "run folder")
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(StoreError, match=r"not a run folder \(it has no settings.json\)"):
        claim_folder(tmp_path, MARKER, "run folder")
    (tmp_path / MARKER).write_text("{}")
    claim_folder(tmp_path, MARKER, "run folder")
    with pytest.raises(StoreError, match="cannot use"):
        claim_folder(tmp_path / "thesis.tex", MARKER, "run folder")


def test_one_process_holds_and_closing_lets_go(tmp_path):
    with hold(tmp_path):
        with pytest.raises(StoreError, match=f"another process .{os.getpid()}. is writing"):
            hold(tmp_path)
    with hold(tmp_path, wait=True):
        pass


def test_a_full_disk_is_no_disk_without_locks(tmp_path, monkeypatch):
    """It said that the folder cannot be locked, and left an empty lock."""

    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("jaxtroj.held_folder.os.getpid", refuse)  # stands in for the write
    with pytest.raises(StoreError, match="cannot write in .*: No space left .* make room on this"):
        hold(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_disk_without_locks_is_no_other_writer(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("jaxtroj.held_folder.fcntl.flock", refuse)
    with pytest.raises(StoreError, match="cannot lock .*: No locks available") as caught:
        hold(tmp_path)
    assert not isinstance(caught.value, HeldError)


def test_settings_are_kept_and_differences_named(tmp_path):
    path = tmp_path / MARKER
    for _ in range(2):
        agree(path, {"seed": 0, "train": {"steps": 5, "rate": (1, 2)}})
    with pytest.raises(StoreError, match=r"train.steps was 5, now 6.*or use --restart"):
        agree(path, {"seed": 0, "train": {"steps": 6, "rate": [1, 2]}}, "use --restart")
    assert differences({"a": 1}, {"b": None}) == ["a was 1, now None"]
    path.write_bytes(b"[1]")
    with pytest.raises(StoreError, match="is damaged"):
        agree(path, {"seed": 0})


def test_pieces_are_whole(tmp_path):
    path = tmp_path / "log"
    cut_tail(path, 0)
    with open(path, "ab", buffering=0) as file:
        assert [add_whole(file, data) for data in (b"one\n", b"two\n", b"torn")] == [0, 4, 8]
    cut_tail(path, 8)
    cut_tail(path, 100)
    assert path.read_bytes() == b"one\ntwo\n"
