"""A gate as reports show it: rows of words, the sentence, what the run rests on; pure, and the same for every writer.

record ─▶ shown(run) ─▶ Shown: rows (a metric, exact value, share or budget each), sentence, host, next step
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median

import msgspec

from contextlab.analysis.gate.nouns import (
    Block,
    BudgetResult,
    BudgetVerdict,
    ExactDifference,
    GateResult,
    GateVerdict,
    Measure,
    MetricResult,
    MetricVerdict,
    RateResult,
)
from contextlab.analysis.gate.stored import Stored, concluded, read
from contextlab.model import ContextlabError, Run, Verdict
from contextlab.reports.chaos.words import NONE, number, percent, seconds
from contextlab.reports.parts.once import once
from contextlab.reports.parts.wording import clean, listed, num

MAX_NAMED = 3
"""So many metrics stand in the sentence."""
_OF_METRIC = {
    MetricVerdict.REGRESSED: Verdict.FAIL,
    MetricVerdict.OK: Verdict.PASS,
    MetricVerdict.IMPROVED: Verdict.PASS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing that was compared, in words. `verdict`: what it means for the gate; None where it is only reported.

    `sees`: the smallest change for the worse that this run could have seen.
    """

    name: str
    word: str
    verdict: Verdict | None
    why: str = ""
    base: str = NONE
    candidate: str = NONE
    change: str = NONE
    interval: str = ""
    margin: str = NONE
    sees: str = NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A gate, read. `so_far`: it was cut off, and this is what its blocks come to until then.

    `counted`: exact values that differ, shares that rose. `metrics`: those that gate first.
    """

    stored: Stored
    result: GateResult
    so_far: bool
    counted: tuple[Row, ...]
    metrics: tuple[Row, ...]
    budgets: tuple[Row, ...]

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All that were measured, in the order of their numbers."""
        return tuple(sorted(self.stored.blocks, key=lambda block: block.number))


@once
def shown(run: Run) -> tuple[Shown | None, str]:
    """The gate of a run, and what is wrong with its record ("" if nothing); None where it holds none."""
    try:
        stored = read(run.records)
    except (msgspec.ValidationError, ContextlabError, KeyError, TypeError, ValueError) as error:
        return None, f"the gate on record cannot be read: {error}"
    if stored is None:
        return None, ""
    result = stored.result
    if result is None:
        result = GateResult()
        with suppress(ContextlabError, ValueError):
            result = concluded(stored.begins, stored.blocks)
    so_far = stored.result is None and not stored.begins.calibrates
    metrics = sorted(result.metrics, key=lambda one: not one.gating) if stored.blocks else []
    one = Shown(
        stored=stored,
        result=result,
        so_far=so_far,
        counted=(
            *map(_exact, result.exact),
            *(_rate(rate, result) for rate in result.rates if rate.risen or rate.doubtful),
        ),
        metrics=tuple(_metric(metric, result) for metric in metrics),
        budgets=tuple(map(_budget, result.budgets)) if stored.blocks else (),
    )
    return one, ""


def _metric(one: MetricResult, result: GateResult) -> Row:
    name, metric = one.metric.name, one.metric
    verdict: Verdict | None = _OF_METRIC.get(one.verdict, Verdict.UNKNOWN) if one.gating else None
    if verdict is Verdict.FAIL and result.advice:
        verdict = Verdict.UNKNOWN
    ends = one.low is not None and one.high is not None
    why = "" if one.verdict in (MetricVerdict.OK, MetricVerdict.IMPROVED) else one.why
    if one.confirmed_ratio is not None:
        why += f" ({change(one.confirmed_ratio)} there)"
    return Row(
        name=f"{shown_name(name)} {'↓' if metric.better == 'less' else '↑'}",
        word=one.verdict.upper(),
        verdict=verdict,
        why=why,
        base=in_unit(one.base, name),
        candidate=in_unit(one.candidate, name),
        change=change(one.ratio),
        interval=f"{change(one.low)} to {change(one.high)}" if ends else "",
        margin=percent(one.margin) if one.margin else NONE,
        sees=f"≥ {percent(one.smallest_effect)}" if one.smallest_effect is not None else NONE,
    )


def _exact(one: ExactDifference) -> Row:
    sides = [", ".join(clean(str(value)) for value, _ in side) or NONE for side in (one.base, one.candidate)]
    return Row(
        name=one.name,
        word="DIFFERS" if one.gating else "NOT SETTLED",
        verdict=Verdict.FAIL if one.gating else Verdict.UNKNOWN,
        why=one.why,
        base=sides[0],
        candidate=sides[1],
        margin="equal",
    )


def _rate(one: RateResult, result: GateResult) -> Row:
    shown_to_rise = one.risen and not result.contaminated
    return Row(
        name=f"requests {one.name}",
        word="MORE" if shown_to_rise else "PERHAPS MORE",
        verdict=Verdict.FAIL if shown_to_rise else Verdict.UNKNOWN,
        why=one.why,
        base=_share(one.base_count, one.base_total),
        candidate=_share(one.candidate_count, one.candidate_total),
    )


