"""Pictures of any size made one size: as torchvision does it, and what a hostile one costs."""

import numpy as np
import pytest
from PIL import Image
from torchvision import transforms

from jaxtroj.errors import ExamplesError
from jaxtroj.rounds.examples import load_examples, load_pictures
from jaxtroj.rounds.image_format import ImageFileError
from jaxtroj.rounds.resizing import resizing

DRAW = np.random.default_rng(0)
SIZES = [
    (500, 333),
    (333, 500),
    (375, 500),
    (64, 64),
    (65, 64),
    (31, 257),
    (17, 90),
    (9, 9),
    (1, 3),
]
TARGETS = [(64, (64, 64)), (256, (224, 224)), (37, (32, 31)), (48, (33, 20)), (7, (1, 7))]


def torchvisions(pixels: np.ndarray, shorter: int, size: tuple[int, int]) -> np.ndarray:
    both = transforms.Compose([transforms.Resize(shorter), transforms.CenterCrop(size)])
    return np.asarray(both(Image.fromarray(pixels)))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_pixels_are_torchvisions(size, target):
    pixels = DRAW.integers(0, 256, (*size, 3), np.uint8)
    fitted, note = resizing(*target)(pixels)
    np.testing.assert_array_equal(fitted, torchvisions(pixels, *target))
    assert fitted.shape[:2] == target[1]
    assert note == (f"enlarged to {target[0]} pixels on the shorter side"
                    if min(size) < target[0] else "")  # fmt: skip


def test_grey_pictures_are_too():
    pixels = DRAW.integers(0, 256, (50, 71), np.uint8)
    fitted, _ = resizing(40, (33, 32))(pixels[..., None])
    np.testing.assert_array_equal(fitted[..., 0], torchvisions(pixels, 40, (33, 32)))


def test_a_picture_that_would_become_huge_is_refused():
    with pytest.raises(ImageFileError, match=r"1 x 100000 pixels would be 256 x 25600000"):
        resizing(256, (224, 224))(np.zeros((1, 100_000, 3), np.uint8))


@pytest.fixture
def folder(tmp_path):
    """Three pictures of three sizes, and one that is refused for its proportions."""
    for number, size in enumerate([(20, 30), (41, 33), (8, 16)]):
        pixels = DRAW.integers(0, 256, (*size, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"class_{number}_example_0.png")
    return tmp_path


def test_no_picture_is_left_out_for_its_size(folder):
    pictures = load_pictures(folder, fit=resizing(16, (12, 14)))
    assert pictures.pixels.shape == (3, 12, 14, 3) and pictures.labels.tolist() == [0, 1, 2]
    assert pictures.problems == (
        "1 picture used (class_2_example_0.png): enlarged to 16 pixels on the shorter side",
    )
    own = np.asarray(Image.open(folder / "class_1_example_0.png"))
    np.testing.assert_array_equal(pictures.pixels[1], torchvisions(own, 16, (12, 14)))


def test_without_it_one_sentence_names_the_remedy(folder):
    (folder / "class_1_example_0.png").rename(folder / "class_1_example_9.png")
    Image.new("RGB", (30, 20), (1, 2, 3)).save(folder / "class_0_example_1.png")
    examples = load_examples(folder)
    assert examples.names == ("class_0_example_0.png", "class_0_example_1.png")
    assert (
        "2 pictures left out (class_1_example_9.png ...): of another size, where most are 20 x 30"
        " pixels; --resize PX takes all"
    ) in examples.problems


def test_one_whose_proportions_are_absurd_costs_itself(folder):
    Image.new("RGB", (1, 4000), (1, 2, 3)).save(folder / "class_0_example_1.png")
    pictures = load_pictures(folder, fit=resizing(200, (200, 200)))
    assert len(pictures.names) == 3 and "4000 x 1 pixels would be" in pictures.problems[0]
    for path in folder.glob("class_[012]_example_0.png"):
        path.unlink()
    with pytest.raises(ExamplesError, match="no usable example picture"):
        load_pictures(folder, fit=resizing(200, (200, 200)))
