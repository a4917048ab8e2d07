"""Embedding, logit and accuracy tables of text models: NIST's form and hostile ones."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxtroj.errors import DatasetError
from jaxtroj.rounds.text_tables import (
    MAX_WIDTH,
    read_cls_embeddings,
    read_logits,
)

HEADER = "Example, CLS Embedding\n"


def write(tmp_path, content: str | bytes):
    path = tmp_path / "clean-example-cls-embedding.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_embeddings_as_nist_writes_them(tmp_path):
    values = np.random.default_rng(0).normal(size=(40, 768)).astype(np.float32)
    names = tuple(f"class_{c}_example_{n}.txt" for c in (0, 1) for n in range(1, 21))
    rows = zip(names, values, strict=True)
    lines = [f"{name}, {','.join(str(v) for v in row)}\n" for name, row in rows]
    vectors = read_cls_embeddings(write(tmp_path, HEADER + "".join(lines)))
    assert vectors.names == names and vectors.problems == ()
    assert vectors.values.dtype == np.float32
    np.testing.assert_array_equal(vectors.values, values)
    np.testing.assert_array_equal(vectors.of((names[7], names[2])), values[[7, 2]])
    with pytest.raises(KeyError):
        vectors.of(("class_9_example_1.txt",))


def test_logits_byte_order_mark_and_windows_lines(tmp_path):
    content = "\ufeffExample, Logits\r\n./x/class_0_example_1.txt, 1.5,-2e-3\r\n\r\n"
    vectors = read_logits(write(tmp_path, content))
    assert vectors.names == ("class_0_example_1.txt",)
    np.testing.assert_array_equal(vectors.values, np.array([[1.5, -2e-3]], np.float32))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("b.txt, 1,2,3", "3 numbers where most rows have 2"),
        ("b.txt, 1", "1 numbers where most rows have 2"),
        ("b.txt", "no numbers"),
        ("b.txt, ", "no numbers"),
        ("b.txt, 1,nan", "not finite"),
        ("b.txt, inf,1", "not finite"),
        ("b.txt, 1e39,1", "not finite"),
        ("b.txt, 1,x", "no numbers"),
        ("b.txt, 1,1_0", "no numbers"),
        ("b.txt, 1,١", "no numbers"),
        ("b.txt, 1,0x10", "no numbers"),
        (", 1,2", "no printable file name"),
        ("b\x1b.txt, 1,2", "no printable file name"),
        ("b.txt, " + "1," * 1_000_000 + "1", f"more than {MAX_WIDTH} numbers"),
        ("b.txt, 1,2\nb.txt, 1,3", "given twice with different numbers"),
        ("b.txt, 1,2\nb.txt, 1,2,3\nb.txt, 1,2", "given twice with different numbers"),
    ],
)
def test_a_bad_row_is_left_out(tmp_path, row, reason):
    good = "a.txt, 1,2\nc.txt, 3,4\n"
    vectors = read_cls_embeddings(write(tmp_path, f"{HEADER}{row}\n{good}"))
    assert vectors.names == ("a.txt", "c.txt")
    np.testing.assert_array_equal(vectors.values, [[1, 2], [3, 4]])
    (problem,) = vectors.problems
    assert reason in problem and problem.startswith("1 row of clean-example-cls-embedding.csv")


def test_the_same_row_twice_is_one_row(tmp_path):
    vectors = read_cls_embeddings(write(tmp_path, HEADER + "a.txt, 1,2\na.txt, 1.0,2\n"))
    assert vectors.names == ("a.txt",) and vectors.problems == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begins with ''"),
        (b"Example, Logits\na.txt, 1,2\n", "expected Example, CLS Embedding"),
        (b"Example, CLS Embedding, more\na.txt, 1\n", "expected Example, CLS Embedding"),
        (b"x" * 100_000, "begins with"),
        (HEADER.encode(), "no row"),
        (HEADER.encode() + b"a.txt, nan\n", "no usable row .1 row"),
        (HEADER.encode() + b"a.txt, 1\0\n", "NUL"),
        (HEADER.encode() + b"\xff.txt, 1\n", "UTF-8"),
        (HEADER.encode() + b"a.txt,1\n" * 100_001, "more than 100000 rows"),
    ],
)
def test_a_table_that_is_none(tmp_path, content, message):
    path = write(tmp_path, content)
    with pytest.raises(DatasetError, match=message) as caught:
        read_cls_embeddings(path)
    assert len(str(caught.value)) < 600


def test_a_table_over_the_cap(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxtroj.rounds.text_tables.MAX_TABLE_BYTES", 100)
    with pytest.raises(DatasetError, match="larger than 100 bytes"):
        read_cls_embeddings(write(tmp_path, HEADER + "a.txt, 1\n" * 20))


CELL = st.sampled_from(
    ["1", "-2.5", "nan", "inf", "", " ", "x", "1e999", "0x1", '"', "a.txt", ".."]
)


SLOW_CHECKS = [
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.too_slow,
    HealthCheck.function_scoped_fixture,
]


@settings(deadline=None, max_examples=150, suppress_health_check=SLOW_CHECKS)
@given(st.lists(st.lists(CELL, max_size=4), max_size=5))
def test_any_cells_are_read_or_refused(tmp_path, rows):
    path = write(tmp_path, HEADER + "\n".join(",".join(row) for row in rows))
    try:
        vectors = read_cls_embeddings(path)
    except DatasetError:
        return
    assert vectors.values.shape == (len(vectors.names), vectors.values.shape[1])
    assert np.isfinite(vectors.values).all() and len(set(vectors.names)) == len(vectors.names)
