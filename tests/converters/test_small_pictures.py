"""State dicts of public networks for small pictures: read as what they are, or refused in words."""

import numpy as np
import pytest
import torch
from safetensors.numpy import load
from torch import nn
from torchvision import models
from torchvision.models.resnet import BasicBlock

from converters import open_artifact, open_model
from converters.errors import (
    ConversionError,
    ConverterError,
    SharedNamesError,
    UnsupportedArchitectureError,
)
from converters.findings import doubts
from converters.input_form import InputForm
from converters.rebuilt.network import rebuild
from converters.rewriting import open_rewritable
from converters.weights import Weights
from tests.converters.graph_parity import check_graph
from tests.converters.public_networks import (
    NETWORKS,
    SHARED,
    After,
    AfterBottleneck,
    Before,
    Plain,
    Stages,
    Wide,
    pictures,
    small_stem,
)

pytestmark = pytest.mark.usefixtures("unguarded")


def _rebuilt(network: nn.Module, pickled, public_code: str | None = None):
    return rebuild(open_artifact(pickled(network.state_dict())).weights, public_code)


@pytest.mark.parametrize("name", NETWORKS)
def test_logits_and_gradients_are_those_of_the_public_code(name, fill, pickled):
    build, side, architecture = NETWORKS[name]
    network = fill(build).requires_grad_(False)
    form = InputForm(image_size=(side, side), bounds=(0, 1), public_code=SHARED.get(name))
    opened = open_model(pickled(network.state_dict()), form)
    assert opened.model.architecture == architecture
    check_graph(opened.model, network, pictures(side))


@pytest.mark.parametrize("name", NETWORKS)
def test_what_a_state_dict_does_not_say_is_told(name, fill, pickled):
    rebuilt = _rebuilt(fill(NETWORKS[name][0]), pickled, SHARED.get(name))
    assert all("a state dict does not" in finding for finding in rebuilt.findings)
    assert rebuilt.findings
    assert not doubts(rebuilt.findings)
    named = [finding for finding in rebuilt.findings if "taken as those of" in finding]
    assert len(named) == (name in SHARED)
    assert all(f"those of {SHARED[name]} (" in finding for finding in named)


@pytest.mark.parametrize("name", SHARED)
def test_what_two_codes_name_alike_is_not_guessed(name, fill, pickled):
    path = pickled(fill(NETWORKS[name][0]).state_dict())
    for form in (InputForm(), *(InputForm(public_code=one) for one in _of_other_names(name))):
        with pytest.raises(SharedNamesError, match=f"--public-code {SHARED[name]}") as caught:
            open_model(path, form)
        assert len(caught.value.codes) == 2
        assert caught.value.digest and len(str(caught.value)) < 1000


def _of_other_names(name: str) -> tuple[str, str]:
    """Codes with other names of tensors: what they are says nothing of these."""
    wide = ("xternalz", "mixmatch")
    return ("no-first-pool", "huyvnphan") if SHARED[name] in wide else wide


def test_whose_code_it_is_is_a_name_of_the_table():
    with pytest.raises(ConversionError, match="must be one of no-first-pool, .* got 'mixmatsch'"):
        InputForm(public_code="mixmatsch")


@pytest.mark.parametrize("code", ["no-first-pool", "huyvnphan"])
def test_a_code_that_is_named_for_another_file_says_nothing(code, fill, pickled):
    network = fill(NETWORKS["ResNet of basic blocks"][0])
    rebuilt = _rebuilt(network, pickled, code)
    assert "taken as those of" not in " ".join(rebuilt.findings)


