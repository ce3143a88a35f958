"""Tokenizers of SentencePiece's kind, trained here on a few lines: as Llama 2 and Mistral v1 have
them (a space before every text) and as Mistral v3 has them (only before the first)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from sglang_toolspec.grammars.automaton import ToolAutomaton
from sglang_toolspec.grammars.formats import FORMATS
from sglang_toolspec.runtime.drafters.schema import SchemaDrafter
from sglang_toolspec.runtime.tokens import TokenCodec
from tests.toolsets import LEGAL_CALLS, shapes, write_call, write_calls

FORMS = ("hermes", "mistral", "bare", "qwen3_coder")
TEXTS = [write_calls(form, LEGAL_CALLS[:4], layout) for form in FORMS for layout in ("spaced", "pretty")]
WORDS = ["city", "weather", "12", "{", "}}", "\n\n", "tool", " tool", "It is cold in Oslo today."]
CONTROL = ["<unk>", "<s>", "</s>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]"]


def trained() -> dict:
    """Merges that cross neither a space nor from letters to marks, and a token for each byte."""
    inner = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    words = Regex(r"▁?\p{L}+|▁?[^\p{L}▁]+|▁")
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(prepend_scheme="always"), pre_tokenizers.Split(words, "isolated")]
    )
    trainer = trainers.BpeTrainer(special_tokens=CONTROL[:3], vocab_size=600, show_progress=False)
    inner.train_from_iterator((WORDS + TEXTS) * 10, trainer)
    description = json.loads(inner.to_str())
    vocab = description["model"]["vocab"]
    vocab |= {f"<0x{byte:02X}>": len(vocab) + byte for byte in range(256)}
    return description


def finished(inner: Tokenizer) -> PreTrainedTokenizerFast:
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    inner.add_special_tokens([AddedToken(word, normalized=False, special=True) for word in CONTROL])
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>")


@pytest.fixture(scope="module")
def description():
    return trained()


@pytest.fixture(scope="module", params=["llama2", "mistral3"])
def tokenizer(request, description):
    inner = Tokenizer.from_str(json.dumps(description | {"pre_tokenizer": None, "normalizer": None}))
    if request.param == "llama2":
        inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return finished(inner)


@pytest.fixture(scope="module")
def codec(tokenizer):
    return TokenCodec(tokenizer, len(tokenizer), [tokenizer.eos_token_id])


def spelt(codec, text, literal=False):
    return [codec.text_of(token) for token in codec.encode(text, literal)]


def test_the_tokenizers_of_these_tests_put_a_space_before_a_text(codec, tokenizer):
    ids = tokenizer.encode("city", add_special_tokens=False)
    assert b"".join(codec.text_of(token) for token in ids) == b" city"


# Continuations.


@pytest.mark.parametrize("literal", [False, True])
def test_a_continuation_has_no_space_of_its_own(codec, literal):
    assert spelt(codec, "city", literal)[0][:1] == b"c"
    assert spelt(codec, " city", literal)[0][:2] == b" c"
    assert spelt(codec, "", literal) == []


@pytest.mark.parametrize(
    "text", ["\n", "\n\n", "\n\n\ncity", "}", "}}}", ")", "\n}", "\ncity", " ", "é", "日本"]
)
@pytest.mark.parametrize("literal", [False, True])
def test_a_text_that_merges_with_what_is_put_before_it_is_spelt_too(codec, text, literal):
    assert b"".join(spelt(codec, text, literal)) == text.encode()


@given(st.text('citywea{}12":\n )é😀', max_size=8), st.booleans())
def test_any_continuation_is_spelt_by_its_tokens(codec, text, literal):
    assert b"".join(spelt(codec, text, literal)) == text.encode()


@pytest.mark.parametrize("text", ["<tool_call>\n{", "x</tool_call>\n<tool_call> y", '[TOOL_CALLS] [{"name'])
def test_no_space_slips_in_behind_a_special_token(codec, text):
    assert b"".join(spelt(codec, text)) == text.encode()


def test_special_tokens_are_one_token_unless_literal(codec, tokenizer):
    special = tokenizer.convert_tokens_to_ids("<tool_call>")
    assert codec.encode("<tool_call>") == (special,)
    assert special not in codec.encode("<tool_call>", True)
    assert b"".join(spelt(codec, "<tool_call>", True)) == b"<tool_call>"


# Drafts in replies.


def in_context(tokenizer, codec, reply):
    """The tokens of ``reply`` behind other text."""
    before = "Hello.\n"
    whole = tokenizer.encode(before + reply, add_special_tokens=False)
    head = tokenizer.encode(before, add_special_tokens=False)
    assert whole[: len(head)] == head
    assert b"".join(map(codec.text_of, whole[len(head) :])) == reply.encode()
    return whole[len(head) :]


@pytest.mark.parametrize("layout", ["spaced", "pretty", "compact"])
@pytest.mark.parametrize("form", ["bare", "fence", "bare_parameters"])
def test_drafts_are_the_tokens_that_the_reply_has_in_context(tokenizer, codec, form, layout):
    """All but the last, which what follows may change, and rarely the one before it."""
    followed = drafted = changed = 0
    for name, arguments in (*LEGAL_CALLS[:2], *LEGAL_CALLS[3:7]):  # the third holds a special token
        drafter = SchemaDrafter(ToolAutomaton(shapes(), (FORMATS[form],)), codec)
        reply = [*in_context(tokenizer, codec, write_call(form, name, arguments, layout)), codec.end_of_turn]
        for at, token in enumerate(reply):
            rest = reply[at:]
            text = b"".join(map(codec.text_of, rest))
            for path in drafter.propose():
                spelt_out = b"".join(map(codec.text_of, path.tokens))
                if spelt_out and text.startswith(spelt_out):
                    sure = len(path.tokens) - 1
                    sure_text = max(0, sure - 1)
                    assert list(path.tokens[:sure_text]) == rest[:sure_text]
                    changed += list(path.tokens[:sure]) != rest[:sure]
                    followed += 1
                    drafted += sure
            drafter.commit([token])
        assert drafter.automaton.calls_done
    assert followed > 50
    assert drafted > 3 * followed
    assert changed <= 0.02 * followed


def test_letters_without_a_token_are_drafted_in_bytes_and_never_from_within(tokenizer, codec):
    head, value, tail = '{"name": "get_time", "arguments": {"zone": "', "ħ", '"}}'
    drafter = SchemaDrafter(ToolAutomaton(shapes(), (FORMATS["bare"],)), codec)
    reply = in_context(tokenizer, codec, head + value + tail)
    begun = b""
    for token in reply:
        text = codec.text_of(token)
        begun += text
        drafter.commit([token])
        try:
            begun.decode()
        except UnicodeDecodeError:
            assert drafter.propose() == []
    assert begun == (head + value + tail).encode()
    assert [codec.text_of(token) for token in codec.encode("ħ")] == [b"\xc4", b"\xa7"]


def test_the_end_of_the_turn_is_drafted_behind_the_last_mark(tokenizer, codec):
    drafter = SchemaDrafter(ToolAutomaton(shapes(), (FORMATS["bare"],)), codec)
    reply = in_context(tokenizer, codec, write_call("bare", "get_time", {"zone": "UTC"}))
    drafter.commit(reply)
    assert drafter.propose()[0].tokens == (tokenizer.eos_token_id,)
