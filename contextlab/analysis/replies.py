"""Reads simple facts off one Sample: whether it was answered, why not, and how long each part took; pure.

A time that never came is `math.inf`: a request that failed stays in every distribution, behind all that came.
What did come before a failure keeps its time: the first token of a stream that is cut later was really seen then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise

from contextlab.experiment import Ending, Sample

_NEVER_CONNECTED = frozenset({Ending.REFUSED, Ending.UNREACHED, Ending.UNSENT})
_CAUSES: Mapping[Ending, str] = {
    Ending.RESET: "reset",
    Ending.FIN: "fin early",
    Ending.TIMEOUT: "timeout",
    Ending.GARBLED: "garbled",
}


def succeeded(sample: Sample) -> bool:
    """Whether an HTTP success began."""
    return sample.status is not None and 200 <= sample.status < 300


def answered(sample: Sample) -> bool:
    """Whether the answer came to a proper end: success, a finish_reason, of a stream `[DONE]`, and no error in it.

    What the transport did after that end (a late or a hard close) took nothing from it.
    """
    if not succeeded(sample) or sample.error_frames or sample.finish_reason is None:
        return False
    return sample.num_done > 0 if sample.num_frames else sample.ending is Ending.WHOLE


def cause(sample: Sample) -> str:
    """Why it was not answered, by one name; "" where it was. HTTP failures are named by their status."""
    if answered(sample):
        return ""
    if sample.ending is Ending.UNSENT:
        return "unsent" if sample.sent_s is None else "given up"
    if sample.ending in _NEVER_CONNECTED:
        return sample.ending.value
    if sample.status is not None and not succeeded(sample):
        return f"http {sample.status}"
    if sample.error_frames:
        return "error frame"
    if sample.ending in _CAUSES:
        return _CAUSES[sample.ending]
    if sample.failure is not None and not sample.num_frames:
        return "not an answer"
    return "no finish_reason" if sample.finish_reason is None else "no [DONE]"


# ── times ────────────────────────────────────────────────────────────────────────────────────────


def ttft_s(sample: Sample) -> float:
    """Response time of the first content: from when it was due."""
    return sample.content_s[0] - sample.due_s if sample.content_s else math.inf


def service_ttft_s(sample: Sample) -> float:
    """Service time of the first content: from when it was sent."""
    return _since_sent(sample, sample.content_s[0]) if sample.content_s else math.inf


def e2e_s(sample: Sample) -> float:
    """Response time of the whole answer: from when it was due."""
    return sample.ended_s - sample.due_s if answered(sample) and sample.ended_s is not None else math.inf


def service_e2e_s(sample: Sample) -> float:
    """Service time of the whole answer: from when it was sent."""
    return _since_sent(sample, sample.ended_s) if answered(sample) else math.inf


def queue_s(sample: Sample) -> float:
    """How long it waited in the client: due to sent."""
    return math.inf if sample.sent_s is None else sample.sent_s - sample.due_s


def connect_s(sample: Sample) -> float | None:
    """How long connecting took; None where a connection was used again, or it is not known."""
    if sample.connected_s is None or sample.sent_s is None:
        return math.inf if sample.ending in _NEVER_CONNECTED else None
    return max(0.0, sample.connected_s - sample.sent_s)


def _since_sent(sample: Sample, at_s: float | None) -> float:
    return math.inf if at_s is None or sample.sent_s is None else at_s - sample.sent_s


# ── gaps ─────────────────────────────────────────────────────────────────────────────────────────


def itl_s(sample: Sample, expected_events: int = 0) -> list[float]:
    """Times between content events. What a failed request still owed is endless: one gap for each event that is
    missing of `expected_events`, and one at least, so that no failure thins out the gaps of the others."""
    times = sample.content_s
    gaps = [later - earlier for earlier, later in pairwise(times)]
    return gaps + _owed(sample, len(gaps), expected_events - 1)


def gaps_s(sample: Sample, expected_events: int = 0) -> list[float]:
    """Times without content: from when it was sent to the first, then between them; owed ones as in `itl_s`."""
    times = sample.content_s
    first = [] if not times or sample.sent_s is None else [times[0] - sample.sent_s]
    gaps = first + [later - earlier for earlier, later in pairwise(times)]
    return gaps + _owed(sample, len(gaps), expected_events)


def _owed(sample: Sample, seen: int, expected: int) -> list[float]:
    return [] if answered(sample) else [math.inf] * max(1, expected - seen)


Values = Callable[[Sample, int], list[float]]


def _one(metric: Callable[[Sample], float | None]) -> Values:
    def values(sample: Sample, expected_events: int) -> list[float]:
        value = metric(sample)
        return [] if value is None else [value]

    return values


TIMES: Mapping[str, Values] = {
    "ttft": _one(ttft_s),
    "itl": itl_s,
    "gap": gaps_s,
    "e2e": _one(e2e_s),
    "queue": _one(queue_s),
    "connect": _one(connect_s),
    "service_ttft": _one(service_ttft_s),
    "service_e2e": _one(service_e2e_s),
}
"""The metrics that are times: (sample, content events expected of its request) → its values, in seconds."""
