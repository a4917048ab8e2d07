"""Entries of a folder that look like models: each has an entry, or a reason why it fails."""

import os
from pathlib import Path

import pytest

from jaxtroj.errors import DatasetError
from jaxtroj.rounds import iter_models, layout, left_out


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"never opened")


def dangling(path: Path) -> None:
    os.symlink("nowhere", path)


def circle(path: Path) -> None:
    os.symlink(path.name, path)


NEITHER = (
    (dangling, "a symbolic link to nothing"),
    (circle, "unreadable (Too many levels"),
    (os.mkfifo, "a named pipe"),
)
"""How to make what is neither a file nor a folder, and what is said of it."""


@pytest.mark.parametrize("folder", ["net", "id-00000000"])
@pytest.mark.parametrize(("make", "kind"), [*NEITHER, (os.mkdir, "a folder")])
def test_a_model_pt_that_is_no_file_is_refused_and_other_models_stand(tmp_path, folder, make, kind):
    put(tmp_path, "sound/model.pt")
    (tmp_path / folder).mkdir()
    make(tmp_path / folder / "model.pt")
    found = {entry.model_id: entry for entry in iter_models(tmp_path)}
    assert found.keys() == {"sound", folder}
    assert found[folder].is_refused and f"model.pt is {kind}" in found[folder].problem
    assert not found["sound"].is_refused and found["sound"].problem is None


@pytest.mark.parametrize("models", [".", "models"])
@pytest.mark.parametrize(("make", "kind"), NEITHER)
def test_a_model_folder_that_is_no_folder_is_refused(tmp_path, models, make, kind):
    """It was left out without a word, with status 0."""
    (tmp_path / models).mkdir(exist_ok=True)
    make(tmp_path / models / "id-00000002")
    (alone,) = iter_models(tmp_path)
    put(tmp_path, f"{models}/id-00000001/model.pt")
    sound, gone = iter_models(tmp_path)
    assert alone == gone and gone.is_refused and sound.problem is None
    assert f"id-00000002 is {kind}" in gone.problem and "the folder itself" in gone.problem
    assert left_out(tmp_path).lines() == []


def test_a_plain_file_with_the_name_of_a_model_folder_is_a_model(tmp_path):
    put(tmp_path, "id-00000001/model.pt", "id-00000002")
    folder, file = iter_models(tmp_path)
    assert file.model_path == tmp_path / "id-00000002" and file.problem is folder.problem is None


@pytest.mark.parametrize("make", [dangling, circle, os.mkfifo, os.mkdir])
def test_a_folder_whose_model_pt_is_no_file_is_one_model(tmp_path, make):
    make(tmp_path / "model.pt")
    (entry,) = iter_models(tmp_path)
    assert entry.model_id == tmp_path.name and entry.is_refused


def test_a_plain_link_to_nothing_is_refused(tmp_path):
    put(tmp_path, "good.pt")
    dangling(tmp_path / "gone.pt")
    gone, good = sorted(iter_models(tmp_path), key=lambda entry: entry.model_id)
    assert gone.is_refused and "gone.pt is a symbolic link to nothing" in gone.problem
    assert not good.is_refused


@pytest.mark.parametrize(
    "folder, names",
    [
        ("net", ("model.pt", "backdoored.pt")),
        ("net", ("a.onnx", "b.pth")),
        ("id-00000000", ("a.onnx", "b.pth")),
    ],
)
def test_two_models_in_a_folder_are_named_and_none_is_taken(tmp_path, folder, names):
    put(tmp_path, "sound/model.pt", *(f"{folder}/{name}" for name in names))
    refused = next(entry for entry in iter_models(tmp_path) if entry.model_id == folder)
    assert refused.is_refused and not refused.model_path.is_file()
    assert f"several model files ({', '.join(sorted(names))})" in refused.problem
    assert f"jaxtroj scan {tmp_path / folder} --out RUN" in refused.problem
    each = [entry.model_id for entry in iter_models(tmp_path / folder)]
    assert each == sorted(names)  # what the remedy does


def test_in_a_round_model_pt_is_the_model_and_its_record_names_the_rest(tmp_path):
    put(tmp_path, "id-00000000/model.pt", "id-00000000/last.ckpt")
    (entry,) = iter_models(tmp_path)
    assert entry.model_path.is_file() and not entry.is_refused
    assert "other model files beside model.pt were not looked at: last.ckpt" in entry.problem


def test_the_rest_of_many_models_is_counted(tmp_path):
    put(tmp_path, *(f"net/{number}.pt" for number in range(6)), "sound/model.pt")
    entry = next(iter_models(tmp_path))
    assert "(0.pt, 1.pt, 2.pt, 3.pt and 2 more)" in entry.problem


def test_a_link_among_two_models_does_not_hide_behind_the_other(tmp_path):
    put(tmp_path, "net/other.pt", "sound/model.pt")
    dangling(tmp_path / "net" / "model.pt")
    assert next(iter_models(tmp_path)).is_refused


