"""`jaxtroj backgrounds`: ImageNet-9 and the Backgrounds Challenge."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtroj.cli.main import COMMANDS, EXIT_CLEAN
from jaxtroj.cli.options import count, keep_compiled, message
from jaxtroj.cli.progress import Progress, remaining
from jaxtroj.errors import UsageError

if TYPE_CHECKING:
    from jaxtroj.backgrounds.candidates import Candidate
    from jaxtroj.backgrounds.challenge import State
    from jaxtroj.backgrounds.classifier import Classifier, Resident
    from jaxtroj.backgrounds.evaluation import VariantScore
    from jaxtroj.backgrounds.layout import ChallengeData, Reading
    from jaxtroj.backgrounds.normalization import Normalization

_NORMALIZATIONS = ("imagenet", "in9", "half", "none")
_FORMATS = ("text", "json", "csv", "html")
_REPORT_SECONDS = 30.0


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Declare the command, its four actions and their options."""
    parser = subparsers.add_parser(
        "backgrounds",
        help=COMMANDS["backgrounds"],
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    added = [
        _add_evaluate(actions),
        _add_challenge(actions),
        _add_generate(actions),
        _add_leaderboard(actions),
    ]
    parser.epilog = "\n".join(action.format_usage() for action in added)


def _add_evaluate(actions: argparse._SubParsersAction) -> argparse.ArgumentParser:
    parser = _action(actions, "evaluate", _evaluate, "accuracy on the variants, and BG-Gap")
    _add_models(parser)
    parser.add_argument(
        "--variants", metavar="A,B", help="default: all eight, which must then be there"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the results as JSON")
    return parser


def _add_challenge(actions: argparse._SubParsersAction) -> argparse.ArgumentParser:
    parser = _action(actions, "challenge", _challenge, "the exact number of vulnerable foregrounds")
    _add_models(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="a run folder per model in it; a run that was stopped goes on where it was",
    )
    parser.add_argument(
        "--matrix", action="store_true", help="every pair: fooling rates of every background"
    )
    parser.add_argument(
        "--backgrounds",
        type=count,
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
        type=_positive,
        metavar="M",
        help="with bfloat16: what a small margin is (default: measured on a sample)",
    )
    return parser


def _add_generate(actions: argparse._SubParsersAction) -> argparse.ArgumentParser:
    parser = _action(actions, "generate", _generate, "the variants from labelled pictures")
    parser.add_argument("images", type=Path, metavar="IMAGES", help="a folder per class")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--masks", type=Path, metavar="DIR", help="DIR/class/stem.npy of 0 and 1")
    given.add_argument(
        "--boxes",
        type=Path,
        metavar="FILE",
        help="CSV: image,xmin,ymin,xmax,ymax with image = class/file; masks by GrabCut",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder")
    parser.add_argument("--seed", type=_seed, required=True, metavar="S")
    parser.add_argument("--size", type=count, default=224, metavar="PX", help="default: 224")
    _add_grayscale(parser)
    return parser


def _add_leaderboard(actions: argparse._SubParsersAction) -> argparse.ArgumentParser:
    parser = _action(actions, "leaderboard", _leaderboard, "results beside the published rows")
    parser.add_argument(
        "results", type=Path, nargs="+", metavar="RESULTS", help="what --out of the others wrote"
    )
    parser.add_argument("--format", choices=_FORMATS, default="text", help="default: text")
    return parser


def _action(actions, name: str, handler, summary: str) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=summary, description=summary, allow_abbrev=False)
    parser.set_defaults(handler=handler)
    return parser


def _add_models(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL", help="model files")
    parser.add_argument("data", type=Path, metavar="DATA", help="ImageNet-9 folder")
    heads = parser.add_argument_group("networks")
    heads.add_argument(
        "--mapping",
        type=Path,
        metavar="FILE",
        help="in_to_in9.json of the Backgrounds Challenge; needed for 1000 classes",
    )
    heads.add_argument("--in9", action="store_true", help="expect networks of nine classes")
    heads.add_argument(
        "--restrict-to-mapped",
        action="store_true",
        help="only classes that map to the nine compete; not the published way",
    )
    heads.add_argument(
        "--normalization",
        choices=_NORMALIZATIONS,
        help="default: the original's for the size of the head, imagenet or in9",
    )
    heads.add_argument("--mean", type=_triple, metavar="R,G,B", help="instead, with --std")
    heads.add_argument("--std", type=_triple, metavar="R,G,B")
    heads.add_argument(
        "--model-config", type=Path, metavar="FILE", help="instead: timm or Hugging Face JSON"
    )
    heads.add_argument("--batch-size", type=count, metavar="N", help="default: by size and device")
    pictures = parser.add_argument_group("pictures")
    pictures.add_argument(
        "--resize",
        type=count,
        metavar="PX",
        help="stretch pictures; results are marked as not comparable",
    )
    _add_grayscale(pictures)
    parser.add_argument("--json", action="store_true", help="results as JSON on stdout")


def _add_grayscale(parser) -> None:
    parser.add_argument(
        "--convert-grayscale",
        action="store_true",
        help="take grayscale pictures as RGB instead of refusing them",
    )


def run(args: argparse.Namespace) -> int:
    """Run one action; returns the exit status.

    Raises:
        UsageError, DatasetError, StoreError, GenerationError, ConverterError: see the action.
    """
    keep_compiled()
    return args.handler(args)


def _evaluate(args: argparse.Namespace) -> int:
    from jaxtroj.backgrounds import results
    from jaxtroj.backgrounds.evaluation import check_variants, evaluate
    from jaxtroj.backgrounds.layout import VARIANTS

    variants = check_variants(args.variants.split(",") if args.variants else VARIANTS)
    reading = _reading(args)
    candidates = _candidates(args)
    scores: dict[str, dict[str, VariantScore]] = {c.name: {} for c in candidates}
    classifiers = {c.name: c.classifier for c in candidates}
    with Progress() as progress:
        progress.update(f"reading {args.data}")
        for name, score in evaluate(classifiers, args.data, variants, reading):
            scores[name][score.variant] = score
            progress.update(f"{name}: {score.variant} {100 * score.accuracy:.2f} %")
    found = [results.in9_result(c.describe(), scores[c.name], reading) for c in candidates]
    _write(args.out, results.to_bytes(found))
    _print(args, found, _in9_text)
    return EXIT_CLEAN


def _in9_text(result: dict[str, Any]) -> str:
    lines = [f"{result['model']} ({result['architecture']}, {result['normalization']['name']})"]
    for name, variant in result["variants"].items():
        lines.append(
            f"  Accuracy on {name} is {100 * variant['accuracy']:.2f}%  "
            f"(outside the nine classes {100 * variant['outside']:.2f}%)"
        )
        each = (f"{c} {100 * share:.1f}" for c, share in variant["per_class"].items())
        lines.append(f"    {', '.join(each)}")
    if result["bg_gap"] is not None:
        lines.append(f"  BG-Gap {100 * result['bg_gap']:.2f} points")
    return "\n".join([*lines, *_reservations(result)])


def _reservations(result: dict[str, Any]) -> list[str]:
    return [f"  not comparable with published figures: {n}" for n in result["reservations"]]


def _challenge(args: argparse.Namespace) -> int:
    from jaxtroj.backgrounds.classifier import resident
    from jaxtroj.backgrounds.layout import load_challenge

    if args.recheck_margin is not None and args.precision != "bfloat16":
        raise UsageError("--recheck-margin goes with --precision bfloat16")
    reading = _reading(args)
    candidates = _candidates(args)
    data = load_challenge(args.data, reading)
    on_device, digest = resident(data), data.digest()
    found = [_run_one(args, c, data, on_device, digest, reading) for c in candidates]
    _print(args, found, _challenge_text)
    return EXIT_CLEAN


def _run_one(
    args: argparse.Namespace,
    candidate: "Candidate",
    data: "ChallengeData",
    on_device: "Resident",
    digest: str,
    reading: "Reading",
) -> dict[str, Any]:
    """The challenge of one network, in its run folder if there is to be one."""
    from jaxtroj.backgrounds.challenge import Plan, choose_backgrounds, plan_depth
    from jaxtroj.backgrounds.session import Session

    fast, precise, margin = _precision(args, candidate.classifier, on_device)
    plan = Plan(
        chosen=choose_backgrounds(data, args.backgrounds),
        every_pair=args.matrix,
        recheck_margin=margin,
        depth=plan_depth(),
    )
    # A measured margin may differ in its last digits from call to call; that it was measured is
    # what a resumed run must agree on.
    asked = "measured" if args.recheck_margin is None else args.recheck_margin
    precision = {"precision": args.precision, "recheck_margin": asked}
    description = candidate.describe() | precision
    session = Session(candidate.name, description, data, digest, plan, reading)
    with Progress() as progress:
        shown = _Shown(progress, candidate.name)
        return session.run(fast, precise, on_device, args.out, shown)


def _precision(
    args: argparse.Namespace, precise: "Classifier", data: "Resident"
) -> tuple["Classifier", "Classifier | None", float]:
    """The classifier that scans, the one that checks, and the margin below which it does."""
    if args.precision == "float32":
        return precise, None, 0.0
    import jax.numpy as jnp

    from jaxtroj.backgrounds.challenge import measured_margin

    fast = precise.astype(jnp.bfloat16)
    margin = args.recheck_margin
    return fast, precise, measured_margin(fast, precise, data) if margin is None else margin


class _Shown:
    """Progress of one search, with the time left at most."""

    def __init__(self, progress: Progress, name: str):
        self._progress, self._name = progress, name
        self._started = self._said = time.monotonic()

    def __call__(self, state: "State") -> None:
        now = time.monotonic()
        left = remaining(state.passes, state.passes + state.most_left, now - self._started)
        text = (
            f"{self._name}: {state.decided}/{state.foregrounds} foregrounds decided, "
            f"{state.vulnerable} vulnerable, {state.passes} passes"
            f"{f', at most {left}' if left else ''}"
        )
        self._progress.update(text)
        if not self._progress.is_live and now - self._said > _REPORT_SECONDS:
            self._said = now
            self._progress.line(text)


def _challenge_text(result: dict[str, Any]) -> str:
    vulnerable, total = result["vulnerable"], result["foregrounds"]
    bound = "at most " if result["is_upper_bound"] else ""
    accuracy = f"{bound}{100 * result['challenge_accuracy']:.2f}%"
    each = ", ".join(f"{c} {100 * share:.1f}" for c, share in result["per_class"].items())
    lines = [
        f"{result['model']} ({result['architecture']}, {result['normalization']['name']})",
        f"  Summary: {vulnerable}/{total} ({100 * vulnerable / total:.2f}%) are vulnerable "
        "foregrounds.",
        f"  Challenge accuracy {accuracy}  ({each})",
        f"  {result['pairs']} pairs answered, {result['passes']} forward passes in this call",
    ]
    if "matrix" in result:
        without = result["matrix"]["challenge_accuracy_without_own_class"]
        lines.append(f"  without backgrounds of the own class {100 * without:.2f}%")
    return "\n".join([*lines, *_reservations(result)])


def _generate(args: argparse.Namespace) -> int:
    from jaxtroj.backgrounds.generation import Done, Dropped, Settings, generate

    settings = Settings(args.seed, args.masks, args.boxes, args.size, args.convert_grayscale)
    number = 0
    with Progress() as progress:
        for event in generate(args.images, args.out, settings):
            if isinstance(event, Done):
                used, dropped = (len(event.manifest[name]) for name in ("pictures", "dropped"))
                progress.line(f"{used} pictures in eight variants, {dropped} not used")
                continue
            number += 1
            progress.update(f"picture {number}: {event.source.name}")
            if isinstance(event, Dropped):
                progress.line(f"{event.source.name} is not used: {event.reason}")
    print(args.out)
    return EXIT_CLEAN


def _leaderboard(args: argparse.Namespace) -> int:
    from jaxtroj.backgrounds.leaderboard import PUBLISHED, render, rows
    from jaxtroj.backgrounds.results import read_results

    results = [result for path in args.results for result in read_results(path)]
    print(render([*PUBLISHED, *rows(results)], args.format), end="")
    return EXIT_CLEAN


def _reading(args: argparse.Namespace) -> "Reading":
    from jaxtroj.backgrounds.layout import Reading

    return Reading(args.resize, args.convert_grayscale)


def _candidates(args: argparse.Namespace) -> "list[Candidate]":
    from jaxtroj.backgrounds.candidates import Request, load_candidates
    from jaxtroj.backgrounds.head import read_mapping

    mapping = None if args.mapping is None else read_mapping(args.mapping)
    if mapping is not None and not mapping.is_published:
        message(f"{args.mapping} is not the published mapping; figures are not comparable")
    normalization = _normalization(args)
    request = Request(mapping, args.in9, args.restrict_to_mapped, normalization, args.batch_size)
    candidates = load_candidates(args.models, request)
    for candidate in candidates:
        for finding in candidate.classifier.model.findings:
            message(f"{candidate.name}: {finding}")
    return candidates


def _normalization(args: argparse.Namespace) -> "Normalization | None":
    from jaxtroj.backgrounds.normalization import NAMED, Normalization, from_config

    if (args.mean is None) != (args.std is None):
        raise UsageError("--mean and --std go together; give both")
    given = [args.normalization, args.mean, args.model_config]
    if sum(value is not None for value in given) > 1:
        raise UsageError("give one of --normalization, --mean with --std, and --model-config")
    if args.normalization is not None:
        return NAMED[args.normalization]
    if args.mean is not None:
        return Normalization("as given", args.mean, args.std)
    return None if args.model_config is None else from_config(args.model_config)


def _write(path: Path | None, content: bytes) -> None:
    if path is None:
        return
    from converters.files import write_atomic

    try:
        write_atomic(path, content)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


def _print(args: argparse.Namespace, found: list[dict[str, Any]], as_text) -> None:
    import json

    for result in found:
        print(json.dumps(result, allow_nan=False) if args.json else as_text(result))


def _triple(text: str) -> tuple[float, float, float]:
    try:
        red, green, blue = (float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected three numbers R,G,B, got {text!r}") from None
    return red, green, blue


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number of 0 or more, got {text!r}")
    return int(text)
