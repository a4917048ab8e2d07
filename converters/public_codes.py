"""Public codes whose state dicts have the same names and shapes, and compute other logits.

References:
  https://github.com/huyvnphan/PyTorch_CIFAR10, cifar10_models/resnet.py.
  https://github.com/ain-soph/trojanzoo, trojanvision/models/torchvision/resnet.py.
  https://github.com/xternalz/WideResNet-pytorch, wideresnet.py.
  https://github.com/YU1ut/MixMatch-pytorch, models/wideresnet.py; kekmodel/FixMatch-pytorch has it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class PublicCode:
    """One of several codes that a state dict may be of.

    Attributes:
      name: as `InputForm.public_code` says it.
      in_words: what it computes otherwise than the others, and whose it is.
      own_names: names that a file of this code has and none of the others; () for none.
    """

    name: str
    in_words: str
    own_names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} ({self.in_words})"


NO_FIRST_POOL = PublicCode(
    "no-first-pool",
    "no pool after the first kernel, as torchvision's ResNets are mostly changed",
    # TrojanZoo's, which takes the pool away.
    own_names=("features.conv1.weight", "classifier.fc.weight"),
)
HUYVNPHAN = PublicCode(
    "huyvnphan", "torchvision's max pool kept after the first kernel, huyvnphan/PyTorch_CIFAR10"
)
XTERNALZ = PublicCode("xternalz", "ReLU, xternalz/WideResNet-pytorch")
MIXMATCH = PublicCode(
    "mixmatch",
    "leaky ReLU of slope 0.1, later stages start without norm and activation,"
    " YU1ut/MixMatch-pytorch",
)
PUBLIC_CODES = {code.name: code for code in (NO_FIRST_POOL, HUYVNPHAN, XTERNALZ, MIXMATCH)}
