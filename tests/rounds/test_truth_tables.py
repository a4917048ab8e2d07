"""Truth tables of anyone: how headers may be spelled, and first lines that are none."""

import pytest

from jaxtroj.errors import DatasetError
from jaxtroj.leaderboard.cases import read_truth
from jaxtroj.rounds import load_truth

TWO = {"a": True, "b": False}


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
    path = tmp_path / "truth.csv"
    path.write_text(f"{header}a,1\nb,FALSE\n")
    assert load_truth(path) == TWO


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
