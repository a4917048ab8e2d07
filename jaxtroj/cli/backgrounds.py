"""`jaxtroj backgrounds`: ImageNet-9 and the Backgrounds Challenge."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converters.errors import ConverterError
from jaxtroj.cli.backgrounds_options import add_actions
from jaxtroj.cli.main import COMMANDS, EXIT_CLEAN, EXIT_FAILED
from jaxtroj.cli.options import guarded, keep_compiled, message
from jaxtroj.cli.outputs import keep_inputs
from jaxtroj.cli.progress import Progress, remaining
from jaxtroj.errors import JaxtrojError, UsageError

if TYPE_CHECKING:
    from jaxtroj.backgrounds.candidates import Candidate
    from jaxtroj.backgrounds.challenge import State
    from jaxtroj.backgrounds.classifier import Classifier, Resident
    from jaxtroj.backgrounds.evaluation import VariantScore
    from jaxtroj.backgrounds.layout import ChallengeData, Reading
    from jaxtroj.backgrounds.normalization import Normalization

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
    handlers = {
        "evaluate": _evaluate,
        "challenge": _challenge,
        "generate": _generate,
        "leaderboard": _leaderboard,
    }
    add_actions(parser, handlers)


def run(args: argparse.Namespace) -> int:
    """Run one action; returns the exit status.

    Raises:
        UsageError, DatasetError, StoreError, GenerationError, ConverterError: see the action.
    """
    keep_compiled()
    return args.handler(args)


def _evaluate(args: argparse.Namespace) -> int:
    return guarded(args, _evaluate_models, "the process that evaluates the models")


def _evaluate_models(args: argparse.Namespace) -> int:
    if args.out is not None:
        keep_inputs(args.out, (*args.models, args.data, args.mapping, args.model_config))
    from jaxtroj.backgrounds import results
    from jaxtroj.backgrounds.evaluation import check_variants, evaluate
    from jaxtroj.backgrounds.layout import VARIANTS, picture_size

    variants = check_variants(args.variants.split(",") if args.variants else VARIANTS)
    reading = _reading(args)
    candidates = _candidates(args, picture_size(args.data, variants[0], reading))
    scores: dict[str, dict[str, VariantScore]] = {c.name: {} for c in candidates}
    classifiers = {c.name: c.classifier for c in candidates}
    failures = _Failures(len(candidates))
    with Progress() as progress:
        progress.update(f"reading {args.data}")
        for name, score in evaluate(classifiers, args.data, variants, reading, failures.add):
            scores[name][score.variant] = score
            progress.update(f"{name}: {score.variant} {100 * score.accuracy:.2f} %")
    done = [c for c in candidates if c.name not in failures.by_name]
    found = [results.in9_result(c.describe(), scores[c.name], reading) for c in done]
    try:
        if found:
            _write(args.out, results.to_bytes(found))
    finally:  # a file that cannot be written does not cost what took hours
        _print(args, found)
    return failures.told()


def _challenge(args: argparse.Namespace) -> int:
    return guarded(args, _challenge_models, "the process that searches the models' backgrounds")


def _challenge_models(args: argparse.Namespace) -> int:
    from jaxtroj.backgrounds.classifier import resident
    from jaxtroj.backgrounds.layout import FOREGROUNDS, load_challenge, picture_size

    if args.recheck_margin is not None and args.precision != "bfloat16":
        raise UsageError("--recheck-margin goes with --precision bfloat16")
    reading = _reading(args)
    candidates = _candidates(args, picture_size(args.data, FOREGROUNDS, reading))
    data = load_challenge(args.data, reading)
    on_device, digest = resident(data), data.digest()
    found, failures = [], _Failures(len(candidates))
    for candidate in candidates:
        try:
            found.append(_run_one(args, candidate, data, on_device, digest, reading))
        except (JaxtrojError, ConverterError) as error:
            failures.add(candidate.name, error)
    _print(args, found)
    return failures.told()


class _Failures:
    """Networks of several that failed while the others go on; the error of an only one is raised.

    `by_name` holds the error of each.
    """

    def __init__(self, networks: int):
        self._networks = networks
        self.by_name: dict[str, Exception] = {}

    def add(self, name: str, error: Exception) -> None:
        if self._networks == 1:
            raise error
        self.by_name[name] = error

    def told(self) -> int:
        """Say what failed; the exit status."""
        for name, error in self.by_name.items():
            message(f"error: {name}: {error}")
        return EXIT_FAILED if self.by_name else EXIT_CLEAN


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


def _generate(args: argparse.Namespace) -> int:
    from jaxtroj.backgrounds.generation import Done, Dropped, GenerationSettings, generate

    settings = GenerationSettings(
        args.seed, args.masks, args.boxes, args.size, args.convert_grayscale
    )
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


def _candidates(args: argparse.Namespace, size: tuple[int, int]) -> "list[Candidate]":
    from jaxtroj.backgrounds.candidates import Request, load_candidates
    from jaxtroj.backgrounds.head import read_mapping

    mapping = None if args.mapping is None else read_mapping(args.mapping)
    if mapping is not None and not mapping.is_published:
        message(f"{args.mapping} is not the published mapping; figures are not comparable")
    normalization = _normalization(args)
    request = Request(
        mapping, args.in9, args.restrict_to_mapped, normalization, args.batch_size, args.public_code
    )
    candidates = load_candidates(args.models, request, size)
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


def _print(args: argparse.Namespace, found: list[dict[str, Any]]) -> None:
    import json

    from jaxtroj.backgrounds.report import text

    for result in found:
        print(json.dumps(result, allow_nan=False) if args.json else text(result))
