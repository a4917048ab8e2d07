"""Result files and the tables made from them."""

import csv
import io
import json
import os

import pytest

from jaxtroj.backgrounds.evaluation import VariantScore
from jaxtroj.backgrounds.head import PUBLISHED_SHA256, read_mapping
from jaxtroj.backgrounds.layout import AS_IS
from jaxtroj.backgrounds.leaderboard import FORMATS, PUBLISHED, render, rows
from jaxtroj.backgrounds.normalization import from_config
from jaxtroj.backgrounds.results import in9_result, read_results
from jaxtroj.backgrounds.sources import read_boxes
from jaxtroj.errors import DatasetError, JaxtrojError

BASE = {"schema": 1, "model": "a.pt", "sha256": "0" * 64, "comparable": True, "reservations": []}
IN9 = BASE | {
    "kind": "in9",
    "variants": {
        "original": {"accuracy": 0.9},
        "mixed_same": {"accuracy": 0.8},
        "mixed_rand": {"accuracy": 0.65},
    },
}
CHALLENGE = BASE | {"kind": "challenge", "challenge_accuracy": 0.25, "is_upper_bound": False}


def test_results_of_one_network_share_a_row():
    found = rows([IN9, CHALLENGE, CHALLENGE | {"model": "b.pt"}])
    assert [row.model for row in found] == ["a.pt", "b.pt"]
    first = found[0]
    assert (first.challenge, first.clean, first.original) == (25.0, 90.0, 90.0)
    assert first.bg_gap == pytest.approx(15.0)
    assert found[1].clean is None


def test_the_last_result_of_a_kind_counts():
    (row,) = rows([CHALLENGE, CHALLENGE | {"challenge_accuracy": 0.5}])
    assert row.challenge == 50.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"normalization": {"name": "half", "mean": [0.5], "std": [0.5]}}, "half"),
        ({"restricted_to_mapped": True}, "mapped classes"),
        ({"mapping_sha256": "abcdef0123"}, "mapping abcdef01"),
        ({"precision": "bfloat16"}, "bfloat16"),
    ],
)
def test_results_of_other_settings_do_not_share_a_row(change, words):
    plain, other = rows([IN9, CHALLENGE | change])
    assert (plain.challenge, other.original) == (None, None)
    assert words in other.reference and words not in plain.reference
    (alone,) = rows([CHALLENGE | change])
    assert alone.reference == "this run"


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({}, None),
        ({"mapping_sha256": PUBLISHED_SHA256}, None),
        ({"mapping_sha256": "0" * 64}, "the mapping is not the published one"),
        ({"restricted_to_mapped": True}, "only the mapped classes competed"),
    ],
)
def test_what_the_published_figures_were_not_made_with_is_a_reservation(change, note):
    network = {"mapping_sha256": "", "restricted_to_mapped": False} | change
    table = tuple(tuple(450 * (j == i + 1) for j in range(10)) for i in range(9))
    result = in9_result(network, {"original": VariantScore("original", table, (224, 224))}, AS_IS)
    assert result["reservations"] == ([] if note is None else [note])
    assert result["comparable"] == (note is None)


def test_a_variant_that_is_missing_leaves_a_gap():
    (row,) = rows([IN9 | {"variants": {"original": {"accuracy": 0.5}}}])
    assert (row.original, row.mixed_rand, row.bg_gap) == (50.0, None, None)


def test_published_gaps_are_differences():
    for row in PUBLISHED:
        if row.mixed_same is not None and row.mixed_rand is not None:
            assert row.bg_gap == pytest.approx(row.mixed_same - row.mixed_rand, abs=0.051)


EVIL = CHALLENGE | {
    "model": "=cmd()<script>alert(1)</script>",
    "is_upper_bound": True,
    "reservations": ["upper bound: 9 of 4050 backgrounds"],
}


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_holds_published_rows_and_results(form):
    text = render([*PUBLISHED, *rows([IN9, CHALLENGE, EVIL])], form)
    assert "ResNet-50 (IN-9L)" in text and "a.pt" in text and "upper bound" in text
    assert "22.3" in text and "25.0" in text


def test_text_is_sorted_by_challenge_accuracy_and_bounds_are_marked():
    text = render([*PUBLISHED, *rows([CHALLENGE, EVIL])], "text")
    table = text.split("ImageNet-9\n")[0]
    assert table.index("a.pt") < table.index("ResNet-50")
    assert "at most 25.0" in table
    assert "not comparable with published rows: upper bound" in text


def test_html_escapes_and_csv_is_no_formula():
    found = rows([EVIL])
    page = render(found, "html")
    assert "<script>" not in page and "&lt;script&gt;" in page
    lines = list(csv.reader(io.StringIO(render(found, "csv"))))
    assert lines[1][0].startswith("'=cmd()")
    assert json.loads(render(found, "json"))[0]["is_upper_bound"] is True


BAD_RESULTS = {
    "no_json": "{",
    "number": "1",
    "deep": "[" * 100_000,
    "other_schema": json.dumps(IN9 | {"schema": 2}),
    "no_model": json.dumps({k: v for k, v in IN9.items() if k != "model"}),
    "kind": json.dumps(IN9 | {"kind": "other"}),
    "share": json.dumps(CHALLENGE | {"challenge_accuracy": 1.5}),
    "truth_as_share": json.dumps(CHALLENGE | {"challenge_accuracy": True}),
    "nan": json.dumps(CHALLENGE | {"challenge_accuracy": float("nan")}),
    "variant": json.dumps(IN9 | {"variants": {"original": 1}}),
    "no_bound": json.dumps(CHALLENGE | {"is_upper_bound": None}),
    "reservations": json.dumps(IN9 | {"reservations": 7}),
}


@pytest.mark.parametrize("kind", BAD_RESULTS)
def test_bad_results_are_refused_by_name(tmp_path, kind):
    path = tmp_path / "r.json"
    path.write_text(BAD_RESULTS[kind])
    with pytest.raises(DatasetError, match=r"r\.json"):
        read_results(path)


def test_files_hold_one_result_or_several(tmp_path):
    for content, count in ((IN9, 1), ([IN9, CHALLENGE], 2)):
        (tmp_path / "r.json").write_text(json.dumps(content))
        assert len(read_results(tmp_path / "r.json")) == count


@pytest.mark.parametrize(
    "read", [read_results, read_mapping, from_config, lambda path: read_boxes(path, [])]
)
def test_a_pipe_is_not_waited_for(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(JaxtrojError, match="it is a named pipe, expected a file"):
        read(tmp_path / "pipe")


def test_names_move_no_cursor():
    odd = IN9 | {"model": "a\x1b[2Jb\nc", "reservations": ["\x1b[31mred"]}
    text = render(rows([odd]), "text")
    assert "\x1b" not in text and "a\\x1b[2Jb\\nc  " in text and "\\x1b[31mred" in text
