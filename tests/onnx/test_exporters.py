"""Files of both of torch's ONNX exporters; opt-in, since the newer one needs onnxscript."""

import numpy as np
import pytest
import torch
from torchvision import models

from converters import open_model
from converters.input_form import InputForm

CONVNEXT = models.convnext.CNBlockConfig
NETWORKS = {
    "squeezenet": (lambda: models.squeezenet1_1(num_classes=5), 33),
    "mobilenet v3": (lambda: models.mobilenet_v3_small(num_classes=5), 32),
    "shufflenet v2": (lambda: models.ShuffleNetV2([1, 2, 1], [8, 8, 16, 16, 32], 5), 33),
    "vit": (lambda: models.VisionTransformer(16, 8, 2, 2, 16, 32, num_classes=5), 16),
    "convnext": (
        lambda: models.ConvNeXt([CONVNEXT(8, 16, 1), CONVNEXT(16, None, 1)], num_classes=5),
        32,
    ),
    "swin": (lambda: models.SwinTransformer([2, 2], 8, [2, 1], [1, 2], [4, 4], num_classes=5), 20),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
@pytest.mark.parametrize("name", NETWORKS)
def test_files_of_both_exporters_convert(name, dynamo, tmp_path):
    if dynamo:
        pytest.importorskip("onnxscript", reason="torch's newer exporter needs it")
    build, size = NETWORKS[name]
    torch.manual_seed(0)
    network = build().eval()
    path = tmp_path / "net.onnx"
    torch.onnx.export(network, (torch.zeros(1, 3, size, size),), path, dynamo=dynamo)
    opened = open_model(path, InputForm(bounds=(0, 1)))
    images = np.random.default_rng(0).random((2, size, size, 3)).astype(np.float32)
    with torch.no_grad():
        expected = network(torch.from_numpy(images).permute(0, 3, 1, 2)).numpy()
    got = np.asarray(opened.model(images))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * abs(expected).max())
