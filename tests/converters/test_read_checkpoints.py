"""Checkpoint dicts: where the weights are, what lies beside them, and when that is unclear."""

import argparse
import hashlib
import pathlib
import pickle
from collections import Counter, OrderedDict, defaultdict

import numpy as np
import pytest
import torch
from PIL import Image

from converters.artifact import open_artifact
from converters.errors import LoadError, UnknownFormatError

nn = torch.nn

STATE = {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.tensor([1.0, 2.0])}

OTHER = {name: tensor + 1 for name, tensor in STATE.items()}


def read_back(value, tmp_path, zipped=True):
    torch.save(value, tmp_path / "model.pt", _use_new_zipfile_serialization=zipped)
    return open_artifact(tmp_path / "model.pt")


def check_state(artifact) -> None:
    assert list(artifact.weights.tensors) == ["weight", "bias"]
    np.testing.assert_array_equal(artifact.weights.tensors["weight"], STATE["weight"].numpy())


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model", "net"])
def test_usual_keys(key, zipped, tmp_path):
    artifact = read_back({"epoch": 3, key: STATE, "accuracy": 0.5}, tmp_path, zipped)
    check_state(artifact)
    assert artifact.findings == (
        f"weights taken from {key!r} of a checkpoint; ignored beside it: 'epoch', 'accuracy'",
    )
    assert artifact.weights.metadata == {"epoch": 3, "accuracy": 0.5}


def test_unusual_key_that_holds_the_only_weights(tmp_path):
    check_state(read_back({"stuff": STATE, "epoch": 1}, tmp_path))


def test_whole_network_in_a_checkpoint(tmp_path):
    network = nn.Linear(3, 2)
    artifact = read_back({"model": network, "epoch": 1}, tmp_path)
    assert list(artifact.weights.tensors) == ["weight", "bias"]
    assert artifact.weights.modules[""].attributes["in_features"] == 3


def test_checkpoint_in_a_checkpoint(tmp_path):
    artifact = read_back({"model": {"state_dict": STATE, "epoch": 2}}, tmp_path)
    check_state(artifact)
    assert artifact.weights.metadata == {"model.epoch": 2}


def test_optimizer_beside_the_weights(tmp_path):
    network = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2])
    artifact = read_back(
        {
            "net": network.state_dict(),
            "optimizer": optimizer.state_dict(),
            "lr_scheduler": schedule.state_dict(),
        },
        tmp_path,
    )
    assert list(artifact.weights.tensors) == ["weight", "bias"]
    assert "'optimizer'" in artifact.findings[0]


def test_single_tensor_beside_the_weights(tmp_path):
    check_state(read_back({"state_dict": STATE, "best": torch.tensor(0.9)}, tmp_path))


@pytest.mark.parametrize("key", ["netC", "classifier", "net_state_dict"])
def test_loose_tensors_beside_a_classifier(key, tmp_path):
    """As in WaNet's checkpoints, whose grids were taken for the network."""
    grids = {"identity_grid": torch.ones(2), "noise_grid": torch.ones(2)}
    check_state(read_back({key: STATE, "schedulerC": {}, **grids}, tmp_path))


@pytest.mark.parametrize("prefix", ["", "module.", "model."])
def test_weights_in_a_state_dict_and_beside_it(prefix, tmp_path):
    """`load_state_dict(checkpoint, strict=False)` takes those beside it, others those in it."""
    loose = {f"{prefix}{name}": tensor + 1 for name, tensor in STATE.items()}
    with pytest.raises(UnknownFormatError, match="twice, in 'state_dict' and beside it"):
        read_back({"state_dict": STATE, **loose}, tmp_path)


def test_extra_entries_of_a_state_dict(tmp_path):
    artifact = read_back({**STATE, "epoch": 3}, tmp_path)
    check_state(artifact)
    assert artifact.findings == ("1 entries of the state dict are no tensors: 'epoch'",)
    assert artifact.weights.metadata == {"epoch": 3}


@pytest.mark.parametrize(
    "value",
    [
        {"state_dict": STATE, "model": OTHER},
        {"state_dict": STATE, "state_dict_ema": OTHER},
        {"state_dict": STATE, "state_dict_ema": STATE, "ema": OTHER},
        {"state_dict": STATE, "model": {**STATE, "epoch": 3}},
        {"generator": STATE, "discriminator": STATE},
        {"netC": STATE, "netG": STATE, "identity_grid": torch.ones(2)},
        {"classifier": STATE, "features": STATE},
        {"classifier": STATE, "model": STATE},
        {"net_state_dict": STATE, "ema_state_dict": OTHER},
        {"model": nn.Linear(1, 1), "net": nn.Linear(1, 1)},
        {"state_dict": STATE, "best_state_dict": OTHER, "epoch": 1},
        {"state_dict": STATE, "swa": {f"module.{name}": part for name, part in OTHER.items()}},
        {"net": nn.Sequential(nn.Linear(1, 1)), "best": nn.Sequential(nn.Linear(1, 1))},
    ],
)
def test_several_networks_are_ambiguous(value, tmp_path):
    with pytest.raises(UnknownFormatError, match="[23] networks under") as refused:
        read_back(value, tmp_path)
    assert str(refused.value).endswith("['state_dict'], 'one.pth')") == ("state_dict" in value)
    assert ("weights_only=True" in str(refused.value)) == ("net" not in value)


def test_the_line_that_saves_one_network_works(tmp_path, monkeypatch):
    """timm keeps the arguments of its training script beside two networks."""
    args = argparse.Namespace(lr=0.1)
    with pytest.raises(UnknownFormatError, match="2 networks under") as refused:
        read_back({"args": args, "state_dict": STATE, "state_dict_ema": OTHER}, tmp_path)
    line = str(refused.value).partition("such as ")[2]
    monkeypatch.chdir(tmp_path)
    with torch.serialization.safe_globals([]):
        exec(line, {"torch": torch, "argparse": argparse, "FILE": "model.pt"})
    check_state(read_back(torch.load("one.pth", weights_only=True), tmp_path))