def test_names_of_trojanzoo_outrank_what_is_said(fill, pickled):
    state = fill(small_stem).state_dict()
    renamed = {f"{'classifier' if n.startswith('fc') else 'features'}.{n}": state[n] for n in state}
    weights = open_artifact(pickled(renamed)).weights
    for said in (None, "huyvnphan", "no-first-pool"):
        (finding,) = [one for one in rebuild(weights, said).findings if "taken as those" in one]
        assert "no-first-pool" in finding
    mixed = {n.replace("classifier.", ""): value for n, value in renamed.items()}
    with pytest.raises(SharedNamesError):
        rebuild(open_artifact(pickled(mixed)).weights)


@pytest.mark.parametrize("name", ["wide ResNet for MixMatch", "the same with its pool"])
def test_convert_takes_what_is_named_and_refuses_without(name, fill, pickled, tmp_path, capfd):
    from jaxtroj.cli.main import main

    out = tmp_path / "out"
    path = pickled(fill(NETWORKS[name][0]).state_dict())
    command = ["convert", str(path), "--out", str(out), "--image-size", "16x16"]
    assert main(command) == 2
    assert "public codes have these names" in capfd.readouterr().err and not out.exists()
    assert main([*command, "--check", "--public-code", SHARED[name]]) == 0
    assert "FAILED" not in capfd.readouterr().out


def _grey_plain() -> nn.Module:
    network = Plain()
    network.features[0] = nn.Conv2d(1, 4, 3, padding=1)
    return network


@pytest.mark.parametrize(
    ("build", "side"), [(lambda: Stages(After, (1, 1, 1), 8, channels=1), 28), (_grey_plain, 8)]
)
def test_grey_pictures(build, side, fill, pickled):
    network, images = fill(build), pictures(side, channels=1).float()
    form = InputForm(image_size=(side, side), bounds=(0, 1))
    opened = open_model(pickled(network.state_dict()), form)
    with torch.inference_mode():
        wanted = network(images).numpy()
    got = opened.model(images.permute(0, 2, 3, 1).numpy())
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_pictures_of_another_size_than_a_vgg_takes(fill, pickled):
    form = InputForm(image_size=(16, 16), bounds=(0, 1))
    with pytest.raises(ConversionError, match="16 x 16 pixels leave 48 .* which takes 12; give"):
        open_model(pickled(fill(Plain).state_dict()), form)


def _resnet() -> nn.Module:
    return models.ResNet(BasicBlock, [1, 1, 1, 1], num_classes=5)


@pytest.mark.parametrize("first", ["model.", "backbone.", "model._orig_mod.", "net.backbone."])
@pytest.mark.parametrize("build", [NETWORKS["PreActResNet"][0], _resnet])
def test_a_first_name_that_all_weights_have(build, first, fill, pickled):
    """As Lightning's modules write them; a file written again keeps its names."""
    state = fill(build).state_dict()
    form = InputForm(image_size=(32, 32), bounds=(0, 1))
    path = pickled({f"{first}{name}": value for name, value in state.items()})
    opened = open_model(path, form)
    assert f"the weights' names begin with {first}, which was left out" in opened.findings
    assert opened.model.config == open_model(pickled(state), form).model.config
    path = pickled({f"{first}{name}": value for name, value in state.items()})
    rewritable = open_rewritable(path, form)
    changed = {name: np.asarray(value) + 1 for name, value in rewritable.model.params.items()}
    written = load(rewritable.contents(changed))
    name = f"{first}conv1.weight"
    np.testing.assert_allclose(written[name], state["conv1.weight"].numpy() + 1, atol=1e-6)


@pytest.mark.parametrize("first", ["model.", 5 * "net."])
def test_first_names_that_are_not_dropped(first, fill, pickled):
    state = {f"{first}{name}": v for name, v in fill(_resnet).state_dict().items()}
    more = {"criterion.weight": torch.ones(3, 3)} if first == "model." else {}
    said = "1 others stand beside them: 'criterion.weight'" if more else "no family"
    with pytest.raises(UnsupportedArchitectureError, match=said):
        open_model(pickled(state | more))


