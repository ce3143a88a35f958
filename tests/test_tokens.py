"""The codec on two real, tiny tokenizers: byte-level BPE with two special tokens and one that is
not, and SentencePiece-like BPE, which puts a space before a text."""

import json
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
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


# SentencePiece.

WORDS = ["city", '"city":', "weather", "12", "{", "}}", "\n\n", "tool", " tool"]


@pytest.fixture(scope="module")
def spaced_tokenizer():
    inner = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>", "<tool_call>"]
    trainer = trainers.BpeTrainer(special_tokens=special, show_progress=False)
    inner.train_from_iterator(WORDS * 10, trainer)
    description = json.loads(inner.to_str())
    vocab = description["model"]["vocab"]
    vocab |= {f"<0x{byte:02X}>": len(vocab) + byte for byte in range(256)}
    inner = Tokenizer.from_str(json.dumps(description))
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>")


@pytest.fixture(scope="module")
def spaced(spaced_tokenizer):
    return TokenCodec(spaced_tokenizer, len(spaced_tokenizer), [spaced_tokenizer.eos_token_id])


def spelt(codec, text, literal=False):
    return [codec.text_of(token) for token in codec.encode(text, literal)]


def test_the_tokenizer_of_these_tests_puts_a_space_before_a_text(spaced, spaced_tokenizer):
    ids = spaced_tokenizer.encode("city", add_special_tokens=False)
    assert [spaced.text_of(token) for token in ids] == [b" city"]


@pytest.mark.parametrize("literal", [False, True])
def test_a_continuation_has_no_space_of_its_own(spaced, literal):
    assert spelt(spaced, "city", literal) == [b"city"]
    assert spelt(spaced, " city", literal) == [b" city"]
    assert spelt(spaced, "tool}}", literal) == [b"tool", b"}}"]
    assert spelt(spaced, "", literal) == []


@pytest.mark.parametrize("text", ["\n", "\n\n", "\n\n\ncity", "}", "}}}", ")", "\n}", "\ncity", " "])
@pytest.mark.parametrize("literal", [False, True])
def test_a_text_that_merges_with_what_is_put_before_it_is_spelt_too(spaced, text, literal):
    assert b"".join(spelt(spaced, text, literal)) == text.encode()


@given(st.text('citywea{}12":\n )é😀', max_size=8), st.booleans())
def test_any_continuation_is_spelt_by_its_tokens(spaced, text, literal):
    assert b"".join(spelt(spaced, text, literal)) == text.encode()


def test_letters_without_a_token_are_spelt_in_bytes(spaced):
    assert spelt(spaced, "cityé") == [b"city", b"\xc3", b"\xa9"]


def test_special_tokens_behind_nothing_are_one_token_unless_literal(spaced, spaced_tokenizer):
    special = spaced_tokenizer.convert_tokens_to_ids("<tool_call>")
    assert spaced.encode("<tool_call>") == (special,)
    assert special not in spaced.encode("<tool_call>", True)
    assert b"".join(spelt(spaced, "<tool_call>", True)) == b"<tool_call>"
