"""How prefill memory grows with length, eager against SDPA; the length at which a limit kills, foretold and then shown.

    peaks at several lengths ─▶ exponent and interval ─▶ predicted length ─▶ real kills around it ─▶ how far off

Eager attention holds every score at once, so its memory grows with the square of the length; SDPA works in tiles.
The model is a small random Llama of the library's: numbers of heads and layers scale the memory, not the exponent.

A kill is what the search is for, so its probes allow it: surviving, killed by the limit, and refused by the allocator
(where the limit is on the address space) are all readings. They pass. A death without evidence of memory is UNKNOWN,
so is an exponent that the points do not pin down, and so is a prediction that is off by more than a quarter.
"""

from collections.abc import Iterable
from random import Random

from contextlab.analysis.growth import PowerLaw, fit_power_law
from contextlab.analysis.provoked import task_failed
from contextlab.analysis.signatures import recognise
from contextlab.model import Evidence, Judgement, Knowledge, Layer, Observation, Outcome, Plan, Probe, Scenario, Skip

LENGTHS_TOKENS = {"eager": (512, 724, 1024, 1448, 2048, 2896), "sdpa": (512, 1024, 2048, 4096, 8192)}
CURVE_LIMIT_BYTES = 4 << 30
ROOM_BYTES = 512 << 20
"""What the limit leaves above the baseline."""
MAX_TOKENS = 65536
SEARCH_RATIO, RESOLUTION_RATIO = 0.25, 0.07
"""The search reaches so far around the prediction, and stops when the kill is known as well as this."""
MAX_INTERVAL = 0.5
READINGS = frozenset({Outcome.OK, Outcome.CRASHED, Outcome.REJECTED})
MIB = 1 << 20


def plan(known: Knowledge, rng: Random) -> Plan:
    """Two curves; a bisection for the length that eager attention does not survive; the same length with SDPA."""
    seen = yield _curve("eager")
    law = _law(seen.measured) if seen else None
    baseline = int(seen.measured.get("baseline_bytes") or 0) if seen else 0
    yield _curve("sdpa")
    predicted = round(min(law.reaches(ROOM_BYTES), 10.0 * MAX_TOKENS)) if law and law.exponent > 0.5 else 0
    if not 0 < predicted <= MAX_TOKENS or not baseline:
        reason = "no length could be predicted from the curve" if not predicted else f"predicted: {predicted} tokens"
        yield Skip(scenario="attention-memory", probe="kill", reason=f"not to be shown here: {reason}")
        return
    low, high = (1 - SEARCH_RATIO) * predicted, (1 + SEARCH_RATIO) * predicted
    found = {"predicted_tokens": predicted, "survived_tokens": 0, "killed_tokens": 0}
    while high - low > RESOLUTION_RATIO * predicted:
        length = round((low + high) / 2)
        seen = yield _limited("eager", length, baseline, {"predicted_tokens": predicted}, READINGS)
        if seen is not None and _out_of_memory(seen):
            high = found["killed_tokens"] = length
        elif seen is not None and seen.measured.get("survived"):
            low = found["survived_tokens"] = length
        else:
            break
    yield _limited("sdpa", found["killed_tokens"] or predicted, baseline, found, frozenset({Outcome.OK}))


def _curve(attention: str) -> Probe:
    lengths = " ".join(str(length) for length in LENGTHS_TOKENS[attention])
    return Probe(
        name=f"curve-{attention}",
        task="prefill-memory",
        allowed=frozenset({Outcome.OK}),
        neighbour=False,
        memory_limit_bytes=CURVE_LIMIT_BYTES,
        about={"role": "curve", "attention": attention, "lengths": lengths},
    )


def _limited(
    attention: str, length: int, baseline_bytes: int, found: dict[str, int], allowed: frozenset[Outcome]
) -> Probe:
    return Probe(
        name=f"limit-{attention}-{length}",
        task="prefill-memory",
        allowed=allowed,
        neighbour=False,
        memory_limit_bytes=baseline_bytes + ROOM_BYTES,
        about={
            "role": "limit" if attention == "eager" else "control",
            "attention": attention,
            "lengths": str(length),
            "limit_bytes": baseline_bytes + ROOM_BYTES,
            "room_bytes": ROOM_BYTES,
            **found,
        },
    )


def _points(measured: Evidence) -> list[tuple[int, int]]:
    """Length in tokens and peak memory above the baseline in bytes, shortest first."""
    sizes = {name.removeprefix("growth_bytes_"): value for name, value in measured.items()}
    return sorted((int(name), int(value or 0)) for name, value in sizes.items() if name.isdigit())


def _law(measured: Evidence) -> PowerLaw | None:
    try:
        return fit_power_law(_points(measured))
    except ValueError:
        return None


