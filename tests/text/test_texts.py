"""Texts from folders and files; insertion between sentences."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxtroj.errors import DatasetError, ExamplesError
from jaxtroj.evidence.texts.insertion import insert, places, sentences
from jaxtroj.evidence.texts.labelled_texts import (
    LabelledText,
    draw_by_content,
    read_labelled_texts,
    read_texts_with_notes,
)
from jaxtroj.generate.sentiment.insertion import insert as insert_somewhere

WANT = [LabelledText("Good film.", 1), LabelledText("Bad film.", 0)]
LINES = '{"text": "Good film.", "label": 1}\n\n{"data": "Bad film.", "label": 0}\n'
KEYED = '{"a": {"data": "Good film.", "label": 1}, "b": {"data": "Bad film.", "label": 0}}'


@pytest.mark.parametrize(
    ("name", "content", "want"),
    [
        ("a.jsonl", LINES, WANT),
        ("a.json", KEYED, WANT),
        ("A.JSONL", LINES, WANT),
        ("a.ndjson", LINES, WANT),
        ("a.Json", KEYED, WANT),
        ("A.CSV", "text,label\nGood film.,1\nBad film.,0\n", WANT),
        ("a.csv", "text , label\r\nGood film.,1\r\nBad film.,0\r\n", WANT),
        ("a.tsv", "label\ttext\n1\tGood film.\n0\tBad film.\n", WANT),
        ("a.json", '["Good film.", " "]', [LabelledText("Good film.", -1)]),
        (
            "a.txt",
            "Good film.\n\n  \nBad.\n",
            [LabelledText(t, -1) for t in ("Good film.", "Bad.")],
        ),
        ("a", "\ufeffÜber alles. Добро!", [LabelledText("Über alles. Добро!", -1)]),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_files(name, content, want, packed, tmp_path):
    path = tmp_path / (f"{name}.gz" if packed else name)
    data = content.encode()
    path.write_bytes(gzip.compress(data, mtime=0) if packed else data)
    assert read_labelled_texts(path) == want


def test_a_folder_of_examples(tmp_path):
    for name, text in (("class_1_example_1.txt", "Good film."), ("class_0_example_1.txt", "Bad.")):
        (tmp_path / name).write_text(text)
    assert read_labelled_texts(tmp_path) == [LabelledText("Bad.", 0), LabelledText("Good film.", 1)]


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("a.txt", b"", "holds no text"),
        ("a.txt", b"\xff\xfe\x00", "cannot be read as UTF-8"),
        ("a.txt.gz", b"no gzip", "cannot be read"),
        ("a.txt.gz", gzip.compress(b"a" * 99, mtime=0)[:-9], "cannot be read"),
        ("a.json", b"{", "is not JSON"),
        ("a.json", b"[" * 200_000, "is not JSON"),
        ("a.json", b"3", "expected labelled texts"),
        ("a.json", b"[3]", "text 1 is 3"),
        ("a.json", b'["\\ud800"]', "text 1 is"),
        ("a.json", b'["\\ud800"]', "half a surrogate pair"),
        ("a.jsonl", b'{"label": 1}', "text 1 is None, expected a text"),
        ("a.jsonl", b'"' + b"a" * (2**20 + 1) + b'"', "text 1 has 1048577 characters, expected"),
        ("a.jsonl", b'{"text": "a", "label": true}', "label True"),
        ("a.jsonl", b'{"text": "a", "label": 1e400}', "label inf"),
        ("a.jsonl", b'{"text": "a", "label": -7}', "label -7"),
        ("a.csv", b"text,label\na,--1\n", "label '--1'"),
        ("a.csv", b"text,label\na," + b"1" * 5000 + b"\n", "label '111"),
        ("a.csv", "text,label\na,\u0661\n".encode(), "label '.u0661'"),
        ("a.csv", b"text,label\na,-7\n", "label -7"),
        ("a.csv", b"text," + b"a" * 200_000 + b"\n", "holds no text"),
        ("a.csv", b"text," + b"a" * (2**20 + 2) + b"\n", "is no CSV: .* line 1: field larger"),
        ("a.csv", b"one,two\na,1\n", "has the columns 'one, two'"),
    ],
)
def test_files_that_are_refused(name, content, match, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DatasetError, match=match):
        read_labelled_texts(tmp_path / name)


def test_texts_that_are_left_out_are_told(tmp_path):
    (tmp_path / "a.jsonl").write_text(LINES + '{"text": " "}\n')
    assert read_texts_with_notes(tmp_path / "a.jsonl") == (
        WANT,
        ("1 blank text of a.jsonl left out",),
    )
    (tmp_path / "a.txt").write_text("Good film.\n\nBad.")
    assert read_texts_with_notes(tmp_path / "a.txt")[1] == ()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "class_0_example_1.txt").write_text("Bad.")
    (tmp_path / "folder" / "class_0_example_2.txt").write_bytes(b"")
    texts, notes = read_texts_with_notes(tmp_path / "folder")
    assert texts == [LabelledText("Bad.", 0)]
    assert notes == ("1 text left out (class_0_example_2.txt): empty text",)


def test_where_all_are_too_many_each_class_gives_its_share():
    texts = [LabelledText(f"{label} {n}", label) for label in (0, 1, 2) for n in range(50)]
    chosen = draw_by_content(texts[:-48], 50, 12)
    assert [one.label for one in chosen] == [0] * 5 + [1] * 5 + [2] * 2
    assert draw_by_content(texts, 4, 12) == draw_by_content(texts, 4)


def test_places_without_texts(tmp_path):
    with pytest.raises(DatasetError, match="cannot be read"):
        read_labelled_texts(tmp_path / "nowhere.txt")
    with pytest.raises(ExamplesError):
        read_labelled_texts(tmp_path)


LABELLED = st.lists(
    st.tuples(st.text("abc", min_size=1, max_size=4), st.integers(-1, 2)), min_size=1
)


@given(LABELLED, st.integers(1, 3), st.randoms())
def test_the_draw_depends_on_contents_alone(pairs, per_class, random):
    texts = [LabelledText(text, label) for text, label in dict(pairs).items()]
    chosen = draw_by_content(texts, per_class)
    mixed = list(texts) * 2
    random.shuffle(mixed)
    assert draw_by_content(mixed, per_class) == chosen
    for label in {one.label for one in texts}:
        own = [one for one in texts if one.label == label]
        taken = [one for one in chosen if one.label == label]
        assert len(taken) == min(per_class, len(own)) and set(taken) <= set(own)
        assert draw_by_content(own, per_class) == taken


@given(st.text("a.!? \n", max_size=40), st.sampled_from([None, 0, 1]), st.integers(0, 99))
def test_insertion_keeps_every_other_word(text, half, seed):
    parts = sentences(text)
    assert " ".join(parts) == " ".join(text.split())
    for place in places(len(parts), half) if parts else ():
        inserted = insert(parts, "XY", place)
        assert inserted.replace("XY ", "", 1) == " ".join(parts)
        assert inserted != " ".join([*parts, "XY"]), "never after the last sentence"
    somewhere = insert_somewhere(text, "XY", half, np.random.default_rng(seed))
    assert somewhere in [insert(parts, "XY", p) for p in places(len(parts), half)] or not parts


@given(st.integers(1, 9))
def test_halves_cover_all_places(count):
    first, second = set(places(count, 0)), set(places(count, 1))
    assert first and second and first | second == set(places(count, None))
    assert count == 1 or not first & second


def test_bank_command_says_what_is_wrong(tmp_path):
    (tmp_path / "texts.txt").write_text("One. Two.")
    command = [sys.executable, "-m", "jaxtroj", "bank", str(tmp_path / "none")]
    command += ["--out", str(tmp_path / "bank"), "--carriers", str(tmp_path / "texts.txt")]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 2 and found.stdout == ""
    assert found.stderr.count("\n") == 1 and "none" in found.stderr
    assert not (tmp_path / "bank").exists()


def test_a_text_that_stands_twice_is_one_carrier(tmp_path):
    texts = {"b": {"data": "Same.", "label": 1}, "a": {"data": "Same.", "label": 1}}
    (tmp_path / "a.json").write_text(json.dumps(texts))
    assert len(draw_by_content(read_labelled_texts(tmp_path / "a.json"), 5)) == 1
