"""Torch networks with random weights, and their files, for the tests of conversion."""

import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from converters.artifact import Artifact
from converters.weights import Weights
from tests.loading import module_at


def _random_tensor(name: str, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Values under which activations neither vanish nor explode; statistics are not 0 and 1."""
    if name.endswith("num_batches_tracked"):
        return np.array(7, np.int64)
    if name.endswith("running_var"):
        return random.uniform(0.5, 2.0, shape).astype(np.float32)
    if len(shape) == 1:
        centre = 1.0 if name.endswith("weight") else 0.0
        return (centre + 0.1 * random.standard_normal(shape)).astype(np.float32)
    values = random.standard_normal(shape, np.float32)
    return values * np.float32((2.0 / np.prod(shape[1:])) ** 0.5)


@pytest.fixture(autouse=True)
def _compiled_quickly(request):
    """Programs run once or twice each; grouped convolutions would then run for minutes."""
    if "resnext" not in request.node.name:
        request.getfixturevalue("quick_compilation")


@pytest.fixture(scope="session")
def fill():
    """`fill(build, seed=0)`: the torch module that `build()` makes, with random weights."""
    # The pictures are tiny: more threads would only wait for each other.
    torch.set_num_threads(1)

    def filled(build, seed: int = 0):
        # Without this, torch spends most of the time on weights that are replaced.
        with torch.device("meta"):
            module = build().eval()
        random = np.random.default_rng(seed)
        state = module.state_dict()  # with the versions that some modules ask for
        tables = [n for n, v in state.items() if v.ndim and not v.is_floating_point()]
        known = build().state_dict() if tables else {}
        for name, value in state.items():
            made = torch.from_numpy(_random_tensor(name, tuple(value.shape), random))
            state[name] = known[name] if name in tables else made
        module.load_state_dict(state, strict=True, assign=True)
        return module.requires_grad_(True)

    return filled


@pytest.fixture(scope="session")
def artifact_of():
    """`artifact_of(tensors or module)`: as if read from a state dict file."""

    def made(source) -> Artifact:
        tensors = source if isinstance(source, dict) else source.state_dict()
        arrays = {n: t if isinstance(t, np.ndarray) else t.numpy() for n, t in tensors.items()}
        return Artifact(Path("model.pt"), "test", "0" * 64, 1, (), Weights(arrays))

    return made


@pytest.fixture
def pickled(tmp_path):
    """`pickled(value)`: path of a file that torch saved it to."""

    def saved(value) -> Path:
        torch.save(value, tmp_path / "model.pt")
        return tmp_path / "model.pt"

    return saved


@pytest.fixture
def old_class(monkeypatch):
    """`old_class("package.module.Name", base)`: a class that pickles under that name.

    For objects that an older library would write; its modules are gone after the test.
    """

    def made(name: str, base: type = object) -> type:
        module, _, short = name.rpartition(".")
        home = sys.modules.get(module)
        if not isinstance(home, _OldModule):
            home = _OldModule(module)
            monkeypatch.setitem(sys.modules, module, home)
        cls = type(short, (base,), {"__module__": module})
        setattr(home, short, cls)
        return cls

    return made


class _OldModule(types.ModuleType):
    """A module that holds only what a test put there."""


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """`folders(kind)`: an encoder of transformers and its folder, made once."""
    from tests.converters.encoder_models import reference

    made = {}

    def of(kind: str):
        if kind not in made:
            model = reference(kind)
            made[kind] = model, tmp_path_factory.mktemp(kind)
            model.save_pretrained(made[kind][1])
        return made[kind]

    return of


@pytest.fixture(scope="module")
def factories(tmp_path_factory):
    """TrojAI's module `model_factories`, importable only while the tests of a file write models."""
    from tests.converters.head_models import SOURCE

    path = tmp_path_factory.mktemp("factories") / "model_factories.py"
    path.write_text(SOURCE)
    yield module_at(path)
    del sys.modules["model_factories"]


@pytest.fixture
def written(factories, tmp_path, monkeypatch):
    """`written(value, legacy)`: a file torch saved; from then on model_factories is not there."""

    def saved(value, legacy: bool = False):
        path = tmp_path / "model.pt"
        torch.save(value, path, _use_new_zipfile_serialization=not legacy)
        monkeypatch.setitem(sys.modules, "model_factories", None)
        return path

    return saved
