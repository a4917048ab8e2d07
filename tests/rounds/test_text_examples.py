"""Example texts of a model with and without shipped embeddings, and hostile folders."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from jaxtroj.errors import ExamplesError
from jaxtroj.rounds import ModelEntry, iter_models, load_text_examples, text_examples_digest
from jaxtroj.rounds.text_examples import MAX_TEXT_BYTES

TABLE = "clean-example-cls-embedding.csv"


def add_texts(
    home: Path, texts: Mapping[str, str | bytes], folder: str = "clean_example_data"
) -> Path:
    place = home / folder
    place.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (place / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return place


def add_table(home: Path, rows: dict[str, list[float]], name: str = TABLE) -> None:
    lines = [f"{key}, {','.join(map(str, row))}\n" for key, row in rows.items()]
    (home / name).write_text("Example, CLS Embedding\n" + "".join(lines))


def numbered(per_class: int) -> dict[str, str]:
    names = [f"class_{c}_example_{n}.txt" for c in (0, 1) for n in range(1, per_class + 1)]
    return {name: f"text of {name}" for name in names}


def test_texts_in_natural_order_exactly_as_on_disk(tmp_path):
    texts = {**numbered(11), "class_0_example_2.txt": "  two\r\nlines\rhere \n"}
    folder = add_texts(tmp_path, {**texts, "notes.md": "ignored"})
    examples = load_text_examples(folder)
    assert examples.names == tuple(numbered(11))
    assert examples.texts[1] == "  two\nlines\nhere \n"
    assert examples.labels.tolist() == [0] * 11 + [1] * 11
    assert examples.embeddings is None and examples.problems == ()
    limited = load_text_examples(folder, limit_per_class=2)
    assert limited.names == tuple(numbered(2))


def test_official_texts(shared_data):
    folder = shared_data / "trojai" / "r5-example-texts" / "id-00000000"
    examples = load_text_examples(folder)
    assert len(examples.texts) == 40 and np.bincount(examples.labels).tolist() == [20, 20]
    assert examples.problems == () and all(examples.texts)
    first = folder / "clean_example_data" / "class_0_example_1.txt"
    assert examples.texts[0] == first.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty text"),
        (b" \n\t ", "empty text"),
        (b"a" * (MAX_TEXT_BYTES + 1), "larger than"),
        (b"caf\xe9", "not UTF-8"),
        (b"a\0b", "binary"),
        (b"\x7fELF\x01\x02\x03\x04 code", "binary"),
        ("h\0i".encode("utf-16"), "binary"),
    ],
)
def test_a_bad_text_is_one_problem(tmp_path, content, reason):
    folder = add_texts(tmp_path, {**numbered(1), "class_0_example_2.txt": content})
    examples = load_text_examples(folder)
    assert examples.names == tuple(numbered(1))
    (problem,) = examples.problems
    assert reason in problem and problem.startswith("1 text left out (class_0_example_2.txt)")


def test_other_scripts_and_unknown_labels_are_used(tmp_path):
    texts = {"example_0.txt": "Отличный фильм", "review.TXT": "とても良い"}
    examples = load_text_examples(add_texts(tmp_path, texts))
    assert examples.texts == tuple(texts.values()) and examples.problems == ()
    assert examples.labels.tolist() == [-1, -1]


def test_odd_things_named_like_texts(tmp_path):
    folder = add_texts(tmp_path, numbered(1))
    (folder / "class_0_example_3.txt").mkdir()
    (folder / "class_0_example_4.txt").symlink_to(folder / "class_0_example_4.txt")
    os.mkfifo(folder / "class_0_example_5.txt")
    examples = load_text_examples(folder)
    assert examples.names == tuple(numbered(1))
    assert len(examples.problems) == 2 and "2 texts left out" in examples.problems[0]


def test_poisoned_texts_apart_from_clean_ones(tmp_path):
    name = "source_class_1_target_class_0_example_1.txt"
    add_texts(tmp_path, {**numbered(1), name: "triggered"})
    add_texts(tmp_path, {name: "triggered"}, "poisoned_example_data")
    add_table(tmp_path, {name: [1, 2]}, "poisoned-example-cls-embedding.csv")
    clean = load_text_examples(tmp_path)
    assert name not in clean.names and "poisoned example" in clean.problems[0]
    poisoned = load_text_examples(tmp_path, poisoned=True)
    assert (poisoned.names, poisoned.labels.tolist()) == ((name,), [1])
    np.testing.assert_array_equal(poisoned.embeddings, [[1, 2]])


def test_shipped_embeddings_follow_the_order_of_the_texts(tmp_path):
    folder = add_texts(tmp_path, numbered(2))
    add_table(tmp_path, {name: [row, -row] for row, name in enumerate(reversed(numbered(2)))})
    entry = ModelEntry("id-00000001", tmp_path / "model.pt", folder, None)
    for place in (tmp_path, folder, entry):
        examples = load_text_examples(place)
        assert examples.names == tuple(numbered(2)) and examples.problems == ()
        np.testing.assert_array_equal(examples.embeddings[:, 0], [3, 2, 1, 0])
    np.testing.assert_array_equal(
        load_text_examples(folder, limit_per_class=1).embeddings, [[3, -3], [1, -1]]
    )


def test_rows_and_texts_that_do_not_meet(tmp_path):
    add_texts(tmp_path, {**numbered(2), "class_1_example_2.txt": b""})
    add_table(
        tmp_path,
        {
            "class_0_example_1.txt": [1, 1],
            "class_1_example_1.txt": [2, 2, 2],
            "class_1_example_2.txt": [3, 3],
            "class_1_example_9.txt": [4, 4],
            "source_class_0_target_class_1_example_1.txt": [5, 5],
        },
    )
    examples = load_text_examples(tmp_path)
    assert examples.names == (
        "class_0_example_1.txt",
        "class_1_example_2.txt",
        "class_1_example_9.txt",
    )
    assert examples.texts[1:] == ("", "")
    np.testing.assert_array_equal(examples.embeddings, [[1, 1], [3, 3], [4, 4]])
    said = " | ".join(examples.problems)
    assert "empty text" in said and "3 numbers where most rows have 2" in said
    assert "2 texts left out (class_0_example_2.txt ...): no row" in said
    assert "2 texts used without its words (class_1_example_2.txt ...)" in said


def test_a_table_of_other_texts_is_not_used(tmp_path):
    add_texts(tmp_path, numbered(1))
    add_table(tmp_path, {"class_0_example_7.txt": [1.0]})
    examples = load_text_examples(tmp_path)
    assert examples.embeddings is None and examples.names == tuple(numbered(1))
    assert "names none of the texts" in examples.problems[0]


@pytest.mark.parametrize("content", [b"", b"\0", b"Example, CLS Embedding\na.txt, nan\n"])
def test_a_broken_table_leaves_the_texts(tmp_path, content):
    add_texts(tmp_path, numbered(1))
    (tmp_path / TABLE).write_bytes(content)
    examples = load_text_examples(tmp_path)
    assert examples.embeddings is None and len(examples.texts) == 2
    (problem,) = examples.problems
    assert problem.startswith("the shipped embeddings are not used")


def test_embeddings_alone_are_enough(tmp_path):
    add_table(tmp_path, {"class_1_example_1.txt": [0.5]})
    examples = load_text_examples(tmp_path)
    assert (examples.texts, examples.labels.tolist()) == (("",), [1])
    assert "without its words" in examples.problems[0]


def test_the_log_of_a_model_is_no_example(tmp_path):
    folder = tmp_path / "id-00000000"
    folder.mkdir()
    (folder / "model.pt").write_bytes(b"never opened")
    (folder / "log.txt").write_text("epoch 1")
    (entry,) = iter_models(folder)
    for place in (folder, entry):
        with pytest.raises(ExamplesError, match="no example texts in"):
            load_text_examples(place)


def test_nothing_usable(tmp_path):
    with pytest.raises(ExamplesError, match="cannot read the examples folder"):
        load_text_examples(tmp_path / "absent")
    with pytest.raises(ExamplesError, match="no .txt file"):
        load_text_examples(tmp_path)
    folder = add_texts(tmp_path, {"class_0_example_1.txt": b"\0"})
    with pytest.raises(ExamplesError, match="binary content"):
        load_text_examples(folder)
    with pytest.raises(ValueError, match="at least 1"):
        load_text_examples(folder, limit_per_class=0)


def test_caps(tmp_path, monkeypatch):
    folder = add_texts(tmp_path, numbered(2))
    monkeypatch.setattr("jaxtroj.rounds.text_examples.MAX_TOTAL_BYTES", 20)
    with pytest.raises(ExamplesError, match="over 20 characters"):
        load_text_examples(folder)
    monkeypatch.setattr("jaxtroj.rounds.text_examples.MAX_FILES", 3)
    with pytest.raises(ExamplesError, match="at most 3"):
        load_text_examples(folder)


def test_digest_follows_names_contents_and_table(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for home in (one, two):
        add_texts(home, numbered(2))
        (home / "clean_example_data" / "notes.md").write_text(str(home))
    digests = [text_examples_digest(one)]
    assert digests == [text_examples_digest(two / "clean_example_data")]
    add_table(one, {"class_0_example_1.txt": [1.0]})
    digests.append(text_examples_digest(one))
    text = one / "clean_example_data" / "class_0_example_1.txt"
    text.write_text("changed")
    digests.append(text_examples_digest(one))
    text.rename(text.with_name("class_0_example_3.txt"))
    digests.append(text_examples_digest(one))
    text.mkdir()
    digests.append(text_examples_digest(one))
    assert len(set(digests)) == len(digests)
    with pytest.raises(ExamplesError):
        text_examples_digest(tmp_path / "absent")
