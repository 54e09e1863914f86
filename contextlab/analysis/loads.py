"""The loads that chaos experiments use where nobody says otherwise: which requests, how many a second, for how long.

Pure: from what is known of the target and what the user asked for.
"""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from random import Random

from contextlab.analysis import quantities
from contextlab.analysis.prompts import fill, is_elastic, role_of, usual_api
from contextlab.experiment import Arrivals, Asked, Experiment, Load, Mixed, Pace, Placed
from contextlab.model import Knowledge, Message, Request, UsageError

PROMPTS = (
    "The capital of France is",
    "Water boils when it is heated because",
    "In the morning the farmer walked to",
    "One, two, three, four, five,",
)
"""Short, so that a small machine spends its time on streams and not on reading; different, so that one client's words
in another's reply are seen."""
UTILISATION = 0.6
"""Part of the target's own decoding speed that a load asks for by default: steady, with room for a fault to show."""
SLOWEST_PER_S, FASTEST_PER_S = 0.5, 50.0
TIMEOUT_FLOOR_S, TIMEOUT_RATIO = 10.0, 10.0
"""A request may take this long, and this many times longer than the target's own speed foretells."""
WARMUP_SHARE, WARMUP_MOST_S = 0.1, 2.0
ARRIVALS = "poisson, constant, burst[:FACTORx], ramp[:FACTORx], closed:N, replay:FILE"


def usual_mix(known: Knowledge, reply_tokens: int) -> tuple[Mixed, ...]:
    """A few short prompts, each greedy and of a reply of `reply_tokens`, in equal shares."""
    api = usual_api(known)
    return tuple(
        Mixed(
            request=Request(
                name=f"prompt-{number}",
                messages=(Message(role=role_of(api), parts=(text,)),),
                api=api,
                reply_tokens=reply_tokens,
                ignore_eos="ignores-eos" in known.powers,
            )
        )
        for number, text in enumerate(PROMPTS, 1)
    )


def usual_rate_per_s(known: Knowledge, reply_tokens: int) -> float:
    """Requests per second that take `UTILISATION` of the speed at which the target decodes a single stream."""
    speed = known.decode_tokens_per_s or reply_tokens * 2.0
    return round(min(FASTEST_PER_S, max(SLOWEST_PER_S, UTILISATION * speed / reply_tokens)), 1)


def usual_load(known: Knowledge, asked: Asked) -> Load:
    """The load that the user asked for, or the usual one where they did not say."""
    rate = asked.rate_per_s or usual_rate_per_s(known, asked.reply_tokens)
    arrivals = asked.arrivals or Arrivals(pace=Pace.POISSON)
    return Load(
        arrivals=replace(arrivals, rate_per_s=rate),
        duration_s=asked.duration_s,
        mix=asked.mix or usual_mix(known, asked.reply_tokens),
        timeout_s=asked.timeout_s or usual_timeout_s(known, asked.reply_tokens),
    )


def usual_timeout_s(known: Knowledge, reply_tokens: int) -> float:
    """Seconds after which a client gives up."""
    foretold_s = reply_tokens / (known.decode_tokens_per_s or 10.0) + 64 / (known.prefill_tokens_per_s or 100.0)
    return round(max(TIMEOUT_FLOOR_S, TIMEOUT_RATIO * foretold_s), 1)


def warmup_s(asked: Asked) -> float:
    """Seconds at the beginning of each arm that are sent and not judged."""
    return min(WARMUP_MOST_S, WARMUP_SHARE * asked.duration_s) if asked.warmup_s is None else asked.warmup_s


def middle_third(duration_s: float) -> tuple[float, float]:
    """(start, length) of a fault where nobody says when: the middle third, so that there is a before and an after."""
    return round(duration_s / 3, 3), round(duration_s / 3, 3)


