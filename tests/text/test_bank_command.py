"""`jaxtroj bank` with a tiny encoder: list-free, known-list, resumed, with clean heads."""

import hashlib
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from converters.checkpoint import load_checkpoint
from converters.encoders import load_encoder
from converters.encoders.tokenizer import load_tokenizer, tokenizer_digest
from jaxtroj.cli.main import main
from jaxtroj.errors import StoreError, UsageError
from jaxtroj.evidence.texts.bank import open_bank
from jaxtroj.evidence.texts.bank.contents import EXAMPLES, FOLDER, bank_digest
from jaxtroj.evidence.texts.bank.reference_heads import (
    MANIFEST,
    copy_references,
    load_clean_heads,
)
from jaxtroj.evidence.texts.embedding import embed
from jaxtroj.evidence.texts.references import make_references
from jaxtroj.held_folder import LOCK
from jaxtroj.rounds import load_text_examples

pytestmark = pytest.mark.usefixtures("unguarded")

TEXTS = ["A b c. D e f.", "Good one. Bad one! Three?", "Words here are few.", "And more of them."]


@pytest.fixture(scope="module")
def carriers(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    lines = [json.dumps({"text": text, "label": n % 2}) for n, text in enumerate(TEXTS)]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, toy):
    """A round of ten heads in Round 5's layout: two of them poisoned, one clean one damaged."""
    root = tmp_path_factory.mktemp("round5")
    for number in range(10):
        folder = root / "models" / f"id-{number:08d}"
        (folder / "clean_example_data").mkdir(parents=True)
        (folder / "clean_example_data" / "class_0_example_1.txt").write_text("A text.")
        (folder / "ground_truth.csv").write_text("1" if number < 2 else "0")
        config: dict[str, Any] = {
            "embedding": "GPT-2" if number == 2 else "BERT",
            "embedding_flavor": "tiny",
        }
        config["cls_token_is_first"] = number != 3
        (folder / "config.json").write_text(json.dumps(config))
        hidden = 4 + number % 2
        widths = (toy.width if number != 4 else 7, hidden, 2)
        state = {
            "fc_layers.0.weight": torch.full((widths[1], widths[0]), 0.1 * number),
            "fc_layers.0.bias": torch.zeros(widths[1]),
            "linear.weight": torch.ones(2, widths[1]),
            "linear.bias": torch.zeros(2),
        }
        torch.save(state, folder / "model.pt")
        if number == 5:
            (folder / "model.pt").write_bytes(b"damaged")
    return root


def bank(encoder, carriers, out, *options) -> int:
    return main(["bank", str(encoder), "--out", str(out), "--carriers", str(carriers), *options])


@pytest.fixture(scope="module")
def built(encoder, carriers, dataset, tmp_path_factory):
    out = tmp_path_factory.mktemp("banks") / "bank"
    options = ("--words", "6", "--phrases", "3", "--carriers-per-class", "1")
    references = ("--references", str(dataset), "--reference-heads", "4")
    assert bank(encoder, carriers, out, *options, *references) == 0
    return out, options


def test_a_list_free_bank(built, encoder, toy, capsys):
    out, _ = built
    plan = open_bank(out).plan
    kinds = [candidate.kind for candidate in plan.candidates]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "character": 2, "word": 6, "phrase": 3, "sentence": 2,
    }  # fmt: skip
    assert len(plan.carriers) == 2 and set(plan.carriers) < set(TEXTS)
    assert not any(c.text in " ".join(plan.carriers) for c in plan.candidates[-2:])
    weights = (encoder / "model.safetensors").read_bytes()
    assert plan.encoder == hashlib.sha256(weights).hexdigest()
    assert (plan.width, plan.pooling, plan.known_list) == (toy.width, "first", False)


def changed_at(bank: Path) -> dict[str, int]:
    """When each file of a bank was written last; the lock names whoever held it last."""
    files = [path for path in bank.iterdir() if path.is_file() and path.name != LOCK]
    return {path.name: path.stat().st_mtime_ns for path in files}


def test_too_few_clean_heads_are_told(built, encoder, carriers, dataset, capsys):
    out, options = built
    references = ("--references", str(dataset), "--reference-heads", "4")
    assert bank(encoder, carriers, out, *options, *references) == 0
    said = "4 clean heads to compare with: FCLinear; too few, a scan needs 8 or more"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", ["notes.txt", "vectors.f16", "carriers.f32"])
