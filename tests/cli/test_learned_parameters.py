"""Which calibrator answers in a container: what is learned, else what ships, each for its models.

A container's folder held copies of two calibrators, and those for rounds, for large pictures and
for networks without batch norms never answered there.
"""

import argparse
import json
import shutil
from pathlib import Path

import pytest

import jaxtroj
from jaxtroj.cli import infer, nist
from jaxtroj.cli.main import main
from jaxtroj.cli.options import settings_from
from jaxtroj.errors import UsageError
from jaxtroj.leaderboard.metaparameters import learned_calibrators
from jaxtroj.populations import BY_NAME, Asked
from jaxtroj.settings import Settings, choice_of
from tests.pipeline.recipes import ROOT, definition, dockerfile

EXAMPLES = Path(jaxtroj.__file__).parent / "data" / "examples"
CONTAINERS = ROOT / "containers"
GENERAL = BY_NAME["general"].path
LARGE = (224, 224)
MODELS = [
    Asked("image", size, name, has_reference=beside, has_batch_norm=norms)
    for size in (LARGE, (64, 64))
    for name in (None, "round0", "round1", "round2", "round3", "round4")
    for norms in (True, False)
    for beside in (True, False)
]
MODELS += [Asked("text", is_apart=apart) for apart in (True, False)] + [Asked("text-classifier")]


@pytest.fixture
def learned(tmp_path) -> Path:
    """The container's folder before anybody learned anything."""
    (tmp_path / "learned").mkdir()
    return tmp_path / "learned"


def container(learned: Path, *words: str) -> list[str]:
    """The flags that the entry point gives, and others."""
    home = CONTAINERS / "metaparameters.json", CONTAINERS / "metaparameters_schema.json"
    files = [f"--metaparameters_filepath={home[0]}", f"--schema_filepath={home[1]}"]
    return [*files, f"--learned_parameters_dirpath={learned}", *words]


def settings(*words: str) -> Settings:
    parser = argparse.ArgumentParser()
    infer.add_parser(parser.add_subparsers())
    args = parser.parse_args(["infer", "--model_filepath=m", "--result_filepath=r", *words])
    nist.take_parameters(args)
    return settings_from(args)


@pytest.mark.parametrize("words", [(), ("--population", "general"), ("--population", "rounds")])
def test_the_container_answers_as_infer_does_without_learned_parameters(words, learned, capsys):
    ours, plain = settings(*container(learned, *words)), settings(*words)
    assert [choice_of(ours, asked) for asked in MODELS] == [choice_of(plain, a) for a in MODELS]
    assert ours.stages is None is plain.stages
    name = words[1] if words else None
    said = f"that of --population {name}" if name else "those for its round"
    assert f"the shipped calibrators answer, {said} and kind" in capsys.readouterr().err


def test_the_recipes_leave_the_folder_empty():
    recipes = dockerfile((CONTAINERS / "Dockerfile").read_text())
    for found in (recipes, definition((CONTAINERS / "jaxtroj.def").read_text())):
        naming = [script for script in found.scripts[:-1] if "learned_parameters" in script]
        assert len(naming) == 1 and "mkdir /learned_parameters" in naming[0]
        assert naming[0].count("/learned_parameters") == 1, "and nothing is put into it"
        assert not any("learned" in word for _, words in found.steps[:-1] for word in words)


def metaparameters(folder: Path, last_stage: str) -> str:
    """The flag for the container's own with another last stage."""
    values = json.loads((CONTAINERS / "metaparameters.json").read_text())
    (folder / "m.json").write_text(json.dumps(values | {"last_stage": last_stage}))
    return f"--metaparameters_filepath={folder / 'm.json'}"


def test_a_last_stage_that_is_named_holds_for_shipped_calibrators_too(learned, tmp_path):
    found = settings(*container(learned, metaparameters(tmp_path, "memory"))).stages
    assert found is not None and found[-1] == "memory" and "whole" not in found


def test_what_is_learned_gets_the_stages_of_the_metaparameters(learned):
    shutil.copy(GENERAL, learned / "calibrator.json")
    found = settings(*container(learned))
    assert found.stages is not None and found.stages[-1] == "whole"


@pytest.mark.parametrize("there", ["other.json", "Calibrator.JSON", "metaparameters.json"])
def test_a_folder_with_other_files_alone_is_refused(there, learned):
    (learned / there).write_text("{}")
    with pytest.raises(UsageError, match="no calibrator.json or text_calibrator.json"):
        learned_calibrators(learned)


def test_a_calibrator_that_cannot_be_read_is_not_passed_over(learned):
    (learned / "calibrator.json").symlink_to(learned / "gone")
    with pytest.raises(UsageError, match="no calibrator.json or text_calibrator.json"):
        learned_calibrators(learned)
    with pytest.raises(UsageError, match="an empty folder stands for the shipped ones"):
        learned_calibrators(learned / "no such folder")


def test_hidden_files_are_nothing_learned(learned):
    (learned / ".gitkeep").write_text("")
    assert learned_calibrators(learned) == (None, None)


@pytest.mark.parametrize("asked", MODELS[:-1])
def test_a_copy_that_is_learned_answers_for_all(asked, learned):
    """As in a container of an earlier version: whoever names a copy means that one."""
    copy = shutil.copy(GENERAL, learned / "calibrator.json")
    found = choice_of(settings(*container(learned)), asked)
    assert found is not None and found.path == copy


def test_infer_says_which_calibrator_answered(learned, tmp_path, capsys):
    shutil.copytree(EXAMPLES / "clean", tmp_path / "active")
    (tmp_path / "active" / "config.json").write_text('{"CNN_IMG_SIZE_PIXELS": 64}')
    given = [f"--model_filepath={tmp_path / 'active' / 'model.pt'}"]
    given += [f"--result_filepath={tmp_path / 'result.txt'}", f"--scratch_dirpath={tmp_path}"]
    words = container(learned, *given, metaparameters(tmp_path, "weights"))
    assert main(["infer", *words]) == 0
    said = capsys.readouterr().err
    assert "judged by rounds.json (" in said and "), for datasets of round2" in said
    assert 0 < float((tmp_path / "result.txt").read_text()) < 1
