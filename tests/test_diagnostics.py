"""Flags: raised where they should be, silent where not, and told in docs/flags.md."""

import re
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from converters.model import ImageConfig, Model
from jaxtroj.anchors import AnchoredExamples
from jaxtroj.diagnostics import FLAGS, diagnose


@dataclass(frozen=True)
class _Config(ImageConfig):
    num_classes: int = 3

    def build(self, rngs):
        raise NotImplementedError("only the parameters are looked at")


MODEL = Model(_Config(), {"fc.kernel": jnp.ones((5, 3))}, "small")
HEADLESS = Model(_Config(), {"conv1.kernel": jnp.ones((1, 1, 3, 3))}, "small")
LOGITS = np.random.default_rng(0).normal(size=(6, 3)) * 3
GUESS = ("values from 0 to 1 without normalisation were assumed",)
NOTE = ("the auxiliary head was left out",)


def _examples(logits=LOGITS, accuracy=1.0, labelled=6, gradient=0.1):
    n = len(logits)
    return AnchoredExamples(
        jnp.zeros((n, 4, 4, 3)), jnp.zeros((n, 2)), jnp.zeros(n, int), jnp.asarray(logits),
        accuracy, labelled, gradient,
    )  # fmt: skip


def _names(examples, findings=()):
    return [raised.flag.name for raised in diagnose(MODEL, examples, findings)]


@pytest.mark.parametrize(
    ("examples", "findings", "expected"),
    [
        (_examples(), (), []),
        (_examples(), GUESS, []),
        (_examples(accuracy=0.5), (), []),
        (_examples(accuracy=0.49), (), ["examples-misclassified"]),
        (_examples(accuracy=0.1, labelled=0), (), []),
        (_examples(accuracy=0.1), GUESS, ["examples-misclassified", "input-guessed"]),
        (_examples(labelled=0), GUESS, ["input-guessed"]),
        (_examples(labelled=0), NOTE, []),
        (_examples(softmax(LOGITS, axis=1)), (), ["probabilities"]),
        (_examples(log_softmax(LOGITS, axis=1)), (), ["probabilities"]),
        (_examples(softmax(LOGITS, axis=1) * 1.1), (), []),
        (_examples(gradient=0.0), (), ["gradients-zero"]),
        (_examples(gradient=float("nan")), (), []),
        (None, GUESS, []),
    ],
)
def test_flags(examples, findings, expected):
    assert _names(examples, findings) == expected


def test_the_accuracy_is_told():
    (raised,) = diagnose(MODEL, _examples(accuracy=0.25))
    assert "clean accuracy 0.25 on 6 labelled examples" in str(raised)


def test_a_network_without_a_last_layer_is_told():
    assert [raised.flag.name for raised in diagnose(HEADLESS, _examples())] == ["no-last-layer"]


def test_every_flag_stands_in_the_document():
    text = (Path(__file__).parents[1] / "docs" / "flags.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*) \| (.*) \|$", text, re.MULTILINE)
    assert rows == [(flag.name, flag.raised, flag.remedy) for flag in FLAGS]
