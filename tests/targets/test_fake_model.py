"""The toy model: a tokenizer that loses nothing and counts as promised, and a reply that shows what was read."""

import re
from collections.abc import Iterator
from itertools import islice
from string import ascii_lowercase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextlab.model import Api
from contextlab.targets.servers.fake_model import (
    COMMON_WORDS,
    ORDINARY_ANSWER,
    UNKNOWN_ANSWER,
    chat_prompt,
    reply,
    tokenize,
)

unhurried = settings(deadline=None)  # what is tested is what comes out, not how soon on a busy machine
any_text = st.text(st.characters(exclude_categories=()))
mixed_text = st.lists(st.sampled_from(["a", "Z", "7", " ", "\n", ".", "é", "漢", "🙂", "word", "+/="])).map("".join)
lowercase_words = st.lists(st.text(ascii_lowercase, min_size=1, max_size=16), min_size=1)
filler = st.lists(st.sampled_from(["river", "stone", "under", "green", "table,", "walks.", "7"]), max_size=60)

CODE = "The secret code of HEAD is 7391."
CUE = "The secret code of HEAD is"


def completion(prompt: str) -> str:
    return "".join(islice(reply(tokenize(prompt), Api.COMPLETIONS), 8))


def chat(*contents: str) -> str:
    return "".join(reply(chat_prompt([("user", content) for content in contents]), Api.CHAT))


class TestTokenizer:
    @unhurried
    @given(any_text | mixed_text)
    def test_the_tokens_are_the_text(self, text: str) -> None:
        assert "".join(tokenize(text)) == text

    @unhurried
    @given(lowercase_words)
    def test_a_word_is_one_token_with_its_space(self, words: list[str]) -> None:
        assert len(tokenize(" ".join(words))) == len(words)

    @unhurried
    @given(st.text(st.characters(min_codepoint=128, exclude_categories=["Cs"])))
    def test_outside_ascii_a_byte_is_a_token(self, text: str) -> None:
        assert len(tokenize(text)) == len(text.encode())

    @unhurried
    @given(st.integers(1, 40), st.sampled_from(" \n\t"))
    def test_whitespace_costs_a_token_beyond_the_first(self, length: int, space: str) -> None:
        assert len(tokenize("a" + space * length + "b")) == 2 + length - 1

    @pytest.mark.parametrize(
        ("text", "tokens"),
        [
            ("", []),
            ("code is 7391.", ["code", " is", " 7391", "."]),
            ("12345", ["1234", "5"]),
            ("it's, well", ["it", "'", "s", ",", " well"]),
            ("a" * 16, ["a" * 16]),
            ("x " + "A" * 18, ["x", " AAAA", "AAAA", "AAAA", "AAAA", "AA"]),
            ("a é", ["a", "", " é"]),
        ],
    )
    def test_examples(self, text: str, tokens: list[str]) -> None:
        assert tokenize(text) == tokens

    def test_chat_costs_four_tokens_a_message_and_three(self) -> None:
        assert len(chat_prompt([("system", "be brief"), ("user", "hello there you")])) == 2 + 4 + 3 + 4 + 3


class TestCompletion:
    @unhurried
    @given(filler, filler)
    def test_a_code_is_recalled_wherever_it_stood(self, before: list[str], after: list[str]) -> None:
        assert completion(" ".join([*before, CODE, *after, CUE])) == " 7391."

    @unhurried
    @given(filler, filler)
    def test_a_code_that_is_not_there_is_not_said(self, before: list[str], after: list[str]) -> None:
        other = CODE.replace("HEAD", "TAIL")
        assert "7391" not in completion(" ".join([*before, other, *after, CUE]))

    def test_of_several_codes_the_one_asked_for_comes_back(self) -> None:
        codes = "The secret code of HEAD is 1. The secret code of MIDDLE is 22. The secret code of TAIL is 333."
        answers = [completion(f"{codes} The secret code of {name} is") for name in ("HEAD", "MIDDLE", "TAIL")]
        assert answers == [" 1.", " 22.", " 333."]

    def test_nothing_to_copy_gives_common_words(self) -> None:
        assert completion("one two three") == "".join(COMMON_WORDS[:8])

    def test_it_goes_on_after_the_end_when_told_to(self) -> None:
        tokens = islice(reply(tokenize(f"{CODE} {CUE}"), Api.COMPLETIONS, ignore_eos=True), 40)
        assert "".join(tokens).startswith(" 7391." + "".join(COMMON_WORDS))

    def test_every_token_joins_the_context(self) -> None:
        context = tokenize(f"{CODE} {CUE}")
        said = list(reply(context, Api.COMPLETIONS))
        assert context[-2:] == said == [" 7391", "."]

    def test_what_is_dropped_meanwhile_is_not_said(self) -> None:
        context = tokenize("we count to one two three four five six. now we count to")
        tokens = reply(context, Api.COMPLETIONS)
        said = [next(tokens), next(tokens)]
        del context[:-3]
        assert "".join([*said, *islice(tokens, 2)]) == " one two" + "".join(COMMON_WORDS[:2])

    def test_dropping_what_is_not_needed_changes_nothing(self) -> None:
        context = tokenize(f"some words before. {CODE} {CUE}")
        tokens = reply(context, Api.COMPLETIONS)
        assert _next_after_drop(tokens, context) == " 7391."


def _next_after_drop(tokens: Iterator[str], context: list[str]) -> str:
    first = next(tokens)
    del context[:4]
    return first + "".join(tokens)


class TestChat:
    QUESTION = "What is the secret code of HEAD?"

    def test_a_code_in_any_message_is_found(self) -> None:
        assert chat(f"Listen. {CODE} Good.", "and now", self.QUESTION) == CODE
        assert chat(f"{CODE} {self.QUESTION} Answer with it.") == CODE

    def test_a_code_that_is_not_there_is_not_known(self) -> None:
        assert chat(CODE.replace("HEAD", "TAIL"), self.QUESTION) == UNKNOWN_ANSWER

    def test_ordinary_text_is_acknowledged(self) -> None:
        assert chat("Good morning.") == ORDINARY_ANSWER

    @unhurried
    @given(st.text())
    def test_any_text_is_answered_with_a_sentence(self, text: str) -> None:
        assert re.fullmatch(r"[^.]+\.", chat(text))
