"""Dataset folders, labels and METADATA.csv: official layouts and hostile ones."""

import os
from pathlib import Path

import pytest

from jaxtroj.errors import DatasetError
from jaxtroj.rounds import errata, iter_models, load_truth
from jaxtroj.rounds.tables import read_ground_truth, read_table

REAL_METADATA = Path(__file__).parents[2] / "../shared/data/trojai/r0-METADATA.csv"


def add_model(root: Path, number: int, label: str | bytes | None = "1") -> Path:
    folder = root / f"id-{number:08d}"
    (folder / "example_data").mkdir(parents=True)
    (folder / "model.pt").write_bytes(b"never opened")
    if label is not None:
        content = label if isinstance(label, bytes) else label.encode()
        (folder / "ground_truth.csv").write_bytes(content)
    return folder


def test_round0_layout_with_metadata_beside(tmp_path):
    root = tmp_path / "trojai-round0-dataset"
    add_model(root, 10, "0")
    add_model(root, 9, "1\n")
    (tmp_path / "round0-metadata.csv").write_text(
        "model_name,ground_truth,model_architecture\n"
        "id-00000009,TRUE,resnet50\nid-00000010,FALSE,densenet121\n"
    )
    (tmp_path / "round5-metadata.csv").write_text("not ours\n")
    entries = list(iter_models(root))
    assert [entry.model_id for entry in entries] == ["id-00000009", "id-00000010"]
    assert [entry.poisoned for entry in entries] == [True, False]
    assert entries[0].metadata["model_architecture"] == "resnet50"
    assert entries[0].examples_path == root / "id-00000009" / "example_data"
    assert entries[0].model_path == root / "id-00000009" / "model.pt"
    assert entries[0].problem is None and entries[0].skip_reason is None


@pytest.mark.parametrize("name", ["round1-dataset-train", "TrojAI_Round1_train"])
@pytest.mark.parametrize("inner", [False, True])
def test_round1_errata_are_skipped_with_the_reason(tmp_path, name, inner):
    root = tmp_path / name
    add_model(root / "models", 184, "1")
    add_model(root / "models", 185, "0")
    (root / "METADATA.csv").write_text(
        "model_name,ground_truth\nid-00000184,TRUE\nid-00000185,FALSE\n"
    )
    place = root / "models" if inner else root
    first, second = iter_models(place)
    assert "erratum" in first.skip_reason and second.skip_reason is None
    kept = next(iter_models(place, include_errata=True))
    assert kept.skip_reason is None and "erratum" in kept.notes[0]
    assert load_truth(place) == {"id-00000185": False}
    assert load_truth(place, include_errata=True)["id-00000184"] is True


@pytest.mark.parametrize("inner", [False, True])
def test_a_dataset_is_known_by_a_dot_and_by_a_link(tmp_path, monkeypatch, inner):
    root = tmp_path / "round1-dataset-train"
    add_model(root / "models", 184, "1")
    place = root / "models" if inner else root
    (tmp_path / "link").symlink_to(place)
    monkeypatch.chdir(place)
    for named in (place, tmp_path / "link", Path(".")):
        (entry,) = iter_models(named)
        assert entry.skip_reason is not None and entry.round == "round1", named


def test_errata_leave_other_datasets_alone(tmp_path):
    for name in ("mine", "round1-dataset-test", "round0", "round10-train", "round1"):
        add_model(tmp_path / name, 184)
        assert next(iter_models(tmp_path / name)).skip_reason is None
    add_model(tmp_path / "round1-train", 184, "0")  # official label is 1: some other model
    assert next(iter_models(tmp_path / "round1-train")).skip_reason is None
    add_model(tmp_path / "my-round1-train", 184, None)  # a name alone takes no model out
    assert next(iter_models(tmp_path / "my-round1-train")).skip_reason is None


NAMES = {
    "trojai-round0-dataset": "round0",
    "round0": "round0",
    "round1-dataset-train": "round1-train",
    "TrojAI_Round_1": "round1",
    "round-1-test": "round1-test",
    "trojai-round2-train": "round2-train",
    "image-classification-aug2020-round2": "round2",
    "TrojAI_Round3": "round3",
    "TrojAIRound3": "round3",
    "TROJAIround3": "round3",
    "nist_round4": "round4",
    "ROUND 4": "round4",
    "2020round2": "round2",
    "r1-train": "round1-train",
    "round5-test-dataset": "round5-test",
    "r5-train": "round5-train",
    "trojai-r1-test": "round1-test",
    **dict.fromkeys(["yolo-r0", "net-r1-test", "heads-r5-train"]),
    "NLP-sentiment-classification-mar2021-holdout": "round5-holdout",
    **dict.fromkeys(["background2", "playground2", "underground-0", "my-foreground_3", "around 4"]),
    **dict.fromkeys(["BACKGROUND2", "round10-train", "round05", "background5-train"]),
}


