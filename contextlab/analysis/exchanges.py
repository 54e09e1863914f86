"""Folds the events of one request into an Exchange, and reads simple numbers off it; pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from contextlab.model import Event, Evidence, Exchange, Failure, Kind, Request, Usage

STALL_RATIO = 0.25
"""Part of the wait that must have passed without a token for a reply to stand still."""


def fold(request: Request, events: Iterable[tuple[float, Event]]) -> Exchange:
    """The exchange that these (time in seconds, event) pairs make, in their order.

    An exchange whose last event is not an end (DONE, FAILED) is one that its process did not survive, or that
    the client left: it has neither `done` nor `failure`.
    """
    texts: list[str] = []
    token_s: list[float] = []
    fields: dict[str, Any] = {}
    num_bytes = 0
    for at_s, event in events:
        num_bytes += event.num_bytes
        match event.kind:
            case Kind.SENT:
                fields |= {"sent_s": at_s, "prompt_tokens": event.prompt_tokens, "exact": event.exact}
                fields.setdefault("due_s", at_s)
            case Kind.OPENED:
                fields |= {"opened_s": at_s, "status": event.status}
            case Kind.TOKEN:
                texts.append(event.text)
                token_s.append(at_s)
            case Kind.FINISHED:
                fields["finish_reason"] = event.finish_reason
            case Kind.USAGE:
                fields["usage"] = event.usage
            case Kind.FAILED:
                fields |= {"failure": event.failure, "ended_s": at_s}
            case Kind.HUNG_UP:
                fields |= {"hung_up": True, "ended_s": at_s}
            case Kind.DONE:
                fields |= {"done": True, "ended_s": at_s}
    return replace(
        Exchange(request=request), text="".join(texts), token_s=tuple(token_s), num_bytes=num_bytes, **fields
    )


def timed_out(exchange: Exchange) -> bool:
    """Whether we gave up waiting."""
    return exchange.failure is not None and exchange.failure.where == "timeout"


def still_flowing(exchange: Exchange) -> bool:
    """Whether we gave up on a reply that was still coming: its last token is not long gone, against the whole wait."""
    if not timed_out(exchange) or not exchange.token_s or exchange.ended_s is None or exchange.sent_s is None:
        return False
    return exchange.ended_s - exchange.token_s[-1] < STALL_RATIO * (exchange.ended_s - exchange.sent_s)


def answered(exchange: Exchange) -> bool:
    """Whether it came to a proper end."""
    return exchange.failure is None and exchange.done and exchange.finish_reason is not None


def completion_tokens(exchange: Exchange) -> int:
    """Reply tokens: as the target counts them, else one for each content event."""
    counted = exchange.usage.completion_tokens if exchange.usage else None
    return counted if counted is not None else len(exchange.token_s)


def prompt_tokens_read(exchange: Exchange) -> int | None:
    """Prompt tokens that the target says it read: what it evaluated where it tells, else what it counted."""
    usage: Usage | None = exchange.usage
    if usage is None:
        return None
    return usage.evaluated_tokens if usage.evaluated_tokens is not None else usage.prompt_tokens


def total_tokens(exchange: Exchange) -> int | None:
    """Prompt and reply together; None where the prompt's size is not known."""
    read = prompt_tokens_read(exchange)
    prompt = read if read is not None else exchange.prompt_tokens
    return None if prompt is None else prompt + completion_tokens(exchange)


def ttft_s(exchange: Exchange) -> float | None:
    """Time to first token, from when the request was due."""
    if not exchange.token_s or exchange.due_s is None:
        return None
    return exchange.token_s[0] - exchange.due_s


def duration_s(exchange: Exchange) -> float | None:
    """From when it was due to its end."""
    if exchange.ended_s is None or exchange.due_s is None:
        return None
    return exchange.ended_s - exchange.due_s


def evidence(exchange: Exchange) -> Evidence:
    """The numbers and words of one exchange that a finding rests on; absent ones are left out."""
    failure: Failure | None = exchange.failure
    usage = exchange.usage
    duration = duration_s(exchange)
    pairs: dict[str, int | float | str | bool | None] = {
        "prompt_tokens_sent": exchange.prompt_tokens,
        "count": None if exchange.prompt_tokens is None else ("exact" if exchange.exact else "by slope"),
        "prompt_tokens_read": prompt_tokens_read(exchange),
        "reply_tokens": completion_tokens(exchange) or None,
        "max_tokens": exchange.request.reply_tokens,
        "total_tokens": total_tokens(exchange) if usage else None,
        "status": failure.status if failure and failure.status else exchange.status,
        "finish_reason": exchange.finish_reason,
        "truncated": usage.truncated if usage else None,
        "error_type": (failure.error_type or None) if failure else None,
        "error": failure.message[:400] if failure else None,
        "failed_at": failure.where if failure else None,
        "seconds": None if duration is None else round(duration, 3),
    }
    return {key: value for key, value in pairs.items() if value is not None}