def test_counters_of_averaged_weights_are_left_alone(fill, pickled):
    state = fill(lambda: Stages(After, (1, 1, 1), 8)).state_dict()
    state["bn1.num_batches_tracked"] = torch.tensor(0.5)
    rebuilt = rebuild(open_artifact(pickled(state)).weights)
    assert not rebuilt.module.bn1.num_batches_tracked.is_floating_point()


@pytest.mark.parametrize("head", ["fc", "linear"])
def test_another_head_is_named(head, fill, pickled):
    network = fill(small_stem if head == "fc" else lambda: Stages(After, (1, 1, 1), 8))
    state = _renamed(f"{head}.", f"{head}.1.")(network.state_dict())
    with pytest.raises(ConversionError, match=rf"{head}.weight is missing and there is {head}.1.w"):
        open_model(pickled(state))


def test_a_tensor_under_two_names(fill, pickled):
    state = fill(small_stem).state_dict() | {"features.bn1.weight": torch.ones(64)}
    with pytest.raises(ConversionError, match="bn1.weight and features.bn1.weight are two names"):
        open_model(pickled(state))


def test_a_whole_network_of_torchvision_with_a_fifth_stage(fill, pickled):
    network = fill(small_stem)
    network.layer5 = network.layer4
    with pytest.raises(ConversionError, match="got 5 stages, expected 4"):
        rebuild(open_artifact(pickled(network)).weights)


def test_a_checkpoint_with_pictures_beside_the_network(fill, pickled):
    """As BackdoorBench writes its attack_result.pt: the poisoned pictures lie in it, too."""
    network = fill(NETWORKS["PreActResNet"][0])
    beside = {"x": torch.rand(4, 3, 8, 8), "y": torch.arange(4), "original_index": np.arange(4)}
    content = {
        "model_name": "preactresnet18", "num_classes": 5, "model": network.state_dict(),
        "data_path": "data", "img_size": [16, 16, 3], "clean_data": "cifar10",
        "bd_train": beside, "bd_test": {"x": beside["x"], "y": beside["y"]},
    }  # fmt: skip
    opened = open_model(pickled(content), InputForm(image_size=(16, 16), bounds=(0, 1)))
    images = pictures(16)
    with torch.inference_mode():
        wanted = network.float()(images.float()).numpy()
    got = opened.model(images.permute(0, 2, 3, 1).numpy().astype(np.float32))
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
    assert any("taken from 'model'" in finding for finding in opened.findings)


@pytest.mark.parametrize("kernel", [3, 7])
def test_names_of_trojanzoo(kernel, fill, pickled):
    """Its networks hold torchvision's layers in `features` and `classifier`."""

    def build():
        network = small_stem()
        return network if kernel == 3 else models.ResNet(BasicBlock, [1, 1, 1, 1], num_classes=5)

    network = fill(build)
    renamed = {
        f"{'classifier' if name.startswith('fc') else 'features'}.{name}": value
        for name, value in network.state_dict().items()
    }
    images, form = pictures(32).float(), InputForm(image_size=(32, 32), bounds=(0, 1))
    path = pickled(renamed)
    opened = open_model(path, form)
    with torch.inference_mode():
        wanted = network(images).numpy()
    got = opened.model(images.permute(0, 2, 3, 1).numpy())
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)

    rewritable = open_rewritable(path, form)
    values = {name: np.asarray(value) + 1 for name, value in rewritable.model.params.items()}
    written = load(rewritable.contents(values))
    assert set(written) == set(renamed)
    for name in ("features.conv1.weight", "classifier.fc.bias"):
        np.testing.assert_array_equal(written[name], renamed[name].numpy() + 1)


def test_the_network_behind_names_of_trojanzoo_is_compared_with(fill, pickled):
    """As `convert --check` makes it of the file's own names."""
    state = fill(small_stem).state_dict()
    renamed = {f"{'classifier' if n.startswith('fc') else 'features'}.{n}": state[n] for n in state}
    assert rebuild(open_artifact(pickled(renamed)).weights).family.name == "resnet"


