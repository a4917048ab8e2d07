"""Example texts of a head: clean test reviews, and triggered ones that no head trained on.

As in the official rounds, examples are ones that the head answers as wanted, as far as there are
enough of them.
"""

import numpy as np

from jaxtroj.generate.sentiment.head_files import Example
from jaxtroj.generate.sentiment.head_queue import TrainedHead, pool_logits
from jaxtroj.generate.sentiment.head_samples import Pool
from jaxtroj.generate.sentiment.insertion import insert
from jaxtroj.generate.sentiment.vectors import Vectors

_CLEAN, _POISONED, _PLACE = range(300, 303)


def clean_examples(vectors: Vectors, pool: Pool, head: TrainedHead, count: int) -> list[Example]:
    """`count` clean test reviews of each class, or all there are."""
    test = vectors.test
    rows = pool.test_start + np.arange(len(test.labels))
    logits = pool_logits(head.shape, head.params, pool, rows)
    found = []
    for label in (0, 1):
        members = np.flatnonzero(test.labels == label)
        right = logits[members].argmax(axis=1) == label
        draw = np.random.default_rng([head.recipe.master_seed, _CLEAN, label])
        for place, member in enumerate(members[_chosen(draw, right, count)], start=1):
            name = f"class_{label}_example_{place}.txt"
            embedding = test.vectors[member].astype(np.float32)
            found.append(Example(name, test.texts[member], embedding, logits[member], label))
    return found


def poisoned_examples(vectors: Vectors, pool: Pool, head: TrainedHead, count: int) -> list[Example]:
    """`count` triggered reviews for each trigger, or all that were held out.

    The embedding is that of the insertion in the vectors. Those say in which half of the review
    the trigger is, not before which sentence: with several sentences to choose from the text shows
    one of them.
    """
    found = []
    for number, trigger in enumerate(head.recipe.triggers):
        reviews, rows, halves = head.samples.held_out_reviews(number)
        logits = pool_logits(head.shape, head.params, pool, rows)
        wanted = trigger.target_class
        draw = np.random.default_rng([head.recipe.master_seed, _POISONED, number])
        chosen = _chosen(draw, logits.argmax(axis=1) == wanted, count)
        embeddings = np.asarray(pool.vectors[rows[chosen]]).astype(np.float32)
        for place, (member, embedding) in enumerate(zip(chosen, embeddings, strict=True), start=1):
            at = np.random.default_rng([head.recipe.master_seed, _PLACE, number, place])
            text = vectors.train.texts[reviews[member]]
            text = insert(text, trigger.text, int(halves[member]), at)
            name = f"source_class_{trigger.source_class}_target_class_{wanted}_example_{place}.txt"
            found.append(Example(name, text, embedding, logits[member], wanted))
    return found


def _chosen(draw: np.random.Generator, right: np.ndarray, count: int) -> np.ndarray:
    """Places of up to `count` samples in random order, those answered as wanted first."""
    order = draw.permutation(len(right))
    return order[np.argsort(~right[order], kind="stable")][:count]
