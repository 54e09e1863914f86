"""Samples, arms and trials made by hand: a steady load, and what faults make of its streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from contextlab.analysis.bounds import parse_bounds
from contextlab.experiment import (
    Arm,
    Arrivals,
    Ending,
    Experiment,
    FaultEvidence,
    GeneratorHealth,
    Landed,
    Load,
    Mixed,
    Placed,
    Sample,
    Trial,
)
from contextlab.model import Failure, Judgement, Knowledge, Limits, Message, Outcome, Request, Usage

PIECES = ("One", " two", " three", " four", " five", " six", " seven", " eight", ".")
OTHER = ("Water", " boils", " at", " a", " hundred", " degrees", ",", " Celsius", ".")
REFERENCES = ((PIECES,), (OTHER,))
"""The undisturbed texts of the two requests of `LOAD`."""
MIX = tuple(
    Mixed(request=Request(name=name, messages=(Message(role="prompt", parts=(name,)),))) for name in ("count", "boil")
)
RATE_PER_S, DURATION_S = 20.0, 30.0
LOAD = Load(arrivals=Arrivals(rate_per_s=RATE_PER_S), duration_s=DURATION_S, mix=MIX, timeout_s=5.0)
FAULT = Placed(name="reset", start_s=10.0, length_s=10.0)
PROVEN = FaultEvidence(
    name="reset", engine="relay", tally={"applied": 12.0}, landed=Landed(proven=True, why="12 connections reset")
)
IDLE = FaultEvidence(name="reset", engine="relay", landed=Landed(proven=False, why="no request reached that point"))
NULL = FaultEvidence(name="loss", engine="packet link", landed=Landed(proven=None, why="nothing was asked of it"))
KNOWN = Knowledge(flavour="other", model="m", limits=Limits())
Change = Callable[[Sample], Sample]


# ── one stream ───────────────────────────────────────────────────────────────────────────────────


def whole(
    index: int = 0,
    due_s: float = 0.0,
    *,
    mixed: int = 0,
    pieces: Sequence[str] | None = None,
    ttft_s: float = 0.05,
    itl_s: float = 0.02,
    **fields: Any,
) -> Sample:
    """A stream that came whole: sent a little after it was due, an event each `itl_s`; `fields` change that."""
    texts = tuple(REFERENCES[mixed % 2][0] if pieces is None else pieces)
    content_s = tuple(round(due_s + ttft_s + itl_s * place, 9) for place in range(len(texts)))
    made = Sample(
        index=index,
        mixed=mixed,
        due_s=due_s,
        ending=Ending.WHOLE,
        sent_s=due_s + 0.0005,
        connected_s=due_s + 0.001,
        first_byte_s=due_s + ttft_s,
        content_s=content_s,
        pieces=texts,
        ended_s=(content_s[-1] if content_s else due_s + ttft_s) + 0.001,
        status=200,
        finish_reason="stop",
        usage=Usage(prompt_tokens=5, completion_tokens=len(texts)),
        reply_ids=(f"cmpl-{index}",),
        num_frames=len(texts) + 2,
        num_done=1,
    )
    return replace(made, **fields)


def with_text(sample: Sample, pieces: Iterable[str]) -> Sample:
    """The same stream with other events, in the same rhythm, and its end as it was."""
    texts = tuple(pieces)
    begin = sample.content_s[0] if sample.content_s else sample.due_s + 0.05
    return replace(
        sample,
        pieces=texts,
        content_s=tuple(round(begin + 0.02 * place, 9) for place in range(len(texts))),
        num_frames=len(texts) + 2,
    )


def broken_off(sample: Sample, events: int, ending: Ending = Ending.FIN, *, after_s: float = 0.001) -> Sample:
    """The stream as far as so many events, and then no more: `ended_s` is `after_s` later."""
    times = sample.content_s[:events]
    return replace(
        sample,
        ending=ending,
        content_s=times,
        pieces=sample.pieces[:events],
        ended_s=(times[-1] if times else sample.due_s + 0.05) + after_s,
        finish_reason=None,
        usage=None,
        num_done=0,
        num_frames=events,
    )


def reset(sample: Sample) -> Sample:
    """Torn down after its fourth event."""
    return broken_off(sample, 4, Ending.RESET)


def missing(sample: Sample) -> Sample:
    """An event in its middle is lost, and nothing shows it."""
    return with_text(sample, (*sample.pieces[:3], *sample.pieces[4:]))


def refused(sample: Sample) -> Sample:
    """Nobody listened."""
    return _nothing(sample, Ending.REFUSED, 0.001, Failure(where="connect", message="connection refused"))


def timed_out(sample: Sample, after_s: float = 5.0) -> Sample:
    """Nothing came until we gave up."""
    failure = Failure(where="timeout", message="no answer")
    return replace(_nothing(sample, Ending.TIMEOUT, after_s, failure), connected_s=sample.connected_s)


def unavailable(sample: Sample, status: int = 503) -> Sample:
    """An HTTP error."""
    failure = Failure(where="http", message="busy", status=status)
    return replace(
        _nothing(sample, Ending.WHOLE, 0.01, failure), status=status, first_byte_s=sample.due_s + 0.009, connected_s=0.0
    )


def unsent(sample: Sample) -> Sample:
    """Its turn never came."""
    return replace(_nothing(sample, Ending.UNSENT, 0.0, None), sent_s=None, ended_s=None)


def _nothing(sample: Sample, ending: Ending, after_s: float, failure: Failure | None) -> Sample:
    return Sample(
        index=sample.index,
        mixed=sample.mixed,
        due_s=sample.due_s,
        ending=ending,
        sent_s=sample.sent_s,
        ended_s=sample.due_s + after_s,
        failure=failure,
    )


def late(sample: Sample, by_s: float) -> Sample:
    """The same stream, all of it later."""
    return replace(
        sample,
        first_byte_s=None if sample.first_byte_s is None else sample.first_byte_s + by_s,
        content_s=tuple(at_s + by_s for at_s in sample.content_s),
        ended_s=None if sample.ended_s is None else sample.ended_s + by_s,
    )


# ── arms and trials ──────────────────────────────────────────────────────────────────────────────


@cache
def steady(
    rate_per_s: float = RATE_PER_S, duration_s: float = DURATION_S, *, seed: int = 1, jitter: float = 0.2
) -> tuple[Sample, ...]:
    """A load at a constant pace whose streams all come whole; times to the first token vary by that share."""
    rng = Random(seed)
    return tuple(
        whole(index, round(index / rate_per_s, 9), mixed=index % 2, ttft_s=0.05 * (1 + jitter * rng.uniform(-1, 1)))
        for index in range(int(rate_per_s * duration_s))
    )


def changed(
    samples: Iterable[Sample], start_s: float, end_s: float, change: Change, every: int = 1
) -> tuple[Sample, ...]:
    """The samples, of which every so many-th that is due in this stretch of time is changed."""
    found, number = [], 0
    for sample in samples:
        if start_s <= sample.due_s < end_s:
            found.append(change(sample) if number % every == 0 else sample)
            number += 1
        else:
            found.append(sample)
    return tuple(found)


def healthy(**fields: Any) -> GeneratorHealth:
    """A client with time to spare."""
    made = GeneratorHealth(
        worker=0,
        num_requests=600,
        cpu_s=1.5,
        wall_s=30.0,
        lateness_s=(0.0001, 0.0003, 0.002, 0.004),
        loop_lag_s=(0.0001, 0.0002, 0.001, 0.003),
    )
    return replace(made, **fields)


def arm(name: str, samples: Iterable[Sample], **fields: Any) -> Arm:
    """An arm of these samples, as long as the last of them, with a healthy client."""
    found = tuple(samples)
    length_s = max((sample.ended_s or sample.due_s for sample in found), default=0.0)
    return Arm(**{"name": name, "length_s": length_s, "samples": found, "generators": (healthy(),), **fields})


def experiment(*hypothesis: str, **fields: Any) -> Experiment:
    """An experiment with one fault in its middle third, and these bounds (or the usual ones)."""
    texts = hypothesis or ("errors < 1%", "integrity = 100%", "backlog < 50")
    made = Experiment(name="reset", load=LOAD, faults=(FAULT,), hypothesis=parse_bounds(texts))
    return replace(made, **fields)


def trial(fault: Iterable[Sample] | Arm | None = None, *, control: Arm | str | None = "steady", **fields: Any) -> Trial:
    """A trial of a proven fault: the samples of its arm (steady if None), and a steady control."""
    arms: dict[str, Any] = {"control": arm("control", steady()) if isinstance(control, str) else control}
    samples = steady(seed=2) if fault is None else fault
    arms["fault"] = samples if isinstance(samples, Arm) else with_arm(samples)
    made = {"experiment": experiment(), "knowledge": KNOWN, "references": REFERENCES, **arms}
    return Trial(**{**made, **fields})


def during(change: Change, every: int = 1, *, until_s: float = 20.0) -> tuple[Sample, ...]:
    """The samples of an arm in which every so many-th request since the fault of `experiment` began is changed."""
    return changed(steady(seed=2), 10.0, until_s, change, every)


def with_arm(samples: Iterable[Sample], **fields: Any) -> Arm:
    """An arm with the fault of `experiment`, proven."""
    return arm("fault", samples, **{"evidence": (PROVEN,), **fields})


def outcomes(found: Iterable[Judgement]) -> list[Outcome]:
    """What was judged, in its order."""
    return [one.outcome for one in found]
