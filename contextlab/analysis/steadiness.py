"""Judges a chaos trial: deaths, the gate, the client's own health, the faults' proof, then what was broken; pure.

    a crash ─▶ CRASHED, and nothing else: the rest is its consequence
    no steady state without faults ─▶ UNKNOWN: nothing can be concluded about the faults
    the client lagged ─▶ UNKNOWN in place of what rests on time and ends           } wrong text stays
    no fault is proven to have landed ─▶ UNKNOWN in place of what it would explain } STREAM_DAMAGED
    else ─▶ BOUND_BROKEN, STREAM_DAMAGED, NOT_RECOVERED; UNKNOWN for what too few requests decide; OK

A fault that stands for nothing (`loss:rate=0`) needs no proof. One of several that is not proven is UNKNOWN beside what
the others did. Beside that stand what was freed after the load, the honesty of the health endpoint, and what became of
those whose server we killed. Every judgement carries the same numbers (`grounds`), and its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from contextlab.analysis.breaches import (
    breaches,
    damaged,
    has_wrong_text,
    held,
    layer_of,
    recovery_unseen,
)
from contextlab.analysis.checks import Check, State, live_stop
from contextlab.analysis.deaths import how_it_ended, judge_deaths
from contextlab.analysis.grounds import Value, evidence, key, shown
from contextlab.analysis.honesty import judgements as judge_honesty
from contextlab.analysis.judging import signal_behind
from contextlab.analysis.phases import disturbances, last_sent_s
from contextlab.analysis.quantities import count, shown_seconds
from contextlab.analysis.release import judge_release
from contextlab.analysis.signatures import recognise_lines
from contextlab.analysis.study import Study, study
from contextlab.experiment import Arm, FaultEvidence, GeneratorHealth, Phase, Trial
from contextlab.model import Evidence, Judgement, Layer, Outcome, ProcessEnd

__all__ = ["gate", "judge_trial", "live_stop"]

LATENESS_S, LATENESS_SHARE = 0.020, 0.05
"""A client lags whose p99 of lateness is above both: 20 ms, and that part of the control's median TTFT."""
BUSY_SHARE = 0.90
"""A client that takes more of a core than that measures itself."""
LOOP_LAG_S = 0.050
"""A client whose event loop wakes later than that (p99) stamps late."""
NOTHING = "nothing can be concluded about the faults"


def judge_trial(trial: Trial) -> list[Judgement]:
    """Everything that is judged the same way of every experiment; never empty."""
    seen = study(trial)
    numbers = evidence(seen)
    if dead := list(_crashes(trial, numbers)):
        return dead
    late = list(_lag(seen, numbers))
    if (failed := _gate(seen, numbers)) is not None:
        return [*late, failed]
    if trial.fault is None or not trial.fault.samples:
        why = "the arm with the faults was not run" if trial.fault is None else "no request came back in it"
        return [*late, _unknown(f"{NOTHING}: {why}", numbers)]
    doubts = [*late, *(_unknown(why, numbers) for why in _unproven(trial))]
    doubtful = late or _is_blind(trial)
    found = list(_doubtful(seen, doubts, numbers)) if doubtful else [*breaches(seen, numbers), *doubts]
    said = any(judgement.outcome is not Outcome.UNKNOWN for judgement in found)
    open_ones = [check.why for check in seen.checks if check.state is State.UNDECIDED and not (said and _moot(check))]
    if unseen := recovery_unseen(seen):
        open_ones.append(unseen)
    if open_ones:
        found.append(_unknown(f"too little to tell: {'; '.join(dict.fromkeys(open_ones))}", numbers))
    if not found:
        found = [Judgement(outcome=Outcome.OK, why=held(seen), layer=layer_of(seen), evidence=numbers)]
    return [*found, *_beside(trial)]


def _beside(trial: Trial) -> Iterator[Judgement]:
    """What was seen beside the load: deaths by our hand, what was freed, whether the health endpoint told the truth."""
    yield from judge_deaths(trial)
    yield from judge_release(trial)
    if trial.experiment.health:
        yield from judge_honesty(trial)


