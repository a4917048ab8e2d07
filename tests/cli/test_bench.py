"""`jaxtroj bench`: what it runs, what it leaves out and why, and what it writes."""

import argparse
import importlib
import json
import re
import shutil
import sys

import pytest

from benchmarks import readme, suite
from benchmarks.speed.floor import floor_seconds
from benchmarks.timing import SETTLING, interleaved_seconds
from jaxtroj.cli.main import main


def run(*arguments) -> int:
    return main([str(word) for word in ("bench", *arguments)])


def test_a_benchmark_writes_its_result_with_provenance(tmp_path, capfd):
    assert run("kernels", "--profile", "gpu", "--out", tmp_path) == 0
    assert "left out" in capfd.readouterr().out
    assert run("scaling", "--out", tmp_path / "a b") == 0
    assert re.match(r"scaling +done  [\d.]+ s", capfd.readouterr().out)
    result = json.loads((tmp_path / "a b" / "scaling.json").read_text())
    assert {"processor", "commit", "command", "versions"} < result["provenance"].keys()
    assert result["local"]["scan"]["records"] == 500


def test_what_lacks_its_data_is_left_out_with_the_option_it_needs(tmp_path, capfd):
    assert run("round0_accuracy", "bank", "--out", tmp_path) == 0
    out = capfd.readouterr().out
    assert "needs --input round0=PATH" in out and "--input encoder=PATH --input texts=PATH" in out


def test_a_failure_costs_its_own_line_only(tmp_path, capfd):
    (tmp_path / "empty").mkdir()
    words = ("--input", f"round0={tmp_path / 'empty'}", "--out", tmp_path / "out")
    assert run("round0_accuracy", "wrn16", *words) == 2
    lines = capfd.readouterr().out.splitlines()
    assert "failed" in lines[0] and "no model in" in lines[0]
    assert "left out" in lines[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nonsense"], "no benchmark nonsense; there are floor"),
        (["--input", "nonsense=x"], "expected NAME=PATH"),
        (["--input", "texts"], "expected NAME=PATH"),
        (["--input", "texts=/no/such"], "there is no /no/such"),
    ],
)
def test_bad_arguments_are_refused_in_words(tmp_path, capfd, words, message):
    assert run(*words, "--out", tmp_path) == 4
    assert message in capfd.readouterr().err


def test_paths_fill_their_places_whole(tmp_path):
    work = tmp_path / "my work"
    inputs = {"round0": f"{tmp_path / 'a b'},{tmp_path / 'c'}"}
    words = suite._filled("{round0} --work {work}/round0", inputs, work)
    assert words == [str(tmp_path / "a b"), str(tmp_path / "c"), "--work", f"{work}/round0"]


class Parsed(Exception):
    """A benchmark has taken its arguments; it is not run further."""


@pytest.mark.parametrize("bench", suite.BENCHES, ids=lambda bench: bench.name)
def test_every_benchmark_takes_its_arguments_in_every_profile(bench, tmp_path, monkeypatch):
    parse = argparse.ArgumentParser.parse_args

    def stop_after_parsing(parser, *words):
        raise Parsed(parse(parser, *words))

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop_after_parsing)
    module = importlib.import_module(bench.module)
    if hasattr(module, "__path__"):  # a package is run by its __main__
        module = importlib.import_module(f"{bench.module}.__main__")
    assert set(bench.arguments) == set(suite.PROFILES)
    for arguments in filter(None, bench.arguments.values()):
        assert set(re.findall(r"{(\w+)}", arguments)) - {"work"} == set(bench.inputs)
    paths = dict.fromkeys(bench.inputs, str(tmp_path))
    for arguments in bench.arguments.values():
        if arguments is not None:
            words = suite._filled(arguments, paths, tmp_path)
            monkeypatch.setattr(sys, "argv", ["bench", *words, "--out", str(tmp_path / "out.json")])
            with pytest.raises(Parsed) as parsed:
                module.main()
            assert parsed.value.args[0].out == tmp_path / "out.json"


def test_the_readme_is_written_from_the_results():
    assert readme.README.read_text() == readme.document()


def test_a_broken_result_is_not_shown_as_a_figure(tmp_path, monkeypatch):
    shutil.copy(suite.RESULTS / "kernels.json", tmp_path)
    monkeypatch.setattr(readme, "RESULTS", tmp_path)
    assert "lax forward" in readme.document()
    (tmp_path / "kernels.json").write_text("{")
    with pytest.raises(ValueError):
        readme.document()


def test_the_floor_is_the_slower_of_computing_and_moving():
    floor = {"operations_per_second": {"float32": 4.0}, "bytes_per_second": 2.0}
    assert floor_seconds(floor, 8.0, 2.0) == 2.0
    assert floor_seconds(floor, 8.0, 10.0) == 5.0


def test_rivals_take_turns():
    order = []
    calls = {name: lambda name=name: order.append(name) for name in ("a", "b")}
    assert set(interleaved_seconds(calls, repeats=2)) == {"a", "b"}
    assert order == ["a", "b"] * (SETTLING + 2)
