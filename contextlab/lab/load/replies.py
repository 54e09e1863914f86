"""What the bytes of a flight say, worked out when there is time: a Sample of it.

    pieces ─▶ quick: a stream of the usual form, all its events decoded in one call ─▶ Said ─▶ Sample
       └────▶ careful: event by event, whatever came ────────────────────────────────▲

The two agree on everything that the quick one accepts; it steps back from all that is not plain: bad JSON or UTF-8,
errors, fields of an engine's own, a stream without `[DONE]`.
"""

from __future__ import annotations

import http.client
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Annotated, Any, Literal

import msgspec

from contextlab.analysis.qos import RETRY_AFTER
from contextlab.experiment import Ending, Sample
from contextlab.lab.load.flight import Flight
from contextlab.model import Event, Failure, Kind, Usage
from contextlab.targets.openai.loose_json import LARGEST, loaded
from contextlab.targets.openai.replies import Refusal, Streamed, Whole, events_of
from contextlab.targets.openai.sse import SseParser

BEGIN, BETWEEN, END = b"data: {", b"}\n\ndata: {", b"}\n\ndata: [DONE]\n\n"
DONE = "[DONE]"
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r|\Z)")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SLOW_END_S = 0.05
"""A reply that ends properly so soon after `[DONE]` was not held open."""
DIGITS = 6
"""Decimals of a time in seconds."""
Clean = Callable[[str], str]


@dataclass(slots=True)
class Said:
    """What a reply said. `reads` holds, for each piece of text, the number of the read that completed its event;
    `end_read` is that of the first `[DONE]` or error."""

    reads: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    usage: Usage | None = None
    failure: Failure | None = None
    error_frames: list[Failure] = field(default_factory=list)
    reply_ids: list[str] = field(default_factory=list)
    num_frames: int = 0
    num_done: int = 0
    num_bad_json: int = 0
    num_bad_utf8: int = 0
    after_end_bytes: int = 0
    end_read: int | None = None

    def identify(self, name: str) -> None:
        """Keep the id of an event, once."""
        if name not in self.reply_ids:
            self.reply_ids.append(name)

    def say(self, text: str, read: int) -> None:
        """Keep the words of an event, if it has any."""
        if text:
            self.pieces.append(text)
            self.reads.append(read)


def sample_of(flight: Flight, zero_s: float, clean: Clean = str, make: Callable[..., Any] = Sample) -> Any:
    """The sample of a flight that has landed; its times count from `zero_s`. `clean` hides what no record may hold.

    `make` gets the fields of a Sample and may make something else of them.
    """
    ending = flight.ending or Ending.UNSENT
    said = _said(flight, ending) if flight.stamps else Said()
    stamps = [round(at_s - zero_s, DIGITS) for at_s in flight.stamps]
    ended_s = None if flight.ended_s is None else round(flight.ended_s - zero_s, DIGITS)
    open_s = None
    if said.end_read is not None and ended_s is not None:
        open_s = round(ended_s - stamps[said.end_read], DIGITS)
        if ending is Ending.WHOLE and open_s < SLOW_END_S:
            open_s = None
    if clean is not str:
        said = _cleaned(said, clean)
    return make(
        index=flight.index,
        mixed=flight.mixed,
        due_s=round(flight.due_s - zero_s, DIGITS),
        ending=ending,
        sent_s=None if flight.sent_s is None else round(flight.sent_s - zero_s, DIGITS),
        connected_s=None if flight.connected_s is None else round(flight.connected_s - zero_s, DIGITS),
        first_byte_s=stamps[0] if stamps else None,
        content_s=tuple([stamps[read] for read in said.reads]),
        pieces=tuple(said.pieces),
        ended_s=ended_s,
        status=flight.status,
        finish_reason=said.finish_reason,
        usage=said.usage,
        failure=said.failure or flight.failure,
        error_frames=tuple(said.error_frames),
        reply_ids=tuple(said.reply_ids),
        num_frames=said.num_frames,
        num_done=said.num_done,
        num_bad_json=said.num_bad_json,
        num_bad_utf8=said.num_bad_utf8,
        after_end_bytes=said.after_end_bytes,
        open_after_end_s=open_s,
        num_bytes=flight.num_bytes,
        num_reads=len(stamps),
        retransmits=flight.retransmits,
        crc32=flight.crc32,
    )


