"""The method of docs/adding-a-method.md: one file and one row, added from outside the package."""

import jax
import numpy as np

from jaxtroj.inversion.driver import Rung
from jaxtroj.inversion.searches import Known, SearchPlan, from_keys, run_search
from jaxtroj.triggers.blend import Blend
from jaxtroj.triggers.measure import best_of
from jaxtroj.triggers.patch import random_patches
from tests.documented import first_example


def test_the_example_finds_a_trigger(network, examples, tmp_path):
    """Each class of this network answers to one channel: a blend of that colour reaches it."""
    method = first_example("adding-a-method.md", tmp_path).BlendSearch()
    row = SearchPlan(method, (Rung(6, 4), Rung(3, 8)), from_keys)
    patches = random_patches(jax.random.key(0), 3, 3, (0.1,))
    known = Known(np.arange(3), patches, np.zeros(3), jax.random.key(1))
    found = run_search(row, network, (examples, examples), known)
    assert found.found.method == method.name
    np.testing.assert_allclose(found.sizes, 0.2, rtol=1e-6)
    best = best_of(found, examples)
    assert isinstance(best.trigger, Blend) and best.attack_success_rate == 1.0
    colour = np.asarray(best.trigger.pattern).mean(axis=(0, 1))
    assert colour.argmax() == best.target_class
