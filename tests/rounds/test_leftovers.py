"""Model files that a scan of a folder does not look at are named, and the search for them ends."""

import os
from pathlib import Path

import pytest

from jaxtroj.rounds import iter_models, left_out
from jaxtroj.rounds.layout import NoModelsError


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"never opened")


def test_nested_and_hidden_files_are_named_apart(tmp_path):
    put(tmp_path, "net/model.pt", "net/.old.pt", "net/v2/model.pt", "deep/a/b/c/x.onnx")
    put(tmp_path, ".hidden/model.pt", ".x.pt", "net/notes.txt")
    found = left_out(tmp_path)
    assert found.names == ("deep/a/b/c/x.onnx", "net/v2/model.pt")
    assert set(found.hidden) == {".hidden/model.pt", ".x.pt", "net/.old.pt"}
    assert found.lines() == [
        f"2 model files in {tmp_path} were not looked at: deep/a/b/c/x.onnx, net/v2/model.pt; "
        "name their folder, or a manifest",
        f"3 hidden model files in {tmp_path} were not looked at: {', '.join(found.hidden)}; "
        "name their folder, or a manifest",
    ]


def test_one_file_and_many_files_in_words(tmp_path):
    put(tmp_path, "net/model.pt", "net/v2/model.pt")
    assert left_out(tmp_path).lines()[0].startswith("1 model file in")
    put(tmp_path, *(f"net/v2/{number}.pt" for number in range(9)))
    (line,) = left_out(tmp_path).lines()
    assert line.startswith("10 model files") and "net/v2/3.pt and 6 more;" in line


def test_what_lies_beside_a_folder_models_is_named(tmp_path):
    put(tmp_path, "models/a.pt", "models/b/net.pt", "other.pt", "c/model.pt")
    assert [entry.model_id for entry in iter_models(tmp_path)] == ["a.pt", "b"]
    assert left_out(tmp_path).names == ("c/model.pt", "other.pt")


def test_nothing_is_left_out_of_the_usual_folders(tmp_path):
    put(tmp_path, "models/id-00000000/model.pt", "models/id-00000000/example_data/a.bin")
    put(tmp_path, "models/id-00000000/embedding.pt", "embeddings/BERT.pt", "tokenizers/BERT.pt")
    assert left_out(tmp_path).lines() == []
    assert left_out(tmp_path / "models").lines() == []
    put(tmp_path, "two/x.pt", "two/y.pt")  # its record names both
    assert left_out(tmp_path / "two").lines() == []


def test_a_model_of_several_files_is_whole(tmp_path):
    put(tmp_path, "net/data/model.pth", "plain/model.pt")
    (tmp_path / "net" / "MLmodel").write_text("flavors:\n  pytorch:\n    model_data: data\n")
    assert left_out(tmp_path).names == left_out(tmp_path / "net").names == ()


def test_other_models_are_told_where_the_folder_is_one_network(tmp_path):
    """An `MLmodel`, or empty folders of a cache, in a dataset's root hid all its models."""
    put(tmp_path, "net.onnx", "id-00000001/model.pt", "deep/down/other.pt")
    (tmp_path / "MLmodel").write_text("flavors:\n  onnx:\n    data: net.onnx\n")
    assert left_out(tmp_path).names == ("deep/down/other.pt", "id-00000001/model.pt")
    (tmp_path / "MLmodel").unlink()
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "refs").mkdir()
    put(tmp_path, "snapshots/of/a/cache.bin")
    assert left_out(tmp_path).names == ("deep/down/other.pt", "id-00000001/model.pt")


def test_pipes_and_circles_among_plain_files_say_what_they_are(tmp_path):
    put(tmp_path, "good.pt")
    os.symlink("loop.pt", tmp_path / "loop.pt")
    os.mkfifo(tmp_path / "pipe.pt")
    circle, pipe = left_out(tmp_path).names
    assert circle.startswith("loop.pt (unreadable (Too many") and pipe == "pipe.pt (a named pipe)"


