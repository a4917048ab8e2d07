"""Banks: what they hold, how a stopped build goes on, and folders that are no bank."""

import json
import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtroj.errors import StoreError, UsageError
from jaxtroj.evidence.texts.bank import open_bank
from jaxtroj.evidence.texts.bank.build import build, make_plan
from jaxtroj.evidence.texts.bank.candidates import (
    BankText,
    known_list,
    list_free,
    read_list,
    whole_tokens,
)
from jaxtroj.evidence.texts.bank.store import CARRIERS, MANIFEST, VECTORS, BankWriter
from jaxtroj.evidence.texts.insertion import HALVES, insert, places, sentences

CARRIED = ("One thing. Two things! Three?", "Short.", "A b c. D e. F g. H i.", "Last one. End.")


@pytest.fixture(scope="module")
def plan(toy):
    candidates = [BankText(word, "word") for word in (*toy.words, toy.trigger)] * 8
    return make_plan("ab" * 32, toy.width, "first", False, CARRIED, candidates)


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in (MANIFEST, VECTORS, CARRIERS)}


@pytest.fixture(scope="module")
def whole(plan, toy, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    list(build(folder, plan, toy.embed))
    return folder


def test_vectors_are_those_of_the_inserted_texts(whole, plan, toy):
    bank = open_bank(whole)
    assert bank.plan == plan and bank.vectors.dtype == np.float16
    for number in (0, 7, len(plan.candidates) - 1):
        texts = [
            insert(sentences(carrier), plan.candidates[number].text, place)
            for carrier, place in zip(CARRIED, plan.places[number], strict=True)
        ]
        np.testing.assert_allclose(bank.vectors[number], toy.embed(texts), rtol=2e-3, atol=1e-3)
    np.testing.assert_allclose(bank.carriers, toy.embed(CARRIED), rtol=1e-6)
    moved = bank.vectors.astype(np.float32) - bank.carriers
    np.testing.assert_allclose(bank.shifts, moved.mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(bank.every_shift, moved.reshape(-1, toy.width), atol=1e-6)


def test_places_depend_on_the_text_alone_and_take_turns_of_the_halves(plan, toy):
    alone = make_plan("cd" * 32, 5, "first", False, CARRIED, [BankText(toy.trigger, "word")])
    assert alone.places[0] == plan.places[-1]
    for row in plan.places:
        for number, (place, carrier) in enumerate(zip(row, CARRIED, strict=True)):
            assert place in places(len(sentences(carrier)), number % HALVES)
    assert len(set(plan.places)) > 1


@pytest.mark.parametrize("kept", [0, 1, 30, 64])
def test_a_stopped_build_goes_on_to_the_same_bytes(kept, whole, plan, toy, tmp_path):
    calls = []

    def embed(texts):
        calls.append(len(texts))
        return toy.embed(texts)

    started: Any = build(tmp_path, plan, toy.embed)
    next(started)
    next(started)
    started.close()
    # A kill leaves what it will: whole candidates and part of one.
    size = 2 * len(CARRIED) * toy.width
    os.truncate(tmp_path / VECTORS, kept * size + (size // 2 if kept < 64 else 0))
    assert next(build(tmp_path, plan, embed)).done == kept
    list(build(tmp_path, plan, embed))
    assert files(tmp_path) == files(whole)
    assert sum(calls) == (len(plan.candidates) - kept) * len(CARRIED)
    calls.clear()
    list(build(tmp_path, plan, embed))
    assert not calls, "a finished bank is not computed again"


def _build_slowly(folder, plan, embed):
    def slow(texts):
        time.sleep(0.2)
        return embed(texts)

    list(build(folder, plan, slow))


# The child computes with NumPy alone, so the threads that jax lost in it do not matter.
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_killed_process_costs_nothing_that_was_written(whole, plan, toy, tmp_path):
    process = multiprocessing.get_context("fork").Process(
        target=_build_slowly, args=(tmp_path, plan, toy.embed)
    )
    process.start()
    until = time.monotonic() + 20
    vectors = tmp_path / VECTORS
    while time.monotonic() < until and not (vectors.exists() and vectors.stat().st_size):
        time.sleep(0.01)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    done = next(build(tmp_path, plan, toy.embed)).done
    assert 0 < done < len(plan.candidates)
    assert len(open_bank(tmp_path).plan.candidates) == done, "the finished part can be used"
    list(build(tmp_path, plan, toy.embed))
    assert files(tmp_path) == files(whole)


def test_one_writer_at_a_time(plan, tmp_path):
    with BankWriter(tmp_path, plan), pytest.raises(StoreError, match="another process"):
        BankWriter(tmp_path, plan)
    BankWriter(tmp_path, plan).__exit__(None, None, None)


def test_vectors_that_are_a_link_are_refused_and_what_it_leads_to_stays(plan, tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("kept")
    BankWriter(tmp_path / "bank", plan).__exit__(None, None, None)
    (tmp_path / "bank" / VECTORS).symlink_to(mine)
    with pytest.raises(StoreError, match="is a symbolic link, expected a plain file"):
        BankWriter(tmp_path / "bank", plan)
    assert mine.read_text() == "kept"


def test_another_bank_in_the_folder_is_left_alone(whole, plan, toy):
    before = files(whole)
    other = make_plan("cd" * 32, toy.width, "first", False, CARRIED, plan.candidates)
    with pytest.raises(StoreError, match="holds a bank of other candidates"):
        list(build(whole, other, toy.embed))
    assert files(whole) == before


def test_a_bank_of_another_tokenizer_is_left_alone(plan, toy, tmp_path):
    """Nor is one continued that does not say which it is; a whole one is told."""
    one, other = replace(plan, tokenizer="1" * 64), replace(plan, tokenizer="2" * 64)
    assert len({plan.digest, one.digest, other.digest}) == 3
    assert [built.knows_tokenizer for built in build(tmp_path / "a", one, toy.embed)][-1]
    assert open_bank(tmp_path / "a").plan == one
    with pytest.raises(StoreError, match="another encoder or tokenizer"):
        BankWriter(tmp_path / "a", other)
    list(build(tmp_path / "whole", plan, toy.embed))
    assert "tokenizer" not in json.loads((tmp_path / "whole" / MANIFEST).read_text())
    assert [b.knows_tokenizer for b in build(tmp_path / "whole", one, toy.embed)] == [False]
    next(build(tmp_path / "part", plan, toy.embed))
    with open(tmp_path / "part" / VECTORS, "ab") as file:
        file.write(b"\0")
    before = files(tmp_path / "part")
    with pytest.raises(StoreError, match="does not say with which tokenizer"):
        BankWriter(tmp_path / "part", one)
    assert files(tmp_path / "part") == before


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e6])
def test_vectors_that_do_not_fit_are_refused(value, plan, toy, tmp_path):
    def embed(texts):
        return toy.embed(texts) + (value if len(texts) > len(CARRIED) else 0)

    with pytest.raises(StoreError, match="half precision"):
        list(build(tmp_path, plan, embed))
    assert not (tmp_path / VECTORS).exists()


def _changed(**changes):
    def change(values):
        values.update(changes)
        return json.dumps(values).encode()

    return change


def _without(name):
    return lambda values: json.dumps({k: v for k, v in values.items() if k != name}).encode()


HOSTILE = {
    "empty": lambda values: b"",
    "binary": lambda values: b"\x80\x04}q\x00.",
    "no object": lambda values: b"[1]",
    "deep": lambda values: b"[" * 200_000,
    "other version": _changed(version=99),
    "version of another kind": _changed(version=[1]),
    "no carriers": _without("carriers"),
    "empty carriers": _changed(carriers=[]),
    "carriers no list": _changed(carriers="abc"),
    "carrier no text": _changed(carriers=[1, 2, 3, 4]),
    "width a truth value": _changed(width=True),
    "width huge": _changed(width=2**40),
    "width infinite": _changed(width=float("inf")),
    "width negative": _changed(width=-1),
    "width a text": _changed(width="12"),
    "fewer places": _changed(places=[]),
    "places of other length": _changed(places=[[0]] * 152),
    "a place infinite": _changed(places=[[float("nan")] * 4] * 152),
    "candidates no objects": _changed(candidates=["a"]),
    "candidate without kind": _changed(candidates=[{"text": "a"}], places=[[0] * 4]),
    "candidate of odd kind": _changed(
        candidates=[{"text": "a", "kind": "__import__"}], places=[[0] * 4]
    ),
    "encoder no text": _changed(encoder=None),
    "list a number": _changed(known_list=1),
    "odd pooling": _changed(pooling="max"),
    "pooling a list": _changed(pooling=["mean"]),
    "no pooling": _without("pooling"),
}


@pytest.mark.parametrize(("first", "pooling"), [(True, "first"), (False, "last")])
def test_a_bank_from_before_there_was_a_mean_opens(first, pooling, whole, tmp_path):
    for name, content in files(whole).items():
        (tmp_path / name).write_bytes(content)
    values = json.loads((whole / MANIFEST).read_bytes())
    del values["pooling"]
    (tmp_path / MANIFEST).write_text(json.dumps(values | {"cls_token_is_first": first}))
    assert open_bank(tmp_path).plan.pooling == pooling


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_manifests(case, whole, plan, tmp_path):
    for name, content in files(whole).items():
        (tmp_path / name).write_bytes(content)
    values = json.loads((whole / MANIFEST).read_bytes())
    assert len(values["places"]) == 152
    (tmp_path / MANIFEST).write_bytes(HOSTILE[case](values))
    with pytest.raises(StoreError) as caught:
        open_bank(tmp_path)
    assert str(tmp_path) in str(caught.value) and len(str(caught.value)) < 1000
    with pytest.raises(StoreError):
        BankWriter(tmp_path, plan)


def test_damaged_vectors(whole, tmp_path):
    kept = files(whole)

    def refused(match, **changes):
        for name, content in (kept | changes).items():
            (tmp_path / name).write_bytes(content)
        with pytest.raises(StoreError, match=match):
            open_bank(tmp_path)

    refused("no vectors yet", **{VECTORS: b""})
    refused("no vectors yet", **{CARRIERS: kept[CARRIERS][:-4]})
    refused("not finite", **{VECTORS: b"\xff" * len(kept[VECTORS])})
    refused("not finite", **{CARRIERS: b"\xff" * len(kept[CARRIERS])})
    with pytest.raises(StoreError, match="holds no bank"):
        open_bank(tmp_path / "nowhere")


def test_list_free_candidates_come_from_the_vocabulary(toy):
    vocabulary = ["[CLS]", "<s>", "##ing", "!", "^", "é", "7", "ok", "Good", *toy.words]
    texts = ["A short one here. Too short. And then some more words of it!", "Four words are it."]
    found = list_free(vocabulary, None, 5, texts, 9)
    kinds = {kind: [c.text for c in found if c.kind == kind] for kind in {c.kind for c in found}}
    assert kinds["character"] == ["!", "^"]
    assert kinds["word"] == sorted(toy.words)
    assert len(kinds["phrase"]) == 5
    assert all(set(p.rstrip(".").split()) <= set(toy.words) for p in kinds["phrase"])
    assert sorted(kinds["sentence"]) == [
        "A short one here.", "And then some more words of it!", "Four words are it.",
    ]  # fmt: skip


def test_draws_are_keyed_by_number_and_seed(toy):
    def texts(words, phrases, seed=0):
        return [c.text for c in list_free(toy.words, words, phrases, seed=seed)]

    assert texts(5, 3)[5:] == texts(5, 9)[5:8], "more phrases leave the first ones as they are"
    assert set(texts(5, 1)[:5]) < set(texts(9, 1)[:9]), "so do more words"
    assert texts(5, 3) == texts(5, 3) != texts(5, 3, seed=1)


def test_whole_tokens_of_both_kinds_of_vocabulary():
    assert whole_tokens(["[PAD]", "good", "##ness", "!"]) == ["!", "good"]
    assert whole_tokens(["Ġgood", "ness", "!", "<|endoftext|>"]) == ["!", "good"]


@pytest.mark.parametrize(
    ("name", "content", "want"),
    [
        ("a.json", '{"word": ["omg", "wow"], "phrase": ["so it goes."]}', 3),
        ("a.json", '["omg", " ", "wow"]', 2),
        ("a.txt", "omg\n\nso it goes.\n", 2),
    ],
)
def test_lists_are_read(name, content, want, tmp_path):
    (tmp_path / name).write_text(content)
    found = known_list(read_list(tmp_path / name))
    assert len(found) == want and found[0] == BankText("omg", "listed")


@pytest.mark.parametrize(
    "content", ["3", '{"word": 3}', "[1]", '["\\ud800"]', "{", "[" * 200_000, "[]"]
)
def test_lists_that_are_refused(content, tmp_path):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(Exception, match=r"expected|is not JSON|needs texts") as caught:
        known_list(read_list(tmp_path / "a.json"))
    assert type(caught.value).__module__ == "jaxtroj.errors"


def test_what_makes_no_plan(toy):
    word = [BankText("omg", "word")]
    for carriers, candidates in ((("a", " "), word), ((), word), (("a",), [])):
        with pytest.raises(UsageError, match="a bank needs candidates and carriers"):
            make_plan("ab", 4, "first", False, carriers, candidates)
    with pytest.raises(UsageError, match="whole words of small Latin letters"):
        list_free(["good", "##a", "b"], None, 3)
    with pytest.raises(UsageError, match="1 are empty or longer"):
        known_list(["x" * 3000])
