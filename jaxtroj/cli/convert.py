"""`jaxtroj convert`: a model file as a Flax checkpoint, with a parity report on request."""

import argparse
import json
from dataclasses import asdict, replace

from converters.files import what_is
from jaxtroj.cli import argument_types as types
from jaxtroj.cli import options, outputs
from jaxtroj.cli.main import COMMANDS, EXIT_CLEAN
from jaxtroj.cli.picture_options import add_public_code
from jaxtroj.errors import UsageError

_REPORT = "parity.json"
Shapes = tuple[tuple[int, ...], ...]


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Declare the command and its options."""
    parser = subparsers.add_parser(
        "convert", help=COMMANDS["convert"], description=__doc__, allow_abbrev=False
    )
    parser.add_argument("model", type=types.path_of, metavar="MODEL", help="model file")
    options.add_path(parser, "--out", "DIR", "folder for the checkpoint", required=True)
    options.add_flag(
        parser, "--check", "compare logits and input gradients with torch's; writes DIR/parity.json"
    )
    parser.add_argument(
        "--image-size",
        type=types.image_size,
        metavar="HxW",
        help="where the file leaves it open (default: 224x224); of a network that takes any size,"
        " the size that --check compares at",
    )
    add_public_code(parser, "such a file is refused")
    options.add_network(parser)
    options.add_limits(parser)


def run(args: argparse.Namespace) -> int:
    """Convert in a guarded process; the exit status is 2 if the file is no model or disagrees.

    Raises:
        LimitError: the file took too much time or memory.
    """
    return options.guarded(args, _convert, f"the process that converts {args.model}")


def _convert(args: argparse.Namespace) -> int:
    """Convert, write, check.

    Raises:
        ConverterError: the file cannot be read or converted, or the result disagrees.
        UsageError: DIR cannot be written.
    """
    _check_out(args)
    options.keep_compiled()
    from converters.artifact import Artifact
    from converters.checkpoint import save_checkpoint
    from converters.input_form import InputForm
    from converters.opening import convert_file, read_model
    from converters.preparation import PreparedConfig

    form = InputForm(image_size=args.image_size, public_code=args.public_code)
    code = options.code_from(args)
    if args.check and code is not None:
        raise UsageError("--check compares with torchvision's networks; leave --network out")
    file = read_model(args.model)
    if args.check and not isinstance(file.content, Artifact):
        raise UsageError(
            f"--check compares weights with torchvision's network of that name, and {file.format}"
            " has none; leave it out"
        )
    model = convert_file(file, form, code=code).model
    for finding in model.findings:
        options.message(finding)
    if isinstance(model.config, PreparedConfig):
        options.message("the checkpoint is of the network alone, without mean and deviation")
        model = replace(model, config=model.config.inner)
    shapes = _shapes_asked(args, model)
    try:
        (args.out / _REPORT).unlink(missing_ok=True)  # before: it is another network's from now on
        save_checkpoint(model, args.out, file.sha256)
    except OSError as error:
        raise UsageError(f"cannot write {args.out}: {error}; give another --out") from error
    outputs = "one output" if model.num_classes == 1 else f"{model.num_classes} classes"
    print(f"{args.model}: {model.architecture}, {outputs}, in {args.out}")
    if args.check:
        _check(file.content, model, args, shapes)
    return EXIT_CLEAN


def _shapes_asked(args: argparse.Namespace, model) -> Shapes | None:
    """Batches to compare at, of a network that takes any size; None where the model says them.

    Raises:
        ConversionError: images of --image-size are too small for the network.
        UsageError: --image-size would change nothing.
    """
    if args.image_size is None or model.image_size is not None:
        return None
    if model.input_kind != "image":
        raise UsageError(
            f"--image-size is for networks over images, {args.model} takes {model.input_kind}s;"
            " leave it out"
        )
    if not args.check:
        height, width = args.image_size
        raise UsageError(
            f"--image-size {height}x{width} changes nothing: {args.model} is a"
            f" {model.architecture}, which takes images of any size, also converted; leave it out,"
            " or add --check to compare at that size"
        )
    from converters.parity import image_shapes

    return image_shapes(model, args.image_size)


def _check_out(args: argparse.Namespace) -> None:
    """Before the conversion: DIR is a folder or absent, and nothing in it that is read is lost."""
    if args.out.exists() and not args.out.is_dir():
        raise UsageError(f"--out {args.out} is {what_is(args.out)}; expected a folder")
    from converters.checkpoint import CONFIG, PARAMS, check_folder

    outputs.keep_inputs((args.out / name for name in (PARAMS, CONFIG, _REPORT)), [args.model])
    try:
        check_folder(args.out)
    except OSError as error:
        raise UsageError(f"cannot write {args.out}: {error}; give another --out") from error


def _check(artifact, model, args: argparse.Namespace, shapes: Shapes | None) -> None:
    from converters.files import write_atomic
    from converters.parity import check_parity

    options.message("comparing with torch; this compiles several programs")
    report = check_parity(artifact, model, shapes, public_code=args.public_code)
    text = json.dumps(asdict(report), indent=2, allow_nan=False)
    write_atomic(args.out / _REPORT, text.encode() + b"\n")
    for result in report.comparisons:
        form = "single step" if result.single_step else "folded" if result.folded else "as it is"
        print(
            f"parity: {form}, {result.dtype}, "
            f"{'x'.join(map(str, result.shape))}: relative error of logits {result.logits}, "
            f"of input gradients {result.gradients}{'' if result.passed else '  FAILED'}"
        )
    report.require()
