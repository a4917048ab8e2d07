import errno
import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from PIL import Image

import jaxtroj
from jaxtroj.detection import _with_file, answer_with_panels
from jaxtroj.model_files import FILE_BYTES, contents_digest, model_digests
from jaxtroj.record import parse_record
from jaxtroj.record_text import json_line, write_trigger
from jaxtroj.rounds import ModelEntry, iter_models
from jaxtroj.rounds.text_config import TextConfig
from jaxtroj.scan import identify, scan, scan_entry, scan_model
from jaxtroj.scan.attempt import Attempt
from jaxtroj.scan.model import scan_attempt
from jaxtroj.settings import DEFAULT_CALIBRATOR, Settings, _cached_calibrator, base_rate
from jaxtroj.store import RunStore, read_records
from jaxtroj.triggers.mask import FreeMask

EXAMPLES = Path(jaxtroj.__file__).parent / "data" / "examples"
SETTINGS = Settings(calibrator=None, early_stop=False, base_rate=0.3)
BAD_FILES = {
    "empty": b"",
    "random": bytes(range(200, 256)) * 20,
    "text": b"not a model\n",
    "torn zip": b"PK\x03\x04" + b"\0" * 40,
    "system call": b"cos\nsystem\n(S'touch ran'\ntR.",
}


def entry_of(path: Path, **changes) -> ModelEntry:
    return replace(ModelEntry("id-00000001", path, None, None), **changes)


