"""Input forms: how the pixels of a picture become what a network takes.

A file seldom says it. The usual ones are listed here in the order in which they are preferred where
examples cannot tell them apart; `jaxtroj.form_choice` tells them apart by labelled examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtroj.settings import Settings

CHANNEL_ORDERS = ("BGR", "RGB")
NORMALIZATIONS = ("min-max", "unit")
Numbers = tuple[float, ...]


@dataclass(frozen=True)
class PixelForm:
    """One input form.

    Attributes:
        scale: what happens to pixels, in words.
        channel_order: "BGR" or "RGB"; of grey pictures without meaning.
        normalization: how pixels become [0, 1]: "unit" (/ 255) or "min-max" per picture. Triggers,
            pictures and evidence are in these units.
        bounds: values that pixels 0 and 1 have for the network; None for (0, 1).
        mean: subtracted after that, per channel in `channel_order`; None for nothing.
        std: the same, what pixels are divided by then.
    """

    scale: str
    channel_order: str = "RGB"
    normalization: str = "unit"
    bounds: tuple[float, float] | None = None
    mean: Numbers | None = None
    std: Numbers | None = None

    def __str__(self) -> str:
        return f"{self.channel_order}, {self.scale}"

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


_UNIT = PixelForm("pixels / 255")
_MIN_MAX = PixelForm("min-max per picture", normalization="min-max")
_WIDE = (
    PixelForm("pixels from -1 to 1", bounds=(-1.0, 1.0)),
    PixelForm("pixels from 0 to 255", bounds=(0.0, 255.0)),
)
_IMAGENET = PixelForm(
    "ImageNet's mean and deviation", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)
)
_CIFAR10 = PixelForm(
    "CIFAR-10's mean and deviation", mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616)
)
_MNIST = PixelForm("MNIST's mean and deviation", mean=(0.1307,), std=(0.3081,))
_IN_COLOUR = (_UNIT, _MIN_MAX, *_WIDE, _IMAGENET, _CIFAR10)
_IN_GREY = (_UNIT, _MIN_MAX, *_WIDE, _MNIST, _IMAGENET, _CIFAR10)
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


def possible_forms(settings: "Settings", channels: int) -> tuple[PixelForm, ...]:
    """The usual input forms that the settings leave open, the preferred first.

    A normalisation that is said stands for all that happens to pixels; bounds, mean or deviation
    leave open whether they follow / 255 or min-max.

    Args:
        settings: may say all, a part or nothing.
        channels: 1 for a network of grey pictures.
    """
    orders = ("RGB",) if channels == 1 else ("RGB", "BGR")
    if settings.channel_order is not None:
        orders = (settings.channel_order,)
    forms = [
        _ordered(form, order, channels) for form in _scales(settings, channels) for order in orders
    ]
    # Pictures that use the whole range, as TrojAI's nearly do, do not tell its form from BGR / 255.
    first = [form for form in (_UNIT, _TROJAI) if form in forms]
    return (*first, *(form for form in forms if form not in first))


def _scales(settings: "Settings", channels: int) -> tuple[PixelForm, ...]:
    said = (settings.bounds, settings.mean, settings.std)
    if settings.normalization is None and said == (None, None, None):
        return _IN_GREY if channels == 1 else _IN_COLOUR
    bases = [form for form in (_UNIT, _MIN_MAX)]
    if settings.normalization is not None:
        bases = [form for form in bases if form.normalization == settings.normalization]
    return tuple(_prepared_as_said(form, settings) for form in bases)


def _prepared_as_said(form: PixelForm, settings: "Settings") -> PixelForm:
    """A form with the settings' bounds, mean and deviation, which stand in the network's order."""
    names = ("bounds", "mean", "std")
    said = {name: getattr(settings, name) for name in names if getattr(settings, name) is not None}
    words = [
        f"{name} {','.join(f'{value:g}' for value in values)}" for name, values in said.items()
    ]
    return replace(form, scale=", ".join([form.scale, *words]), **said)


def _ordered(form: PixelForm, order: str, channels: int) -> PixelForm:
    """A form in a channel order; the numbers of a published one are in RGB."""
    if form not in (*_IN_COLOUR, _MNIST):  # the user's own numbers are in the network's order
        return replace(form, channel_order=order)
    mean, std = (_for_channels(values, order, channels) for values in (form.mean, form.std))
    return replace(form, channel_order=order, mean=mean, std=std)


def _for_channels(values: Sequence[float] | None, order: str, channels: int) -> Numbers | None:
    if values is None:
        return None
    if channels == 1:
        return (round(sum(values) / len(values), 4),)
    return tuple(values if order == "RGB" else values[::-1])
