"""What a report says of a sweep beside its plot and table, a sentence each; pure, and the same for every writer.

What the lab wrote beside a measurement (`Measurement.facts`) is told by name: `_s`, `_bytes`, `_share` at the end of a
name say the unit, words in it where it belongs (`_PLACES`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from contextlab.analysis.frontier import Direction, Membership, Status
from contextlab.model import Settings, Verdict
from contextlab.reports.chaos.words import number, short
from contextlab.reports.pareto.figures import (
    Open,
    Row,
    Shown,
    amount,
    changed,
    ends,
    fixed_words,
    probability,
    setting_value,
    settings_words,
    slo_words,
    unit_of,
    unit_of_metric,
    varied,
    with_ends,
)
from contextlab.reports.parts.facts import Fact
from contextlab.reports.parts.wording import clean, listed, num, quote

MAX_OPEN = 8
"""So many different reasons for something undecided, or left out, are told, and how many more there are."""
MAX_SETTINGS = 3
MAX_VALUES = 12
MAX_WORDS = 4
BLUNT = 1.0
"""An interval of a relative change that is wider than this says nothing of a drift."""
_LARGE = 1e6
_PLACES = (
    ("window", ("window",)),
    ("Little", ("little",)),
    ("ramp", ("ramp", "drain", "warm")),
    ("client", ("client", "late", "loop", "floor")),
    ("host", ("host", "load", "psi", "pressure", "steal", "cpu")),
)
_OTHER = "beside"


def facts(one: Shown) -> list[Fact]:
    """All that is said, in the order in which it is read."""
    return [
        *_best(one),
        *_knee(one),
        *_hypervolume(one),
        *_one_of(one),
        *_undecided(one),
        *_left_out(one),
        *_failures(one),
        *_drift(one),
        *_budget(one),
        *_beside(one),
        *_setup(one),
    ]


# ── what follows ─────────────────────────────────────────────────────────────────────────────────


def best_words(one: Shown) -> str:
    """`best under p99 ttft < 200ms: slots=2 concurrency=4`, or that there is none; "" without an SLO."""
    if not one.sweep.slos:
        return ""
    if one.best is None:
        return f"under {slo_words(one.sweep)} none is proven feasible"
    return f"best under {slo_words(one.sweep)}: {one.named(one.best.settings)}"


def why_best(one: Shown) -> str:
    """Why that setting is the best one under the SLOs, or why there is none; "" without an SLO."""
    if not one.sweep.slos:
        return ""
    words, sweep = slo_words(one.sweep), one.sweep
    known = [row for row in one.rows if row.feasible is not None]
    kept = [row for row in known if (row.feasible or 0.0) >= sweep.confidence]
    if one.best is not None:
        if len(kept) == 1:
            return f"the only setting that for sure keeps {words}"
        return f"best {clean(sweep.goals[0].text)} of {len(kept)} settings that for sure keep {words}"
    if not one.rows:
        return "no setting could be compared"
    if not known:
        return "one repeat each: nothing is known of the noise"
    likeliest = max(known, key=lambda row: row.feasible or 0.0)
    if not likeliest.feasible:
        return f"none is proven feasible: nowhere is {words} likely at all{_nearest(one)}"
    share = probability(likeliest.feasible)
    return (
        f"none is proven feasible: likeliest to keep {words} is {one.named(likeliest.settings)}, "
        f"with probability {share}, not {sweep.confidence:g}"
    )


def _nearest(one: Shown) -> str:
    """`; nearest is batch=64 with p99 itl 678 ms (573–800)`; "" where there are several SLOs, or one on no goal."""
    [slo, *others] = one.sweep.slos
    place = next((place for place, goal in enumerate(one.sweep.goals) if goal.text == slo.objective), None)
    if others or place is None:
        return ""
    sign = 1 if slo.op.startswith("<") else -1
    row = min(one.rows, key=lambda row: sign * row.standing.values[place].value)
    value = with_ends(row.standing.values[place], unit_of(one.sweep.goals[place]))
    return f"; nearest is {one.named(row.settings)} with {clean(slo.objective)} {value}"


def _best(one: Shown) -> Iterator[Fact]:
    if not one.sweep.slos:
        return
    if one.best is None:
        yield Fact(label="best", text=why_best(one), verdict=Verdict.UNKNOWN)
        return
    row = one.best
    keeps = f"this one with probability {probability(row.feasible)}" if row.feasible is not None else ""
    not_member = "" if row.membership is Membership.MEMBER else f"; on the frontier: {row.membership}"
    said = ", ".join(part for part in (why_best(one), keeps) if part)
    values = ", ".join(goals_words(one, row))
    yield Fact(label="best", text=f"{one.named(row.settings)}: {values}; {said}{not_member}", verdict=Verdict.PASS)


def goals_words(one: Shown, row: Row) -> list[str]:
    """`tokens_per_s 412 tokens/s (398–427)` for each goal."""
    return [
        f"{clean(goal.text)} {with_ends(each, unit_of(goal))}"
        for goal, each in zip(one.sweep.goals, row.standing.values, strict=True)
    ]


def _knee(one: Shown) -> Iterator[Fact]:
    found, goals = one.concluded.knee, one.sweep.goals
    if found is None:
        if one.rows and len(goals) >= 2:
            yield Fact(label="knee", text="none: the frontier has no bend, or fewer than three settings")
        return
    values = [
        f"{clean(goal.text)} {with_ends(each, unit_of(goal))}"
        for goal, each in zip(goals[:2], found.values, strict=True)
    ]
    text = f"{one.named(found.settings)}: {', '.join(values)}"
    if one.concluded.frontier.known:
        others = [f"{one.named(settings)} {probability(share)}" for settings, share in found.others[:MAX_SETTINGS]]
        if left := len(found.others) - MAX_SETTINGS:
            others += [f"{left} others"] if left > 0 else []
        others += [f"no knee {probability(found.none)}"] if found.none > 0 else []
        text += f"; probability {probability(found.probability)}" + (f", else {', '.join(others)}" if others else "")
    yield Fact(label="knee", text=text + (" (of the first two goals)" if len(goals) > 2 else ""))


def _hypervolume(one: Shown) -> Iterator[Fact]:
    found, reference, goals = one.concluded.hypervolume, one.concluded.reference, one.sweep.goals
    if found is None or reference is None:
        return
    units = " × ".join(clean(unit_of(goal)) or clean(goal.text) for goal in goals)
    told = ends(found, "", 1.0) if abs(found.value) < _LARGE else ""
    if not told and math.isfinite(found.low) and math.isfinite(found.high):
        told = f"{found.low:.3g}–{found.high:.3g}"
    against = ", ".join(
        f"{clean(goal.text)} {amount(end, unit_of(goal))}" for goal, end in zip(goals, reference, strict=True)
    )
    size = number(found.value) if abs(found.value) < _LARGE else f"{found.value:.3g}"
    text = f"{size}{f' ({told})' if told else ''} {units}, against the reference {against}"
    yield Fact(label="volume", text=text)


def _one_of(one: Shown) -> Iterator[Fact]:
    for group in one.concluded.one_of[:MAX_OPEN]:
        named = _several([one.named(settings) for settings in group.settings])
        share = probability(group.probability)
        yield Fact(label="one of", text=f"{named}: one is on the frontier (probability {share}), the noise hides which")
    if (left := len(one.concluded.one_of) - MAX_OPEN) > 0:
        yield Fact(label="one of", text=f"and {num(left, 'group')} more, in the record")


def _undecided(one: Shown) -> Iterator[Fact]:
    by_why: dict[str, list[Open]] = {}
    for each in one.undecided:
        by_why.setdefault(each.why, []).append(each)
    for why, alike in list(by_why.items())[:MAX_OPEN]:
        named = [one.named(each.settings) for each in alike if each.settings is not None]
        who = f"{_several(named)}: " if named else ""
        yield Fact(label="undecided", text=f"{who}{quote(why)}", verdict=Verdict.UNKNOWN)
    if (left := len(by_why) - MAX_OPEN) > 0:
        yield Fact(label="undecided", text=f"and {left} more, in the record")


def _several(named: Sequence[str], most: int = MAX_SETTINGS) -> str:
    """`slots=2 concurrency=4; slots=4 concurrency=4 and 3 more`."""
    if len(named) <= most + 1:
        return "; ".join(named)
    return f"{'; '.join(named[:most])} and {len(named) - most} more"


def _left_out(one: Shown) -> Iterator[Fact]:
    """Measurements that could not be used, of settings that were compared all the same."""
    compared = {row.key for row in one.rows}
    by_why: dict[str, list[Settings]] = {}
    for each in one.measurements:
        if each.status is not Status.OK and each.key in compared:
            by_why.setdefault(each.why, []).append(each.settings)
    for why, settings in list(by_why.items())[:MAX_OPEN]:
        named = list(dict.fromkeys(one.named(each) for each in settings))
        count = num(len(settings), "repeat")
        yield Fact(label="left out", text=f"{count} of {_several(named)}: {quote(why)}", verdict=Verdict.UNKNOWN)


def _failures(one: Shown) -> Iterator[Fact]:
    causes: Counter[str] = Counter()
    for each in one.measurements:
        causes.update(each.failures)
    sent, failed = (sum(getattr(each, name) for each in one.measurements) for name in ("num_requests", "num_failed"))
    if sent or failed:
        told = ", ".join(f"{count} {clean(name)}" for name, count in causes.most_common(MAX_OPEN))
        yield Fact(label="requests", text=f"{failed} of {sent} failed" + (f": {told}" if told else ""))


# ── what it rests on ─────────────────────────────────────────────────────────────────────────────


def _drift(one: Shown) -> Iterator[Fact]:
    if one.drift is None:
        why = "this search does not repeat its baseline" if one.whole else "the run ended before it was worked out"
        yield Fact(label="drift", text=f"not told: {why}")
        return
    for each in one.drift:
        what = f"{clean(each.objective)} {changed(each.change)} over {num(each.num_repeats, 'repeat')}"
        if each.shown:
            text = f"the baseline drifted: {what}; values of early and late blocks are not quite comparable"
            yield Fact(label="drift", text=text, verdict=Verdict.UNKNOWN)
        elif not each.change.high - each.change.low <= BLUNT:
            text = f"not told: the baseline is too noisy, or has too few repeats: {what}"
            yield Fact(label="drift", text=text, verdict=Verdict.UNKNOWN)
        else:
            yield Fact(label="drift", text=f"none shown by the baseline: {what}", verdict=Verdict.PASS)
    if not one.drift and one.measurements:
        yield Fact(label="drift", text="not known: the baseline has fewer than 3 repeats that can be used")


def _budget(one: Shown) -> Iterator[Fact]:
    given = f" of {duration(one.sweep.budget_s)}" if one.sweep.budget_s > 0 else ""
    repeats = [each for each in one.measurements if each.baseline]
    said = f"{duration(one.used_s)} used{given}"
    if repeats:
        said += f"; the baseline {one.named(repeats[0].settings)} took {num(len(repeats), 'measurement')} of them"
    yield Fact(label="budget", text=said)


def duration(time_s: float) -> str:
    """`42 s`, `6 min`, `5 min 12 s`."""
    if time_s < 60:
        return f"{short(round(time_s, 1))} s"
    minutes, rest = divmod(round(time_s), 60)
    hours, minutes = divmod(minutes, 60)
    parts = (f"{hours} h" if hours else "", f"{minutes} min" if minutes else "", f"{rest} s" if rest else "")
    return " ".join(part for part in parts if part)


def _setup(one: Shown) -> Iterator[Fact]:
    sweep = one.sweep
    axes = [
        f"{clean(axis.name)} {listed([setting_value(each) for each in axis.values], MAX_VALUES)}"
        for axis in sweep.axes
        if axis.name in varied(sweep)
    ]
    count = f"; {num(sweep.num_configs, 'setting')}" if sweep.num_configs else ""
    if axes:
        yield Fact(label="swept", text="; ".join(axes) + count)
    better = [
        f"{clean(goal.text)} ({'more' if goal.direction is Direction.UP else 'less'} is better)" for goal in sweep.goals
    ]
    if better:
        yield Fact(label="goals", text=", ".join(better) + f"; confidence {sweep.confidence:g}, seed {sweep.seed}")
    if sweep.how:
        yield Fact(label="load", text=quote(sweep.how))
    if fixed := fixed_words(sweep):
        yield Fact(label="fixed", text=" ".join(fixed))


# ── what was written beside the measurements ─────────────────────────────────────────────────────


def _beside(one: Shown) -> Iterator[Fact]:
    found: dict[str, list[str]] = {}
    marks: dict[str, Verdict] = {}
    for name, values in _columns(one).items():
        label = next((label for label, words in _PLACES if any(word in name.lower() for word in words)), _OTHER)
        if label == "window" and (told := _windows(one, name)):
            yield Fact(label=label, text=told)
            continue
        words = _column_words(name, [each for _, each in values])
        if label == "Little" and all(isinstance(each, bool) for _, each in values):
            off = list(dict.fromkeys(one.named(settings) for settings, holds in values if not holds))
            marks[label] = Verdict.UNKNOWN if off else Verdict.PASS
            count = sum(bool(each) for _, each in values)
            words = f"{clean(name).replace('_', ' ')} holds in {count} of {len(values)}"
            words += f", not in {_several(off)}" if off else ""
        if words.lower().startswith(f"{label.lower()} "):
            words = words[len(label) + 1 :]
        found.setdefault(label, []).append(words)
    for label in (*(label for label, _ in _PLACES), _OTHER):
        if label in found:
            yield Fact(label=label, text=", ".join(found[label]), verdict=marks.get(label))


def _columns(one: Shown) -> dict[str, list[tuple[Settings, object]]]:
    """What was written under each name, with the settings; nothing that is not known."""
    columns: dict[str, list[tuple[Settings, object]]] = {}
    for each in one.measurements:
        for name, thing in each.facts.items():
            if thing is not None and thing != "":
                columns.setdefault(name, []).append((each.settings, thing))
    return columns


def _column_words(name: str, values: Sequence[object]) -> str:
    """`client cpu share 2.1% to 14%`: from the least to the greatest; words as they come."""
    unit = unit_of_metric(name)
    words = clean(name).replace("_", " ")
    for ending in ("bytes", "s", "share", "ratio"):
        words = words.removesuffix(f" {ending}") if unit and name.endswith(f"_{ending}") else words
    if all(isinstance(each, bool) for each in values):
        return f"{words} in {sum(map(bool, values))} of {len(values)}"
    numbers = [float(each) for each in values if isinstance(each, int | float) and not isinstance(each, bool)]
    if len(numbers) == len(values):
        least, most = (amount(end, unit) if unit else short(end) for end in (min(numbers), max(numbers)))
        return f"{words} {least}" if least == most else f"{words} {least} to {most}"
    return f"{words} {listed(list(dict.fromkeys(quote(setting_value(each)) for each in values)), MAX_WORDS)}"


def _windows(one: Shown, name: str) -> str:
    """`asked context=512, got 256 (4 settings)`: where the window is not the one that was asked for; "" if unknown."""
    asked_by: dict[tuple[str, str], dict[str, None]] = {}
    known = 0
    for settings, real in _columns(one)[name]:
        asked = {**one.sweep.fixed, **settings}.get("context")
        if _is_number(real) and _is_number(asked):
            known += 1
            if asked != real:
                pair = (setting_value(asked), setting_value(real))
                asked_by.setdefault(pair, {})[settings_words(settings, one.sweep)] = None
    if not known:
        return ""
    words = clean(name).replace("_", " ").removeprefix("window ")
    if not asked_by:
        return f"{words}: as asked everywhere"
    told = [f"context={asked} gave {real} ({_several(list(named))})" for (asked, real), named in asked_by.items()]
    return f"{words}: {'; '.join(told[:MAX_OPEN])}"


def _is_number(thing: object) -> bool:
    return isinstance(thing, int | float) and not isinstance(thing, bool) and math.isfinite(thing)
