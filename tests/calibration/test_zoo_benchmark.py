"""The benchmark of a zoo, on made-up evidence."""

from dataclasses import asdict, replace
from json import dumps, loads
from pathlib import Path

import numpy as np
import pytest

from benchmarks.accuracy.picture_rows import PictureRow, read_all, read_rows, row_of
from benchmarks.accuracy.zoo import by, judge, text
from jaxtroj.record import Record
from jaxtroj.rounds import ModelEntry

CELLS = {
    "dataset": "gtsrb", "model_architecture": "vgg", "base": "1", "img_size": "32",
    "number_classes": "43", "training": "warm", "trigger_kind": "filter", "source_classes": "3 7",
    "trigger_target_class": "5", "final_triggered_data_test_acc": "97.5",
}  # fmt: skip


def row(index: int) -> PictureRow:
    random = np.random.default_rng(index)
    kind = ("patch", "blend")[index // 2 % 2] if index % 2 else ""
    evidence = {
        "head_mean_outlier": random.normal() + 5 * (kind == "patch"),
        "fixed_score": random.normal() + 5 * (kind == "blend"),
    }
    return PictureRow(
        "zoo", f"id-{index:08d}", "graph:12345678", bool(kind), 1 if kind else None, 1, evidence,
        {"weights": 0.1}, f"set{index // 4 % 2}", ("vgg", "plain")[index // 8 % 2], kind,
        "all" if kind else "", "warm", "", 1.0 if kind else None, 32, 10, f"zoo {index // 2}",
    )  # fmt: skip


def test_a_record_and_its_cells_make_arow_of():
    entry = ModelEntry("id-00000009", Path("m.onnx"), None, True, CELLS)
    record = Record("id-00000009", "", 0.5, False, 5, (), "ok", "", architecture="graph:1")
    found = row_of("zoo", entry, record)
    assert (found.kind, found.sources, found.family) == ("filter", "two", "vgg")
    assert (found.success, found.side, found.classes) == (0.975, 32, 43)
    assert found.pair == "zoo 4" and found.base == "gtsrb vgg 1"
    clean = CELLS | dict.fromkeys(
        ("trigger_kind", "source_classes", "trigger_target_class", "base",
         "final_triggered_data_test_acc"), "",
    )  # fmt: skip
    found = row_of("zoo", ModelEntry("id-00000009", Path("m"), None, False, clean), record)
    assert (found.kind, found.sources, found.base, found.success) == ("", "", "", None)


@pytest.fixture(scope="module")
def rows():
    return [row(index) for index in range(48)]


def test_groups_are_left_out_and_counted(rows):
    result = judge(rows, 0)
    assert set(result["left_out"]) == {"kind", "family", "dataset"}  # one population
    assert set(result["left_out"]["kind"]["groups"]) == {"blend", "patch"}
    assert result["by_kind"]["clean"]["models"] == 24 == result["by_sources"]["all"]["poisoned"]
    assert result["single_field_auc"]["fixed_score"]["blend"] > 0.95
    assert "each kind left out: log score" in text(result)
    assert "right target" in text(result)


def test_rows_come_back_from_a_file(rows, tmp_path):
    path = tmp_path / "zoo.evidence.jsonl"
    path.write_text("".join(dumps(asdict(one)) + "\n" for one in rows))
    assert read_rows(path, tmp_path) == rows
    assert read_rows(path, tmp_path, 3) == rows[:3]
    other = tmp_path / "other.evidence.jsonl"
    changed = [replace(rows[1], kind="another"), replace(rows[1], population="another")]
    other.write_text("".join(dumps(asdict(one)) + "\n" for one in changed))
    assert read_all([path, other], tmp_path) == [*rows, changed[1]]
    assert loads(path.read_text().splitlines()[1])["kind"] == "patch"


def test_counts_by_value(rows):
    found = by(rows, np.where([one.poisoned for one in rows], 0.9, 0.1), lambda one: one.kind)
    assert found["patch"]["found"] == found["patch"]["right_target"] == 12
    assert found["clean"]["found"] == found["clean"]["above_half"] == 0