@pytest.mark.parametrize(("name", "expected"), NAMES.items())
def test_rounds_are_told_by_words_of_names(tmp_path, name, expected):
    assert errata.dataset_name(tmp_path / name, None) == expected
    (tmp_path / "METADATA.csv").write_text(f"model_name,signs_filepath\nid-1,/data/{name}/road\n")
    found = errata.dataset_name(tmp_path / "mine", read_table(tmp_path / "METADATA.csv"))
    is_early = expected and expected < "round5"
    assert found == (expected.partition("-")[0] if is_early else None)


@pytest.mark.parametrize(("name", "is_its"), [("round2-train", True), ("background2", False)])
def test_metadata_beside_a_folder_is_of_a_round_alone(tmp_path, name, is_its):
    add_model(tmp_path / name, 0, None)
    (tmp_path / "round2-metadata.csv").write_text("model_name,poisoned\nid-00000000,True\n")
    assert next(iter_models(tmp_path / name)).poisoned is (True if is_its else None)


def test_cells_of_metadata_are_read_one_by_one(tmp_path):
    (tmp_path / "METADATA.csv").write_text("model_name,shape,size\nid-1,round,2\n")
    table = read_table(tmp_path / "METADATA.csv")
    assert errata.dataset_name(tmp_path / "mine", table) is None


def test_real_round0_metadata_and_notes(tmp_path):
    if not REAL_METADATA.exists():
        pytest.skip("shared/data/trojai is not beside this checkout")
    root = tmp_path / "round0"
    add_model(root, 41, "0")
    add_model(root, 42, None)
    (root / "METADATA.csv").write_bytes(REAL_METADATA.read_bytes())
    first, second = iter_models(root)
    assert "did not converge" in first.notes[0] and first.skip_reason is None
    assert second.notes == () and second.poisoned is not None
    assert first.metadata["number_classes"] == "5"
    truth = load_truth(REAL_METADATA)
    assert (len(truth), sum(truth.values())) == (200, 100)


def test_one_model_folder_and_plain_files(tmp_path):
    folder = add_model(tmp_path, 3, "1")
    (entry,) = iter_models(folder)
    assert entry.model_id == "id-00000003" and entry.poisoned is True
    plain = tmp_path / "plain"
    plain.mkdir()
    for name in ("b10.pt", "b9.pth", "notes.txt"):
        (plain / name).write_bytes(b"")
    (plain / "METADATA.csv").write_text("model_name,poisoned\nb9,True\n")
    assert [(e.model_id, e.poisoned) for e in iter_models(plain)] == [
        ("b9.pth", True),
        ("b10.pt", None),
    ]


def test_a_row_without_an_ending_is_a_files_and_no_folders(tmp_path):
    for name in ("net.v1", "net.v2", "net"):
        add_model(tmp_path, 0, None).rename(tmp_path / name)
    (tmp_path / "METADATA.csv").write_text("model_name,poisoned\nnet,True\n")
    found = {entry.model_id: entry.poisoned for entry in iter_models(tmp_path)}
    assert found == {"net": True, "net.v1": None, "net.v2": None}


def test_model_file_by_another_name(tmp_path):
    folder = add_model(tmp_path, 0)
    os.rename(folder / "model.pt", folder / "weights.safetensors")
    empty, both = add_model(tmp_path, 1), add_model(tmp_path, 2)
    os.remove(empty / "model.pt")
    os.rename(both / "model.pt", both / "a.pt")
    (both / "b.pt").write_bytes(b"")
    first, second, third = iter_models(tmp_path)
    assert first.model_path.name == "weights.safetensors" and first.problem is None
    assert "no model file" in second.problem
    assert "several model files" in third.problem


def test_folder_without_models(tmp_path):
    with pytest.raises(DatasetError, match="no model in"):
        iter_models(tmp_path)
    with pytest.raises(DatasetError, match="no folder"):
        iter_models(tmp_path / "absent")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(DatasetError, match="no model in"):
        iter_models(tmp_path)


@pytest.mark.parametrize(
    ("content", "poisoned"),
    [(b"0", False), (b"1", True), (b"1\n", True), (b"\xef\xbb\xbf0\r\n", False), (b" 1 ", True)],
)
def test_ground_truth_forms(tmp_path, content, poisoned):
    (tmp_path / "ground_truth.csv").write_bytes(content)
    assert read_ground_truth(tmp_path / "ground_truth.csv") is poisoned


@pytest.mark.parametrize(
    "content", [b"", b"2", b"01", b"yes", b"\0", b"\xff\xfe1\0", b"1\n0\n", b"1" * 100_000]
)
def test_garbage_ground_truth_stays_with_its_model(tmp_path, content):
    add_model(tmp_path, 0, content)
    add_model(tmp_path, 1, "0")
    first, second = iter_models(tmp_path)
    assert first.poisoned is None and "ground_truth.csv" in first.problem
    assert second.poisoned is False and second.problem is None
    with pytest.raises(DatasetError, match="id-00000000"):
        load_truth(tmp_path)


