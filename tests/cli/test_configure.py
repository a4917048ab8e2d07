"""`jaxtroj configure` on evidence that an earlier call has gathered: its run folder goes on."""

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from jaxtroj.calibration import Calibrator
from jaxtroj.cli import argument_types as types
from jaxtroj.cli import configure, detect, infer
from jaxtroj.cli.main import main
from jaxtroj.evidence.stages import IMAGES, TEXTS
from jaxtroj.leaderboard.metaparameters import Metaparameters
from jaxtroj.record import Record
from jaxtroj.rounds import iter_models
from jaxtroj.scan.identity import identify
from jaxtroj.store import RunStore

pytestmark = pytest.mark.usefixtures("unguarded")

COUNT = 16
WHOLE = tuple(IMAGES.judged_fields)
WITHOUT_NORMS = tuple(name for name in WHOLE if name not in ("statistics", "memory"))
BY_KIND = {"image": IMAGES.judged_fields, "text": TEXTS.judged_fields}


def gathered(folder: Path, kind: str, stages, copies: int = 0, bank=None) -> list[str]:
    """Arguments of `configure` on models whose evidence lies in its scratch folder.

    Args:
        stages: names of the stages of a model, by its number.
        copies: of the first models, under more names and with evidence a hair different.
    """
    for number in range(COUNT + copies):
        home = folder / "round" / "models" / f"id-{number:08d}"
        (home / "example_data").mkdir(parents=True)
        (home / "model.pt").write_bytes(b"%d" % (number % COUNT))
        (home / "ground_truth.csv").write_text(str(number % 2))
    settings = configure._settings(Metaparameters(), bank)
    with RunStore(folder / "scratch" / "configure", settings.as_json()) as store:
        for number, entry in enumerate(iter_models(folder / "round")):
            random = np.random.default_rng(number % COUNT)
            evidence = {
                name: float(random.normal() + 3 * (number % 2) + 1e-6 * number)
                for stage in stages(number)
                for name in BY_KIND[kind][stage]
            }
            store.append(
                Record(
                    entry.model_id, f"{number % COUNT:064x}", 0.5, False, None, (), "ok",
                    "evidence only", evidence=evidence, kind=kind,
                    identity=identify(entry, settings),
                )
            )  # fmt: skip
    given = {
        "configure_models_dirpath": folder / "round",
        "scratch_dirpath": folder / "scratch",
        "learned_parameters_dirpath": folder / "learned",
    }
    return ["configure", *(f"--{name}={path}" for name, path in given.items())]


def test_stages_that_no_model_has_are_named_and_left_out(tmp_path, capsys):
    assert main(gathered(tmp_path, "image", lambda _: WITHOUT_NORMS)) == 0
    said = "no model has evidence of the stages statistics, memory: the calibrator is fitted"
    assert said in capsys.readouterr().err
    fitted = Calibrator.load(tmp_path / "learned" / "calibrator.json").stages
    assert list(fitted) == [name for name in Metaparameters().stages if name in WITHOUT_NORMS]


def test_models_that_lack_a_stage_are_told(tmp_path, capsys):
    words = gathered(tmp_path, "image", lambda number: WITHOUT_NORMS if number < 4 else WHOLE)
    assert main(words) == 0
    before = Metaparameters().stages[Metaparameters().stages.index("statistics") - 1]
    said = (
        f"4 models lack the fields of stage statistics and are judged by the stages up to {before}"
        " alone; calibrate them apart"
    )
    assert said in capsys.readouterr().err


def test_copies_of_a_file_count_once(tmp_path, capsys):
    assert main(gathered(tmp_path, "image", lambda _: WHOLE, copies=5)) == 0
    assert "5 models are copies of others (one sha256) and are left out" in capsys.readouterr().err
    learned = Calibrator.load(tmp_path / "learned" / "calibrator.json")
    assert learned.provenance.models == COUNT


