"""Examples in one folder for each class."""

import os
import re

import numpy as np
import pytest
from PIL import Image

from jaxtroj.errors import ExamplesError
from jaxtroj.rounds import examples_digest, picture_folder
from jaxtroj.rounds.examples import load_pictures, usual_size
from jaxtroj.rounds.picture_folder import PictureFolder, some_of_many


def fill(folder, names, each=2, side=6):
    """Pictures whose brightness says which folder they are of."""
    for place, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for number in range(each):
            pixels = np.full((side, side, 3), (10 * place + number) % 256, np.uint8)
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


@pytest.mark.parametrize("names", [[str(number) for number in range(11)], ["3", "7"]])
def test_numbers_that_may_mean_two_things_are_refused(tmp_path, names):
    fill(tmp_path, names, each=1)
    with pytest.raises(ExamplesError, match="can be numbered as text or as numbers"):
        load_pictures(tmp_path)


@pytest.mark.parametrize(("names", "shown", "renamed"), [
    (["1", "2", "3"], "1, 2, 3 in .* begin with 1,", "0 ... 2"),
    ([f"{number:02d}" for number in range(1, 13)], "begin with 01,", "00 ... 11"),
    ([str(number) for number in range(1, 13)], "1, 10, 11, 12 and 8 more", "00 ... 11"),
])  # fmt: skip
def test_classes_counted_from_one_are_told(tmp_path, names, shown, renamed):
    fill(tmp_path, names, each=1)
    with pytest.raises(ExamplesError, match=f"{shown}.*: rename them to {renamed}$"):
        load_pictures(tmp_path)


def test_a_class_without_pictures_would_shift_the_others(tmp_path):
    fill(tmp_path, ["a", "c"])
    (tmp_path / "b").mkdir()
    with pytest.raises(
        ExamplesError, match="class folders b of .* put some there, or remove what is no"
    ):
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


@pytest.mark.parametrize(("files", "folders", "said"), [
    (["0.webp", "1.webp", "2.WEBP", "notes"], ["train"],
     "3 .webp, 1 without an ending and 1 folder: convert them to PNG or JPEG; expected"),
    (["a/0.webp", "a/1.webp", "b/0.webp"], [], "2 folders, in them 3 .webp: convert them to"),
    (["train/a/0.png", "val/b/0.png"], [], "2 folders: train, val hold class folders, name one of"),
    (["val/a/0.png", "val/b/0.png", "list.csv"], [], "1 .csv and 1 folder: val holds class"),
    (["a/.DS_Store"], ["b"], "2 folders: put clean pictures there; expected"),
    ([], [], "nothing: put clean pictures there; expected"),
    (["__MACOSX/._0.png", ".hidden/0.png"], [], "nothing: put clean pictures there"),
])  # fmt: skip
def test_a_folder_without_pictures_says_what_it_holds_and_what_to_do(
    tmp_path, files, folders, said
):
    for name in folders:
        (tmp_path / name).mkdir()
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"-")
    with pytest.raises(ExamplesError, match="which holds " + re.escape(said)):
        load_pictures(tmp_path)


def test_what_macos_adds_is_no_class(tmp_path):
    fill(tmp_path, ["a", "b", "__MACOSX"])
    assert load_pictures(tmp_path).labels.tolist() == [0, 0, 1, 1]


def test_fewer_folders_than_classes_are_no_labels(tmp_path):
    """Of 1000 folders somebody has three: their places are not the classes."""
    fill(tmp_path, ["ant", "bee", "cat"])
    pictures = load_pictures(tmp_path)
    assert pictures.for_classes(3) is pictures and pictures.for_classes(2) is pictures
    found = pictures.for_classes(1000)
    assert found.labels.tolist() == [-1] * 6
    assert found.unknown_folders == ("ant", "bee", "cat")
    # In turn of the folders, so that a few pictures are of all of them.
    assert [name.partition("/")[0] for name in found.names[:3]] == list(found.unknown_folders)
    assert found.pixels[:, 1, 1, 0].tolist() == [0, 10, 20, 1, 11, 21]


def test_some_folders_of_imagenet_are_numbered_as_it_does(tmp_path):
    fill(tmp_path, ["n01440764", "n01443537", "n15075141"])
    pictures = load_pictures(tmp_path)
    found = pictures.for_classes(1000)
    assert found.labels.tolist() == [0, 0, 1, 1, 999, 999] and not found.unknown_folders
    assert found.names == pictures.names
    # No network of another number of classes is ImageNet's.
    assert pictures.for_classes(200).labels.tolist() == [-1] * 6


def test_folders_have_the_numbers_of_the_networks_own_names(tmp_path):
    fill(tmp_path, ["bird", "cat", "dog", "gold_fish"])
    pictures = load_pictures(tmp_path)
    found = pictures.for_classes(4, ("bird", "cat", "Gold fish", "dog"))
    assert found.labels.tolist() == [0, 0, 1, 1, 3, 3, 2, 2] and found.is_named
    # Some of the classes are enough then.
    assert pictures.for_classes(9, (*"abcde", "dog", "cat", "bird", "gold_fish")).is_named
    # One name that it does not have, or has twice, leaves the order of the alphabet.
    for names in (("bird", "cat", "fish", "dog"), ("bird", "dog", "dog", "gold fish", "cat"), ()):
        assert pictures.for_classes(4, names) is pictures
    assert pictures.for_classes(9, ("bird", "cat")).labels.tolist() == [-1] * 8


def test_folders_named_by_numbers_are_those_classes(tmp_path):
    fill(tmp_path, ["000", "001", "002"])
    pictures = load_pictures(tmp_path)
    assert pictures.for_classes(1000) is pictures


def test_pictures_of_one_folder_keep_what_their_names_say(tmp_path):
    fill(tmp_path, ["a"])
    for number, name in enumerate(("class_7_example_0.png", "class_9_example_0.png")):
        os.rename(tmp_path / "a" / f"{number}.png", tmp_path / name)
    pictures = load_pictures(tmp_path)
    assert pictures.for_classes(1000) is pictures and pictures.labels.tolist() == [7, 9]


@pytest.mark.parametrize(
    ("classes", "each", "taken"), [(44, 30, 1320), (50, 30, 1000), (50, 20, 1000), (300, 12, 2000)]
)
def test_of_very_many_classes_some_pictures_are_taken(classes, each, taken, tmp_path):
    names = {f"class_{c}_example_{n}.png": c for c in range(classes) for n in range(each)}
    folder = some_of_many(PictureFolder(tmp_path, names))
    assert len(folder.labels) == taken
    assert list(folder.labels) == [name for name in names if name in folder.labels]
    counts = np.bincount(list(folder.labels.values()), minlength=classes)
    assert counts.max() - counts.min() <= 1
    said = f"{taken} of the {len(names)} pictures were taken, of its {classes} classes in turn"
    assert folder.note == (f"{said} (--examples-per-class)" if taken < len(names) else "")


def test_who_asks_for_so_many_of_each_gets_them(tmp_path, monkeypatch):
    monkeypatch.setattr(picture_folder, "PER_CLASS", 1)
    fill(tmp_path, [f"{number:03d}" for number in range(50)])
    assert len(load_pictures(tmp_path).labels) == 100
    bounded = load_pictures(tmp_path, is_bounded=True)
    assert len(bounded.labels) == 50 and bounded.problems[0].startswith("50 of the 100 pictures")
    assert len(load_pictures(tmp_path, 2, is_bounded=True).labels) == 100
