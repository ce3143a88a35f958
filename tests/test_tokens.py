"""The codec on a real, tiny tokenizer: byte-level BPE with two special tokens and one that is not."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from sglang_toolspec.runtime.tokens import TokenCodec

PADDING = 5


@pytest.fixture(scope="module")
def tokenizer():
    vocab = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    for merged in ("to", "ol", "tool"):
        vocab[merged] = len(vocab)
    inner = Tokenizer(models.BPE(vocab=vocab, merges=[("t", "o"), ("o", "l"), ("to", "ol")]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_tokens([AddedToken("<think>", special=False)])
    inner.add_special_tokens(["<tool_call>", "<|im_end|>"])
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>")


@pytest.fixture(scope="module")
def codec(tokenizer):
    return TokenCodec(tokenizer, len(tokenizer) + PADDING, [tokenizer.eos_token_id])


@pytest.mark.parametrize("text", ["tool", "a tool: é😀", '{"name": "x"}\n', "\x00\x7f", "<think>x"])
@pytest.mark.parametrize("literal", [False, True])
def test_tokens_spell_the_text_that_was_encoded(codec, text, literal):
    assert b"".join(map(codec.text_of, codec.encode(text, literal))) == text.encode()


def test_merges_apply(codec):
    assert [codec.text_of(t) for t in codec.encode("tools")] == [b"tool", b"s"]


@given(st.lists(st.sampled_from(["tool", " ", "  ", '": "', "}}\n", "<tool_call>", "é", "o"])).map("".join))
def test_words_encoded_one_by_one_are_the_whole_text(codec, tokenizer, text):
    assert list(codec.encode(text)) == tokenizer.encode(text, add_special_tokens=False)


def test_a_token_that_reaches_over_a_space_is_not_cut():
    """As in vocabularies that were learned from text that was not split into words."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: i for i, piece in enumerate([*letters, "lĠ", "lĠt"])}
    inner = Tokenizer(models.BPE(vocab=vocab, merges=[("l", "Ġ"), ("lĠ", "t")]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<|im_end|>"])
    whole = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>")
    codec = TokenCodec(whole, len(whole), [whole.eos_token_id])
    assert [codec.text_of(t) for t in codec.encode("ol to")] == [b"o", b"l t", b"o"]


def test_a_token_may_hold_a_part_of_a_character(codec):
    assert [codec.text_of(t) for t in codec.encode("é")] == [b"\xc3", b"\xa9"]


def test_free_text_uses_the_special_token(codec, tokenizer):
    special = tokenizer.convert_tokens_to_ids("<tool_call>")
    assert codec.encode("<tool_call>")[0] == special
    assert codec.text_of(special) == b"<tool_call>"


def test_literal_text_spells_special_tokens_out(codec):
    pieces = [codec.text_of(t) for t in codec.encode("<tool_call>", True)]
    assert pieces == [b"<", b"tool", b"_", b"c", b"a", b"l", b"l", b">"]


def test_literal_and_free_encodings_are_not_mixed_up(codec):
    before = codec.encode("<tool_call>x", False)
    assert codec.encode("<tool_call>x", True) != before
    assert codec.encode("<tool_call>x", False) == before


def test_stop_tokens_have_no_text(codec, tokenizer):
    assert codec.end_of_turn == tokenizer.eos_token_id
    assert codec.stop_ids == {tokenizer.eos_token_id}
    assert codec.text_of(tokenizer.eos_token_id) == b""


def test_ids_outside_the_tokenizer_have_no_text(codec, tokenizer):
    for token in (-1, len(tokenizer), len(tokenizer) + PADDING - 1, len(tokenizer) + PADDING, 10**9):
        assert codec.text_of(token) == b""


def test_a_prompt_is_decoded_with_its_special_tokens(codec, tokenizer):
    text = "Hello , <tool_call>é<|im_end|> it 's"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert codec.decode(ids) == text
    assert codec.decode(array("q", ids)) == text  # as SGLang keeps them


def test_ids_that_stand_for_no_text_are_left_out_of_a_prompt(codec):
    """SGLang writes hashes into a prompt where an image stands."""
    ids = codec.encode("tool")
    assert codec.decode([*ids, 1 << 30, *ids]) == "tooltool"


def test_the_token_that_ends_calls_is_drafted_where_the_model_has_one(tokenizer):
    """GLM ends a reply with calls by ``<|observation|>``, not by its end-of-text token."""
    inner = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    inner.add_special_tokens(["<|observation|>"])
    glm = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>")
    end = glm.convert_tokens_to_ids("<|observation|>")
    assert TokenCodec(glm, len(glm), [glm.eos_token_id, end]).end_of_turn == end
    assert TokenCodec(glm, len(glm), [glm.eos_token_id]).end_of_turn == glm.eos_token_id
