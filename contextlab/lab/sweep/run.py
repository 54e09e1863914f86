"""The impure loop of `pareto`: asks the race what to measure, measures it, writes it down, tells the race.

    Race.ask ─▶ tasks of a block ─▶ evaluate (server, load) ─▶ Measurement ─▶ record ─▶ Race.tell ─▶ …

The record is all that there is: a run that was killed is resumed from it, and nothing is measured twice. What is
measured next follows from it alone, the budget included: what counts is the time that is on record as a measurement's
cost, from the end of the one before (or from the start) to its own end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import msgspec

from contextlab import registry
from contextlab.analysis.frontier import Membership, Status
from contextlab.analysis.quantities import count
from contextlab.analysis.racing import Race, Result, Task
from contextlab.analysis.sweeps import (
    GIVEN_UP,
    SWEEP,
    Concluded,
    Measurement,
    Sweep,
    conclude,
    objectives,
    read,
    reference_point,
    result_of,
)
from contextlab.lab.contention import MOST_OTHERS, calm
from contextlab.lab.provenance import shown_target
from contextlab.lab.run import Lab, Options
from contextlab.lab.sweep.batches import BatchEvaluator
from contextlab.lab.sweep.evaluate import Evaluator, How
from contextlab.lab.sweep.plan import Planned
from contextlab.model import (
    Finding,
    Judgement,
    Knowledge,
    Layer,
    Limits,
    Outcome,
    Record,
    Run,
    Settings,
    TargetSpec,
    UnableError,
    UsageError,
)

EXPECTED_START_S = 2.0
MOST_SPOILT = 3
"""After so many evaluations in a row that others' work spoilt, or that the client slept through, it is given up."""
SPOILS = {
    "the host was contended": "the host is contended",
    "the client was late": "the client is starved",
    "the client was lost": "the client is starved",
}
"""How the reason of an evaluation that the setting has nothing to do with begins, and what so many of them mean."""
CALM_WAIT_S = 20.0
HOPELESS = 0.05
"""Below this probability a setting does not keep an SLO, for all that can be told."""


class Asks(Protocol):
    """What says which setting is measured next: our own race, or Optuna's samplers."""

    def ask(self) -> list[Task]:
        """What to measure next; nothing where it is over."""
        ...

    def tell(self, results: Sequence[Result]) -> None:
        """What came of it."""
        ...


