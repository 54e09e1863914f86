"""The toy language model behind the fake server: a tokenizer, a chat template and an induction head.

    text ─ tokenize ─▶ tokens ─ (the server may cut them) ─▶ reply ─▶ tokens ─ "".join ─▶ text

Pure and deterministic, so that a fake can be told from its answers what it has read. It knows nothing of
windows, requests or HTTP, and it is no target.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, cycle

from contextlab.model import Api

COMMON_WORDS: tuple[str, ...] = tuple(
    re.findall(
        r" [a-z]+", " time year people way day man thing woman life child world school state family student group"
    )
)
"""What the model says, round and round, when it has nothing to copy; one token each."""

ORDINARY_ANSWER = "Thank you, I have read your message."
UNKNOWN_ANSWER = "I do not know."

_PIECE = re.compile(
    r"[ \t\r\n]?(?:"  # one whitespace character belongs to what follows it
    r"(?<![A-Za-z])[A-Za-z]{1,16}(?![A-Za-z])"  # a whole word
    r"|[A-Za-z]{1,4}"  # or the next piece of a run of letters that is too long for a word
    r"|[0-9]{1,4}"
    r"|[^ \t\r\n]"  # punctuation, or a character that is not ASCII
    r")|[ \t\r\n]"
)
_QUESTION = re.compile(r"What is the secret code of ([^?\n]+)\?")
_LONGEST_MATCH, _SHORTEST_MATCH = 6, 2


def tokenize(text: str) -> list[str]:
    """The tokens of `text`; joined, they are the text again.

    One token each: a word of up to 16 letters, up to 4 digits, a punctuation character, all with one
    whitespace character before them; a further whitespace character; 4 letters of a longer run. A character
    outside ASCII costs one token per UTF-8 byte; the last carries it, those before are empty, as in a
    stream that holds back an unfinished character.
    """
    pieces: list[str] = _PIECE.findall(text)
    if text.isascii():
        return pieces
    tokens: list[str] = []
    for piece in pieces:
        tokens += [""] * (len(piece[-1].encode("utf-8", "surrogatepass")) - 1)
        tokens.append(piece)
    return tokens


def chat_prompt(messages: Iterable[tuple[str, str]]) -> list[str]:
    """The tokens of a chat; `messages` are (role, content), oldest first.

    The template costs 4 tokens a message, and 3 to open the reply.
    """
    tokens: list[str] = []
    for role, content in messages:
        tokens += ["<|im_start|>", role, "\n", *tokenize(content), "<|im_end|>"]
    return [*tokens, "<|im_start|>", "assistant", "\n"]


def reply(context: list[str], api: Api, *, ignore_eos: bool = False) -> Iterator[str]:
    """The tokens that follow `context`, each appended to it as it is said.

    They end with the sentence that answers, or go on for ever with common words: if `ignore_eos`, and if a
    completion finds nothing to copy. Between two tokens the caller may drop the oldest ones of `context`.
    """
    answer = _copied_sentence(context) if api is Api.COMPLETIONS else iter(tokenize(chat_answer("".join(context))))
    for token in chain(answer, cycle(COMMON_WORDS) if ignore_eos else ()):
        context.append(token)
        yield token


def chat_answer(visible: str) -> str:
    """The answer to the last question for a secret code, from what is visible of the chat."""
    questions = _QUESTION.findall(visible)
    if not questions:
        return ORDINARY_ANSWER
    statements = re.findall(rf"The secret code of {re.escape(questions[-1])} is [^.\n]+\.", visible)
    return str(statements[-1]) if statements else UNKNOWN_ANSWER


def _copied_sentence(context: Sequence[str]) -> Iterator[str]:
    """What followed the last words where they stood before, up to its period; else common words for ever.

    The place is held as a distance from the end, which stays true while the context grows at its end and
    is cut at its beginning.
    """
    distance = _copy_distance([token.strip() for token in context])
    while 0 < distance <= len(context):
        token = context[-distance]
        yield token
        if token.strip() == ".":
            return
    yield from cycle(COMMON_WORDS)


def _copy_distance(words: Sequence[str]) -> int:
    """How far before the end the text to copy begins; 0 if the last words occur nowhere before.

    The longest match wins (6 words down to 2), and the latest of equally long ones.
    """
    best_match, distance = _SHORTEST_MATCH - 1, 0
    for end in range(len(words) - 1, 0, -1):  # `end` is one past a possible match
        if words[end - 1] != words[-1]:
            continue
        match = 1
        while match < min(_LONGEST_MATCH, end) and words[end - 1 - match] == words[-1 - match]:
            match += 1
        if match > best_match:
            best_match, distance = match, len(words) - end
    return distance
