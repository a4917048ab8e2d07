"""Example pictures in an .npz archive: which layouts are read, and what hostile ones cost."""

import io
import os
import resource
import struct
import time
import zipfile

import numpy as np
import pytest

from jaxtroj.errors import ExamplesError
from jaxtroj.rounds import examples_digest, load_examples
from jaxtroj.rounds.examples import load_pictures, usual_size
from jaxtroj.rounds.picture_archive import usual_number
from jaxtroj.rounds.resizing import resizing

DRAW = np.random.default_rng(0)
COUNT, HEIGHT, WIDTH = 12, 5, 7
X = DRAW.integers(0, 256, (COUNT, HEIGHT, WIDTH, 3), np.uint8)
GREY = X[..., :1]
Y = np.arange(COUNT) % 3


@pytest.fixture
def path(tmp_path):
    return tmp_path / "pictures.npz"


def npy(values: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values)
    return stream.getvalue()


def zipped(path, *members: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)


LAYOUTS = {
    "colour": ({"x": X, "y": Y}, X),
    "channels first": ({"x": X.transpose(0, 3, 1, 2), "y": Y}, X),
    "channels first, by rows": ({"x": np.ascontiguousarray(X.transpose(0, 3, 1, 2)), "y": Y}, X),
    "column-major": ({"x": np.asfortranarray(X), "y": Y}, X),
    "grey": ({"x": GREY, "y": Y}, GREY.repeat(3, axis=3)),
    "grey, channels first": ({"x": GREY.transpose(0, 3, 1, 2), "y": Y}, GREY.repeat(3, axis=3)),
    "grey of three axes": ({"x": GREY[..., 0], "y": Y}, GREY.repeat(3, axis=3)),
    "labels of two axes": ({"x": X, "y": Y[:, None]}, X),
    "labels of a byte": ({"x": X, "y": Y.astype(np.uint8)}, X),
    "labels of the other byte order": ({"x": X, "y": Y.astype(">i4")}, X),
    "test pair": ({"x_test": X, "y_test": Y}, X),
    "mnist.npz": ({"x_test": X, "x_train": X[:2], "y_train": Y[:2], "y_test": Y}, X),
    "our own test pair": ({"test_x": X, "test_y": Y}, X),
    "other arrays beside": ({"x": X, "y": Y, "names": np.array(["a"]), "a/x": np.zeros(3)}, X),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("kind", LAYOUTS)
def test_good_layouts(path, kind, save):
    arrays, expected = LAYOUTS[kind]
    save(path, **arrays)
    pictures = load_pictures(path)
    np.testing.assert_array_equal(pictures.pixels, expected)
    assert pictures.labels.tolist() == Y.tolist() and pictures.labels.dtype == np.int32
    assert usual_size(path) == (HEIGHT, WIDTH)
    notes = " ".join(pictures.problems)
    assert ("12 pictures used (x[0] ...): grayscale converted to RGB" in notes) == ("grey" in kind)
    assert ("the pictures of x_test were taken; x_train was left out" in notes) == (
        kind == "mnist.npz"
    )


def test_grey_networks_get_grey_pictures(path):
    np.savez(path, x=GREY[..., 0], y=Y)
    grey = load_pictures(path, channels=1)
    np.testing.assert_array_equal(grey.pixels, GREY)
    np.savez(path, x=X, y=Y)
    colour = load_pictures(path, channels=1)
    luma = X @ np.array([0.299, 0.587, 0.114])
    np.testing.assert_allclose(colour.pixels[..., 0], luma, atol=1)
    assert not grey.problems and "converted to grey (luma)" in colour.problems[0]


def test_pictures_are_resized_as_those_of_a_folder(path):
    np.savez(path, x=X, y=Y)
    assert load_pictures(path, fit=resizing(4, (4, 4))).pixels.shape == (COUNT, 4, 4, 3)


@pytest.mark.parametrize(
    ("classes", "expected"),
    [(2, 100), (9, 23), (10, 20), (43, 20), (200, 20), (201, 19), (1000, 4), (5000, 4)],
)
def test_how_many_are_taken_depends_on_the_number_of_classes(classes, expected):
    assert usual_number(classes) == expected


def test_the_first_of_each_class_are_taken_in_the_order_of_the_file(path):
    labels = DRAW.integers(0, 10, 1000)
    pixels = np.arange(4000).reshape(1000, 2, 2).astype(np.uint8)
    np.savez(path, x=pixels, y=labels)
    for limit, each in ((None, 20), (3, 3)):
        found = load_pictures(path, limit)
        taken = [n for n in range(1000) if (labels[:n] == labels[n]).sum() < each]
        assert found.names == tuple(f"x[{n}]" for n in taken)
        assert found.labels.tolist() == labels[taken].tolist()
        np.testing.assert_array_equal(found.pixels[..., 0], pixels[taken])
        assert found.problems[0] == (
            f"{10 * each} of the 1000 pictures of x were taken, the first {each} of each class"
            " (--examples-per-class)"
        )


def test_the_digest_is_of_the_content(path, tmp_path):
    np.savez(path, x=X, y=Y)
    moved = tmp_path / "moved"
    moved.write_bytes(path.read_bytes())
    os.utime(moved, (0, 0))
    first = examples_digest(path)
    np.savez(path, x=X, y=Y[::-1])
    assert examples_digest(moved) == first != examples_digest(path)


REFUSED = {
    "two pairs": ({"x": X, "y": Y, "x_test": X, "y_test": Y}, "holds x, y, x_test, y_test, which"),
    "a zoo's archive": ({"x": X, "y": Y, "test_x": X, "test_y": Y}, "x, y, test_x, test_y, which"),
    "half of another pair": ({"x_test": X, "y_test": Y, "x": X}, "holds x, x_test, y_test, which"),
    "training alone": ({"x_train": X, "y_train": Y}, "holds x_train, y_train; expected an .npz"),
    "no labels": ({"x": X}, "holds x; expected an .npz archive with uint8 pictures x and labels y"),
    "no pictures": ({"y": Y}, "holds y; expected"),
    "no array": ({}, "the zip has no members"),
    "names in two cases": ({"x": X, "y": Y, "X": X}, "differ only in case"),
    "other case": ({"X": X, "Y": Y}, "holds X, Y; expected"),
    "unit floats": ({"x": X / np.float32(255), "y": Y}, r"float32 .* save numpy.rint\(255 \* x\)"),
    "NaN": ({"x": np.full(X.shape, np.nan), "y": Y}, "x is float64"),
    "integers": ({"x": X.astype(int), "y": Y}, r"x is int64 .* save x.astype\(numpy.uint8\)"),
    "booleans": ({"x": X > 9, "y": Y}, "x is bool"),
    "objects": ({"x": np.array([{}] * 3), "y": Y}, "x: elements of type '|O', expected plain"),
    "object labels": ({"x": X, "y": np.array([{}] * COUNT)}, "y: elements of type '|O'"),
    "four channels": ({"x": X[..., [0, 1, 2, 0]], "y": Y}, "neither of which is 1 or 3 channels"),
    "both axes": ({"x": X[:, :3], "y": Y}, "axes 1 and 3 have 3 and 3 entries, both of which"),
    "one picture": ({"x": X[0, ..., 0], "y": Y}, r"expected \[n, h, w, c\], \[n, c, h, w\] or"),
    "five axes": ({"x": X[None], "y": Y}, r"expected \[n, h, w, c\]"),
    "zero pictures": ({"x": X[:0], "y": Y[:0]}, "expected 1 to 1000000 pictures of 1 to"),
    "no pixels": ({"x": X[:, :0], "y": Y}, "pictures of 1 to 16777216 pixels"),
    "huge pictures": ({"x": np.zeros((1, 4097, 4096), np.uint8), "y": Y[:1]}, "16777216"),
    "too many": ({"x": np.zeros((1_000_001, 1, 1), np.uint8), "y": Y}, "expected 1 to 1000000"),
    "fewer labels": ({"x": X, "y": Y[1:]}, r"int64 \(11,\), 1 label too few for 12 pictures"),
    "more labels": ({"x": X[3:], "y": Y[:, None]}, "3 labels too many for 9 pictures; save the"),
    "one label": ({"x": X, "y": Y[0]}, r"y is int64 \(\), expected 12 labels"),
    "one-hot labels": ({"x": X, "y": np.eye(3, dtype=int)[Y]}, r"save y.argmax\(1\)"),
    "float labels": ({"x": X, "y": Y.astype(float)}, r"y.astype\(int\)"),
    "boolean labels": ({"x": X, "y": Y > 1}, "y is bool"),
    "text labels": ({"x": X, "y": np.array(["cat"] * COUNT)}, "y: elements of type '<U3'"),
    "negative labels": ({"x": X, "y": Y - 1}, "y goes from -1 to 1, expected classes from 0"),
    "huge labels": ({"x": X, "y": Y + 10**6}, "y goes from 1000000 to 1000002"),
    "labels that wrap": ({"x": X, "y": np.full(COUNT, 2**64 - 1, np.uint64)}, "goes from 184467"),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("kind", REFUSED)
def test_archives_of_something_else(path, kind, save):
    arrays, complaint = REFUSED[kind]
    save(path, **arrays)
    with pytest.raises(ExamplesError, match=complaint):
        load_pictures(path)


def _lying(path) -> None:
    """A header that says a million times as many pictures as there are."""
    true = npy(X).replace(b"(12, 5, 7, 3), }" + b" " * 6, b"(12000000, 5, 7, 3), }")
    zipped(path, ("x.npy", true), ("y.npy", npy(Y)))


def _bomb(path) -> None:
    """400 MB of zeros in 2 MB, of the shape that its header says."""
    header = npy(np.zeros((1, 1000, 1000, 1), np.uint8))[:128].replace(
        b"(1, 1000, 1000, 1), }" + b" " * 2, b"(400, 1000, 1000, 1), }"
    )
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w") as file,
    ):
        file.write(header)
        for _ in range(40):
            file.write(bytes(10**7))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("y.npy", npy(np.zeros(400, int)))


def _hidden_bomb(path) -> None:
    """The same, in an archive whose directory says that it is small."""
    _bomb(path)
    content = bytearray(path.read_bytes())
    for magic, place in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        at = content.index(magic) + place
        content[at : at + 4] = struct.pack("<I", 4096)
    path.write_bytes(content)


def _twice(path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        zipped(path, ("x.npy", npy(X)), ("y.npy", npy(Y)), ("x.npy", npy(X + 1)))


def _encrypted(path) -> None:
    np.savez(path, x=X, y=Y)
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)


def _damaged(path) -> None:
    np.savez(path, x=X, y=Y)
    content = bytearray(path.read_bytes())
    content[400] ^= 1  # a pixel
    path.write_bytes(content)


def _truncated(path) -> None:
    np.savez(path, x=X, y=Y)
    path.write_bytes(path.read_bytes()[:-100])


HOSTILE = {
    "lying header": (_lying, "takes 1260000128 bytes, got 1388"),
    "bomb": (_bomb, "expands to 4000"),
    "hidden bomb": (_hidden_bomb, "takes 400000128 bytes, got 4096"),
    "the same name twice": (_twice, "'x.npy' appears twice"),
    "a folder in it": (
        lambda path: zipped(path, ("a/x.npy", npy(X)), ("a/y.npy", npy(Y))),
        "holds a/x, a/y; expected",
    ),
    "a way out": (
        lambda path: zipped(path, ("../x.npy", npy(X)), ("y.npy", npy(Y))),
        "not a plain relative path",
    ),
    "other files": (lambda path: zipped(path, ("x", npy(X)), ("y", npy(Y))), "holds no array"),
    "no npy inside": (lambda path: zipped(path, ("x.npy", b"hi"), ("y.npy", b"")), "no .npy array"),
    "another compression": (
        lambda path: zipped(path, ("x.npy", npy(X)), ("y.npy", npy(Y)), method=zipfile.ZIP_LZMA),
        "unsupported compression 14",
    ),
    "encrypted": (_encrypted, "is encrypted; decrypt the file first"),
    "damaged": (_damaged, "x: zip member 'x.npy' does not match its checksum"),
    "truncated": (_truncated, "has no end record; the file is truncated"),
    "an array alone": (lambda path: path.write_bytes(npy(X)), "is no .npz archive; expected"),
    "text": (lambda path: path.write_text("x,y\n"), "is no .npz archive; expected"),
    "empty": (lambda path: path.write_bytes(b""), "is no .npz archive; expected"),
    "an empty zip": (zipped, "the zip has no members"),
    "not ours to read": (lambda path: os.mkfifo(path), "Not a directory"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_archives_are_one_error_and_cost_little(path, kind):
    make, complaint = HOSTILE[kind]
    make(path)
    started, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ExamplesError, match=complaint):
        load_examples(path)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert time.process_time() - started < 2 and grown < 200 * 1024


def test_no_two_gigabytes_are_read(path):
    with open(path, "wb") as file:
        file.write(b"PK\x03\x04")
        file.truncate(2**31 + 1)
    with pytest.raises(ExamplesError, match="larger than 2147483648 bytes; expected"):
        usual_size(path)