class Evaluates(Protocol):
    """What measures one setting."""

    def evaluate(
        self, settings: Settings, block: int, *, baseline: bool = False, at_most_s: float = ...
    ) -> Measurement:
        """Measure one setting once, within `at_most_s` as far as that is possible. Raises UnableError where there is
        nothing that could be measured, whatever the setting."""
        ...

    def close(self) -> None:
        """Release what runs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """What `pareto` adds to the options of a run. `search`: "race" or "optuna"."""

    planned: Planned
    how: How
    repeats: int = 3
    max_repeats: int = 10
    wait_s: float = CALM_WAIT_S
    search: str = "race"


def race_of(one: SweepOptions) -> Asks:
    """What says which setting is measured next, told nothing yet. Raises UsageError for a budget that is too small,
    UnableError where Optuna is not installed."""
    sweep, configs = one.planned.sweep, one.planned.configs
    expected_s = one.how.measure_s + EXPECTED_START_S
    if one.search == "optuna":
        from contextlab.lab.sweep.optuna_search import OptunaSearch

        return OptunaSearch(sweep, configs, budget_s=sweep.budget_s, expected_s=expected_s)
    return Race(
        list(configs),
        objectives(sweep),
        budget=sweep.budget_s,
        baseline=sweep.baseline,
        seed=sweep.seed,
        restarts=one.planned.restarts,
        repeats=one.repeats,
        max_repeats=one.max_repeats,
        confidence=sweep.confidence,
        expected_cost=expected_s,
        unit=" s",
    )


class Sweeper(Lab):
    """One sweep, new or resumed (`before`: the record of the run that was cut off).

    Raises UsageError, with nothing written, for a budget that is too small and for a run that swept something else.
    """

    NOUN = "sweep"

    def __init__(
        self,
        spec: TargetSpec,
        folder: Path,
        options: Options,
        listener: Callable[[Record], None] = lambda record: None,
        *,
        sweeping: SweepOptions,
        before: Run | None = None,
    ) -> None:
        self.sweeping = sweeping
        self.sweep: Sweep = sweeping.planned.sweep
        self._measurements: list[Measurement] = []
        self._reference: tuple[float, ...] | None = None
        if before is not None:
            self._measurements, self._reference = _resumable(before, self.sweep, spec)
        self._race = race_of(sweeping)
        self._race.tell([result_of(self.sweep, one) for one in self._measurements])
        self._goes_on = before is not None
        super().__init__(spec, folder, options, listener, resumed_s=_end_s(before) if before is not None else None)

    def run_sweep(self) -> int:
        """Run the sweep to its budget's end, and return the exit code; errors as in `Lab.run`."""
        return self._session(lambda known: self._sweep())

    @contextmanager
    def _serving(self) -> Iterator[None]:
        """Servers come and go with the settings; none is there beforehand."""
        yield

    def _open(self) -> Knowledge:
        return Knowledge(flavour="", model="", limits=Limits())

    def _sweep(self) -> None:
        measurements, race = self._measurements, self._race
        self._journal.append("sweep", sweep=self.sweep, resumed=self._goes_on)
        evaluator = self._evaluator()
        try:
            given_up = self._run_race(race, evaluator, measurements, self._reference)
        except UnableError:
            if measurements:
                self._conclude(race, measurements)
            raise
        finally:
            evaluator.close()
        self._conclude(race, measurements)
        if given_up:
            self._conclude_with(Judgement(outcome=Outcome.UNKNOWN, why=given_up), GIVEN_UP)

    def _evaluator(self) -> Evaluates:
        if registry.runs_in_child(self.spec):
            return BatchEvaluator(
                spec=self.spec,
                sweep=self.sweep,
                restarts=self.sweeping.planned.restarts,
                folder=self.folder,
                began_s=self._began_s,
                trust_host=self.sweeping.how.trust_host,
                memory_limit_bytes=self.options.memory_limit_bytes,
            )
        return Evaluator(
            spec=self.spec,
            sweep=self.sweep,
            restarts=self.sweeping.planned.restarts,
            how=replace(self.sweeping.how, memory_limit_bytes=self.options.memory_limit_bytes),
            folder=self.folder,
            began_s=self._began_s,
            progress=lambda text: self.listener({"kind": "progress", "text": text}),
        )

    def _run_race(
        self,
        race: Asks,
        evaluator: Evaluates,
        measurements: list[Measurement],
        reference: tuple[float, ...] | None,
    ) -> str:
        """Measure until the race has nothing more to ask; why it was given up before that, else ""."""
        spoilt, calm_so_far = "", False
        num_spoilt = 0
        first_block = measurements[0].block if measurements else 0
        left_s = self.sweep.budget_s - sum(one.cost_s for one in measurements)
        mark_s = time.monotonic()
        while tasks := race.ask():
            for task in tasks:
                if not calm_so_far and (why := self._unrest()):
                    return why
                self.listener({"kind": "progress", "settings": task.settings, "block": task.block})
                at_most_s = max(1.0, left_s - (time.monotonic() - mark_s))
                found = evaluator.evaluate(task.settings, task.block, baseline=task.baseline, at_most_s=at_most_s)
                now_s = time.monotonic()
                measurement = replace(found, cost_s=round(now_s - mark_s, 3))
                left_s, mark_s = left_s - measurement.cost_s, now_s
                self._journal.append("measurement", measurement=measurement)
                measurements.append(measurement)
                race.tell([result_of(self.sweep, measurement)])
                if reference is None and task.block > first_block:
                    reference = self._refer([one for one in measurements if one.block < task.block])
                calm_so_far = float(measurement.facts.get("others_cores") or 0.0) <= MOST_OTHERS / 2
                cause = next((SPOILS[what] for what in SPOILS if measurement.why.startswith(what)), "")
                num_spoilt = num_spoilt + 1 if cause and cause == spoilt else 1 if cause else 0
                spoilt = cause
                if num_spoilt >= MOST_SPOILT:
                    return f"{cause}: {num_spoilt} evaluations in a row were spoilt ({measurement.why})"
        if reference is None:
            self._refer(measurements)
        return ""

    def _unrest(self) -> str:
        """Wait until the host is calm; why it is not, after as long as the user would wait."""
        if self.sweeping.how.trust_host:
            return ""
        is_calm, used = calm(self.sweeping.wait_s)
        if is_calm:
            return ""
        return (
            f"the host is contended: others used {used:.1f} cores (at most {MOST_OTHERS}) for "
            f"{self.sweeping.wait_s:g} s; go on when it is calm: --resume {self.folder}"
        )

    def _refer(self, measurements: Sequence[Measurement]) -> tuple[float, ...] | None:
        """Fix the point against which the hypervolume counts, once: the worst of what the screen saw."""
        found = reference_point(self.sweep, measurements)
        if found is not None:
            self._journal.append("reference", reference=found)
        return found

    def _conclude(self, race: Asks, measurements: Sequence[Measurement]) -> None:
        found = conclude(self.sweep, measurements)
        if isinstance(race, Race):
            self._journal.append("undecided", undecided=race.why_undecided(found.frontier), drift=race.drift())
        self._conclude_with(judged(found), "frontier")

    def _conclude_with(self, judgement: Judgement, probe: str) -> None:
        self._found(
            Finding(
                scenario=SWEEP,
                probe=probe,
                outcome=judgement.outcome,
                verdict=self.options.policy.verdict(judgement.outcome, frozenset({Outcome.OK})),
                layer=judgement.layer,
                why=judgement.why,
                evidence=judgement.evidence,
            )
        )


