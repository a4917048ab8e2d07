"""Hugging Face folders: rebuilt without remote code, equal to the library's own networks."""

import hashlib
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.numpy import load_file, save_file

import jaxtroj
from converters import load_checkpoint, open_model
from converters.errors import ConverterError, MismatchError, UnsafeConfigError
from converters.hub.classifier import rebuild
from converters.hub.folder import read_hub_folder
from jaxtroj.cli.main import main
from jaxtroj.rounds import iter_models
from jaxtroj.rounds.arrays import pictures_of as pictures_in
from jaxtroj.rounds.arrays import write_pictures
from jaxtroj.scan import identify, scan_model
from jaxtroj.scan.attempt import Attempt
from jaxtroj.scan.opening import open_model as open_attempt
from jaxtroj.scan.pictures import pictures_of
from tests.door.conftest import cheap
from tests.door.hub_folders import (
    FAMILIES,
    SIDE,
    change,
    values,
    with_teacher,
    write_folder,
    write_whole,
)

pytestmark = pytest.mark.usefixtures("quick_compilation", "unguarded")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PICTURES = np.random.default_rng(0).integers(0, 256, (3, 40, 48, 3)).astype(np.uint8)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_gradients_are_the_librarys(tmp_path, family):
    folder = write_folder(tmp_path / family, family)
    opened = open_model(folder, usual_size=PICTURES.shape[1:3])
    network = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    with torch.no_grad():
        expected = network(**processor(list(PICTURES), return_tensors="pt")).logits.numpy()
    form = opened.folder_form
    pictures = form.resized(PICTURES)
    assert pictures.shape == (3, SIDE, SIDE, 3) and np.abs(expected).max() > 0.01
    images = pictures[..., ::-1] if form.channel_order == "BGR" else pictures
    logits, gradients = values(opened.model, images.astype(np.float32) / 255)
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    white, black = (form.prepared(np.full_like(pictures, level)) for level in (255, 0))
    slopes = _slopes(network, form.prepared(pictures)) * (white - black)
    np.testing.assert_allclose(gradients, slopes, atol=1e-4 * np.abs(slopes).max())
    assert np.abs(slopes).max() > 1e-6
    assert "classes of the folder: 0 'cat', 1 'dog', 2 'owl'" in opened.findings


@pytest.mark.parametrize("family", ["deit", "levit"])
def test_a_network_with_its_teacher_answers_by_both_heads(tmp_path, family):
    network = with_teacher(family)
    network.save_pretrained(tmp_path)
    pixels = torch.rand(2, 3, SIDE, SIDE)
    found = network(pixels)
    model = open_model(tmp_path, usual_size=(SIDE, SIDE)).model
    expected = found.logits.detach().numpy()
    np.testing.assert_allclose(model(pixels.permute(0, 2, 3, 1).numpy()), expected, atol=1e-5)
    assert (found.cls_logits - found.logits).abs().max() > 1e-3


def _slopes(network, images: np.ndarray) -> np.ndarray:
    """Gradients of the first class of torch's network, of prepared pictures `[n, h, w, c]`."""
    pixels = torch.tensor(images, dtype=torch.float32).permute(0, 3, 1, 2).requires_grad_()
    (slopes,) = torch.autograd.grad(network(pixels).logits[:, 0].sum(), pixels)
    return slopes.permute(0, 2, 3, 1).numpy()


