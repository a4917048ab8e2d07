"""Examples in one folder for each class."""

import os

import numpy as np
import pytest
from PIL import Image

from jaxtroj.errors import ExamplesError
from jaxtroj.rounds import examples_digest
from jaxtroj.rounds.examples import load_pictures, usual_size


def fill(folder, names, each=2, side=6):
    """Pictures whose brightness says which folder they are of."""
    for place, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for number in range(each):
            pixels = np.full((side, side, 3), 10 * place + number, np.uint8)
            pixels[0, 0] = 255
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def shown(pictures) -> list[tuple[int, int]]:
    """Label and folder of each picture."""
    of = pictures.pixels[:, 1, 1, 0] // 10
    return sorted(set(zip(pictures.labels.tolist(), of.tolist(), strict=True)))


@pytest.mark.parametrize(
    "names",
    [
        ["airplane", "bird", "cat"],
        ["Zebra", "ant", "bee"],  # as text: capitals first
        ["0", "1", "2"],
        [f"{number:05d}" for number in range(12)],
    ],
)
def test_classes_are_numbered_by_their_folders_in_order(tmp_path, names):
    fill(tmp_path, names)
    pictures = load_pictures(tmp_path)
    assert shown(pictures) == [(place, place) for place in range(len(names))]
    assert pictures.names[0] == f"{sorted(names)[0]}/0.png" and not pictures.problems
    assert usual_size(tmp_path) == (6, 6)


@pytest.mark.parametrize(
    "names", [[str(number) for number in range(11)], ["1", "2", "3"], ["3", "7"]]
)
def test_numbers_that_may_mean_two_things_are_refused(tmp_path, names):
    fill(tmp_path, names, each=1)
    with pytest.raises(ExamplesError, match="can be numbered as text or as numbers"):
        load_pictures(tmp_path)


def test_a_class_without_pictures_would_shift_the_others(tmp_path):
    fill(tmp_path, ["a", "c"])
    (tmp_path / "b").mkdir()
    with pytest.raises(ExamplesError, match="class folders b of"):
        load_pictures(tmp_path)


def test_pictures_of_the_folder_itself_come_first(tmp_path):
    fill(tmp_path, ["a", "b"])
    os.rename(tmp_path / "a" / "0.png", tmp_path / "class_4_example_0.png")
    pictures = load_pictures(tmp_path)
    assert pictures.names == ("class_4_example_0.png",) and pictures.labels.tolist() == [4]


def test_a_limit_counts_for_each_class_and_hidden_and_linked_folders_are_left_out(tmp_path):
    fill(tmp_path / "in", ["a", "b"], each=3)
    fill(tmp_path / "in", [".hidden"])
    os.symlink(tmp_path / "in" / "a", tmp_path / "in" / "c")
    pictures = load_pictures(tmp_path / "in", limit_per_class=2)
    assert pictures.labels.tolist() == [0, 0, 1, 1]


def test_a_damaged_picture_costs_itself(tmp_path):
    fill(tmp_path, ["a", "b"])
    (tmp_path / "b" / "0.png").write_bytes(b"no picture")
    pictures = load_pictures(tmp_path)
    assert pictures.labels.tolist() == [0, 0, 1]
    assert any("b/0.png" in problem for problem in pictures.problems)


def test_the_digest_knows_names_of_classes_and_contents(tmp_path):
    for name, classes in (("x", ["a", "b"]), ("y", ["a", "b"]), ("z", ["a", "c"])):
        fill(tmp_path / name, classes)
    first, same, other = (examples_digest(tmp_path / name) for name in "xyz")
    assert first == same != other


def test_a_folder_without_pictures_says_what_it_holds(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.webp").write_bytes(b"RIFF")
    (tmp_path / "train").mkdir()
    with pytest.raises(ExamplesError, match=r"which holds 3 with .webp, 1 with no ending"):
        load_pictures(tmp_path)
