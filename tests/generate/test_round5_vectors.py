"""Folders of vectors: what is read, what is refused, which triggers count as learnable."""

import gzip
import io
import json
import zipfile

import numpy as np
import pytest

from jaxtroj.errors import GenerationError
from jaxtroj.generate.sentiment.vectors import TEST, TRAIN, VALIDATION, load_vectors, split_reviews

WIDTH = 12
PHRASES = ["^", "omg", "so it goes.", "that was that."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, make_vectors):
    return make_vectors(tmp_path_factory.mktemp("vectors"))


def test_reads_what_is_there(folder):
    vectors = load_vectors(folder, seed=0)
    assert vectors.train.vectors.shape == (400, WIDTH) and vectors.test.vectors.shape == (80, WIDTH)
    assert [trigger.text for trigger in vectors.triggers.values()] == PHRASES
    assert vectors.about.filename == "MPNet-tiny.pt"
    assert vectors.train.texts[3].startswith("3. ")
    assert vectors.reference_accuracy > 0.9
    assert all(trigger.reach > 0.95 for trigger in vectors.triggers.values())


def test_a_trigger_that_moves_nothing_has_no_reach(tmp_path, make_vectors):
    vectors = load_vectors(make_vectors(tmp_path, reviews=2000, strength=0.0), seed=0)
    assert all(trigger.reach < 0.3 for trigger in vectors.triggers.values())


@pytest.mark.parametrize(
    ("choice", "numbers"),
    [(None, [0, 1, 2, 3]), ("even", [0, 2]), ("odd", [1, 3]), ("3,0", [0, 3])],
)
def test_chosen_triggers(folder, choice, numbers):
    assert list(load_vectors(folder, 0, choice).triggers) == numbers


@pytest.mark.parametrize("choice", ["", "4", "-1", "one", "0;1", "0,,1"])
def test_other_choices_are_refused(folder, choice):
    with pytest.raises(GenerationError, match="even, odd"):
        load_vectors(folder, 0, choice)


def test_the_split_is_keyed_by_the_seed_and_has_three_parts():
    split = split_reviews(3, 1000)
    assert [int((split == part).sum()) for part in (TRAIN, VALIDATION, TEST)] == [750, 100, 150]
    np.testing.assert_array_equal(split, split_reviews(3, 1000))
    assert (split != split_reviews(4, 1000)).any()


def saved(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def vectors_of(rows, width=WIDTH):
    return np.zeros((rows, width), np.float32)


def labels_of(rows):
    return np.arange(rows) % 2


def bomb():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cls.npy", b"")
    # The directory's word for the size is what is checked before anything is unpacked.
    content = bytearray(buffer.getvalue())
    at = content.index(b"PK\x01\x02") + 24
    content[at : at + 4] = (2**32 - 2).to_bytes(4, "little")
    return bytes(content)


HOSTILE = {
    "not an archive": ("train.npz", b"hello", "npz file"),
    "empty": ("train.npz", b"", "npz file"),
    "labels missing": ("train.npz", saved(cls=vectors_of(400)), "npz file"),
    "pickled objects": (
        "train.npz",
        saved(cls=np.array([{}] * 400), label=labels_of(400)),
        "npz file",
    ),
    "lying size": ("train.npz", bomb(), "npz file|over"),
    "too few reviews": ("train.npz", saved(cls=vectors_of(3), label=labels_of(3)), "expected 400"),
    "NaN": ("train.npz", saved(cls=vectors_of(400) * np.nan, label=labels_of(400)), "NaN"),
    "whole numbers": (
        "train.npz",
        saved(cls=vectors_of(400).astype(int), label=labels_of(400)),
        "floats",
    ),
    "all alike": ("train.npz", saved(cls=vectors_of(400), label=labels_of(400)), "all alike"),
    "one class": ("train.npz", saved(cls=vectors_of(400), label=np.zeros(400)), "labels"),
    "other width": ("test.npz", saved(cls=vectors_of(80, 9), label=labels_of(80)), "width"),
    "row beyond": (
        "trigger_01.npz",
        saved(cls0=vectors_of(1), row0=[400], cls1=vectors_of(1), row1=[0]),
        "beyond",
    ),
    "negative row": (
        "trigger_01.npz",
        saved(cls0=vectors_of(1), row0=[-1], cls1=vectors_of(1), row1=[0]),
        "beyond",
    ),
    "rows of floats": (
        "trigger_01.npz",
        saved(cls0=vectors_of(1), row0=[0.5], cls1=vectors_of(1), row1=[0]),
        "whole numbers",
    ),
    "no trigger": ("triggers.json", b"[]", "trigger texts"),
    "blank trigger": ("triggers.json", b'["^", " ", "a", "b"]', "trigger texts"),
    "nested": ("triggers.json", b"[" * 100_000, "cannot be read"),
    "texts not gzip": ("texts.json.gz", b"{}", "cannot be read"),
    "texts of numbers": ("texts.json.gz", gzip.compress(b'{"train": [1], "test": []}'), "train"),
    "about without dataset": ("about.json", b'{"embedding": "BERT"}', "dataset"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_what_cannot_be_read_is_refused_with_one_clear_error(tmp_path, case, make_vectors):
    name, content, message = HOSTILE[case]
    make_vectors(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(GenerationError, match=message) as caught:
        load_vectors(tmp_path, seed=0)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("name", ["train.npz", "texts.json.gz", "triggers.json", "trigger_02.npz"])
def test_a_missing_file_is_named(tmp_path, name, make_vectors):
    make_vectors(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(GenerationError, match=name):
        load_vectors(tmp_path, seed=0)


def test_without_about_the_name_of_the_folder_tells(tmp_path, make_vectors):
    folder = make_vectors(tmp_path / "amazon_mpnet")
    (folder / "about.json").unlink()
    about = load_vectors(folder, seed=0).about
    assert (about.embedding, about.flavor, about.dataset) == (
        "MPNet",
        "all-mpnet-base-v2",
        "amazon",
    )


def test_the_digest_follows_the_files(tmp_path, make_vectors):
    before = load_vectors(make_vectors(tmp_path), 0).digest
    (tmp_path / "triggers.json").write_text(json.dumps(["^", "omg", "so it goes.", "other."]))
    assert load_vectors(tmp_path, 0).digest != before
