"""The words of an event arrive changed."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import ClassVar

from contextlab.experiment import Piece, option
from contextlab.faults.streams import EventFault, place
from contextlab.model import UsageError

_WORDS = re.compile(rb'"(?:content|text|reasoning_content|reasoning)"\s*:\s*"((?:[^"\\]|\\.)+)"')
_CHARACTER = re.compile(rb"\\(?:u[0-9a-fA-F]{4}|.)|[\xc0-\xff][\x80-\xbf]*|.", re.DOTALL)
_LETTERS = b"abcdefghijklmnopqrstuvwxyz"
_DIGITS = b"0123456789"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorruptEvent(EventFault):
    """An event is damaged. `what`:

    `text`: a letter of its words is another one: valid UTF-8 and valid JSON, so only who knows the text can tell.
    `json`: its JSON lacks its last brace. `utf8`: one of its bytes is none of UTF-8.
    """

    NAME: ClassVar[str] = "corrupt-event"
    SUMMARY: ClassVar[str] = "an event of a stream comes damaged: other words, broken JSON or invalid UTF-8"

    what: str = option("text", "what is damaged", kind="text", choices=("text", "json", "utf8"))

    def __post_init__(self) -> None:
        if place(self.at, only_events=True).kind == "done":
            raise UsageError("at=done: `[DONE]` has no words to damage", "choose first-token or event:K")

    @property
    def acting(self) -> str:
        """It damages events."""
        return f"damaged the {self.what} of events"

    def changed(self, piece: Piece, draw: float) -> tuple[Piece, ...]:
        """The event with its damage; where there is nothing of its kind to damage, as it was."""
        damage = {"text": other_words, "json": broken_json, "utf8": broken_utf8}[self.what]
        return (replace(piece, data=damage(piece.data, draw)),)


def other_words(event: bytes, draw: float) -> bytes:
    """The event with one letter or digit of its words replaced by another; with one more where it has none."""
    found = _WORDS.search(event)
    if found is None:
        return event
    places = [
        found.start(1) + one.start()
        for one in _CHARACTER.finditer(found[1])
        if one.end() - one.start() == 1 and one[0].isalnum()
    ]
    if not places:
        return event[: found.start(1)] + b"x" + event[found.start(1) :]
    at = places[int(draw * len(places))]
    return event[:at] + _another(event[at : at + 1]) + event[at + 1 :]


def _another(letter: bytes) -> bytes:
    """The next letter or digit of its kind, the first after the last."""
    for kind in (_LETTERS, _LETTERS.upper(), _DIGITS):
        if letter in kind:
            at = (kind.index(letter) + 1) % len(kind)
            return kind[at : at + 1]
    return b"x"


def broken_json(event: bytes, draw: float) -> bytes:
    """The event without its last brace."""
    at = event.rfind(b"}")
    return event if at < 0 else event[:at] + event[at + 1 :]


def broken_utf8(event: bytes, draw: float) -> bytes:
    """The event with a byte of its words, or of its data, that UTF-8 never uses."""
    found = _WORDS.search(event)
    at = found.start(1) if found else event.find(b"{") + 1
    return event[:at] + b"\xff" + event[at:] if at > 0 else event


FAULT = CorruptEvent
