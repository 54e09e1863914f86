"""Past the positions that a model was made for: an error, or an answer, and what that is worth.

    a table of positions ─▶ the library's own exception, at an exact length; then a table that was made longer by hand
    RoPE                 ─▶ no error: recall of codes and likelihood of the same words, inside and past, with intervals
    ALiBi                ─▶ the control: its positions end nowhere

What RoPE gives past its range is never OK here: worse beyond the intervals is DEGRADED, anything else is UNKNOWN.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from random import Random

from contextlab.analysis.inside import error_of, memory_limit_bytes, positions_tokens
from contextlab.analysis.intervals import mean_interval, share_interval
from contextlab.model import Evidence, Judgement, Knowledge, Layer, Observation, Outcome, Plan, Probe, Scenario

PAST_TOKENS = 1024
"""How far past the range a long model is read; a short one is read to twice its range."""
TIMEOUT_FLOOR_S, TIMEOUT_RATIO, ORDINARY_TOKENS_PER_S = 60.0, 6.0, 100.0
SKILL_NATS = 1.0
"""A model that foretells words no better than this below chance foretells nothing."""
SKILL_SHARE = 0.1
WITHOUT_RANGE = ("ALiBi", "none")


def plan(known: Knowledge, rng: Random) -> Plan:
    """One text inside and one past the range; where that was an error, the same with a longer table."""
    inside, seed = positions_tokens(known), rng.randrange(1 << 30)
    past = inside + min(inside, PAST_TOKENS)
    foretold_s = (inside + past) / (known.prefill_tokens_per_s or ORDINARY_TOKENS_PER_S)

    def probe(name: str, task: str) -> Probe:
        return Probe(
            name=name,
            task=task,
            neighbour=False,
            memory_limit_bytes=memory_limit_bytes(known),
            timeout_s=round(TIMEOUT_FLOOR_S + TIMEOUT_RATIO * foretold_s, 1),
            about={"inside_tokens": inside, "past_tokens": past, "seed": seed},
        )

    seen = yield probe("past-the-range", "positions")
    if seen is not None and seen.measured.get("position_kind") == "table" and "error_type" in seen.measured:
        yield probe("resized-table", "resized-table")


def judge(probe: Probe, seen: Observation) -> Iterable[Judgement]:
    """An error by its words and its length; no error by what was measured on both sides."""
    measured = seen.measured
    if probe.task == "resized-table":
        yield _resized(probe, seen)
    elif (judged := error_of(seen)) is not None:
        works, fails = measured.get("ok_tokens"), measured.get("error_tokens")
        declared = f"the model declares {measured.get('positions')} positions"
        yield replace(judged, why=f"{works} tokens are read, {fails} are not; {declared}: {judged.why}")
    elif measured.get("position_kind") in WITHOUT_RANGE:
        why = (
            f"{measured.get('ok_tokens')} tokens were read without an error: positions of this kind "
            f"({measured.get('position_kind')}) end nowhere"
        )
        yield Judgement(outcome=Outcome.OK, why=why, layer=Layer.POSITIONS, evidence=measured)
    else:
        yield _silent(probe, measured)


def _silent(probe: Probe, measured: Evidence) -> Judgement:
    """No error past the range: is the answer worse than inside?"""
    inside, past = int(probe.about["inside_tokens"]), int(probe.about["past_tokens"])
    start = f"no error at {past} tokens, {past - inside} past the model's positions"
    if measured.get("past_finite") is False:
        why = f"{start}, but the logits hold infinities or NaN"
        return Judgement(outcome=Outcome.DEGRADED, why=why, layer=Layer.POSITIONS, evidence=measured)
    recall = {group: Recall(measured, group) for group in ("far", "near")}
    step = _interval(measured, "nll_step")
    numbers: dict[str, int | float | str | bool | None] = dict(measured)
    for group, seen in recall.items():
        numbers |= seen.numbers(group)
    if step is not None:
        numbers |= {"nll_step_low": round(step[0], 4), "nll_step_high": round(step[1], 4)}
    worse = [f"codes {seen}" for seen in recall.values() if seen.worse]
    if step is not None and step[0] > 0:
        worse.append(f"likelihood: {_likelihood(measured, step)}")
    compared = "; ".join(
        [*(f"codes {seen}" for seen in recall.values() if seen.asked), f"likelihood: {_likelihood(measured, step)}"]
    )
    if not _has_skill(measured, recall.values()):
        outcome, why = Outcome.UNKNOWN, f"{start}; but inside them, too, this model foretells nothing: {compared}"
    elif worse:
        outcome, why = Outcome.DEGRADED, f"{start}, and worse answers there: {'; '.join(worse)}"
    else:
        outcome, why = Outcome.UNKNOWN, f"{start}; no difference that the measurements could tell: {compared}"
    return Judgement(outcome=outcome, why=why, layer=Layer.POSITIONS, evidence=numbers)


class Recall:
    """Codes that came back inside and past the range: far (over more than the range) or near."""

    def __init__(self, measured: Evidence, group: str) -> None:
        asked, right = (
            {side: int(measured.get(f"{side}_{group}_{what}") or 0) for side in ("inside", "past")}
            for what in ("asked", "right")
        )
        self.asked, self.right = asked["past"], right
        self.inside = share_interval(right["inside"], asked["inside"])
        self.past = share_interval(right["past"], asked["past"])
        self.where = "over the whole length" if group == "far" else "over less than the range"

    @property
    def worse(self) -> bool:
        """Whether the intervals lie apart."""
        return self.past[1] < self.inside[0]

    def numbers(self, group: str) -> dict[str, float]:
        """The intervals, as evidence."""
        ends = {"inside": self.inside, "past": self.past}
        return {
            f"{side}_{group}_share_{name}": round(value, 3)
            for side, pair in ends.items()
            for name, value in zip(("low", "high"), pair, strict=True)
        }

    def __str__(self) -> str:
        return (
            f"{self.where}: {self.right['past']} of {self.asked} came back (95 %: {self.past[0]:.0%} to "
            f"{self.past[1]:.0%}), inside {self.right['inside']} ({self.inside[0]:.0%} to {self.inside[1]:.0%})"
        )


def _interval(measured: Evidence, name: str) -> tuple[float, float] | None:
    mean, deviation, count = (measured.get(f"{name}_{part}") for part in ("mean", "sd", "count"))
    if mean is None or deviation is None or count is None:
        return None
    return mean_interval(float(mean), float(deviation), int(count))


def _likelihood(measured: Evidence, step: tuple[float, float] | None) -> str:
    """The change over the edge in words, beside the change over the stretch before it."""
    if step is None:
        return "too few words to compare"
    words = (
        f"{measured.get('nll_past')} nats a word past the edge and {measured.get('nll_inside')} before it, "
        f"on the same words {measured.get('nll_step_mean'):+.3f} (95 %: {step[0]:+.3f} to {step[1]:+.3f})"
    )
    slope = _interval(measured, "nll_slope")
    if slope is None:
        return words
    cliff = "no cliff: " if slope[1] >= step[0] > 0 else ""
    return f"{words}; {cliff}over the stretch before the edge it had changed by {measured.get('nll_slope_mean'):+.3f}"


def _has_skill(measured: Evidence, recall: Iterable[Recall]) -> bool:
    """Whether the model does better than chance where it should: inside its range."""
    loss, vocabulary = measured.get("nll_inside"), int(measured.get("vocabulary") or 2)
    foretells = loss is not None and float(loss) < math.log(vocabulary) - SKILL_NATS
    return foretells or any(seen.inside[0] > SKILL_SHARE for seen in recall)


def _resized(probe: Probe, seen: Observation) -> Judgement:
    """A longer table: the error is gone, and what is answered past the old end depends on rows that nobody trained."""
    measured = seen.measured
    if (judged := error_of(seen)) is not None:
        return replace(judged, why=f"with a table made twice as long: {judged.why}")
    if measured.get("table") is None:
        why = "the table of positions was not found in the model"
        return Judgement(outcome=Outcome.UNKNOWN, why=why, layer=Layer.POSITIONS, evidence=measured)
    agreement = float(measured.get("past_agreement") or 0)
    why = (
        f"with the table {measured['table']} made twice as long there is no error any more; rows repeated and rows "
        f"drawn afresh agree on {agreement:.0%} of the choices past {probe.about['inside_tokens']} tokens "
        f"({float(measured.get('inside_agreement') or 0):.0%} inside): the answer hangs on rows that nobody trained"
    )
    outcome = Outcome.DEGRADED if agreement < 1 else Outcome.UNKNOWN
    return Judgement(outcome=outcome, why=why, layer=Layer.POSITIONS, evidence=measured)


SCENARIO = Scenario(
    name="position-out-of-range",
    summary="past the model's positions: an error at an exact length, or no error and worse answers",
    needs=("tasks",),
    plan=plan,
    judge=judge,
    order=60,
)
