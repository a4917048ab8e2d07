import dataclasses
import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torchvision import models

from converters import convert, families, fold
from converters.errors import ParityError
from converters.families.names import target_of
from converters.families.reference import empty_module, filled_module
from converters.model import param_shapes
from converters.parity import check_parity, relative_error

DenseNet: Any = models.DenseNet  # typed for four blocks; it takes as many as there are

SHAPES = ((2, 33, 65),)
QUICK = ("resnet18", "resnet50", "wide_resnet50_2", "resnext50_32x4d", "inception_v3")


@pytest.fixture(scope="module")
def small(fill, artifact_of):
    """A small DenseNet as (artifact, model)."""
    artifact = artifact_of(fill(lambda: DenseNet(8, (2, 2), 16, num_classes=3)))
    return artifact, convert(artifact)


def test_report_covers_folding_and_both_types_and_is_json(small):
    report = check_parity(*small, shapes=SHAPES)
    assert report.passed and report.require() is report
    assert {(c.folded, c.dtype) for c in report.comparisons} == {
        (folded, dtype) for folded in (False, True) for dtype in ("float64", "float32")
    }
    for comparison in report.comparisons:
        exact = comparison.dtype == "float64"
        assert comparison.logits is not None and comparison.gradients is not None
        assert 0 < comparison.logits < (1e-12 if exact else 1e-5)
        assert comparison.gradients < (1e-12 if exact else 1e-2)
    stored = json.loads(json.dumps(dataclasses.asdict(report), allow_nan=False))
    assert stored["architecture"] == "densenet" and stored["sha256"] == small[0].sha256
    assert stored["tolerances"] == {
        "float64 logits": 1e-10,
        "float64 gradients": 1e-10,
        "float32 logits": 1e-4,
    }
    assert jnp.asarray(1.0).dtype == np.float32


def test_other_weights_do_not_pass(small):
    artifact, model = small
    params = dict(model.params)
    params["classifier.bias"] = params["classifier.bias"] + 0.01
    report = check_parity(artifact, dataclasses.replace(model, params=params), shapes=SHAPES)
    assert not report.passed
    with pytest.raises(ParityError, match="comparisons with torchvision failed"):
        report.require()


def test_no_shapes_is_no_pass(small):
    assert not check_parity(*small, shapes=()).passed


def test_folded_model_is_refused(small):
    artifact, model = small
    with pytest.raises(ValueError, match="before folding"):
        check_parity(artifact, fold(model), shapes=SHAPES)


@pytest.mark.parametrize(
    ("got", "expected", "error"),
    [
        ([1.0, 2.0], [1.0, 4.0], 0.5),
        ([0.0], [0.0], 0.0),
        ([0.5], [0.0], 0.5),
        ([np.nan], [0.0], None),
        ([0.0], [np.inf], None),
    ],
)
def test_relative_error(got, expected, error):
    assert relative_error(np.array(got), np.array(expected)) == error


@pytest.mark.parametrize(
    "architecture",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in sorted(families.standards())
        if hasattr(models, name)
    ],
)
def test_empty_module_is_torchvisions_own(architecture):
    """Names, order, shapes and the plain attributes of every submodule."""
    extra = {"aux_logits": False, "init_weights": False} if "inception" in architecture else {}
    with torch.device("meta"):
        genuine = getattr(models, architecture)(weights=None, num_classes=5, **extra).eval()
    made = empty_module(families.standard(architecture, 5))
    assert {n: v.shape for n, v in made.state_dict().items()} == {
        n: v.shape for n, v in genuine.state_dict().items()
    }
    assert repr(made) == repr(genuine)


def test_module_of_a_narrow_network_has_its_shapes():
    config = families.standard("resnet50", 7)
    stages = tuple(
        tuple(
            dataclasses.replace(block, widths=tuple(width // 8 for width in block.widths))
            for block in stage
        )
        for stage in config.stages
    )
    config = dataclasses.replace(config, stem=8, stages=stages, channels=1)
    state = empty_module(config).state_dict()
    found = (target_of(families.FAMILIES["resnet"].table, name) for name in state)
    assert {match[0] for match in found if match} == set(param_shapes(config))
    assert state["conv1.weight"].shape == (8, 1, 7, 7)
    assert state["layer4.2.conv3.weight"].shape == (256, 64, 1, 1)
    assert state["fc.weight"].shape == (7, 256)


def test_filled_module_needs_every_tensor(small):
    artifact, model = small
    tensors = {n: t for n, t in artifact.weights.tensors.items() if n != "classifier.bias"}
    with pytest.raises(ParityError, match=r"classifier\.bias"):
        filled_module(model.config, tensors)


def test_filled_module_is_exact_and_needs_no_counters(small):
    artifact, model = small
    tensors = {n: t for n, t in artifact.weights.tensors.items() if "num_batches" not in n}
    module = filled_module(model.config, tensors)
    assert not module.training
    for name, value in module.state_dict().items():
        if name in tensors:
            assert value.dtype == torch.float64
            np.testing.assert_array_equal(value.numpy(), tensors[name])