WHOLE = {
    # EfficientNet's own pictures of 600 pixels take minutes.
    **{family: 224 for family in FAMILIES if family != "efficientnet"},
    "mobilevit": 256,
    "timm resnet18": 224,
    "timm convnext_atto": 224,
    "timm mobilenetv3_small_100": 224,
    "timm vit_tiny_patch16_224": 224,
}
"""Networks as their libraries make them, by the side of their pictures."""


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_networks_of_full_size_have_the_librarys_logits(tmp_path, name, record_property):
    side, (library, _, network) = WHOLE[name], name.rpartition(" ")
    if library:
        timm = pytest.importorskip("timm", reason="an optional library")
        torch.manual_seed(0)
        made = timm.create_model(network, num_classes=3).eval()
        timm.models.save_for_hf(made, str(tmp_path), safe_serialization=True)
        front = made.pretrained_cfg
        mean, std = (np.array(front[key], np.float32) for key in ("mean", "std"))
    else:
        write_whole(tmp_path, name)
        made = transformers.AutoModelForImageClassification.from_pretrained(tmp_path).eval()
        mean, std = np.zeros(3, np.float32), np.ones(3, np.float32)
    images = np.random.default_rng(0).random((2, side, side, 3), np.float32)
    with torch.no_grad():
        found = made(torch.tensor((images - mean) / std).permute(0, 3, 1, 2))
    expected = (found if library else found.logits).numpy()
    model = open_model(tmp_path, usual_size=(side, side)).model
    assert model.image_size in (None, (side, side))
    record_property("parameters", sum(value.size for value in model.params.values()))
    record_property("largest_logit", float(np.abs(expected).max()))
    record_property("largest_difference", float(np.abs(model(images) - expected).max()))
    np.testing.assert_allclose(model(images), expected, atol=1e-4)
    gradients = jax.grad(lambda x: model(x)[:, 0].sum())(images[:1])
    record_property("largest_gradient", float(np.abs(gradients).max()))
    assert np.isfinite(gradients).all() and np.abs(gradients).max() > 0


def in_cache(vit: Path, home: Path) -> Path:
    """The folder as the hub's client keeps it."""
    snapshot = home / "snapshots" / COMMIT
    for name in ("blobs", "refs"):
        (home / name).mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for file in vit.iterdir():
        blob = home / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
        shutil.copy(file, blob)
        (snapshot / file.name).symlink_to(Path("../../blobs") / blob.name)
    (home / "refs" / "main").write_text(COMMIT)
    return home


def test_a_cache_is_followed_to_its_snapshot(vit, tmp_path):
    home = in_cache(vit, tmp_path / "models--org--vit")
    opened = open_model(home)
    assert opened.sha256 == open_model(vit).sha256
    assert opened.findings[0] == f"commit {COMMIT} of org/vit"
    weights = hashlib.sha256((vit / "model.safetensors").read_bytes()).hexdigest()
    assert f"model.safetensors: sha256 {weights}" in opened.findings
    (entry,) = iter_models(home)
    assert entry.model_path == home
    (home / "refs" / "main").write_text("f" * 40)
    assert open_model(home).sha256 == opened.sha256  # the only snapshot there is
    (home / "snapshots" / ("e" * 40)).mkdir()
    with pytest.raises(ConverterError, match=f"has no snapshot 'f+' of 'main'; it has '{COMMIT}"):
        open_model(home)


def test_the_digest_is_of_all_files_that_decide_the_network(folder):
    """Accepted findings, in-toto and CycloneDX go by it; the weights alone may be two networks."""
    names = ("config.json", "model.safetensors", "preprocessor_config.json")
    lines = [f"{hashlib.sha256((folder / n).read_bytes()).hexdigest()}  {n}\n" for n in names]
    found = [open_model(folder).sha256]
    assert found == [hashlib.sha256("".join(lines).encode()).hexdigest()]
    (folder / "README.md").write_text("decides nothing")
    assert open_model(folder).sha256 == found[0]
    for name, key in [("config.json", "hidden_act"), ("preprocessor_config.json", "image_mean")]:
        said = json.loads((folder / name).read_text())
        value = "relu" if key == "hidden_act" else [0.4, 0.5, 0.5]
        (folder / name).write_text(json.dumps(said | {key: value}))
        found.append(open_model(folder).sha256)
    assert len(set(found)) == 3
    record = scan_model(jaxtroj.ModelEntry("vit", folder, None, None), cheap("weights"))
    assert record.sha256 == found[-1]