def gate(trial: Trial) -> Judgement | None:
    """Why nothing can be concluded from faults after what was seen without them; None where there is a steady state.

    A trial that has only its control can be asked, before its other arm is run.
    """
    seen = study(trial)
    numbers = evidence(seen)
    return next(_crashes(trial, numbers), None) or _gate(seen, numbers)


def _moot(check: Check) -> bool:
    """Whether nothing is known of streams because none began, which the errors say already."""
    return check.bound.metric == "integrity" and check.observed is None


def _unknown(why: str, numbers: Evidence) -> Judgement:
    return Judgement(outcome=Outcome.UNKNOWN, why=why, evidence=numbers)


# ── what makes everything else moot ──────────────────────────────────────────────────────────────


def _crashes(trial: Trial, numbers: Evidence) -> Iterator[Judgement]:
    for arm in (trial.control, trial.fault):
        if arm is not None and arm.server is not None and arm.server.ended:
            yield _crash(trial, arm, arm.server, numbers)


def _crash(trial: Trial, arm: Arm, end: ProcessEnd, numbers: Evidence) -> Judgement:
    known = recognise_lines(end.stderr_tail, flavour=trial.knowledge.flavour)
    words = next((one for one in reversed(known) if one.kind in ("dead", "out-of-memory", "position")), None)
    name = end.signal or signal_behind(end.exit_code)
    facts: dict[str, Value] = {
        "arm": arm.name,
        "signal": name,
        "exit_code": end.exit_code,
        "out_of_memory": end.out_of_memory,
        "peak_memory_bytes": end.peak_memory_bytes,
        "kind": words.kind if words else None,
        "last_words": (words.line if words else "".join(end.stderr_tail[-1:]))[:300],
    }
    when = "without any fault" if arm is trial.control else "in the arm with the faults"
    return Judgement(
        outcome=Outcome.CRASHED,
        why=f"the server {'was ' if name == 'SIGKILL' else ''}{how_it_ended(replace(end, signal=name))}, {when}",
        layer=words.layer if words else Layer.ENGINE,
        evidence={**numbers, **{fact: value for fact, value in facts.items() if value not in (None, "")}},
    )


def _gate(seen: Study, numbers: Evidence) -> Judgement | None:
    trial, fault = seen.trial, seen.trial.fault
    if trial.control is not None and trial.control.stopped:
        return _unknown(f"{NOTHING}: without them the arm was stopped ({trial.control.stopped})", numbers)
    if fault is not None and fault.stopped and last_sent_s(fault) < disturbances(trial.experiment)[0].start_s:
        return _unknown(f"{NOTHING}: the arm was stopped before the first of them ({fault.stopped})", numbers)
    broken = [check for check in seen.gate if check.state is State.BROKEN]
    if broken:
        said = "; ".join(f"{check.bound.text!r} ({check.why})" for check in broken)
        causes: dict[str, Value] = {
            f"{phase}_failed_{key(name)}": count
            for phase in dict.fromkeys(check.phase for check in broken)
            for name, count in seen.measured[phase].causes.most_common()
        }
        return _unknown(f"{NOTHING}: without them there is no steady state: {said}", {**numbers, **causes})
    if has_wrong_text(seen, Phase.CONTROL, Phase.BEFORE) and not _speaks_of_integrity(trial):
        return _unknown(f"{NOTHING}: without them streams come with wrong text", numbers)
    control = seen.measured.get(Phase.CONTROL)
    if trial.control is not None and (control is None or not control.n):
        return _unknown(f"{NOTHING}: no request came back in the arm without them", numbers)
    return None


def _speaks_of_integrity(trial: Trial) -> bool:
    return any(bound.metric == "integrity" for bound in trial.experiment.hypothesis)


# ── what puts everything else in doubt ───────────────────────────────────────────────────────────