def experiment(name: str, known: Knowledge, asked: Asked, *faults: Placed, **changes: object) -> Experiment:
    """An experiment with the usual load and the hypothesis asked for; `changes` are fields of Experiment."""
    from contextlab.analysis.bounds import DEFAULT_HYPOTHESIS

    usual = Experiment(
        name=name,
        load=usual_load(known, asked),
        faults=faults,
        hypothesis=DEFAULT_HYPOTHESIS if asked.hypothesis is None else asked.hypothesis,
        stop=asked.stop,
        warmup_s=warmup_s(asked),
        recovery_within_s=asked.recovery_within_s,
        control=asked.control,
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def rendered(request: Request, known: Knowledge) -> Request:
    """The request with its elastic parts filled to about `size_tokens`, by the slope of the filler."""
    if request.size_tokens is None or not is_elastic(request):
        return fill(request, 0)
    fixed_tokens = sum(len(message.text.split()) for message in request.messages) * known.tokens_per_word
    return fill(request, max(0, round((request.size_tokens - fixed_tokens) / known.tokens_per_word)))


def parse_arrivals(text: str, duration_s: float, trace_s: tuple[float, ...] = ()) -> Arrivals:
    """`poisson`, `constant`, `burst:10x`, `ramp:4x`, `closed:8` or `replay:FILE` (whose times come in `trace_s`).

    A burst takes the middle sixth of the run. Raises UsageError naming the value and the rule.
    """
    word, _, detail = text.strip().partition(":")
    known = [pace.value for pace in Pace]
    if word not in known:
        close = get_close_matches(word, known, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UsageError(f"arrivals={text!r}: there is no such pace", f"{hint}choose from: {ARRIVALS}")
    pace = Pace(word)
    if pace is Pace.CLOSED:
        if not (detail.isascii() and detail.isdigit() and 1 <= int(detail) <= 10_000):
            raise UsageError(f"arrivals={text!r}: a closed loop needs its number of clients", "for example closed:8")
        return Arrivals(pace=pace, concurrency=int(detail))
    if pace is Pace.REPLAY:
        if not trace_s:
            raise UsageError(f"arrivals={text!r}: a replay needs a file of times", "for example replay:times.txt")
        return Arrivals(pace=pace, trace_s=trace_s)
    factor = 10.0 if pace is Pace.BURST else 4.0
    if detail and pace in (Pace.BURST, Pace.RAMP):
        try:
            factor = float(detail.removesuffix("x"))
        except ValueError:
            factor = float("nan")
        if not 0 < factor <= 1000:
            raise UsageError(f"arrivals={text!r}: must be a factor above 0 and up to 1000", f"for example {word}:10x")
    elif detail:
        raise UsageError(f"arrivals={text!r}: {word} takes nothing after the colon", f"choose from: {ARRIVALS}")
    if pace is Pace.BURST:
        burst_s = round(duration_s / 6, 3)
        return Arrivals(pace=pace, factor=factor, burst_at_s=round(duration_s / 2 - burst_s / 2, 3), burst_s=burst_s)
    return Arrivals(pace=pace, factor=factor if pace is Pace.RAMP else 1.0)


def words_of(load: Load) -> str:
    """`Poisson 8/s for 30 s`: a load in words."""
    arrivals, for_s = load.arrivals, quantities.shown_seconds(load.duration_s)
    rate = f"{arrivals.rate_per_s:g}/s"
    match arrivals.pace:
        case Pace.CLOSED:
            return f"closed loop of {arrivals.concurrency} for {for_s}"
        case Pace.BURST:
            return f"{rate}, {arrivals.factor:g}x for {quantities.shown_seconds(arrivals.burst_s)}, over {for_s}"
        case Pace.RAMP:
            return f"ramp from {rate} to {arrivals.factor:g}x over {for_s}"
        case Pace.REPLAY:
            return f"replay of {len(arrivals.trace_s)} times over {for_s}"
    return f"{arrivals.pace.value} {rate} for {for_s}"


def rng_of(seed: int, *names: object) -> Random:
    """The generator of one decision, from the run's seed and what the decision is about."""
    return Random(":".join(map(str, (seed, *names))))