def test_folders_of_one_model_file_by_any_name(tmp_path):
    put(tmp_path, "a/net.pt", "a/example_data/class_0_example_0.png", "b/weights.safetensors")
    put(tmp_path, "b/embedding.pt", "b/tokenizer.pt", "c/embedding.pt", "papers/notes.txt")
    found = list(iter_models(tmp_path))
    assert [(e.model_id, e.model_path.name, e.problem) for e in found] == [
        ("a", "net.pt", None),
        ("b", "weights.safetensors", None),
        ("c", "embedding.pt", None),
    ]
    assert found[0].examples_path == tmp_path / "a" / "example_data"


def test_a_folder_named_like_a_model_is_said_to_hold_none(tmp_path):
    put(tmp_path, "good.pt")
    (tmp_path / "net.pt").mkdir()
    entry = next(e for e in iter_models(tmp_path) if e.model_id == "net.pt")
    assert "no model file in the folder net.pt" in entry.problem


@pytest.mark.parametrize("name", ["embeddings", "tokenizers", "example_data", ".hidden"])
def test_folders_that_belong_to_models_are_none(tmp_path, name):
    put(tmp_path, "net/model.pt", f"{name}/other.pt")
    assert [entry.model_id for entry in iter_models(tmp_path)] == ["net"]


def test_checkpoints_beside_a_model_leave_it_one_model(tmp_path):
    put(tmp_path, "model.pt", "checkpoints/first.pt")
    assert [entry.model_path for entry in iter_models(tmp_path)] == [tmp_path / "model.pt"]


def test_links_back_are_no_models_and_links_elsewhere_are(tmp_path):
    put(tmp_path, "set/a.pt", "set/b.pt", "elsewhere/net.pt")
    os.symlink(".", tmp_path / "set" / "self")
    os.symlink("../elsewhere", tmp_path / "set" / "link")
    found = {entry.model_id: entry for entry in iter_models(tmp_path / "set")}
    assert found.keys() == {"a.pt", "b.pt", "link"} and not found["link"].is_refused


def test_a_folder_without_models_names_the_files_that_were_not_looked_at(tmp_path):
    put(tmp_path, "net/v2/model.pt")
    with pytest.raises(DatasetError, match="no model in .*not looked at: net/v2/model.pt"):
        iter_models(tmp_path)


def test_model_pt_beside_the_files_of_another_network_is_refused(tmp_path):
    """It was exchanged for them, without a word."""
    put(tmp_path, "id-00000001/model.pt", "id-00000001/net.onnx", "id-00000002/net.onnx")
    for name in ("id-00000001", "id-00000002"):
        (tmp_path / name / "MLmodel").write_text("flavors:\n  onnx:\n    data: net.onnx\n")
    bad, good = iter_models(tmp_path)
    assert bad.is_refused and "may be more than one network" in str(bad.problem)
    assert good.problem is None and good.model_path.name == "net.onnx"
    put(tmp_path, "id-00000002/optimizer.pt", "id-00000002/rng_state_0.pth")
    assert [*iter_models(tmp_path)][1].problem is None
    put(tmp_path, "id-00000002/other.pt")
    assert "other.pt" in str([*iter_models(tmp_path)][1].problem)


def pipe_for_a_revision(folder: Path) -> None:
    (folder / "snapshots").mkdir()
    (folder / "refs").mkdir()
    os.mkfifo(folder / "refs" / "main")


def no_text_for_a_revision(folder: Path) -> None:
    (folder / "snapshots").mkdir()
    put(folder, "refs/main")
    (folder / "refs" / "main").write_bytes(b"\xff" * 1000)


HOSTILE = {
    "a pipe where a cache names its revision": pipe_for_a_revision,
    "a name that no file can have": lambda folder: (folder / "MLmodel").write_text(
        f"flavors: {{onnx: {{data: {'x' * 5000}}}}}"
    ),
    "a name with NUL": lambda folder: (folder / "MLmodel").write_text(
        'flavors: {onnx: {data: "\\0"}}'
    ),
    "bytes where a cache names its revision": no_text_for_a_revision,
    **{
        f"MLmodel {tag}": lambda folder, tag=tag: (folder / "MLmodel").write_text(
            f"flavors:\n  onnx: {tag}\n"
        )
        for tag in ("!!bool x", "!!int ''", "!!timestamp x", "!!float x", "&a [*a]")
    },
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_folder_costs_its_own_model_alone(tmp_path, case):
    put(tmp_path, "good/model.pt")
    (tmp_path / "bad").mkdir()
    HOSTILE[case](tmp_path / "bad")
    bad, good = iter_models(tmp_path)
    assert (bad.model_id, good.model_id) == ("bad", "good") and good.problem is None
    assert left_out(tmp_path).lines() == []


def test_a_fault_that_nobody_foresaw_costs_its_own_model_alone(tmp_path, monkeypatch):
    def fails(place):
        if place.name == "bad":
            raise RuntimeError("of some library")
        return real(place)

    real = layout.model_file
    monkeypatch.setattr(layout, "model_file", fails)
    put(tmp_path, "bad/model.pt", "good/model.pt")
    bad, good = iter_models(tmp_path)
    assert bad.is_refused and "RuntimeError: of some library" in str(bad.problem)
    assert good.problem is None
