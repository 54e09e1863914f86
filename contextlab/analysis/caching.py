"""Experiments on a cache in front of the target: which load makes its failure matter, and what is judged of it. Pure.

What was measured is held against the model of such a cache: `rehearsal` for the requests that were due, `coupled` for
what was to be expected of the load.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from contextlab.analysis import quantiles
from contextlab.analysis.coupled import (
    GONE,
    TIER,
    Compared,
    Foretold,
    Situation,
    Thresholds,
    compared,
    foretold,
    measured,
    value_at,
)
from contextlab.analysis.rehearsal import Stage, abreast_of, played
from contextlab.deeds import Tier
from contextlab.experiment import HELD, Arm, Experiment, Phase, Placed, Trial
from contextlab.model import Evidence, Judgement, Knowledge, Layer, Outcome

ENTRIES = 4
"""Of the local tier: a few of the most popular answers; the others are Redis's."""
OUTAGE_LOAD = 0.9
"""Part of the target that the misses of an outage ask for: near its limit, where misses meet each other."""
BEFORE, DURING = Phase.BEFORE, Phase.DURING
COLD = HELD | {Outcome.NOT_RECOVERED}
"""What such an experiment may end in: a Redis that comes back empty fills at the load's own pace, as at first."""
MOST_ABREAST = 2.0
UNTOLD_SLOTS = 16
"""A target that does not say how many answers it gives at a time is taken for one of so many, and fitted."""
FEWEST_FOR_P90 = 10
FEW_ANSWERS = 3
"""With fewer answers of the target its queue is not fitted."""


def cache(*, guards: bool = True) -> Tier:
    """The tier of these experiments: its time to live is longer than any arm."""
    return Tier(local_entries=ENTRIES, ttl_s=600.0, guards=guards)


def outage_rate_per_s(weights: tuple[float, ...], answer_s: float, abreast: float, load: float = OUTAGE_LOAD) -> float:
    """Requests per second of which those that the local tier does not hold take this part of the target."""
    one = Situation(
        weights=weights,
        rate_per_s=1.0,
        tier=cache(),
        answer_s=1e-6,  # no queue: the share of misses of a fast target does not depend on the rate
        abreast=1.0,
        start_s=0.0,
        length_s=1.0,
        redis_latency_s=GONE,
    )
    return round(load * abreast / (answer_s * foretold(one).figures.origin), 2)


def abreast(known: Knowledge) -> float:
    """How many answers to reckon with at a time before any was seen: slots that share two processors are not worth more
    than two."""
    return min(float(known.limits.num_slots or 1), MOST_ABREAST)


def judged(
    experiment: Experiment, trial: Trial, answer_s: float, thresholds: Thresholds | None = None
) -> Iterator[Judgement]:
    """Hit rates, amplification and breaker of the arm with the fault against the model: before the fault, and from its
    beginning to its end. `answer_s`: what one answer of the target takes alone, where none was quicker.

    How fast the target is, is no matter of the cache: its quickest answer says how long one takes alone, and how many
    it does at a time is fitted to how long they took on average. What the cache makes of that is foretold.
    """
    arm, tier = trial.fault, experiment.tier
    if arm is None or tier is None:
        return
    start_s, length_s = _window(experiment)
    before_s = experiment.warmup_s, start_s - experiment.warmup_s
    schedule = due_of(arm)
    stage = calibrated(staged(experiment, trial.knowledge, tier, answer_s), arm, schedule, start_s + length_s)
    play = played(stage, schedule)
    phases: dict[str, list[Compared]] = {}
    for name, window in ((BEFORE, before_s), (DURING, (start_s, length_s))):
        seen, model = measured(arm, *window), play.figures(*window)
        if seen is None or model is None:
            why = f"the cache tier was not asked, or not read, {name} the fault"
            yield Judgement(outcome=Outcome.UNKNOWN, why=why, layer=Layer.GATEWAY)
            return
        parts = compared(model, seen, tier, window[1])
        phases[name] = [part for part in parts if name == DURING or not part.name.startswith("breaker")]
    expected = foretold(situation(experiment, tier, stage), thresholds or Thresholds())
    evidence = evidence_of(stage, expected, phases)
    wrong = [f"{name}: {part.words}" for name, parts in phases.items() for part in parts if not part.agrees]
    guards = "with its guards" if tier.guards else "without guards"
    if wrong:
        why = f"{guards} the cache does not behave as foretold: {'; '.join(wrong)}"
        yield Judgement(outcome=Outcome.UNKNOWN, why=why, layer=Layer.GATEWAY, evidence=evidence)
    else:
        why = f"{guards} the cache behaves as foretold: {'; '.join(part.words for part in phases[DURING])}"
        yield Judgement(outcome=Outcome.OK, why=why, layer=Layer.GATEWAY, evidence=evidence)


def calibrated(stage: Stage, arm: Arm, schedule: Sequence[tuple[float, int]], until_s: float) -> Stage:
    """The same with the target as fast as it was in an arm until then."""
    quickest_s = min(answer_times_s(arm, until_s), default=stage.answer_s)
    stage = replace(stage, answer_s=min(stage.answer_s, quickest_s))
    took_s = mean_answer_s(arm, until_s)
    return stage if took_s is None else replace(stage, abreast=abreast_of(stage, schedule, until_s, took_s))


def expected_of(experiment: Experiment, trial: Trial, answer_s: float, thresholds: Thresholds) -> Foretold | None:
    """What is to be expected of an experiment, with the target as fast as it was in the control; None without one."""
    control, tier = trial.control, experiment.tier
    if control is None or tier is None:
        return None
    stage = replace(staged(experiment, trial.knowledge, tier, answer_s), outages=())
    stage = calibrated(stage, control, due_of(control), control.length_s)
    return foretold(situation(experiment, tier, stage), thresholds)


