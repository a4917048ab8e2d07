"""Clean models without a kind of trigger, as METADATA tables write it, are dealt out."""

import json

import pytest

from jaxtroj.calibration import Calibrator
from jaxtroj.leaderboard.cases import Case
from jaxtroj.leaderboard.dealt_out import dealt_groups, group_names, without_value
from tests.cli.labelled_runs import labelled_run, run

WORDS = ("None", "none", "", "[]", "null", "NaN", "nan ")
KINDS = ("polygon", "instagram")


def case(name: str, poisoned: bool, **cells: str) -> Case:
    return Case(name, poisoned, 0.5, cells)


def tabled(folder, word: str, column: str = "trigger_type"):
    """A run, and its METADATA.csv where clean models have a word for no kind of trigger."""
    found, truth = labelled_run(folder, "one")
    rows = [f"model_name,poisoned,{column}"]
    for place, line in enumerate(truth.read_text().splitlines()[1:]):
        name, poisoned, _ = line.split(",")
        kind = KINDS[place // 2 % 2] if poisoned == "True" else word
        rows.append(f"{name},{poisoned},{kind}")
    truth.write_text("\n".join(rows))
    return found, truth


@pytest.mark.parametrize("word", WORDS)
def test_both_commands_deal_clean_models_out(tmp_path, word, capsys):
    found, truth = tabled(tmp_path, word)
    out = tmp_path / "c.json"
    words = (found, "--truth", truth, "--out", out, "--groups", "trigger_type")
    assert run("calibrate", *words) == 0
    said = capsys.readouterr().out
    lines = [line for line in said.splitlines() if line.startswith(("  polygon", "  instagram"))]
    assert [line.split()[1:5] for line in lines] == [["24", "models", "12", "poisoned"]] * 2
    assert Calibrator.load(out).provenance.models == 48
    words = (found, "--truth", truth, "--json", "--leave-one-out", "trigger_type")
    assert run("evaluate", *words) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert list(groups) == [f"without trigger_type {kind}" for kind in sorted(KINDS)]
    assert [(one["models"], one["poisoned"]) for one in groups.values()] == [(24, 12)] * 2


@pytest.mark.parametrize("word", ["no trigger", "0", "clean"])
def test_another_word_is_a_value_and_the_calibrator_is_written_all_the_same(tmp_path, word, capsys):
    found, truth = tabled(tmp_path, word)
    out = tmp_path / "c.json"
    words = (found, "--truth", truth, "--out", out, "--groups", "trigger_type")
    assert run("calibrate", *words) == 4
    said = capsys.readouterr()
    assert "without the group" in said.err and f"written to {out}" in said.out
    assert Calibrator.load(out).provenance.models == 48
    assert run("evaluate", found, "--truth", truth, "--leave-one-out", "trigger_type") == 4
    assert "too little to fit on" in capsys.readouterr().err


def test_a_column_that_is_not_there_is_found_before_the_fit(tmp_path, capsys):
    found, truth = tabled(tmp_path, "None")
    words = (found, "--truth", truth, "--out", tmp_path / "c.json", "--groups", "colour")
    assert run("calibrate", *words) == 4
    assert "no column 'colour'" in capsys.readouterr().err
    assert not (tmp_path / "c.json").exists()


def test_a_word_that_poisoned_models_have_too_is_a_value():
    cases = [
        case("a", True, light="None", kind="patch"),
        case("b", False, light="None", kind="None"),
        case("c", False, light="", kind=""),
        case("d", True, light="fog", kind=""),
        case("e", False, light="nan", kind="patch"),
    ]
    assert without_value(cases, "light") == [False, False, True, False, True]
    assert group_names(cases, "light") == ["None", "None", "", "fog", ""]
    assert group_names(cases, "kind") == ["patch", "", "", "empty", "patch"]
    assert group_names([case("f", False)], "architecture") == ["unknown"]


def test_copies_of_a_file_are_dealt_to_one_group():
    clean = [case(f"m{n}", False, kind="None") for n in range(12)]
    bad = [case(f"p{n}", True, kind=KINDS[n % 2]) for n in range(6)]

    def file_of(one: Case) -> str:  # two names for each clean file
        return f"f{int(one.model[1:]) // 2}" if one.model[0] == "m" else one.model

    found = dealt_groups([*clean, *bad], "kind", file_of, 0)
    assert {name: len(kept) for name, kept in found.items()} == {"instagram": 9, "polygon": 9}
    for kept in found.values():
        names = {one.model for one in kept}
        assert all((f"m{n}" in names) == (f"m{n + 1}" in names) for n in range(0, 12, 2))
    assert dealt_groups([*clean, *bad], "kind", file_of, 0) == found


def test_clean_models_alone_are_no_groups(tmp_path, capsys):
    found, truth = tabled(tmp_path, "None")
    rows = truth.read_text().replace("instagram", "polygon")
    truth.write_text(rows)
    assert run("evaluate", found, "--truth", truth, "--leave-one-out", "trigger_type") == 4
    assert "there is only 'polygon'" in capsys.readouterr().err
