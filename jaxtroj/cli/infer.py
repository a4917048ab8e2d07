"""`jaxtroj infer`: one model through TrojAI's container interface.

Takes the flags of NIST's newest entrypoint and those of all earlier rounds. Leaves one float in the
result file whatever happens, unless that file is an input. Exit status 0 when the model was
answered, poisoned or not.
"""

import argparse

from jaxtroj.cli import argument_types as types
from jaxtroj.cli import configure, detect, nist, options
from jaxtroj.cli.main import COMMANDS, EXIT_CLEAN, EXIT_FAILED
from jaxtroj.cli.statuses import say_unjudged

before_parsing = detect.before_parsing


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Declare the command and its options."""
    parser = subparsers.add_parser(
        "infer", help=COMMANDS["infer"], description=__doc__, allow_abbrev=False
    )
    group = parser.add_argument_group("the model")
    group.add_argument(
        "--examples_dirpath",
        dest="examples",
        type=types.path_of,
        metavar="PATH",
        help="clean examples: a folder, or an .npz archive with pictures x and labels y",
    )
    nist.add_model_flags(group)
    nist.add_parameter_flags(parser.add_argument_group("the detector"))
    options.add_limits(parser)
    options.add_settings(parser)
    # The containers are those of the rounds, whose models need no code.
    parser.set_defaults(usual_population="round0", network=None, network_args=None)
    configure.remember_options(parser)


def run(args: argparse.Namespace) -> int:
    """Answer for one model; returns the exit status."""
    from jaxtroj.record import is_evidence_only

    if args.configure_mode:
        return configure.run(args)
    nist.require(args, "model_filepath", "result_filepath")
    records = detect.detect(args, [args.model_filepath], as_json=False, out=None)
    if not args.evidence_only:
        say_unjudged(sum(map(is_evidence_only, records)))
    return EXIT_CLEAN if records[0].status == "ok" else EXIT_FAILED
