"""Truth tables of anyone: how headers may be spelled, and first lines that are none."""

import pytest

from jaxtroj.errors import DatasetError
from jaxtroj.leaderboard.cases import read_truth
from jaxtroj.rounds import load_truth

TWO = {"a": True, "b": False}


def truth_of(folder, text):
    """What a table says, or DatasetError."""
    path = folder / "truth.csv"
    path.write_text(text)
    return load_truth(path)


@pytest.mark.parametrize(
    "header",
    [
        "model,poisoned\n",
        "Model,Poisoned\n",
        "MODEL_NAME,GROUND_TRUTH\n",
        "net,is bad\n",
        "network,truth\n",
        "Network,Label\n",
        "",
    ],
)
def test_headers_in_any_case_and_other_words_are_headers(tmp_path, header):
    assert truth_of(tmp_path, f"{header}a,1\nb,FALSE\n") == TWO


def test_only_columns_that_are_needed_are_renamed(tmp_path):
    path = tmp_path / "truth.csv"
    path.write_text("Model_Name,ID,Poisoned,Seed\na,x,1,3\n")
    assert load_truth(path) == {"a": True}
    assert read_truth(path).cells["a"] == {
        "model_name": "a",
        "id": "x",
        "poisoned": "1",
        "Seed": "3",
    }
    path.write_text("model_name,ID,Poisoned,Seed\na,x,1,3\n")
    assert read_truth(path).cells["a"] == {
        "model_name": "a",
        "ID": "x",
        "poisoned": "1",
        "Seed": "3",
    }


@pytest.mark.parametrize("label", ["ture", "fals", "Tru", "yes", "N", "clean"])
def test_a_first_model_whose_label_is_mistyped_is_no_header(tmp_path, label):
    path = tmp_path / "truth.csv"
    path.write_text(f"net1,{label}\na,1\nb,0\n")
    with pytest.raises(DatasetError, match="line 1: .* neither a header nor a model with a label"):
        load_truth(path)


MANIFEST = """path,examples,poisoned,architecture
nets/first.pt,pictures/first,0,resnet50
nets/second.safetensors,pictures/second,1,densenet121
id-00000007,,,
"""


def test_a_manifest_is_a_truth_by_the_names_that_its_records_have(tmp_path):
    path = tmp_path / "models.csv"
    path.write_text(MANIFEST)
    names = ["nets/first.pt", "nets/second.safetensors"]
    assert load_truth(path) == dict(zip(names, (False, True), strict=True))
    truth = read_truth(path)
    assert truth.poisoned == load_truth(path)
    assert truth.cells[names[1]]["architecture"] == "densenet121"
    path.write_text("model_path,id,poisoned\nnets/first.pt,a,0\nnets/second.safetensors,,1\n")
    assert load_truth(path) == {"a": False, names[1]: True}
    path.write_text(MANIFEST.replace(",1,", ",perhaps,"))
    with pytest.raises(DatasetError, match=r"label 'perhaps', .* \(column poisoned\)"):
        load_truth(path)


def test_a_bad_label_says_where_it_stands(tmp_path):
    path = tmp_path / "truth.csv"
    for text, place in (("a,1\nb,x\n", "the second column"), ("model,poisoned\nb,x\n", "column p")):
        path.write_text(text)
        with pytest.raises(DatasetError, match=rf"b: label 'x', .* \({place}"):
            load_truth(path)


@pytest.mark.parametrize("header", ["poisoned,ground_truth", "Poisoned,ground_truth"])
def test_two_label_columns_must_agree(tmp_path, header):
    path = tmp_path / "truth.csv"
    path.write_text(f"model,{header}\na,1,TRUE\nb,0,\nc,,False\n")
    assert load_truth(path) == {"a": True, "b": False, "c": False}
    for cells, said in (
        ("1,0", "label columns that differ .*oisoned' '1', 'ground_truth' '0'.*, expected one"),
        ("1,maybe", r"label 'maybe', .* \(column ground_truth\)"),
        (",", "label '', "),
    ):
        path.write_text(f"model,{header}\na,1,TRUE\nb,{cells}\n")
        with pytest.raises(DatasetError, match=f"1 unreadable label.*b: {said}"):
            load_truth(path)


def test_two_label_columns_of_a_manifest_must_agree(tmp_path):
    path = tmp_path / "models.csv"
    path.write_text("path,poisoned,ground_truth\na.pt,1,1\nb.pt,,\nc.pt,,0\n")
    assert load_truth(path) == {"a.pt": True, "c.pt": False}
    path.write_text("path,poisoned,ground_truth\na.pt,1,0\n")
    with pytest.raises(DatasetError, match=r"a\.pt: label columns that differ"):
        load_truth(path)


@pytest.mark.parametrize(
    "lines",
    [
        "model_name,model,poisoned\nm0,m1,1\nm1,m0,0\n",
        "model_name,model,poisoned\nm0,m1,1\nm1,m0,0\nm2,m0,0\n",
        "poisoned,Model,model_id\n1,m5,m0\n0,m6,m1\n",
        "id,model,poisoned\nm0,m5,1\nm5,m1,0\n",
        "model,id,poisoned\n0,1,1\n1,2,0\n",
        "model_id,model_name,path,poisoned\nm0,m1,a.pt,1\nm1,m0,b.pt,0\n",
    ],
)
def test_two_columns_that_name_models_otherwise_are_refused(tmp_path, lines):
    with pytest.raises(DatasetError, match="in column .*: expected one name; remove the column"):
        truth_of(tmp_path, lines)


@pytest.mark.parametrize(
    "lines",
    [
        "model_name,model,poisoned\na,a,1\nb,b,0\n",
        "model_name,model,poisoned\na,,1\nb,b,0\n",
        "model_name,model,poisoned\na,resnet50,1\nb,resnet50,0\n",
        "id,model_name,poisoned\n0,a,1\n1,b,0\n",
        "model_id,path,poisoned\na,nets/a.pt,1\nb,nets/b.pt,0\n",
    ],
)
def test_a_column_that_names_no_models_is_a_cell_as_any_other(tmp_path, lines):
    assert truth_of(tmp_path, lines) == TWO