def test_a_folder_of_something_else_is_no_place_for_a_bank(
    name, encoder, carriers, tmp_path, capsys
):
    (tmp_path / name).write_bytes(b"1" * 4096)
    assert bank(encoder, carriers, tmp_path, "--words", "3", "--phrases", "1") == 4
    assert "is not empty and not a bank (it has no bank.json)" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_same_command_again_computes_nothing(built, encoder, carriers, capsys):
    out, options = built
    before = changed_at(out)
    assert bank(encoder, carriers, out, *options) == 0
    told = capsys.readouterr()
    assert told.out == f"{out}\n" and "all there already" in told.err
    assert before == changed_at(out)
    assert bank(encoder, carriers, out, "--words", "5") == 4
    assert "holds a bank of other candidates" in capsys.readouterr().err


def test_a_bank_tells_its_tokenizer(built, encoder, carriers, tmp_path, capsys):
    """Files of the encoder beside it are none of its own; one without it is of an earlier time."""
    out, options = built
    assert open_bank(out).plan.tokenizer == tokenizer_digest(encoder)
    other = shutil.copytree(encoder, tmp_path / "other")
    (other / "README.md").write_text("of the encoder")
    assert tokenizer_digest(other) == tokenizer_digest(encoder)
    config = other / "tokenizer_config.json"
    values = json.loads(config.read_text()) if config.exists() else {}
    config.write_text(json.dumps(values | {"do_lower_case": False}))
    assert bank(encoder, carriers, out, *options, "--tokenizer", str(other)) == 4
    assert "another encoder or tokenizer" in capsys.readouterr().err
    earlier = shutil.copytree(out, tmp_path / "earlier")
    values = json.loads((earlier / "bank.json").read_text())
    del values["tokenizer"]
    (earlier / "bank.json").write_text(json.dumps(values))
    assert bank(encoder, carriers, earlier, *options) == 0
    told = capsys.readouterr().err
    assert "the tokenizer of this bank is not on record" in told and "all there already" in told


def test_an_encoder_runs_under_limits(encoder, carriers, tmp_path, capsys, monkeypatch):
    monkeypatch.undo()  # guarded, as for users
    assert bank(encoder, carriers, tmp_path / "bank", "--memory", "0.05") == 2
    assert "GiB of memory, more than the 0.05 allowed" in capsys.readouterr().err


def test_a_known_list_bank_says_so(encoder, carriers, tmp_path, capsys):
    (tmp_path / "list.txt").write_text("omg\nso it goes.\n")
    assert bank(encoder, carriers, tmp_path / "b", "--known-list", str(tmp_path / "list.txt")) == 0
    assert "known-list bank: 2 candidates in 4 carriers" in capsys.readouterr().err
    found = open_bank(tmp_path / "b")
    assert found.plan.known_list and found.vectors.shape[:2] == (2, 4)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (("--known-list", "list", "--words", "3"), "--known-list excludes"),
        (("--words", "0"), "at least 1"),
        (("--references", "nowhere", "--words", "1", "--phrases", "1"), "no folder"),
    ],
)
def test_options_that_are_refused(options, match, encoder, carriers, tmp_path, capsys):
    assert bank(encoder, carriers, tmp_path / "b", *options) == 4
    assert match in capsys.readouterr().err
    assert not (tmp_path / "b").exists()  # nothing is built that the references would not fit


def test_references_without_a_clean_head_are_told_first(encoder, carriers, tmp_path, capsys):
    (tmp_path / "round" / "id-00000000").mkdir(parents=True)
    (tmp_path / "round" / "id-00000000" / "model.pt").write_bytes(b"a model")
    options = ("--references", str(tmp_path / "round"))
    assert bank(encoder, carriers, tmp_path / "b", *options) == 4
    assert "has no model that is labelled clean" in capsys.readouterr().err


