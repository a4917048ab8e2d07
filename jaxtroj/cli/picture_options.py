"""Options of image classifiers: which examples are taken, and what a model file does not say."""

import argparse

from converters.public_codes import PUBLIC_CODES
from jaxtroj.cli import argument_types as types


def add_picture_options(group: argparse._ArgumentGroup) -> None:
    """Declare which examples are taken, and how their pixels become the network's input."""
    group.add_argument(
        "--examples-per-class",
        type=types.count,
        metavar="N",
        help="of a class at most (default: all of a folder, usually 20 of an .npz archive)",
    )
    group.add_argument(
        "--class-counts",
        type=types.class_counts,
        metavar="N,N,...",
        help="training pictures of each class, in the order of the classes, or a text file of these"
        " numbers: classes of many more than others look like targets (default: the evidence tells,"
        " as far as it does)",
    )
    group.add_argument(
        "--resize",
        type=types.pixels,
        metavar="PX",
        help="make every example PX pixels on its shorter side, then cut out the middle:"
        " --image-size, else what the network takes, else PX x PX (default: those of another size"
        " than most are left out)",
    )
    group.add_argument(
        "--channel-order",
        choices=("BGR", "RGB"),
        help="order the models expect (default: their round's, else what suits the examples)",
    )
    group.add_argument(
        "--normalization",
        choices=("min-max", "unit"),
        help="pixels to [0, 1] per picture by min-max, or by / 255 (default: their round's, else"
        " what suits the examples, with bounds, mean and deviation)",
    )


def add_input_form(parser: argparse.ArgumentParser) -> None:
    """Declare what `InputForm` holds."""
    group = parser.add_argument_group("what a model file does not say")
    group.add_argument(
        "--bounds",
        type=types.bounds,
        metavar="LO,HI",
        help="values that pixels 0 and 1 have for the network (default: 0,1); with a minus sign"
        " write --bounds=-1,1",
    )
    group.add_argument(
        "--mean",
        type=types.numbers,
        metavar="A,B,C",
        help="subtracted from pixels within the bounds, per channel in the channel order",
    )
    group.add_argument(
        "--std", type=types.numbers, metavar="A,B,C", help="what they are divided by then"
    )
    group.add_argument(
        "--layout",
        choices=("NCHW", "NHWC"),
        help="axes of the input of an ONNX file or exported program (default: guessed)",
    )
    group.add_argument(
        "--output", metavar="NAME", help="output with the logits (default: the first)"
    )
    group.add_argument(
        "--image-size",
        type=types.image_size,
        metavar="HxW",
        help="where the file leaves it open (default: the examples' size, which must agree)",
    )
    add_public_code(group, "what labelled examples tell, else such a file is refused")


def add_public_code(group: argparse._ActionsContainer, default: str) -> None:
    """Declare whose code a state dict is of; `default` says what is done without it."""
    group.add_argument(
        "--public-code",
        choices=tuple(PUBLIC_CODES),
        metavar="NAME",
        help="whose code a state dict is of, where several have its names and shapes:"
        f" {', '.join(PUBLIC_CODES)} (default: {default})",
    )
