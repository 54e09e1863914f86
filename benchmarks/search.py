# ruff: noqa: T201
"""What the search of `pareto` costs against measuring the whole grid, on simulated systems whose truth is known.

    python -m benchmarks.search                       # twenty systems, 5 repeats, noise 5 %; about two minutes
    python -m benchmarks.search --repeats 3 --noise 0.1 --seeds 3
    python -m benchmarks.search --frontier 60         # how often the frontier is wrong, by shape; six minutes

The grid: every setting `--repeats` times, in blocks that each hold all of them and the baseline, server by server.
The search: a `Race` whose budget is a third of that. Both pay the seconds of each evaluation and of each restart. The
search has reached the goal when the settings that have `--repeats` repeats, and that look best among those, have a
hypervolume of 98 % of the whole grid's, both by the true values, against the frontier's worst corner and a tenth. If it
does not get there, it is run again with half, two thirds and all of the grid's cost, and the first that does counts.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean, median
from sys import path

path.insert(0, str(Path(__file__).parent.parent))

from contextlab.analysis.axes import config_hash, server_part
from contextlab.analysis.frontier import best_of
from contextlab.analysis.racing import Race, Result
from contextlab.analysis.tradeoffs import more, volume
from tests.quality.systems import System, search_systems
from tests.quality.test_frontier import Count, systems

GOAL = 0.98
SHARES = (1 / 3, 1 / 2, 2 / 3, 1.0)


@dataclass(frozen=True, slots=True)
class Searched:
    """One search. `ratio`: cost when the goal was reached, of the grid's; inf: it was not. `volume`: at the end."""

    ratio: float
    volume: float
    spent: float
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
    spent, reached, last, running = 0.0, math.inf, 0.0, None
    while tasks := race.ask():
        for task in tasks:
            place = places[config_hash(task.settings)]
            server = server_part(task.settings, system.restarts)
            cost = system.length_s + (0.0 if server == running else system.restart_s)
            running, spent = server, spent + cost
            values = system.measure(place, rng, (cv,) * len(system.objectives))
            told.setdefault(place, []).append(values)
            race.tell([Result(settings=task.settings, block=task.block, values=values, cost=cost)])
            last = found(system, told, repeats, floor) / whole
            if last >= GOAL and spent / full_s < reached:
                reached = spent / full_s
    return Searched(ratio=reached, volume=last, spent=spent / full_s, measured=len(told) / len(system.configs))


def found(system: System, told: dict[int, list[tuple[float, ...]]], repeats: int, floor: tuple[float, ...]) -> float:
    """The true hypervolume of the settings that look best among those with all repeats."""
    done = [place for place, values in told.items() if len(values) >= repeats]
    means = [
        tuple(math.exp(fmean(map(math.log, column))) for column in zip(*told[place], strict=True)) for place in done
    ]
    best = best_of([more(mean, system.objectives) for mean in means])
    return volume([system.truth[done[k]] for k in best], system.objectives, floor)


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
    asked = parser.parse_args(arguments)
    if asked.frontier:
        judge_frontier(asked.frontier)
        return
    print(
        f"{'system':10}{'settings':>9}{'cost to reach 98 %':>20}{'at a third':>12}{'measured':>10}   (medians of seeds)"
    )
    ratios, thirds, volumes = [], 0, []
    for number, system in enumerate(search_systems()):
        firsts, costs = [], []
        for seed in range(asked.seeds):
            first = searched(system, 1000 * seed + number, asked.repeats, asked.noise, SHARES[0])
            firsts.append(first)
            ratio = first.ratio
            for share in SHARES[1:]:
                if math.isinf(ratio):
                    ratio = searched(system, 1000 * seed + number, asked.repeats, asked.noise, share).ratio
            costs.append(ratio)
        ratios += costs
        volumes += [one.volume for one in firsts]
        thirds += sum(one.ratio <= SHARES[0] + 0.005 for one in firsts)
        print(
            f"{system.name:10}{len(system.configs):9}{median(costs):20.3f}"
            f"{median(one.volume for one in firsts):12.3f}{median(one.measured for one in firsts):10.2f}",
            flush=True,
        )
    print(
        f"\n{asked.repeats} repeats, noise {asked.noise:.0%}, {len(ratios)} searches: "
        f"median {median(ratios):.3f} of the grid's cost, worst {max(ratios):.3f};\n"
        f"within a third: {thirds} of {len(ratios)}; hypervolume with a third: "
        f"median {median(volumes):.3f}, worst {min(volumes):.3f}"
    )


if __name__ == "__main__":
    main()
