"""Records and triggers made visible: lines of text, JSON, and pictures of triggers."""

import io
import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from converters.files import write_atomic
from jaxtroj.accepted import NONE, Accepted
from jaxtroj.calibration.kinds import found_text
from jaxtroj.flags import in_doubt
from jaxtroj.record import Record, is_evidence_only

_PANEL_PIXELS = 224
_FINDINGS_SHOWN = 2
GAP_PIXELS = 8
"""White between the panels of a trigger's picture."""
_JSON_FIELDS = (
    "model",
    "probability",
    "poisoned",
    "target_class",
    "source_classes",
    "status",
    "reason",
    "seconds",
    "evidence",
    "kind",
    "searched",
    "calibrator",
    "found",
    "caveats",
    "input_form",
    "architecture",
    "sha256",
    "trigger",
    "recovered",
    "findings",
)


def json_line(record: Record, accepted: Accepted = NONE) -> str:
    """One record for other programs: a line of strict JSON; `accepted` is null or an object."""
    values = {name: getattr(record, name) for name in _JSON_FIELDS}
    acceptance = accepted.of(record)
    values["accepted"] = None if acceptance is None else acceptance.as_json()
    return json.dumps(values, allow_nan=False)


def text_line(record: Record, accepted: Accepted = NONE) -> str:
    """One record for people.

    >>> text_line(Record("id-1", "", 0.5, False, None, (), "failed", "empty file"))
    'id-1  failed    not judged, base rate 0.500  empty file'
    >>> text_line(Record("id-2", "", 0.97, True, 3, (0, 1), "ok", "", architecture="resnet50"))
    'id-2  poisoned  probability 0.970  target class 3  source classes 0 1  resnet50'
    >>> form = {"name": "RGB, pixels / 255", "basis": "examples", "accuracy": 0.95}
    >>> text_line(Record("id-5", "", 0.1, False, None, (), "ok", "", input_form=form))
    'id-5  clean     probability 0.100  input RGB, pixels / 255 (0.95 right)'
    >>> text_line(Record("id-3", "", 0.1, False, None, (), "ok", "", searched=("patch", "mask")))
    'id-3  clean     probability 0.100  searched for patch, mask'
    >>> seen = ("probabilities: rows sum to 1", "the shape of a batch is assumed")
    >>> text_line(Record("id-6", "", 0.1, False, None, (), "ok", "", findings=seen))
    'id-6  clean     probability 0.100  1 finding: probabilities: rows sum to 1'
    >>> known = {"searched": ("a",), "found": {"patch": 0.94}}
    >>> text_line(Record("", "", 0.1, False, None, (), "ok", "", **known)).partition("0.100  ")[2]
    'searched for a; of the kinds in its fit the calibrator found patch 94 %'
    >>> text_line(Record("id-7", "", 0.5, False, 1, (0,), "ok", "evidence only", **known))
    'id-7  gathered  probability 0.500  searched for a'
    """
    return "  ".join((*_answer(record, accepted), *_behind(record)))


