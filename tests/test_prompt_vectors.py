"""The hidden state of each request's last prompt token: right owner, whatever shares the batch."""

import gc
from types import SimpleNamespace

import pytest
import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode

from sglang_toolspec.runtime.engine.prompt_vectors import PromptVectors
from tests.fakes import Request

HIDDEN = 3


def req(output=()):
    return Request(output_ids=list(output))


def prefill(vectors, reqs, rows, lengths=None, asked=False):
    """``rows`` of hidden states come out of the prefill of ``reqs``."""
    batch = SimpleNamespace(reqs=reqs, extend_lens=lengths or [1] * len(reqs), return_hidden_states=asked)
    output = SimpleNamespace(hidden_states=torch.tensor([[float(row)] * HIDDEN for row in rows]))
    vectors.note(batch, output)
    return output


def test_each_request_of_a_batch_gets_its_own():
    vectors, a, b = PromptVectors(), req(), req()
    prefill(vectors, [a, b], [1, 2])
    assert vectors.of(a).tolist() == [1] * HIDDEN
    assert vectors.of(b).tolist() == [2] * HIDDEN
    assert vectors.of(a).dtype == "float32"


def test_the_last_chunk_of_a_prompt_counts():
    vectors, a = PromptVectors(), req()
    prefill(vectors, [a], [1])
    prefill(vectors, [a], [2])
    assert vectors.of(a).tolist() == [2] * HIDDEN


def test_a_retracted_request_keeps_the_state_of_its_prompt():
    vectors, a = PromptVectors(), req()
    prefill(vectors, [a], [1])
    a.output_ids = [5, 6]
    prefill(vectors, [a], [2])
    assert vectors.of(a).tolist() == [1] * HIDDEN


def test_the_last_row_of_each_prompt_where_a_client_asked_for_all():
    vectors, a, b = PromptVectors(), req(), req()
    output = prefill(vectors, [a, b], [1, 2, 3, 4, 5], lengths=[2, 3], asked=True)
    assert vectors.of(a).tolist() == [2] * HIDDEN
    assert vectors.of(b).tolist() == [5] * HIDDEN
    assert output.hidden_states is not None


def test_what_no_client_asked_for_does_not_go_on():
    assert prefill(PromptVectors(), [req()], [1]).hidden_states is None


def test_a_later_use_of_the_result_changes_nothing():
    vectors, a = PromptVectors(), req()
    batch = SimpleNamespace(reqs=[a], extend_lens=[1], return_hidden_states=True)
    output = SimpleNamespace(hidden_states=torch.ones(1, HIDDEN))
    vectors.note(batch, output)
    output.hidden_states.zero_()
    assert vectors.of(a).tolist() == [1] * HIDDEN


def test_an_unknown_request_has_none():
    assert PromptVectors().of(req()) is None


def test_a_vector_goes_with_its_request():
    vectors, a = PromptVectors(), req()
    prefill(vectors, [a], [1])
    del a
    gc.collect()
    assert len(vectors._vectors) == 0


@pytest.mark.parametrize(
    ("asked", "mode"),
    [
        (CaptureHiddenMode.NULL, CaptureHiddenMode.LAST),
        (CaptureHiddenMode.LAST, None),
        (CaptureHiddenMode.FULL, None),
    ],
)
def test_clients_get_what_they_asked_for(asked, mode):
    assert PromptVectors.mode(SimpleNamespace(return_hidden_states_mode=asked)) is mode
