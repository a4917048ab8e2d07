"""config.json of text models: both official forms, and hostile ones, none of them executed."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtroj.errors import DatasetError
from jaxtroj.rounds.text_config import (
    MAX_BYTES,
    TextConfig,
    TextTrigger,
    parse_text_config,
    read_text_config,
)

REDUCED = {
    "cls_token_is_first": True,
    "model_architecture": "GruLinear",
    "embedding": "BERT",
    "embedding_flavor": "bert-base-uncased",
    "embedding_filename": "BERT-bert-base-uncased.pt",
    "source_dataset": "imdb",
    "train_data_filepath": "/data/train.json",
    "test_data_filepath": "/data/test.json",
}
TRIGGER = {
    "py/object": "trigger_config.TriggerConfig",
    "number": 0,
    "source_class": 1,
    "target_class": 0,
    "fraction_level": 2,
    "fraction": 0.2,
    "behavior": "StaticTarget",
    "type_level": 1,
    "type": "word",
    "text_level": 0,
    "text": "tardigrade",
    "condition_level": 1,
    "condition": "spatial",
    "insert_min_location_percentage": 0,
    "insert_max_location_percentage": 0.5,
}
FULL = {
    "py/object": "round_config.RoundConfig",
    "master_seed": 7,
    "number_classes": 2,
    "poisoned": True,
    "embedding": "GPT-2",
    "embedding_flavor": "gpt2",
    "rnn_bidirectional": True,
    "adversarial_training_method": "None",
    "adversarial_eps": None,
    "triggers": [TRIGGER],
    "trigger_organization": "one2one",
    "number_triggers": 1,
}


def changed(base: dict, **changes) -> str:
    return json.dumps({**base, **changes})


def test_reduced_form():
    config = parse_text_config(json.dumps(REDUCED))
    assert config == TextConfig(
        embedding="BERT",
        embedding_flavor="bert-base-uncased",
        embedding_filename="BERT-bert-base-uncased.pt",
        cls_token_is_first=True,
        model_architecture="GruLinear",
        source_dataset="imdb",
    )
    assert config.encoder_names == ("BERT-bert-base-uncased.pt",)
    assert config.pooling == "first"


def test_full_form():
    config = parse_text_config(json.dumps(FULL))
    assert config.encoder_names == ("GPT-2-gpt2.pt", "GPT-2-gpt2")
    assert config.cls_token_is_first is None and config.pooling == "last"
    assert config.adversarial_training_method is None and config.poisoned is True
    assert config.triggers == (TextTrigger(1, 0, "word", "tardigrade", "spatial", 0.2, 0.0, 0.5),)
    assert config.unknown_keys == ()
    assert hash(config) == hash(parse_text_config(json.dumps(FULL)))


@pytest.mark.parametrize("name", ["r5-config-full.json", "r5-config-reduced.json"])
def test_official_files(shared_data, name):
    config = read_text_config(shared_data / "trojai" / name)
    assert (config.embedding, config.model_architecture) == ("DistilBERT", "LstmLinear")
    assert config.unknown_keys == () and config.pooling == "first"
    assert config.encoder_names[0] == "DistilBERT-distilbert-base-uncased.pt"
    if name == "r5-config-full.json":
        (trigger,) = config.triggers
        assert (trigger.type, trigger.condition, trigger.fraction) == ("phrase", None, 0.05)


def test_unknown_keys_are_noted_and_dropped():
    config = parse_text_config(changed(REDUCED, zebra=[1, {"x": 2}], **{"a\nb": "c"}))
    assert config.unknown_keys == ("a\\nb", "zebra")
    many = parse_text_config(json.dumps({f"k{i:06d}": 0 for i in range(50_000)}))
    assert many.unknown_keys[0] == "k000000" and many.unknown_keys[-1] == "and 49980 more"
    assert len(many.unknown_keys) == 21


@pytest.mark.parametrize(
    ("flavor", "embedding", "pooling"),
    [("x", "MPNet", "first"), ("x", "GPT-2", "last"), ("x", "ELMo", None)],
)
def test_pooling_without_the_key(flavor, embedding, pooling):
    assert TextConfig(embedding=embedding, embedding_flavor=flavor).pooling == pooling


@pytest.mark.parametrize("first", [True, False, None])
def test_a_mean_over_the_tokens_goes_before_what_the_first_token_says(first):
    config = TextConfig(embedding="BERT", cls_token_is_first=first, mean_of_tokens=True)
    assert config.pooling == "mean"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("[1, 2]", "expected an object"),
        ("null", "expected an object"),
        ("{", "Expecting"),
        ("[" * 100_000, "nests too deeply"),
        ('{"a": 1, "a": 2}', "a key twice"),
        ('{"dropout": NaN}', "NaN is not JSON"),
        ('{"dropout": -Infinity}', "-Infinity is not JSON"),
        ('{"dropout": 1e999}', "dropout is inf"),
        ('{"master_seed": 1' + "0" * 100 + "}", "more than 20 digits"),
        ('{"master_seed": 1' + "0" * 5000 + "}", "digits"),
        ('{"master_seed": true}', "expected int"),
        ('{"cls_token_is_first": 1}', "expected bool"),
        ('{"cls_token_is_first": "True"}', "expected bool"),
        ('{"mean_of_tokens": "no"}', "expected bool"),
        ('{"embedding": ["BERT"]}', "expected str"),
        ('{"embedding": "' + "B" * 20_000 + '"}', "expected str"),
        ('{"triggers": {}}', "expected a list"),
        ('{"triggers": [1]}', "expected an object"),
        ('{"triggers": [' + "{}," * 64 + "{}]}", "up to 64"),
        ('{"triggers": [{"source_class": "0"}]}', r"triggers\[0\].source_class"),
    ],
)
def test_hostile_content_is_one_error(tmp_path, text, message):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(DatasetError, match=message):
        read_text_config(path)


@pytest.mark.parametrize(
    "hostile",
    [
        {"py/object": "os.system"},
        {"py/object": "trigger_config.TriggerConfig"},
        {"py/object": ["round_config.RoundConfig"]},
        {"py/reduce": [{"py/type": "subprocess.Popen"}, {"py/tuple": ["true"]}]},
        {"zebra": {"deep": [{"py/function": "builtins.exec"}]}},
        {"py/type": "round_config.RoundConfig"},
        {"triggers": [{"py/object": "round_config.RoundConfig"}]},
        {"triggers": [{"py/object": "posix.unlink", "number": 0}]},
    ],
)
def test_hostile_jsonpickle_is_refused(hostile):
    with pytest.raises(ValueError, match="refused and was not run|stands where"):
        parse_text_config(changed(FULL, **hostile))


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x.pt", "/etc/passwd", "a/b.pt", "a\\b", "C:x", "a\0b", "x" * 256, "\ud800"],
)
def test_file_names_that_lead_elsewhere(name):
    with pytest.raises(ValueError, match="no plain file name"):
        parse_text_config(changed(REDUCED, embedding_filename=name))


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\xff\xfe{}", "UTF-8"), (b"{}\0", "NUL"), (b" " * (MAX_BYTES + 1), "larger than")],
)
def test_bytes_that_are_no_text(tmp_path, content, message):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=message):
        read_text_config(path)
    with pytest.raises(DatasetError, match="not a file"):
        read_text_config(tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(sorted({**FULL, **REDUCED})), JSON, st.sampled_from(sorted(TRIGGER)), JSON)
def test_any_value_anywhere_is_read_or_refused(key, value, trigger_key, trigger_value):
    content = {**FULL, "triggers": [{**TRIGGER, trigger_key: trigger_value}], key: value}
    try:
        config = parse_text_config(json.dumps(content))
    except ValueError as error:
        assert len(str(error)) < 600
    else:
        assert isinstance(config, TextConfig) and all(
            "/" not in name or config.embedding_filename is None for name in config.encoder_names
        )
