"""A CSV that names model files, wherever they lie."""

import json
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


def test_a_path_is_the_name_where_there_is_no_other(folder):
    """Such a line was refused: it named no model, "expected a name or path"."""
    named, other, again = entries(folder, "model,path\nmine,id-7\n,id-7/model.pt\na,gone.pt\n")
    assert [named.model_id, other.model_id, again.model_id] == ["mine", "id-7/model.pt", "a"]
    assert other.problem is None and other.model_path == folder / "id-7" / "model.pt"
    (bad,) = entries(folder, "model,path\nid-7,gone.pt\n,id-7\n")
    assert bad.is_refused and "several lines that differ" in bad.problem


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


def test_an_empty_label_leaves_it_open(folder):
    labelled, other = entries(folder, "path,poisoned\nid-7,\n'a b,\n")
    assert (labelled.poisoned, labelled.problem) == (True, None), "by its ground_truth.csv"
    assert other.poisoned is None and "label" not in (other.problem or "")


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


def test_a_name_on_lines_that_differ_is_refused_whatever_the_label(folder):
    bad, good = entries(folder, "path,examples,poisoned\nid-7,,1\n'a,,0\nid-7,pictures,1\n")
    assert bad.is_refused and bad.problem.startswith("several lines that differ (2 and 4)")
    assert str(folder / "list.csv") in bad.problem and bad.model_path == folder / "list.csv"
    assert not good.is_refused
    (same,) = entries(folder, "path,poisoned\nid-7,1\nid-7,1\n")
    assert same.problem is None and not same.is_refused and same.poisoned is True


def test_a_short_line_differs_from_a_whole_one(folder):
    (bad,) = entries(folder, "path,poisoned\nid-7,1\nid-7,1,extra\n")
    assert bad.is_refused


@pytest.mark.parametrize(
    "text, number",
    [
        ("model,path\na,id-7\n,\n", 3),
        ("path,poisoned\n\nid-7,1\n\n,0\n", 5),
        ('path,note\nid-7,"two\nlines"\n , \n', 4),
    ],
)
def test_a_line_without_a_name_is_refused_by_its_number(folder, text, number):
    good, bad = entries(folder, text)
    assert good.problem is None and not good.is_refused
    assert (bad.model_id, bad.is_refused) == (f"line {number}", True)
    assert bad.problem.startswith(f"line {number} of {folder / 'list.csv'} names no model")


def test_lines_without_a_name_alone_are_models_that_fail(folder):
    (bad,) = entries(folder, "path,poisoned\n,1\n")
    assert bad.model_id == "line 2" and bad.is_refused


def test_a_line_that_names_no_plain_file_is_refused(folder):
    (folder / "two").mkdir()
    for name in ("x.pt", "y.pt"):
        (folder / "two" / name).write_bytes(b"x")
    os.symlink("nowhere", folder / "gone.pt")
    two, gone, absent = entries(folder, "path\ntwo\ngone.pt\nabsent.pt\n")
    assert two.is_refused and "several model files (x.pt, y.pt)" in two.problem
    assert gone.is_refused and "a symbolic link to nothing" in gone.problem
    assert not absent.is_refused  # reading it says so


def test_links_that_lead_in_a_circle_are_no_models(tmp_path):
    os.symlink("loop.pt", tmp_path / "loop.pt")
    (one,) = entries(tmp_path, "path\nloop.pt\n")
    assert one.model_path.name == "loop.pt"
    with pytest.raises(DatasetError, match="no model in"):
        iter_models(tmp_path)


def test_a_broken_mlmodel_beside_a_text_classifier_is_a_problem_of_that_line(folder):
    for name in ("whole", "broken"):
        home = folder / name / "net"
        home.mkdir(parents=True)
        config = {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}
        (home / "config.json").write_text(json.dumps(config))
        (home / "model.safetensors").write_bytes(b"")
    (folder / "broken" / "MLmodel").write_text("no flavors")
    whole, broken = entries(folder, "path\nwhole/net\nbroken/net\n")
    assert whole.kind == broken.kind == "text-classifier"
    assert whole.problem is None and "MLmodel names no flavors" in (broken.problem or "")
