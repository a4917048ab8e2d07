"""The kind of docs/adding-a-trigger.md: one file and one row, added from outside the package."""

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jaxtroj.record_text import write_trigger
from jaxtroj.triggers.kinds import KINDS
from jaxtroj.triggers.measure import Candidates, best_of, measure, strongest_first
from tests.documented import first_example


@pytest.fixture
def checkerboard(tmp_path, monkeypatch):
    """The kind, with its row in the table."""
    kind = first_example("adding-a-trigger.md", tmp_path).Checkerboard
    monkeypatch.setitem(KINDS, kind.kind, kind)
    return kind


def test_the_example_is_measured_and_ranked(checkerboard, network, examples):
    """Its attack success rate is what the network says of the triggered pictures."""
    triggers = checkerboard(jnp.asarray([0.0, 0.4]), jnp.asarray([3.0, 3.0]))
    found = Candidates("boards", triggers, np.array([0, 1]), np.zeros(2, bool))
    measured = measure(network, examples, found)
    np.testing.assert_allclose(measured.sizes, [0.0, 0.4], rtol=1e-6)
    assert measured.rates[0] == 0.0, "a board of one grey sends nothing anywhere"
    board = checkerboard(jnp.asarray(0.4), jnp.asarray(3.0))
    logits = network.logits(board.apply(examples.images, examples.offsets()))
    others = np.asarray(examples.sources) != 1
    assert measured.rates[1] == (np.asarray(logits).argmax(-1) == 1)[others].mean()
    best = strongest_first([best_of(measured, examples)])[0]
    assert best.method == "boards" and best.trigger.kind == "checkerboard"


def test_the_example_has_a_picture_and_json(checkerboard, network, examples, tmp_path):
    triggers = checkerboard(jnp.asarray([0.25]), jnp.asarray([2.0]))
    found = Candidates("boards", triggers, np.array([0]), np.ones(1, bool))
    best = best_of(measure(network, examples, found), examples)
    facts = best.as_json()
    assert facts.pop("score") == best.attack_success_rate
    assert facts.pop("examples") == best.examples == (examples.sources != 0).sum()
    assert facts == {
        "method": "boards", "kind": "checkerboard", "amplitude": 0.25, "side": 2.0,
    }  # fmt: skip
    panels = best.picture(np.asarray(examples.images[0]))
    write_trigger(tmp_path / "trigger.png", panels)
    with Image.open(tmp_path / "trigger.png") as picture:
        assert len(panels) == 3 and picture.size == (3 * 216 + 2 * 8, 216)