def _budget(one: BudgetResult) -> Row:
    name = one.budget.metric
    ends = one.low is not None and one.high is not None
    verdicts = {BudgetVerdict.BROKEN: Verdict.FAIL, BudgetVerdict.KEPT: Verdict.PASS}
    return Row(
        name=one.budget.text,
        word=one.verdict.upper(),
        verdict=verdicts.get(one.verdict, Verdict.UNKNOWN),
        why="" if one.verdict is BudgetVerdict.KEPT else one.why,
        candidate=in_unit(one.value, name),
        interval=f"{in_unit(one.low, name)} to {in_unit(one.high, name)}" if ends else "",
    )


# ── words ────────────────────────────────────────────────────────────────────────────────────────


def word(one: Shown) -> str:
    """REGRESSED, OVER BUDGET, DIED, CONTAMINATED, INCONCLUSIVE, OK, …; of a calibration, CALIBRATED."""
    if one.stored.begins.calibrates and one.result.verdict is not GateVerdict.DIED:
        found = one.stored.calibration
        if found is None:
            return "UNKNOWN"
        return "CONTAMINATED" if found.contaminated else "CALIBRATED"
    return "UNKNOWN" if one.so_far else one.result.verdict.upper()


def sentence(one: Shown) -> str:
    """What came of it, without the word."""
    begins, result = one.stored.begins, one.result
    base, candidate = clean(begins.base), clean(begins.candidate)
    if begins.calibrates and result.verdict is not GateVerdict.DIED:
        return _calibrated(one, candidate)
    pair = f"{candidate} against itself" if base == candidate else f"{candidate} against {base}"
    if one.so_far:
        return f"{pair}: stopped after {num(len(one.blocks), 'block')}; go on with --resume"
    match result.verdict:
        case GateVerdict.REGRESSED:
            return f"{pair}: {listed(list(_worse(result)), MAX_NAMED)}"
        case GateVerdict.IMPROVED | GateVerdict.OK:
            better = [
                f"{shown_name(each.metric.name)} {change(each.ratio)}"
                for each in result.metrics
                if each.gating and each.verdict is MetricVerdict.IMPROVED
            ]
            compared = sum(each.gating for each in result.metrics)
            held = f"no worse, shown for {num(compared, 'metric')}"
            return f"{pair}: {listed(better, MAX_NAMED)}, and {held}" if better else f"{pair}: {held}"
    return f"{pair}: {clean(result.reasons[0][1]) if result.reasons else 'nothing was measured'}"


def _calibrated(one: Shown, target: str) -> str:
    found = one.stored.calibration
    if found is None:
        return f"{target}: stopped after {num(len(one.blocks), 'block')}; go on with --resume"
    if found.contaminated:
        return f"{target}: nothing can be said of this place: {clean(found.contaminated)}"
    able = [shown_name(noise.name) for noise in found.metrics if noise.resolved]
    return f"{target}: {len(able)} of {num(len(found.metrics), 'metric')} can be gated here"


def _worse(result: GateResult) -> Iterator[str]:
    for one in result.exact:
        if one.gating:
            yield f"{one.name} differs"
    for rate in result.rates:
        if rate.risen:
            yield f"more requests {rate.name}"
    for metric in result.metrics:
        if metric.gating and metric.verdict is MetricVerdict.REGRESSED:
            again = ", confirmed" if metric.confirmed_ratio is not None else ""
            limits = f"margin {percent(metric.margin)}{again}"
            yield f"{shown_name(metric.metric.name)} {change(metric.ratio)} ({limits})"


def tally(one: Shown) -> str:
    """`10 blocks of both arms, 10 more to confirm, 1 left out`."""
    again = sum(block.confirming for block in one.blocks)
    first = len(one.blocks) - again
    if one.stored.begins.stored:
        launches = [sum(getattr(block, arm) is not None for block in one.blocks) for arm in ("base", "candidate")]
        return f"{num(launches[0], 'stored launch').replace('launchs', 'launches')} against {launches[1]}"
    said = [f"{num(first, 'block')} of both arms"]
    said += [f"{again} more to confirm"] if again else []
    said += [f"{len(one.result.left_out)} left out"] if one.result.left_out else []
    said += [f"attempt {one.stored.num_attempts}"] if one.stored.num_attempts > 1 else []
    return ", ".join(said)


