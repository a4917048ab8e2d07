"""Which shipped calibrator answers for which model."""

import argparse
import json
from pathlib import Path

import pytest

from jaxtroj import populations
from jaxtroj.calibration import Calibrator
from jaxtroj.cli.options import add_settings, settings_from
from jaxtroj.errors import UsageError
from jaxtroj.evidence.images.stages.recall import RECALL
from jaxtroj.evidence.stage import Subject
from jaxtroj.model_files import digest_or_reason
from jaxtroj.populations import POPULATIONS, Asked, Candidates, Choice, choose
from jaxtroj.rounds import ModelEntry, iter_models
from jaxtroj.rounds.single import entry_of
from jaxtroj.rounds.which import round_of
from jaxtroj.scan.identity import identify
from jaxtroj.settings import Settings, choice_of

GENERAL, SMALL, ROUND, TEXT = (Path(f"{name}.json") for name in ("g", "s", "r", "t"))
KNOWN = Candidates(GENERAL, TEXT, (SMALL,), (("round0", ROUND),))


def covers(path, size):
    return max(size) <= 32 if path == SMALL else None  # the others note no sizes


@pytest.mark.parametrize(
    ("asked", "path", "why"),
    [
        (Asked("text", round="round0"), TEXT, "text models"),
        (Asked("image", (32, 32), "round0"), ROUND, "datasets of round0"),
        (Asked("image", (32, 32), "round2"), SMALL, "pictures of 32 x 32"),
        (Asked("image", (224, 224)), GENERAL, "all other models"),
        (Asked("image"), GENERAL, "all other models"),
    ],
)
def test_the_first_rule_that_holds_decides(asked, path, why):
    found = choose(KNOWN, asked, covers)
    assert found.path == path and why in found.why


def test_a_calibrator_of_a_round_leaves_sizes_that_it_is_not_for():
    known = Candidates(GENERAL, TEXT, (), (("round0", SMALL),))
    assert choose(known, Asked("image", (32, 32), "round0"), covers).path == SMALL
    assert choose(known, Asked("image", (64, 64), "round0"), covers).path == GENERAL
    assert choose(known, Asked("image", None, "round0"), covers).path == SMALL


def test_one_that_is_named_answers_for_all():
    alone = Candidates(GENERAL, TEXT, (), ())
    expected = Choice(GENERAL, "as asked for all models")
    assert choose(alone, Asked("image", (32, 32), "round0"), covers) == expected


def test_the_general_one_takes_the_place_of_sizes_once_it_ships(monkeypatch, tmp_path):
    there = {name: populations.BY_NAME[name].path for name in ("round0", "small")}
    assert populations.round_calibrators()[0] == ("round0", there["round0"])
    for name in ("round0", "round1", "rounds", "small", "round5", "text_classifiers"):
        (tmp_path / f"{name}.json").write_text("{}")
    monkeypatch.setattr(populations, "FOLDER", tmp_path)
    assert populations.default_calibrator().name == "round0.json"
    assert [path.name for path in populations.special_calibrators()] == ["small.json"]
    (tmp_path / "general.json").write_text("{}")
    assert populations.default_calibrator().name == "general.json"
    assert populations.special_calibrators() == ()
    assert [one.name for one in populations.shipped()] == [one.name for one in POPULATIONS]


def settings(*words):
    parser = argparse.ArgumentParser()
    add_settings(parser)
    return settings_from(parser.parse_args(list(words)))


def test_a_population_is_named_on_the_command_line():
    found = choice_of(settings("--population", "round0"), Asked("image", (32, 32)))
    assert found is not None and found.path.name == "round0.json"
    found = choice_of(settings("--population", "small"), Asked("image", (224, 224), "round0"))
    assert found is not None and found.path.name == "small.json"
    for words in (("--evidence-only",), ("--calibrator", "x.json")):
        with pytest.raises(UsageError, match="leave the other option out"):
            settings("--population", "round0", *words)


@pytest.mark.parametrize(("name", "expected"), [
    (None, "round0"), ("round1", "round1"), ("round2", "rounds"), ("round4", "rounds"),
])  # fmt: skip
def test_the_usual_population_leaves_known_rounds_theirs(name, expected):
    parser = argparse.ArgumentParser()
    add_settings(parser)
    parser.set_defaults(usual_population="round0")  # as `infer` does
    found = choice_of(settings_from(parser.parse_args([])), Asked("image", (64, 64), name))
    assert found is not None and found.path.name == f"{expected}.json"


