"""AlexNet, VGG, SqueezeNet, GoogLeNet: torchvision fixes their widths, so layers are fitted later.

References:
  torchvision 0.29, torchvision/models/{alexnet,vgg,squeezenet,googlenet}.py.
"""

from typing import Any

from converters.errors import MismatchError
from converters.rebuilt.description import Description

# Those of VGG19 are 16; a file of far more is built to stall us.
_MOST_CONVOLUTIONS = 200


def alexnet(d: Description) -> Any:
    """torchvision's AlexNet."""
    from torchvision import models

    return models.AlexNet(d.rows("classifier.6.weight"))


def vgg(d: Description) -> Any:
    """A VGG of any depth, with batch norms or without."""
    from torchvision.models import vgg as torchvision

    return torchvision.VGG(vgg_features(d), d.rows("classifier.6.weight"), init_weights=False)


def vgg_features(d: Description) -> Any:
    """Its convolutions and pools; these stand in the gaps of the numbering."""
    from torchvision.models import vgg as torchvision

    norms = len(d.shapes.get("features.1.weight", ())) == 1
    step = 3 if norms else 2
    places = [n for n in d.children("features") if d.is_convolution(f"features.{n}")]
    if not places or places[0] != 0:
        raise MismatchError("features.0 is no convolution, expected VGG's first")
    if len(places) > _MOST_CONVOLUTIONS:
        raise MismatchError(
            f"the file has {len(places)} convolutions, expected at most {_MOST_CONVOLUTIONS}"
        )
    layers: list[Any] = []
    for place, following in zip(places, [*places[1:], None], strict=True):
        layers.append(d.rows(f"features.{place}.weight"))
        gap = step + _ends_in_pool(d, place + step) if following is None else following - place
        if gap not in (step, step + 1):
            raise MismatchError(f"features.{place} is followed by {gap - step} unknown layers")
        layers += ["M"] * (gap - step)
    return torchvision.make_layers(layers, norms)


def _ends_in_pool(d: Description, place: int) -> bool:
    """A state dict does not show the last pool; all of torchvision's have it."""
    return not d.modules or d.kind(f"features.{place}") == "MaxPool2d"


def squeezenet(d: Description) -> Any:
    """SqueezeNet 1.0 or 1.1, told by the first kernel and the places of the blocks."""
    from torchvision import models

    version = "1_0" if d.shape("features.0.weight", 4)[2] == 7 else "1_1"
    return models.SqueezeNet(version, d.rows("classifier.1.weight"))


def googlenet(d: Description) -> Any:
    """GoogLeNet, with its auxiliary heads where the file has them."""
    from torchvision import models

    return models.GoogLeNet(
        d.rows("fc.weight"),
        aux_logits="aux1.fc1.weight" in d.shapes,
        transform_input=d.attribute("", "transform_input") is True,
        init_weights=False,
    )