@pytest.mark.parametrize("has_pool", [False, True])
def test_a_whole_network_of_torchvision_says_whether_it_has_the_pool(has_pool, fill, pickled):
    network = fill(lambda: small_stem(has_pool))
    rebuilt = rebuild(open_artifact(pickled(network)).weights)
    images = pictures(32).float()
    with torch.inference_mode():
        assert torch.equal(rebuilt.module(images), network(images))
    assert not rebuilt.findings


def test_whole_networks_of_unseen_code_are_refused(fill, pickled):
    """What a class outside of torchvision computes stands in code that nobody reads."""
    with pytest.raises(ConverterError, match=r"Wide', which is not on .*torch.save\(network"):
        open_model(pickled(fill(NETWORKS["wide ResNet"][0])))


def _without(*parts: str):
    return lambda state: {n: v for n, v in state.items() if not any(p in n for p in parts)}


def _renamed(old: str, new: str):
    return lambda state: {n.replace(old, new): v for n, v in state.items()}


def _with(**tensors):
    return lambda state: state | {n.replace("__", "."): v for n, v in tensors.items()}


def _widened(state, stage: str, old: int, new: int):
    """Tensors of a stage with `new` channels in the place of `old` ones, and of the head."""
    return {
        n: v.new_zeros([new if side == old else side for side in v.shape])
        if n.startswith((stage, "linear.weight")) else v
        for n, v in state.items()
    }  # fmt: skip