def test_links_that_lead_nowhere_say_so_where_folders_of_models_lie(tmp_path):
    put(tmp_path, "models/good/model.pt", "models/good/example_data/class_0_example_0.png")
    for name in ("net", "models/net", "models/good/net", ".#lock", "embeddings", "models/.net"):
        os.symlink("nowhere", tmp_path / name)
    os.symlink("loop", tmp_path / "models" / "loop")
    found = left_out(tmp_path)
    circle, *others = found.names
    assert circle.startswith("models/loop (unreadable (Too many")
    assert others == [f"{name} (a symbolic link to nothing)" for name in ("models/net", "net")]
    assert found.hidden == ()


def test_a_folder_of_links_that_lead_nowhere_names_them(tmp_path):
    os.symlink("nowhere", tmp_path / "net")
    with pytest.raises(NoModelsError, match=r"not looked at: net \(a symbolic link to nothing\)"):
        iter_models(tmp_path)


def test_links_are_followed_once(tmp_path):
    put(tmp_path, "set/good.pt", "elsewhere/a/model.pt")
    os.symlink("../elsewhere", tmp_path / "set" / "link")
    os.symlink("../../set", tmp_path / "elsewhere" / "back")
    os.symlink(".", tmp_path / "set" / "self")
    assert left_out(tmp_path / "set").names == ("link/a/model.pt",)


def test_links_to_folders_around_the_dataset_are_not_followed(tmp_path):
    """Models of the parent were told as not looked at, and the scan as not complete."""
    (tmp_path / "set" / "net").mkdir(parents=True)
    for path in ("other.pt", "set/net/model.pt"):
        (tmp_path / path).write_bytes(b"")
    os.symlink("..", tmp_path / "set" / "up")
    os.symlink("../..", tmp_path / "set" / "net" / "up")
    assert left_out(tmp_path / "set").names == ()


def test_a_folder_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    put(tmp_path, "good.pt", "locked/model.txt")
    scandir = os.scandir

    def refuse(path):
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert left_out(tmp_path).names == ("locked (cannot be read: Permission denied)",)


def test_the_search_is_bounded_in_depth(tmp_path):
    put(tmp_path, "good.pt", "1/2/3/4/seen.pt", "1/2/3/4/5/deeper.pt")
    found = left_out(tmp_path)
    assert found.names == ("1/2/3/4/seen.pt",) and found.deep == ("1/2/3/4/5",)
    assert found.lines()[1].startswith("1 folder more than 5 levels down in ")


def test_what_lies_too_deep_makes_a_search_partial_unless_it_is_hidden(tmp_path):
    """A model six levels down was neither scanned nor mentioned, with status 0."""
    put(tmp_path, "good.pt", ".git/1/2/3/4/5/deeper.pt", "net/model.pt", "net/example_data/1/2/3/4")
    found = left_out(tmp_path)
    assert not found.deep and not found.is_partial and not found.lines()
    put(tmp_path, "net/a/b/c/d/e/f/model.onnx")
    found = left_out(tmp_path)
    assert found.deep == ("net/a/b/c/d",) and found.is_partial and not found.names


def test_a_search_that_ends_among_hidden_files_is_whole(tmp_path, monkeypatch):
    put(tmp_path, "good.pt", *(f".git/{number}" for number in range(9)))
    monkeypatch.setattr("jaxtroj.rounds.leftovers.MOST_ENTRIES", 5)
    assert left_out(tmp_path).is_cut and not left_out(tmp_path).is_partial
    put(tmp_path, *(f"z/{number}" for number in range(9)))
    assert left_out(tmp_path).is_cut and left_out(tmp_path).is_partial


def test_a_huge_folder_is_said_to_be_searched_in_part(tmp_path, monkeypatch):
    put(tmp_path, *(f"{number}.pt" for number in range(9)), "z/v2/model.pt")
    searched = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: searched.append(path) or scandir(path))
    monkeypatch.setattr("jaxtroj.rounds.leftovers.MOST_ENTRIES", 5)
    found = left_out(tmp_path)
    assert found.is_cut and "holds more than 5 files" in found.lines()[-1]
    assert searched.count(tmp_path) == 1 and len(searched) <= 2
