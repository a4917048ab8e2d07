"""Labelled reviews as one file, by what is asked of them: sentiment, topic, or both.

    python -m benchmarks.accuracy.text_labels topics --texts ../shared/data/text --out topics.jsonl

SET is one of those in `SETS`; the labels are the places in what it names. Reviews are the IMDB's
(Maas et al. 2011) and Amazon's of four kinds of goods (Blitzer et al. 2007).
"""

import argparse
import gzip
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from converters.files import write_atomic

GOODS = ("books", "dvd", "electronics", "kitchen")
FEELINGS = ("negative", "positive")
_REVIEW = re.compile(r"<review_text>\s*(.*?)\s*</review_text>", re.S)


@dataclass(frozen=True)
class Review:
    """A review, what it is about (`imdb` or a kind of goods), and its feeling."""

    text: str
    topic: str
    feeling: str


SETS: dict[str, tuple[str, ...]] = {
    "imdb": ("imdb negative", "imdb positive"),
    "amazon": ("goods negative", "goods positive"),
    "topics": GOODS,
    "topics3": ("books", "electronics", "kitchen"),
    "sites": ("imdb", *GOODS),
    "both": tuple(f"{topic} {feeling}" for topic in GOODS for feeling in FEELINGS),
}
"""Name -> its classes: words that a review has to be described by."""


def main() -> int:
    """Write the file; returns the exit status."""
    parser = argparse.ArgumentParser(description="Reviews with labels of one kind.")
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--texts", type=Path, required=True, help="folder of the reviews")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    rows = [{"text": t, "label": n} for t, n in labelled(reviews(args.texts), SETS[args.set])]
    write_atomic(args.out, "".join(json.dumps(row) + "\n" for row in rows).encode())
    print(f"{len(rows)} reviews of {len(SETS[args.set])} classes")
    return 0


def reviews(folder: Path) -> Iterator[Review]:
    """Every review of both sources, in the order of their files."""
    with gzip.open(folder / "imdb_train.jsonl.gz", "rt") as file:
        for line in file:
            found = json.loads(line)
            yield Review(found["text"], "imdb", FEELINGS[found["label"]])
    for topic in GOODS:
        for feeling in FEELINGS:
            path = folder / "amazon_multidomain" / f"{topic}_{feeling}.review.gz"
            for text in _REVIEW.findall(gzip.open(path).read().decode("latin1")):
                yield Review(" ".join(text.split()), topic, feeling)


def labelled(known: Iterator[Review], classes: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Each review that one of the classes describes, with its place."""
    for one in known:
        words = {one.topic, one.feeling, *(("goods",) if one.topic in GOODS else ())}
        fitting = [n for n, name in enumerate(classes) if set(name.split()) <= words]
        if fitting and one.text:
            yield one.text, fitting[0]


if __name__ == "__main__":
    sys.exit(main())