REFUSED = {
    "a norm beside blocks that begin with one": (
        lambda: Stages(Before, (1, 1, 1), 8),
        _with(**{f"bn1__{n}": torch.ones(32) for n in
                 ("weight", "bias", "running_mean", "running_var")}),
        "no network that is rebuilt from these names",
    ),
    "no norm beside blocks that end with one": (
        lambda: Stages(After, (1, 1, 1), 8),
        lambda state: {n: v for n, v in state.items() if not n.startswith("bn1.")},
        "no network that is rebuilt from these names",
    ),
    "one width": (
        lambda: Stages(After, (2, 0, 0), 8), _renamed("layer1.1", "layer2.0"), "do not tell",
    ),
    "one stage": (lambda: Stages(After, (2,), 8), lambda state: state, "the stages .1."),
    "a stage left out": (
        lambda: Stages(After, (1, 1, 1), 8), _renamed("layer2.", "layer5."), "the stages .1, 3, 5.",
    ),
    "a block left out": (
        lambda: Stages(After, (1, 3, 1), 8), _without("layer2.1."), "layer2 has the blocks .0, 2.",
    ),
    "blocks of both kinds": (
        lambda: Stages(After, (1, 1, 1), 8),
        lambda state: state | {
            n.replace("layer2", "layer3"): v
            for n, v in Stages(Before, (1, 1), 16).state_dict().items() if "layer2" in n
        },
        "some say so, some so",
    ),
    "no weights beside a block that does not double": (
        lambda: Stages(AfterBottleneck, (1, 1), 4), _without("shortcut"), "without weights beside",
    ),
    "a head of many places": (
        lambda: Stages(After, (1, 1, 1), 8), _with(linear__weight=torch.zeros(5, 128)),
        "does not take the mean over all places",
    ),
    "a kernel of two pixels": (
        lambda: Stages(After, (1, 1, 1), 8), _with(conv1__weight=torch.zeros(8, 3, 2, 2)),
        "has 2 pixels a side",
    ),
    "stages that do not double the channels, of which kuangliu's RegNet keeps the size": (
        lambda: Stages(AfterBottleneck, (1, 1, 1), 8, growth=1, groups=4),
        lambda state: _widened(state, "layer3.", 32, 40), "goes from 16 to 40 channels",
    ),
    "a first kernel of five pixels": (
        small_stem, _with(conv1__weight=torch.zeros(64, 3, 5, 5)), "has 5 pixels a side",
    ),
    "a norm in the shortcut of a block that begins with one": (
        lambda: Stages(Before, (1, 1, 1), 8), _with(layer2__0__shortcut__1__weight=torch.ones(16)),
        "unused: layer2.0.shortcut.1.weight",
    ),
    "biases where norms come first": (
        lambda: Wide(1, 2), _with(block1__layer__0__conv1__bias=torch.zeros(16)), "unused: block1",
    ),
    "groups in a basic block": (
        lambda: Stages(After, (1, 1, 1), 8),
        _with(layer1__0__conv2__weight=torch.zeros(8, 4, 3, 3)), "misshapen: layer1.0.conv2.weight",
    ),
    "a shortcut of three pixels": (
        lambda: Stages(After, (1, 1, 1), 8),
        _with(layer2__0__shortcut__0__weight=torch.zeros(16, 8, 3, 3)), "misshapen: layer2.0.short",
    ),
    "another tensor": (
        lambda: Wide(1, 2), _with(attention__weight=torch.zeros(4, 4)), "unused: attention.weight",
    ),
    "more than a pool in a gap": (
        Plain,
        lambda state: {n.replace("s.12.", "s.14.").replace("s.11.", "s.13."): v
                       for n, v in state.items()},
        "unknown layers",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_leaves_two_networks_possible_is_refused(case, fill, pickled):
    build, change, words = REFUSED[case]
    state = change(fill(build).state_dict())
    with pytest.raises(ConversionError, match=words) as caught:
        rebuild(open_artifact(pickled(state)).weights)
    assert len(str(caught.value)) < 1500


HOSTILE = {
    "nothing in a kernel": {"layer1.0.conv1.weight": np.zeros((0, 8, 3, 3), np.float32)},
    "a matrix for a kernel": {"layer1.0.conv1.weight": np.zeros((8, 8), np.float32)},
    "thousands of blocks": {
        f"layer1.{n}.conv1.weight": np.zeros((8, 8, 3, 3), np.float32) for n in range(1, 3000)
    },
    "far blocks": {"layer1.9999.conv1.weight": np.zeros((8, 8, 3, 3), np.float32)},
    "text": {"linear.weight": np.zeros((5, 32), "S4")},
    "NaN": {"linear.bias": np.full(5, np.nan, np.float32)},
    "a wide norm": {
        f"layer2.0.bn2.{n}": np.ones(17, np.float32)
        for n in ("weight", "bias", "running_mean", "running_var")
    },
    "a wide first norm": {
        f"bn1.{n}": np.ones(9, np.float32)
        for n in ("weight", "bias", "running_mean", "running_var")
    },
}


@pytest.mark.parametrize("case", HOSTILE)
def test_lying_tensors_are_refused(case, fill):
    state = fill(lambda: Stages(After, (1, 1, 1), 8)).state_dict()
    tensors = {name: value.numpy() for name, value in state.items()}
    with pytest.raises(ConverterError):
        rebuild(Weights({**tensors, **HOSTILE[case]}))


def test_thousands_of_convolutions_are_refused_at_once(fill):
    state = {name: value.numpy() for name, value in fill(Plain).state_dict().items()}
    kernel = np.zeros((12, 12, 3, 3), np.float32)
    more = {f"features.{n}.weight": kernel for n in range(15, 5000, 3)}
    with pytest.raises(ConverterError, match="convolutions, expected at most 200"):
        rebuild(Weights({**state, **more}))


def test_an_error_of_thousands_of_names_is_short(fill):
    state = {name: value.numpy() for name, value in fill(small_stem).state_dict().items()}
    more = {f"{'x' * 1000}{n}": np.zeros(1, np.float32) for n in range(3000)}
    with pytest.raises(ConverterError, match="2800 more") as caught:
        rebuild(Weights({**state, **more}))
    assert len(str(caught.value)) < 50_000
