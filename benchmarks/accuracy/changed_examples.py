"""Examples that went another way than the training pictures: what answers make of them.

    python -m benchmarks.accuracy.changed_examples SOURCE ... --own SOURCE [--own ...] --work WORK
        [--turn K] [--out FILE]

Each SOURCE is a folder of `jaxtroj generate zoo`, or the `.evidence.jsonl` of an earlier run. The
pairs of a folder take the changes of `CHANGES` in turn, beginning with the K-th: their examples are
changed, the networks are not, and all are scanned. `--own` has the same networks with their own
examples. The shipped calibrators judge both, for each change and in all, networks with batch norms
and without apart. Log scores in nats. The evidence is written beside FILE.
"""

import argparse
import io
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from benchmarks.accuracy.fresh import network, probability, scores, shipped_for
from benchmarks.accuracy.picture_rows import PictureRow, once, read_all, read_rows
from benchmarks.provenance import RESULTS, provenance, write_evidence
from converters.files import write_atomic
from jaxtroj.cli.options import keep_compiled

_MARK = "+"  # between the name of a folder and that of a change
_EXAMPLES = "example_data"


def dull(picture: Image.Image) -> Image.Image:
    """A fifth darker, a tenth flatter, half a pixel blurred: a cheap camera indoors."""
    dark = ImageEnhance.Brightness(picture).enhance(0.8)
    return ImageEnhance.Contrast(dark.filter(ImageFilter.GaussianBlur(0.5))).enhance(0.9)


def jpeg(picture: Image.Image) -> Image.Image:
    """Stored as JPEG of quality 40."""
    stored = io.BytesIO()
    picture.save(stored, "JPEG", quality=40)
    return Image.open(stored).convert(picture.mode)


def noisy(picture: Image.Image) -> Image.Image:
    """Normal noise of 10 of 255 in each value, drawn from the picture itself."""
    pixels = np.asarray(picture, np.float64)
    drawn = np.random.default_rng(int(pixels.sum())).normal(0, 10, pixels.shape)
    return Image.fromarray((pixels + drawn).clip(0, 255).astype(np.uint8))


def gamma(picture: Image.Image) -> Image.Image:
    """Shown with a gamma of 1.5: dark in the middle, black and white as they were."""
    return _by_value(picture, lambda value: 255 * (value / 255) ** 1.5)


def warm_light(picture: Image.Image) -> Image.Image:
    """White balance for other light: red an eighth stronger, blue as much weaker; grey stays."""
    if picture.mode != "RGB":
        return picture
    red, green, blue = (
        _by_value(band, lambda value, gain=gain: gain * value)
        for band, gain in zip(picture.split(), (1.12, 1.0, 0.88), strict=True)
    )
    return Image.merge("RGB", (red, green, blue))


