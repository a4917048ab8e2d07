"""Options of `jaxtroj backgrounds` and its four actions. Imports nothing heavy."""

import argparse
from collections.abc import Callable, Mapping

from jaxtroj.cli import argument_types as types
from jaxtroj.cli.options import add_flag, add_limits, add_path
from jaxtroj.cli.picture_options import add_public_code

_NORMALIZATIONS = ("imagenet", "in9", "half", "none")
_FORMATS = ("text", "json", "csv", "html")

Handlers = Mapping[str, Callable[[argparse.Namespace], int]]


def add_actions(parser: argparse.ArgumentParser, handlers: Handlers) -> None:
    """Declare the four actions; `args.handler` is what runs the one chosen.

    The help of the whole command shows the usage of each.
    """
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    added = [
        _add_evaluate(actions),
        _add_challenge(actions),
        _add_generate(actions),
        _add_leaderboard(actions),
    ]
    parser.epilog = "\n".join(action.format_usage() for action in added)
    for name, action in zip(actions.choices, added, strict=True):
        action.set_defaults(handler=handlers[name])


def _add_evaluate(actions: argparse._SubParsersAction) -> argparse.ArgumentParser:
    parser = _action(actions, "evaluate", "accuracy on the variants, and BG-Gap")
    _add_models(parser)
    parser.add_argument(
        "--variants", metavar="A,B", help="default: all eight, which must then be there"
    )
    add_path(parser, "--out", "FILE", "write the results as JSON")
    return parser


def _add_challenge(actions: argparse._SubParsersAction) -> argparse.ArgumentParser:
    parser = _action(actions, "challenge", "the exact number of vulnerable foregrounds")
    _add_models(parser)
    add_path(
        parser,
        "--out",
        "DIR",
        "a run folder per model in it; a run that was stopped goes on where it was",
    )
    add_flag(parser, "--matrix", "every pair: fooling rates of every background")
    parser.add_argument(
        "--backgrounds",
        type=types.count,
        metavar="N",
        help="only N backgrounds: an upper bound of the accuracy, labelled as such",
    )
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        default="float32",
        help="bfloat16 checks answers of small margin again in float32 (default: float32)",
    )
    parser.add_argument(
        "--recheck-margin",
        type=types.positive,
        metavar="M",
        help="with bfloat16: what a small margin is (default: measured on a sample)",
    )
    return parser


def _add_generate(actions: argparse._SubParsersAction) -> argparse.ArgumentParser:
    parser = _action(actions, "generate", "the variants from labelled pictures")
    parser.add_argument("images", type=types.path_of, metavar="IMAGES", help="a folder per class")
    given = parser.add_mutually_exclusive_group(required=True)
    add_path(given, "--masks", "DIR", "DIR/class/stem.npy of 0 and 1")
    add_path(
        given,
        "--boxes",
        "FILE",
        "CSV: image,xmin,ymin,xmax,ymax with image = class/file; masks by GrabCut",
    )
    add_path(parser, "--out", "DIR", "a new folder", required=True)
    parser.add_argument("--seed", type=types.seed, required=True, metavar="S")
    parser.add_argument("--size", type=types.pixels, default=224, metavar="PX", help="default: 224")
    _add_grayscale(parser)
    return parser


def _add_leaderboard(actions: argparse._SubParsersAction) -> argparse.ArgumentParser:
    parser = _action(actions, "leaderboard", "results beside the published rows")
    parser.add_argument(
        "results",
        type=types.path_of,
        nargs="+",
        metavar="RESULTS",
        help="what --out of the others wrote",
    )
    parser.add_argument("--format", choices=_FORMATS, default="text", help="default: text")
    return parser


def _action(actions, name: str, summary: str) -> argparse.ArgumentParser:
    return actions.add_parser(name, help=summary, description=summary, allow_abbrev=False)


def _add_models(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models", type=types.path_of, nargs="+", metavar="MODEL", help="model files"
    )
    parser.add_argument("data", type=types.path_of, metavar="DATA", help="ImageNet-9 folder")
    heads = parser.add_argument_group("networks")
    add_path(
        heads,
        "--mapping",
        "FILE",
        "in_to_in9.json of the Backgrounds Challenge; needed for 1000 classes",
    )
    add_flag(heads, "--in9", "expect networks of nine classes")
    add_flag(
        heads,
        "--restrict-to-mapped",
        "only classes that map to the nine compete; not the published way",
    )
    heads.add_argument(
        "--normalization",
        choices=_NORMALIZATIONS,
        help="default: the original's for the size of the head, imagenet or in9",
    )
    heads.add_argument("--mean", type=_triple, metavar="R,G,B", help="instead, with --std")
    heads.add_argument("--std", type=_triple, metavar="R,G,B")
    add_path(heads, "--model-config", "FILE", "instead: timm or Hugging Face JSON")
    add_public_code(heads, "such a file is refused")
    heads.add_argument(
        "--batch-size",
        type=types.count_to(types.MOST_IN_A_BATCH),
        metavar="N",
        help="default: by size and device",
    )
    pictures = parser.add_argument_group("pictures")
    pictures.add_argument(
        "--resize",
        type=types.pixels,
        metavar="PX",
        help="stretch pictures; results are marked as not comparable",
    )
    _add_grayscale(pictures)
    add_limits(parser, "the whole action", "with many pictures it may take hours")
    add_flag(parser, "--json", "results as JSON on stdout")


def _add_grayscale(parser) -> None:
    add_flag(
        parser, "--convert-grayscale", "take grayscale pictures as RGB instead of refusing them"
    )


def _triple(text: str) -> tuple[float, float, float]:
    values = types.numbers(text)
    if len(values) != 3:
        raise types.refusal("three numbers R,G,B", text)
    return values[0], values[1], values[2]