def _said(flight: Flight, ending: Ending) -> Said:
    """What the body says, by its status and its kind."""
    status = flight.status
    if status is None:
        return Said()
    body = b"".join(flight.pieces)
    if not 200 <= status < 300:
        refusal = Refusal(status, http.client.responses.get(status))
        refusal.feed(body)
        return Said(failure=_with_retry_after(_failures(refusal.close())[0], flight))
    kind = flight.header(b"Content-Type").lower()
    ends = _ends_of_reads(flight)
    if b"json" in kind or b"html" in kind:
        return _whole(body, status, len(ends) - 1) if ending is Ending.WHOLE else Said()
    return quick(body, ends) or careful(body, ends, status, ended=ending is Ending.WHOLE)


def _with_retry_after(failure: Failure, flight: Flight) -> Failure:
    """The refusal with the header that says when to come again, as it was written, where there is one."""
    when = flight.header(b"Retry-After")
    if not when:
        return failure
    return replace(failure, fields={**failure.fields, RETRY_AFTER: _printable(when.decode("latin-1"))[:80]})


def _ends_of_reads(flight: Flight) -> list[int]:
    """How many bytes of the body had come after each read."""
    if len(flight.counts) == 1:
        return [sum(map(len, flight.pieces))]
    sizes = list(accumulate(map(len, flight.pieces), initial=0))
    return [sizes[count] for count in flight.counts]


# ── the usual form ───────────────────────────────────────────────────────────────────────────────


_Count = Annotated[int, msgspec.Meta(ge=1 - LARGEST, le=LARGEST - 1)]


class _Details(msgspec.Struct, gc=False):
    cached_tokens: _Count | None = None


class _Counts(msgspec.Struct, gc=False):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _Details | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    message: None = None


class _Frame(msgspec.Struct, gc=False):
    """An event of the usual form; what is declared None here must be absent or null, else it is not one."""

    id: str | None = None
    object: Literal["chat.completion.chunk", "text_completion", "chat.completion"] | None = None
    choices: list[_Choice] | None = None
    usage: _Counts | None = None
    error: None = None
    detail: None = None
    message: None = None
    timings: None = None
    truncated: None = None


_FRAMES = msgspec.json.Decoder(_Frame)


def quick(body: bytes, ends: Sequence[int]) -> Said | None:
    """What a stream of the usual form says; None where it is not one. `ends` as of `_ends_of_reads`.

    All events are decoded in one call, as lines: each begins with `{` and ends with `}`, and no other line break is
    in the text, so that no JSON value can reach from one line into the next. As many values as lines means: one each.
    """
    if not (body.startswith(BEGIN) and body.endswith(END)):
        return None
    parts = body[len(BEGIN) : -len(END)].split(BETWEEN)
    lines = b"{%b}" % b"}\n{".join(parts)
    if lines.count(b"\n") != len(parts) - 1 or b"\r" in lines:
        return None
    try:
        if not body.isascii():
            body.decode()
        frames: list[_Frame] = _FRAMES.decode_lines(lines)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if len(frames) != len(parts):
        return None
    said = Said(num_frames=len(frames) + 1, num_done=1, end_read=bisect_left(ends, len(body)))
    _take(said, frames, _reads_of(parts, ends))
    return said


def _reads_of(parts: Sequence[bytes], ends: Sequence[int]) -> list[int]:
    """For each event of a usual stream, whose data without its outer braces are given: the read that completed it."""
    if len(ends) == 1:
        return [0] * len(parts)
    untils = accumulate(len(part) + len(BETWEEN) for part in parts)  # what stands around an event's data is as long
    return [bisect_left(ends, until) for until in untils]


def _take(said: Said, frames: Sequence[_Frame], reads: Sequence[int]) -> None:
    """Add what events of the usual form say. `reads` holds the number of a read for each of them."""
    last_id: str | None = None
    pieces, places = said.pieces, said.reads
    for frame, read in zip(frames, reads, strict=True):
        if frame.id != last_id and (last_id := frame.id) is not None and last_id not in said.reply_ids:
            said.reply_ids.append(last_id)
        for choice in frame.choices or ():
            delta = choice.delta
            if delta is None:
                text = choice.text
            else:
                text = delta.content
                if thoughts := delta.reasoning_content or delta.reasoning:
                    text = thoughts + (text or "")
            if text:
                pieces.append(text)
                places.append(read)
            if choice.finish_reason:
                said.finish_reason = choice.finish_reason
        if frame.usage is not None:
            said.usage = _usage(frame.usage)


def _usage(counts: _Counts) -> Usage:
    details = counts.prompt_tokens_details
    return Usage(
        prompt_tokens=counts.prompt_tokens,
        completion_tokens=counts.completion_tokens,
        cached_tokens=None if details is None else details.cached_tokens,
    )


# ── whatever came ────────────────────────────────────────────────────────────────────────────────


