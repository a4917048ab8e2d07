"""SARIF, Markdown, CSV, JSON and the plots for papers."""

import csv
import io
import json
import pickle
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from PIL import Image

from jaxtroj.cli.main import main
from jaxtroj.csv_text import csv_text
from jaxtroj.record import EVIDENCE_ONLY, Record, parse_record, printable
from jaxtroj.reporting import cyclonedx, intoto, markdown, page, sarif, tables
from jaxtroj.reporting.content import read_content
from jaxtroj.reporting.plots import write_plots
from jaxtroj.rounds import iter_models
from jaxtroj.scan import scan_model
from jaxtroj.settings import Settings
from jaxtroj.store import RunStore

SCHEMA = json.loads((Path(__file__).parent / "sarif_subset.json").read_text())
OFFICIAL = Path("sarif") / "sarif-schema-2.1.0.json"


def check_sarif(log: dict) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(log)


def test_sarif_has_a_result_for_each_finding(run_and_truth):
    log = json.loads(sarif.render(read_content(*run_and_truth)), parse_constant=pytest.fail)
    check_sarif(log)
    (run,) = log["runs"]
    found = [result["ruleId"] for result in run["results"]]
    assert {name: found.count(name) for name in set(found)} == {
        "JXT001": 8, "JXT002": 4, "JXT004": 4, "JXT005": 4,
    }  # fmt: skip
    assert len(run["artifacts"]) == 24
    for result in run["results"]:
        place = result["locations"][0]["physicalLocation"]["artifactLocation"]
        assert run["artifacts"][place["index"]]["location"]["uri"] == place["uri"]
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    fingerprints = [r["partialFingerprints"]["jaxtroj/v1"] for r in run["results"]]
    assert len(set(fingerprints)) == len(fingerprints)


@pytest.mark.parametrize("run", ["hostile", "flagged"])
def test_sarif_by_the_official_schema(run, shared_data, request):
    path = shared_data / OFFICIAL
    if not path.is_file():
        pytest.skip(f"needs ../shared/data/{OFFICIAL}, the schema that OASIS publishes")
    schema = json.loads(path.read_text())
    made = request.getfixturevalue(run)
    log = sarif.sarif_log(read_content(*made) if run == "hostile" else read_content(made))
    assert not list(jsonschema.Draft4Validator(schema).iter_errors(log))


def test_sarif_warns_of_answers_in_doubt_and_tells_the_rest(flagged):
    log = sarif.sarif_log(read_content(flagged))
    check_sarif(log)
    (run,) = log["runs"]
    found = [(r["ruleId"], r["level"], r.get("kind")) for r in run["results"]]
    doubt, told = ("JXT006", "warning", None), ("JXT005", "none", "informational")
    assert found == [doubt, doubt, told, told, ("JXT001", "error", None), doubt, told, told]
    told = next(rule for rule in run["tool"]["driver"]["rules"] if rule["id"] == "JXT005")
    assert "properties" not in told  # which would make a matter of security of it


class Opens:
    def __reduce__(self):
        return eval, ("1",)


def test_a_file_that_the_loader_refuses_is_an_unsafe_file(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "evil.pt").write_bytes(pickle.dumps(Opens()))
    (tmp_path / "data" / "short.pt").write_bytes(b"")
    rules = {}
    with RunStore(tmp_path / "run", {}) as store:
        for entry in iter_models(tmp_path / "data"):
            record = scan_model(entry, Settings(calibrator=None, early_stop=False))
            store.append(record)
            rules[record.model] = sarif.rule_of(record)
    assert rules == {"evil.pt": sarif.REFUSED, "short.pt": sarif.FAILED}


