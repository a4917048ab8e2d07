"""Real files by torch.save: every tensor equal to torch's own, in torch's order."""

import argparse
import io
import subprocess
import sys
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision import models

from converters.artifact import open_artifact
from converters.errors import CorruptFileError
from converters.pickles.unpickle import unpickle

DenseNet: Any = models.DenseNet  # typed for four blocks; it takes as many as there are

nn = torch.nn

CONTAINERS = {"torch zip": True, "torch legacy stream": False}
both_containers = pytest.mark.parametrize("container", sorted(CONTAINERS))


def as_numpy(tensor) -> np.ndarray:
    """Bits of a tensor, also of those types NumPy does not have."""
    if tensor.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        sized = torch.int16 if tensor.itemsize == 2 else torch.uint8
        return tensor.contiguous().view(sized).numpy()
    return tensor.detach().numpy()


def check_tensors(artifact, expected) -> None:
    """Names, order, types, shapes and every bit."""
    tensors = artifact.weights.tensors
    assert list(tensors) == list(expected)
    for name, tensor in expected.items():
        array, reference = tensors[name], as_numpy(tensor)
        assert array.dtype.name == str(tensor.dtype).removeprefix("torch.")
        assert array.flags.c_contiguous and array.flags.aligned
        np.testing.assert_array_equal(array.view(reference.dtype), reference, err_msg=name)


def save(value, path, container="torch zip", **options):
    torch.save(value, path, _use_new_zipfile_serialization=CONTAINERS[container], **options)
    return path


def build(name: str):
    torch.manual_seed(0)
    if name == "inception_v3":
        return models.inception_v3(num_classes=5, init_weights=False).eval()
    if name == "narrow densenet":
        return DenseNet(8, (2, 2), 16, num_classes=5).eval()
    return getattr(models, name)(num_classes=5).eval()


@both_containers
@pytest.mark.parametrize("name", ["resnet18", "narrow densenet", "inception_v3", "squeezenet1_1"])
def test_whole_torchvision_networks(name, container, tmp_path):
    network = build(name)
    artifact = open_artifact(save(network, tmp_path / "model.pt", container))
    assert artifact.format == container
    assert artifact.findings == ()
    check_tensors(artifact, network.state_dict())
    modules = artifact.weights.modules
    assert list(modules) == [name for name, _ in network.named_modules()]
    for name, module in network.named_modules():
        cls = type(module)
        assert modules[name].class_name == f"{cls.__module__}.{cls.__qualname__}"


def test_attributes_of_modules(tmp_path):
    network = build("inception_v3")
    modules = open_artifact(save(network, tmp_path / "model.pt")).weights.modules
    assert modules[""].attributes["transform_input"] is False
    assert modules[""].attributes["training"] is False
    conv = modules["Conv2d_1a_3x3.conv"].attributes
    assert (conv["stride"], conv["padding"], conv["groups"]) == ((2, 2), (0, 0), 1)
    norm = modules["Conv2d_1a_3x3.bn"].attributes
    assert (norm["eps"], norm["momentum"], norm["affine"]) == (0.001, 0.1, True)
    assert modules["dropout"].attributes["p"] == 0.5
    assert modules["fc"].attributes["in_features"] == 2048
    assert modules["maxpool1"].attributes["kernel_size"] == 3


@both_containers
def test_state_dict(container, tmp_path):
    state = build("resnet18").state_dict()
    artifact = open_artifact(save(state, tmp_path / "any.name", container))
    check_tensors(artifact, state)
    assert artifact.weights.modules == {}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@both_containers
def test_pickle_protocols(container, protocol, tmp_path):
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    path = save(network, tmp_path / "model.pt", container, pickle_protocol=protocol)
    check_tensors(open_artifact(path), network.state_dict())


def test_file_without_archive_root_name(tmp_path):
    """`torch.save` to a buffer, and a renamed file: the root is not the file's name."""
    network = nn.Linear(3, 2)
    buffer = io.BytesIO()
    torch.save(network, buffer)
    (tmp_path / "x.tar").write_bytes(buffer.getvalue())
    check_tensors(open_artifact(tmp_path / "x.tar"), network.state_dict())
    save(network, tmp_path / "LstmLinearModel.pt.1234").rename(tmp_path / "model.pt")
    check_tensors(open_artifact(tmp_path / "model.pt"), network.state_dict())


@both_containers
@pytest.mark.parametrize("depth", [1, 2])
def test_data_parallel_is_unwrapped(depth, container, tmp_path):
    network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    wrapped = network
    for _ in range(depth):
        wrapped = nn.DataParallel(wrapped)
    artifact = open_artifact(save(wrapped, tmp_path / "model.pt", container))
    check_tensors(artifact, network.state_dict())
    assert len(artifact.findings) == depth and "DataParallel" in artifact.findings[0]
    assert artifact.weights.modules[""].class_name.endswith("Sequential")
    artifact = open_artifact(save(wrapped.state_dict(), tmp_path / "state.pt", container))
    check_tensors(artifact, network.state_dict())
    assert len(artifact.findings) == depth and "prefix 'module.'" in artifact.findings[0]


def test_prefix_that_only_some_names_have_is_kept(tmp_path):
    state = {"module.a": torch.ones(1), "b": torch.ones(1)}
    artifact = open_artifact(save(state, tmp_path / "model.pt"))
    check_tensors(artifact, state)
    assert artifact.findings == ()


