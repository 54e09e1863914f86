# ruff: noqa: T201
"""What the search of `pareto` costs against measuring the whole grid, on simulated systems whose truth is known.

    python -m benchmarks.search                       # twenty systems, 5 repeats, noise 5 %; about two minutes
    python -m benchmarks.search --repeats 3 --noise 0.1 --seeds 3
    python -m benchmarks.search --frontier 60         # how often the frontier is wrong, by shape; six minutes
    python -m benchmarks.search --real                # once on smollm2, against its whole grid; about seven minutes
    python -m benchmarks.search --real fake:caps --sweep slots=1,2,4 --sweep concurrency=1,2,4,8 --measure 0.3

The grid: every setting `--repeats` times, in blocks that each hold all of them and the baseline, server by server.
The search: a `Race` whose budget is a third of that. Both pay the seconds of each evaluation and of each restart. The
search has reached the goal when the settings that look best have a hypervolume of 98 % of the whole grid's, both by the
true values, against the frontier's worst corner and a tenth. Which settings may look best is counted in two ways:

    named      all that were measured, as the report's frontier names them: members, and what is still undecided
    confirmed  only those that have `--repeats` repeats already

If it does not get there, it is run again with half, two thirds and all of the grid's cost, and the first that does
counts.

With `--real` the truth is not known, and the best of many noisy values is flattered. So what either of them chose is
measured once more, and only these fresh values say what its settings are worth; the interval is that of resampling
them. The search has a third.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean, median, stdev
from sys import path

path.insert(0, str(Path(__file__).parent.parent))

from contextlab import registry
from contextlab.analysis.axes import config_hash, restarting_rarely, server_part
from contextlab.analysis.frontier import Objective, Status, best_of
from contextlab.analysis.racing import Race, Result, Task
from contextlab.analysis.sweeps import objectives, result_of
from contextlab.analysis.tradeoffs import more, volume
from contextlab.lab.sweep.evaluate import Evaluator, How
from contextlab.lab.sweep.plan import Planned, planned
from tests.quality.systems import System, search_systems
from tests.quality.test_frontier import Count, systems

GOAL = 0.98
SHARES = (1 / 3, 1 / 2, 2 / 3, 1.0)
REAL_AXES = ("slots=1,2,4", "context=512,2048", "concurrency=1,2,3,6")
REAL_LOAD = ("prompt_tokens=16", "reply_tokens=8")
REAL_GOALS = ("up:tokens_per_s", "down:p90 ttft")
REAL_REPEATS, FRESH_REPEATS = 3, 4
LEAST_GRID = 9
RESAMPLES = 2000
WAYS = ("named", "confirmed")
Told = Mapping[int, Sequence[tuple[float, ...]]]
"""Values of the usable repeats, by the setting's place in the grid."""


@dataclass(frozen=True, slots=True)
class Searched:
    """One search. By way of counting (`WAYS`): `ratio`, cost when the goal was reached, of the grid's (inf: it was
    not), and `volume`, at the end."""

    ratio: Mapping[str, float]
    volume: Mapping[str, float]
    measured: float


def reference(system: System) -> tuple[float, ...]:
    """The frontier's worst value of each objective, and a tenth worse."""
    best = [system.truth[i] for i in system.on_frontier()]
    return min(v[0] for v in best) * 0.9, max(v[1] for v in best) * 1.1


def grid_cost_s(system: System, repeats: int) -> float:
    """Seconds for the whole grid: each block holds every setting and the baseline, each server started once."""
    servers = {server_part(config, system.restarts) for config in system.configs}
    return repeats * ((len(system.configs) + 1) * system.length_s + len(servers) * system.restart_s)


