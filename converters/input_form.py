"""What a model file says of its input, and `InputForm`, what it does not say."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from converters.errors import ConversionError, safe_repr
from converters.public_codes import PUBLIC_CODES

LAYOUTS = ("NCHW", "NHWC")
USUAL_SIZE = (224, 224)
_CHANNELS = (1, 3, 4)
_UNPREPARED = (
    "the file does not say how pixels are prepared; values from 0 to 1 without normalisation were "
    "assumed"
)
_UNORDERED = "the file does not tell the order of the axes; NCHW was assumed"
_UNSIZED = "the file leaves the size of images open; {} x {} was assumed"
_SIZE = re.compile(_UNSIZED.format(r"\d{1,9}", r"\d{1,9}"))


@dataclass(frozen=True)
class InputForm:
    """What a model file does not say of its input and output; None where the default will do.

    Attributes:
      layout: order of the input's axes, one of `LAYOUTS`; guessed from the channels by default.
      bounds: values that pixels 0 and 1 have for the network; (0, 1) by default.
      mean: per channel in the network's order, or one for all; subtracted from pixels in `bounds`.
      std: the same, what pixels are divided by then.
      output: name of the output with the logits; the first by default.
      image_size: height and width in pixels where a file leaves them open.
      public_code: a name of `PUBLIC_CODES`; whose weights they are where several codes have state
        dicts of the same names and shapes. Other files are not concerned.

    Raises:
      ConversionError: a value is none of those; all such values are named.
    """

    layout: str | None = None
    bounds: tuple[float, float] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    output: str | None = None
    image_size: tuple[int, int] | None = None
    public_code: str | None = None

    def __post_init__(self) -> None:
        problems = []
        if self.layout not in (None, *LAYOUTS):
            problems.append(
                f"layout must be one of {', '.join(LAYOUTS)}, got {safe_repr(self.layout)}"
            )
        if self.bounds is not None and not _are_bounds(self.bounds):
            problems.append(f"bounds must be two different finite numbers, got {self.bounds}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and not (values and all(map(math.isfinite, values))):
                problems.append(f"{name} must be finite numbers, one for each channel")
        if self.std is not None and not all(value > 0 for value in self.std):
            problems.append(f"std must be above 0, got {self.std}")
        if self.image_size is not None and not all(1 <= n <= 4096 for n in self.image_size):
            problems.append(f"image_size must be from 1 to 4096 pixels, got {self.image_size}")
        if self.public_code not in (None, *PUBLIC_CODES):
            problems.append(
                f"public_code must be one of {', '.join(PUBLIC_CODES)}, got"
                f" {safe_repr(self.public_code)}"
            )
        if problems:
            raise ConversionError("; ".join(problems))

    @property
    def unsaid(self) -> tuple[str, ...]:
        """The finding that the preparation of pixels was guessed; none where the form says it."""
        return (_UNPREPARED,) if (self.bounds, self.mean, self.std) == (None, None, None) else ()


def _are_bounds(bounds: Sequence[float]) -> bool:
    return len(bounds) == 2 and all(map(math.isfinite, bounds)) and bounds[0] != bounds[1]


NOTHING_SAID = InputForm()


@dataclass(frozen=True)
class ImageInput:
    """The one input of a classifier.

    Attributes:
      name: in the file.
      shape: for one image.
      layout: order of its axes, one of `LAYOUTS`.
      findings: what was guessed.
      batch: number of images that the file is made for; 1 where it leaves that open.
    """

    name: str
    shape: tuple[int, ...]
    layout: str
    findings: tuple[str, ...]
    batch: int = 1


def image_input(
    name: str,
    declared: Sequence[int | None],
    layout: str | None,
    image_size: tuple[int, int] | None,
    usual_size: tuple[int, int] | None = None,
) -> ImageInput:
    """What one image looks like to a file.

    Args:
      name: of the input.
      declared: its sizes, None where the file leaves one open.
      layout: order of the axes; guessed from the channels by default.
      image_size: height and width that were asked for, taken where the file leaves them open.
      usual_size: what is assumed there otherwise; 224 x 224 by default.

    Raises:
      ConversionError: these are no images, or the number of channels is open.
    """
    if len(declared) != 4:
        raise ConversionError(
            f"input {safe_repr(name)} has {len(declared)} dimensions, expected 4, a batch of images"
        )
    findings: list[str] = []
    order = layout or _guessed_layout(declared, findings)
    sizes = dict(zip(order, declared, strict=True))
    if sizes["C"] is None:
        raise ConversionError(
            f"input {safe_repr(name)} leaves the number of channels open; export it with them"
        )
    check_size((sizes["H"], sizes["W"]), image_size)
    height, width = usual_size or USUAL_SIZE
    if None in (sizes["H"], sizes["W"]) and image_size is None:
        findings.append(assumed_size((height, width)))
    asked = {"N": 1, **dict(zip("HW", image_size or (height, width), strict=True))}
    shape = tuple(1 if x == "N" else sizes[x] or asked.get(x, 0) for x in order)
    return ImageInput(name, shape, order, tuple(findings), sizes["N"] or 1)


def check_size(takes: Sequence[int | None], asked: tuple[int, int] | None) -> None:
    """Raise ConversionError where a file takes other sizes than were asked for; None is open."""
    if asked is None or all(n in (None, m) for n, m in zip(takes, asked, strict=True)):
        return
    raise ConversionError(
        f"the file is made for images of {takes[0]} x {takes[1]} pixels, asked for {asked[0]} x "
        f"{asked[1]}; leave --image-size out, or export it for another size"
    )


def assumed_size(size: tuple[int, int]) -> str:
    """The finding that nobody said the size of images."""
    return _UNSIZED.format(*size)


def is_assumption(finding: str) -> bool:
    """Whether a finding says what was assumed of the input, by all of it: others hold names.

    >>> is_assumption(assumed_size((32, 32))), is_assumption("the outputs are 'was assumed'")
    (True, False)
    """
    return finding in (_UNPREPARED, _UNORDERED) or _SIZE.fullmatch(finding) is not None


def _guessed_layout(declared: Sequence[int | None], findings: list[str]) -> str:
    first, last = declared[1] in _CHANNELS, declared[3] in _CHANNELS
    if first == last:
        findings.append(_UNORDERED)
    return "NHWC" if last and not first else "NCHW"
