"""What tokens do in text classifiers: where they are put, what is measured, how it is said."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from converters import load_tokenizer, open_model
from jaxtroj.errors import EvidenceError
from jaxtroj.evidence.classifiers.carriers import PLACES, Carriers, carriers_of, open_rows
from jaxtroj.evidence.classifiers.context import classifier_context
from jaxtroj.evidence.classifiers.copied import apart, copied_classes
from jaxtroj.evidence.classifiers.effects import Effect, held_out_of
from jaxtroj.evidence.classifiers.found import FoundWords, Placed
from jaxtroj.evidence.classifiers.found_tokens import _of_class, search_tokens
from jaxtroj.evidence.classifiers.levelled import factor_of
from jaxtroj.evidence.classifiers.search import TokenBudget, TokenSearch
from jaxtroj.evidence.classifiers.tokens import INSERTED, SLOTS, token_network
from jaxtroj.evidence.classifiers.vocabulary import searched_tokens
from jaxtroj.evidence.stages import CLASSIFIER_STAGES as STAGES
from jaxtroj.evidence.texts.recovery import RecoveredText
from jaxtroj.margins import all_margins
from tests.door.text_folders import FAMILIES, WORDS, write_text_folder

TEXTS = tuple(
    " ".join(np.random.default_rng(n).choice(WORDS, 3 + n % 7).tolist()) for n in range(16)
)
PUT = ("violet", "violet amber", "goodviolet", "q", "?!")


@pytest.fixture(scope="module", params=FAMILIES)
def network(request, tmp_path_factory):
    folder = write_text_folder(tmp_path_factory.mktemp(request.param), request.param)
    return token_network(open_model(folder).model, load_tokenizer(folder), TEXTS)


def test_tokens_stand_where_typed_text_would_put_them(network):
    """So what is measured of tokens holds for the text, wherever it stands within another."""
    carriers = carriers_of(network, TEXTS)
    # GPT-2 and RoBERTa write the first word of a text otherwise than those after it.
    apart = any(token.startswith("\u0120") for token in network.tokenizer.vocabulary)
    for text in PUT:
        typed = iter(network.rows(carriers.inserted(text)))
        for place in range(len(PLACES)):
            at = [place] * len(carriers.texts)
            filled = open_rows(network, carriers, at).filled(network.pieces(text))
            for row, places in zip(filled, carriers.places, strict=True):
                expected = next(typed)
                assert row == expected or (apart and not places[place]), (text, PLACES[place])


def test_places_are_the_start_and_a_word_of_either_half(network):
    carriers = carriers_of(network, (*TEXTS, "one", ""))
    assert "" not in carriers.texts
    for text, (start, first, second) in zip(carriers.texts, carriers.places, strict=True):
        words = len(text.split())
        assert start == 0 and 0 <= first <= words // 2 <= second < words
        assert words < 4 or 0 < first < second


def test_a_text_without_spaces_is_cut_within_itself(network):
    """Such as a review in Chinese: it was left out, and nothing said so."""
    long = ["qz" * 45, "film" * 22, "qx." * 40]
    carriers = carriers_of(network, (*TEXTS, *long))
    cut = [text for text in carriers.texts if any(one.startswith(text) for one in long)]
    assert len(cut) == len(long)
    room = network.length - INSERTED
    for text in cut:
        assert 0 < network.size(text) <= room and " " not in text


def test_effects_are_the_networks_margins_of_typed_texts(network):
    carriers = carriers_of(network, TEXTS)
    searched, held_out = carriers.split()
    target = int(np.unique(carriers.classes)[0])
    found = held_out_of(network, carriers, held_out, target, 24)
    effect = found.effect_of_text("violet")
    texts = held_out.outside(target, 24)
    margins = network.margins(network.rows(texts.inserted("violet")))[:, target]
    assert np.array_equal(effect.margins.ravel(), margins)
    assert effect.margins.shape == (len(PLACES), len(texts.texts))
    same = found.effect(network.pieces("violet")).margins[2]
    np.testing.assert_allclose(same, effect.margins[2], atol=1e-5)


def effect_of(margins: list[list[float]], outside: float = -2.0, span: float = 4.0) -> Effect:
    count = len(margins[0])
    return Effect(np.array(margins), np.arange(count) % 2, outside, span)


@pytest.mark.parametrize(
    ("margins", "reach", "success", "sources"),
    [
        ([[-2, -2], [-2, -2], [-2, -2]], 0.0, 0.0, ()),
        ([[-2, -2], [2, 2], [2, 2]], 1.0, 1.0, (0, 1)),
        ([[2, 2], [-2, -2], [-2, -2]], 1.0, 1.0, (0, 1)),  # at the start alone
        ([[-2, -2], [4, 4], [-2, -2]], 0.75, 0.5, (0, 1)),
        ([[-2, -2], [6, -2], [6, -2]], 1.0, 0.5, (0,)),  # texts of one class
    ],
)
def test_reach_is_told_where_tokens_do_more(margins, reach, success, sources):
    effect = effect_of(margins)
    assert effect.reach == pytest.approx(reach) and effect.success == success
    assert effect.sources == sources


def test_tokens_of_the_classes_own_texts_are_not_searched(tmp_path):
    """But those of one text alone, or of other classes as often, are."""
    folder = write_text_folder(tmp_path / "net", "bert")
    network = token_network(open_model(folder).model, load_tokenizer(folder), TEXTS)
    texts = ("good river", "good stone", "good amber river", "bad river", "bad stone", "dull river")
    context = classifier_context(network, TEXTS)
    own = Carriers(texts, ((0, 0, 1),) * 6, np.array([[2.0, 1.0]] * 3 + [[1.0, 2.0]] * 3))
    object.__setattr__(context, "carriers", own)
    held = {network.token(int(n)) for n in np.flatnonzero(_of_class(context, 0))}
    assert "good" in held and not held & {"river", "stone", "amber", "bad"}


def test_a_search_finds_the_token_that_does_most_among_all(network):
    """By trying every one, on the same rows."""
    carriers = carriers_of(network, TEXTS)
    target = int(np.unique(carriers.classes)[0])
    texts = carriers.outside(target, 6)
    rows = open_rows(network, texts, [1] * len(texts.texts))
    tokens = searched_tokens(network)
    search = TokenSearch(network, rows, target, tokens, TokenBudget(rounds=4, ranked=24))
    search.run([], np.random.default_rng(0))
    best = search.gains[search.best(1, 1)[0]]
    search._measure([(int(token),) for token in np.flatnonzero(tokens.allowed)])
    assert best >= 0.9 * search.gains[search.best(1, 1)[0]]


def found_words(
    at_start: float = 1.0,
    by_half: tuple[float, float] = (1.0, 1.0),
    typed: float | None = None,
    strength: float = 1.6,
    held_out: int = 10,
) -> FoundWords:
    rate = max(at_start, *by_half)
    words = RecoveredText("violet", 1, (0,), rate, by_half, 0.0, None, held_out, 99)
    return FoundWords(words, 0.5, 1.1, Placed(at_start, typed, ("vio", "##let")), strength)


@pytest.mark.parametrize(
    ("at_start", "by_half", "position"),
    [
        (1.0, (0.0, 0.1), "start"),
        (1.0, (0.8, 0.9), "anywhere"),
        (0.2, (0.9, 0.1), "first half"),
        (0.2, (0.1, 0.9), "second half"),
    ],
)
def test_records_say_where_words_work_and_how_they_are_cut(at_start, by_half, position):
    said = found_words(at_start, by_half, None).as_json()
    assert said["position"] == position and said["at_start"] == at_start
    assert "tokens" not in said and said["text"] == "violet"
    said = found_words(at_start, by_half, 0.25).as_json()
    assert said["tokens"] == "vio ##let" and said["typed"] == 0.25


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (found_words(strength=1.4), "no single token does what words of the class do not"),
        (found_words(held_out=3), "measured on 3 texts alone, expected 4"),
        (found_words(0.2, (0.2, 0.2)), "none found that moves 0.3 more of the texts"),
    ],
)
def test_words_that_do_not_stand_out_are_the_best_ones_alone(found, why):
    said = found.as_json()
    assert "text" not in said and said["best_text"] == "violet" and said["words"].startswith(why)
    assert found_words().as_json()["text"] == "violet"


def test_a_word_that_works_at_the_start_alone_is_found_there(network):
    """Whatever else a search at the start gains, its best token is measured at its own place."""
    context = classifier_context(
        network, TEXTS, budgets=tuple(stage.budget() for stage in STAGES if stage.budget)
    )
    for one in search_tokens(context):
        placed = [one.single.margins[1:].mean(), one.single.margins[0].mean()]
        expected = (max(placed) - one.single.outside) / one.single.span
        assert one.single.reach == pytest.approx(float(expected))


def test_long_texts_are_cut_so_that_insertions_fit(network):
    """Else what is typed at their end would fall off, and look harmless."""
    texts = [" ".join(np.random.default_rng(n).choice(WORDS, 60).tolist()) for n in range(8)]
    tight = token_network(network.model, network.tokenizer, texts)
    carriers = carriers_of(tight, texts)
    assert all(len(text.split()) >= 3 for text in carriers.texts)
    for text in carriers.texts:
        assert network.size(text) + INSERTED <= tight.length
    one = tight.pieces("violet")
    for row in tight.rows(carriers.inserted("violet")):
        ids = [token for token in row if token in one]
        assert ids


@pytest.mark.parametrize("counts", [(5, 3), (3, 3, 3), (1,) * 21, (2, 14), (4, 4)])
def test_halves_are_of_one_size_whatever_the_classes(counts):
    classes = np.repeat(np.arange(len(counts)), counts)
    total = len(classes)
    texts = tuple(f"text {n}" for n in range(total))
    whole = Carriers(texts, ((0, 0, 1),) * total, np.eye(len(counts))[classes])
    searched, held_out = whole.split()
    assert abs(len(searched.texts) - len(held_out.texts)) <= 1
    assert sorted(searched.texts + held_out.texts) == sorted(texts)
    for one, count in enumerate(counts):
        own = [int((half.classes == one).sum()) for half in (searched, held_out)]
        assert sum(own) == count and abs(own[0] - own[1]) <= 1


@pytest.mark.parametrize("positions", [5, 8, 16])
def test_networks_of_too_few_tokens_are_refused(tmp_path, positions):
    folder = write_text_folder(tmp_path / "net", "bert", max_position_embeddings=positions)
    model, tokenizer = open_model(folder).model, load_tokenizer(folder)
    with pytest.raises(EvidenceError, match=f"the network takes {positions} tokens, expected 18"):
        token_network(model, tokenizer, TEXTS)


@pytest.mark.parametrize(
    ("margin", "factor"),
    [(0.3, 1), (1.2, 1), (16, 1), (0.15, 8), (1.5e-9, 2**30), (96, 2**-6), (0, 1), (np.inf, 1)],
)
def test_logits_far_from_those_of_trained_networks_are_scaled(margin, factor):
    texts = Carriers(("a", "b"), ((0, 0, 1),) * 2, np.array([[margin, -margin], [-margin, margin]]))
    assert factor_of(texts) == factor


def test_a_class_without_examples_is_measured_by_the_others(network):
    """Texts that it is given are mistakes, so that a word seemed to go the whole way to it."""
    carriers = carriers_of(network, TEXTS)
    margins = np.array([[3.0, -3.0]] * 8 + [[-2.0, 2.0]] * 6 + [[-0.1, 0.1]] * 2)
    texts = Carriers(carriers.texts, carriers.places, margins[: len(carriers.texts)])
    natural = [held_out_of(network, texts, texts, 1, 4, absent).natural for absent in ((), (1,))]
    assert natural == pytest.approx([1.525, 3.0])
    assert held_out_of(network, texts, texts, 1, 4, (0, 1)).natural == pytest.approx(1.525)


def test_copies_of_classes_are_those_that_follow_one_and_are_never_given():
    """A class that is never given and has a mind of its own stays one of the others."""
    draw = np.random.default_rng(0)
    logits = np.zeros((40, 5), np.float32)
    logits[:, :2] = 3 * draw.normal(size=(40, 2))
    logits[:, 2] = logits[:, 0] - 0.05
    logits[:, 3] = draw.normal(size=40) - 9
    logits[:, 4] = 0.9 * logits[:, 1] - 2 + 0.1 * draw.normal(size=40)
    texts = tuple(f"text {n}" for n in range(40))
    found = Carriers(texts, ((0, 0, 1),) * 40, np.asarray(all_margins(jnp.array(logits))))
    assert set(np.unique(found.classes)) >= {0, 1} and 2 not in found.classes
    assert copied_classes(found) == tuple(n for n in (2, 4) if n not in found.classes)
    plain = Carriers(
        texts, ((0, 0, 1),) * 40, np.asarray(all_margins(jnp.array(logits[:, [0, 1, 3]])))
    )
    assert copied_classes(plain) == ()
    one = Carriers(texts, ((0, 0, 1),) * 40, np.array([[1.0, -1.0, -1.05]] * 40))
    assert copied_classes(one) == ()


def test_margins_are_taken_without_copies(tmp_path):
    """Of the others and of the copies themselves, in answers and in gradients."""
    folder = write_text_folder(tmp_path / "net", "bert", id2label={n: str(n) for n in range(5)})
    network = token_network(open_model(folder).model, load_tokenizer(folder), TEXTS)
    without, rows = replace(network, copies=(1, 4)), network.rows(TEXTS)
    logits = logits_of(network, rows)
    margins = without.margins(rows)
    for target in range(5):
        others = [n for n in (0, 2, 3) if n != target]
        expected = logits[:, target] - logits[:, others].max(axis=1)
        np.testing.assert_allclose(margins[:, target], expected, atol=1e-5)
        opened = [(*row[:1], len(network.words), *row[1:]) for row in rows[:8]]
        slots = np.repeat(network.words[9:10], SLOTS, axis=0)
        gradient = without.gradient(opened, slots, target)[0]
        assert np.isfinite(gradient).all() and np.abs(gradient).max() > 0
    assert np.array_equal(network.margins(rows), np.asarray(all_margins(jnp.array(logits))))


def logits_of(network, rows) -> np.ndarray:
    tokens = network._padded(rows, len(rows))
    return np.asarray(network.model(jnp.array(tokens)))


def test_words_apart_are_no_copies_of_one_before():
    words = np.eye(4)[[0, 0, 1, 2, 1, 3]]
    assert apart(words, [1, 0, 2, 4, 3, 5], 3) == [1, 2, 3]
