"""What a trial broke: bounds, streams, the way back; pure. Whether that means anything is for `steadiness` to say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from contextlab.analysis.checks import Check, State
from contextlab.analysis.grounds import Value, key, shown
from contextlab.analysis.integrity import TEXT, Integrity
from contextlab.analysis.phases import RECOVERY_WINDOWS
from contextlab.analysis.quantities import num_of, shown_seconds
from contextlab.analysis.study import Study
from contextlab.experiment import Phase
from contextlab.model import Evidence, Judgement, Layer, Outcome

MOST_PLACES = 3
"""So many different places of damage are named."""


def layer_of(seen: Study) -> Layer:
    """Faults act between client and engine; without any, what breaks is the engine's."""
    return Layer.GATEWAY if seen.trial.experiment.faults else Layer.ENGINE


def breaches(seen: Study, numbers: Evidence) -> Iterator[Judgement]:
    """A judgement for each bound that is broken, for damaged streams, and for a steady state that did not return.

    A bound broken after the faults alone is part of NOT_RECOVERED, where that is judged. Where the hypothesis does not
    speak of integrity, streams may be cut and reset, for that is told to who reads them; wrong text never passes.
    """
    trial, layer, lost = seen.trial, layer_of(seen), not_recovered(seen)
    if trial.fault is not None and trial.fault.stopped:
        why = f"the arm was stopped for safety: {trial.fault.stopped}"
        yield Judgement(outcome=Outcome.BOUND_BROKEN, why=why, layer=layer, evidence={**numbers, **_causes(seen)})
    broken = [check for check in seen.checks if check.state is State.BROKEN]
    for bound in dict.fromkeys(check.bound for check in broken):
        mine = [check for check in broken if check.bound == bound]
        if bound.metric == "integrity" or (lost and all(check.phase is Phase.AFTER for check in mine)):
            continue
        said = "; ".join(check.why for check in mine)
        why = f"{bound.text!r} does not hold {_when(check.phase for check in mine)}: {said}"
        facts = {**numbers, **_causes(seen), **_numbers_of(mine)}
        yield Judgement(outcome=Outcome.BOUND_BROKEN, why=why, layer=layer, evidence=facts)
    if _damage(seen):
        yield damaged(seen, numbers)
    if lost:
        yield Judgement(
            outcome=Outcome.NOT_RECOVERED, why=lost, layer=layer, evidence={**numbers, **_causes(seen, Phase.AFTER)}
        )


def damaged(seen: Study, numbers: Evidence, *, text_only: bool = False) -> Judgement:
    """The streams that were damaged, by name, by who notices and by place; of the text alone if so asked."""
    damage = _damage(seen, text_only=text_only)
    there = [seen.measured[phase] for phase in damage]
    counts = sum(damage.values(), Counter())
    readings = [reading for one in there for reading in one.judged if reading.damaged and reading.name in counts]
    noticed, places = Counter(reading.noticed for reading in readings), Counter(one.where for one in readings)
    facts: dict[str, Value] = {f"damaged_{key(name)}": count for name, count in counts.most_common()}
    facts |= {f"noticed_by_{key(who)}": count for who, count in noticed.most_common()}
    if said := "; ".join(f"{count} {place}" for place, count in places.most_common(MOST_PLACES) if place):
        facts["where"] = said
    begun = sum(one.integrity.total for one in there)
    names = ", ".join(f"{count} {name.name}" for name, count in counts.most_common())
    were = "was" if counts.total() == 1 else "were"
    why = f"{counts.total()} of {num_of(begun, 'streams')} {were} damaged {_when(damage)}: {names}"
    return Judgement(outcome=Outcome.STREAM_DAMAGED, why=why, layer=layer_of(seen), evidence={**numbers, **facts})