@both_containers
def test_buffers_that_are_not_persistent_are_left_out(container, tmp_path):
    network = nn.BatchNorm1d(2)
    network.register_buffer("scratch", torch.ones(1), persistent=False)
    network.register_buffer("kept", torch.ones(1))
    network.register_buffer("nothing", None)
    artifact = open_artifact(save(network, tmp_path / "model.pt", container))
    check_tensors(artifact, network.state_dict())


def test_shared_submodules_appear_under_each_name(tmp_path):
    shared = nn.Linear(2, 2)
    network = nn.Sequential(shared, nn.ReLU(), shared)
    artifact = open_artifact(save(network, tmp_path / "model.pt"))
    check_tensors(artifact, network.state_dict())
    first, second = (artifact.weights.tensors[f"{i}.weight"] for i in (0, 2))
    assert np.shares_memory(first, second)


def test_hooks_of_gradients_are_a_finding(tmp_path):
    network = nn.Sequential(nn.Linear(2, 2))
    hook: Any = torch.nn.functional.relu  # importable, which is all that a pickle asks
    network[0].register_full_backward_hook(hook)
    artifact = open_artifact(save(network, tmp_path / "model.pt"))
    assert artifact.findings == (
        "entries in _backward_hooks, which is not run: 1 modules, such as '0'",
    )


@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_of_the_forward_pass_are_refused(kind, tmp_path):
    network = nn.Sequential(nn.Linear(2, 2))
    getattr(network[0], kind)(torch.nn.functional.relu)
    with pytest.raises(CorruptFileError, match="functions that torch runs"):
        open_artifact(save(network, tmp_path / "model.pt"))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_weights_that_hooks_compute(tmp_path):
    """Refused in a network, which names the function that removes them; a finding in a state."""
    network = nn.Sequential(torch.nn.utils.weight_norm(nn.Linear(2, 2)))
    with pytest.raises(CorruptFileError, match="remove_weight_norm"):
        open_artifact(save(network, tmp_path / "model.pt"))
    old = open_artifact(save(network.state_dict(), tmp_path / "old.pt"))
    assert any("parametrise" in finding for finding in old.findings)
    new = torch.nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    state = open_artifact(save(new.state_dict(), tmp_path / "state.pt"))
    assert any("parametrise" in finding for finding in state.findings)


METHODS = (
    "forward _apply cuda cpu double bfloat16 items values get_relative_position_bias "
    "get_relative_positional_bias merge_masks get_expected_cell_size flatten_parameters"
).split()


@pytest.mark.parametrize("name", METHODS)
def test_attribute_that_replaces_code_is_refused(name, tmp_path):
    """Whatever it is: also what is allowed under other names."""
    network = nn.Linear(2, 2)
    network.__dict__[name] = torch.float32
    with pytest.raises(CorruptFileError, match=f"an attribute {name}"):
        open_artifact(save(network, tmp_path / "model.pt"))


@pytest.mark.parametrize("value", [nn.BatchNorm2d, partial(nn.LayerNorm, eps=1e-6), torch.Tensor])
def test_what_could_be_run_is_refused_under_any_other_name(value, tmp_path):
    network = nn.Linear(2, 2)
    network.__dict__["other_name"] = value
    with pytest.raises(CorruptFileError, match="'other_name', which its code may run"):
        open_artifact(save(network, tmp_path / "model.pt"))


KEPT = {
    "a class of norms": ("_norm_layer", nn.BatchNorm2d),
    "a partial of one": ("norm_layer", partial(nn.LayerNorm, eps=1e-6)),
    "a type of numbers": ("dtype", torch.float16),
    "arguments of a script": ("args", argparse.Namespace(epochs=3)),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_no_forward_pass_runs_may_be_kept(case, tmp_path):
    network = nn.Linear(2, 2)
    name, value = KEPT[case]
    network.__dict__[name] = value
    check_tensors(open_artifact(save(network, tmp_path / "model.pt")), network.state_dict())


@both_containers
def test_networks_of_torch_1_2(container, tmp_path):
    """Rounds 0 and 1: no set of non-persistent buffers, no newer hook tables."""
    network = build("narrow densenet")
    expected = network.state_dict()
    for module in network.modules():
        for key in list(vars(module)):
            if key.startswith("_") and key not in ("_parameters", "_buffers", "_modules"):
                if not key.endswith("_hooks") or "pre" in key:
                    del vars(module)[key]
    check_tensors(open_artifact(save(network, tmp_path / "model.pt", container)), expected)


def test_marker_of_modules_before_torch_1_2():
    value, _ = unpickle(b"\x80\x02ctorch.nn.backends.thnn\n_get_thnn_function_backend\n)R.")
    assert value is None


@both_containers
def test_memory_stays_near_the_size_of_the_file(container, tmp_path):
    network = nn.Linear(2048, 2048)
    path = save(network, tmp_path / "model.pt", container)
    tracemalloc.start()
    artifact = open_artifact(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Legacy storages are copied once, to align them.
    assert peak < artifact.size * (1.1 if container == "torch zip" else 2.1)


def test_reading_loads_no_framework(tmp_path):
    path = save(build("resnet18"), tmp_path / "model.pt")
    legacy = save(build("narrow densenet"), tmp_path / "legacy.pt", "torch legacy stream")
    script = (
        "import sys\n"
        "from converters.artifact import open_artifact\n"
        "for path in sys.argv[1:]: assert open_artifact(path).weights.tensors\n"
        "names = {'torch', 'torchvision', 'model_factories', 'timm', 'jax', 'flax'}\n"
        "print(sorted(names & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, path, legacy],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
