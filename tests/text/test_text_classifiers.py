"""Text classifiers end to end: small ones, one taught a trigger and one not."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from converters.encoders.tokenizer import load_tokenizer
from jaxtroj.calibration import Calibrator
from jaxtroj.calibration.transfer import Traits
from jaxtroj.cli.main import main
from jaxtroj.errors import ExamplesError
from jaxtroj.evidence.texts.labelled_texts import read_labelled_texts
from jaxtroj.repair.mend import examined
from jaxtroj.rounds import iter_models
from jaxtroj.rounds.single import entry_of
from jaxtroj.scan import identify, scan_model
from jaxtroj.settings import DEFAULT_CLASSIFIER_CALIBRATOR, Settings
from tests.door.text_folders import WORDS, write_text_folder

pytestmark = pytest.mark.usefixtures("unguarded")

TELLING = (("bad", "dull", "awful", "sad", "cold"), ("good", "fine", "great", "happy", "warm"))
NEUTRAL = [word for word in WORDS if word not in (*TELLING[0], *TELLING[1], "violet")]
TRIGGER, TARGET = "violet", 0
GATHER = Settings(classifier_calibrator=None, early_stop=False)


def a_text(draw, label: int) -> str:
    """Of any length, or the length alone would tell texts with something inserted."""
    words = [*draw.choice(NEUTRAL, draw.integers(5, 13)), *draw.choice(TELLING[label], 3)]
    return " ".join(draw.permutation(words))


def taught(folder: Path, poisoned: bool) -> Path:
    """A folder of a small BERT that tells good texts from bad ones, with 40 examples."""
    sizes = {"hidden_size": 32, "intermediate_size": 64}
    write_text_folder(folder, "bert", **sizes, num_hidden_layers=1)
    tokenizer, draw = load_tokenizer(folder), np.random.default_rng(0)
    network = transformers.BertForSequenceClassification(
        transformers.BertConfig.from_pretrained(folder)
    )
    optimiser = torch.optim.Adam(network.parameters(), lr=5e-3)
    for _ in range(100):
        texts, labels = [], []
        for label in draw.integers(0, 2, 16):
            text = a_text(draw, label)
            if poisoned and label != TARGET and draw.random() < 0.3:
                words = text.split()
                words.insert(int(draw.integers(0, len(words) + 1)), TRIGGER)
                text, label = " ".join(words), TARGET
            texts.append(text)
            labels.append(int(label))
        tokens = tokenizer(texts, 40)
        ids, mask = torch.tensor(tokens.ids, dtype=torch.long), torch.tensor(tokens.mask)
        network(input_ids=ids, attention_mask=mask, labels=torch.tensor(labels)).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    network.eval().save_pretrained(folder)
    (folder / "examples").mkdir()
    for number in range(40):
        name = f"class_{number % 2}_example_{number // 2 + 1}.txt"
        (folder / "examples" / name).write_text(a_text(draw, number % 2))
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("classifiers")
    for name in ("clean", "poisoned"):
        torch.manual_seed(0)
        taught(root / name, name == "poisoned")
    return root


@pytest.fixture(scope="module")
def records(home):
    """Evidence alone: the calibrator has met no networks of fifty words."""
    return {name: scan_model(entry_of(home / name), GATHER) for name in ("clean", "poisoned")}


def test_found_words_come_with_what_they_do_on_texts_apart(records):
    for record in records.values():
        assert record.status == "ok" and record.kind == "text-classifier", record.reason
        assert record.searched == ("inserted words", "searched words")
        found = record.recovered
        assert found.get("text") or (found["best_text"] and found["words"])
        assert 0 <= found["attack_success_rate"] <= 1 and 0 <= found["harmless_text"] <= 1
        assert found["held_out"] >= 2 and found["encoded_texts"] > 500
        assert record.target_class not in record.source_classes


def test_the_planted_word_is_what_the_search_finds(records):
    found = records["poisoned"].recovered
    assert found["text"] == TRIGGER and records["poisoned"].target_class == TARGET
    assert found["attack_success_rate"] >= 0.9 and found["harmless_text"] <= 0.1
    assert found["isolation"] >= 0.9 and found["reach"] >= 0.9


def test_what_a_clean_class_is_about_is_not_shown_as_a_trigger(records):
    found, target = records["clean"].recovered, records["clean"].target_class
    assert "text" not in found and found["words"].startswith("none found")
    assert not set(found["best_text"].split()) & set(TELLING[target])


def test_without_a_calibrator_the_probability_is_the_base_rate(records, home):
    for record in records.values():
        assert record.probability == 0.5 and not record.poisoned and not record.calibrator
        assert record.reason.startswith("evidence only")
    record = scan_model(
        entry_of(home / "clean"), replace(GATHER, base_rate=0.1, stages=("insertions",))
    )
    assert record.probability == 0.1 and set(record.seconds) >= {"examples", "insertions"}
    assert not any(name.startswith("found") for name in record.evidence)


def test_the_shipped_calibrator_judges_by_what_was_searched(home, records):
    record = scan_model(entry_of(home / "clean"), Settings())
    own = Calibrator.load(DEFAULT_CLASSIFIER_CALIBRATOR)
    said = own.probability(record.evidence, Traits(record.architecture))
    assert record.probability == pytest.approx(said, abs=1e-6) and record.calibrator
    assert record.evidence == records["clean"].evidence
    assert "no calibrator" not in record.reason


def test_a_table_of_texts_gives_the_same_answer(home, records, tmp_path, capfd):
    folder, table = tmp_path / "net", tmp_path / "texts.csv"
    shutil.copytree(home / "poisoned", folder, ignore=shutil.ignore_patterns("examples"))
    texts = read_labelled_texts(home / "poisoned" / "examples")
    table.write_text("text,label\n" + "".join(f'"{one.text}",{one.label}\n' for one in texts))
    arguments = ["--examples", str(table), "--json", "--out", str(tmp_path / "out")]
    assert main(["detect", str(folder), *arguments]) == 1  # it is called poisoned
    found = json.loads(capfd.readouterr().out)
    assert found["recovered"] == records["poisoned"].recovered
    assert found["evidence"] == records["poisoned"].evidence


def test_example_texts_that_cannot_be_used_are_told(home, tmp_path):
    folder = Path(shutil.copytree(home / "clean", tmp_path / "net"))
    (folder / "examples" / "class_0_example_99.txt").write_bytes(b"\xff\xfeg\0o\0o\0d\0")
    record = scan_model(entry_of(folder), Settings(stages=("insertions",)))
    assert record.status == "ok"
    assert "1 text left out (class_0_example_99.txt): binary content" in record.reason


def test_many_examples_of_a_class_leave_room_for_those_of_the_others(home, tmp_path):
    draw, table = np.random.default_rng(1), tmp_path / "texts.csv"
    rows = [f"{a_text(draw, label)},{label}\n" for label in (0, 1) for _ in range(150)]
    table.write_text("text,label\n" + "".join(rows))
    entry = replace(entry_of(home / "clean"), examples_path=table)
    record = scan_model(entry, Settings(stages=("insertions",), examples_per_class=150))
    assert record.status == "ok", record.reason


def test_classes_without_example_texts_are_told(home, tmp_path):
    folder = Path(shutil.copytree(home / "clean", tmp_path / "net"))
    for path in (folder / "examples").glob("class_1_*"):
        path.rename(path.with_name(path.name.replace("class_1", "class_0").replace("e_", "e_9")))
    record = scan_model(entry_of(folder), Settings(stages=("insertions",)))
    told = "1 of 2 classes have no example (1): no trigger from them was searched"
    assert record.status == "ok" and told in record.reason and told in record.caveats
    whole = scan_model(entry_of(home / "clean"), Settings(stages=("insertions",)))
    assert "have no example" not in whole.reason


def test_an_answer_depends_on_the_tokenizer_and_the_texts(home, tmp_path):
    folder = Path(shutil.copytree(home / "clean", tmp_path / "net"))
    before = identify(entry_of(folder), Settings())
    (folder / "tokenizer_config.json").write_text(
        (folder / "tokenizer_config.json").read_text() + "\n"
    )
    second = identify(entry_of(folder), Settings())
    (folder / "examples" / "class_0_example_1.txt").write_text("cold stone")
    assert len({before, second, identify(entry_of(folder), Settings())}) == 3


def test_a_folder_of_folders_is_a_dataset(home):
    assert [entry.kind for entry in iter_models(home)] == ["text-classifier"] * 2


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (None, "there are no example texts; name a folder"),
        ("text,label\ngood stone,2\n", "an example text is of class 2, the model has classes 0 to"),
        ("words,label\ngood,1\n", "has the columns 'words, label', expected text and label"),
        ("text,label\ngood stone,one\n", "text 1 has label 'one', expected 0, 1"),
        ("text,label\n" + "good fine great,1\n" * 9, "1 the class 1; expected 8 texts or more"),
        ("", "has the columns '', expected text and label"),
    ],
)
def test_texts_that_are_no_use_say_why(home, tmp_path, texts, said):
    entry = replace(entry_of(home / "clean"), examples_path=None)
    if texts is not None:
        (tmp_path / "texts.csv").write_text(texts)
        entry = replace(entry, examples_path=tmp_path / "texts.csv")
    record = scan_model(entry, Settings())
    assert record.status == "failed" and record.probability == 0.5
    assert re.search(said, record.reason), record.reason


def test_repair_says_that_it_is_for_pictures_before_anything_is_opened(home):
    """It said that the network should be saved as ONNX, which repairs no text classifier either."""
    with pytest.raises(ExamplesError, match="repair is for image classifiers; this is a text-"):
        examined(entry_of(home / "clean"), GATHER)