def test_references_are_clean_heads_of_this_encoder(built, dataset):
    out, _ = built
    heads = json.loads((out / MANIFEST).read_bytes())["heads"]
    assert {head["model"] for head in heads} <= {f"id-{n:08d}" for n in (6, 7, 8, 9)}
    assert len(heads) == 4
    models = [load_checkpoint(out / FOLDER / f"{number:03d}") for number in range(4)]
    configs: list[Any] = [model.config for model in models]
    sizes = [config.hidden_sizes for config in configs]
    assert sorted(sizes[:2]) == [(4,), (5,)], "configurations take turns"
    for head, model in zip(heads, models, strict=True):
        path = dataset / "models" / head["model"] / "model.pt"
        assert head["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        weight = float(np.asarray(model.params["fc_layers.0.kernel"])[0, 0])
        assert weight == pytest.approx(0.1 * int(head["model"][3:]))
    known = make_references(head.model for head in load_clean_heads(out))
    assert known.count == 4 and len(known.configs) == 2


def test_references_keep_the_vectors_of_their_own_texts(built, encoder, dataset):
    found = [head.examples for head in load_clean_heads(built[0])]
    texts = [load_text_examples(dataset / "models" / "id-00000006").texts]
    want = embed(load_encoder(encoder), load_tokenizer(encoder), texts[0], "first")
    assert [one.shape for one in found] == [want.shape] * 4
    np.testing.assert_allclose(found[0], want, atol=1e-5)


def test_references_of_an_older_bank_take_its_carriers_for_examples(built, tmp_path):
    shutil.copytree(built[0], tmp_path / "bank")
    for path in (tmp_path / "bank").rglob(EXAMPLES):
        path.unlink()
    listed = json.loads((tmp_path / "bank" / MANIFEST).read_bytes())
    (tmp_path / "bank" / MANIFEST).write_text(json.dumps(listed | {"version": 1}))
    found, carriers = load_clean_heads(tmp_path / "bank"), open_bank(built[0]).carriers
    assert len(found) == 4
    np.testing.assert_array_equal(found[0].examples, carriers)


def test_references_are_kept_once(built, dataset, toy):
    out, _ = built
    assert len(copy_references(dataset, out, "bert", 4, toy.embed)) == 4
    with pytest.raises(StoreError, match="holds other clean heads"):
        copy_references(dataset, out, "bert", 2, toy.embed)
    with pytest.raises(UsageError, match="no clean head for this bank"):
        copy_references(dataset, out, "distilbert", 4, toy.embed)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"version": 2, "heads": 7}', b'{"version": 2, "heads": []}',
                b'{"version": 3, "heads": [{}]}', b'{"version": 2, "heads": [1, 2]}', None],
)  # fmt: skip
def test_damaged_references(content, built, tmp_path):
    out, _ = built
    for path in out.iterdir():
        if path.is_file() and path.name != MANIFEST:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    if content is not None:
        (tmp_path / MANIFEST).write_bytes(content)
    with pytest.raises(StoreError, match="clean heads"):
        load_clean_heads(tmp_path)


@pytest.mark.parametrize(
    "vectors",
    [np.full((3, 12), np.nan, np.float32), np.zeros((3, 12)), np.zeros((0, 12), np.float32),
     np.zeros(12, np.float32), np.zeros((3, 5), np.float32), np.array([None]), None],
)  # fmt: skip
def test_damaged_examples_of_a_reference(vectors, built, tmp_path):
    shutil.copytree(built[0], tmp_path / "bank")
    path = tmp_path / "bank" / FOLDER / "000" / EXAMPLES
    path.unlink()
    if vectors is not None:
        np.save(path, vectors, allow_pickle=True)
    with pytest.raises(StoreError, match=r"vectors|clean heads"):
        load_clean_heads(tmp_path / "bank")


def _of_header(text: bytes) -> bytes:
    """An `.npy` content of version 1 with a header of this text."""
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(480)


def _archive() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, a=np.zeros((2, 12), np.float32))
    return buffer.getvalue()


_ENTRIES = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 12), }\n"
DAMAGED = {
    "an archive": (_archive(), "it is no .npy array"),
    "a shape of 10^12": (_of_header(_ENTRIES % 10**12), "takes 48000000000.* bytes, got"),
    "a header of parentheses": (_of_header(b"(" * 900), "is not that of plain numbers"),
    "a long header": (_of_header(b"(" * 3000), "truncated, or over"),
    "numbers cut off": (_of_header(_ENTRIES % 9), "takes .* bytes, got"),
}


@pytest.mark.parametrize(("content", "said"), DAMAGED.values(), ids=DAMAGED)
def test_examples_that_are_no_array_are_one_error(content, said, built, tmp_path):
    """They were an internal error, or a message of NumPy's about pickles."""
    shutil.copytree(built[0], tmp_path / "bank")
    (tmp_path / "bank" / FOLDER / "000" / EXAMPLES).write_bytes(content)
    with pytest.raises(StoreError, match=f"holds no vectors of example texts: .*{said}"):
        load_clean_heads(tmp_path / "bank")


