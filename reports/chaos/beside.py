"""What a report says of faults beside the wire: what was done when, deaths, processors, memory, health, the tier; pure.

Every writer says the same, a sentence each; what nobody looked at is not mentioned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import fmean

from contextlab.analysis import honesty
from contextlab.analysis.cost import cost
from contextlab.analysis.deaths import aftermaths, how_it_ended, settled
from contextlab.analysis.phases import Span
from contextlab.analysis.release import held, orphans
from contextlab.deeds import Death, Deed, Reading, Value
from contextlab.experiment import Arm, Phase
from contextlab.model import Verdict
from contextlab.reports.chaos.figures import Shown
from contextlab.reports.chaos.words import number, percent, seconds, short
from contextlab.reports.parts.facts import Fact
from contextlab.reports.parts.wording import clean, num, value

MOST_DEEDS = 6
"""So many deeds of a fault are told one by one; more of them are counted."""
MOST_ELSEWHERE = 1.0
"""Processors; the tool's own parts beside target and clients take less."""
_MEMORY_COUNTS = (
    ("memory_limit_hits", "allocation at the limit", "allocations at the limit"),
    ("major_faults", "page read back from disk", "pages read back from disk"),
    ("oom_kills", "kill for want of memory", "kills for want of memory"),
)
_TIER_PARTS = (
    ("local_hits", "from memory"),
    ("redis_hits", "from Redis"),
    ("joined", "joined another's"),
    ("negative_hits", "refused again"),
    ("origin_requests", "from the target"),
)
_REDIS_TROUBLE = (
    ("redis_refused", "refused"),
    ("redis_timeouts", "too late"),
    ("redis_full", "full"),
    ("redis_errors", "other errors"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """What the target's processes used in a phase. `cpus`: processors that were busy, `client_cpus` those of the load;
    `max_rss_bytes`: the most memory at one reading. Of everybody on the machine: `host_cpus`, `max_gpu_bytes`, and
    `gpu_busy`, the mean share of the busiest GPU. None: that was not read."""

    cpus: float | None
    client_cpus: float | None
    max_rss_bytes: float | None
    host_cpus: float | None = None
    max_gpu_bytes: float | None = None
    gpu_busy: float | None = None


def facts(one: Shown) -> list[Fact]:
    """All of it, in the order in which it is best understood."""
    return [
        *_done(one),
        *_deaths(one),
        *_processors(one),
        *_memory(one),
        *_gpus(one),
        *_released(one),
        *_health(one),
        *_cost(one),
        *_tier(one),
    ]


def arms(one: Shown) -> list[Arm]:
    """The arms that were run, the control first."""
    return [arm for arm in (one.trial.control, one.trial.fault) if arm is not None]


# ── what was done ────────────────────────────────────────────────────────────────────────────────


def _done(one: Shown) -> Iterator[Fact]:
    arm = one.trial.fault
    by_fault: dict[str, list[Deed]] = {}
    for deed in sorted(arm.deeds if arm is not None else (), key=lambda deed: deed.at_s):
        by_fault.setdefault(deed.fault, []).append(deed)
    for fault, deeds in by_fault.items():
        if len(deeds) <= MOST_DEEDS:
            words = [_deed_words(deed) for deed in deeds]
        else:
            words = [_counted(list(alike)) for _, alike in groupby(sorted(deeds, key=_what), key=_what)]
        yield Fact(label="done", text=f"{clean(fault)}: {'; '.join(words)}")


def _what(deed: Deed) -> str:
    return deed.what


def _deed_words(deed: Deed) -> str:
    """`at 10.1 s stopped (by freezer, processes 3)`."""
    about = ", ".join(about_words(name, thing) for name, thing in deed.about.items() if thing is not None)
    return f"at {_at(deed.at_s)} {clean(deed.what)}" + (f" ({about})" if about else "")


def _counted(deeds: Sequence[Deed]) -> str:
    first, last = deeds[0], deeds[-1]
    if len(deeds) == 1:
        return _deed_words(first)
    return f"{clean(first.what)} {len(deeds)} times, from {_at(first.at_s)} to {_at(last.at_s)}"


def about_words(name: str, thing: Value) -> str:
    """`delay 400 ms`, `limit 512 MiB`, `by freezer`."""
    if isinstance(thing, int | float) and not isinstance(thing, bool):
        if name.endswith("_s"):
            return f"{clean(name.removesuffix('_s'))} {seconds(thing)}"
        if name.endswith("_bytes"):
            return f"{clean(name.removesuffix('_bytes'))} {mebibytes(thing)}"
    return f"{clean(name)} {value(thing)}"


def mebibytes(size_bytes: float) -> str:
    """`512 MiB`."""
    return f"{number(size_bytes / 2**20)} MiB"


def _at(at_s: float) -> str:
    return f"{short(round(at_s, 1))} s"


def _deaths(one: Shown) -> Iterator[Fact]:
    """Each death once, by whose hand, what it did to those who were served, and how soon it answered again."""
    after = {each.death.at_s: each for each in aftermaths(one.trial)}
    for arm in arms(one):
        for death in settled(arm.deaths):
            where = f"{clean(arm.name)} arm, at {_at(death.at_s)}"
            if not death.ours:
                text = f"{where}: by no fault of ours, {_end_words(death)}"
                yield Fact(label="death", text=text, verdict=Verdict.FAIL)
                continue
            text = f"{where}: by our hand, {_end_words(death) if death.end.out_of_memory else _signal(death)}"
            if arm is one.trial.fault and (found := after.get(death.at_s)) is not None:
                whole = f"; {num(found.in_time, 'request')} came whole all the same" if found.in_time else ""
                text += f"{whole}; {found.words}"
            back = "" if death.ready_s is not None else "; it was not seen to answer again"
            yield Fact(label="death", text=text + back)


def _signal(death: Death) -> str:
    return clean(death.end.signal or f"exit code {death.end.exit_code}")


def _end_words(death: Death) -> str:
    return clean(how_it_ended(death.end))


# ── processors and memory ────────────────────────────────────────────────────────────────────────


def used(one: Shown) -> dict[Phase, Used]:
    """What the target used in each phase in which its processes were read."""
    found = {}
    for phase, there in one.study.measured.items():
        arm = one.trial.control if phase is Phase.CONTROL else one.trial.fault
        readings = arm.readings if arm is not None else ()
        inside, around, gpus = (_within(readings, there.span, source) for source in ("process", "machine", "gpu"))
        if len(inside) > 1 or gpus:
            found[phase] = Used(
                cpus=_per_s(inside, "cpu_s"),
                client_cpus=_per_s(inside, "client_cpu_s"),
                max_rss_bytes=max(_all(inside, "rss_bytes"), default=None),
                host_cpus=_per_s(around, "host_cpu_s"),
                max_gpu_bytes=max(_all(gpus, "gpu_memory_bytes"), default=None),
                gpu_busy=fmean(busy) if (busy := _all(gpus, "gpu_busy_ratio")) else None,
            )
    return found


def _within(readings: Iterable[Reading], span: Span, source: str) -> list[Reading]:
    return [each for each in readings if each.source == source and span.holds(each.at_s)]


def _all(readings: Iterable[Reading], name: str) -> list[float]:
    return [each.values[name] for each in readings if name in each.values]


def _per_s(readings: Sequence[Reading], name: str) -> float | None:
    """How fast a sum grew. It begins anew where the process is another one: what falls adds nothing."""
    told = [(each.at_s, each.values[name]) for each in readings if name in each.values]
    if len(told) < 2 or told[-1][0] <= told[0][0]:
        return None
    grown = sum(max(0.0, later - earlier) for (_, earlier), (_, later) in pairwise(told))
    return grown / (told[-1][0] - told[0][0])


def elsewhere(by_phase: Mapping[Phase, Used]) -> float:
    """The most processors that were busy with neither the target nor its clients, where that is worth a word; else 0.

    While faults act it may be a fault that is busy: it does not count.
    """
    rest = [
        each.host_cpus - (each.cpus or 0.0) - (each.client_cpus or 0.0)
        for phase, each in by_phase.items()
        if each.host_cpus is not None and phase is not Phase.DURING
    ]
    most = max(rest, default=0.0)
    return most if most > MOST_ELSEWHERE else 0.0


def kernel(one: Shown) -> dict[str, float]:
    """What the kernel counted while faults acted on the target's host: of several faults the most, for their windows
    may overlap."""
    found: dict[str, float] = {}
    for each in one.trial.fault.evidence if one.trial.fault is not None else ():
        for name, amount in each.kernel.items():
            found[name] = max(amount, found.get(name, amount))
    return found


def _processors(one: Shown) -> Iterator[Fact]:
    by_phase, counted = used(one), kernel(one)
    shares = [f"{phase} {number(each.cpus)}" for phase, each in by_phase.items() if each.cpus is not None]
    if shares:
        yield Fact(label="CPU", text=f"processors that the target kept busy: {', '.join(shares)}")
    clients = [
        f"{phase} {number(each.client_cpus)}" for phase, each in by_phase.items() if each.client_cpus is not None
    ]
    if clients:
        yield Fact(label="CPU", text=f"and the load's clients: {', '.join(clients)}")
    whole = [f"{phase} {number(each.host_cpus)}" for phase, each in by_phase.items() if each.host_cpus is not None]
    if whole:
        yield Fact(label="CPU", text=f"and everybody on the machine: {', '.join(whole)}")
    if most := elsewhere(by_phase):
        text = f"up to {number(most)} processors were busy with something else: slow answers may be its doing"
        yield Fact(label="CPU", text=text, verdict=Verdict.UNKNOWN)
    if counted.get("num_throttled"):
        words = f"throttled in {counted['num_throttled']:.0f} of {counted.get('num_periods', 0):.0f} periods"
        yield Fact(label="CPU", text=f"{words}, for {seconds(counted.get('throttled_s', 0.0))} in all")
    if counted.get("cpu_stall_s"):
        yield Fact(label="CPU", text=f"work stood still for want of a processor for {seconds(counted['cpu_stall_s'])}")


def _memory(one: Shown) -> Iterator[Fact]:
    counted = kernel(one)
    most = [
        f"{phase} {mebibytes(each.max_rss_bytes)}"
        for phase, each in used(one).items()
        if each.max_rss_bytes is not None
    ]
    if most:
        yield Fact(label="memory", text=f"the most that the target held: {', '.join(most)}")
    words = [
        f"{counted[name]:.0f} {one_of if counted[name] == 1 else several}"
        for name, one_of, several in _MEMORY_COUNTS
        if counted.get(name)
    ]
    if counted.get("memory_stall_s"):
        words.append(f"work stood still for want of memory for {seconds(counted['memory_stall_s'])}")
    if words:
        yield Fact(label="memory", text="; ".join(words))


def _gpus(one: Shown) -> Iterator[Fact]:
    told = {
        phase: [
            *([f"{each.gpu_busy:.0%} busy"] if each.gpu_busy is not None else []),
            *([f"at most {mebibytes(each.max_gpu_bytes)}"] if each.max_gpu_bytes is not None else []),
        ]
        for phase, each in used(one).items()
    }
    said = [f"{phase} {' with '.join(words)}" for phase, words in told.items() if words]
    if said:
        yield Fact(label="GPU", text=", ".join(said))


# ── what was freed, said, and spent ──────────────────────────────────────────────────────────────


def _released(one: Shown) -> Iterator[Fact]:
    arm, within_s = one.trial.fault, one.trial.experiment.release_within_s
    if arm is None or within_s is None:
        return
    found = held(arm, one.trial.control)
    back = [(each, each.after_s) for each in found if each.after_s is not None and each.after_s <= within_s]
    if back:
        words = ", ".join(f"{_freed(each.name)} {_soon(after_s)}" for each, after_s in back)
        yield Fact(label="release", text=f"free again: {words}", verdict=Verdict.PASS)
    for each in found:
        if each.after_s is None or each.after_s > within_s:
            late = f"not free within {seconds(each.last_s)}" if each.after_s is None else f"free {_soon(each.after_s)}"
            text = f"{_freed(each.name)} {late}, {seconds(within_s)} are allowed: {each.words}"
            yield Fact(label="release", text=text, verdict=Verdict.FAIL)
    if (stray := orphans(one.trial.experiment, arm)) is not None:
        text = f"{num(stray.most, 'slot')} busy for nobody, {seconds(stray.last_s)} after the last of its clients left"
        yield Fact(label="release", text=text, verdict=Verdict.FAIL)


def _freed(name: str) -> str:
    return clean(name.removesuffix("_bytes").replace("_", " "))


def _soon(after_s: float) -> str:
    return f"after {seconds(after_s)}" if after_s > 0 else "at once"


def _health(one: Shown) -> Iterator[Fact]:
    """False green and false red of each arm, with what the looks cannot tell."""
    for seen in honesty.of_trial(one.trial):
        lies = (("false green", seen.false_green), ("false red", seen.false_red))
        told = ", ".join(f"{name} {_span(lie)}" for name, lie in lies)
        looks = f"{seen.num_health} looks at health and {seen.num_completions} at one token"
        how = f"{looks}, {seconds(seen.every_s)} apart, deadline {seconds(seen.deadline_s)}"
        text = f"{clean(seen.arm)}: {told}; {how}"
        yield Fact(label="health", text=text, verdict=_honest(seen))


def _honest(seen: honesty.Honesty) -> Verdict:
    lies = (seen.false_green, seen.false_red)
    if any(lie.low_s > honesty.THRESHOLD_S for lie in lies):
        return Verdict.FAIL
    unsure = not seen.enough or any(lie.high_s > honesty.THRESHOLD_S for lie in lies)
    return Verdict.UNKNOWN if unsure else Verdict.PASS


def _span(lie: honesty.Lie) -> str:
    """`6.51–8.46 s, first at 6.5 s`."""
    if not lie.high_s:
        return "0 s"
    since = "" if lie.since_s is None else f" (first at {_at(lie.since_s)})"
    low, high = number(lie.low_s), number(lie.high_s)
    return (f"{low} s" if low == high else f"{low}–{high} s") + since


def _cost(one: Shown) -> Iterator[Fact]:
    """Only where something was for nothing."""
    for arm in arms(one):
        found = cost(arm)
        repeated = found.requests_repeated
        if not repeated and found.generated_tokens <= found.used_tokens:
            continue
        tokens = f"{found.generated_tokens} generated, {found.delivered_tokens} delivered, {found.used_tokens} used"
        wasted = f", {percent(round(found.wasted_share, 3))} for nothing" if found.wasted_share else ""
        least = "" if found.counted else " (at least: the target does not count)"
        again = f"; {repeated} of {num(found.requests, 'request')} sent again" if repeated else ""
        text = f"{clean(arm.name)}: tokens {tokens}{wasted}{least}{again}"
        yield Fact(label="cost", text=text)


# ── the cache tier ───────────────────────────────────────────────────────────────────────────────


def tier_counts(arm: Arm) -> Mapping[str, float]:
    """What the tier had counted at the end of an arm; empty where there was none."""
    return next((each.values for each in reversed(arm.readings) if each.source == "tier"), {})


def _tier(one: Shown) -> Iterator[Fact]:
    for arm in arms(one):
        counts = tier_counts(arm)
        if not (asked := counts.get("requests", 0.0)):
            continue
        shares = [
            f"{percent(round(counts[name] / asked, 3))} {words}" for name, words in _TIER_PARTS if counts.get(name)
        ]
        extra = f"; {number(counts['amplification'])} requests to the target for each that was different"
        text = f"{clean(arm.name)}: {asked:.0f} asked: {', '.join(shares)}"
        yield Fact(label="tier", text=text + (extra if "amplification" in counts else ""))
        if words := _trouble(counts):
            yield Fact(label="tier", text=f"{clean(arm.name)}: {words}")


def _trouble(counts: Mapping[str, float]) -> str:
    redis = [f"{counts[name]:.0f} {words}" for name, words in _REDIS_TROUBLE if counts.get(name)]
    said = [f"Redis: {', '.join(redis)}"] if redis else []
    if counts.get("breaker_openings"):
        often = num(int(counts["breaker_openings"]), "time")
        said.append(f"the breaker opened {often}, for {seconds(counts.get('breaker_open_s', 0.0))} in all")
    return "; ".join(said)
