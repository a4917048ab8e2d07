"""Accepted findings: which entries hold, which are refused, and what is said about the others."""

from datetime import date

import pytest

from jaxtroj.accepted import MAX_BYTES, NONE, Accepted, parse_accepted, read_accepted
from jaxtroj.engine.progress import Tally
from jaxtroj.errors import UsageError
from jaxtroj.record import Record
from jaxtroj.record_text import json_line, summary, text_line, word_of

A, B, C = ("ab" * 32, "cd" * 32, "ef" * 32)
TODAY = date(2027, 1, 31)


def entry(sha256: str = A, expires: str = "2027-01-31", **other: str) -> str:
    texts = {"reason": "a red-team model", "owner": "Ann"} | other
    lines = [f'sha256 = "{sha256}"', f"expires = {expires}"]
    lines += [f'{name} = "{text}"' for name, text in texts.items()]
    return "\n".join(["[[accepted]]", *lines, ""])


def parse(*entries: str) -> Accepted:
    return parse_accepted("\n".join(entries).encode(), "ours.toml", TODAY)


def record(sha256: str = A, poisoned: bool = True, status: str = "ok") -> Record:
    probability = 0.9 if poisoned else 0.2
    return Record("id-1", sha256, probability, poisoned, None, (), status, "because")


@pytest.mark.parametrize(
    ("given", "holds"),
    [
        (record(), True),
        (record(B), False),
        (record(poisoned=False), False),
        (record("", poisoned=False, status="failed"), False),
    ],
)
def test_an_acceptance_is_for_one_poisoned_file(given, holds):
    accepted = parse(entry(A.upper()))
    assert (accepted.of(given) is not None) == holds
    assert NONE.of(given) is None
    assert (word_of(given, accepted) == "accepted") == holds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("accepted = 3", r"expected tables \[\[accepted\]\]"),
        ("other = 3\n" + entry(), r"expected tables \[\[accepted\]\]"),
        ("[[accepted]\n", "ours.toml is not TOML"),
        ("accepted = " + "[" * 100_000, "ours.toml is not TOML"),
        ("\0", "ours.toml is not TOML"),
        (entry() + entry("12"), "entry 2: sha256 is '12', expected the 64 hex digits"),
        (entry(expires='"2027-01-31"'), "expected a day without quotes"),
        (entry(expires="2027-01-31T00:00:00Z"), "expected a day without quotes"),
        (entry(note="x"), "entry 1: 'note' is missing or unknown"),
        ("[[accepted]]\n", "'expires', 'owner', 'reason', 'sha256'.* is missing or unknown"),
        (entry(reason="  "), "reason is '  ', expected one line"),
        (entry(owner="a\\u001b[1m"), "owner is .*expected one line"),
        (entry(owner="a" * 2000), "owner is .*expected one line"),
    ],
)
def test_what_is_no_file_of_accepted_models_is_refused(text, said):
    with pytest.raises(UsageError, match=said):
        parse(text)


@pytest.mark.parametrize("kind", ["absent", "folder", "large", "not utf-8"])
def test_what_cannot_be_read_is_named(tmp_path, kind):
    path = tmp_path / "ours.toml"
    if kind == "folder":
        path.mkdir()
    elif kind == "large":
        path.write_bytes(b"#" * (MAX_BYTES + 1))
    elif kind == "not utf-8":
        path.write_bytes(b"\xff")
    with pytest.raises(UsageError, match=r"ours\.toml"):
        read_accepted(path, TODAY)


@pytest.mark.parametrize(
    ("entries", "records", "accepts", "said"),
    [
        ((entry(),), (record(),), True, ()),
        ((), (record(),), False, ()),
        (
            (entry(expires="2027-01-30"),),
            (record(),),
            False,
            ("by Ann ended on 2027-01-30; the model is flagged again",),
        ),
        ((entry(expires="2027-01-30"),), (record(B),), False, ("ended on 2027-01-30; look",)),
        ((entry(), entry(owner="Bob")), (record(),), False, ("more than one entry, and none",)),
        ((entry(), entry(A.upper())), (record(),), False, ("more than one entry, and none",)),
        (
            (entry(), entry(B)),
            (record(),),
            True,
            (f"no model of this run has the sha256 {B[:12]}",),
        ),
        ((entry(),), (record(poisoned=False),), False, ("is not called poisoned",)),
    ],
)
def test_lapsed_double_and_foreign_entries_are_said(entries, records, accepts, said):
    accepted = parse(*entries)
    assert any(accepted.of(one) for one in records) == accepts
    warnings = accepted.warnings(records)
    assert len(warnings) == len(said)
    for warning, part in zip(warnings, said, strict=True):
        assert warning.startswith("ours.toml: ") and part in warning


def test_a_byte_order_mark_is_no_part_of_a_file_of_accepted_models():
    accepted = parse_accepted(b"\xef\xbb\xbf" + entry().encode(), "ours.toml", TODAY)
    assert list(accepted.entries) == [A]


def test_where_not_all_models_were_looked_at_an_entry_may_be_for_another_one():
    accepted = parse(entry(), entry(B), entry(C, expires="2027-01-30"))
    few = accepted.warnings([record(poisoned=False)], is_whole=False)
    assert len(few) == 2 and len(accepted.warnings([record(poisoned=False)])) == 3
    assert not any("no model of this run" in warning for warning in few)


def test_accepted_models_are_counted_apart():
    accepted = parse(entry())
    given = [record(), record(B), record(C, poisoned=False)]
    counted = "3 models: 1 poisoned, 1 clean, 0 failed, 0 skipped, 1 accepted"
    assert summary(given, accepted) == counted
    tally = Tally(3, accepted=accepted)
    for one in given:
        tally.add(one, fresh=True)
    assert summary(tally.kinds(), accepted) == counted
    assert "accepted by Ann until 2027-01-31: a red-team model" in text_line(given[0], accepted)
    assert '"accepted": {"reason": "a red-team model"' in json_line(given[0], accepted)
    assert '"accepted": null' in json_line(given[1], accepted)