def searched(system: System, seed: int, repeats: int, cv: float, share: float) -> Searched:
    """Race on a simulated system with a share of the grid's cost."""
    rng, full_s = Random(f"{seed}{system.name}{repeats}{cv}"), grid_cost_s(system, repeats)
    floor = reference(system)
    whole = volume(system.truth, system.objectives, floor)
    places = {config_hash(config): i for i, config in enumerate(system.configs)}
    race = Race(
        system.configs,
        system.objectives,
        budget=share * full_s,
        baseline=system.configs[system.baseline],
        seed=seed,
        restarts=system.restarts,
        repeats=repeats,
        max_repeats=max(10, repeats),
        expected_cost=system.length_s + system.restart_s / 2,
        restart_cost=system.restart_s,
    )
    told: dict[int, list[tuple[float, ...]]] = {}
    spent, running = 0.0, None
    reached, last = dict.fromkeys(WAYS, math.inf), dict.fromkeys(WAYS, 0.0)
    while tasks := race.ask():
        for task in tasks:
            place = places[config_hash(task.settings)]
            server = server_part(task.settings, system.restarts)
            cost = system.length_s + (0.0 if server == running else system.restart_s)
            running, spent = server, spent + cost
            values = system.measure(place, rng, (cv,) * len(system.objectives))
            told.setdefault(place, []).append(values)
            race.tell([Result(settings=task.settings, block=task.block, values=values, cost=cost)])
            for way, least in zip(WAYS, (1, repeats), strict=True):
                chosen = [system.truth[k] for k in best_looking(told, system.objectives, least)]
                last[way] = volume(chosen, system.objectives, floor) / whole
                if last[way] >= GOAL:
                    reached[way] = min(reached[way], spent / full_s)
    return Searched(ratio=reached, volume=last, measured=len(told) / len(system.configs))


def best_looking(told: Told, goals: Sequence[Objective], least: int) -> list[int]:
    """The settings on the frontier of the means, of those with so many repeats at least."""
    done = [place for place, values in told.items() if len(values) >= least]
    best = best_of([more(_mean(told[place]), goals) for place in done])
    return [done[k] for k in best]


# ── on a real engine ─────────────────────────────────────────────────────────────────────────────


class Engine:
    """A real target that is measured, and the seconds that it took. `told` holds what came of the settings."""

    def __init__(self, plan: Planned, evaluator: Evaluator) -> None:
        self.plan, self.evaluator = plan, evaluator
        self.goals = objectives(plan.sweep)
        self.places = {config_hash(config): place for place, config in enumerate(plan.configs)}

    def measured(self, task: Task, told: dict[int, list[tuple[float, ...]]]) -> Result:
        """Measure a task, and add its values where they can be used."""
        began = time.monotonic()
        measurement = self.evaluator.evaluate(task.settings, task.block)
        result = result_of(self.plan.sweep, measurement)
        cost = time.monotonic() - began
        if result.status is Status.OK:
            told.setdefault(self.places[config_hash(task.settings)], []).append(result.values)
        return Result(
            settings=result.settings,
            block=result.block,
            values=result.values,
            status=result.status,
            why=result.why,
            final=result.final,
            cost=cost,
            start_cost=result.start_cost,
        )

    def block(self, places: Sequence[int], number: int, told: dict[int, list[tuple[float, ...]]]) -> float:
        """Measure these settings once each, in random order, but server by server; the seconds that it took."""
        began = time.monotonic()
        tasks = [Task(settings=self.plan.configs[place], block=number) for place in places]
        for task in restarting_rarely(tasks, self.server, Random(number)):
            self.measured(task, told)
        return time.monotonic() - began

    def server(self, task: Task) -> object:
        """The part of a task for which a server is started anew."""
        return server_part(task.settings, self.plan.restarts)

    def share(self, places: Sequence[int], of: Sequence[int], fresh: Told) -> float:
        """The hypervolume of settings, of that of others, by values that had no part in choosing them; against the
        others' worst corner and a tenth."""
        best = [_mean(fresh[place]) for place in of if place in fresh]
        floor = min(v[0] for v in best) * 0.9, max(v[1] for v in best) * 1.1
        mine = [_mean(fresh[place]) for place in places if place in fresh]
        return volume(mine, self.goals, floor) / volume(best, self.goals, floor)


