"""A model that nobody judged is not one below the threshold."""

import pytest

from jaxtroj.accepted import NONE
from jaxtroj.cli.main import main
from jaxtroj.cli.statuses import exit_status
from jaxtroj.record import EVIDENCE_ONLY, Record
from tests.sentiment_head import text_head

LACKS = f"{EVIDENCE_ONLY}, the probability is the base rate: the calibrator judges by beside"


def record(status: str = "ok", poisoned: bool = False, reason: str = "") -> Record:
    return Record("m", "", 0.5, poisoned, None, (), status, reason)


CLEAN, POISONED, FAILED, SKIPPED = (
    record(), record(poisoned=True), record("failed", reason="empty file"), record("skipped"),
)  # fmt: skip
GATHERED = record(reason=LACKS)


@pytest.mark.parametrize(
    ("records", "asked", "expected"),
    [
        ([CLEAN], True, 0),
        ([CLEAN, GATHERED], True, 5),
        ([GATHERED], True, 5),
        ([GATHERED, POISONED], True, 1),
        ([GATHERED, POISONED, FAILED], True, 2),
        ([SKIPPED], True, 3),
        ([SKIPPED, GATHERED], True, 5),
        ([], True, 3),
        ([GATHERED, CLEAN], False, 0),
        ([GATHERED, FAILED], False, 2),
    ],
)
def test_what_decides_the_status(records, asked, expected, capsys):
    assert exit_status(records, NONE, evidence_only=not asked) == expected
    said = "evidence and no verdict (gathered)" in capsys.readouterr().err
    assert said == (asked and GATHERED in records)


def test_a_head_without_a_bank_fails_a_build(tmp_path, capsys):
    home = text_head(tmp_path / "round" / "id-00000000")
    words = ["scan", str(tmp_path / "round"), "--out", str(tmp_path / "run")]
    for _ in range(2):  # also where the record is there already
        assert main(words) == 5
        said = capsys.readouterr().err
        assert "0 skipped, 1 gathered; records" in said
        assert "1 model has evidence and no verdict (gathered)" in said
    assert main(["detect", str(home), "--out", str(tmp_path / "out")]) == 5
    assert "1 model has evidence and no verdict (gathered)" in capsys.readouterr().err
    assert main([*words[:3], str(tmp_path / "other"), "--evidence-only"]) == 0
    assert "no verdict" not in capsys.readouterr().err


def test_infer_says_that_its_answer_is_the_base_rate(tmp_path, capsys):
    home, result = text_head(tmp_path / "active"), tmp_path / "result.txt"
    words = [f"--model_filepath={home / 'model.pt'}", f"--result_filepath={result}"]
    words += [f"--examples_dirpath={home / 'clean_example_data'}", "--cls_token_is_first"]
    assert main(["infer", *words, f"--scratch_dirpath={tmp_path}"]) == 0
    assert "1 model has evidence and no verdict (gathered)" in capsys.readouterr().err
    assert 0 < float(result.read_text()) < 1
