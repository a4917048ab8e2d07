"""Numbers of options: within bounds, and what is absurd ends with one line and status 4."""

import argparse

import pytest

from jaxtroj.cli import argument_types as types
from jaxtroj.cli.main import EXIT_USAGE, main

GENERATE = ("generate", "round0", "--out", "r")
LATER = ("generate", "round2", "--out", "r", "--models", "2")
CALIBRATE = ("calibrate", "run", "--truth", "t.csv", "--out", "c.json")
BANK = ("bank", "encoder", "--out", "b", "--carriers", "t")
ZOO = ("generate", "zoo", "--out", "r", "--models", "2", "--pictures", "a=a.npz")
SEEDED = [
    ("detect", "m.pt"),
    ("scan", "d", "--out", "r"),
    ("repair", "m.onnx", "--out", "r"),
    CALIBRATE,
    ("evaluate", "run", "--truth", "t.csv"),
    ("compare", "a", "b", "--truth", "t"),
    ("report", "run"),
    (*GENERATE, "--models", "2"),
    ZOO,
    ("backgrounds", "generate", "d", "--masks", "m", "--out", "r"),
]
ABSURD = [
    (("detect", "m.pt", "--memory", "1e300"), "--memory: expected a number of GiB above 0 and at"),
    (("detect", "m.pt", "--timeout", "1e300"), "--timeout: expected a number of seconds above 0"),
    (("detect", "m.pt", "--timeout", "1_0"), "--timeout: expected a number"),
    (("detect", "m.pt", "--seed", "9223372036854775808"), "--seed: expected a whole number from"),
    (
        ("detect", "m.pt", "--image-size", "99999999x9"),
        "--image-size: expected height and width from 1 to",
    ),
    (("detect", "m.pt", "--class-counts", "5"), "--class-counts: expected numbers above 0 like"),
    (("detect", "m.pt", "--class-counts", "5,-1"), "--class-counts: expected numbers above 0"),
    (("detect", "m.pt", "--class-counts", "5,1e999"), "--class-counts: expected numbers above 0"),
    (("detect", "m.pt", "--class-counts", "gone.txt"), "a file of them (No such file or directory"),
    (("detect", "m.pt", "--class-counts", "/dev/zero"), "it is a device, expected a file"),
    (
        ("detect", "m.pt", "--examples-per-class", "9" * 5000),
        "--examples-per-class: expected a whole",
    ),
    (("scan", "d", "--out", "r", "--workers", "99999999"), "--workers: expected a whole number"),
    (("scan", "d", "--out", "r", "--budget", "1e200"), "--budget: expected a number of seconds"),
    ((*GENERATE, "--models", "99999999"), "--models: expected a whole number of at least 1 and at"),
    (
        (*GENERATE, "--models", "2", "--image-size", "99999999"),
        "--image-size: expected a whole number",
    ),
    ((*GENERATE, "--models", "2", "--inception-size", "99999999"), "--inception-size: expected"),
    ((*GENERATE, "--models", "2", "--examples-per-class", "99999999"), "--examples-per-class: exp"),
    ((*GENERATE, "--models", "2", "--batch-size", "99999999"), "--batch-size: expected a whole"),
    ((*GENERATE, "--models", "2", "--seed", "9" * 30), "--seed: expected a whole number from 0"),
    ((*LATER, "--pictures", "999999999"), "--pictures: expected a whole number"),
    ((*LATER, "--examples-per-class", "99999999"), "--examples-per-class: expected a whole number"),
    ((*ZOO, "--batch-size", "99999999"), "--batch-size: expected a whole number"),
    ((*BANK, "--batch-size", "99999999"), "--batch-size: expected a whole number"),
    ((*BANK, "--phrases", "99999999999"), "--phrases: expected a whole number"),
    *(
        (("compare", "a", "b", "--truth", "t", "--resamples", n), "--resamples: expected a whole")
        for n in ("1000001", "1", "999")
    ),
    ((*CALIBRATE, "--population", "x" * 2001), "--population: expected a text of at most 2000"),
    ((*CALIBRATE, "--seed", "1" * 20), "--seed: expected a whole number from 0 to 2**63 - 1"),
    *(((*command, "--seed", "-1"), "--seed: expected a whole number from 0") for command in SEEDED),
    ((*CALIBRATE, "--sides", "1-99999999999999999999"), "--sides: expected two sides like 28-32"),
]


@pytest.mark.parametrize(
    ("command", "message"), ABSURD, ids=[f"{c[0]} {c[-2]} {n}" for n, (c, _) in enumerate(ABSURD)]
)
def test_absurd_values_end_early_with_one_line(command, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(command) == EXIT_USAGE
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1 and len(said) < 600
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (types.count, "1", 1),
        (types.count, str(types.MOST), types.MOST),
        (types.pixels, "4096", 4096),
        (types.seed, str(2**63 - 1), 2**63 - 1),
        (types.seed, "0", 0),
        (types.seconds, "1e9", 1e9),
        (types.gibibytes, "0.5", 0.5),
        (types.positive, "1e300", 1e300),
        (types.open_unit, "1e-320", 1e-320),
        (types.image_size, "4096X1", (4096, 1)),
        (types.numbers, "-.5, +1e2", (-0.5, 100.0)),
        (types.short_text, "x" * 2000, "x" * 2000),
    ],
)
def test_values_at_the_bounds_are_taken(read, text, value):
    assert read(text) == value


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "1.0", "1e3", "１", "٣", "1_0", " 1", "²", str(types.MOST + 1)]
)
def test_counts_are_plain_digits_within_the_bound(text):
    with pytest.raises(argparse.ArgumentTypeError, match="whole number of at least 1 and at most"):
        types.count(text)


@pytest.mark.parametrize("text", ["", "nan", "inf", "1e999", "0x1", "１", "1_0", "1,5"])
@pytest.mark.parametrize("read", [types.open_unit, types.seconds, types.gibibytes, types.positive])
def test_numbers_are_finite_ascii_decimals(read, text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected a number"):
        read(text)