def test_sarif_names_the_model_files_of_a_dataset(tmp_path):
    folder = tmp_path / "data" / "models" / "id-00000001"
    folder.mkdir(parents=True)
    (folder / "model.pt").write_bytes(b"-")
    (folder / "ground_truth.csv").write_text("1\n")
    with RunStore(tmp_path / "run", {}) as store:
        store.append(Record("id-00000001", "ab" * 32, 0.9, True, 1, (), "ok", "because"))
    log = sarif.sarif_log(read_content(tmp_path / "run", tmp_path / "data"))
    check_sarif(log)
    assert log["runs"][0]["artifacts"][0]["location"]["uri"] == "models/id-00000001/model.pt"


@pytest.mark.parametrize(
    ("named", "addresses"),
    [
        ("models", ("models/a%20b/model.pt", "models/c.onnx", "gone.pt")),
        ("list.csv", ("a b", "models/c.onnx", "gone.pt")),
        ("../models", None),  # of a folder elsewhere, from that
    ],
)
def test_sarif_has_paths_from_here_without_labels(tmp_path, monkeypatch, capsys, named, addresses):
    (tmp_path / "models" / "a b").mkdir(parents=True)
    (tmp_path / "models" / "a b" / "model.pt").write_bytes(b"-")
    (tmp_path / "models" / "c.onnx").write_bytes(b"-")
    (tmp_path / "list.csv").write_text("model,path\nc.onnx,models/c.onnx\n")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below" if addresses is None else tmp_path)
    names = ("a b", "c.onnx", "gone.pt")
    with RunStore(tmp_path / "run", {}) as store:
        for name in names:
            store.append(Record(name, "", 0.9, True, 1, (), "ok", "because"))
    assert main(["report", str(tmp_path / "run"), "--models", named, "--format", "sarif"]) == 0
    out, err = capsys.readouterr()
    check_sarif(log := json.loads(out))
    base = "DATASET" if addresses is None else "%SRCROOT%"
    assert list(log["runs"][0]["originalUriBaseIds"]) == [base]
    expected = addresses or ("a b/model.pt", "c.onnx", "gone.pt")
    uris = [
        r["locations"][0]["physicalLocation"]["artifactLocation"] for r in log["runs"][0]["results"]
    ]
    assert [uri["uriBaseId"] for uri in uris] == [base] * 3
    assert [uri["uri"] for uri in uris] == [name.replace(" ", "%20") for name in expected]
    assert "of the run are not in" in err and "expected what was scanned" in err


def test_sarif_of_hostile_records(hostile):
    log = sarif.sarif_log(read_content(*hostile))
    check_sarif(log)
    for result in log["runs"][0]["results"]:
        uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert not set("<> \"'") & set(uri)
        assert "[" not in result["message"]["text"].replace("\\[", "")


def test_markdown_shows_what_to_look_at(run_and_truth):
    text = markdown.render(read_content(*run_and_truth))
    assert text.startswith("# jaxtroj report: run\n\n24 models: 8 poisoned, 8 clean, 4 failed")
    table = text.partition("## Models to look at")[2].partition("##")[0].strip().splitlines()
    assert len(table) == 2 + 8 and {line.count("|") for line in table} == {8}
    triggers = [line.split(" | ")[5] for line in table[2:]]
    assert "mask" in triggers and {*triggers} <= {"mask", "wholly unforgettable"}
    assert text.count("erratum") == 4


def test_markdown_has_a_row_for_each_answer_in_doubt(flagged):
    text = markdown.render(read_content(flagged)).replace("\\", "")
    table = text.partition("## Answers in doubt")[2].partition("##")[0].strip().splitlines()
    assert len(table) == 2 + 2
    assert "| flagged | clean | 0.100 | probabilities: sums of 1; " in table[2]
    assert "possible architectural backdoor: gt compares pixels |" in table[2]
    assert table[3].startswith("| called | poisoned |")


def test_markdown_escapes(hostile):
    text = markdown.render(read_content(*hostile))
    assert "<" not in text and "\nwindow" not in text
    rows = [line for line in text.splitlines() if line.startswith("| id")]
    assert len(rows) == 16


@pytest.mark.parametrize("name", ["www.evil.example", "a WWW.evil.example"])
def test_markdown_makes_no_links_of_names(name):
    text = markdown.escape(name)
    assert "www." not in text.lower()
    assert text.replace("\\", "") == name


