"""Heads, mapping files and normalizations: what fits, what is refused."""

import json

import numpy as np
import pytest
import torch

from jaxtroj.backgrounds.head import PUBLISHED_SHA256, Mapping, head_for, read_mapping
from jaxtroj.backgrounds.normalization import NAMED, Normalization, from_config
from jaxtroj.errors import UsageError

GOOD = {str(i): i % 10 - 1 for i in range(1000)}
MAPPING = Mapping(np.arange(1000, dtype=np.int32) % 10 - 1, "made up")


def written(tmp_path, value):
    path = tmp_path / "file.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_a_mapping_is_read(tmp_path):
    mapping = read_mapping(written(tmp_path, GOOD))
    np.testing.assert_array_equal(mapping.class_of, MAPPING.class_of)
    assert len(mapping.sha256) == 64 and not mapping.is_published


def test_the_published_mapping(shared_data):
    mapping = read_mapping(shared_data / "backgrounds" / "in_to_in9.json")
    assert mapping.is_published and mapping.sha256 == PUBLISHED_SHA256
    counts = np.bincount(mapping.class_of + 1, minlength=10)
    assert counts.tolist() == [630, 116, 52, 42, 36, 35, 27, 26, 20, 16]


BAD_MAPPINGS = {
    "no_json": "{",
    "deep": "[" * 100_000,
    "a_list": [0] * 1000,
    "missing": {k: v for k, v in GOOD.items() if k != "7"},
    "too_many": GOOD | {"1000": 0},
    "too_large": GOOD | {"7": 9},
    "too_small": GOOD | {"7": -2},
    "text": GOOD | {"7": "1"},
    "float": GOOD | {"7": 1.0},
    "truth": GOOD | {"7": True},
    "twice": json.dumps(GOOD)[:-1] + ', "7": 3}',
    "one_class_never": {k: -1 if v == 4 else v for k, v in GOOD.items()},
}


@pytest.mark.parametrize("kind", BAD_MAPPINGS)
def test_a_bad_mapping_is_refused_by_name(tmp_path, kind):
    with pytest.raises(UsageError, match=r"file\.json"):
        read_mapping(written(tmp_path, BAD_MAPPINGS[kind]))


def test_the_size_of_the_head_decides():
    nine = head_for(9)
    assert nine.class_of.tolist() == list(range(9)) and not nine.mapping_sha256
    assert head_for(9, MAPPING).class_of.tolist() == list(range(9))
    thousand = head_for(1000, MAPPING)
    assert thousand.mapping_sha256 == "made up" and not thousand.offsets().any()
    offsets = head_for(1000, MAPPING, restricted=True).offsets()
    np.testing.assert_array_equal(np.isinf(offsets), MAPPING.class_of == -1)


MISMATCHES = {
    "neither": ((10,), {}, "10 classes; expected 9"),
    "no_mapping": ((1000,), {}, "needs --mapping"),
    "in9_of_1000": ((1000, MAPPING), {"in9": True}, "this one has 1000"),
    "restricted_9": ((9,), {"restricted": True}, "this one has 9"),
}


@pytest.mark.parametrize("kind", MISMATCHES)
def test_a_mismatch_is_an_error(kind):
    arguments, options, reason = MISMATCHES[kind]
    with pytest.raises(UsageError, match=reason):
        head_for(*arguments, **options)


CONFIGS = {
    "timm": {"pretrained_cfg": {"mean": [0.5, 0.4, 0.3], "std": [1, 2, 3]}},
    "timm_flat": {"mean": [0.5, 0.4, 0.3], "std": [1, 2, 3]},
    "hugging_face": {"image_mean": [0.5, 0.4, 0.3], "image_std": [1, 2, 3]},
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_configuration_names_the_normalization(tmp_path, kind):
    found = from_config(written(tmp_path, CONFIGS[kind]))
    assert (found.mean, found.std) == ((0.5, 0.4, 0.3), (1.0, 2.0, 3.0))
    assert found.name == "from file.json"


BAD_CONFIGS = {
    "no_json": "mean",
    "nothing": {},
    "a_list": [],
    "two_numbers": {"mean": [0.5, 0.4], "std": [1, 2, 3]},
    "text": {"mean": ["a", 0.4, 1], "std": [1, 2, 3]},
    "twice": '{"mean": [0, 0, 0], "mean": [0.5, 0.5, 0.5], "std": [1, 1, 1]}',
    "huge": {"mean": [10**400, 0, 0], "std": [1, 1, 1]},
    "zero_std": {"mean": [0.5, 0.4, 0.3], "std": [1, 0, 3]},
    "infinite": {"mean": [0.5, 0.4, float("inf")], "std": [1, 1, 3]},
}


@pytest.mark.parametrize("kind", BAD_CONFIGS)
def test_a_bad_configuration_is_refused(tmp_path, kind):
    with pytest.raises(UsageError, match="expected|no configuration|names no mean"):
        from_config(written(tmp_path, BAD_CONFIGS[kind]))


@pytest.mark.parametrize("name", NAMED)
def test_the_table_is_the_published_arithmetic(name):
    norm = NAMED[name]
    values = torch.arange(256, dtype=torch.uint8).to(torch.float32).div(255)[:, None]
    expected = (torch.clamp(values, 0, 1) - torch.tensor(norm.mean)) / torch.tensor(norm.std)
    np.testing.assert_array_equal(norm.table(), expected.numpy())


def test_a_normalization_has_three_positive_deviations():
    with pytest.raises(UsageError, match="std above 0"):
        Normalization("x", (0.0, 0.0, 0.0), (1.0, -1.0, 1.0))
