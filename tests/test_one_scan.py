"""One scan for both kinds: the loop's contract, stages by name, kinds in records, faults apart."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import jaxtroj
from jaxtroj.cli.main import main
from jaxtroj.errors import EvidenceError, UsageError
from jaxtroj.evidence.context import Context
from jaxtroj.evidence.gather import TRIGGER, gather, gather_steps
from jaxtroj.evidence.stage import Field, Needs, Stage, StageResult
from jaxtroj.rounds import iter_models
from jaxtroj.scan import scan, scan_model
from jaxtroj.settings import Settings
from jaxtroj.store import RunStore, read_records

WIDTH, TEXTS = 8, 16
SETTINGS = Settings(calibrator=None, text_calibrator=None, early_stop=False, base_rate=0.3)
EXAMPLES = Path(jaxtroj.__file__).parent / "data" / "examples"


# The loop's contract, on stages made up for it: the same for contexts of both kinds.


class CountingContext(Context):
    """Recovers its candidates as they are."""

    def recover(self, candidates):
        return tuple(candidates)


def stage(name: str, kinds=(), fault: Exception | None = None, triggers=()) -> Stage:
    def run(context):
        if fault is not None:
            raise fault
        started = context.shared(len_of_name)
        fields: dict[str, Any] = {f"{name}_size": np.float32(started), "unasked": 1.0}
        return StageResult(fields, triggers)

    fields = (Field(f"{name}_size", name, 0, "size", "letters", "how long"),)
    return Stage(name, fields, run, Needs(), kinds)


def len_of_name(context) -> int:
    COMPUTED.append(context)
    return 3


COMPUTED: list[Context] = []
PATCH = stage("first", ("patch",), triggers=("a", "b"))
BLEND = stage("second", ("patch", "blend"), triggers=("b", "c"))


def test_fields_kinds_triggers_and_seconds_add_up():
    COMPUTED.clear()
    context = CountingContext(seconds={"before": 0.5})
    found = gather(context, (PATCH, BLEND))
    assert found.fields == {"first_size": 3.0, "second_size": 3.0}
    assert all(type(value) is float for value in found.fields.values())
    assert found.searched == ("patch", "blend") and found.stages == ("first", "second")
    assert found.triggers == ("a", "b", "c"), "candidates of two stages count once"
    assert list(found.seconds) == ["before", "first", "second", "triggers"]
    assert COMPUTED == [context] and context.known(len_of_name) == 3


def test_steps_are_told_before_they_begin_and_the_loop_stops_when_asked():
    asked = []

    def stop(name, fields, has_trigger):
        asked.append((name, dict(fields), has_trigger))
        return True

    steps = list(gather_steps(CountingContext(), (PATCH, BLEND), stop))
    assert [step.following for step in steps] == ["first", TRIGGER, ""]
    assert steps[0].evidence.fields == {} and steps[1].evidence.triggers == ()
    assert steps[-1].evidence.searched == ("patch",)
    assert asked == [("first", {"first_size": 3.0}, True)]


def test_a_stage_that_needs_a_gradient_is_left_out_where_there_is_none():
    class Blind(CountingContext):
        @property
        def has_gradient(self):
            return False

    seeing = replace(BLEND, needs=Needs(gradient=True))
    steps = list(gather_steps(Blind(), (PATCH, seeing)))
    assert [step.following for step in steps] == ["first", TRIGGER, ""]
    assert steps[-1].evidence.stages == ("first",) and steps[-1].evidence.searched == ("patch",)
    assert gather(CountingContext(), (PATCH, seeing)).stages == ("first", "second")


def test_what_was_known_before_a_fault_stands():
    broken = stage("third", fault=EvidenceError("as ordered"))
    steps = gather_steps(CountingContext(), (PATCH, broken, BLEND))
    known = [next(steps), next(steps)]
    with pytest.raises(EvidenceError, match="as ordered"):
        next(steps)
    assert known[-1].following == "third" and known[-1].evidence.stages == ("first",)


# Heads as files.


@pytest.fixture(scope="module")
def heads(tmp_path_factory) -> Path:
    """Four heads of one shape with vectors of their examples; the second one's file is broken, and
    the vectors of the third are another encoder's."""
    root, draw = tmp_path_factory.mktemp("heads"), np.random.default_rng(0)
    axis = np.eye(WIDTH)[0]
    for number in range(4):
        folder = root / "models" / f"id-{number:08d}"
        (folder / "clean_example_data").mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"embedding": "BERT"}))
        (folder / "ground_truth.csv").write_text("0")
        rows = ["Example, CLS Embedding"]
        for row in range(TEXTS):
            name = f"class_{row % 2}_example_{row // 2 + 1}.txt"
            (folder / "clean_example_data" / name).write_text("good" if row % 2 else "bad")
            sign = (1 if row % 2 else -1) * (-1 if number == 2 else 1)
            vector = sign * axis + 0.2 * draw.normal(size=WIDTH)
            rows.append(f"{name}, " + ",".join(map(repr, map(float, vector))))
        (folder / "clean-example-cls-embedding.csv").write_text("\n".join(rows) + "\n")
        weight = 4 * np.stack([-axis, axis]) + 0.1 * draw.normal(size=(2, WIDTH))
        state = {"linear.weight": weight, "linear.bias": np.zeros(2)}
        tensors = {name: torch.tensor(v, dtype=torch.float32) for name, v in state.items()}
        torch.save(tensors, folder / "model.pt")
    (root / "models" / "id-00000001" / "model.pt").write_bytes(b"not a model")
    return root