def _out_of_memory(seen: Observation) -> bool:
    """Killed by the limit, with evidence; or refused by an allocator, in its words."""
    if seen.client.signal or seen.client.exit_code:
        return bool(seen.client.out_of_memory)
    found = recognise(f"{seen.measured.get('error_type', '')}: {seen.measured.get('error', '')}")
    return found is not None and found.kind == "out-of-memory"


def judge(probe: Probe, seen: Observation) -> Iterable[Judgement]:
    """A curve by its exponent, a length under the limit by how it ended, and last the search by its prediction."""
    if probe.about["role"] == "curve":
        yield _judge_curve(probe, seen)
    elif (judged := _judge_limit(probe, seen)) is not None:
        yield judged
    if probe.about["role"] == "control":
        yield _judge_search(probe)


def _judge_curve(probe: Probe, seen: Observation) -> Judgement:
    law, points = _law(seen.measured), _points(seen.measured)
    if "error_type" in seen.measured:
        return task_failed(seen.measured, Layer.ATTENTION)
    if law is None:
        why = f"no power law goes through what was measured at {len(points)} lengths"
        return Judgement(outcome=Outcome.UNKNOWN, why=why, layer=Layer.ATTENTION, evidence=seen.measured)
    numbers: Evidence = {
        **seen.measured,
        "exponent": round(law.exponent, 3),
        "exponent_low": round(law.low, 3),
        "exponent_high": round(law.high, 3),
        "scatter_ratio": round(law.scatter_ratio, 4),
    }
    interval = f"{law.exponent:.2f} (95 %: {law.low:.2f} to {law.high:.2f})"
    if law.high - law.low > MAX_INTERVAL:
        why = f"the points do not pin the exponent down: {interval}"
        return Judgement(outcome=Outcome.UNKNOWN, why=why, layer=Layer.ATTENTION, evidence=numbers)
    length, size = points[-1]
    why = (
        f"{probe.about['attention']} prefill memory grows with the length to the power {interval}; "
        f"{size / MIB:.0f} MiB at {length} tokens"
    )
    return Judgement(outcome=Outcome.OK, why=why, layer=Layer.ATTENTION, evidence=numbers)


def _judge_limit(probe: Probe, seen: Observation) -> Judgement | None:
    """How a length ended under the limit; None for a kill, of which the common judgements have told."""
    length = int(probe.about["lengths"])
    room = f"{int(probe.about['room_bytes']) / MIB:.0f} MiB above the baseline"
    numbers = {**seen.measured, "limit_bytes": probe.about["limit_bytes"], "length_tokens": length}
    if seen.client.signal or seen.client.exit_code:
        if _out_of_memory(seen):
            return None
        why = f"died at {length} tokens, with no evidence that it was for want of memory"
        return Judgement(outcome=Outcome.UNKNOWN, why=why, layer=Layer.ATTENTION, evidence=numbers)
    if _out_of_memory(seen):
        why = f"{length} tokens: the allocator refused, the limit is {room}: {str(seen.measured.get('error'))[:160]}"
        return Judgement(outcome=Outcome.REJECTED, why=why, layer=Layer.ATTENTION, evidence=numbers)
    if not seen.measured.get("survived"):
        return task_failed(seen.measured, Layer.ATTENTION)
    took = int(seen.measured.get(f"growth_bytes_{length}") or 0) / MIB
    why = f"{probe.about['attention']}: {length} tokens took {took:.0f} MiB of the {room}"
    return Judgement(outcome=Outcome.OK, why=why, layer=Layer.ATTENTION, evidence=numbers)


def _judge_search(probe: Probe) -> Judgement:
    """The search for eager attention's kill: how far the prediction was off, at most."""
    predicted, survived, killed = (
        int(probe.about[name]) for name in ("predicted_tokens", "survived_tokens", "killed_tokens")
    )
    ends = {"predicted_tokens": predicted, "survived_tokens": survived or None, "killed_tokens": killed or None}
    if not survived or not killed:
        why = (
            f"eager was to be killed at {predicted} tokens; within {SEARCH_RATIO:.0%} of that "
            f"{'every length was killed' if killed else 'no length was killed'}"
        )
        return Judgement(outcome=Outcome.UNKNOWN, why=why, layer=Layer.ATTENTION, evidence=ends)
    off = max(abs(survived - predicted), abs(killed - predicted)) / predicted
    why = (
        f"eager: predicted to die at {predicted} tokens, lived at {survived} and died at {killed}: "
        f"off by at most {off:.1%}"
    )
    numbers = {**ends, "off_ratio": round(off, 4), "limit_bytes": probe.about["limit_bytes"]}
    return Judgement(outcome=Outcome.OK, why=why, layer=Layer.ATTENTION, evidence=numbers)


SCENARIO = Scenario(
    name="attention-memory",
    summary="prefill memory against length, eager and SDPA: the exponent, the predicted kill, and the real one",
    needs=("memory-tasks", "host-memory"),
    plan=plan,
    judge=judge,
    order=200,
)
