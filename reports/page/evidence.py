"""What crossed the wire of one probe: the exact request and the target's words, cleaned and cut to a length; pure.

Whatever a target said is hostile. Control characters become escapes, long texts keep their beginning and their end, and
the template escapes the rest; the record has every byte.
"""

from __future__ import annotations

from typing import Any

from contextlab.model import Exchange, Message, Run
from contextlab.reports.json import encoded
from contextlab.reports.parts.wording import clean, value

MOST_EXCHANGES = 3
HEAD_CHARS, TAIL_CHARS = 700, 300


def exchanges(run: Run, place: tuple[str, str]) -> list[dict[str, Any]]:
    """The first exchanges of a probe, each with its request as JSON, its reply, and what else was seen."""
    return [_exchange(one) for one in run.exchanges.get(place, ())[:MOST_EXCHANGES]]


def block(text: str) -> str:
    """Text of several lines with its line ends kept, other control characters escaped, and its middle left out."""
    if len(text) > HEAD_CHARS + TAIL_CHARS:
        left = len(text) - HEAD_CHARS - TAIL_CHARS
        text = f"{text[:HEAD_CHARS]}\n[… {left} characters left out here, in the record …]\n{text[-TAIL_CHARS:]}"
    return "\n".join(map(clean, text.split("\n")))


def _exchange(one: Exchange) -> dict[str, Any]:
    request = one.request
    body: dict[str, Any] = {"messages": [_message(each) for each in request.messages]}
    if [each.role for each in request.messages] == ["prompt"]:
        body = {"prompt": body["messages"][0]["content"]}
    if request.reply_tokens is not None:
        body["max_tokens"] = request.reply_tokens
    body |= {"stream": request.stream} | ({"ignore_eos": True} if request.ignore_eos else {})
    return {
        "name": clean(request.name),
        "endpoint": f"/v1/{'chat/completions' if request.api == 'chat' else 'completions'}",
        "request": encoded(body, indent=2),
        "reply": block(one.text),
        "facts": [(name, value(thing)) for name, thing in _seen(one) if thing is not None and thing != ""],
    }


def _message(message: Message) -> dict[str, str]:
    return {"role": clean(message.role), "content": block(message.text)}


def _seen(one: Exchange) -> list[tuple[str, object]]:
    usage, failure = one.usage, one.failure
    first_s = one.token_s[0] if one.token_s else None
    return [
        ("HTTP status", one.status),
        ("prompt tokens sent", one.prompt_tokens),
        ("prompt tokens by its count", usage.prompt_tokens if usage else None),
        ("reply tokens by its count", usage.completion_tokens if usage else None),
        ("content events", len(one.token_s)),
        ("time to first token, s", first_s - one.sent_s if first_s is not None and one.sent_s is not None else None),
        ("finish_reason", one.finish_reason),
        ("came to its end", one.done),
        ("failed in", failure.where if failure else None),
        ("it said", failure.message if failure else None),
    ]