def test_networks_that_are_equal_are_one(tmp_path):
    copy = {name: tensor.clone() for name, tensor in STATE.items()}
    artifact = read_back({"model": STATE, "ema": copy, "epoch": 3}, tmp_path)
    check_state(artifact)
    assert artifact.findings[0] == "equal tensor for tensor, so one network: 'model', 'ema'"
    assert artifact.findings[1].startswith("weights taken from 'model' of a checkpoint")
    assert "'model', 'best'" in read_back({"model": STATE, "best": copy}, tmp_path).findings[0]
    nan = {name: torch.full_like(tensor, torch.nan) for name, tensor in STATE.items()}
    assert read_back({"model": nan, "ema": nan}, tmp_path).findings[0] == artifact.findings[0]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "without weights, with the keys none"),
        ({"epoch": 1}, "without weights, with the keys 'epoch'"),
        ({"model": {"layers": [1, 2]}}, "without weights"),
        ([STATE], "holds a list"),
        (torch.ones(3), "holds a TensorRef"),
        ("text", "holds 'text'"),
        (None, "holds None"),
        (nn.ReLU(), "network without tensors"),
        ({1: torch.ones(1)}, "without weights, with the keys 1"),
    ],
)
def test_files_without_weights(value, message, tmp_path):
    with pytest.raises(UnknownFormatError, match=message):
        read_back(value, tmp_path)


def test_values_of_training_scripts_are_understood(tmp_path):
    """Everything below is common in checkpoints; none of it is needed, all of it must be read."""
    Image.new("P", (2, 2)).save(tmp_path / "opened.png")
    opened = Image.open(tmp_path / "opened.png")
    beside = {
        "args": argparse.Namespace(lr=0.1, layers=[1, 2]),
        "best": np.float64(0.25),
        "count": np.int64(3),
        "flag": np.bool_(True),
        "name": np.str_("net"),
        "mean": np.arange(6, dtype=np.float32).reshape(2, 3),
        "classes": np.array(["a", "bc"]),
        "path": pathlib.PurePosixPath("a/b"),
        "device": torch.device("cuda", 1),
        "dtype": torch.float16,
        "size": torch.Size([1, 2]),
        "milestones": Counter({3: 1}),
        "ordered": OrderedDict(a=1),
        "default": defaultdict(list, a=[1]),
        "set": {1, 2},
        "frozen": frozenset({"a"}),
        "bytes": b"abc",
        "array": bytearray(b"abc"),
        "big": 10**25,
        "class": nn.BatchNorm2d,
        "activation": torch.nn.functional.relu,
        "tuple": (1, (2.5, "x"), None),
        "picture": Image.new("RGB", (3, 2), "red"),
        "opened": opened,
    }
    for protocol in (2, 4):
        torch.save({"model": STATE, **beside}, tmp_path / "m.pt", pickle_protocol=protocol)
        artifact = open_artifact(tmp_path / "m.pt")
        check_state(artifact)
        metadata = artifact.weights.metadata
        assert metadata["best"] == 0.25 and metadata["count"] == 3 and metadata["name"] == "net"
        assert metadata["device"] == "cuda:1" and metadata["dtype"] == "torch.float16"
        assert metadata["size"] == (1, 2) and metadata["ordered.a"] == 1
        assert metadata["tuple"] == (1, (2.5, "x"), None) and metadata["path"] == "a/b"


def test_numpy_state_dict_in_a_plain_pickle(tmp_path):
    path = tmp_path / "model.pkl"
    arrays = {"w": np.arange(6.0).reshape(2, 3), "f": np.asfortranarray(np.eye(3)[:2])}
    path.write_bytes(pickle.dumps(arrays, 2))
    artifact = open_artifact(path)
    assert artifact.format == "pickle"
    for name, array in arrays.items():
        np.testing.assert_array_equal(artifact.weights.tensors[name], array)


def test_big_endian_numpy_array(tmp_path):
    (tmp_path / "m.pkl").write_bytes(pickle.dumps({"w": np.arange(3, dtype=">i4")}, 2))
    array = open_artifact(tmp_path / "m.pkl").weights.tensors["w"]
    assert array.dtype == np.int32 and list(array) == [0, 1, 2]


def test_object_array_is_refused(tmp_path):
    (tmp_path / "m.pkl").write_bytes(pickle.dumps({"w": np.array([{}, 1], dtype=object)}, 2))
    with pytest.raises(LoadError, match="objects are refused"):
        open_artifact(tmp_path / "m.pkl")


def test_artifact_describes_the_file(tmp_path):
    artifact = read_back(STATE, tmp_path)
    content = (tmp_path / "model.pt").read_bytes()
    assert artifact.sha256 == hashlib.sha256(content).hexdigest()
    assert artifact.size == len(content)
    assert artifact.path == tmp_path / "model.pt"
    assert pickle.loads(pickle.dumps(artifact)).sha256 == artifact.sha256


def test_real_poisoned_file_named_tar(shared_data):
    """Others' file: a legacy stream under the name of a tar, with cuda storages."""
    path = shared_data / "backdoored" / "wrn16_cifar10_poisoned" / "state_dict.tar"
    artifact = open_artifact(path)
    assert artifact.format == "torch legacy stream"
    reference = torch.load(path, map_location="cpu", weights_only=False)["state_dict"]
    assert len(artifact.weights.tensors) == len(reference)
    for name, tensor in artifact.weights.tensors.items():
        np.testing.assert_array_equal(tensor, reference[name].numpy())