@pytest.mark.parametrize(
    ("side", "expected"), [(64, "rounds"), (224, "rounds"), (384, "general_large"), (28, "general")]
)
def test_a_round_of_pictures_that_its_calibrator_is_not_for_gets_the_general_one(side, expected):
    found = choice_of(Settings(), Asked("image", (side, side), "round2"))
    assert found is not None and found.path.name == f"{expected}.json"
    named = choice_of(settings("--population", "round2"), Asked("image", (side, side), "round2"))
    assert named is not None and named.path.name == "rounds.json"


@pytest.mark.parametrize(("name", "expected"), [
    ("rounds", "rounds"), ("round1", "round1"), ("round3", "rounds"), ("round6", "round5"),
])  # fmt: skip
def test_a_population_goes_by_the_names_of_its_rounds_too(name, expected):
    kind = "text" if expected == "round5" else "image"
    found = choice_of(settings("--population", name), Asked(kind, (64, 64)))
    assert found is not None and found.path.name == f"{expected}.json"


def test_a_network_of_a_round_without_batch_norms_gets_the_calibrator_of_such():
    asked = Asked("image", (64, 64), "round2", has_batch_norm=False)
    found = choice_of(Settings(), asked)
    assert found is not None and found.path.name == "general_without_norms.json"


@pytest.mark.parametrize(
    ("size", "expected"),
    [((64, 64), "general"), ((48, 65), "general_large"), ((224, 224), "general_large")],
)
def test_large_pictures_get_the_calibrator_without_the_stage_that_they_do_not_get(size, expected):
    found = choice_of(Settings(), Asked("image", size))
    assert found is not None and found.path.name == f"{expected}.json"
    is_run = RECALL.needs.usual(Subject(side=max(size), has_batch_norm=True))
    assert is_run == ("recall" in Calibrator.load(found.path).stages)
    without_norms = choice_of(Settings(), Asked("image", size, has_batch_norm=False))
    assert without_norms is not None and without_norms.path.name == "general_without_norms.json"
    digests = Settings().as_json()["large_calibrators"]
    assert digests == [digest_or_reason(populations.BY_NAME["general"].large_path)]


def test_a_population_that_does_not_ship_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(populations, "FOLDER", tmp_path)
    with pytest.raises(UsageError, match="ships no calibrator general"):
        settings("--population", "general")


@pytest.mark.parametrize(
    ("folder", "manifest", "expected"),
    [
        ("round0-dataset", None, "round0"),
        ("round1-dataset-train", None, "round1"),
        ("mine", None, None),
        ("mine", {"generator": "jaxtroj generate round0"}, "round0"),
        ("mine", {"generator": "jaxtroj generate zoo"}, None),
        ("mine", {"generator": ["round0"]}, None),
        ("mine", "no object", None),
    ],
)
def test_rounds_are_told_by_names_and_manifests(tmp_path, folder, manifest, expected):
    model = tmp_path / folder / "id-00000003"
    model.mkdir(parents=True)
    (model / "model.pt").write_bytes(b"")
    if manifest is not None:
        (tmp_path / folder / "manifest.json").write_text(json.dumps(manifest))
    assert round_of(tmp_path / folder, None) == expected
    assert round_of(model, None) == expected
    assert [entry.round for entry in iter_models(tmp_path / folder)] == [expected]
    assert [entry.round for entry in iter_models(model)] == [expected]
    listed = [f"{folder}/id-00000003", f"{folder}/id-00000003/model.pt"]
    assert [entry_of(tmp_path / place).round for place in listed] == [expected] * 2
    (tmp_path / "list.csv").write_text(
        "\n".join(["path,model", f"{listed[0]},a", f"{listed[1]},b"])
    )
    assert [entry.round for entry in iter_models(tmp_path / "list.csv")] == [expected] * 2
    (model / "model.pt").rename(model.parent / "model.pt")  # no model's folder: anybody's file
    assert entry_of(model.parent / "model.pt").round is None


def test_a_round_that_decides_is_part_of_the_identity(tmp_path):
    (tmp_path / "model.pt").write_bytes(b"x")
    entries = [
        ModelEntry("a", tmp_path / "model.pt", None, None, round=name)
        for name in (None, "round0", "round5")
    ]
    plain, known, other = (identify(entry, Settings()) for entry in entries)
    assert plain == other != known
    said = Settings(calibrator=None, channel_order="RGB", normalization="unit")
    assert len({identify(entry, said) for entry in entries}) == 1
    # Where nobody says how pixels are read, the round does.
    plain, known, other = (identify(entry, Settings(calibrator=None)) for entry in entries)
    assert plain == other != known
