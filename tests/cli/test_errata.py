"""An erratum is a remark about a label: it keeps no model from being looked at."""

import shutil
from pathlib import Path

import pytest

import jaxtroj
from jaxtroj.cli.main import main
from jaxtroj.record import Record
from jaxtroj.rounds import load_truth
from jaxtroj.settings import Settings
from jaxtroj.store import RunStore, read_records

pytestmark = pytest.mark.usefixtures("unguarded")

EXAMPLES = Path(jaxtroj.__file__).parent / "data" / "examples"
ID = "id-00000184"


def run(*arguments) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture
def upload(tmp_path):
    """A poisoned model by the name of one on the list, and a table by that of Round 1."""
    root = tmp_path / "upload"
    shutil.copytree(EXAMPLES / "poisoned", root / ID)
    (root / ID / "ground_truth.csv").write_text("1")
    (root / "round1-train-metadata.csv").write_text(f"model_name,ground_truth\n{ID},1\n")
    return root


def test_a_poisoned_model_by_the_name_of_an_erratum_is_scanned(upload, tmp_path, capsys):
    """It was skipped unopened, with status 0; so it was in a run that goes on now."""
    arguments = ("scan", upload, "--out", tmp_path / "run", "--stages", "weights", "--truth")
    values = Settings(stages=("weights",), recover_words=False).as_json()
    with RunStore(tmp_path / "run", values) as store:
        store.append(Record(ID, "", 0.5, False, None, (), "skipped", "erratum by NIST"))
    assert run(*arguments) in (0, 1)
    said = capsys.readouterr().err
    (record,) = read_records(tmp_path / "run")
    assert record.status == "ok" and record.sha256
    assert "1 scanned model with an erratum by NIST: labelled poisoned, but no trigger" in said
    assert "no labels in the dataset folder" in said
    assert run(*arguments, "--include-errata") in (0, 1)
    assert "log score" in capsys.readouterr().out


def test_from_python_it_is_scanned_too(upload):
    (record,) = jaxtroj.scan_folder(upload, Settings(stages=("weights",)))
    assert record.status == "ok" and record.sha256


def test_a_table_is_no_truth_about_models_of_an_erratum(tmp_path):
    text = f"model_name,ground_truth\n{ID},1\nid-00000001,1\n"
    for home in ("round1-dataset-train", "mine"):
        (tmp_path / home).mkdir()
        (tmp_path / home / "METADATA.csv").write_text(text)
    both = {ID: True, "id-00000001": True}
    assert load_truth(tmp_path / "mine" / "METADATA.csv") == both
    official = tmp_path / "round1-dataset-train" / "METADATA.csv"
    assert load_truth(official) == {"id-00000001": True}
    assert load_truth(official, include_errata=True) == both