def test_csv_has_a_line_for_each_model(run_and_truth):
    rows = list(csv.DictReader(io.StringIO(tables.render_csv(read_content(*run_and_truth)))))
    assert len(rows) == 24
    poisoned = [row for row in rows if row["verdict"] == "poisoned"]
    assert len(poisoned) == 8 and all(float(row["probability"]) > 0.5 for row in poisoned)
    assert {row["label"] for row in rows} == {"True", "False", ""}
    image = next(row for row in rows if row["model"] == "id-00000001")
    assert float(image["mask_ratio"]) and image["bank_spread"] == ""


FORMULAS = ["=1+1", "@SUM(A1)", "-cmd|x", "+1", "＝1+1", "＠SUM(A1)", "－cmd|x", "＋1"]


@pytest.mark.parametrize("name", FORMULAS)
def test_csv_cells_are_no_formulas(tmp_path, name):
    with RunStore(tmp_path / "run", {}) as store:
        store.append(Record(name, "", 0.5, False, None, (), "failed", name))
    row = list(csv.DictReader(io.StringIO(tables.render_csv(read_content(tmp_path / "run")))))[0]
    assert row["model"] == row["reason"] == "'" + name


@pytest.mark.parametrize("name", FORMULAS)
def test_csv_headings_are_no_formulas(tmp_path, name):
    with RunStore(tmp_path / "run", {}) as store:
        store.append(Record("a", "", 0.5, False, None, (), "ok", "", evidence={name: -0.5}))
    row = list(csv.DictReader(io.StringIO(tables.render_csv(read_content(tmp_path / "run")))))[0]
    assert name not in row
    assert csv_text([name], [[name]]) == f"'{name}\n'{name}\n"


@pytest.mark.parametrize("separator", [";", "\t", ","])
@pytest.mark.parametrize(
    "name", ["y;=cmd|'/c calc'!A0", 'y\t"=1"', "y\n-1+1", "a; @SUM(A1)", "\t=1"]
)
def test_no_part_of_a_cell_is_a_formula_however_lines_are_split(separator, name):
    text = csv_text([name], [["a", name], [name, -0.5], ["b", "-3"]])
    lines = re.split("[\r\n]", text.replace('"', ""))
    parts = {part.strip() for line in lines for part in line.split(separator)}
    assert not {part for part in parts if part[:1] in tuple("=+-@")} - {"-0.5", "-3"}
    assert csv_text(["a; b"], [["-3"]]) == "a; b\n-3\n"


@pytest.mark.parametrize("render", [markdown.render, tables.render_csv, tables.render_json])
def test_no_text_moves_the_cursor_of_a_terminal(tmp_path, render):
    nasty = "a\x1b]0;x\x07\x9b31m\u202eb\udc1bé"
    folder = tmp_path / "run\x1b[2J"
    known = {"architecture": nasty, "recovered": {"text": nasty}, "evidence": {nasty: 1.0}}
    # No scan writes half of a surrogate pair, and a record with one is refused.
    name = nasty.replace("\udc1b", "")
    records = (
        Record(name, "", 0.9, True, None, (), "ok", nasty, **known),
        Record("id-2", "", 0.5, False, None, (), "failed", nasty),
    )
    with RunStore(folder, {}) as store:
        for record in records:
            whole = record.to_json().replace("\\udc1b", "")
            store.append(parse_record(whole))
    (tmp_path / "truth.csv").write_text("model_name,poisoned,by\nid-2,1,\x1b[2J")
    content = read_content(folder, tmp_path / "truth.csv", by=("by",))
    text = render(content)
    assert all(c.isprintable() for c in text.replace("\n", "")), ascii(text)
    text = render(replace(content, records=records))  # not even one that nobody read
    assert all(c.isprintable() for c in text.replace("\n", "")), ascii(text)
    assert "x1b" in text or "u001b" in text


