"""The container recipes: linted always, every line executed where that is asked for.

    JAXTROJ_RUN_RECIPES=1 python -m pytest tests/pipeline/test_containers.py

installs torch and this project twice, in roots of their own, and needs root and a package registry.
JAXTROJ_RECIPE_INDEX is an index in the place of the recipes' own, where that cannot be reached.
pip reads its usual variables, such as PIP_CONSTRAINT.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import jaxtroj
from tests.pipeline.recipes import ROOT, Build, Recipe, can_lay, definition, dockerfile

EXAMPLES = Path(jaxtroj.__file__).parent / "data" / "examples"
RECIPES = {"Dockerfile": dockerfile, "jaxtroj.def": definition}
_INDEX = re.compile(r"(?<=--index-url )\S+")


def recipe(name: str) -> Recipe:
    return RECIPES[name]((ROOT / "containers" / name).read_text())


@pytest.mark.parametrize("name", RECIPES)
def test_what_a_recipe_names_is_there_and_its_shell_is_sound(name):
    found = recipe(name)
    assert all((ROOT / source).exists() for source in found.sources), found.sources
    assert re.fullmatch(r"python:\d+\.\d+-slim-\w+", found.base), "an image that stays what it is"
    copied = [words for what, words in found.steps if what == "copy"]
    assert any(f"/{Path(s).name}" == found.start[0] for words in copied for s in words[:-1])
    for script in found.scripts:
        done = subprocess.run(["sh", "-n", "-c", script], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_both_recipes_build_the_same():
    ours, theirs = (recipe(name) for name in RECIPES)
    assert ours.base == theirs.base and ours.start == theirs.start
    assert set(ours.sources) == set(theirs.sources)
    needed = re.search(r'requires-python = ">=(3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert needed, "pyproject.toml says which Python it needs"
    version = re.search(r":(\d+\.\d+)", ours.base)
    assert version and [int(n) for n in version[1].split(".")] >= [
        int(n) for n in needed[1].split(".")
    ]
    commands = [
        {word for script in one.scripts[:-1] for word in re.findall(r"pip install[^&\n]*", script)}
        for one in (ours, theirs)
    ]
    torch = [{c.strip() for c in found if "torch" in c} for found in commands]
    assert torch[0] == torch[1] and len(torch[0]) == 1


@pytest.mark.parametrize("text", ["FROM x\nVOLUME y\nENTRYPOINT []", "RUN true\nENTRYPOINT []"])
def test_an_instruction_that_is_not_run_here_is_no_recipe(text):
    with pytest.raises((AssertionError, KeyError)):
        dockerfile(text)


@pytest.mark.skipif(not can_lay(), reason="only root of Linux can lay a root over its own")
def test_a_build_writes_into_its_layer_alone(tmp_path):
    build = Build(tmp_path)
    build.copy("containers/entrypoint.sh", "README.md", "/")
    build.run(
        "chmod 755 /entrypoint.sh && mkdir /learned && echo $WORD > /learned/a", {"WORD": "b"}
    )
    assert (build.layer / "learned" / "a").read_text() == "b\n" and not Path("/learned").exists()
    assert "/environment/bin/python3" in build.run("command -v python3")
    with pytest.raises(AssertionError, match="status 3 of exit 3"):
        build.run("exit 3")


@pytest.mark.skipif(
    not os.environ.get("JAXTROJ_RUN_RECIPES"), reason="runs where JAXTROJ_RUN_RECIPES is set"
)
@pytest.mark.parametrize("name", RECIPES)
def test_every_line_of_a_recipe_runs_and_the_container_answers(name, tmp_path):
    found, build = recipe(name), Build(tmp_path)
    for what, words in found.steps:
        if what == "copy":
            build.copy(*words)
        else:
            build.run(_reachable(words[0]), found.arguments)
    if found.checks:
        build.run(found.checks)
    active = tmp_path / "layer" / "active"
    shutil.copytree(EXAMPLES / "poisoned", active)
    said = build.run(
        f"{found.start[0]} --model_filepath /active/model.pt --result_filepath /active/result.txt"
        " --scratch_dirpath /active/scratch --examples_dirpath /active/example_data"
    )
    assert float((active / "result.txt").read_text()) > 0.5, said
    settled = json.loads((build.layer / "metaparameters.json").read_text())
    assert settled == json.loads((ROOT / "containers" / "metaparameters.json").read_text())
    print(build.log[-6000:])


def _reachable(script: str) -> str:
    index = os.environ.get("JAXTROJ_RECIPE_INDEX")
    return _INDEX.sub(index, script) if index else script
