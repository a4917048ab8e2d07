"""Input forms: how the pixels of a picture become what a network takes.

A file seldom says it. The usual ones are listed here in the order in which they are preferred where
examples cannot tell them apart; `jaxtroj.form_choice` tells them apart by labelled examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

CHANNEL_ORDERS = ("BGR", "RGB")
NORMALIZATIONS = ("min-max", "unit")
Numbers = tuple[float, ...]


@dataclass(frozen=True)
class PixelForm:
    """One input form.

    Attributes:
        scale: what happens to pixels, in words.
        channel_order: "BGR" or "RGB"; of grey pictures without meaning, see `is_grey`.
        normalization: how pixels become [0, 1]: "unit" (/ 255) or "min-max" per picture. Triggers,
            pictures and evidence are in these units.
        bounds: values that pixels 0 and 1 have for the network; None for (0, 1).
        mean: subtracted after that, per channel in `channel_order`; None for nothing.
        std: the same, what pixels are divided by then.
        is_grey: whether pictures have one channel.
    """

    scale: str
    channel_order: str = "RGB"
    normalization: str = "unit"
    bounds: tuple[float, float] | None = None
    mean: Numbers | None = None
    std: Numbers | None = None
    is_grey: bool = False

    def __str__(self) -> str:
        return f"{'grey' if self.is_grey else self.channel_order}, {self.scale}"

    @property
    def preparation(self) -> tuple[tuple[float, float] | None, Numbers | None, Numbers | None]:
        """What stands in front of the network: bounds, mean and deviation."""
        return self.bounds, self.mean, self.std

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        lists = {
            name: None if value is None else list(value)
            for name, value in zip(("bounds", "mean", "std"), self.preparation, strict=True)
        }
        return {"channel_order": self.channel_order, "normalization": self.normalization} | lists


@dataclass(frozen=True)
class SaidForm:
    """What is said of an input form, as in `PixelForm`; None for what is not."""

    channel_order: str | None = None
    normalization: str | None = None
    bounds: tuple[float, float] | None = None
    mean: Numbers | None = None
    std: Numbers | None = None

    @property
    def has_front(self) -> bool:
        """Whether it says what stands in front of the network."""
        return (self.bounds, self.mean, self.std) != (None, None, None)

    def or_as(self, name: str | None) -> "SaidForm":
        """The rest as a TrojAI round has it; nothing more for any other."""
        usual = form_of_round(name)
        if usual is None:
            return self
        return replace(
            self,
            channel_order=self.channel_order or usual.channel_order,
            normalization=self.normalization or usual.normalization,
        )


_UNIT = PixelForm("pixels / 255")
_MIN_MAX = PixelForm("min-max per picture", normalization="min-max")
_WIDE = (
    PixelForm("pixels from -1 to 1", bounds=(-1.0, 1.0)),
    PixelForm("pixels from 0 to 255", bounds=(0.0, 255.0)),
)
IMAGENET = PixelForm(
    "ImageNet's mean and deviation", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)
)
_CIFAR10 = PixelForm(
    "CIFAR-10's mean and deviation", mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616)
)
_CAFFE = PixelForm(
    # Of Caffe's networks, and of Keras's ResNets and VGGs, whose files take BGR.
    "pixels from 0 to 255 less ImageNet's mean",
    bounds=(0.0, 255.0),
    mean=(123.68, 116.779, 103.939),
)
_MNIST = PixelForm("MNIST's mean and deviation", mean=(0.1307,), std=(0.3081,))
_OF_SMALL = (
    PixelForm(
        # The mean over pictures of their deviations, which many recipes hand on as the deviation.
        "CIFAR-10's mean and mean deviation",
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2023, 0.1994, 0.2010),
    ),
    PixelForm(
        "GTSRB's mean and deviation", mean=(0.3403, 0.3121, 0.3214), std=(0.2724, 0.2608, 0.2669)
    ),
    PixelForm(
        "SVHN's mean and deviation", mean=(0.4377, 0.4438, 0.4728), std=(0.1980, 0.2010, 0.1970)
    ),
)
_FASHION = PixelForm("Fashion-MNIST's mean and deviation", mean=(0.2860,), std=(0.3530,))
_SMALL = 64
"""Pixels of a side up to which data sets of small pictures are thought of, and before ImageNet."""
_IN_COLOUR = (_UNIT, _MIN_MAX, *_WIDE, IMAGENET, _CIFAR10, _CAFFE)
_SMALL_IN_COLOUR = (_UNIT, _MIN_MAX, *_WIDE, _CIFAR10, IMAGENET, *_OF_SMALL, _CAFFE)
_IN_GREY = (_UNIT, _MIN_MAX, *_WIDE, _MNIST, IMAGENET, _CIFAR10)
_SMALL_IN_GREY = (_UNIT, _MIN_MAX, *_WIDE, _MNIST, _FASHION, _CIFAR10, IMAGENET)
_PUBLISHED = frozenset((*_IN_GREY, *_SMALL_IN_GREY, *_SMALL_IN_COLOUR))
_TROJAI = replace(_MIN_MAX, channel_order="BGR")
_ROUNDS = {
    **dict.fromkeys(("round0", "round1"), _TROJAI),
    **dict.fromkeys(("round2", "round3", "round4"), _UNIT),
}


def form_of_round(name: str | None) -> PixelForm | None:
    """The input form of a TrojAI round's image networks; None for any other.

    >>> str(form_of_round("round1"))
    'BGR, min-max per picture'
    """
    return _ROUNDS.get(name or "")


def possible_forms(said: SaidForm, channels: int, side: int) -> tuple[PixelForm, ...]:
    """The usual input forms that are left open, the preferred first.

    A normalisation that is said stands for all that happens to pixels; bounds, mean or deviation
    leave open whether they follow / 255 or min-max.

    Args:
        said: may be all, a part or nothing.
        channels: 1 for a network of grey pictures.
        side: of a picture, pixels, the longer one.
    """
    orders = ("RGB",) if channels == 1 else ("RGB", "BGR")
    if said.channel_order is not None:
        orders = (said.channel_order,)
    forms = [
        _ordered(form, order, channels)
        for form in _scales(said, channels, side)
        for order in orders
    ]
    # Pictures that use the whole range, as TrojAI's nearly do, do not tell its form from BGR / 255.
    first = [form for form in (_UNIT, _TROJAI) if form in forms]
    return (*first, *(form for form in forms if form not in first))


def _scales(said: SaidForm, channels: int, side: int) -> tuple[PixelForm, ...]:
    if said.normalization is None and not said.has_front:
        if side <= _SMALL:
            return _SMALL_IN_GREY if channels == 1 else _SMALL_IN_COLOUR
        return _IN_GREY if channels == 1 else _IN_COLOUR
    open_ones = [f for f in (_UNIT, _MIN_MAX) if said.normalization in (None, f.normalization)]
    return tuple(_with_front(form, said) for form in open_ones)


def _with_front(form: PixelForm, said: SaidForm) -> PixelForm:
    """A form with the bounds, mean and deviation that are said, in the network's order."""
    front = replace(form, bounds=said.bounds, mean=said.mean, std=said.std)
    names = zip(("bounds", "mean", "std"), front.preparation, strict=True)
    words = [f"{n} {','.join(f'{x:g}' for x in values)}" for n, values in names if values]
    return replace(front, scale=", ".join([form.scale, *words]))


def _ordered(form: PixelForm, order: str, channels: int) -> PixelForm:
    """A form in a channel order; the numbers of a published one are in RGB."""
    changed = replace(form, channel_order=order, is_grey=channels == 1)
    if form not in _PUBLISHED:  # the user's own numbers are in the network's order
        return changed
    mean, std = (_for_channels(values, order, channels) for values in (form.mean, form.std))
    return replace(changed, mean=mean, std=std)


def _for_channels(values: Sequence[float] | None, order: str, channels: int) -> Numbers | None:
    if values is None:
        return None
    if channels == 1:
        return (round(sum(values) / len(values), 4),)
    return tuple(values if order == "RGB" else values[::-1])
