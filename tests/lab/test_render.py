"""Bringing a request to its size, with every kind of counter."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextlab.analysis.judging import tolerance_tokens
from contextlab.analysis.prompts import PLACES, fill, filler, marked
from contextlab.lab.child import CALIBRATION_WORDS
from contextlab.lab.render import Count, Rendered, render
from contextlab.model import Api, Exchange, Message, Request, Stretch, UnableError

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Other work on the machine must not fail a property."""


@dataclass(slots=True)
class Counter:
    """Counts `template` tokens for each message and `per_word` for each word, or one or two by the word's letters."""

    template: int = 3
    per_word: int = 1
    uneven: bool = False
    num_calls: int = 0
    largest: int = 0

    async def __call__(self, api: Api, messages: Sequence[Message]) -> int:
        self.num_calls += 1
        tokens = self.of(messages)
        self.largest = max(self.largest, tokens)
        return tokens

    def of(self, messages: Sequence[Message]) -> int:
        return sum(self.template + sum(map(self.word, message.text.split())) for message in messages)

    def word(self, word: str) -> int:
        return self.per_word + (zlib.crc32(word.encode()) % 4 == 0 if self.uneven else 0)

    def slope(self) -> float:
        """Tokens for a word, as the lab measures them."""
        few, many = (
            self.of((Message(role="prompt", parts=(filler(words, Random(0)).strip(),)),)) for words in CALIBRATION_WORDS
        )
        return (many - few) / (CALIBRATION_WORDS[1] - CALIBRATION_WORDS[0])


def rendered(request: Request, count: Count, *, exact: bool, tokens_per_word: float) -> Rendered:
    return asyncio.run(render(request, count, counts_any_size=exact, tokens_per_word=tokens_per_word))


requests = st.builds(
    marked,
    st.just("ask"),
    st.just(0),
    st.sampled_from(PLACES),
    seed=st.integers(0, 2**30),
    api=st.sampled_from(Api),
)


@unhurried
@given(requests, st.integers(0, 40_000), st.integers(0, 40), st.floats(0.85, 1.2))
def test_with_an_exact_counter_any_size_is_hit(request: Request, room: int, template: int, slope: float) -> None:
    """The slope that it begins with is measured, so it may be off by some percent, not by a factor."""
    counter = Counter(template=template)
    size = counter.of(fill(request, 0).messages) + room
    result = rendered(replace(request, size_tokens=size), counter, exact=True, tokens_per_word=slope)
    assert (result.prompt_tokens, result.exact) == (size, True)
    assert counter.of(result.request.messages) == size
    assert counter.num_calls <= 9
    assert all(isinstance(part, str) for message in result.request.messages for part in message.parts)


@unhurried
@given(requests, st.integers(0, 5_000), st.integers(1, 4), st.booleans())
def test_where_a_size_cannot_be_hit_the_count_is_still_the_truth(
    request: Request, room: int, per_word: int, uneven: bool
) -> None:
    """Words of several tokens leave gaps between the sizes; the nearest is taken, and told as it is."""
    counter = Counter(per_word=per_word, uneven=uneven)
    size = counter.of(fill(request, 0).messages) + room
    result = rendered(replace(request, size_tokens=size), counter, exact=True, tokens_per_word=counter.slope())
    assert result.prompt_tokens == counter.of(result.request.messages)
    assert abs(result.prompt_tokens - size) <= (per_word + uneven) / 2


@unhurried
@given(requests, st.integers(0, 60_000), st.integers(1, 4))
def test_by_slope_the_size_is_met_within_the_tolerance(request: Request, room: int, per_word: int) -> None:
    counter = Counter(per_word=per_word)
    bare = counter.of(fill(request, 0).messages)
    result = rendered(replace(request, size_tokens=bare + room), counter, exact=False, tokens_per_word=counter.slope())
    assert (result.prompt_tokens, result.exact) == (bare + room, False)
    truth = counter.of(result.request.messages)
    exchange = Exchange(request=result.request, prompt_tokens=result.prompt_tokens, exact=False)
    assert abs(truth - (bare + room)) <= min(per_word, tolerance_tokens(exchange))
    assert (counter.num_calls, counter.largest) == (1, bare), "it may be asked about small prompts only"