def resized(picture: Image.Image) -> Image.Image:
    """Stored at three quarters of its size, and back."""
    small = picture.resize([side * 3 // 4 for side in picture.size], Image.Resampling.BILINEAR)
    return small.resize(picture.size, Image.Resampling.BILINEAR)


def closer(picture: Image.Image) -> Image.Image:
    """Cut by 6 % at each side, and enlarged."""
    wide, high = picture.size
    cut = max(1, round(0.06 * wide))
    inner = picture.crop((cut, cut, wide - cut, high - cut))
    return inner.resize(picture.size, Image.Resampling.BILINEAR)


def stretched(picture: Image.Image) -> Image.Image:
    """Each picture from black to white, but for its outermost hundredths."""
    return ImageOps.autocontrast(picture, cutoff=1)


def hazy(picture: Image.Image) -> Image.Image:
    """Black is a sixth of white."""
    return _by_value(picture, lambda value: 40 + 0.84 * value)


def _by_value(picture: Image.Image, change: Callable[[int], float]) -> Image.Image:
    """Every value of every band with what becomes of it, at most 255."""
    table = [min(255, round(change(value))) for value in range(256)]
    return picture.point(table * len(picture.getbands()))


CHANGES: dict[str, Callable[[Image.Image], Image.Image]] = {
    change.__name__: change
    for change in (dull, jpeg, noisy, gamma, warm_light, resized, closer, stretched, hazy)
}
"""Name -> what it does to a picture of 8 bits, grey or RGB."""


def main() -> int:
    """Change, scan, judge, print and write; returns the exit status."""
    args = _arguments()
    keep_compiled()
    sources = [one for source in args.sources for one in _changed(source, args.work, args.turn)]
    rows = once(row for source in sources for row in read_rows(source, args.work / "runs"))
    write_evidence(args.out, rows)
    own = {(row.population, row.model): row for row in read_all(args.own, args.work / "runs")}
    result = {"provenance": provenance(), **judged(rows, own)}
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(result["changes"], indent=1))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Examples unlike the training pictures.")
    parser.add_argument("sources", nargs="+", type=Path, metavar="SOURCE")
    parser.add_argument("--own", type=Path, action="append", required=True, metavar="SOURCE")
    parser.add_argument("--work", type=Path, required=True, help="run folders go here")
    parser.add_argument("--turn", type=int, default=0, metavar="K")
    parser.add_argument("--out", type=Path, default=RESULTS / "changed_examples.json")
    return parser.parse_args()


def _changed(source: Path, work: Path, turn: int) -> Iterator[Path]:
    """A folder for each change with the networks whose turn it is; a file stays as it is."""
    if source.is_file():
        yield source
        return
    for change, own in turns(source, turn).items():
        yield copied(source, own, change, work / "changed" / f"{source.name}{_MARK}{change}")


def turns(source: Path, turn: int) -> dict[str, list[Path]]:
    """Change -> folders of networks; pairs take the changes in turn, beginning with one of them."""
    folders = sorted(path for path in source.iterdir() if (path / _EXAMPLES).is_dir())
    pairs = list(dict.fromkeys(map(_pair, folders)))
    found: dict[str, list[Path]] = {}
    for folder in folders:
        change = list(CHANGES)[(pairs.index(_pair(folder)) + turn) % len(CHANGES)]
        found.setdefault(change, []).append(folder)
    return found


def _pair(folder: Path) -> int:
    return int(folder.name.removeprefix("id-")) // 2


def copied(source: Path, folders: Sequence[Path], change: str, target: Path) -> Path:
    """The folders, their examples changed, and their rows of METADATA.csv below `target`."""
    shutil.rmtree(target, ignore_errors=True)
    for folder in folders:
        shutil.copytree(folder, target / folder.name)
        for path in sorted((target / folder.name / _EXAMPLES).glob("*.png")):
            with Image.open(path) as picture:
                picture.load()
            CHANGES[change](picture).save(path)
    header, *lines = (source / "METADATA.csv").read_text().splitlines(keepends=True)
    names = {folder.name for folder in folders}
    kept = (line for line in lines if line.split(",")[0] in names)
    (target / "METADATA.csv").write_text("".join((header, *kept)))
    return target


def judged(rows: Sequence[PictureRow], own: dict[tuple[str, str], PictureRow]) -> dict[str, Any]:
    """Scores by own and by changed examples, of each change and in all, and each network."""
    pairs = [(own[_before(row)], row) for row in rows]

    def said(row: PictureRow) -> float:
        return probability(row, shipped_for(row))

    def both(chosen: Sequence[tuple[PictureRow, PictureRow]]) -> dict[str, Any]:
        return {
            name: scores(np.array([*map(said, side)]), np.array([row.poisoned for row in side]))
            for name, side in zip(("own", "changed"), zip(*chosen, strict=True), strict=True)
        }

    groups = {
        "all with batch norms": [pair for pair in pairs if pair[1].has_norms],
        "all without": [pair for pair in pairs if not pair[1].has_norms],
        **{
            name: [pair for pair in pairs if _change(pair[1]) == name and pair[1].has_norms]
            for name in CHANGES
        },
    }
    return {
        "changes": {name: both(chosen) for name, chosen in groups.items() if chosen},
        "networks": [
            network(row, said(row))
            | {"population": row.population, "by_own_examples": round(said(before), 4)}
            for before, row in pairs
        ],
    }  # fmt: skip


def _before(row: PictureRow) -> tuple[str, str]:
    return row.population.split(_MARK)[0], row.model


def _change(row: PictureRow) -> str:
    return row.population.split(_MARK)[1]


if __name__ == "__main__":
    sys.exit(main())