def test_stages_that_exclude_each_other_are_told(tmp_path, capsys):
    """Half of the models lack `memory`, the others `statistics`: no later stage is fitted."""

    def stages(number):
        return [name for name in WHOLE if name != ("statistics", "memory")[number // 2 % 2]]

    assert main(gathered(tmp_path, "image", stages)) == 0
    said = "whole is not fitted: 16 models have its fields, but none of them has those of all"
    assert said in capsys.readouterr().err
    words = ["calibrate", str(tmp_path / "scratch" / "configure"), "--out", str(tmp_path / "c")]
    table = [f"id-{number:08d},{number % 2}\n" for number in range(COUNT)]
    (tmp_path / "truth.csv").write_text("model,poisoned\n" + "".join(table))
    assert main([*words, "--truth", str(tmp_path / "truth.csv")]) == 0
    captured = capsys.readouterr().out
    assert said in captured and "so few models whole" not in captured


def test_the_best_stage_is_chosen_on_all_models(monkeypatch, tmp_path, capsys):
    """Of stages that only some models have, the scores were of these alone."""
    words = gathered(tmp_path, "image", lambda number: WHOLE[:1] if number < 6 else WHOLE)
    asked = []
    monkeypatch.setattr(
        "jaxtroj.calibration.scores_of_cuts",
        lambda labelled, scheme, seed: asked.append(len(labelled.rows)) or {WHOLE[0]: 0.4},
    )
    assert main([*words, "--automatic_configuration"]) == 0
    said = f"evidence up to {WHOLE[0]} has the best out-of-fold log score of all {COUNT} models"
    assert asked == [COUNT] and said in capsys.readouterr().err
    assert list(Calibrator.load(tmp_path / "learned" / "calibrator.json").stages) == [WHOLE[0]]


def test_sentiment_heads_have_a_file_of_their_own(tmp_path, capsys):
    (tmp_path / "learned").mkdir()
    pictures = tmp_path / "learned" / "calibrator.json"
    pictures.write_text("of pictures")
    words = gathered(tmp_path, "text", lambda _: tuple(TEXTS.judged_fields)[:2])
    assert main(words) == 0
    assert "fitted without a probe bank: the heads were not" in capsys.readouterr().err
    found = Calibrator.load(tmp_path / "learned" / "text_calibrator.json")
    assert found.provenance.models == COUNT and pictures.read_text() == "of pictures"
    pictures.unlink()
    (tmp_path / "model.pt").write_bytes(b"garbage")
    capsys.readouterr()
    infer_one = ["infer", "--model_filepath", str(tmp_path / "model.pt"), "--result_filepath"]
    infer_one += [str(tmp_path / "result.txt"), "--learned_parameters_dirpath"]
    assert main([*infer_one, str(tmp_path / "learned")]) == 4
    said = capsys.readouterr().err
    assert "no calibrator.json in the learned parameters folder" in said
    assert "text_calibrator.json is for sentiment heads alone" in said
    assert float((tmp_path / "result.txt").read_text()) == 0.5
    (tmp_path / "learned" / "metaparameters.json").write_text("{}")
    (tmp_path / "bank").mkdir()
    main([*infer_one, str(tmp_path / "learned"), "--bank", str(tmp_path / "bank")])
    assert "bank was not given, now '" in capsys.readouterr().err


def test_a_bank_is_what_heads_are_judged_by(tmp_path, capsys):
    """`configure` could not take one, and `infer --bank` did without it and a word."""
    bank = tmp_path / "bank"
    bank.mkdir()
    words = gathered(tmp_path, "text", lambda _: tuple(TEXTS.judged_fields), bank=bank)
    assert main([*words, "--bank", str(bank)]) == 0
    assert "without a probe bank" not in capsys.readouterr().err
    assert "directions" in Calibrator.load(tmp_path / "learned" / "text_calibrator.json").stages
    assert main([*words, "--bank", str(tmp_path / "no")]) == 4
    assert "expected a folder `jaxtroj bank` wrote" in capsys.readouterr().err
    (tmp_path / "model.pt").write_bytes(b"garbage")
    main(
        ["infer", f"--model_filepath={tmp_path / 'model.pt'}", f"--bank={bank}"]
        + [f"--result_filepath={tmp_path / 'r.txt'}"]
        + [f"--learned_parameters_dirpath={tmp_path / 'learned'}"]
    )
    assert "bank was not given" not in capsys.readouterr().err


GIVEN = {"--bounds": "0,2", "--mean": "1,1", "--std": "1,1", "--class-counts": "1,2"}
GIVEN |= {"--image-size": "8x8"}


def declared(command) -> list[argparse.Action]:
    subparsers = argparse.ArgumentParser().add_subparsers(dest="command")
    command.add_parser(subparsers)
    return subparsers.choices[command.__name__.split(".")[-1]]._actions


def asked(action: argparse.Action) -> list[str]:
    """The option as a user would give it, with a value that is not its default."""
    if not action.option_strings:
        return ["model.pt"]
    flag = action.option_strings[0]
    if isinstance(action, argparse.BooleanOptionalAction):
        return [action.option_strings[int(bool(action.default))]]
    if action.nargs == 0:
        return [flag]
    if action.choices:
        return [f"{flag}={next(iter(action.choices))}"]
    return [f"{flag}={GIVEN.get(flag, '0.3' if action.type is types.open_unit else '3')}"]


@pytest.mark.parametrize("command", [detect, infer], ids=["detect", "infer"])
def test_every_option_is_read_or_refused(command, tmp_path, capsys):
    name = command.__name__.split(".")[-1]
    base = [name, "--configure_mode", "--scratch_dirpath", str(tmp_path / "s")]
    base += ["--configure_models_dirpath", str(tmp_path), "--learned_parameters_dirpath"]
    base += [str(tmp_path / "learned")]
    refused = []
    for action in declared(command):
        if any("_" in flag for flag in action.option_strings) or action.dest == "help":
            continue
        assert main([*base, *asked(action)]) == 4
        said = capsys.readouterr().err
        if action.dest in ("timeout", "memory"):
            assert "no model in" in said, said
        elif action.dest == "bank":
            assert "--bank 3 is absent; expected a folder" in said
        else:
            refused.append(action.dest)
            assert "--configure_mode takes what changes answers" in said, (action.dest, said)
            assert said.startswith(f"jaxtroj: error: {(action.option_strings or ['MODEL'])[0]}: ")
    few = {"channel_order", "evidence_only", "no_early_stop", "public_code", "layout", "seed"}
    assert few < set(refused)
    assert not (tmp_path / "learned").exists()


def test_learned_parameters_are_compared_with_what_is_done(tmp_path, capsys):
    """Whether metaparameters are given at infer, or options, or neither."""
    learned = tmp_path / "learned"
    learned.mkdir()
    (learned / "calibrator.json").write_text("no calibrator: ends the scan")
    stated = {"channel_order": "BGR", "normalization": "min-max"}
    written = vars(Metaparameters()) | stated | {"seed": 5}
    (learned / "metaparameters.json").write_text(json.dumps(written))
    words = ["infer", "--model_filepath", str(tmp_path / "model.pt"), "--result_filepath"]
    words += [str(tmp_path / "result.txt"), "--learned_parameters_dirpath", str(learned)]
    same = ["--channel-order", "BGR", "--normalization", "min-max", "--examples-per-class", "100"]
    head = "the calibrator was fitted on evidence gathered otherwise: "
    main(words)
    said = capsys.readouterr().err
    assert f"{head}seed was 5, now 0; channel_order was 'BGR', now not given" in said
    main([*words, *same, "--seed", "5"])
    assert head not in capsys.readouterr().err
    main([*words, *same, "--seed", "5", "--layout", "NHWC"])
    assert f"{head}layout was not given, now 'NHWC'" in capsys.readouterr().err
    (tmp_path / "m.json").write_text(json.dumps(written))
    (tmp_path / "schema.json").write_text("{}")
    files = ["--metaparameters_filepath", str(tmp_path / "m.json"), "--schema_filepath"]
    main([*words, *files, str(tmp_path / "schema.json"), "--channel-order", "RGB"])
    assert f"{head}channel_order was 'BGR', now 'RGB'\n" in capsys.readouterr().err
    (learned / "metaparameters.json").write_text(json.dumps(vars(Metaparameters()) | {"seed": 5}))
    main([*words, "--seed", "5", "--examples-per-class", "100"])
    assert head not in capsys.readouterr().err
    main([*words, *same, "--seed", "5"])
    assert f"{head}channel_order was not given, now 'BGR'" in capsys.readouterr().err
