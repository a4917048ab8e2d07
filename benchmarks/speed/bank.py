"""How fast an encoder's bank of inserted texts is built: candidates and texts per second.

    python -m benchmarks.speed.bank ENCODER TEXTS [--candidates N] [--batch-sizes A,B] [--out FILE]

Words of the vocabulary go into carriers drawn from TEXTS, as in `jaxtroj bank`. The first build of
a batch size compiles; the second one, into another folder, is the rate. The machine's load is
recorded with the result.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provenance import RESULTS, provenance
from converters.encoders import Encoder, load_encoder
from converters.encoders.tokenizer import Tokenizer, load_tokenizer
from converters.files import write_atomic
from jaxtroj.cli.argument_types import count
from jaxtroj.cli.options import keep_compiled
from jaxtroj.evidence.texts.bank import open_bank
from jaxtroj.evidence.texts.bank.build import build, make_plan
from jaxtroj.evidence.texts.bank.candidates import list_free
from jaxtroj.evidence.texts.bank.store import BankPlan
from jaxtroj.evidence.texts.embedding import embed
from jaxtroj.evidence.texts.labelled_texts import draw_by_content, read_labelled_texts


def main() -> int:
    """Measure, print and write; returns the exit status."""
    args = _arguments()
    keep_compiled()
    encoder, tokenizer = load_encoder(args.encoder), load_tokenizer(args.encoder)
    carriers = draw_by_content(read_labelled_texts(args.texts), args.carriers_per_class)
    pooling = "last" if encoder.architecture == "gpt2" else "first"
    words = list_free(tokenizer.vocabulary, args.candidates, 0)[-args.candidates :]
    texts = [one.text for one in carriers]
    plan = make_plan(encoder.sha256, encoder.width, pooling, False, texts, words)
    sizes = [int(size) for size in args.batch_sizes.split(",")]
    whole = len(list_free(tokenizer.vocabulary, None, 0))
    rates = [_measured(plan, encoder, tokenizer, size) for size in sizes]
    result = {
        "provenance": provenance(),
        "encoder": {"architecture": encoder.architecture, "sha256": encoder.sha256},
        "carriers": len(carriers),
        "tokens_per_carrier": float(np.mean(_lengths(tokenizer, encoder, texts))),
        "candidates": len(words),
        "whole_vocabulary": whole,
        "by_batch_size": rates,
        "whole_vocabulary_hours": round(
            whole / max(one["candidates_per_second"] for one in rates) / 3600, 2
        ),
    }
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(result, indent=1))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Rate at which a bank is built.")
    parser.add_argument("encoder", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--candidates", type=count, default=64)
    parser.add_argument("--carriers-per-class", type=count, default=4)
    parser.add_argument("--batch-sizes", default="16,32,64")
    parser.add_argument("--out", type=Path, default=RESULTS / "bank.json")
    return parser.parse_args()


def _measured(plan: BankPlan, encoder: Encoder, tokenizer: Tokenizer, size: int) -> dict[str, Any]:
    def to_vectors(texts: Sequence[str]) -> np.ndarray:
        return embed(encoder, tokenizer, texts, plan.pooling, size)

    seconds = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            for _ in build(Path(folder), plan, to_vectors):
                pass
            seconds.append(time.perf_counter() - started)
            assert len(open_bank(folder).vectors) == len(plan.candidates)
    texts = len(plan.candidates) * len(plan.carriers)
    return {
        "batch_size": size,
        "first_seconds": round(seconds[0], 2),
        "warm_seconds": round(seconds[1], 2),
        "candidates_per_second": round(len(plan.candidates) / seconds[1], 2),
        "texts_per_second": round(texts / seconds[1], 1),
    }


def _lengths(tokenizer: Tokenizer, encoder: Encoder, texts: Sequence[str]) -> list[int]:
    return [len(row) for row in tokenizer.rows(texts, encoder.max_tokens - 2)]


if __name__ == "__main__":
    raise SystemExit(main())
