"""Of folders `jaxtroj backgrounds` takes Flax checkpoints alone, and says so."""

import json

import pytest

from jaxtroj.backgrounds.candidates import Request, _opened
from jaxtroj.errors import UsageError


@pytest.mark.parametrize("config", [{"CNN_IMG_SIZE_PIXELS": 64}, {"model_type": "vit"}, None])
@pytest.mark.parametrize("files", [(), ("model.pt",), ("z.onnx", "a.safetensors", "notes.txt")])
def test_another_folder_is_no_checkpoint(config, files, tmp_path):
    folder = tmp_path / "id-00000003"
    folder.mkdir()
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    for name in files:
        (folder / name).write_bytes(b"x")
    first = min((n for n in files if n != "notes.txt"), default=None)
    said = f"such as .*/{first}" if first else "name a model file"
    with pytest.raises(UsageError, match=f"is no Flax checkpoint .*{said}"):
        _opened(folder, Request(), None)