def text_lines(record: Record, accepted: Accepted = NONE, width: int = 100) -> str:
    """The same on lines of at most so many characters: the answer, and below what is behind it.

    >>> known = {"searched": ("patch",), "caveats": ("the calibrator has met no densenet",)}
    >>> print(text_lines(Record("id-3", "", 0.1, False, None, (), "ok", "", **known), width=30))
    id-3  clean     probability 0.100
      searched for patch
      the calibrator has met no
        densenet
    """
    notes = (
        textwrap.fill(
            note,
            width,
            initial_indent="  ",
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for note in _behind(record)
    )
    return "\n".join(("  ".join(_answer(record, accepted)), *notes))


def _answer(record: Record, accepted: Accepted) -> Iterator[str]:
    """The verdict, the class, and what was judged."""
    said = "probability" if record.status == "ok" else "not judged, base rate"
    yield record.model
    yield f"{word_of(record, accepted):8}"
    yield f"{said} {record.probability:.3f}"
    if acceptance := accepted.of(record):
        yield str(acceptance)
    if _is_about_a_class(record):
        yield from _classes(record)
    if record.architecture:
        yield record.architecture
    if record.input_form.get("basis") in ("examples", "assumed"):
        yield _input_form(record.input_form)
    if record.seconds:
        yield f"{sum(record.seconds.values()):.1f} s"


def _behind(record: Record) -> Iterator[str]:
    """What a reader has to know beside the verdict."""
    if record.status != "ok":
        yield record.reason
    elif not record.poisoned and record.searched:
        # "Clean" says nothing about kinds of trigger that were not searched for.
        yield _search_text(record)
    yield from record.caveats
    if doubtful := in_doubt(record.findings):
        yield _findings_text(doubtful)
    if record.recovered.get("method") == "words":
        yield _words_text(record.recovered)
    if record.trigger:
        yield f"trigger in {record.trigger}"


def _is_about_a_class(record: Record) -> bool:
    """Whether a verdict stands behind the classes of a record, or words that were found do.

    Evidence alone has a likeliest class for every model, clean ones included.
    """
    has_words = record.recovered.get("method") == "words" and "text" in record.recovered
    return has_words or not is_evidence_only(record)


def _classes(record: Record) -> Iterator[str]:
    if record.target_class is not None:
        yield f"target class {record.target_class}"
    if record.source_classes:
        yield "source classes " + " ".join(map(str, record.source_classes))


def _input_form(form: Mapping[str, Any]) -> str:
    """An input form that nobody said, and how sure it is."""
    if "accuracy" not in form:
        return f"input assumed {form['name']}"
    return f"input {form['name']} ({form['accuracy']:.2f} right)"


def _search_text(record: Record) -> str:
    """The kinds that were searched, and the share found of each kind that the fit's models have.

    Both have names of their own: a search for masks finds polygons too.
    """
    text = f"searched for {', '.join(record.searched)}"
    shares = "" if is_evidence_only(record) else found_text(record.found)
    return f"{text}; of the kinds in its fit the calibrator found {shares}" if shares else text


def _findings_text(findings: Sequence[str]) -> str:
    """How many findings put the answer in doubt, and the first ones.

    >>> _findings_text(["possible architectural backdoor: gt at 'n' compares pixels"])
    "1 finding: possible architectural backdoor: gt at 'n' compares pixels"
    >>> _findings_text(["one", "another", "a third", "a fourth"])
    '4 findings: one; another; 2 more with --json'
    """
    count, shown = len(findings), "; ".join(findings[:_FINDINGS_SHOWN])
    more = f"; {count - _FINDINGS_SHOWN} more with --json" if count > _FINDINGS_SHOWN else ""
    return f"{count} finding{'' if count == 1 else 's'}: {shown}{more}"


def _words_text(recovered: Mapping[str, Any]) -> str:
    """The words of a trigger, once they were searched, beside what harmless ones do.

    >>> rates = {"attack_success_rate": 0.85, "harmless_text": 0.09, "clean_heads": 0.03}
    >>> _words_text({"text": "so it goes.", **rates})
    "words 'so it goes.' move 0.85 of the texts (a harmless text 0.09, on clean heads 0.03)"
    >>> _words_text({"words": "nothing", "best_text": "!", **rates, "harmless_text": 0.8})
    'words: nothing (the best moves 0.85 of the texts, a harmless text 0.80, on clean heads 0.03)'
    """
    usual = f"a harmless text {recovered['harmless_text']:.2f}"
    if "clean_heads" in recovered:
        usual += f", on clean heads {recovered['clean_heads']:.2f}"
    rate = f"{recovered['attack_success_rate']:.2f} of the texts"
    if "text" in recovered:
        return f"words {recovered['text']!r} move {rate} ({usual})"
    return f"words: {recovered['words']} (the best moves {rate}, {usual})"


def summary(records: Iterable[Record], accepted: Accepted = NONE) -> str:
    """Counts in one line.

    >>> summary([Record("id-1", "", 0.5, False, None, (), "failed", "empty file")])
    '1 model: 0 poisoned, 0 clean, 1 failed, 0 skipped'
    """
    counts = Counter(word_of(record, accepted) for record in records)
    total = counts.total()
    kinds = ["poisoned", "clean", "failed", "skipped"]
    kinds += [word for word in ("gathered", "accepted") if word in counts]
    words = ", ".join(f"{counts[word]} {word}" for word in kinds)
    return f"{total} model{'' if total == 1 else 's'}: {words}"


def word_of(record: Record, accepted: Accepted = NONE) -> str:
    """The answer in one word; `gathered` where there is evidence and no verdict.

    A model that is called poisoned is `accepted` where one of `accepted` is for it.
    """
    if record.status != "ok":
        return record.status
    if is_evidence_only(record):
        return "gathered"
    if accepted.of(record) is not None:
        return "accepted"
    return "poisoned" if record.poisoned else "clean"


def write_trigger(path: Path, panels: Sequence[np.ndarray]) -> None:
    """Write the PNG that shows a trigger of any kind; its folder is made.

    Raises:
        OSError: the file cannot be written.
    """
    write_atomic(path, trigger_png(panels))


def trigger_png(panels: Sequence[np.ndarray]) -> bytes:
    """The PNG that shows a trigger of any kind, its panels side by side.

    Args:
        panels: each [h, w, c] in [0, 1], RGB or grey; see `Trigger.picture`.
    """
    pixels = [_panel(np.asarray(panel, np.float32)) for panel in panels]
    gap = np.full((pixels[0].shape[0], GAP_PIXELS, pixels[0].shape[2]), 255, np.uint8)
    row = [part for panel in pixels for part in (panel, gap)][:-1]
    buffer = io.BytesIO()
    Image.fromarray(np.concatenate(row, axis=1)).save(buffer, format="PNG")
    return buffer.getvalue()


def _panel(image: np.ndarray) -> np.ndarray:
    """float [h, w, c] in [0, 1] to uint8 [h, w, 3], small ones enlarged by a whole factor."""
    factor = max(1, _PANEL_PIXELS // max(image.shape[:2]))
    pixels = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    pixels = np.broadcast_to(pixels, (*pixels.shape[:2], 3))
    return pixels.repeat(factor, axis=0).repeat(factor, axis=1)