def _lag(seen: Study, numbers: Evidence) -> Iterator[Judgement]:
    """UNKNOWN where the client itself was too slow for what it measured."""
    arms = (seen.trial.control, seen.trial.fault)
    workers = [worker for arm in arms if arm is not None for worker in arm.generators]
    limit_s = lateness_limit_s(seen)
    said = [words for worker in workers for words in _lagging(worker, limit_s)]
    if not said:
        return
    facts: dict[str, Value] = {
        "client_lateness_p99_s": shown(max(worker.lateness_s[2] for worker in workers)),
        "client_loop_lag_p99_s": shown(max(worker.loop_lag_s[2] for worker in workers)),
        "client_cpu_share": shown(max(_busy_share(worker) for worker in workers)),
        "client_lateness_limit_s": shown(limit_s),
    }
    more = f" (and {count(len(said) - 1, 'more sign')})" if len(said) > 1 else ""
    why = f"the client itself {said[0]}{more}: its times may be its own and not the target's"
    yield _unknown(why, {**numbers, **facts})


def lateness_limit_s(seen: Study) -> float:
    """How late a client may send (p99), by how long the undisturbed target takes to its first token."""
    undisturbed = seen.measured.get(Phase.CONTROL) or seen.measured.get(Phase.BEFORE)
    median_s = undisturbed.times("ttft").at(0.5) if undisturbed is not None else math.nan
    return max(LATENESS_S, LATENESS_SHARE * median_s) if math.isfinite(median_s) else LATENESS_S


def _busy_share(worker: GeneratorHealth) -> float:
    return worker.cpu_s / worker.wall_s if worker.wall_s > 0 else 0.0


def _lagging(worker: GeneratorHealth, limit_s: float) -> Iterator[str]:
    if worker.lateness_s[2] > limit_s:
        yield f"sent {shown_seconds(worker.lateness_s[2])} late (p99; at most {shown_seconds(limit_s)})"
    if _busy_share(worker) > BUSY_SHARE:
        yield f"took {_busy_share(worker):.0%} of a core (at most {BUSY_SHARE:.0%})"
    if worker.loop_lag_s[2] > LOOP_LAG_S:
        yield f"woke {shown_seconds(worker.loop_lag_s[2])} late (p99; at most {shown_seconds(LOOP_LAG_S)})"


def _evidence_of(trial: Trial) -> list[tuple[str, FaultEvidence | None]]:
    """Each placed fault's name and its evidence, in the order of the plan; None where none was recorded."""
    found = trial.fault.evidence if trial.fault is not None else ()
    faults = trial.experiment.faults
    return [(fault.name, found[place] if place < len(found) else None) for place, fault in enumerate(faults)]


def _unproven(trial: Trial) -> Iterator[str]:
    for name, one in _evidence_of(trial):
        if one is None or one.landed.proven is False:
            why = "nothing was recorded of it" if one is None else one.landed.why
            yield f"the fault {name} is not proven to have landed: {why}"


def _is_blind(trial: Trial) -> bool:
    """Whether a fault is not proven and none is: nothing is known to have acted."""
    proven = [one is not None and one.landed.proven for _, one in _evidence_of(trial)]
    return False in proven and True not in proven


def _doubtful(seen: Study, doubts: list[Judgement], numbers: Evidence) -> Iterator[Judgement]:
    """What can be said where times are not to be trusted, or nothing is known to have acted: the doubts, the first of
    them with what was broken meanwhile; and text that is wrong, which neither makes right."""
    wrong_text = has_wrong_text(seen)
    if wrong_text:
        yield damaged(seen, numbers, text_only=True)
    broken = [one.why for one in breaches(seen, numbers) if not (wrong_text and one.outcome is Outcome.STREAM_DAMAGED)]
    for place, doubt in enumerate(doubts):
        more = f"; so this stays unexplained: {'; '.join(broken)}" if broken and not place else ""
        yield Judgement(outcome=doubt.outcome, why=f"{doubt.why}{more}", layer=doubt.layer, evidence=doubt.evidence)