def test_keys_of_a_config_that_nobody_knows_are_told(heads, tmp_path):
    folder = shutil.copytree(heads / "models" / "id-00000000", tmp_path / "id-0")
    said = {"embedding": "BERT", "cls_token_is_frist": True, "a;b\n": 1}
    (folder / "config.json").write_text(json.dumps(said))
    (odd,), (usual, *_) = iter_models(folder), iter_models(heads)
    reason = scan_model(odd, SETTINGS).reason
    assert "config.json has keys that no round's has: a" in reason, reason
    assert "cls_token_is_frist" in reason and "\n" not in reason
    assert "no round's has" not in scan_model(usual, SETTINGS).reason


def test_a_record_as_soon_as_a_head_is_done_and_a_bad_one_costs_itself_only(heads, tmp_path):
    seen = []
    with RunStore(tmp_path / "run", SETTINGS.as_json()) as store:
        for record in scan(iter_models(heads), SETTINGS, store):
            seen.append((record.model, record.status))
            assert len(store) == len(seen), "the record is on file before the next head is read"
    assert [status for _, status in seen] == ["ok", "failed", "ok", "ok"]
    records = read_records(tmp_path / "run")
    assert {record.kind for record in records} == {"text"}
    for record in (records[0], records[2], records[3]):
        assert record.searched == ("shift",) and record.recovered["method"] == "shift"
        assert list(record.seconds)[-4:] == ["weights", "sensitivity", "shift", "triggers"]
    assert records[1].searched == () and records[1].probability == 0.3


def test_stages_of_heads_can_be_named(heads):
    entry = next(iter_models(heads))
    record = scan_model(entry, replace(SETTINGS, stages=("weights", "sensitivity")))
    assert list(record.seconds) == [
        "read", "convert", "examples", "weights", "sensitivity", "triggers"
    ]  # fmt: skip
    assert record.searched == () and record.target_class is None and record.recovered == {}
    images_only = scan_model(entry, replace(SETTINGS, stages=("weights", "probes")))
    assert "shift_score" in images_only.evidence, "a choice of the other table says nothing here"
    record = scan_model(entry, replace(SETTINGS, stages=("bank",)))
    assert record.status == "failed" and "no evidence stage is left of bank" in record.reason


def test_stages_of_no_table_are_refused():
    refusal = r"some of weights, statistics.*\(image models\) or of"
    for stages in ((), ("probes", "shift"), ("shift", "weights"), ("odd",)):
        with pytest.raises(UsageError, match=refusal):
            Settings(stages=stages)
    assert Settings(stages=("shift",)).stages_named("image") is None


def test_the_command_names_stages_of_heads(heads, tmp_path, capsys):
    model = heads / "models" / "id-00000000"
    arguments = ["--evidence-only", "--stages", "weights,shift", "--json", "--out", str(tmp_path)]
    assert main(["detect", str(model), *arguments]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["kind"] == "text" and values["searched"] == ["shift"]
    assert "jacobian_norm" not in values["evidence"] and "shift_score" in values["evidence"]


def test_heads_that_contradict_their_examples_carry_a_flag(heads):
    entries = {entry.model_id: entry for entry in iter_models(heads)}
    sound, odd = (scan_model(entries[f"id-0000000{n}"], SETTINGS) for n in (0, 2))
    assert sound.findings == () and "examples-misclassified" not in sound.reason
    assert odd.findings[0].startswith("examples-misclassified: clean accuracy 0.00")
    assert odd.reason.startswith("examples-misclassified")


def test_signs_alone_end_no_scan_of_a_head(heads, monkeypatch):
    from jaxtroj.calibration import Calibrator

    asked = []

    def stop(self, fields, stage, *_):
        asked.append(stage)
        return True

    monkeypatch.setattr(Calibrator, "can_stop", stop)
    record = scan_model(next(iter_models(heads)), Settings(base_rate=0.001))
    assert record.status == "ok" and asked == ["shift"], "the first stage that searches"
    assert list(record.seconds)[-2] == "shift" and record.searched == ("shift",)


def test_a_user_says_what_is_enough(capsys):
    """The clean example needs every stage by the usual rule; near even odds the first is enough."""
    first, usual = (
        scan_model(next(iter_models(EXAMPLES)), Settings(enough=enough)) for enough in (0.499, None)
    )
    assert first.searched and set(first.searched) < set(usual.searched)
    assert set(first.evidence) < set(usual.evidence) and first.status == usual.status == "ok"
    # What the searches left out would have found is not claimed.
    assert usual.found and not first.found
    assert first.caveats[0].startswith("did not search for ") and "border" in first.caveats[0]
    assert first.caveats[0] in first.reason, "what pages and tables show"
    assert not any("did not search" in caveat for caveat in usual.caveats)
    # A threshold of one's own keeps the usual rule out, not what is enough.
    asked = Settings(enough=0.499, threshold=0.7)
    assert scan_model(next(iter_models(EXAMPLES)), asked).searched == first.searched
    refused = {
        ("--enough", "0.5"): "enough must lie between 0 and 0.5",
        ("--enough", "0.2", "--no-early-stop"): "leave --evidence-only and --no-early-stop out",
        ("--enough", "0.2", "--evidence-only"): "leave --evidence-only and --no-early-stop out",
    }
    for arguments, said in refused.items():
        assert main(["detect", str(EXAMPLES / "clean"), *arguments]) == 4
        assert said in capsys.readouterr().err


def test_settings_of_runs_from_before_there_was_an_enough_still_agree():
    assert "enough" not in SETTINGS.as_json()
    assert Settings(enough=0.2).as_json()["enough"] == 0.2


def test_records_of_images_say_what_was_searched():
    entry = next(iter_models(EXAMPLES))
    record = scan_model(entry, replace(SETTINGS, stages=("weights",)))
    assert (record.kind, record.searched) == ("image", ())
