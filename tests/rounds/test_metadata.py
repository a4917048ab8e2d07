"""Tables in and beside a dataset folder: which one says something about its models."""

import pytest

from jaxtroj.errors import DatasetError
from jaxtroj.rounds import iter_models, load_truth, tables_aside

NO_MODELS = "model,note\nother,trained in round 0\n"


def add(root, name, text="model_name,poisoned\nnet,True\n"):
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@pytest.fixture
def root(tmp_path):
    """A folder of two models, `net` and `other.pt`."""
    add(tmp_path / "up", "net/model.pt", "never opened")
    add(tmp_path / "up", "second.pt", "never opened")
    return tmp_path / "up"


def told(root):
    return [(entry.poisoned, entry.round) for entry in iter_models(root)]


def test_a_table_that_names_no_model_of_the_folder_says_nothing_about_it(root):
    """One more upload set the round of the whole folder, and with it who answers."""
    add(root, "x_metadata.csv", NO_MODELS)
    add(root, "round0-metadata.csv", "model,poisoned\nother,1\n")
    assert told(root) == [(None, None)] * 2
    first, second = tables_aside(root)
    assert first == f"round0-metadata.csv was left out: it names no model of {root}"
    assert second.startswith("x_metadata.csv was left out: it names no model")


@pytest.mark.parametrize("name", ["round1-metadata.csv", "METADATA.csv", "my_metadata.csv"])
@pytest.mark.parametrize("model", ["net", "second", "second.pt"])
def test_a_table_that_names_one_is_taken(root, name, model):
    add(root, name, f"model_name,poisoned\nother,0\n{model},True\n")
    add(root, "x_metadata.csv", NO_MODELS)
    add(root, "y_metadata.csv", "sku,price\n1,2\n")
    assert [label for label, _ in told(root)] == [model == "net" or None, model != "net" or None]
    assert {which for _, which in told(root)} == {"round1" if name.startswith("round1") else None}
    assert [line.partition(" ")[0] for line in tables_aside(root)] == [
        "y_metadata.csv",
        "x_metadata.csv",
    ]


def test_a_table_of_few_models_gives_labels_and_no_round(root):
    """One row of a stranger's set the calibrator of all other models."""
    add(root, "third.pt", "never opened")
    add(root, "round1-metadata.csv")
    assert told(root) == [(True, None), (None, None), (None, None)]
    add(root, "round1-metadata.csv", "model_name,poisoned\nnet,True\nthird,False\n")
    assert told(root) == [(True, "round1"), (None, "round1"), (False, "round1")]


def test_a_remark_in_a_table_is_no_path(root):
    for column, expected in [("note", None), ("path", "round2"), ("signs_filepath", "round2")]:
        add(root, "METADATA.csv", f"model_name,{column}\nnet,/data/round2/signs\n")
        assert told(root)[0] == (None, expected)


def test_tables_that_end_nothing(root):
    """They ended the scan of all models: what cannot be read, and two that name none."""
    for name in ("a_metadata.csv", "b_metadata.csv"):
        add(root, name, "model,x\na,2\n")
    (root / "c_metadata.csv").write_bytes(b"model,x\nnet,\0\n")
    add(root, "d_metadata.csv", "sku,price\n1,2\n")
    assert told(root) == [(None, None)] * 2
    lines = tables_aside(root)
    assert [line[:14] for line in lines] == [f"{c}_metadata.csv" for c in "cdab"]
    assert "holds NUL bytes" in lines[0] and "has no model column" in lines[1]


def test_beside_models_only_metadata_by_its_own_name_is_read(root):
    models = root.rename(root.parent / "models")
    add(root.parent, "product_metadata.csv", "sku,price\n1,2\n")
    assert told(models) == told(root.parent) == [(None, None)] * 2
    assert tables_aside(models) == []
    add(root.parent, "METADATA.csv", "sku,price\n1,2\n")
    assert told(models) == [(None, None)] * 2 and len(tables_aside(models)) == 1
    add(root.parent, "metadata.csv")
    assert told(models)[0] == (True, None)
    add(root.parent, "METADATA.csv", "model_name,poisoned\nnet,False\n")
    assert told(models)[0] == (False, None)
    for name in ("METADATA.csv", "metadata.csv"):
        (root.parent / name).unlink()
    add(root.parent, "round1-metadata.csv")
    assert told(models)[0] == (True, "round1")


def test_labels_that_a_damaged_table_may_hold_are_no_truth(root):
    add(root, "net/ground_truth.csv", "1")
    add(root, "x_metadata.csv", NO_MODELS)
    assert load_truth(root) == {"net": True}
    (root / "round0-metadata.csv").write_bytes(b"model,poisoned\nsecond,\xff\n")
    with pytest.raises(DatasetError, match=r"round0-metadata\.csv .*not UTF-8"):
        load_truth(root)
    assert [label for label, _ in told(root)] == [True, None]