@pytest.mark.parametrize("content", BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_a_record_with_the_base_rate(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    record = scan_model(entry_of(path), SETTINGS)
    assert (record.status, record.probability, record.poisoned) == ("failed", 0.3, False)
    assert record.reason and "\n" not in record.reason and "internal error" not in record.reason
    assert parse_record(record.to_json()) == record
    assert json.loads(json_line(record))["reason"] == record.reason
    assert record.sha256 == (hashlib.sha256(content).hexdigest() if content else "")
    assert os.listdir(tmp_path) == ["model.pt"]


def test_a_folder_that_cannot_be_entered_is_said_to_be_closed(tmp_path, monkeypatch):
    """It was an internal error: whether something lies beside the model may not even be asked."""
    (tmp_path / "closed").mkdir()
    monkeypatch.setattr(os, "stat", _closed(os.stat))
    monkeypatch.setattr("builtins.open", _closed(open))
    entry = entry_of(tmp_path / "closed" / "model.pt", problem="cannot read closed")
    record = scan_entry(entry, SETTINGS)
    assert record.status == "failed" and "Permission denied" in record.reason
    assert "internal error" not in record.reason
    texts = replace(entry, kind="text-classifier", examples_path=tmp_path / "closed" / "texts.csv")
    assert identify(texts, SETTINGS) == identify(texts, SETTINGS)


def _closed(real):
    def act(path, *rest, **more):
        if "closed/" in str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *rest, **more)

    return act


class Panic(BaseException):
    """What the panic of a Rust package looks like in Python."""


@pytest.mark.parametrize("fault", [ValueError, Panic])
def test_whatever_a_model_raises_is_a_record(tmp_path, fault):
    def opener(attempt):
        raise fault("as ordered")

    record = scan_attempt(Attempt(entry_of(tmp_path / "model.pt"), SETTINGS), opener)
    assert record.status == "failed"
    assert f"internal error: {fault.__name__}: as ordered" in record.reason


def test_what_ends_the_program_is_no_fault_of_a_model(tmp_path):
    def opener(attempt):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scan_attempt(Attempt(entry_of(tmp_path / "model.pt"), SETTINGS), opener)


def test_a_missing_model_says_what_the_folder_lacks(tmp_path):
    record = scan_model(entry_of(tmp_path / "model.pt", problem="no model file"), SETTINGS)
    assert record.status == "failed"
    assert "model.pt" in record.reason and "no model file" in record.reason


def test_a_problem_stands_in_the_record_of_a_model_that_was_scanned():
    entry = replace(next(iter_models(EXAMPLES)), problem="the label is\nnobody's")
    record = scan_model(entry, replace(SETTINGS, stages=("weights",)))
    assert record.status == "ok"
    assert "the label is nobody's" in record.reason
    assert (
        "the label is nobody's"
        not in scan_model(
            replace(entry, problem=None), replace(SETTINGS, stages=("weights",))
        ).reason
    )


@pytest.mark.parametrize("door", [scan_entry, answer_with_panels])
def test_a_refused_model_fails_unopened_with_an_identity_of_its_own(tmp_path, door):
    steps = []
    (tmp_path / "two").mkdir()
    for name in ("model.pt", "other.pt"):
        (tmp_path / "two" / name).write_bytes(BAD_FILES["random"])
    (tmp_path / "sound.pt").write_bytes(b"")

    def answer():
        entry = next(entry for entry in iter_models(tmp_path) if entry.model_id == "two")
        return door(entry, SETTINGS, None, lambda m, step: steps.append(step))

    refused = answer()
    assert (refused.status, refused.probability, steps) == ("failed", 0.3, [])
    assert refused.reason.startswith("several model files (model.pt, other.pt)")
    assert refused.reason.count("several") == 1
    assert answer().identity == refused.identity
    (tmp_path / "two" / "other.pt").unlink()
    assert answer().identity != refused.identity and steps == ["read"]


def test_an_answer_stands_without_its_panels(tmp_path):
    """A full disk, here a file in the place of the folder, costs the picture alone."""
    record = scan_model(entry_of(tmp_path / "absent.pt"), SETTINGS)
    (tmp_path / "triggers").write_text("")
    path = tmp_path / "triggers" / "a.npz"
    kept = _with_file(record, path, [np.zeros((2, 2, 3))])
    assert replace(kept, reason="") == replace(record, reason="")
    assert kept.reason.startswith(record.reason) and f"cannot write {path}" in kept.reason
    (tmp_path / "triggers").unlink()
    assert _with_file(record, path, [np.zeros((2, 2, 3))]) == record and path.is_file()


def test_a_fault_nobody_foresaw_is_a_record_that_says_where(tmp_path):
    entry = entry_of(None)  # pyright: ignore[reportArgumentType]
    record = scan_model(entry, SETTINGS)
    assert record.reason.startswith("internal error: ") and ".py:" in record.reason


def test_examples_that_are_too_small_for_the_network_are_said(tmp_path):
    from torchvision.models import DenseNet

    torch.save(DenseNet(8, (2, 1, 1), 16, num_classes=2), tmp_path / "model.pt")  # pyright: ignore[reportArgumentType]
    (tmp_path / "examples").mkdir()
    pixels = np.random.default_rng(0).integers(0, 255, (4, 7, 7, 3), np.uint8)
    for number, picture in enumerate(pixels):
        name = f"class_{number % 2}_example_{number}.png"
        Image.fromarray(picture).save(tmp_path / "examples" / name)
    entry = entry_of(tmp_path / "model.pt", examples_path=tmp_path / "examples")
    record = scan_model(entry, SETTINGS)
    assert record.status == "failed"
    assert record.reason.startswith("pictures of 7 x 7 pixels are too small for this network: ")
    assert "a window of 2 x 2 with stride 2 x 2 does not fit" in record.reason


def test_a_pipe_in_place_of_a_model_keeps_nobody_waiting(tmp_path):
    os.mkfifo(tmp_path / "model.pt")
    with RunStore(tmp_path / "run", SETTINGS.as_json()) as store:
        (record,) = scan([entry_of(tmp_path / "model.pt")], SETTINGS, store)
    assert record.status == "failed" and record.identity


def test_steps_are_announced_and_timed(tmp_path):
    seen = []
    record = scan_model(entry_of(tmp_path / "m.pt"), SETTINGS, on_step=lambda m, s: seen.append(s))
    assert seen == ["read"] == list(record.seconds)


def make_round(folder: Path) -> Path:
    for number, content in enumerate(BAD_FILES.values()):
        home = folder / f"id-{number:08d}"
        (home / "example_data").mkdir(parents=True)
        (home / "model.pt").write_bytes(content)
        (home / "ground_truth.csv").write_text(str(number % 2))
    return folder


def test_every_model_gets_a_record_and_resume_repeats_none(tmp_path):
    folder = make_round(tmp_path / "round")
    with RunStore(tmp_path / "run", SETTINGS.as_json()) as store:
        first = list(scan(iter_models(folder), SETTINGS, store))
    assert [r.model for r in first] == [f"id-{n:08d}" for n in range(5)]
    before = (tmp_path / "run/records.jsonl").read_bytes()
    steps = []
    with RunStore(tmp_path / "run", SETTINGS.as_json()) as store:
        again = list(scan(iter_models(folder), SETTINGS, store, lambda m, s: steps.append(m)))
    assert again == first == read_records(tmp_path / "run")
    assert (tmp_path / "run/records.jsonl").read_bytes() == before
    assert steps == []


def test_resume_after_a_crash_scans_only_what_is_missing_or_changed(tmp_path):
    folder = make_round(tmp_path / "round")
    with RunStore(tmp_path / "run", SETTINGS.as_json()) as store:
        list(scan(iter_models(folder), SETTINGS, store))
    records = tmp_path / "run/records.jsonl"
    records.write_bytes(records.read_bytes()[:-10])
    (folder / "id-00000001/model.pt").write_bytes(b"changed")
    steps = []
    with RunStore(tmp_path / "run", SETTINGS.as_json()) as store:
        again = list(scan(iter_models(folder), SETTINGS, store, lambda m, s: steps.append(m)))
    assert len(again) == 5
    assert steps == ["id-00000001", "id-00000004"]


def test_skipped_models_have_a_record_too(tmp_path):
    entry = entry_of(tmp_path / "model.pt", skip_reason="no trigger, says the errata list")
    with RunStore(tmp_path / "run", SETTINGS.as_json()) as store:
        records = [*scan([entry, entry], SETTINGS, store)]
    assert [r.status for r in records] == ["skipped", "skipped"]
    assert len(read_records(tmp_path / "run")) == 1


def test_identity_follows_model_examples_and_settings(tmp_path):
    (tmp_path / "model.pt").write_bytes(b"a")
    entry = entry_of(tmp_path / "model.pt")
    keys = [identify(entry, SETTINGS), identify(entry, replace(SETTINGS, seed=1))]
    (tmp_path / "examples").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "examples/class_0_example_0.png")
    keys.append(identify(replace(entry, examples_path=tmp_path / "examples"), SETTINGS))
    (tmp_path / "model.pt").write_bytes(b"b")
    keys.append(identify(entry, SETTINGS))
    assert len(set(keys)) == 4
    assert identify(replace(entry, model_id="other"), SETTINGS) == keys[3]