def test_a_cache_whose_file_is_another_is_refused(vit, tmp_path):
    home = in_cache(vit, tmp_path / "models--org--vit")
    blob = (home / "snapshots" / COMMIT / "config.json").resolve()
    blob.write_text(blob.read_text() + "\n")
    with pytest.raises(
        ConverterError, match="the cache keeps config.json as [0-9a-f]{64}, its sha"
    ):
        open_model(home)


def test_convert_writes_the_network_alone(vit, tmp_path, capfd):
    assert main(["convert", str(vit), "--out", str(tmp_path / "made")]) == 0
    assert "without mean and deviation" in capfd.readouterr().err
    images = np.random.default_rng(0).random((2, SIDE, SIDE, 3), np.float32)
    inner = load_checkpoint(tmp_path / "made")(images * 2 - 1)
    np.testing.assert_allclose(inner, open_model(vit).model(images), atol=1e-5)


def test_a_folder_of_folders_is_a_dataset(vit, tmp_path):
    shutil.copytree(vit, tmp_path / "zoo" / "a")
    in_cache(vit, tmp_path / "zoo" / "models--org--b")
    assert [entry.model_id for entry in iter_models(tmp_path / "zoo")] == ["a", "models--org--b"]


def test_a_scan_takes_form_and_size_from_the_folder(folder, tmp_path):
    labels = np.arange(6) % 3
    pixels = np.random.default_rng(1).integers(0, 256, (6, 40, 40, 3))
    examples = write_pictures(pictures_in(pixels, labels), tmp_path / "examples")
    entry = jaxtroj.ModelEntry("vit", folder, examples, None)
    settings = cheap("weights")
    record = scan_model(entry, settings)
    assert record.status == "ok", record.reason
    expected = {"basis": "folder", "normalization": "unit", "channel_order": "RGB"}
    expected |= {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "bounds": None}
    assert {name: record.input_form[name] for name in expected} == expected
    assert any("resized from 40x40 to 32x32 pixels" in finding for finding in record.findings)
    before = identify(entry, settings)
    said = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(json.dumps(said | {"do_normalize": False}))
    assert identify(entry, settings) != before
    other = scan_model(entry, cheap("weights", mean=(0.1,), std=(0.2,)))
    assert other.status == "ok", other.reason
    assert other.input_form["mean"] == [0.1] and other.input_form["basis"] == "examples"


def test_class_folders_are_numbered_by_the_networks_own_names(folder, tmp_path):
    """Its names are cat, dog and owl; two that are swapped are not in the alphabet's order."""
    change(folder, id2label={"0": "cat", "1": "owl", "2": "dog"})
    for name in ("cat", "dog", "owl"):
        (tmp_path / "examples" / name).mkdir(parents=True)
        for number in range(2):
            picture = Image.fromarray(PICTURES[number]).resize((SIDE, SIDE))
            picture.save(tmp_path / "examples" / name / f"{number}.png")
    entry = jaxtroj.ModelEntry("vit", folder, tmp_path / "examples", None)
    attempt = Attempt(entry, cheap("weights"))
    pictures = pictures_of(attempt, open_attempt(attempt))
    assert pictures.labels.tolist() == [0, 0, 2, 2, 1, 1]
    assert any("class folders are numbered as the network's own" in f for f in attempt.findings)


def test_pictures_of_many_sizes_are_resized_as_the_folder_says(folder, tmp_path):
    examples = tmp_path / "examples"
    examples.mkdir()
    for number, size in enumerate([(40, 40), (33, 50), (SIDE, SIDE), (70, 35), (1, 20000)]):
        picture = Image.fromarray(PICTURES[0]).resize(size)
        picture.save(examples / f"class_{number % 3}_example_{number}.jpg")
    record = scan_model(jaxtroj.ModelEntry("vit", folder, examples, None), cheap("weights"))
    assert record.status == "ok", record.reason
    assert any("resized from 3 sizes to 32x32 pixels" in text for text in record.findings)
    assert "1 picture left out (class_1_example_4.jpg): 20000 x 1 pixels would be" in record.reason