FORMATS = [sarif.render, intoto.render, cyclonedx.render, tables.render_json]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('{"a": NaN}', "holds NaN, expected finite numbers"),
        ('{"a": [-1e999]}', "holds a number too large for a float"),
        ('{"a": 1, "a": 2}', "stands twice"),
        (r'{"a": [{"b": "\ud800"}]}', "holds half of a surrogate pair, expected characters"),
        (r'{"a": {"\udfff": 1}}', "holds half of a surrogate pair, expected characters"),
    ],
)
@pytest.mark.parametrize("render", FORMATS)
def test_settings_that_json_lacks_are_a_problem(run_and_truth, render, written, said):
    run, _ = run_and_truth
    (run / "settings.json").write_text(written)
    content = read_content(run)
    assert not content.settings and said in content.problems[0]
    assert render(content)


@pytest.mark.parametrize("render", FORMATS)
def test_every_reader_of_json_takes_the_reports_of_names_without_utf8(tmp_path, render):
    """Bytes that are no UTF-8 are spelled in names; pairs of surrogates are one character."""
    names = [printable("a\udcff"), "\U0001f600", "é\u2028"]
    folder = tmp_path / "run\udcff"
    with RunStore(folder, {"note": "\U0001f600"}) as store:
        for name in names:
            store.append(Record(name, "ab" * 32, 0.9, True, 1, (), "ok", name, identity="ab" * 16))
    content = read_content(folder)
    assert [record.model for record in content.records] == names
    assert content.settings == {"note": "\U0001f600"}
    (folder / "settings.json").write_text('{"a": 1e999}')
    for shown in (content, read_content(folder)):
        for line in render(shown).splitlines() if render is intoto.render else [render(shown)]:
            json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8")


def test_json_is_strict_and_complete(hostile):
    values = json.loads(tables.render_json(read_content(*hostile)), parse_constant=pytest.fail)
    assert len(values["models"]) == 24
    assert values["counts"] == {"clean": 8, "poisoned": 8, "failed": 4, "skipped": 4}
    assert values["scores"]["all"]["models"] == 20 and len(values["sweep"]) == 990


def test_reports_count_the_models_that_have_no_answer(tmp_path, capsys):
    """As `evaluate` does: failed ones and evidence without a verdict, in each group."""
    said = [("ok", "because"), ("failed", "boom"), ("ok", EVIDENCE_ONLY), ("skipped", "erratum")]
    with RunStore(tmp_path / "run", {}) as store:
        for place, (status, reason) in enumerate(said):
            rate = 0.1 if reason == "because" else 0.5
            store.append(Record(f"m{place}", "", rate, False, None, (), status, reason))
    truth = tmp_path / "truth.csv"
    truth.write_text("model,poisoned,part\nm0,0,a\nm1,1,b\nm2,0,b\nm3,1,b\nabsent,1,b\n")
    content = read_content(tmp_path / "run", truth, ["part"])
    scores = json.loads(tables.render_json(content))["scores"]
    counted = {name: row["at_base_rate"] for name, row in scores.items()}
    assert counted == {"all": 2, "part a": 0, "part b": 2}
    assert main(["evaluate", str(tmp_path / "run"), "--truth", str(truth), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["at_base_rate"] == counted["all"]
    text = markdown.render(content)
    assert "| models | n | poisoned | no answer |" in text
    assert "| all | 4 | 2 | 2 |" in text and "| part a | 1 | 0 | 0 |" in text
    shown = page.render(content)
    assert "2 of the scored models have no answer, as they failed or have no verdict" in shown
    assert "<td>4</td><td>2</td><td>2</td>" in shown


def test_plots_are_files(run_and_truth, tmp_path):
    names = write_plots(tmp_path / "plots", read_content(*run_and_truth))
    assert names == ["probabilities", "reliability", "roc", "sweep"]
    for name in names:
        ElementTree.parse(tmp_path / "plots" / f"{name}.svg")
        with Image.open(tmp_path / "plots" / f"{name}.png") as picture:
            assert min(picture.size) > 400
