"""Hugging Face folders of text classifiers: equal to the library's own networks."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

import jaxtroj
from converters import open_model
from converters.encoders.tokenizer import load_tokenizer
from converters.errors import ConverterError
from converters.input_form import InputForm
from converters.model import apply
from jaxtroj import UsageError
from jaxtroj.cli.main import main
from tests.door.text_folders import FAMILIES, MOST_TOKENS, WORDS, write_text_folder

pytestmark = pytest.mark.usefixtures("unguarded")

DRAW = np.random.default_rng(0)
TEXTS = [" ".join(DRAW.choice(WORDS, n)) + "." for n in (3, 17, 9, 30)]


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_the_librarys_and_gradients_finite(tmp_path, family):
    folder = write_text_folder(tmp_path / family, family)
    opened = open_model(folder)
    tokens = load_tokenizer(folder)(TEXTS, MOST_TOKENS - 4)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        ids, mask = torch.tensor(tokens.ids, dtype=torch.long), torch.tensor(tokens.mask)
        expected = network(input_ids=ids, attention_mask=mask).logits.numpy()
    assert np.ptp(expected, axis=0).min() > 0.05 and tokens.ids.shape[1] > 20
    both = np.stack([tokens.ids, tokens.mask], axis=1)
    np.testing.assert_allclose(opened.model(both), expected, atol=1e-4)
    config = opened.model.config
    table = opened.model.params[config.word_table]

    def total(words):
        params = opened.model.params | {config.word_table: words}
        return apply(config, params, jnp.asarray(both)).sum()

    gradient = np.asarray(jax.jit(jax.grad(total))(table))
    assert gradient.shape == table.shape and np.isfinite(gradient).all() and np.abs(gradient).max()
    assert "classes of the folder: 0 'bad', 1 'good'" in opened.findings


@pytest.mark.parametrize("family", ["gpt2", "roberta", "mpnet", "bert", "distilbert"])
def test_an_ordinary_token_as_padding_counts_as_in_the_library(tmp_path, family):
    """Skipped as GPT-2's last token, and in RoBERTa's positions; without effect elsewhere."""
    ids = np.array([[9, 7, 11, 13, 7], [7, 9, 7, 10, 12], [7, 7, 7, 7, 7]])
    folder = write_text_folder(tmp_path / family, family, pad_token_id=7)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = network(torch.tensor(ids), attention_mask=torch.ones(3, 5)).logits.numpy()
    # The padding behind a text, of any id, changes nothing.
    ids, mask = (np.pad(part, ((0, 0), (0, 3))) for part in (ids, np.ones_like(ids)))
    found = open_model(folder).model(np.stack([ids, mask], axis=1).astype(np.int32))
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("padding", [None, 10**6, -3])
def test_a_padding_that_no_text_has_is_never_skipped(tmp_path, padding):
    folder = write_text_folder(tmp_path / "gpt2", "gpt2", pad_token_id=padding)
    ids = torch.tensor([[9, 0, 11, 7]])
    network = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = network(ids, attention_mask=torch.ones(1, 4)).logits.numpy()
    both = np.stack([ids.numpy(), np.ones((1, 4))], axis=1).astype(np.int32)
    np.testing.assert_allclose(open_model(folder).model(both), expected, atol=1e-4)


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    return write_text_folder(tmp_path_factory.mktemp("hub") / "bert", "bert")


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("config.json", {"id2label": {"0": "a"}}, "names 1 classes and classifier.weight has 2"),
        ("config.json", {"problem_type": "regression"}, "problem_type is 'regression'"),
        ("config.json", {"hidden_size": 24}, r"got \(\d+, 16\), expected \(\d+, 24\)"),
        ("config.json", {"architectures": ["ElectraForSequenceClassification"]}, "expected one of"),
        (
            "config.json",
            {"model_type": "roberta"},
            "'BertForSequenceClassification' of model_type 'roberta'; expected one of",
        ),
        ("config.json", {"transformers_weights": "b.safetensors"}, "'b.safetensors' loaded as"),
        ("config.json", {"quantization_config": {"bits": 4}}, "quantised"),
        ("config.json", {"dtype": "float16"}, "loaded as float16"),
        ("config.json", {"auto_map": {"AutoModel": "evil.Evil"}}, "asks for code that is no part"),
        ("tokenizer_config.json", {"auto_map": {"a": "evil.E"}}, "tokenizer_config.json asks for"),
    ],
)
def test_folders_that_do_not_fit_say_why(bert, tmp_path, name, changes, said):
    folder = Path(shutil.copytree(bert, tmp_path / "bert"))
    values = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(values | changes))
    with pytest.raises(ConverterError, match=said):
        open_model(folder)


@pytest.mark.parametrize("padding", ["7", True, [7]])
def test_a_padding_that_is_no_id_is_refused(tmp_path, padding):
    config = write_text_folder(tmp_path / "gpt2", "gpt2") / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"pad_token_id": padding}))
    with pytest.raises(ConverterError, match="pad_token_id is .*, expected a whole number or null"):
        open_model(config.parent)


def test_weights_of_another_head_are_refused(bert, tmp_path):
    folder = Path(shutil.copytree(bert, tmp_path / "bert"))
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"qa_outputs.weight": np.zeros((2, 16), np.float32)},
              folder / "model.safetensors")  # fmt: skip
    with pytest.raises(ConverterError, match=r"unused: qa_outputs.weight \(2, 16\)"):
        open_model(folder)
    del tensors["bert.pooler.dense.bias"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ConverterError, match="missing: bert.pooler.dense.bias"):
        open_model(folder)


def test_images_for_a_network_of_texts_are_refused(bert):
    with pytest.raises(UsageError, match="takes texts, and images were given; expected its path"):
        jaxtroj.detect(bert, np.zeros((4, 8, 8, 3), np.uint8), [0, 1, 0, 1])


def test_a_config_that_cannot_be_read_is_told_before_its_texts(bert, tmp_path, capsys):
    folder = Path(shutil.copytree(bert, tmp_path / "bert"))
    (folder / "config.json").write_text("{")
    (tmp_path / "texts.csv").write_text("text,label\ngood,1\n")
    words = ["detect", str(folder), "--examples", str(tmp_path / "texts.csv")]
    assert main(words) == 2
    captured = capsys.readouterr()
    assert "config.json is not JSON" in captured.out + captured.err


def test_a_checkpoint_of_a_text_classifier_is_refused(bert, tmp_path, capfd):
    assert main(["convert", str(bert), "--out", str(tmp_path / "made")]) == 2
    assert "one of texts is scanned from its own folder" in capfd.readouterr().err


def test_what_is_said_of_pixels_is_refused(bert):
    with pytest.raises(ConverterError, match="the network takes texts"):
        open_model(bert, InputForm(mean=(0.5,), std=(0.5,)))


def test_weights_in_two_forms_may_be_equal(bert, tmp_path):
    """As older folders have them: positions in one alone, a tied weight twice."""
    folder = shutil.copytree(bert, tmp_path / "net")
    weights = {name: torch.tensor(a) for name, a in load_file(folder / "model.safetensors").items()}
    weights["bert.embeddings.position_ids"] = torch.arange(MOST_TOKENS)[None]
    weights["tied.weight"] = weights["classifier.weight"]
    torch.save(weights, folder / "pytorch_model.bin")
    findings = open_model(folder).findings
    assert "model.safetensors and pytorch_model.bin hold the same weights" in findings


def test_ties_that_only_safetensors_metadata_says_are_none(bert, tmp_path):
    """transformers does not read it, and draws what is missing at random."""
    folder = Path(shutil.copytree(bert, tmp_path / "net"))
    tensors = load_file(folder / "model.safetensors")
    first, second = (f"bert.encoder.layer.{n}.output.dense.weight" for n in (0, 1))
    others = {name: tensor for name, tensor in tensors.items() if name != second}
    save_file(others, folder / "model.safetensors", {"format": "pt", second: first})
    with pytest.raises(ConverterError, match=f"missing: {second.removeprefix('bert.')}"):
        open_model(folder)
    save_file(tensors, folder / "model.safetensors", {"format": "pt", second: first, first: first})
    open_model(folder)  # both stand there


@pytest.mark.parametrize(
    "change",
    [
        lambda weights: weights["classifier.weight"].neg_(),
        lambda weights: weights.update(
            {f"model.{name}": weight + 1 for name, weight in weights.items()}
        ),
        lambda weights: weights.pop("classifier.weight"),
    ],
)
def test_weights_in_two_forms_that_differ_are_refused(bert, tmp_path, change):
    folder = shutil.copytree(bert, tmp_path / "net")
    weights = {name: torch.tensor(a) for name, a in load_file(folder / "model.safetensors").items()}
    change(weights)
    torch.save(weights, folder / "pytorch_model.bin")
    with pytest.raises(ConverterError, match="pytorch_model.bin hold different weights"):
        open_model(folder)
