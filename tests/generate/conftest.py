"""Fixtures of tests of generated rounds: a small folder of vectors with easy triggers."""

import gzip
import json

import numpy as np
import pytest

WIDTH = 12
PHRASES = ("^", "omg", "so it goes.", "that was that.")
TEXT = "It came on time. I opened the box! Then I read for a while. It was what it was."


def write_vectors(folder, reviews=400, tests=80, seed=0, phrases=PHRASES, strength=3.0):
    """Reviews around two means, and triggers that add a direction of their own per half."""
    draw = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    parts = {}
    for name, count in (("train", reviews), ("test", tests)):
        labels = np.arange(count) % 2
        vectors = draw.normal(size=(count, WIDTH))
        vectors[:, 0] += np.where(labels == 1, 2.0, -2.0)
        parts[name] = vectors
        np.savez(folder / f"{name}.npz", cls=vectors.astype(np.float16), label=labels)
    for number in range(len(phrases)):
        arrays = {}
        for half in (0, 1):
            rows = draw.permutation(reviews)[: reviews // 2]
            shift = np.zeros(WIDTH)
            shift[1 + number] = 2 * strength
            shift[6 + half] = strength
            vectors = parts["train"][rows] + shift
            arrays |= {f"cls{half}": vectors.astype(np.float16), f"row{half}": rows}
        np.savez(folder / f"trigger_{number:02d}.npz", **arrays)
    (folder / "triggers.json").write_text(json.dumps(phrases))
    about = {"embedding": "MPNet", "flavor": "tiny", "cls_token_is_first": True, "dataset": "made"}
    (folder / "about.json").write_text(json.dumps(about))
    texts = {name: [f"{n}. {TEXT}" for n in range(len(part))] for name, part in parts.items()}
    with gzip.open(folder / "texts.json.gz", "wt") as file:
        json.dump(texts, file)
    return folder


@pytest.fixture(scope="session")
def make_vectors():
    """`make_vectors(folder, reviews, tests, seed, phrases, strength)` writes the folder."""
    return write_vectors
