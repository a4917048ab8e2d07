"""The page in a real browser: sorting, filtering, keys, narrow screens, hostile records."""

import json
import os
import shutil

import pytest

from jaxtroj.accepted import NONE
from jaxtroj.reporting.beside import read_beside
from jaxtroj.reporting.content import read_content
from jaxtroj.reporting.page import render
from tests.reporting.browser import Browser, executable

pytestmark = pytest.mark.skipif(executable() is None, reason="needs chromium on the PATH")

NAMES = "[...document.querySelectorAll('#rows button[data-place]')].map(b => b.textContent)"
FIRST = "document.querySelector('#rows button[data-place]')"


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


def written(run, truth=None):
    path = run / "report.html"
    path.write_text(render(read_content(run, truth, ["kind"] if truth else ())))
    return path


@pytest.fixture
def opened(browser, run_and_truth):
    browser.resize(1200)
    browser.open(written(*run_and_truth))
    return browser


def choose(browser, control: str, value: str) -> None:
    browser.run(
        f"(() => {{ const c = document.getElementById('{control}'); c.value = '{value}';"
        " c.dispatchEvent(new Event('input')); })()"
    )


def test_sorting_by_the_headings(opened):
    by_probability = opened.run(NAMES)
    assert len(by_probability) == 24
    opened.run("document.querySelector('#head button[data-key=model]').click()")
    assert opened.run(NAMES) == sorted(by_probability)
    head = "document.querySelector('#head th[aria-sort]')"
    assert opened.run(f"[{head}.textContent, {head}.ariaSort]") == ["Model", "ascending"]
    opened.run("document.querySelector('#head button[data-key=model]').click()")
    assert opened.run(NAMES) == sorted(by_probability, reverse=True)
    opened.run("document.querySelector('#head button[data-key=seconds]').click()")
    seconds = opened.run(
        "[...document.querySelectorAll('#rows tr')].map(r => r.lastChild.textContent)"
    )
    numbers = [float(text) for text in seconds if text != "–"]
    assert numbers == sorted(numbers, reverse=True)
    assert set(seconds[len(numbers) :]) == {"–"}  # what has no value comes last
    choose(opened, "sort", "probability up")
    assert opened.run(f"{head}.ariaSort") == "ascending"


def test_filtering(opened):
    choose(opened, "verdict", "failed")
    assert len(opened.run(NAMES)) == 4
    assert opened.run("document.getElementById('count').textContent") == "4 of 24 models"
    choose(opened, "query", "os.system 00000004")
    assert opened.run(NAMES) == ["id-00000004"]
    choose(opened, "query", "no such thing")
    assert opened.run(NAMES) == []
    opened.run("document.getElementById('reset').click()")
    assert len(opened.run(NAMES)) == 24
    choose(opened, "architecture", "gru")
    assert len(opened.run(NAMES)) == 4
    choose(opened, "label", "wrong")
    wrong = opened.run("[...document.querySelectorAll('#rows .verdict.wrong')].length")
    assert wrong == len(opened.run(NAMES))


def test_the_keyboard_is_enough(opened):
    opened.press("/")
    assert opened.run("document.activeElement.id") == "query"
    opened.type("unforgettable")
    assert len(opened.run(NAMES)) == 4
    opened.press("Escape")
    assert len(opened.run(NAMES)) == 24
    opened.run(FIRST + ".focus()")
    opened.press("ArrowDown")
    names = opened.run(NAMES)
    assert opened.run("document.activeElement.textContent") == names[1]
    opened.press("Enter")
    assert opened.run("document.activeElement.ariaExpanded") == "true"
    assert opened.run("document.querySelectorAll('tr.details').length") == 1
    opened.press("Enter")
    assert opened.run("document.querySelectorAll('tr.details').length") == 0
    opened.press("End")
    assert opened.run("document.activeElement.textContent") == names[-1]
    opened.run("document.querySelector('#head button').focus()")
    opened.press("Enter")
    assert opened.run(NAMES) == sorted(names)
    assert opened.complaints() == []


def test_details_show_evidence_triggers_and_time(opened):
    choose(opened, "query", "id-00000001")
    opened.run(FIRST + ".click()")
    text = opened.run("document.querySelector('tr.details').innerText")
    for words in ("a patch was found is 0.91", "no other class has one", "deviations", "mask_ratio",
                  "together", "source classes", "0, 2", "clean example"):  # fmt: skip
        assert words in text
    sizes = "[...document.querySelectorAll('.details img')].map(i => [i.naturalWidth, !!i.alt])"
    opened.run("Promise.all([...document.querySelectorAll('.details img')].map(i => i.decode()))")
    assert opened.run(sizes) == [[224, True]] * 4
    choose(opened, "query", "id-00000003")
    opened.run(FIRST + ".click()")
    mark = "document.querySelector('.details mark').textContent"
    assert opened.run(mark) == "wholly unforgettable"


