"""Files of example texts that say two things, or nothing, of a text: told, or refused."""

import csv
import json

import pytest

from jaxtroj.errors import DatasetError
from jaxtroj.evidence.texts.labelled_texts import MAX_CHARACTERS, read_texts_with_notes


def written(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    return tmp_path / name


def test_texts_with_several_labels_are_left_out_and_told(tmp_path):
    path = written(tmp_path, "a.csv", "text,label\ngood,1\nbad,0\ngood,0\ngood,1\nfine,1\n")
    found, notes = read_texts_with_notes(path)
    assert [one.text for one in found] == ["bad", "fine"]
    assert notes == ("left out of a.csv for several labels: 1",)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text,labels\ngood,1\n"),
        ("a.jsonl", json.dumps({"text": "good", "labels": 1})),
    ],
)
def test_names_that_are_not_labels_are_told(tmp_path, name, content):
    found, notes = read_texts_with_notes(written(tmp_path, name, content))
    assert found[0].label == -1
    assert "expected the name label beside 'text', 'labels'" in notes[0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text,label\ngood,1,\nbad,0\n"),
        ("a.csv", 'text,label\n"good",1\n"bad",0,, \n'),
        ("a.jsonl", '{"text": "good", "data": "good", "label": 1}\n{"data": "bad", "label": 0}'),
    ],
)
def test_what_says_nothing_twice_is_read(tmp_path, name, content):
    found = read_texts_with_notes(written(tmp_path, name, content))[0]
    assert [(one.text, one.label) for one in found] == [("good", 1), ("bad", 0)]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "text,label,label\ngood,1,0\n", "and label once"),
        ("a.csv", "text,data,label\ngood,bad,0\n", "one of text or data"),
        ("a.jsonl", '{"text": "good", "label": 1, "label": 0}', "'label' stands twice"),
        ("a.json", '[{"text": "good", "text": "bad"}]', "'text' stands twice"),
        (
            "a.jsonl",
            '{"text": "good", "data": "bad", "label": 0}',
            "text 1 has text and data, which",
        ),
        (
            "a.csv",
            "text,label\nfine,1\ngood fi, 1,0\n",
            "text 2 is in a row of more cells than the 2",
        ),
        ("a.tsv", "text\tlabel\ngood\t1\t0\n", "quote texts that hold what stands between cells"),
        ("a.parquet", "PAR1\0\0good", "NUL"),
    ],
)
def test_what_says_two_things_is_refused(tmp_path, name, content, said):
    with pytest.raises(DatasetError, match=said):
        read_texts_with_notes(written(tmp_path, name, content))


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('text,label\ngood,1\n"bad,0\nfine,1\n', 3),
        ('text,label\n"good\nfilm",1\n"bad,0\nfine,1\n', 4),
        ('label,text\n1,"good\n', 2),
        ('"text,label\ngood,1\n', 1),
        ('text,label\n"good" film,1\n', 2),
        ('text,label\n"bad,0\n"fine" said he,1\n', 2),
    ],
)
def test_a_quote_that_nothing_ends_is_no_text_of_all_that_follows(tmp_path, content, line):
    with pytest.raises(DatasetError, match=f"no CSV: the row that starts in line {line}: "):
        read_texts_with_notes(written(tmp_path, "a.csv", content))


def test_quotes_around_whole_cells_are_read(tmp_path):
    content = 'text,label\n"good, ""fine"" film",1\n"two\nlines",0\nan "old" film,1\n5" of rain,0\n'
    found, notes = read_texts_with_notes(written(tmp_path, "a.csv", content))
    assert [one.text for one in found] == [
        'good, "fine" film', "two\nlines", 'an "old" film', '5" of rain',
    ]  # fmt: skip
    assert not notes


def test_long_texts_of_a_table_are_read_up_to_the_limit_of_all_texts(tmp_path):
    before = csv.field_size_limit()
    path = written(tmp_path, "a.csv", f"text,label\ngood,1\n{'a' * MAX_CHARACTERS},0\n")
    assert [len(one.text) for one in read_texts_with_notes(path)[0]] == [4, MAX_CHARACTERS]
    for more, said in ((1, "text 2 has 1048577 characters"), (2, "that starts in line 3: field")):
        path = written(
            tmp_path, "a.csv", f"text,label\ngood,1\n{'a' * (MAX_CHARACTERS + more)},0\n"
        )
        with pytest.raises(DatasetError, match=said):
            read_texts_with_notes(path)
    assert csv.field_size_limit() == before
