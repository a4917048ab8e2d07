"""Signs and backgrounds, drawn and read."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from jaxtroj.errors import GenerationError
from jaxtroj.generate.traffic_signs import assets as assets_module
from jaxtroj.generate.traffic_signs.assets import assets_from_folders, procedural_assets


def _save(path, size=(32, 32), mode="RGB", colour=(200, 60, 60)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)


def _sign_folder(root, classes=3, per_class=2):
    for label in range(classes):
        for n in range(per_class):
            _save(root / f"{label:02d}_{n}.png", colour=(60 * label + 60, 200, 40 * n))
    return root


def test_procedural_assets_are_what_they_say():
    made = procedural_assets(1, 4, image_size=32, roads=3)
    assert made.signs.shape == (4, 1, 16, 16, 4) and made.signs.dtype == np.float32
    assert made.signs.min() >= 0 and made.signs.max() <= 1
    assert made.roads.shape == (3, 48, 48, 3) and made.roads.dtype == np.uint8
    np.testing.assert_array_equal(made.variants_per_class, [1, 1, 1, 1])


def test_procedural_assets_follow_the_seed():
    one, same, other = (procedural_assets(s, 3, image_size=32, roads=2) for s in (5, 5, 6))
    np.testing.assert_array_equal(one.signs, same.signs)
    np.testing.assert_array_equal(one.roads, same.roads)
    assert np.abs(one.signs - other.signs).mean() > 0.02
    more = procedural_assets(5, 3, image_size=32, roads=4)
    np.testing.assert_array_equal(one.roads, more.roads[:2])


@pytest.mark.parametrize("seed", range(4))
def test_classes_of_one_seed_differ(seed):
    signs = procedural_assets(seed, 5, image_size=64, roads=1).signs[:, 0]
    for a in range(5):
        for b in range(a):
            assert np.abs(signs[a] - signs[b]).mean() > 0.05
    cover = signs[..., 3].mean(axis=(1, 2))
    assert np.all((cover > 0.35) & (cover < 0.95))


def test_zero_classes_are_refused():
    with pytest.raises(GenerationError, match="at least 1"):
        procedural_assets(0, 0, image_size=32, roads=1)


def test_files_by_prefix_and_sub_folders_give_classes(tmp_path):
    flat = _sign_folder(tmp_path / "flat")
    loaded = assets_from_folders(flat, None, 0, 3, image_size=32, procedural_road_count=2)
    assert set(loaded.class_names) == {"00", "01", "02"} and loaded.skipped == ()
    for name in ("stop", "yield"):
        _save(tmp_path / "deep" / name / "a.jpg")
    deep = assets_from_folders(tmp_path / "deep", None, 0, 2, image_size=32)
    assert set(deep.class_names) == {"stop", "yield"}


def test_seed_chooses_the_classes(tmp_path):
    folder = _sign_folder(tmp_path, classes=8, per_class=1)
    chosen = {
        assets_from_folders(
            folder, None, seed, 2, image_size=32, procedural_road_count=1
        ).class_names
        for seed in range(6)
    }
    assert len(chosen) > 3


def test_own_alpha_is_kept_and_photos_get_an_ellipse(tmp_path):
    _save(tmp_path / "00_photo.png")
    cut_out = Image.new("RGBA", (60, 40), (0, 0, 0, 0))
    cut_out.paste((10, 200, 10, 255), (20, 10, 40, 30))
    cut_out.save(tmp_path / "01_alpha.png")
    loaded = assets_from_folders(tmp_path, None, 0, 2, image_size=32, procedural_road_count=1)
    alpha = dict(zip(loaded.class_names, loaded.assets.signs[:, 0, ..., 3], strict=True))
    assert alpha["01"].min() > 0.9  # trimmed to what is opaque
    assert alpha["00"][0, 0] == 0 and alpha["00"][8, 8] == 1


def test_large_crops_are_preferred(tmp_path):
    _save(tmp_path / "00_small.png", (16, 16))
    _save(tmp_path / "00_large.png", (40, 40))
    _save(tmp_path / "01_small.png", (16, 16))
    loaded = assets_from_folders(tmp_path, None, 0, 2, image_size=32, procedural_road_count=1)
    counts = dict(zip(loaded.class_names, loaded.assets.variants_per_class, strict=True))
    assert counts == {"00": 1, "01": 1}


def test_dark_photos_are_brightened_and_black_ones_skipped(tmp_path):
    _save(tmp_path / "00_dark.png", colour=(60, 60, 60))
    _save(tmp_path / "01_black.png", colour=(3, 3, 3))
    _save(tmp_path / "02_light.png", colour=(220, 220, 220))
    loaded = assets_from_folders(tmp_path, None, 0, 2, image_size=32, procedural_road_count=1)
    brightness = dict(zip(loaded.class_names, loaded.assets.signs[:, 0, 8, 8, 0], strict=True))
    assert brightness["00"] == pytest.approx(0.85, abs=0.01)
    with pytest.raises(GenerationError, match="too dark"):
        assets_from_folders(tmp_path, None, 0, 3, image_size=32, procedural_road_count=1)


def _png_of_size(width, height):
    """A tiny PNG that claims to be width x height."""

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 64)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + data


def _hostile_files(folder):
    folder.mkdir(parents=True, exist_ok=True)
    _save(folder / "ok.png", (50, 40))
    whole = (folder / "ok.png").read_bytes()
    contents = {
        "empty.png": b"",
        "text.png": b"this is no picture",
        "cut.png": whole[: len(whole) // 2],
        "bomb.png": _png_of_size(60_000, 60_000),
        "warn.png": _png_of_size(10_000, 10_000),
        "broken.jpg": b"\xff\xd8\xff\xe0" + b"\0" * 50,
        "script.tiff": b"II*\0" + b"\xff" * 60,
    }
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    (folder / "notes.txt").write_text("not a picture at all")
    (folder / "folder.png").mkdir()
    (folder / "dangling.png").symlink_to(folder / "nowhere.png")
    return set(contents)


def test_hostile_backgrounds_are_skipped_and_listed(tmp_path):
    bad = _hostile_files(tmp_path)
    loaded = assets_from_folders(None, tmp_path, 0, 2, image_size=32)
    assert loaded.assets.roads.shape[0] == 1
    assert {name for name, _ in loaded.skipped} == bad
    assert all(reason for _, reason in loaded.skipped)


def test_only_bad_backgrounds_raise_with_the_reasons(tmp_path):
    (tmp_path / "bad.png").write_bytes(b"nothing")
    with pytest.raises(GenerationError, match=r"no usable background.*bad\.png"):
        assets_from_folders(None, tmp_path, 0, 2, image_size=32)


def test_too_few_classes_and_missing_folders_raise(tmp_path):
    folder = _sign_folder(tmp_path / "signs", classes=2)
    with pytest.raises(GenerationError, match="2 classes, 5 are needed"):
        assets_from_folders(folder, None, 0, 5, image_size=32)
    for arguments in ((tmp_path / "none", None), (None, tmp_path / "none")):
        with pytest.raises(GenerationError, match="not a folder"):
            assets_from_folders(*arguments, 0, 2, image_size=32)


def test_oversized_files_are_not_read(tmp_path, monkeypatch):
    _save(tmp_path / "a.png")
    monkeypatch.setattr(assets_module, "MAX_PICTURE_BYTES", 10)
    with pytest.raises(GenerationError, match="at most 10 are read"):
        assets_from_folders(None, tmp_path, 0, 2, image_size=32)


def test_other_pixel_formats_are_read(tmp_path):
    Image.fromarray(np.full((40, 40), 40_000, np.uint16)).save(tmp_path / "deep.png")
    Image.new("L", (40, 40), 90).save(tmp_path / "grey.png")
    Image.new("P", (40, 40), 1).save(tmp_path / "palette.png")
    Image.new("CMYK", (40, 40), (0, 80, 90, 10)).save(tmp_path / "print.jpg")
    loaded = assets_from_folders(None, tmp_path, 0, 2, image_size=32)
    assert loaded.skipped == () and loaded.assets.roads.shape[0] == 4
    assert 40_000 // 256 in loaded.assets.roads[:, 0, 0, 0]


def test_real_pictures(shared_data):
    images = shared_data / "images"
    loaded = assets_from_folders(
        images / "traffic_signs", images / "road_backgrounds", 3, image_size=32, max_variants=4,
        max_roads=6,
    )  # fmt: skip
    assert loaded.assets.signs.shape == (5, 4, 16, 16, 4)
    assert loaded.assets.roads.shape == (6, 48, 48, 3)
    assert all(len(name) == 2 for name in loaded.class_names)
