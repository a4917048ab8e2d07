"""Files that are replaced as a whole."""

import os

import pytest

from converters.files import write_atomic


def test_atomic_write_leaves_the_old_file_when_it_fails(tmp_path):
    path = tmp_path / "new" / "result.txt"
    write_atomic(path, b"0.5")
    with pytest.raises(TypeError):
        write_atomic(path, "text")  # pyright: ignore[reportArgumentType]
    assert path.read_bytes() == b"0.5"
    assert [p.name for p in path.parent.iterdir()] == ["result.txt"]


def test_atomic_write_opens_no_planted_link(tmp_path, monkeypatch):
    monkeypatch.setattr("converters.files.secrets.token_hex", lambda size: "guessed")
    (tmp_path / "rc").write_text("years of work")
    for name in ("guessed", os.getpid()):
        (tmp_path / f".result.txt.{name}.part").symlink_to("rc")
    with pytest.raises(FileExistsError):
        write_atomic(tmp_path / "result.txt", b"0.5")
    assert (tmp_path / "rc").read_text() == "years of work"


def test_atomic_write_keeps_to_the_umask(tmp_path):
    earlier = os.umask(0o027)
    try:
        write_atomic(tmp_path / "result.txt", b"0.5")
    finally:
        os.umask(earlier)
    assert (tmp_path / "result.txt").stat().st_mode & 0o777 == 0o640
