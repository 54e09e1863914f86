"""The load of a gate: the same seeded requests for both arms, in every block; what its answers come to; pure.

    warm-up, discarded │ requests that count │ more of the same, until the last that counts has ended
    ◀─ num_warmup ────▶│◀─ num_requests ────▶│   (so that the last ones have company like the first)

The replicate is a launch, so a launch needs no more requests than make its medians steady.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from random import Random
from statistics import median_low, quantiles

from contextlab.analysis.gate.nouns import Exact
from contextlab.analysis.prompts import WORDS, filler, role_of, usual_api
from contextlab.analysis.replies import answered, service_e2e_s, service_ttft_s
from contextlab.experiment import Sample
from contextlab.model import Knowledge, Message, Request, UsageError

SPARE = 64
"""Requests past the last that counts; they are taken in turn."""
SALT_WORDS = 6
PROBE_FACTS = ("outcome", "status", "prompt_tokens", "reply_tokens", "finish_reason", "side")
EXACT_NAMES = (
    "window_tokens",
    *(f"{probe}.{fact}" for probe in ("fits", "over") for fact in PROBE_FACTS),
    "load.prompt_tokens",
    "load.reply_tokens",
)
"""Everything that is compared for equality."""
_LIMITS = {
    "num_requests": (5, 100_000),
    "num_warmup": (0, 10_000),
    "concurrency": (1, 1024),
    "prompt_tokens": (8, 1 << 20),
    "reply_tokens": (2, 1 << 20),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLoad:
    """A closed loop of `concurrency` clients; prompts of about `prompt_tokens` words, replies of `reply_tokens`.

    `timeout_s` bounds each reply.
    """

    num_requests: int = 24
    num_warmup: int = 4
    concurrency: int = 1
    prompt_tokens: int = 64
    reply_tokens: int = 24
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        for name, (low, high) in _LIMITS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                said = name.removeprefix("num_")
                raise UsageError(f"{said}={value}: must be from {low} to {high}", f"leave {said} out for the usual one")


def texts(load: GateLoad, seed: int, salt: str = "") -> list[str]:
    """The prompts, warm-up first. All begin differently, so that no prefix cache helps; equal seeds, equal prompts.

    `salt`: for a target that is not started anew: other words at each head, as many, so that no block finds the cache
    of the one before.
    """
    found = []
    for number in range(load.num_warmup + load.num_requests + SPARE):
        rng = Random(f"gate:{seed}:{number}")
        head = Random(f"gate:{seed}:{number}:{salt}")
        words = "".join(f" {head.choice(WORDS)}" for _ in range(min(SALT_WORDS, load.prompt_tokens)))
        found.append(f"{words}{filler(max(1, load.prompt_tokens - SALT_WORDS), rng)}".strip())
    return found


def requests(load: GateLoad, known: Knowledge, seed: int, salt: str = "") -> list[Request]:
    """The same as requests on the target's usual endpoint."""
    api = usual_api(known)
    return [
        Request(
            name=f"gate-{number}",
            messages=(Message(role=role_of(api), parts=(text,)),),
            api=api,
            reply_tokens=load.reply_tokens,
            ignore_eos="ignores-eos" in known.powers,
        )
        for number, text in enumerate(texts(load, seed, salt))
    ]


def digest(load: GateLoad, seed: int) -> str:
    """What tells one list of requests from another."""
    return sha256("\n".join(texts(load, seed)).encode()).hexdigest()[:16]


def done(load: GateLoad, samples: Sequence[Sample]) -> bool:
    """Whether every request that counts has ended."""
    return len(counted(load, samples)) >= load.num_requests


def counted(load: GateLoad, samples: Sequence[Sample]) -> list[Sample]:
    """The requests that count: without warm-up and company, in the order in which they were sent."""
    first, last = load.num_warmup, load.num_warmup + load.num_requests
    return sorted((one for one in samples if first <= one.index < last), key=lambda one: one.index)


def metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """The metrics of requests that count, of those that were answered: seconds, and tokens per second of the whole.

    Quantiles are of type 7 (linear between ranks). Tokens per second: all tokens over the time from the first request
    to the last end, failures included in the time.
    """
    good = [one for one in samples if answered(one)]
    if len(good) < 2:
        return {}
    times = {
        "ttft": [service_ttft_s(one) for one in good if one.content_s],
        "itl": [later - earlier for one in good for earlier, later in pairwise(one.content_s)],
        "e2e": [service_e2e_s(one) for one in good],
    }
    found: dict[str, float] = {}
    for name, values in times.items():
        finite = [value for value in values if math.isfinite(value)]
        if len(finite) > 1:
            cuts = quantiles(finite, n=100, method="inclusive")
            found |= {f"{name}_p{q}_s": cuts[q - 1] for q in (50, 90, 99)}
    starts = [one.sent_s if one.sent_s is not None else one.due_s for one in samples]
    ends = [one.ended_s for one in samples if one.ended_s is not None]
    length_s = max(ends) - min(starts)
    if length_s > 0:
        found["tokens_per_s"] = sum(_reply_tokens(one) for one in good) / length_s
    return {name: round(value, 9) for name, value in found.items()}


def exact(samples: Sequence[Sample]) -> dict[str, Exact]:
    """What an answer usually counts: the median, which one failed request does not move."""
    good = [one for one in samples if answered(one)]
    prompts = [one.usage.prompt_tokens for one in good if one.usage is not None and one.usage.prompt_tokens is not None]
    found: dict[str, Exact] = {"load.prompt_tokens": median_low(prompts)} if prompts else {}
    return {**found, "load.reply_tokens": median_low([_reply_tokens(one) for one in good])} if good else found


def num_truncated(samples: Sequence[Sample]) -> int:
    """How many lost part of their prompt without an error, by the target's own word or count."""
    return sum(_truncated(one) for one in samples)


def _truncated(sample: Sample) -> bool:
    usage = sample.usage
    if not answered(sample) or usage is None:
        return False
    short = usage.evaluated_tokens is not None and usage.prompt_tokens is not None
    return bool(usage.truncated) or (short and (usage.evaluated_tokens or 0) < (usage.prompt_tokens or 0) - 1)


def _reply_tokens(sample: Sample) -> int:
    told = sample.usage.completion_tokens if sample.usage else None
    return len(sample.content_s) if told is None else told
