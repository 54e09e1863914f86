"""What an OpenAI-compatible reply says: the bytes of an answer in, events out.

Pure: no sockets. Every engine words its errors in its own way; here they all become one `Failure`.

    bytes ─▶ Refusal | Whole | Streamed ─▶ events_of(JSON) ─▶ Event…
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from contextlab.model import Event, Failure, Kind, Usage
from contextlab.targets.openai.loose_json import LARGEST, loaded, whole, within
from contextlab.targets.openai.sse import SseParser

MAX_MESSAGE_CHARS = 300
"""Length at which a page or a plain text that stands for an error message is cut."""


class Reader(Protocol):
    """Turns the bytes of one answer into events; `close` is called when it came to its proper end, and only then.

    `settled`: the answer has said all that it has to say; whatever follows is a surprise.
    """

    settled: bool

    def feed(self, chunk: bytes) -> list[Event]:
        """What these bytes complete."""
        ...

    def close(self) -> list[Event]:
        """What the end of the answer completes."""
        ...


class Refusal:
    """Reads an answer whose status is no success: one FAILED at its end."""

    def __init__(self, status: int, reason: str | None) -> None:
        self.settled = False
        self._status, self._reason = status, reason
        self._body = bytearray()

    def feed(self, chunk: bytes) -> list[Event]:
        """Nothing is known of a refusal before its end."""
        self._body += chunk
        return []

    def close(self) -> list[Event]:
        """The refusal."""
        return [_failed(refusal_of(self._body.decode(errors="replace"), self._status, self._reason))]


class Whole:
    """Reads a success that comes in one piece of JSON: its words, its usage and DONE, or why not, at its end."""

    def __init__(self, status: int) -> None:
        self.settled = False
        self._status = status
        self._body = bytearray()

    def feed(self, chunk: bytes) -> list[Event]:
        """Nothing is known of a JSON text before its end."""
        self._body += chunk
        return []

    def close(self) -> list[Event]:
        """The whole reply."""
        text = self._body.decode(errors="replace")
        reply = loaded(text)
        if not isinstance(reply, dict):
            kind = "an empty body" if not text.strip() else "an HTML page" if is_html(text) else "not a JSON object"
            return [_failed(_misfit(f"{kind} instead of a reply", text, self._status))]
        events = list(events_of(reply, self._status, len(self._body)))
        if any(event.kind is Kind.FAILED for event in events):
            return events
        if not isinstance(reply.get("choices"), list) or not reply["choices"]:
            return [*events, _failed(_misfit("a success without choices", text, self._status))]
        return [*events, Event(kind=Kind.DONE)]


class Streamed:
    """Reads server-sent events; DONE is `[DONE]` and nothing else. What follows it is still reported."""

    def __init__(self, status: int) -> None:
        self.settled = False
        self._status = status
        self._sse = SseParser()
        self._is_reply = False
        self._start = b""

    def feed(self, chunk: bytes) -> list[Event]:
        """The events whose data these bytes complete."""
        if len(self._start) < MAX_MESSAGE_CHARS:
            self._start += chunk[:MAX_MESSAGE_CHARS]
        return [event for data in self._sse.feed(chunk) for event in self._events(data)]

    def close(self) -> list[Event]:
        """The event that was left without its empty line, or a failure if nothing of a reply ever came."""
        events = [event for data in self._sse.close() for event in self._events(data)]
        if self._is_reply or not self._sse.num_bytes:
            return events
        start = self._start.decode(errors="replace")
        return [*events, _failed(_misfit("a stream without one event of a reply", start, self._status))]

    def _events(self, data: str) -> Iterator[Event]:
        if not data.strip():
            return
        if data.strip() == "[DONE]":
            self._is_reply = self.settled = True
            yield Event(kind=Kind.DONE)
            return
        reply = loaded(data)
        if not isinstance(reply, dict):
            self._is_reply = self.settled = True
            yield _failed(_misfit("an event that is not a JSON object", data, self._status))
            return
        self._is_reply = self._is_reply or "choices" in reply
        for event in events_of(reply, self._status, len(data.encode())):
            self._is_reply = True
            self.settled = self.settled or event.kind is Kind.FAILED
            yield event


def events_of(reply: Mapping[str, Any], status: int, num_bytes: int) -> Iterator[Event]:
    """The events of one decoded chunk or body inside a success; none if it holds neither words, usage nor error.

    `num_bytes` is the size of the JSON text that the words came in.
    """
    if _says_error(reply):
        yield _failed(failure_of(reply, "stream", status))
    choices = reply.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if text := _words_of(choice):
            yield Event(kind=Kind.TOKEN, text=text, num_bytes=num_bytes)
        if reason := within(choice, "finish_reason"):
            yield Event(kind=Kind.FINISHED, finish_reason=str(reason))
    if usage := _usage_of(reply):
        yield Event(kind=Kind.USAGE, usage=usage)


def refusal_of(body: str, status: int, reason: str | None) -> Failure:
    """The failure that a status which is no success stands for, from its body, whatever form that has."""
    first_event = SseParser()  # some servers refuse with an error status and the body of a stream
    data = [*first_event.feed(body.encode()), *first_event.close()] if body.startswith("data:") else []
    reply = loaded(data[0] if data else body)
    if isinstance(reply, dict):
        return failure_of(reply, "http", status)
    message = _short(body) or f"{status} {reason or ''}".strip() + ", with no body"
    return Failure(where="http", message=message, status=status)


def is_html(body: str) -> bool:
    """Whether a body is a page for people rather than an answer for programs."""
    return body.lstrip()[:15].lower().startswith(("<!doctype html", "<html"))


def failure_of(reply: Mapping[str, Any], where: str, status: int) -> Failure:
    """The failure that an error body describes; its own numbers go into `fields`, its own code only if it differs.

    Reads {"error": {"message", "type", "code", …}}, {"error": text, "error_type"}, {"object": "error", "message"},
    {"detail": text or a list of complaints} and {"message"}.
    """
    inner = reply.get("error")
    error: Mapping[str, Any] = inner if isinstance(inner, dict) else reply
    fields = {key: value for key, value in error.items() if _is_number(value) and key not in {"code", "created"}}
    code = error.get("code")
    if code is not None and str(code) != str(status) and (_is_number(code) or isinstance(code, str)):
        fields["code"] = code
    if isinstance(param := error.get("param"), str):
        fields["param"] = param
    return Failure(
        where=where,
        message=_message_of(error) or _short(json.dumps(reply)),
        status=status,
        error_type=str(error.get("type") or reply.get("error_type") or ""),
        fields=fields,
    )


def _failed(failure: Failure) -> Event:
    return Event(kind=Kind.FAILED, failure=failure)


def _misfit(what: str, text: str, status: int) -> Failure:
    return Failure(where="protocol", message=f"{what}: {_short(text)}".rstrip(": "), status=status)


def _says_error(reply: Mapping[str, Any]) -> bool:
    if reply.get("error") or reply.get("object") == "error":
        return True
    return not reply.keys() & {"choices", "usage"} and bool(reply.get("detail") or reply.get("message"))


def _message_of(error: Mapping[str, Any]) -> str:
    for key in ("message", "error", "detail"):
        value = error.get(key)
        if isinstance(value, str) and value.strip():
            return value.strip()
        if isinstance(value, list):  # FastAPI: [{"loc": ["body", "prompt"], "msg": "Field required"}, …]
            complaints = (f"{'.'.join(map(str, within(one, 'loc') or ()))}: {within(one, 'msg')}" for one in value)
            return _short("; ".join(complaints))
    return ""


def _words_of(choice: Any) -> str:
    """The text of a choice, thoughts first, wherever its endpoint and engine put it."""
    for place in ("delta", "message"):
        said = within(choice, place)
        if isinstance(said, dict):
            thoughts = said.get("reasoning_content") or said.get("reasoning")
            return _plain(thoughts) + _plain(said.get("content"))
    return _plain(within(choice, "text"))


def _plain(content: Any) -> str:
    if isinstance(content, list):  # content in parts: [{"type": "text", "text": "…"}, …]
        return "".join(_plain(within(part, "text")) for part in content)
    return content if isinstance(content, str) else ""


def _usage_of(reply: Mapping[str, Any]) -> Usage | None:
    usage, timings = reply.get("usage"), reply.get("timings")
    truncated = reply.get("truncated")
    if not isinstance(usage, dict) and not isinstance(timings, dict) and not isinstance(truncated, bool):
        return None
    cached = whole(within(usage, "prompt_tokens_details", "cached_tokens"))
    computed = whole(within(timings, "prompt_n"))  # llama-server: what it did not take from its cache
    from_cache = whole(within(timings, "cache_n")) if cached is None else cached
    return Usage(
        prompt_tokens=whole(within(usage, "prompt_tokens")),
        completion_tokens=whole(within(usage, "completion_tokens")),
        cached_tokens=from_cache,
        evaluated_tokens=None if computed is None else computed + (from_cache or 0),
        truncated=truncated if isinstance(truncated, bool) else None,
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST


def _short(text: str) -> str:
    """A text on one line without its HTML tags, cut to MAX_MESSAGE_CHARS."""
    plain = " ".join(re.sub(r"<(style|script)\b.*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL | re.IGNORECASE).split())
    return cut(plain)


def cut(text: str) -> str:
    """At most MAX_MESSAGE_CHARS of a text; "…" stands for what is left out."""
    return text if len(text) <= MAX_MESSAGE_CHARS else f"{text[: MAX_MESSAGE_CHARS - 1]}…"