def test_label_sources_that_disagree(tmp_path):
    add_model(tmp_path, 0, "0")
    (tmp_path / "METADATA.csv").write_text("model_name,poisoned\nid-00000000,True\n")
    (entry,) = iter_models(tmp_path)
    assert entry.poisoned is None and "METADATA says 1" in entry.problem


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("id-00000000,True,1\nid-00000000,False,1\nid-00000000,True,1\n", "several lines"),
        ("id-00000000,maybe,1\n", "label 'maybe'"),
        ("id-00000000,True\n", "2 cells"),
        ("id-00000000,True,1,2\n", "4 cells"),
        ('id-00000000,True,"open\n', "line 2 of the table is no line of a CSV table"),
        ('id-00000000,True,"1" x\n', "line 2 of the table is no line of a CSV table"),
        ('id-9,True,"1\n2"\nid-00000000,"True,1\n', "line 4 of the table is no line"),
    ],
)
def test_bad_metadata_rows_stay_with_their_model(tmp_path, lines, problem):
    add_model(tmp_path, 0, None)
    add_model(tmp_path, 1, None)
    (tmp_path / "METADATA.csv").write_text(
        "model_name,poisoned,size\n" + lines + "id-00000001,False,1\n"
    )
    first, second = iter_models(tmp_path)
    assert first.poisoned is None and problem in first.problem
    assert second.poisoned is False and second.problem is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"a,b\n1,2\n", "no model column"),
        (b"model_name,x,x\n", "twice"),
        (b"model_name,poisoned\nid-0,\0\n", "NUL"),
        (b"\xff\xfe\xfa", "UTF-8"),
        (b"model_name,x\nid-0," + b"9" * 200_000 + b"\n", "not a CSV table"),
        (b'model_name,"x\nid-0,1\n', "not a CSV table: line 1: "),
        (b"model_name,x\n" + b'"id-0" y,1\n' * 101, "not a CSV table: line 102: "),
        (b"model_name,x\n,1\n", "without a model id"),
    ],
)
def test_hostile_metadata_is_one_error(tmp_path, content, message):
    add_model(tmp_path, 0)
    (tmp_path / "METADATA.csv").write_bytes(content)
    with pytest.raises(DatasetError, match=message):
        iter_models(tmp_path)


def test_metadata_with_byte_order_mark_and_repeated_equal_lines(tmp_path):
    path = tmp_path / "METADATA.csv"
    path.write_bytes(b"\xef\xbb\xbfmodel_name,poisoned\r\nid-0,TRUE\r\nid-0,TRUE\r\n")
    assert read_table(path).rows["id-0"].poisoned is True


def test_several_metadata_files(tmp_path):
    add_model(tmp_path, 0)
    for name in ("a-metadata.csv", "b-metadata.csv"):
        (tmp_path / name).write_text("model_name,poisoned\nid-00000000,True\n")
    with pytest.raises(DatasetError, match="several metadata"):
        iter_models(tmp_path)
    (tmp_path / "METADATA.csv").write_text("model_name,poisoned\nid-00000000,True\n")
    assert next(iter_models(tmp_path)).poisoned is True


@pytest.mark.parametrize(
    "text",
    ["a,1\nb,0\n", "model,label\na,TRUE\nb,false\n", "model_name,x,poisoned\na,3,1\nb,3,0\n"],
)
def test_truth_files(tmp_path, text):
    path = tmp_path / "truth.csv"
    path.write_text(text)
    assert load_truth(path) == {"a": True, "b": False}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,1\nb,2\n", "label '2'"),
        ("a,1\na,0\n", "several lines"),
        ('a,1\nb,"0" x\n', "b: line 2 of the table is no line of a CSV table"),
        ("id-00000000,ture\nid-00000001,0\n", "id-00000000: label 'ture'"),
        ("a,1.0\nb,0\n", "a: label '1.0'"),
        ("a,\nb,0\n", "a: label ''"),
        ("a,1,2\nb,0,1\n", "no truth file"),
        ("model_name,poisoned\n", "no label"),
        ("a\nb\n", "no truth file"),
    ],
)
def test_bad_truth_files(tmp_path, text, message):
    path = tmp_path / "truth.csv"
    path.write_text(text)
    with pytest.raises(DatasetError, match=message):
        load_truth(path)


def test_truth_that_does_not_exist(tmp_path):
    with pytest.raises(DatasetError, match="not a file"):
        load_truth(tmp_path / "truth.csv")
    add_model(tmp_path, 0, None)
    with pytest.raises(DatasetError, match="no label"):
        load_truth(tmp_path)