@pytest.mark.parametrize("name", ["model.pt", "model.onnx"])
def test_what_is_larger_than_any_model_is_refused_without_a_digest(tmp_path, monkeypatch, name):
    """A file with holes of 1 TB takes no room on the disk, and its digest an hour."""
    digest = hashlib.file_digest

    def file_digest(file, kind):
        assert Path(file.name).name != name
        return digest(file, kind)

    monkeypatch.setattr(hashlib, "file_digest", file_digest)
    keys = []
    for size in (2**40, 2**40 + 1):
        with open(tmp_path / name, "wb") as file:
            file.truncate(size)
        record = scan_entry(entry_of(tmp_path / name), SETTINGS)
        assert record.status == "failed" and f"has {size} bytes, more than" in record.reason
        keys.append(record.identity)
    assert len(set(keys)) == 2


def test_tensors_beside_an_onnx_file_may_be_larger_than_other_files(tmp_path, monkeypatch):
    files = [tmp_path / "model.onnx", tmp_path / "tensors"]
    for path, size in zip(files, (FILE_BYTES + 1, FILE_BYTES + 2), strict=True):
        with open(path, "wb") as file:
            file.truncate(size)
    monkeypatch.setattr("jaxtroj.model_files.model_files", lambda path: files)
    monkeypatch.setattr("jaxtroj.model_files.digest_file", lambda path: f"of {path.name}")
    assert model_digests(files[0]) == [f"too large: {FILE_BYTES + 1} bytes", "of tensors"]


def test_a_tokenizer_that_has_gone_is_no_end_of_the_scan(tmp_path):
    (tmp_path / "model.pt").write_bytes(b"a")
    home = tmp_path / "tokenizer"
    entry = entry_of(tmp_path / "model.pt", kind="text-classifier", tokenizer_path=home)
    gone = identify(entry, SETTINGS)
    home.mkdir()
    empty = identify(entry, SETTINGS)
    (home / "vocab.txt").write_text("word")
    assert len({gone, empty, identify(entry, SETTINGS)}) == 3


