"""Steps of a `tokenizer.json` that transformers 5 builds anew: those of all readers, or refused."""

import pytest
import tokenizers
import transformers

from converters.encoders.tokenizer import load_tokenizer
from converters.errors import LoadError
from tests.converters.test_tokenizer import changed, made, same


def _replaces(values):
    """A trojan: one word becomes others."""
    replace = {"type": "Replace", "pattern": {"String": "film"}, "content": "bad bad"}
    both = [values["normalizer"], replace]
    values["normalizer"] = {"type": "Sequence", "normalizers": both}


def _twice_at_the_start(values):
    single = values["post_processor"]["single"]
    single.insert(0, single[0])


def _another_token_of_the_name(values):
    values["post_processor"]["special_tokens"]["[CLS]"]["ids"] = [17, 17]


PIPELINES = {
    "post_processor of other ids": _another_token_of_the_name,
    "normalizer": _replaces,
    "pre_tokenizer": lambda v: v.update(pre_tokenizer={"type": "WhitespaceSplit"}),
    "post_processor": _twice_at_the_start,
    "post_processor is gone": lambda v: v.update(post_processor=None),
    "model of short words": lambda v: v["model"].update(max_input_chars_per_word=3),
    "model of another unknown word": lambda v: v["model"].update(unk_token="bad"),
}


@pytest.mark.parametrize("case", PIPELINES)
def test_a_pipeline_that_transformers_5_does_not_run_is_refused(case, tmp_path):
    made("BertTokenizer").save_pretrained(tmp_path)
    changed(tmp_path, "tokenizer.json", PIPELINES[case])
    with pytest.raises(LoadError, match=f"the {case.split()[0]} of tokenizer.json is .* makes"):
        load_tokenizer(tmp_path)


def test_other_readers_run_the_pipeline_of_the_file(tmp_path):
    """The control: transformers 5 says what it is asked for, the package tokenizers otherwise."""
    made("BertTokenizer").save_pretrained(tmp_path)
    changed(tmp_path, "tokenizer.json", _replaces)
    file = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    newer = transformers.BertTokenizer.from_pretrained(str(tmp_path))
    assert file.encode("film").ids != newer("film")["input_ids"]


USUAL = {
    "accents as the case": ("BertTokenizer", lambda v: v["normalizer"].update(strip_accents=None)),
    "no post-processor of GPT-2": ("GPT2Tokenizer", lambda v: v.update(post_processor=None)),
    "offsets": (
        "GPT2Tokenizer",
        lambda v: v.update(
            post_processor=v["pre_tokenizer"] | {"add_prefix_space": True, "trim_offsets": False}
        ),
    ),
    "defaults that are not said": (
        "RobertaTokenizer",
        lambda v: v["model"].update(continuing_subword_prefix=None, unk_token="<unk>"),
    ),
}


@pytest.mark.parametrize("case", USUAL)
def test_pipelines_as_older_versions_write_them_are_read(case, tmp_path):
    kind, change = USUAL[case]
    made(kind).save_pretrained(tmp_path)
    changed(tmp_path, "tokenizer.json", change)
    same(load_tokenizer(tmp_path), made(kind))


@pytest.mark.parametrize("cut", [True, False])
def test_chinese_characters_are_cut_as_mpnets_file_says(cut, tmp_path):
    """transformers 4 follows the file there, which it overrules for case and accents alone."""
    made("MPNetTokenizer").save_pretrained(tmp_path)
    change = {"handle_chinese_chars": cut}
    changed(tmp_path, "tokenizer.json", lambda v: v["normalizer"].update(change))
    if cut:
        same(load_tokenizer(tmp_path), made("MPNetTokenizer"))
        return
    with pytest.raises(LoadError, match="the normalizer of tokenizer.json"):
        load_tokenizer(tmp_path)