def test_a_row_shows_the_kind_of_trigger_and_opens_to_the_matrix_of_flips(opened):
    """By the keyboard alone."""
    opened.press("/")
    opened.type("id-00000001")
    row = opened.run("[...document.querySelectorAll('#rows tr td')].map(c => c.innerText)")
    assert "mask" in row and "2" in row  # the kind, and how many kinds were searched
    opened.run(FIRST + ".focus()")
    opened.press("Enter")
    rows = "[...document.querySelectorAll('.heat tbody tr')]"
    table = rows + ".map(r => r.innerText.trim().split(/\\s+/))"
    assert opened.run(table) == [["0", "10", "90"], ["1", "100"], ["2", "75", "25"]]
    share = ".map(r => r.children[2].style.getPropertyValue('--share'))"
    assert opened.run(rows + share) == ["0.9", "1", "0.75"]
    for _ in range(10):
        opened.press("Tab")
        if opened.run("document.activeElement.ariaLabel") == "Where triggered pictures go":
            break
    assert opened.run("document.activeElement.className") == "scroll"
    text = opened.run("document.querySelector('tr.details').innerText")
    assert "found in the calibrator's population" in text and "90 %" in text
    assert opened.complaints() == []


def test_another_run_lies_beside(browser, make, tmp_path):
    (run, _), (other, _) = make(tmp_path / "a"), make(tmp_path / "b", 18)
    path = other / "records.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1] |= {"poisoned": False, "probability": 0.2, "sha256": "ef" * 32}
    lines[0] |= {"model": "elsewhere"}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    content = read_content(run)
    beside = read_beside(other, content, NONE)
    (run / "report.html").write_text(render(content, beside=beside))
    browser.resize(1200)
    browser.open(run / "report.html")
    said = browser.run("document.querySelector('section[aria-labelledby=beside-title]').innerText")
    assert "17 models are in both runs, 1 of them with another verdict, 1 with another file" in said
    assert "7 are in this run only" in said and "elsewhere" in said
    choose(browser, "beside", "changed")
    assert browser.run(NAMES) == ["id-00000001"]
    row = browser.run("document.querySelector('#rows tr').innerText")
    assert "clean" in row and "≠" in row and "+0." in row
    choose(browser, "beside", "alone")
    assert len(browser.run(NAMES)) == 7
    assert browser.complaints() == []


@pytest.mark.parametrize("width", [360, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_screens_do_not_scroll_sideways(browser, hostile, make, tmp_path, scheme, width):
    browser.prefer(scheme)
    browser.resize(width)
    page = written(*hostile)
    content = read_content(hostile[0])
    page.write_text(render(content, beside=read_beside(make(tmp_path / "b")[0], content, NONE)))
    browser.open(page)
    browser.run(
        "[...document.querySelectorAll('#rows button')].slice(0, 8).forEach(b => b.click())"
    )
    browser.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert browser.run("document.documentElement.scrollWidth") == width
    browser.prefer("light")


def test_nothing_hostile_runs_and_nothing_is_asked_for(browser, hostile):
    browser.resize(1200)
    page = written(*hostile)
    browser.open(page)
    browser.run("[...document.querySelectorAll('#rows button')].forEach(b => b.click())")
    assert browser.run("document.querySelectorAll('tr.details').length") == 24
    assert browser.run("typeof window.hacked") == "undefined"
    assert browser.run("document.querySelectorAll('img[src=x]').length") == 0
    assert browser.complaints() == []
    assert {url for url in browser.requests() if not url.startswith("data:")} == {page.as_uri()}


def test_a_script_that_gets_in_would_not_run(browser, run_and_truth):
    path = written(*run_and_truth)
    path.write_text(path.read_text().replace("<main>", "<main><script>window.hacked=1</script>"))
    browser.open(path)
    assert browser.run("typeof window.hacked") == "undefined"
    assert browser.complaints() != []


def test_two_thousand_models_open_quickly(browser, tmp_path, make, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)  # what is measured is the page
    run, truth = make(tmp_path, 2000)
    path = written(run, truth)
    assert path.stat().st_size < 20e6
    shutil.rmtree(run / "triggers")
    assert min(browser.open(path) for _ in range(3)) < 2.0
    assert len(browser.run(NAMES)) == 100
    browser.run("document.getElementById('more').click()")
    names = browser.run(NAMES)
    assert len(set(names)) == 200
    assert browser.run("document.activeElement.textContent") == names[100]


def test_a_large_run_opens_and_says_what_the_page_does_not_hold(browser, run_and_truth):
    run, truth = run_and_truth
    path = run / "large.html"
    path.write_text(render(read_content(run, truth), most=6))
    browser.open(path)
    assert len(browser.run(NAMES)) == 24
    count = "document.getElementById('count').textContent"
    assert browser.run(count) == "24 models, 6 of all with reasons and evidence"
    opened = "document.querySelector('tr.details').innerText"
    choose(browser, "verdict", "clean")
    browser.run(FIRST + ".click()")
    assert "This run has 24 models. The page holds reasons and evidence of 6" in browser.run(opened)
    assert "Evidence" not in browser.run(opened).split("\n")
    browser.run("document.getElementById('reset').click()")
    choose(browser, "verdict", "poisoned")
    browser.run(FIRST + ".click()")
    assert "above " in browser.run(opened) and "a patch was found" in browser.run(opened)
    assert browser.complaints() == []
