"""The page in a real browser: sorting, filtering, keys, narrow screens, hostile records."""

import os
import shutil

import pytest

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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_screens_do_not_scroll_sideways(browser, hostile, scheme):
    browser.prefer(scheme)
    browser.resize(400)
    browser.open(written(*hostile))
    browser.run(
        "[...document.querySelectorAll('#rows button')].slice(0, 8).forEach(b => b.click())"
    )
    browser.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert browser.run("document.documentElement.scrollWidth") == 400
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
