"""Examples that went another way: what each change does, and answers of before and after."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.accuracy.changed_examples import CHANGES, copied, judged, turns
from benchmarks.accuracy.picture_rows import PictureRow, read_rows
from benchmarks.provenance import RESULTS

PIXELS = np.random.default_rng(0).integers(30, 200, (20, 24, 3), np.uint8)
MODES = ("L", "RGB")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_keeps_size_and_mode_and_comes_out_the_same_again(name, mode):
    picture = Image.fromarray(PIXELS).convert(mode)
    one, again = (CHANGES[name](picture) for _ in range(2))
    assert (one.size, one.mode) == (picture.size, picture.mode)
    assert one.tobytes() == again.tobytes()
    assert (one.tobytes() == picture.tobytes()) == (mode == "L" and name == "warm_light")


@pytest.mark.parametrize(
    ("name", "black", "middle", "white"),
    [("gamma", 0, 90, 255), ("hazy", 40, 148, 254), ("dull", 2, 92, 185)],
)
def test_what_becomes_of_black_grey_and_white(name, black, middle, white):
    pixels = np.zeros((8, 12), np.uint8)
    pixels[:, 4:8], pixels[:, 8:] = 128, 255
    found = np.asarray(CHANGES[name](Image.fromarray(pixels)))
    assert abs(int(found[4, 0]) - black) <= 12
    assert abs(int(found[4, 5]) - middle) <= 12
    assert abs(int(found[4, 11]) - white) <= 12


@pytest.fixture
def zoo(tmp_path) -> Path:
    """Two pairs of networks with a picture each."""
    for number in range(4):
        folder = tmp_path / "zoo" / f"id-{number:08d}"
        (folder / "example_data").mkdir(parents=True)
        (folder / "model.onnx").write_bytes(b"network %d" % number)
        Image.fromarray(PIXELS).save(folder / "example_data" / "class_0_example_0.png")
    lines = ["model_name,ground_truth", *(f"id-{n:08d},{n % 2}" for n in range(9))]
    (tmp_path / "zoo" / "METADATA.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "zoo"


@pytest.mark.parametrize("turn", [0, 1, len(CHANGES)])
def test_pairs_take_changes_in_turn(zoo, turn):
    found = turns(zoo, turn)
    names = [list(CHANGES)[(number + turn) % len(CHANGES)] for number in range(2)]
    assert {change: [path.name for path in paths] for change, paths in found.items()} == {
        names[0]: ["id-00000000", "id-00000001"],
        names[1]: ["id-00000002", "id-00000003"],
    }


def test_a_copy_has_the_network_and_its_row_and_the_source_stays(zoo, tmp_path):
    own = zoo / "id-00000002"
    target = copied(zoo, [own], "gamma", tmp_path / "changed")
    copy = target / own.name
    assert (copy / "model.onnx").read_bytes() == (own / "model.onnx").read_bytes()
    with Image.open(copy / "example_data" / "class_0_example_0.png") as picture:
        changed = np.asarray(picture)
    np.testing.assert_array_equal(changed, CHANGES["gamma"](Image.fromarray(PIXELS)))
    with Image.open(own / "example_data" / "class_0_example_0.png") as picture:
        np.testing.assert_array_equal(np.asarray(picture), PIXELS)
    lines = (target / "METADATA.csv").read_text().splitlines()
    assert lines == ["model_name,ground_truth", "id-00000002,0"]


def rows() -> list[PictureRow]:
    known = read_rows(RESULTS / "fresh.evidence.jsonl", Path())
    return [row for row in known if row.population == "seed739" and row.has_norms][:4]


def test_answers_stand_beside_those_to_own_examples():
    own = rows()
    changed = [replace(row, population=f"{row.population}+jpeg") for row in own]
    found = judged(changed, {(row.population, row.model): row for row in own})
    assert set(found["changes"]) == {"all with batch norms", "jpeg"}
    assert found["changes"]["jpeg"]["own"] == found["changes"]["jpeg"]["changed"]
    assert all(one["probability"] == one["by_own_examples"] for one in found["networks"])


def test_the_result_on_file_is_what_the_evidence_on_file_says():
    stored = read_rows(RESULTS / "changed_examples.evidence.jsonl", Path())
    own = {
        (row.population, row.model): row
        for row in read_rows(RESULTS / "fresh.evidence.jsonl", Path())
    }
    said = json.loads((RESULTS / "changed_examples.json").read_text())
    assert judged(stored, own)["changes"] == said["changes"]
    assert asdict(stored[0])["population"].count("+") == 1