def careful(body: bytes, ends: Sequence[int], status: int, *, ended: bool) -> Said:
    """What a stream says, event by event. `ended`: it came to its proper end."""
    said = Said()
    end_bytes = len(body)
    for data, until in _events(body, ended=ended):
        said.num_frames += 1
        read = min(bisect_left(ends, until), len(ends) - 1)
        frame = _usual(data)
        if frame is not None:
            _take(said, [frame], [read])
            continue
        try:
            text = data.decode()
        except UnicodeDecodeError:
            said.num_bad_utf8 += 1
            text = data.decode(errors="replace")
        num_errors = len(said.error_frames)
        if text.strip() == DONE:
            said.num_done += 1
        elif text.strip():
            _take_odd(said, text, read, status)
        if said.end_read is None and (said.num_done or len(said.error_frames) > num_errors):
            said.end_read, end_bytes = read, until
    said.after_end_bytes = len(body) - end_bytes if body[end_bytes:].strip() else 0
    if said.error_frames:
        said.failure = said.error_frames[0]
    elif said.num_bad_json or (ended and not said.num_done):
        reader = Streamed(status)
        found = _failures([*reader.feed(body), *(reader.close() if ended else ())])
        said.failure = found[0] if found else None
    return said


def _usual(data: bytes) -> _Frame | None:
    """An event that holds nothing but what `_take` knows; None for any other."""
    try:
        if not data.isascii():
            data.decode()
        return _FRAMES.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _take_odd(said: Said, text: str, read: int, status: int) -> None:
    """What any other event says."""
    reply = loaded(text)
    if not isinstance(reply, dict):
        said.num_bad_json += 1
        return
    if isinstance(name := reply.get("id"), str):
        said.identify(_printable(name))
    for event in events_of(reply, status, len(text)):
        if event.kind is Kind.TOKEN:
            said.say(_printable(event.text), read)
        elif event.kind is Kind.FINISHED and event.finish_reason is not None:
            said.finish_reason = _printable(event.finish_reason)
        elif event.kind is Kind.USAGE:
            said.usage = event.usage
        elif event.failure is not None:
            said.error_frames.append(_told(event.failure, _printable))


def _events(body: bytes, *, ended: bool) -> Iterator[tuple[bytes, int]]:
    """The data of each event, undecoded, and how many bytes of the body it took to complete it."""
    until = len(_BYTE_ORDER_MARK) if body.startswith(_BYTE_ORDER_MARK) else 0
    if b"\r" in body:
        yield from _fed(_LINE.findall(body, until), until, ended=ended)
        return
    *blocks, rest = body[until:].split(b"\n\n")
    for block in blocks:
        until += len(block) + 2
        if block.startswith(b"data: ") and b"\n" not in block:
            yield block[6:], until
        else:
            for data, _ in _fed([block, b"\n\n"], 0, ended=False):
                yield data, until
    if rest:
        yield from _fed([rest], until, ended=ended)


def _fed(parts: Sequence[bytes], until: int, *, ended: bool) -> Iterator[tuple[bytes, int]]:
    """The same by the parser of events. It speaks text: each byte passes it as the character of the same number."""
    sse = SseParser()
    for part in parts:
        until += len(part)
        for data in sse.feed(part.decode("latin-1").encode()):
            yield data.encode("latin-1"), until
    if ended:
        for data in sse.close():
            yield data.encode("latin-1"), until


def _whole(body: bytes, status: int, last_read: int) -> Said:
    """What a reply in one piece of JSON says; all its words came with its last read."""
    reader = Whole(status)
    said = Said(failure=next(iter(_failures([*reader.feed(body), *reader.close()])), None))
    text = body.decode(errors="replace")
    if isinstance(loaded(text), dict):
        _take_odd(said, text, last_read, status)
    said.error_frames.clear()  # (they are frames of a stream only)
    return said


def _failures(events: Sequence[Event]) -> list[Failure]:
    return [_told(event.failure, _printable) for event in events if event.failure is not None]


def _printable(text: str) -> str:
    """A text as a record can hold it: halves of surrogate pairs are replaced."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _told(failure: Failure, clean: Clean) -> Failure:
    fields = {clean(name): clean(one) if isinstance(one, str) else one for name, one in failure.fields.items()}
    message, error_type = clean(failure.message), clean(failure.error_type)
    return replace(failure, message=message, error_type=error_type, fields=fields)


def _cleaned(said: Said, clean: Clean) -> Said:
    return replace(
        said,
        pieces=[clean(piece) for piece in said.pieces],
        failure=said.failure and _told(said.failure, clean),
        error_frames=[_told(one, clean) for one in said.error_frames],
        reply_ids=[clean(one) for one in said.reply_ids],
    )
