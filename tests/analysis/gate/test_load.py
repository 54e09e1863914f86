"""The load of a gate: the same requests for both arms, and what its answers come to."""

from __future__ import annotations

import pytest

from contextlab.analysis.gate.load import (
    EXACT_NAMES,
    GateLoad,
    counted,
    digest,
    done,
    exact,
    metrics,
    num_truncated,
    requests,
    texts,
)
from contextlab.experiment import Ending, Sample
from contextlab.model import Knowledge, Limits, Usage, UsageError

LOAD = GateLoad(num_requests=5, num_warmup=2)
KNOWN = Knowledge(flavour="", model="", limits=Limits(), powers=frozenset({"completions", "ignores-eos"}))


def sample(index: int, *, ok: bool = True, took_s: float = 1.0, truncated: bool | None = None) -> Sample:
    """One request, sent a second after the other: the first token after a tenth of its time, 4 tokens in all."""
    sent_s = float(index)
    content = tuple(sent_s + took_s * share for share in (0.1, 0.3, 0.5, 0.7))
    return Sample(
        index=index,
        mixed=index,
        due_s=sent_s,
        sent_s=sent_s,
        ending=Ending.WHOLE if ok else Ending.RESET,
        status=200 if ok else None,
        content_s=content if ok else (),
        ended_s=sent_s + took_s,
        finish_reason="length" if ok else None,
        usage=Usage(prompt_tokens=64 + index % 2, completion_tokens=8, truncated=truncated) if ok else None,
        num_frames=5 if ok else 0,
        num_done=1 if ok else 0,
    )


def test_equal_seeds_give_equal_requests_and_no_two_begin_alike() -> None:
    assert texts(LOAD, 3) == texts(LOAD, 3)
    assert texts(LOAD, 3) != texts(LOAD, 4)
    heads = [text.split()[:6] for text in texts(LOAD, 3)]
    assert len({tuple(head) for head in heads}) == len(heads)
    assert digest(LOAD, 3) != digest(LOAD, 4)


def test_a_salt_changes_the_heads_alone() -> None:
    for plain, salted in zip(texts(LOAD, 3), texts(LOAD, 3, "2:base"), strict=True):
        assert plain.split()[:6] != salted.split()[:6]
        assert plain.split()[6:] == salted.split()[6:]
        assert len(plain.split()) == len(salted.split()) == LOAD.prompt_tokens


def test_requests_are_what_the_target_takes() -> None:
    first = requests(LOAD, KNOWN, 3)[0]
    assert (first.reply_tokens, first.ignore_eos, first.api.value) == (LOAD.reply_tokens, True, "completions")


def test_warm_up_and_company_do_not_count() -> None:
    every = [sample(index) for index in (8, 3, 6, 0, 1, 2, 7, 4)]
    assert [one.index for one in counted(LOAD, every)] == [2, 3, 4, 6]
    assert not done(LOAD, every)
    assert done(LOAD, [*every, sample(5)])


def test_times_are_of_answers_and_tokens_of_the_whole() -> None:
    found = metrics([sample(index, took_s=0.5) for index in range(4)])
    assert found["ttft_p50_s"] == pytest.approx(0.05)
    assert found["itl_p50_s"] == pytest.approx(0.1)
    assert found["e2e_p90_s"] == pytest.approx(0.5)
    assert found["tokens_per_s"] == pytest.approx(4 * 8 / 3.5)
    slower = metrics([*(sample(index, took_s=0.5) for index in range(4)), sample(4, ok=False)])
    assert slower["e2e_p50_s"] == found["e2e_p50_s"]
    assert slower["tokens_per_s"] < found["tokens_per_s"]
    assert metrics([sample(0)]) == {}


def test_one_failed_request_does_not_move_what_must_be_equal() -> None:
    whole = [sample(index) for index in range(5)]
    assert exact(whole) == {"load.prompt_tokens": 64, "load.reply_tokens": 8}
    assert exact([*whole[:4], sample(4, ok=False)]) == exact(whole)
    assert exact([sample(0, ok=False)]) == {}
    assert set(exact(whole)) < set(EXACT_NAMES)


def test_what_a_target_says_it_cut_is_counted() -> None:
    assert num_truncated([sample(0, truncated=True), sample(1, truncated=False), sample(2)]) == 1


@pytest.mark.parametrize("field", ["num_requests", "num_warmup", "concurrency", "prompt_tokens", "reply_tokens"])
def test_a_load_that_cannot_be_is_refused(field: str) -> None:
    with pytest.raises(UsageError, match=f"{field.removeprefix('num_')}=-1"):
        GateLoad(**{field: -1})