@unhurried
@given(requests, st.integers(1, 500), st.booleans())
def test_too_small_is_said_with_both_numbers(request: Request, missing: int, exact: bool) -> None:
    counter = Counter()
    bare = counter.of(fill(request, 0).messages)
    with pytest.raises(UnableError) as caught:
        rendered(replace(request, size_tokens=bare - missing), counter, exact=exact, tokens_per_word=1.0)
    assert f"size={bare - missing} tokens" in caught.value.message
    assert f"already take {bare}" in caught.value.message
    assert "larger window" in caught.value.next_step


@unhurried
@given(st.integers(0, 2**30), st.integers(0, 2**30), st.integers(100, 2_000), st.booleans())
def test_equal_seeds_equal_text(seed: int, other: int, size: int, exact: bool) -> None:
    def text(seed: int) -> str:
        request = marked("ask", size, "TAIL", seed=seed)
        result = rendered(request, Counter(), exact=exact, tokens_per_word=1.0)
        return result.request.messages[0].text

    assert text(seed) == text(seed)
    assert (text(seed) == text(other)) is (seed == other)


@unhurried
@given(st.integers(0, 2**30), st.integers(100, 2_000), st.sampled_from([(a, b) for a in PLACES for b in PLACES]))
def test_requests_of_one_seed_differ_in_their_question_only(seed: int, size: int, asks: tuple[str, str]) -> None:
    """A target with a prefix cache reads the rest once."""
    one, other = (
        rendered(marked("ask", size, ask, seed=seed), Counter(), exact=True, tokens_per_word=1.0) for ask in asks
    )
    question = " The secret code of {} is"
    assert one.request.messages[0].text.removesuffix(question.format(asks[0])) == other.request.messages[
        0
    ].text.removesuffix(question.format(asks[1]))


@unhurried
@given(st.integers(0, 200), st.lists(st.floats(0.1, 5), min_size=1, max_size=4))
def test_the_filler_is_shared_by_weight(num_words: int, weights: list[float]) -> None:
    parts = tuple(Stretch(weight=weight) for weight in weights)
    filled = fill(Request(name="a", messages=(Message(role="prompt", parts=parts),)), num_words)
    shares = [len(str(part).split()) for part in filled.messages[0].parts]
    assert sum(shares) == num_words
    for share, weight in zip(shares[:-1], weights[:-1], strict=True):
        assert abs(share - num_words * weight / sum(weights)) <= 1


@pytest.mark.parametrize("exact", [True, False])
def test_messages_that_are_sent_as_they_are(exact: bool) -> None:
    fixed = Request(name="a", messages=(Message(role="prompt", parts=("one two",)),), size_tokens=500)
    unsized = Request(name="a", messages=(Message(role="prompt", parts=("one", Stretch(), " two")),))
    for request, text in ((fixed, "one two"), (unsized, "one two")):
        counter = Counter()
        result = rendered(request, counter, exact=exact, tokens_per_word=1.0)
        assert result.request.messages[0].text == text
        assert (result.prompt_tokens, result.exact) == ((5, True) if exact else (None, False))
        assert counter.num_calls == int(exact)


def test_a_size_of_the_bare_prompt_itself() -> None:
    request = marked("ask", 0, "HEAD", seed=1)
    bare = Counter().of(fill(request, 0).messages)
    result = rendered(replace(request, size_tokens=bare), Counter(), exact=True, tokens_per_word=1.0)
    assert result.prompt_tokens == bare
    assert result.request == replace(fill(request, 0), size_tokens=bare)