def test_identity_of_a_head_follows_its_config_encoder_and_tokenizer(tmp_path):
    (tmp_path / "model.pt").write_bytes(b"a")
    entry = entry_of(tmp_path / "model.pt", kind="text")
    keys = [identify(entry, SETTINGS)]
    for config in (TextConfig(embedding="BERT"), TextConfig(embedding="GPT-2")):
        entry = replace(entry, text_config=config)
        keys.append(identify(entry, SETTINGS))
    labelled = replace(entry, text_config=TextConfig(embedding="GPT-2", poisoned=True))
    assert identify(labelled, SETTINGS) == keys[-1]  # a label is no part of an answer
    for name in ("encoder", "tokenizer"):
        (tmp_path / name).mkdir()
        entry = replace(entry, **{f"{name}_path": tmp_path / name})
        for content in ("one", "two"):
            (tmp_path / name / "vocab.txt").write_text(content)
            keys.append(identify(entry, SETTINGS))
    named = [("BERT", None), ("DistilBERT", None), ("BERT", "small"), (None, "small")]
    for embedding, flavor in named:  # with a file name, which is the same for all
        config = TextConfig(embedding, flavor, "encoder.pt", cls_token_is_first=True)
        keys.append(identify(replace(entry, text_config=config), SETTINGS))
    assert len(set(keys)) == 11
    said = replace(SETTINGS, encoder=tmp_path / "encoder", tokenizer=tmp_path / "tokenizer")
    without = replace(entry, encoder_path=None, tokenizer_path=None)
    assert identify(entry, said) == identify(without, said)


@pytest.mark.parametrize("name", ["encoder", "tokenizer"])
def test_identity_follows_the_content_of_what_settings_name(tmp_path, name):
    (tmp_path / "model.pt").write_bytes(b"a")
    entry, keys = entry_of(tmp_path / "model.pt"), []
    for home in (tmp_path / "here", tmp_path / "there"):
        settings = replace(SETTINGS, **{name: home})
        home.mkdir()
        for content in ("one", "two"):
            (home / "vocab.txt").write_text(content)
            keys.append(identify(entry, settings))
    assert keys[:2] == keys[2:] and keys[0] != keys[1]


def test_what_many_models_share_is_digested_once(tmp_path, monkeypatch):
    (tmp_path / "encoder.pt").write_bytes(b"one")
    seen = []
    monkeypatch.setattr(
        "jaxtroj.model_files.digest_or_reason", lambda path: seen.append(path) or str(len(seen))
    )
    assert contents_digest(tmp_path / "encoder.pt") == contents_digest(tmp_path / "encoder.pt")
    (tmp_path / "encoder.pt").write_bytes(b"other")
    assert contents_digest(tmp_path / "encoder.pt") == "2"


def test_a_calibrator_that_has_gone_leaves_even_odds(tmp_path):
    path = tmp_path / "calibrator.json"
    shutil.copy(DEFAULT_CALIBRATOR, path)
    settings = Settings(calibrator=path)
    path.unlink()
    _cached_calibrator.cache_clear()
    assert base_rate(settings) == 0.5


def test_the_picture_of_a_trigger_shows_colours_the_right_way_round(tmp_path):
    mask = np.zeros((8, 8, 1), np.float32)
    mask[0, 0] = 1
    pattern = np.zeros((8, 8, 3), np.float32)
    pattern[..., 0] = 1
    path = tmp_path / "new" / "trigger.png"
    panels = FreeMask(jnp.asarray(mask), jnp.asarray(pattern)).picture(
        np.full((8, 8, 3), 0.5), np.zeros(2, int)
    )
    write_trigger(path, panels)
    picture = np.asarray(Image.open(path))
    assert picture.shape == (224, 4 * 224 + 3 * 8, 3)
    clean, stamped, white, shown = (picture[0, panel * 232] for panel in range(4))
    assert clean.tolist() == [128, 128, 128]
    assert stamped.tolist() == shown.tolist() == [255, 0, 0]
    assert white.tolist() == [255, 255, 255]
