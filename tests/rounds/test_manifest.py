"""A CSV that names model files, wherever they lie."""

import os

import pytest

from jaxtroj.errors import DatasetError
from jaxtroj.rounds import iter_models


def entries(folder, text: str):
    (folder / "list.csv").write_text(text)
    return list(iter_models(folder / "list.csv"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "net\n1.pt").write_bytes(b"x")
    (tmp_path / "pictures").mkdir()
    home = tmp_path / "id-7"
    (home / "example_data").mkdir(parents=True)
    (home / "model.pt").write_bytes(b"y")
    (home / "ground_truth.csv").write_text("1")
    return tmp_path


def test_paths_examples_labels_and_other_columns(folder):
    first, second, third = entries(
        folder,
        'path,examples,poisoned,architecture\n"a b/net\n1.pt",pictures,TRUE,resnet50\n'
        f"id-7,,,resnet18\n{folder / 'gone.pt'},pictures,0,\n".replace(
            ",,,resnet18", ",,1,resnet18"
        ),
    )
    assert first.model_id == "a b/net\n1.pt" and first.model_path.read_bytes() == b"x"
    assert (first.examples_path, first.poisoned) == (folder / "pictures", True)
    assert first.metadata["architecture"] == "resnet50" and first.problem is None
    assert second.model_path == folder / "id-7" / "model.pt"
    assert (second.examples_path, second.poisoned) == (folder / "id-7" / "example_data", True)
    assert third.model_path == folder / "gone.pt" and third.poisoned is False


def test_names_may_have_a_column_of_their_own(folder):
    (one,) = entries(folder, "model,path\nmine,id-7/model.pt\n")
    assert (one.model_id, one.poisoned, one.problem) == ("mine", None, None)


@pytest.mark.parametrize(
    "line, problem",
    [
        ("id-7,0", "ground_truth.csv says True, the manifest False"),
        ("id-7,maybe", "label 'maybe'"),
        ("id-7,1,2", "3 cells"),
        ("id-7,1\nid-7,0", "several lines"),
    ],
)
def test_a_bad_line_concerns_its_model_only(folder, line, problem):
    bad, good = entries(folder, f"path,poisoned\n{line}\n'a b,0\n")
    assert problem in bad.problem and bad.poisoned is None
    assert good.problem is None


def test_a_line_without_a_path_says_so(folder):
    (one,) = entries(folder, "model,path\nmine,\n")
    assert one.problem == "no path in the manifest" and not one.model_path.exists()


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("model,poisoned\na,1\n", "no manifest: expected a column path or model_path"),
        ("path\n", "names no model"),
        ("", "is empty"),
        ("a,b\n1,2\n", "has no model column"),
        ("path\n\n\0", "NUL"),
    ],
)
def test_what_is_no_manifest_is_refused(folder, text, complaint):
    with pytest.raises(DatasetError, match=complaint):
        entries(folder, text)


def test_links_that_lead_in_a_circle_are_no_models(tmp_path):
    os.symlink("loop.pt", tmp_path / "loop.pt")
    (one,) = entries(tmp_path, "path\nloop.pt\n")
    assert one.model_path.name == "loop.pt"
    with pytest.raises(DatasetError, match="no model in"):
        iter_models(tmp_path)
