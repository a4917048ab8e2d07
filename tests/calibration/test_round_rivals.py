"""Rivals on networks of rounds are judged in the folds that jaxtroj is judged in."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torchvision

from benchmarks.accuracy.round_rivals import SKETCH, judge, read_sketches, statistics, text
from benchmarks.accuracy.zoo_rivals import Answer
from benchmarks.rivals import weight_sketch
from tests.calibration.test_zoo_benchmark import row


@pytest.fixture(scope="module")
def rows():
    """48 made-up networks of a round; every second one is poisoned, twins follow each other."""
    return [replace(row(i), dataset="round2", pair=f"pair {i // 2}") for i in range(48)]


def features(rows, value):
    return {f"{row.population}/{row.model}": value(row) for row in rows}


def test_a_rival_is_worth_what_its_statistic_tells(rows):
    draw = np.random.default_rng(0)
    asked = {
        "knowing": features(rows[:40], lambda row: [float(row.poisoned) + draw.normal(0, 0.1)]),
        "guessing": features(rows, lambda row: [draw.normal()]),
    }
    found = judge(rows, asked)
    assert (found["networks"], found["poisoned"]) == (40, 20)
    scores = found["scores"]
    assert scores["knowing"][1] == 1.0 and scores["knowing"][0] < 0.3
    assert scores["guessing"][0] > 0.6 and 0.2 < scores["guessing"][1] < 0.8
    assert scores["jaxtroj alone"][1] > 0.9 and scores["jaxtroj"][1] > 0.9
    assert "knowing" in text({"provenance": {}, "answered": found})


def test_what_twins_share_is_no_help(rows):
    """A number of their own for each pair tells a fit nothing of the pairs that it has not met."""
    of_pair = {f"pair {i}": float(np.random.default_rng(i).normal()) for i in range(24)}
    shared = {"of the pair": features(rows, lambda row: [of_pair[row.pair]])}
    assert judge(rows, shared)["scores"]["of the pair"][1] <= 0.5


def test_too_few_networks_are_told(rows):
    with pytest.raises(
        SystemExit, match="8 networks have .* 4 of them poisoned; expected 5 of each"
    ):
        judge(rows, {"one": features(rows[:8], lambda row: [0.0])})


def test_answers_on_file_without_a_statistic_do_not_count(tmp_path):
    path = tmp_path / "found.answers.jsonl"
    given = [
        Answer("r2/a", "k-arm", True, 1, "filter", statistic=-np.expm1(2.0)),
        Answer("r2/b", "k-arm", True, 1, "filter", problem="MemoryError: "),
        Answer("r2/a", "jaxtroj", True, 1, "filter", statistic=0.9),
    ]
    path.write_text("".join(json.dumps(asdict(answer)) + "\n" for answer in given))
    assert statistics(path) == {"k-arm": {"r2/a": [pytest.approx(-2.0)]}}


def test_sketches_are_of_first_inner_and_last_kernels(tmp_path):
    network = torchvision.models.squeezenet1_1(num_classes=7)
    sketch = weight_sketch.features_of_torch(network)
    kernels = dict(network.named_parameters())
    first, last = kernels["features.0.weight"], kernels["classifier.1.weight"]
    for part, kernel in ((sketch[:33], first), (sketch[66:], last)):
        values = kernel.detach().double().numpy()
        assert part[16] == pytest.approx(np.median(values) / values.std(), abs=1e-9)
    assert sketch.shape == (99,) and (np.diff(sketch[33:66]) >= 0).all()
    assert read_sketches(tmp_path / "none.jsonl") == {}
    (tmp_path / "one.jsonl").write_text('{"model": "r2/a", "sketch": [0.5]}\n')
    assert read_sketches(tmp_path / "one.jsonl") == {SKETCH: {"r2/a": [0.5]}}