def _mean(values: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(math.exp(fmean(map(math.log, column))) for column in zip(*values, strict=True))


def search_real(target: str, axes: Sequence[str], measure_s: float) -> None:
    """The whole grid, then the search with a third of its seconds, then what both chose once more."""
    spec = registry.parse_target(target)
    plan = planned(spec, axes=axes, fixed=REAL_LOAD, goals=REAL_GOALS, budget_s=3600.0, seed=1)
    if len(plan.configs) < LEAST_GRID:
        raise SystemExit(f"--sweep: {len(plan.configs)} settings; of fewer than {LEAST_GRID} a third is no search")
    with tempfile.TemporaryDirectory() as folder:
        evaluator = Evaluator(
            spec=spec,
            sweep=plan.sweep,
            restarts=plan.restarts,
            how=How(measure_s=measure_s, trust_host=True),
            folder=Path(folder),
            began_s=time.monotonic(),
        )
        try:
            _search_real(Engine(plan, evaluator))
        finally:
            evaluator.close()


def _search_real(engine: Engine) -> None:
    plan = engine.plan
    everything = range(len(plan.configs))
    grid: dict[int, list[tuple[float, ...]]] = {}
    grid_s = sum(engine.block(everything, number, grid) for number in range(REAL_REPEATS))
    by_grid = best_looking(grid, engine.goals, REAL_REPEATS)
    if not by_grid:
        raise SystemExit(f"no setting could be measured {REAL_REPEATS} times")
    spreads = [
        stdev(map(math.log, column))
        for values in grid.values()
        if len(values) > 1
        for column in zip(*values, strict=True)
    ]
    print(
        f"grid: {len(plan.configs)} settings, {REAL_REPEATS} repeats: {grid_s:.0f} engine-seconds, "
        f"{len(by_grid)} settings on its frontier; noise of a repeat {median(spreads):.1%} (median)",
        flush=True,
    )
    told: dict[int, list[tuple[float, ...]]] = {}
    steps: list[tuple[float, dict[str, list[int]]]] = []
    race = Race(
        list(plan.configs),
        engine.goals,
        budget=grid_s * SHARES[0],
        baseline=plan.sweep.baseline,
        restarts=plan.restarts,
        repeats=REAL_REPEATS,
        expected_cost=grid_s / REAL_REPEATS / len(plan.configs),
    )
    engine.evaluator.close()  # both begin without a server
    spent = 0.0
    while tasks := race.ask():
        for task in tasks:
            result = engine.measured(task, told)
            spent += result.cost
            race.tell([result])
            chosen = {
                way: best_looking(told, engine.goals, least) for way, least in zip(WAYS, (1, REAL_REPEATS), strict=True)
            }
            steps.append((spent, chosen))
    print(f"search: {len(steps)} evaluations of {len(told)} settings: {spent:.0f} engine-seconds", flush=True)
    wanted = sorted({*by_grid, *(place for _, chosen in steps for way in WAYS for place in chosen[way])})
    fresh: dict[int, list[tuple[float, ...]]] = {}
    fresh_s = sum(engine.block(wanted, 100 + number, fresh) for number in range(FRESH_REPEATS))
    print(f"both once more: {len(wanted)} settings, {fresh_s:.0f} engine-seconds", flush=True)
    draws = [_resampled(fresh, Random(number)) for number in range(RESAMPLES)]
    for way in WAYS:
        shares = [(cost, engine.share(chosen[way], by_grid, fresh)) for cost, chosen in steps]
        reached = next((cost / grid_s for cost, share in shares if share >= GOAL), None)
        ends = sorted(engine.share(steps[-1][1][way], by_grid, draw) for draw in draws)
        low, high = ends[int(0.025 * RESAMPLES)], ends[int(0.975 * RESAMPLES)]
        print(
            f"{way}: to {GOAL:.0%} of the grid's hypervolume: "
            + (f"{reached:.3f} of the grid's engine-seconds" if reached is not None else "not")
            + f"; at its end ({spent / grid_s:.3f}): {shares[-1][1]:.3f} ({low:.2f} to {high:.2f}), "
            + f"{len(steps[-1][1][way])} settings"
        )


def _resampled(fresh: Told, rng: Random) -> Told:
    """The fresh values as they might have come as well."""
    return {place: rng.choices(values, k=len(values)) for place, values in fresh.items()}


def judge_frontier(seeds: int) -> None:
    """False and missed members of every shape, noise and number of repeats; `naive`: single runs."""
    total = Count()
    for cv in (0.05, 0.10):
        for repeats in (3, 5):
            for shape in range(len(systems(0))):
                count = Count()
                for seed in range(seeds):
                    for one in (count, total):
                        one.add(systems(seed)[shape], cv, repeats, seed)
                print(f"{systems(0)[shape].name:10} noise {cv:.0%} repeats {repeats}: {count.words()}", flush=True)
    print(f"all: {total.words()}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the search on every system and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="of each setting, in grid and search")
    parser.add_argument("--noise", type=float, default=0.05, help="standard deviation of a repeat, relative")
    parser.add_argument("--seeds", type=int, default=1, help="how often each system is searched")
    parser.add_argument("--frontier", type=int, default=0, metavar="SEEDS", help="judge the frontier instead")
    parser.add_argument("--real", nargs="?", const="smollm2", metavar="TARGET", help="on a real engine, once")
    parser.add_argument("--sweep", action="append", metavar="AXIS", help="what is swept there")
    parser.add_argument("--measure", type=float, default=1.2, help="seconds of a steady part there, at least")
    asked = parser.parse_args(arguments)
    if asked.real:
        search_real(asked.real, asked.sweep or REAL_AXES, asked.measure)
        return
    if asked.frontier:
        judge_frontier(asked.frontier)
        return
    print(f"{'':19}named: cost to 98 %, volume at a third    confirmed: the same     measured   (medians of seeds)")
    ratios: dict[str, list[float]] = {way: [] for way in WAYS}
    volumes: dict[str, list[float]] = {way: [] for way in WAYS}
    thirds = dict.fromkeys(WAYS, 0)
    for number, system in enumerate(search_systems()):
        firsts: list[Searched] = []
        costs: dict[str, list[float]] = {way: [] for way in WAYS}
        for seed in range(asked.seeds):
            first = searched(system, 1000 * seed + number, asked.repeats, asked.noise, SHARES[0])
            firsts.append(first)
            ratio = dict(first.ratio)
            for share in SHARES[1:]:
                if math.inf in ratio.values():
                    later = searched(system, 1000 * seed + number, asked.repeats, asked.noise, share)
                    ratio = {way: one if one < math.inf else later.ratio[way] for way, one in ratio.items()}
            for way in WAYS:
                costs[way].append(ratio[way])
        words = ""
        for way in WAYS:
            ratios[way] += costs[way]
            volumes[way] += [one.volume[way] for one in firsts]
            thirds[way] += sum(one.ratio[way] <= SHARES[0] + 0.005 for one in firsts)
            words += f"{median(costs[way]):16.3f}{median(one.volume[way] for one in firsts):10.3f}"
        measured = median(one.measured for one in firsts)
        print(f"{system.name:10}{len(system.configs):9}{words}{measured:16.2f}", flush=True)
    print(f"\n{asked.repeats} repeats, noise {asked.noise:.0%}, {20 * asked.seeds} searches:")
    for way in WAYS:
        print(
            f"{way}: median {median(ratios[way]):.3f} of the grid's cost, worst {max(ratios[way]):.3f}; within a "
            f"third: {thirds[way]} of {len(ratios[way])}; hypervolume with a third: median {median(volumes[way]):.3f}, "
            f"worst {min(volumes[way]):.3f}"
        )


if __name__ == "__main__":
    main()