def test_numbers_that_no_encoder_gives_are_refused(built, tmp_path):
    shutil.copytree(built[0], tmp_path / "bank")
    np.save(tmp_path / "bank" / FOLDER / "000" / EXAMPLES, np.full((3, 12), 3e38, np.float32))
    with pytest.raises(StoreError, match="not finite or beyond 65504, expected vectors of"):
        load_clean_heads(tmp_path / "bank")
    carriers = tmp_path / "bank" / "carriers.f32"
    np.full(carriers.stat().st_size // 4, 3e38, "<f4").tofile(carriers)
    with pytest.raises(StoreError, match="not finite or beyond 65504; build it again"):
        open_bank(tmp_path / "bank")


def test_a_pipe_in_place_of_a_file_of_a_bank_is_not_waited_for(built, tmp_path):
    """Examples as a named pipe kept a scan waiting for ever."""
    known = [path.relative_to(built[0]) for path in sorted(built[0].rglob("*")) if path.is_file()]
    read = [path for path in known if path.name not in (LOCK, "standard.json")]
    for name in read:
        folder = tmp_path / name.as_posix().replace("/", "-")
        shutil.copytree(built[0], folder)
        (folder / name).unlink()
        os.mkfifo(folder / name)
        bank_digest(folder)
        with pytest.raises(StoreError):
            load_clean_heads(folder)
    assert len(read) == 4 + 3 * 4


def test_damaged_clean_heads_are_written_anew_by_the_same_command(built, dataset, toy, tmp_path):
    folder = Path(shutil.copytree(built[0], tmp_path / "bank"))
    known = [path.read_bytes() for path in sorted((folder / FOLDER).rglob("*.safetensors"))]
    (folder / FOLDER / "000" / "params.safetensors").write_bytes(b"torn")
    (folder / FOLDER / "001" / "config.json").write_bytes(b"{")
    shutil.rmtree(folder / FOLDER / "002")
    (folder / FOLDER / "003" / EXAMPLES).write_bytes(b"torn")
    with pytest.raises(StoreError, match="add what is missing: jaxtroj bank with --references"):
        load_clean_heads(folder)
    copy_references(dataset, folder, "bert", 4, toy.embed)
    assert len(load_clean_heads(folder)) == 4
    again = [path.read_bytes() for path in sorted((folder / FOLDER).rglob("*.safetensors"))]
    assert again == known


def test_a_list_of_clean_heads_that_is_no_json_says_what_to_do(built, dataset, toy, tmp_path):
    folder = Path(shutil.copytree(built[0], tmp_path / "bank"))
    (folder / MANIFEST).write_text("{")
    with pytest.raises(StoreError, match=f"remove .*{MANIFEST} to copy the clean heads again"):
        copy_references(dataset, folder, "bert", 4, toy.embed)


@pytest.mark.parametrize("name", ["", "001"])
def test_clean_heads_are_not_written_through_links(name, built, dataset, toy, tmp_path):
    folder = Path(shutil.copytree(built[0], tmp_path / "bank"))
    (folder / MANIFEST).unlink()
    shutil.rmtree(folder / FOLDER / name)
    (tmp_path / "elsewhere").mkdir()
    (folder / FOLDER / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="is a symbolic link, expected a folder"):
        copy_references(dataset, folder, "bert", 4, toy.embed)
    assert not any((tmp_path / "elsewhere").iterdir())


def test_heads_on_other_weights_than_most_are_no_references(built, dataset, toy, tmp_path):
    round5, folder = tmp_path / "round5", tmp_path / "bank"
    shutil.copytree(dataset, round5)
    shutil.copytree(built[0], folder, ignore=shutil.ignore_patterns(MANIFEST, FOLDER))
    config = round5 / "models" / "id-00000006" / "config.json"
    config.write_text(config.read_text().replace("tiny", "large"))
    heads = copy_references(round5, folder, "bert", 4, toy.embed)
    assert sorted(head.model for head in heads) == [f"id-{n:08d}" for n in (7, 8, 9)]
    assert {(head.embedding, head.flavor) for head in heads} == {("BERT", "tiny")}


def test_heads_of_other_classes_than_most_are_no_references(built, dataset, toy, tmp_path):
    round5, folder = tmp_path / "round5", tmp_path / "bank"
    shutil.copytree(dataset, round5)
    shutil.copytree(built[0], folder, ignore=shutil.ignore_patterns(MANIFEST, FOLDER))
    state = torch.load(round5 / "models" / "id-00000006" / "model.pt")
    state["linear.weight"], state["linear.bias"] = torch.ones(3, 4), torch.zeros(3)
    torch.save(state, round5 / "models" / "id-00000006" / "model.pt")
    heads = copy_references(round5, folder, "bert", 4, toy.embed)
    assert sorted(head.model for head in heads) == [f"id-{n:08d}" for n in (7, 8, 9)]
    assert {head.model.num_classes for head in load_clean_heads(folder)} == {2}


def test_copies_of_a_head_are_taken_once(built, dataset, toy, tmp_path):
    """Twelve copies of one file were twelve clean heads, beside which nothing differs."""
    round5, folder = tmp_path / "round5", tmp_path / "bank"
    for number in range(12):
        home = round5 / "models" / f"id-{number:08d}"
        shutil.copytree(dataset / "models" / f"id-{6 + number % 2:08d}", home)
    shutil.copytree(built[0], folder, ignore=shutil.ignore_patterns(MANIFEST, FOLDER))
    said: list[str] = []
    heads = copy_references(round5, folder, "bert", 4, toy.embed, said.append)
    assert len(heads) == len({head.sha256 for head in heads}) == 2
    assert len(said) == 1 and said[0].startswith("10 clean heads are copies of others")
