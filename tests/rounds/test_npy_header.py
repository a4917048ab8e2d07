"""Headers of arrays: those that NumPy and others write are read, everything else is refused."""

import io
import time

import numpy as np
import pytest

from jaxtroj.rounds.npy_header import NpyError, read_npy_header


def npy(values: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, values, version)
    return stream.getvalue()


def with_header(text: str, numbers: bytes = bytes(6)) -> bytes:
    """What a writer of any kind makes of a header's text."""
    content = text.encode("latin-1")
    return b"\x93NUMPY\x01\x00" + len(content).to_bytes(2, "little") + content + numbers


@pytest.mark.parametrize("kind", "b1 u1 <i2 >i4 i8 <f2 f4 >f8".split())
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4, 1)])
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_arrays_of_plain_numbers_are_numpys(kind, shape, order, version):
    values = np.random.default_rng(0).integers(0, 9, shape).astype(kind, order=order)
    content = npy(values, version)
    np.testing.assert_array_equal(read_npy_header(content).array(content), values)


OTHER_WRITERS = [
    "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }",  # cnpy
    "{'descr':'<u1','fortran_order':False,'shape':(2,3)}\n",
    "{'shape': (2L, 3L), 'descr': '|u1', 'fortran_order': False, }",  # Python 2 on Windows
]


@pytest.mark.parametrize("text", OTHER_WRITERS)
def test_those_of_other_writers_are_read(text):
    content = with_header(text)
    assert read_npy_header(content).array(content).shape == (2, 3)


REFUSED = {
    "no array": (b"PK\x03\x04 and more bytes", "no .npy array"),
    "empty": (b"", "no .npy array"),
    "version 4": (b"\x93NUMPY\x04" + bytes(20), "version 4, expected 1 to 3"),
    "truncated": (npy(np.zeros(3))[:40], "truncated"),
    "a long header": (with_header("{" + " " * 2000 + "}"), "over 1036 bytes"),
    "objects": (npy(np.zeros(3, "O")), "type '|O', expected plain numbers"),
    "text": (npy(np.array(["a"])), "type '<U1'"),
    "complex": (npy(np.zeros(3, complex)), "type '<c16'"),
    "times": (npy(np.zeros(3, "M8[s]")), r"type '<M8\[s\]'"),
    "fields": (npy(np.zeros(3, [("a", "u1")])), "not that of plain numbers"),
    "a lie": (
        npy(np.zeros((2, 3), "u1")).replace(b"(2, 3)", b"(2, 4)"),
        "takes 136 bytes, got 134",
    ),
    "more": (npy(np.zeros(3, "u1")) + b"x", "takes 131 bytes, got 132"),
    "no number": (npy(np.zeros((0, 5))), "holds no number"),
    "negative": (with_header(OTHER_WRITERS[0].replace("2,", "-2,")), "not that of plain"),
    "a product that wraps": (
        with_header(OTHER_WRITERS[0].replace("2, 3", "4294967296, 4294967296")),
        r"takes 184467440737095\d+ bytes",
    ),
    "many axes": (with_header(OTHER_WRITERS[0].replace("2,", "1," * 40)), "41 axes"),
    "code": (with_header("[print(1)]"), "not that of plain"),
    "an entry twice": (
        with_header("{'shape': (6,), 'shape': (2, 3), 'fortran_order': False}"),
        "once each",
    ),
    "an entry too many": (with_header(OTHER_WRITERS[0][:-1] + "'shape': (6,)}"), "once each"),
    "another order": (with_header(OTHER_WRITERS[0].replace("False", "'C'")), "order of the array"),
    "a shape of text": (with_header(OTHER_WRITERS[0].replace("(2, 3)", "'2'")), "expected extents"),
    "a type that is none": (with_header(OTHER_WRITERS[0].replace("|u1", "f1")), "type 'f1'"),
    "a type of no text": (with_header(OTHER_WRITERS[0].replace("'|u1'", "True")), "type 'ru'"),
    "other letters": (with_header(OTHER_WRITERS[0].replace("2", "\xb2")), "not ASCII"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_everything_else_is_refused(kind):
    content, complaint = REFUSED[kind]
    with pytest.raises(NpyError, match=complaint):
        read_npy_header(content).array(content)


@pytest.mark.parametrize(
    "text",
    [
        "{'shape': (" + "1" * 900,
        "{'shape': (" + "1," * 450,
        "{'shape': (" + " " * 900,
        "{" + "'shape':()    " * 60,
        "{" + "'shape':(),   " * 60,
        "{'descr': '" + "'" * 900,
    ],
)
def test_no_text_takes_long_to_refuse(text):
    started = time.process_time()
    with pytest.raises(NpyError, match="not that of plain numbers"):
        read_npy_header(with_header(text))
    assert time.process_time() - started < 1