_EXACT = {"size": {"height": SIDE, "width": SIDE}, "do_center_crop": False}
_CROPPED = {
    "size": {"shortest_edge": SIDE + 4},
    "crop_size": {"height": SIDE, "width": SIDE},
    "do_center_crop": True,
}
PROCESSORS = {
    "ViT": _EXACT,
    "ViT in bytes": _EXACT
    | {"do_rescale": False, "image_mean": [120.0] * 3, "image_std": [60.0] * 3},
    "ViT from -1 to 1": _EXACT | {"rescale_factor": 1 / 127.5, "image_mean": [1.0] * 3},
    "ViT alone": _EXACT | {"do_normalize": False},
    "DeiT": _CROPPED,
    "Beit": _EXACT,
    "ConvNext": {"size": {"shortest_edge": SIDE}},
    "MobileViT": _EXACT,
    "MobileViT as RGB": _EXACT | {"do_flip_channel_order": False},
    "CLIP": _CROPPED,
    "Bit": _CROPPED,
    "Levit": _CROPPED | {"size": {"shortest_edge": SIDE}},
    "PoolFormer": _CROPPED,
    "Siglip": _EXACT,
    "EfficientNet": _EXACT | {"include_top": False},
}
"""Ordinary processors, and how they are told to make pictures of `SIDE` pixels."""


def with_processor(folder: Path, name: str, how: dict) -> None:
    said = how | {"image_processor_type": f"{name.split()[0]}ImageProcessor"}
    (folder / "preprocessor_config.json").write_text(json.dumps(said))


@pytest.mark.parametrize("name", PROCESSORS)
def test_pixels_are_prepared_as_the_processor_does_it(folder, name):
    with_processor(folder, name, PROCESSORS[name])
    opened = open_model(folder, usual_size=PICTURES.shape[1:3])
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    network = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = network(**processor(list(PICTURES), return_tensors="pt")).logits.numpy()
    images = opened.folder_form.resized(PICTURES).astype(np.float32) / 255
    if opened.folder_form.channel_order == "BGR":
        images = images[..., ::-1]
    np.testing.assert_allclose(opened.model(images), expected, atol=1e-3)
    assert (opened.folder_form.channel_order == "BGR") == (name == "MobileViT")


MORE = {
    "EfficientNet": (
        _EXACT | {"include_top": False, "rescale_offset": True, "rescale_factor": 1 / 127.5},
        "json: EfficientNetImageProcessor with 'rescale_offset' makes other values",
    ),
    "SuperPoint": (_EXACT | {"do_grayscale": True}, "'do_grayscale' makes other values"),
    # It has no step that would do it.
    "MobileViT": (_EXACT | {"do_normalize": True}, "makes other values of pixels than size, crop"),
}


@pytest.mark.parametrize("name", MORE)
def test_processors_that_do_more_are_refused(folder, name):
    how, said = MORE[name]
    with_processor(folder, name, how)
    with pytest.raises(ConverterError, match=said):
        open_model(folder, usual_size=PICTURES.shape[1:3])