def has_wrong_text(seen: Study, *phases: Phase) -> bool:
    """Whether streams are among the damaged whose text itself is wrong, which no delay and no lagging client does:
    in the phases named, else where it counts."""
    if phases:
        return any(seen.measured[phase].damage[name] for phase in phases if phase in seen.measured for name in TEXT)
    return bool(_damage(seen, text_only=True))


def _damage(seen: Study, *, text_only: bool = False) -> dict[Phase, Counter[Integrity]]:
    """The damaged streams by phase and name: where a bound on integrity is broken, or, without one, wrong text."""
    asked = [check for check in seen.checks if check.bound.metric == "integrity"]
    phases = [check.phase for check in asked if check.state is State.BROKEN]
    if not any(bound.metric == "integrity" for bound in seen.trial.experiment.hypothesis):
        phases, text_only = [phase for phase in (Phase.DURING, Phase.AFTER) if phase in seen.measured], True
    found: dict[Phase, Counter[Integrity]] = {}
    for phase in phases:
        damage = seen.measured[phase].damage
        kept = Counter({name: count for name, count in damage.items() if name in TEXT or not text_only})
        if kept:
            found[phase] = kept
    return found


def not_recovered(seen: Study) -> str:
    """Why the steady state counts as lost, in words; "" where it came back, or was not looked at for long enough."""
    back, within_s = seen.recovery, seen.trial.experiment.recovery_within_s
    asked = seen.trial.experiment.hypothesis or within_s is not None
    if back is None or not back.enough or not asked:
        return ""
    windows = f"{RECOVERY_WINDOWS} windows of {shown_seconds(back.window_s)} in a row"
    bounds = ", ".join(repr(bound.text) for bound in seen.recovery_bounds)
    if back.after_s is None:
        looked_s = len(back.held) * back.window_s
        return f"it did not come back within {shown_seconds(looked_s)} of the last fault: no {windows} held {bounds}"
    if within_s is not None and back.after_s > within_s:
        back_s = shown_seconds(back.after_s)
        return f"it came back {back_s} after the last fault, not within {shown_seconds(within_s)}: {windows} held then"
    return ""


def recovery_unseen(seen: Study) -> str:
    """Why it cannot be told whether the steady state came back in time, where that was asked for; else ""."""
    within_s = seen.trial.experiment.recovery_within_s
    if within_s is None or (seen.recovery is not None and seen.recovery.enough):
        return ""
    return f"too little was seen after the last fault to tell whether it came back within {shown_seconds(within_s)}"


def held(seen: Study) -> str:
    """Why it is OK, in words."""
    checks = [check for check in seen.checks if check.state is State.HELD]
    bounds = ", ".join(dict.fromkeys(check.bound.text for check in checks))
    back = seen.recovery
    after = ""
    if back is not None and back.enough and back.after_s is not None:
        after = "; it never left it" if back.after_s == 0 else f"; it was back {shown_seconds(back.after_s)} after them"
    if bounds and not seen.trial.experiment.windows:
        return f"held under the load: {bounds}"
    return f"held during and after: {bounds}{after}" if bounds else f"no bound was to hold; no text was wrong{after}"


def _when(phases: Iterable[Phase]) -> str:
    """`during and after the faults`, `after the faults`."""
    return f"{' and '.join(dict.fromkeys(map(str, phases)))} the faults"


def _numbers_of(checks: Sequence[Check]) -> dict[str, Value]:
    facts: dict[str, Value] = {}
    for check in checks:
        for name, value in (("observed", check.observed), ("low", check.low), ("high", check.high)):
            if value is not None:
                facts[f"{check.phase}_{name}"] = shown(value)
        facts[f"{check.phase}_counted"] = check.n
    return facts


def _causes(seen: Study, *phases: Phase) -> dict[str, Value]:
    """Failed requests by cause, in the phases named or during and after."""
    found: Counter[str] = Counter()
    for phase in phases or (Phase.DURING, Phase.AFTER):
        if phase in seen.measured:
            found += seen.measured[phase].causes
    return {f"failed_{key(name)}": count for name, count in found.most_common()}
