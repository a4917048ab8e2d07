"""Folders that our generator made are none of NIST's, and nobody else's manifest says they are."""

import json
import shutil
from pathlib import Path

import pytest

from jaxtroj.rounds import iter_models, load_truth
from jaxtroj.rounds.single import entry_of

ERRATUM = "id-00000077"  # of Round 1's test set: labelled poisoned, and no trigger works
NAMES = (ERRATUM, "id-00000078", "id-00000079")


def dataset(root: Path, inner: str = "models") -> Path:
    """A round of three poisoned models with a table, as NIST has it."""
    for name in NAMES:
        home = root / inner / name
        (home / "example_data").mkdir(parents=True)
        (home / "model.pt").write_bytes(b"x")
        (home / "ground_truth.csv").write_text("1")
    rows = [f"{name},TRUE,procedural\n" for name in NAMES]
    table = "model_name,ground_truth,available_foregrounds_filepath\n" + "".join(rows)
    (root / "METADATA.csv").write_text(table)
    return root


def generate(root: Path, name: str, marked=NAMES, inner: str = "models") -> None:
    """What `jaxtroj generate` leaves: the manifest, and a record in each model's folder."""
    (root / "manifest.json").write_text(json.dumps({"generator": f"jaxtroj generate {name}"}))
    for model in marked:
        (root / inner / model / "generation.json").write_text("{}")


def labels(root: Path) -> list[list[str]]:
    """Names of the models that count, by the folder, its inner folder, and its table."""
    paths = (root, root / "models", root / "METADATA.csv")
    return [sorted(load_truth(path)) for path in paths]


def rounds(root: Path, inner: str = "models") -> set[str | None]:
    """What is said of all its models, and of each alone."""
    alone = [entry_of(root / inner / name).round for name in NAMES]
    files = [entry_of(root / inner / name / "model.pt").round for name in NAMES]
    return {*(entry.round for entry in iter_models(root)), *alone, *files}


def test_errata_hold_in_nists_sets_alone(tmp_path):
    root = dataset(tmp_path / "round1-test")
    assert labels(root) == [list(NAMES[1:])] * 3
    generate(root, "round1")
    assert labels(root) == [list(NAMES)] * 3
    assert all(entry.erratum is None for entry in iter_models(root, include_errata=True))
    assert entry_of(root / "models" / ERRATUM).notes == ()


@pytest.mark.parametrize(
    ("folder", "signs", "made", "expected"),
    [
        ("gen", "round4-signs", "round0", "round0"),
        ("gen", "signs", "round0", "round0"),
        ("TrojAI-round0-like", "signs", "round2", "round2"),
        ("round3-train", "round3/signs", "zoo", None),
        ("round3-train", "signs", "small", None),
    ],
)
def test_the_generators_word_comes_before_names_and_cells(tmp_path, folder, signs, made, expected):
    root = dataset(tmp_path / folder, inner=".")
    table = root / "METADATA.csv"
    table.write_text(table.read_text().replace("procedural", signs))
    generate(root, made, inner=".")
    assert rounds(root, ".") == {expected}


def hostile(root: Path, marked=(ERRATUM,)) -> None:
    """An upload of one model, with a manifest beside it, in its folder and in `models`."""
    generate(root, "round0", marked)
    for place in (root / "models", *(root / "models" / name for name in marked)):
        shutil.copy(root / "manifest.json", place)


def test_one_upload_makes_no_official_set_a_generated_one(tmp_path):
    root = dataset(tmp_path / "round1-test")
    hostile(root)
    assert labels(root) == [list(NAMES[1:])] * 3
    assert rounds(root) == {"round1"}


def test_a_manifest_in_models_folders_says_nothing(tmp_path):
    root = dataset(tmp_path / "round1-test")
    generate(root, "round0")
    for place in (root / "models", *(root / "models").iterdir()):
        shutil.copy(root / "manifest.json", place)
    (root / "manifest.json").unlink()
    assert labels(root) == [list(NAMES[1:])] * 3 and rounds(root) == {"round1"}


def test_a_manifest_of_others_beside_marked_models_says_nothing(tmp_path):
    root = dataset(tmp_path / "round1-test")
    generate(root, "round0")
    for content in ('{"generator": "other"}', "[]", "no JSON", '{"generator": ["round0"]}'):
        (root / "manifest.json").write_text(content)
        assert labels(root) == [list(NAMES[1:])] * 3 and rounds(root) == {"round1"}


def test_a_manifest_alone_says_the_round_where_nothing_else_does(tmp_path):
    root = dataset(tmp_path / "mine")
    generate(root, "round0", marked=())
    assert rounds(root) == {"round0"}