REMOTE = {"AutoModelForImageClassification": "modeling_evil.Evil"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"auto_map": REMOTE}, "'auto_map' is 'modeling_evil.Evil'"),
        ({"custom_pipelines": {"x": {"impl": "evil.py"}}}, "'custom_pipelines'"),
        ({"text_config": {"deep": [{"auto_map": REMOTE}]}}, "'auto_map'"),
        ({"attn_implementation": "evil/kernel"}, "'attn_implementation' is 'evil/kernel'"),
        ({"_attn_implementation_internal": "evil/kernel@main"}, "evil/kernel@main"),
    ],
)
@pytest.mark.parametrize("name", ["config.json", "preprocessor_config.json"])
def test_what_asks_for_remote_code_is_refused_by_name(folder, monkeypatch, changes, said, name):
    monkeypatch.chdir(folder)
    Path("modeling_evil.py").write_text("open('ran', 'w')")
    change(folder, name, **changes)
    with pytest.raises(UnsafeConfigError, match=said) as caught:
        open_model(folder)
    assert name in str(caught.value) and not Path("ran").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"architectures": ["ViTModel"]}, "says architectures 'ViTModel' of model_type 'vit'"),
        ({"architectures": ["A", "B"]}, "says architectures 'A', 'B'"),
        ({"architectures": None}, "says architectures None"),
        ({"model_type": "swin"}, "of model_type 'swin'; expected one of Beit"),
        ({"quantization_config": {"bits": 4}}, "quantised"),
        ({"transformers_weights": "b.safetensors"}, "has 'b.safetensors' loaded as weights"),
        ({"dtype": "float16"}, "loaded as float16, which 16 tensors, such as"),
        ({"dtype": None, "torch_dtype": "bfloat16"}, "loaded as bfloat16"),
        ({"dtype": "float8_e5m2"}, "dtype is 'float8_e5m2', expected float16, bfloat16"),
        ({"dtype": {"": "float32"}}, "dtype is a dict, expected float16"),
        ({"problem_type": "regression"}, "problem_type 'regression'"),
        ({"problem_type": "multi_label_classification"}, "problem_type 'multi_label_classif"),
        (
            {"attribute_map": {"layer_norm_eps": "hidden_dropout_prob"}},
            "names of its own for entries",
        ),
        ({"num_hidden_layers": 10**9}, "'num_hidden_layers' is larger than any"),
        ({"num_hidden_layers": 10**5}, "num_hidden_layers 100000, the files hold 40 tensors"),
        ({"num_hidden_layers": "many"}, "num_hidden_layers 'many'"),
        ({"num_hidden_layers": 3}, r"16 missing: vit.layers.2"),
        ({"num_hidden_layers": 1}, r"16 unexpected: vit"),
        ({"hidden_size": 32}, "misshapen: "),
        ({"id2label": {"0": "a", "1": "b"}}, "misshapen: classifier"),
        ({"hidden_act": "os.system"}, "cannot be made of config.json"),
        ({"num_attention_heads": 0}, "cannot be made of config.json"),
        ({"patch_size": -1}, "cannot be made of config.json"),
        ({"image_size": "large"}, "cannot be made of config.json"),
    ],
)
def test_configs_that_do_not_fit_say_why(folder, changes, said):
    change(folder, **changes)
    with pytest.raises(ConverterError, match=said):
        open_model(folder)


ALIASES = {
    "num_hidden_layers of ConvNeXt": ("convnext", "num_stages", "num_hidden_layers", 2),
    "num_attention_heads of Swinv2": ("swinv2", "num_heads", "num_attention_heads", [2, 4]),
    "num_attention_heads of Swin": ("swin", "num_heads", "num_attention_heads", [2, 4]),
}


@pytest.mark.parametrize("name", ALIASES)
def test_an_alias_is_read_as_the_name(tmp_path, name):
    """transformers' `attribute_map` sets the own name to what stands under the alias."""
    family, own, alias, value = ALIASES[name]
    sizes = {"hidden_sizes": [8, 8], "depths": [1, 1]} if family == "convnext" else {}
    folder = write_folder(tmp_path / family, family, **{own: value}, **sizes)
    images = np.random.default_rng(0).random((2, SIDE, SIDE, 3), np.float32)
    expected = open_model(folder).model(images)
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | {alias: value}))
    np.testing.assert_array_equal(open_model(folder).model(images), expected)
    del values[own]
    (folder / "config.json").write_text(json.dumps(values | {alias: value}))
    theirs = transformers.AutoConfig.from_pretrained(folder)
    assert getattr(theirs, own) == value
    np.testing.assert_array_equal(open_model(folder).model(images), expected)


def test_an_alias_beside_another_value_is_refused(tmp_path):
    """transformers reads the alias, and makes a network of half as many stages of it."""
    sizes = [8, 8, 8, 8]
    folder = write_folder(tmp_path / "convnext", "convnext", hidden_sizes=sizes)
    change(folder, num_hidden_layers=2)
    theirs = transformers.AutoModelForImageClassification.from_pretrained(folder)
    assert len(theirs.convnext.encoder.stages) == 2
    with pytest.raises(ConverterError, match="num_stages is 4 and num_hidden_layers, another name"):
        open_model(folder)