def judged(found: Concluded) -> Judgement:
    """What a sweep comes to: a frontier; none (all crashed, refused or invalid); or an SLO that nothing keeps."""
    result, sweep = found.frontier, found.sweep
    members = [one for one in result.standings if one.membership is Membership.MEMBER]
    numbers: dict[str, int | float | str | bool | None] = {
        "settings_measured": len(found.points),
        "evaluations": len(found.measurements),
        "members": len(members),
        "undecided": sum(one.membership is Membership.UNDECIDED for one in result.standings),
    }
    for status in (Status.INFEASIBLE, Status.CRASHED, Status.INVALID):
        numbers[status.value] = sum(point.status is status for point in found.points)
    if not result.compared:
        why = next((point.why for point in found.points if point.why), "nothing was measured")
        return Judgement(outcome=Outcome.UNKNOWN, why=f"no setting could be compared: {why}", evidence=numbers)
    goals = " against ".join(goal.text for goal in sweep.goals[:2])
    are = "is" if len(members) == 1 else "are"
    words = f"{len(members)} of {count(len(found.points), 'setting')} {are} on the frontier of {goals} for sure"
    if found.one_of:
        numbers["groups"] = len(found.one_of)
        groups = len(found.one_of)
        words += f", and one {'of a group' if groups == 1 else f'in each of {groups} groups'}"
        words += " that the noise does not tell apart"
    if numbers["undecided"]:
        words += f", {numbers['undecided']} undecided"
    if found.recommended is None:
        return Judgement(outcome=Outcome.OK, why=words, layer=Layer.ENGINE, evidence=numbers)
    best = found.recommended
    if best.standing is not None:
        why = f"{words}; best under the SLO: {registry.shown_settings(best.standing.point.settings)}"
        return Judgement(outcome=Outcome.OK, why=why, layer=Layer.ENGINE, evidence=numbers)
    likeliest = max((share for share in best.feasible if share is not None), default=None)
    hopeless = likeliest is not None and likeliest <= HOPELESS
    outcome = Outcome.BOUND_BROKEN if hopeless else Outcome.UNKNOWN
    return Judgement(outcome=outcome, why=f"{best.why}; {words}", layer=Layer.ENGINE, evidence=numbers)


def _end_s(run: Run) -> float:
    return max((float(record.get("at_s", 0.0)) for record in run.records), default=0.0)


def _resumable(run: Run, sweep: Sweep, spec: TargetSpec) -> tuple[list[Measurement], tuple[float, ...] | None]:
    """What a run that was cut off had measured. Raises UsageError where it is damaged or swept something else."""
    try:
        was, measurements, reference = read(run.records)
    except msgspec.ValidationError as error:
        raise UsageError(f"--resume {run.path}: damaged: {error}", "run the command anew, without --resume") from None
    if was is None:
        raise UsageError(f"--resume {run.path}: holds no sweep", "name a run of contextlab pareto")
    parts = {"axes": "axes", "goals": "goals", "fixed": "fixed settings", "baseline": "baseline", "how": "prompts"}
    other = [words for name, words in parts.items() if getattr(was, name) != getattr(sweep, name)]
    theirs, ours = run.header.get("target"), shown_target(spec)
    if isinstance(theirs, dict) and (theirs.get("scheme"), theirs.get("address")) != (ours.scheme, ours.address):
        other.insert(0, "target")
    if other:
        message = f"--resume {run.path}: it had other words for: {', '.join(other)}"
        raise UsageError(message, "repeat the words of that run's command")
    return list(measurements), reference
