"""What of a run goes into its history: when, of what, on which machine, and its few numbers that mean something again.

overflow   longest prompt read, probes that failed, the speeds measured on opening
chaos      of each experiment: latency and throughput in the control, latency and errors during the faults, recovery
pareto     the baseline, which every block repeats, and the best of each goal
gate       the candidate's medians

A run that did not come to its end has none: its numbers would be of another load.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from statistics import median

from contextlab.analysis import sweeps
from contextlab.analysis.frontier import Direction, Status
from contextlab.analysis.gate import stored
from contextlab.analysis.history import Better, Entry, Value
from contextlab.experiment import Phase
from contextlab.model import NothingMeasured, Run, Verdict
from contextlab.reports.chaos import figures as chaos_figures
from contextlab.reports.parts import grouping, summary

_VOLATILE = frozenset({"--seed", "--output", "-o", "--runs", "--at"})
"""Options, each with a value, that change nothing of what is measured."""
_VOLATILE_FLAGS = frozenset({"--json", "--quiet", "-q", "--i-own-this", "--yes"})
_CONTROL = (("ttft", 0.5), ("ttft", 0.9), ("e2e", 0.9))


def entry(run: Run) -> Entry:
    """The run as one entry. Raises NothingMeasured, with the reason, where it cannot stand beside others."""
    command, code = summary.command(run), summary.exit_status(run)["code"]
    if command == "replay":
        raise NothingMeasured("a replay of one probe")
    if code is None or code in summary.INTERRUPT_CODES:
        raise NothingMeasured("it did not come to its end")
    return Entry(
        run=PurePath(run.path).name,
        began_at=_began(run),
        command=command,
        target=summary.target(run),
        asked=_asked(run),
        machine=_machine(run),
        verdict=summary.verdict(run),
        exit_code=code,
        values=tuple(value for value in _values(run, command) if math.isfinite(value.value)),
    )


def _began(run: Run) -> str:
    """When it began, in UTC, so that texts sort as times do. Raises NothingMeasured where that is not on record."""
    said = str(run.header.get("started_at") or "")
    try:
        began = datetime.fromisoformat(said)
    except ValueError:
        raise NothingMeasured("its record does not say when it began") from None
    zoned = began if began.tzinfo else began.replace(tzinfo=UTC)
    return zoned.astimezone(UTC).isoformat(timespec="seconds")


def _asked(run: Run) -> str:
    """The command line without options that change nothing; else the settings."""
    argv = [str(word) for word in run.header.get("argv") or ()]
    if not argv:
        return " ".join(f"{name}={value}" for name, value in sorted(summary.settings(run).items()))
    kept: list[str] = []
    skip = False
    for word in argv:
        name, _, value = word.partition("=")
        if skip:
            skip = False
        elif name in _VOLATILE:
            skip = not value
        elif word not in _VOLATILE_FLAGS:
            kept.append(word)
    return shlex.join(kept)


def _machine(run: Run) -> str:
    """`Linux x86_64, 2 cores, 24 GiB`: what does not change by itself."""
    machine = run.header.get("machine")
    facts: Mapping[str, object] = machine if isinstance(machine, Mapping) else {}
    memory = facts.get("memory_bytes")
    words = [
        " ".join(str(facts[name]) for name in ("system", "processor") if facts.get(name)),
        f"{facts['cores']} cores" if facts.get("cores") else "",
        f"{round(memory / 2**30)} GiB" if isinstance(memory, int) else "",
    ]
    return ", ".join(word for word in words if word) or "a machine that is not on record"


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────


def _values(run: Run, command: str) -> Iterator[Value]:
    match command:
        case "overflow":
            yield from _overflow(run)
        case "chaos":
            yield from _chaos(run)
        case "pareto":
            yield from _pareto(run)
        case "gate":
            yield from _gate(run)
    if command in ("overflow", "chaos"):
        failed = grouping.tally(run)[Verdict.FAIL]
        yield Value(scenario="", metric=f"failed {grouping.noun(run)}s", value=float(failed))


def _overflow(run: Run) -> Iterator[Value]:
    if (longest := summary.measured_tokens(run)) is not None:
        yield Value(scenario="find-limit", metric="longest prompt read", value=longest, unit="tokens", better="more")
    known = run.knowledge
    speeds = (
        ("prefill", known.prefill_tokens_per_s if known else None),
        ("decode", known.decode_tokens_per_s if known else None),
    )
    for name, speed in speeds:
        if speed is not None:
            yield Value(scenario="", metric=name, value=speed, unit="tokens/s", better="more")


def _chaos(run: Run) -> Iterator[Value]:
    found, _ = chaos_figures.shown(run)
    for one in found:
        place = f"{one.scenario}/{one.name}"
        for phase, word in ((one.against, "undisturbed"), (Phase.DURING, "during")):
            there = one.study.measured.get(phase) if phase is not None and phase in one.phases else None
            if there is None:
                continue
            for metric, q in _CONTROL:
                figure = chaos_figures.quantile(there.times(metric).quantile(q))
                if figure.value is not None and figure.enough:
                    name = f"{chaos_figures.NAMES.get(metric, metric)} p{q * 100:g} {word}"
                    yield Value(scenario=place, metric=name, value=figure.value, unit="s")
            if there.tokens_per_s is not None:
                yield Value(
                    scenario=place,
                    metric=f"tokens {word}",
                    value=there.tokens_per_s,
                    unit="tokens/s",
                    better="more",
                )
            if there.errors.value is not None:
                yield Value(scenario=place, metric=f"errors {word}", value=there.errors.value, unit="share")
        if one.study.recovery is not None and one.study.recovery.after_s is not None:
            yield Value(scenario=place, metric="recovery", value=one.study.recovery.after_s, unit="s")


def _pareto(run: Run) -> Iterator[Value]:
    sweep, measurements, _ = sweeps.read(run.records)
    if sweep is None:
        return
    usable = [one for one in measurements if one.status is Status.OK]
    for goal in sweep.goals:
        better: Better = "more" if goal.direction is Direction.UP else "less"
        by_setting: dict[str, list[float]] = {}
        baseline = []
        for one in usable:
            value = one.values.get(goal.text)
            if value is not None and math.isfinite(value):
                by_setting.setdefault(one.key, []).append(value)
                baseline += [value] if one.baseline else []
        if baseline:
            yield Value(scenario="baseline", metric=goal.text, value=median(baseline), unit=goal.unit, better=better)
        if by_setting:
            best = (max if better == "more" else min)(map(median, by_setting.values()))
            yield Value(scenario="best of all settings", metric=goal.text, value=best, unit=goal.unit, better=better)


def _gate(run: Run) -> Iterator[Value]:
    found = stored.read(run.records)
    for one in found.result.metrics if found is not None and found.result is not None else ():
        if one.candidate is not None:
            name = re.sub(r"_s$", "", one.metric.name) if one.metric.unit == "s" else one.metric.name
            yield Value(
                scenario="candidate",
                metric=name,
                value=one.candidate,
                unit=one.metric.unit,
                better=one.metric.better,
            )