@pytest.mark.parametrize(
    ("family", "changes", "said"),
    [
        ("resnet", {"hidden_sizes": [10**6, 10**6]}, r"expected \(3, 1000000\)"),
        ("vit", {"hidden_size": 2**20}, r"expected \(3, 1048576\)"),
        ("mobilenet_v2", {"depth_multiplier": 2**18}, r"expected \(3, 335544320\)"),
        ("efficientnet", {"depth_coefficient": 2**18}, "depth_coefficient 262144, expected a num"),
        ("segformer", {"depths": [2**19, 1, 1, 1]}, "says depths 524288, 1, 1, the files hold"),
        ("focalnet", {"focal_levels": [2**19, 2]}, "says focal_levels 524288, 2, the files hold"),
        ("cvt", {"depth": [1, 2, 2**19]}, "says depth 1, 2, 524288, the files hold"),
        ("dinov2_with_registers", {"num_register_tokens": 2**20}, r"expected \(1, 1048576, 16\)"),
        ("swin", {"image_size": 2**14, "window_size": 2**12}, "besides its weights, the files"),
    ],
)
def test_sizes_are_compared_before_memory_is_taken(tmp_path, family, changes, said):
    """Each of these networks takes terabytes, so one that is made first cannot be compared."""
    folder = write_folder(tmp_path / family, family)
    change(folder, **changes)
    with pytest.raises(MismatchError, match=said):
        open_model(folder)


def test_compared_networks_are_not_the_ones_that_are_filled(tmp_path):
    """Swin's table of positions stands in no file, and is not there where nothing takes memory."""
    folder = read_hub_folder(write_folder(tmp_path / "swin", "swin"))
    assert not [name for name in folder.weights.tensors if "position_index" in name]
    module = rebuild(folder)
    kept = transformers.SwinForImageClassification.from_pretrained(folder.path)
    expected = dict(kept.named_buffers())
    assert any("relative_position_index" in name for name in expected)
    for name, value in module.named_buffers():
        torch.testing.assert_close(value, expected.pop(name))
    assert not expected and not any(value.is_meta for value in module.parameters())


def test_fields_that_choose_implementations_change_nothing(folder, vit):
    change(folder, use_cache=True, attn_implementation="flash_attention_2")
    images = np.random.default_rng(0).random((2, SIDE, SIDE, 3), np.float32)
    expected = open_model(vit).model(images)
    np.testing.assert_array_equal(open_model(folder).model(images), expected)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", b"{", "No such|is not JSON|no model|no tensors|family"),
        ("preprocessor_config.json", b"{", "is not JSON"),
        ("preprocessor_config.json", b'{"image_processor_type": "Evil"}', "cannot use preproc"),
        (
            "preprocessor_config.json",
            b'{"image_processor_type": "ViTImageProcessor", "size": 0}',
            "cannot use preprocessor_config.json",
        ),
        (
            "preprocessor_config.json",
            b'{"image_processor_type": "ViTImageProcessor", "size": []}',
            "cannot use preprocessor_config.json: IndexError",
        ),
        (
            "preprocessor_config.json",
            b'{"image_processor_type": "ViTImageProcessor", "rescale_factor": 0.0}',
            "cannot use preprocessor_config.json: ZeroDivisionError",
        ),
        ("model.safetensors", b"\x80\x02cos\nsystem\n(S'touch ran'\ntR.", "safetensors|global"),
        ("model.safetensors", b"", "empty"),
    ],
)
def test_damaged_files_are_named(folder, monkeypatch, name, content, said):
    monkeypatch.chdir(folder)
    (folder / name).write_bytes(content)
    with pytest.raises(ConverterError, match=said):
        open_model(folder)
    assert not Path("ran").exists()


def test_weights_that_are_not_finite_are_refused(folder):
    tensors = load_file(folder / "model.safetensors")
    tensors["classifier.bias"][0] = np.nan
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ConverterError, match="NaN or infinite values, the first is classifier"):
        open_model(folder)
