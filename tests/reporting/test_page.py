"""The HTML page: what is in it, that nothing escapes into markup, and that it stays small."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxtroj.cli.main import main
from jaxtroj.errors import StoreError
from jaxtroj.evidence.stages import IMAGES
from jaxtroj.record import EVIDENCE_ONLY, Record
from jaxtroj.reporting import page
from jaxtroj.reporting.content import read_content
from jaxtroj.reporting.fields import fields_of
from jaxtroj.reporting.page import page_data, render
from jaxtroj.reporting.pictures import PANELS, embed
from jaxtroj.reporting.tables import render_json
from jaxtroj.store import RunStore

DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


class Tags(HTMLParser):
    """Names and attributes of all elements."""

    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def named(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.found if tag == name]


def data_of(text: str) -> dict:
    (block,) = DATA.findall(text)
    return json.loads(block, parse_constant=pytest.fail)


def test_a_large_run_has_a_line_of_every_model_and_everything_of_some(run_and_truth):
    run, truth = run_and_truth
    content = read_content(run, truth)
    all_whole, some = page_data(content), page_data(content, most=6)
    assert all_whole["spread"] is None and len(some["models"]) == 24
    full = [model for model in some["models"] if isinstance(model, dict)]
    poisoned = sorted((r.probability for r in content.records if r.poisoned), reverse=True)
    assert [m["word"] for m in full] == ["poisoned"] * 6
    assert sorted((m["probability"] for m in full), reverse=True) == pytest.approx(poisoned[:6])
    brief = [m for m in some["models"] if isinstance(m, list)]
    by_name = {model["model"]: model for model in all_whole["models"]}
    for told in (dict(zip(some["brief"], values, strict=True)) for values in brief):
        assert told == {name: by_name[told["model"]].get(name) for name in some["brief"]}
    assert len(json.dumps(brief)) < 200 * len(brief)
    kinds = {kind: len(fields) for kind, fields in some["fields"].items()}
    assert {kind: len(found) for kind, found in some["spread"].items()} == kinds
    values = [r.evidence[some["fields"]["image"][0][0]] for r in content.records
              if r.kind == "image" and r.evidence]  # fmt: skip
    told = some["spread"]["image"][0]
    assert (told[0], told[50], told[100]) == pytest.approx(
        (min(values), np.median(values), max(values)), rel=1e-5
    )


@pytest.mark.parametrize("probability", [0.4999, 0.5, 0.5001])
@pytest.mark.parametrize("poisoned", [True, False])
def test_the_page_calls_wrong_what_evaluate_counts_as_wrong(
    tmp_path, probability, poisoned, capsys
):
    """At just 0.5 nobody is accused."""
    with RunStore(tmp_path / "run", {}) as store:
        called = probability > 0.5
        store.append(Record("a", "", probability, called, None, (), "ok", "because"))
    truth = tmp_path / "truth.csv"
    truth.write_text(f"a,{poisoned}\n")
    assert main(["evaluate", str(tmp_path / "run"), "--truth", str(truth), "--json"]) == 0
    accuracy = json.loads(capsys.readouterr().out)["accuracy"]
    content = read_content(tmp_path / "run", truth)
    (model,) = page_data(content)["models"]
    (brief,) = page_data(content, most=0)["models"]
    assert model["wrong"] == (accuracy == 0)
    assert brief[page_data(content)["brief"].index("wrong")] == model["wrong"]
    script = (Path(page.__file__).parent / "templates" / "page.js").read_text()
    assert "model.wrong" in script and "0.5" not in script
    (unlabelled,) = page_data(read_content(tmp_path / "run"))["models"]
    assert unlabelled["wrong"] is False


@pytest.mark.parametrize(
    ("probability", "called", "status", "reason", "wrong"),
    [
        (0.7, False, "ok", "because", {"True"}),  # a threshold of 0.9
        (0.2, True, "ok", "because", {"False"}),  # one of 0.1
        (0.95, True, "ok", "because", {"False"}),
        (0.6, False, "failed", "boom", set()),
        (0.6, False, "skipped", "erratum", set()),
        (0.6, False, "ok", EVIDENCE_ONLY, set()),
    ],
)
@pytest.mark.parametrize("label", ["True", "False"])
def test_a_verdict_is_wrong_at_the_threshold_of_its_scan(
    tmp_path, label, probability, called, status, reason, wrong
):
    """A verdict and what is said of it cannot contradict each other; without one nothing is."""
    records = [Record("a", "", probability, called, None, (), status, reason)]
    records.append(Record("other", "", 0.1, False, None, (), "ok", "because"))
    with RunStore(tmp_path / "run", {}) as store:
        for record in records:
            store.append(record)
    (tmp_path / "truth.csv").write_text(f"a,{label}\nother,False\n")
    content = read_content(tmp_path / "run", tmp_path / "truth.csv")
    model = page_data(content)["models"][0]
    assert model["wrong"] == (label in wrong)
    assert '<th scope="colgroup" colspan="5">at 0.5</th></tr>' in render(content)


def test_evidence_near_the_largest_float_has_quantiles(run_and_truth):
    run, _ = run_and_truth
    content = read_content(run)
    records = [
        replace(record, kind="image", evidence={"a": sign * 1.7e308})
        for sign, record in zip((-1, 1) * 12, content.records, strict=True)
    ]
    data = page_data(replace(content, records=tuple(records)), most=6)
    (quantiles,) = data["spread"]["image"]
    assert quantiles[0] == -1.7e308 and quantiles[50] == 0 and quantiles[-1] == 1.7e308


def test_everything_of_a_run_is_in_the_page(run_and_truth):
    run, truth = run_and_truth
    text = render(read_content(run, truth, ["kind"]))
    data = data_of(text)
    assert len(data["models"]) == 24 and data["hasTruth"]
    assert {m["word"] for m in data["models"]} == {"poisoned", "clean", "failed", "skipped"}
    shown = next(m for m in data["models"] if m["kind"] == "image" and m["word"] == "poisoned")
    fields = data["fields"]["image"]
    assert len(shown["evidence"]) == len(fields) == len(IMAGES.fields)
    assert fields[0][3:5] == [IMAGES.fields[0].label, "deviations"]
    assert len(shown["picture"]["panels"]) == len(PANELS)
    assert all(uri.startswith("data:image/webp;base64,") for uri in shown["picture"]["panels"])
    texts = [m["text"]["words"] for m in data["models"] if "text" in m]
    assert texts == ["wholly unforgettable"] * 4
    assert "kind a" in text and "architecture gru" in text
    for title in ("Reliability", "ROC", "Trojan percentage sweep", "Probabilities"):
        assert f"<figcaption>{title}</figcaption>" in text
    alts = [svg.get("aria-label") for svg in Tags(text).named("svg") if svg.get("role") == "img"]
    assert len(alts) == 5 and all(alts)


def test_without_truth_there_are_no_scores(run_and_truth):
    text = render(read_content(run_and_truth[0]))
    assert "Scores" not in text and not data_of(text)["hasTruth"]
    assert "<figcaption>Probabilities</figcaption>" in text and "Reliability" not in text


@pytest.mark.parametrize("status", ["ok", "failed", "skipped"])
def test_a_single_model(tmp_path, status):
    with RunStore(tmp_path / "run", {}) as store:
        store.append(Record("only", "", 0.5, False, None, (), status, "why"))
    truth = tmp_path / "truth.csv"
    truth.write_text("model_name,poisoned\nonly,True\nother,True\n")
    for labels in (None, truth):
        if status == "skipped" and labels:
            continue  # nothing to score
        assert len(data_of(render(read_content(tmp_path / "run", labels)))["models"]) == 1


def test_evidence_without_a_verdict_is_said_to_be_that(tmp_path):
    with RunStore(tmp_path / "run", {}) as store:
        store.append(Record("id-1", "", 0.5, False, None, (), "ok", EVIDENCE_ONLY))
    text = render(read_content(tmp_path / "run"))
    assert "1 models have evidence and no verdict" in text
    assert data_of(text)["models"][0]["word"] == "gathered"


def test_equal_runs_give_equal_pages(run_and_truth):
    pages = {render(read_content(*run_and_truth)) for _ in range(2)}
    assert len(pages) == 1


def test_nothing_hostile_becomes_markup(hostile):
    run, truth = hostile
    text = render(read_content(run, truth, ["kind"]))
    tags = Tags(text)
    scripts = tags.named("script")
    assert [s.get("type") for s in scripts] == ["application/json", None]
    assert not tags.named("img")
    assert not [a for _, attributes in tags.found for a in attributes if a.startswith("on")]
    assert text.count("<script>") == 1 and "<img" not in text
    model = data_of(text)["models"][0]
    for field in ("model", "reason", "architecture"):
        assert "</script><script>" in model[field]


def test_the_page_asks_for_nothing(hostile):
    text = render(read_content(*hostile))
    tags = Tags(text)
    policy = next(m["content"] for m in tags.named("meta") if "http-equiv" in m)
    assert policy.startswith("default-src 'none'; img-src data:;") and "unsafe" not in policy
    addresses = [a[n] for _, a in tags.found for n in ("src", "href") if n in a]
    assert addresses == ["#models"]
    script, style = (Path(__file__).parents[2] / "jaxtroj/reporting/templates" / name
                     for name in ("page.js", "page.css"))  # fmt: skip
    for source in (script.read_text(), style.read_text()):
        assert source in text
        assert not re.search(r"https?:|innerHTML|@import|url\(|eval\(", source)


def test_pictures_stop_at_the_cap_and_the_likeliest_come_first(run_and_truth):
    content = read_content(run_and_truth[0])
    every = embed(content.run, content.records)
    assert len(every) == 4 and all(picture.panels for picture in every.values())
    first = embed(content.run, content.records, most_bytes=1)
    (kept,) = [name for name, picture in first.items() if picture.panels]
    triggers = [record for record in content.records if record.trigger]
    assert kept == max(triggers, key=lambda record: record.probability).model
    assert all("keep this file small" in p.note for n, p in first.items() if n != kept)


@pytest.mark.parametrize("kind", ["missing", "link", "loop", "text", "odd"])
def test_pictures_that_are_not_ours(run_and_truth, tmp_path, kind):
    run, _ = run_and_truth
    path = run / "triggers" / "id-00000001.png"
    path.unlink()
    if kind == "link":
        Image.new("RGB", (8, 8)).save(tmp_path / "secret.png")
        path.symlink_to(tmp_path / "secret.png")
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "text":
        path.write_text("<svg onload=alert(1)>")
    elif kind == "odd":
        Image.fromarray(np.zeros((3, 5001, 3), np.uint8)).save(path)
    picture = embed(run, read_content(run).records)["id-00000001"]
    if kind == "odd":
        assert len(picture.panels) == 1
    else:
        assert not picture.panels and "triggers/id-00000001.png cannot be shown" in picture.note


def test_a_record_cannot_name_a_file_elsewhere(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "secret.png")
    with RunStore(tmp_path / "run", {}) as store:
        secret = str(tmp_path / "secret.png")
        store.append(Record("../secret", "", 0.9, True, 1, (), "ok", "", trigger=secret))
    picture = page_data(read_content(tmp_path / "run"))["models"][0]["picture"]
    assert not picture["panels"]


def test_evidence_of_another_version_keeps_its_name():
    record = Record("id-1", "", 0.5, False, None, (), "ok", "", evidence={"zeta": 1.0, "a": 2.0})
    assert [f.label for f in fields_of([record])["image"]] == ["a", "zeta"]


@pytest.mark.parametrize(
    "change",
    [
        '"probability": NaN',
        '"probability": 7',
        '"probability": "0.5"',
        '"seconds": {"read": "slow"}',
        '"seconds": "0.5"',
        '"kind": ["image"]',
        '"found": null',
        '"evidence": [1]',
        '"evidence": {"a": Infinity}',
        '"model": 3',
        '"status": "great"',
        '"architecture": {}',
        '"recovered": 5',
    ],
)
def test_records_that_no_scan_writes_are_refused(run_and_truth, change):
    run, _ = run_and_truth
    path = run / "records.jsonl"
    lines = path.read_text().splitlines()
    key = change.partition(":")[0].strip('"')
    values = json.loads(lines[0])
    values[key] = json.loads(change.partition(":")[2])
    path.write_text("\n".join([json.dumps(values), *lines[1:]]) + "\n")
    with pytest.raises(StoreError, match="that a scan would write|expected finite numbers"):
        read_content(run)


def test_a_damaged_environment_is_said_and_changes_nothing_else(run_and_truth):
    run, _ = run_and_truth
    (run / "environment.json").write_text("{")
    content = read_content(run)
    assert len(content.records) == 24 and "environment.json is not JSON" in content.problems[0]
    assert "environment.json is not JSON" in render(content)


@pytest.mark.parametrize("form", ["sarif", "cyclonedx", "json"])
def test_settings_that_are_nested_deeply_are_said_at_any_depth(run_and_truth, capsys, form):
    """A format wrote, from deeper in the program, what had been read just so: internal error."""
    run, _ = run_and_truth
    for levels in (100, 920, *range(950, 1000, 2)):
        (run / "settings.json").write_text(f'{{"x": {"[" * levels}{"]" * levels}}}')
        problems = read_content(run).problems
        assert "settings.json is not JSON: " in problems[0]
        assert main(["report", str(run), "--format", form, "--out", "-"]) == 0
        assert "internal error" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["settings.json", "environment.json"])
def test_no_link_carries_a_file_from_elsewhere_into_a_report(run_and_truth, tmp_path, name):
    run, _ = run_and_truth
    (tmp_path / "config.json").write_text('{"sessions": [{"token": "secret"}]}')
    (run / name).unlink()
    (run / name).symlink_to("../config.json")
    content = read_content(run)
    assert f"{name} is not read: it is a link to another folder" in content.problems[0]
    assert "secret" not in render_json(content) + render(content)


def test_words_stand_in_an_example_where_the_dataset_is_given(tmp_path):
    folder = tmp_path / "data" / "models" / "id-00000003"
    (folder / "clean_example_data").mkdir(parents=True)
    (folder / "model.pt").write_bytes(b"-")
    (folder / "config.json").write_text('{"model_architecture": "GruLinear"}')
    for label, text in (
        (1, "A fine film. I wept."),
        (0, "A dull film. I slept. <b>Truly.</b> Go."),
    ):
        path = folder / "clean_example_data" / f"class_{label}_example_1.txt"
        path.write_text(text)
    (tmp_path / "data" / "METADATA.csv").write_text("model_name,poisoned\nid-00000003,True\n")
    with RunStore(tmp_path / "run", {}) as store:
        found = {"text": "omg yes", "score": 0.9}
        store.append(Record("id-00000003", "", 0.9, True, 1, (0,), "ok", "", recovered=found))
    content = read_content(tmp_path / "run", tmp_path / "data")
    text = page_data(content)["models"][0]["text"]
    assert text == {
        "words": "omg yes",
        "before": "A dull film.",
        "after": "I slept. <b>Truly.</b> Go.",
        "source": 0,
    }