def due_of(arm: Arm) -> list[tuple[float, int]]:
    """(due time, place in the mix) of what was sent in an arm."""
    return [(one.due_s, one.mixed) for one in arm.samples if one.sent_s is not None]


def staged(experiment: Experiment, known: Knowledge, tier: Tier, answer_s: float) -> Stage:
    """What the requests of an experiment meet."""
    slots = known.limits.num_slots or UNTOLD_SLOTS
    slow_s = max((_delay_s(one) for one in experiment.faults), default=0.0)
    outages = tuple(sorted(window for placed in experiment.faults for window in _outages(placed, tier)))
    return Stage(
        tier=tier,
        answer_s=answer_s,
        num_slots=slots,
        abreast=float(slots),
        outages=outages,
        forgets=not slow_s,
        wait_s=min(slow_s, tier.redis_timeout_s),
        patience_s=experiment.load.timeout_s or math.inf,
    )


def situation(experiment: Experiment, tier: Tier, stage: Stage) -> Situation:
    """The same, for what is to be expected on average."""
    start_s, length_s = _window(experiment)
    is_gone = any(placed.name in ("redis-refused", "redis-restarted") for placed in experiment.faults)
    return Situation(
        weights=tuple(mixed.weight for mixed in experiment.load.mix),
        rate_per_s=experiment.load.arrivals.rate_per_s,
        tier=tier,
        answer_s=stage.answer_s,
        abreast=stage.abreast,
        start_s=start_s,
        length_s=length_s,
        redis_latency_s=GONE if is_gone else max((_delay_s(one) for one in experiment.faults), default=0.0),
    )


def answer_times_s(arm: Arm, until_s: float) -> Iterator[float]:
    """Seconds that the target's answers took, each the mean of those between two readings of the tier."""
    readings = [one for one in arm.readings if one.source == TIER and one.at_s <= until_s]
    for earlier, later in pairwise(readings):
        answers, spent_s = (later.values[name] - earlier.values[name] for name in ("origin_answers", "origin_s"))
        if answers > 0:
            yield spent_s / answers


def mean_answer_s(arm: Arm, until_s: float) -> float | None:
    """The mean of all until a moment; None where there were too few."""
    readings = [one for one in arm.readings if one.source == TIER]
    answers, spent_s = (value_at(readings, name, until_s) for name in ("origin_answers", "origin_s"))
    return spent_s / answers if answers >= FEW_ANSWERS else None


def evidence_of(stage: Stage, expected: Foretold, phases: Mapping[str, Sequence[Compared]]) -> Evidence:
    """The numbers of both sides, by name."""
    found: dict[str, float | str | bool] = {
        "guards": stage.tier.guards,
        "answer_s": round(stage.answer_s, 3),
        "answers_abreast": round(stage.abreast, 2),
    }
    for phase, parts in phases.items():
        for part in parts:
            found[f"{phase}_{part.name}"] = round(part.measured, 4)
            found[f"{phase}_{part.name}_foretold"] = round(part.foretold, 4)
            found[f"{phase}_{part.name}_tolerance"] = part.tolerance
    return found | {
        "expected_miss_s": round(expected.miss_s, 3),
        "expected_misses_at_once": round(expected.misses, 2),
        "expected_utilisation": round(expected.utilisation, 3),
        "expected_to_degrade": expected.degrades,
        "thresholds_crossed": "; ".join(expected.crossed),
    }


def _window(experiment: Experiment) -> tuple[float, float]:
    """(start, length) of all that is done in an experiment."""
    start_s = min(one.start_s for one in experiment.faults)
    return start_s, max(one.end_s for one in experiment.faults) - start_s


def _delay_s(placed: Placed) -> float:
    return float(placed.options.get("delay_s") or 0.0) if placed.name == "redis-slow" else 0.0


def _outages(placed: Placed, tier: Tier) -> Iterator[tuple[float, float]]:
    """(start, end) of each time in which a fault keeps Redis from serving."""
    options = placed.options
    if placed.name == "redis-refused" or _delay_s(placed) > tier.redis_timeout_s:
        yield placed.start_s, placed.end_s
    elif placed.name == "redis-restarted":
        down_s, up_s = float(options.get("down_s") or 1.0), float(options.get("up_s") or 0.0)
        start_s = placed.start_s
        while start_s < placed.end_s:
            yield start_s, min(start_s + down_s, placed.end_s)
            start_s = start_s + down_s + up_s if up_s else math.inf


def waits_longer(control: Arm, fault: Arm, placed: Placed) -> float | None:
    """By how many seconds the p90 of TTFT, from when a request was due, is longer in the window of a fault than in the
    same window without it; negative where it is shorter. None where either has too few requests for a p90."""
    waits = [_p90_ttft_s(arm, placed) for arm in (control, fault)]
    return None if waits[0] is None or waits[1] is None else waits[1] - waits[0]


def _p90_ttft_s(arm: Arm, placed: Placed) -> float | None:
    """One that got nothing waited for ever; at an infinite p90 for as long as the window."""
    due = [one for one in arm.samples if placed.start_s <= one.due_s < placed.end_s]
    times_s = sorted(one.content_s[0] - one.due_s if one.content_s else math.inf for one in due)
    if len(times_s) < FEWEST_FOR_P90:
        return None
    return min(quantiles.value_at(times_s, 0.9), placed.length_s)