def facts(one: Shown) -> list[tuple[str, list[str]]]:
    """(label, sentences) of what the verdict rests on."""
    begins, result = one.stored.begins, one.result
    plan, load = begins.settings.plan, begins.settings.load
    looks = f"{num(1 + (plan.max_blocks > plan.blocks), 'look')} at {percent(plan.alpha)}"
    reach = f"up to {plan.max_blocks}, " if plan.max_blocks > plan.blocks else ""
    paired = "side by side, ABBA" if not begins.stored else "of two sessions, not paired"
    arms = [arm for block in one.blocks for arm in (block.base, block.candidate) if arm is not None and not arm.died]
    clean_blocks = [block for block in one.blocks if block.number not in result.left_out]
    looked_at = [arm for block in clean_blocks for arm in (block.base, block.candidate) if arm is not None]
    names = {name for arm in looked_at for name in arm.exact} - plan.unstable - {each.name for each in result.waived}
    waived = [f"{shown_name(each.name)} until {each.expires}: {clean(each.reason)}" for each in result.waived]
    left = [f"block {number}: {clean(why)}" for number, why in sorted(result.left_out.items())]
    equal = len(names - {each.name for each in result.exact})
    clients = num(load.concurrency, "client")
    sent = f"{load.num_requests} requests a launch after {load.num_warmup} to warm up, {clients}"
    found = [
        ("also", _also(result) if not begins.calibrates else []),
        ("equal", [f"{num(equal, 'exact value')} in both arms"] if equal else []),
        ("requests", [_shares(rate) for rate in result.rates if rate.base_total or rate.candidate_total]),
        ("plan", [f"{plan.blocks} blocks, {paired}", f"effects: of a gate of {plan.blocks} blocks, {reach}{looks}"])
        if begins.calibrates
        else ("plan", [f"{plan.blocks} blocks, {reach}{looks}, {paired}", f"intervals {percent(plan.confidence)}"]),
        ("load", [sent, f"prompts of {load.prompt_tokens} tokens, replies of {load.reply_tokens}"] if arms else []),
        ("host", _host(arms, trusted=begins.trusts_host)),
        ("left out", left),
        ("waived", waived),
        ("noise", [f"as calibrated in {clean(begins.noise)}"] if begins.noise else []),
        ("advice", [clean(result.advice)] if result.advice else []),
        ("tested", [clean(words) for words in result.likeness.tested]),
    ]
    return [(label, words) for label, words in found if words]


def _also(result: GateResult) -> list[str]:
    """The reasons past the first one that are no row of a table."""
    names = [one.metric.name for one in result.metrics] + [one.name for one in result.exact]
    in_rows = (*names, "budget ", "more requests ")
    return [clean(words) for _, words in result.reasons[1:] if not words.startswith(in_rows)]


def _host(arms: Sequence[Measure], *, trusted: bool) -> list[str]:
    """How quiet the machine was, at its worst."""
    used = [arm.host.others_cores for arm in arms if arm.host.others_cores is not None]
    waited = [arm.host.cpu_pressure for arm in arms if arm.host.cpu_pressure is not None]
    stolen = [arm.host.steal for arm in arms if arm.host.steal is not None]
    times = [arm.control_s for arm in arms if arm.control_s]
    said = [f"others used {max(used):.2f} cores at most"] if used else []
    said += [f"CPU pressure {percent(max(waited))} at most"] if waited else []
    said += [f"steal {percent(max(stolen))}"] if stolen and max(stolen) > 0 else []
    if times:
        usual = median(times)
        said.append(f"the control work varied by {percent(max(abs(time / usual - 1) for time in times))}")
    return [*said, "trusted all the same (--trust-host)"] if trusted and said else said


def noises(one: Shown) -> list[Row]:
    """What a calibration found of each metric."""
    found = one.stored.calibration
    rows = []
    for noise in found.metrics if found is not None else ():
        advice = ""
        if noise.margin_needed is not None and noise.margin_needed <= 1:
            advice = f"; a margin of {noise.margin_needed:.0%} would do"
        if noise.blocks_needed is not None:
            advice += f"; {noise.blocks_needed} blocks would do"
        rows.append(
            Row(
                name=shown_name(noise.name),
                word="RESOLVED" if noise.resolved else "NOT GATED",
                verdict=Verdict.PASS if noise.resolved else Verdict.UNKNOWN,
                why=f"{noise.why}{advice}",
                change=NONE if noise.sigma is None else percent(noise.sigma),
                sees=NONE if noise.smallest_effect is None else f"≥ {percent(noise.smallest_effect)}",
            )
        )
    return rows


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────


def shown_name(metric: str) -> str:
    """`ttft_p50` of `ttft_p50_s`: a report gives the unit beside the value."""
    return metric if metric == "tokens_per_s" else metric.removesuffix("_s")


def in_unit(value: float | None, metric: str) -> str:
    """A value of a metric with its unit."""
    if value is None:
        return NONE
    return f"{number(value)}/s" if metric == "tokens_per_s" else seconds(value)


def change(ratio: float | None) -> str:
    """A ratio as a change: `+9.4%`, `−12%`."""
    if ratio is None:
        return NONE
    if ratio >= 10:
        return f"×{ratio:.3g}"
    percents = (ratio - 1) * 100
    if abs(percents) < 0.05:
        return "0%"
    return f"{percents:+.{0 if abs(percents) >= 100 else 1}f}%".replace("-", "−").replace(".0%", "%")


def _share(count: int, total: int) -> str:
    return f"{count} of {total}"


def _shares(rate: RateResult) -> str:
    base, candidate = _share(rate.base_count, rate.base_total), _share(rate.candidate_count, rate.candidate_total)
    return f"{rate.name} {base} → {candidate}"
