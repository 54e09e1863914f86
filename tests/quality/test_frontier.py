"""How often the frontier says what is not so, on simulated systems whose frontier is known.

False member: called MEMBER, and another setting dominates it by more than a tie. Missed: called DOMINATED, and nothing
dominates it. What is not sure is UNDECIDED, which is neither; how much that is, is printed (pytest -s). False group:
said to hold one of the frontier, and does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from contextlab.analysis.frontier import Membership, best_of, frontier
from contextlab.analysis.tradeoffs import more, one_of
from tests.quality.systems import MEMORY, System, concave, kneed, near_ties, queue

SEEDS = range(100, 104)
RESAMPLES = 400
MOST_FALSE, MOST_MISSED = 0.02, 0.05


@dataclass(slots=True)
class Count:
    """What was said of many points, and how much of it was wrong; `naive`: by point dominance on one repeat each."""

    points: int = 0
    members: int = 0
    false_members: int = 0
    true_members: int = 0
    dominated: int = 0
    missed: int = 0
    undecided: int = 0
    naive_members: int = 0
    naive_false: int = 0
    groups: int = 0
    false_groups: int = 0

    def add(self, system: System, cv: float, repeats: int, seed: int) -> None:
        """Judge one system, measured once."""
        points = system.points(Random(f"{seed}{cv}{repeats}{system.name}"), noises(system, cv), repeats)
        result = frontier(points, system.objectives, seed=seed, resamples=RESAMPLES)
        on, near = system.on_frontier(), system.near_frontier()
        for place, standing in enumerate(result.standings):
            self.points += 1
            self.members += standing.membership is Membership.MEMBER
            self.false_members += standing.membership is Membership.MEMBER and place not in near
            self.missed += standing.membership is Membership.DOMINATED and place in on
            self.undecided += standing.membership is Membership.UNDECIDED
        best = [system.configs[place] for place in near]
        for group in one_of(result):
            self.groups += 1
            self.false_groups += not any(settings in best for settings in group.settings)
        self.true_members += len(on)
        self.dominated += len(points) - len(near)
        single = best_of([more(point.repeats[0], system.objectives) for point in points])
        self.naive_members += len(single)
        self.naive_false += sum(place not in near for place in single)

    def words(self) -> str:
        """All of it in one line."""
        return (
            f"{self.points} points, {self.members} called members, false {self.false_members} "
            f"({self.false_members / max(1, self.members):.1%} of them, {self.false_members / self.dominated:.2%} of "
            f"all dominated), missed {self.missed / self.true_members:.1%} of {self.true_members}, "
            f"undecided {self.undecided / self.points:.0%}, {self.groups} groups, false {self.false_groups}; "
            f"naive {self.naive_false / self.naive_members:.1%} false"
        )


def noises(system: System, cv: float) -> tuple[float, ...]:
    """Relative noise by objective; that of memory is small, so that it is tied for sure or not at all."""
    return tuple(0.002 if objective is MEMORY else cv for objective in system.objectives)


def systems(seed: int) -> list[System]:
    """One of each shape."""
    small = queue(seed, slots=(1, 2, 4), batch=(128, 512), concurrency=(1, 2, 4, 8))
    three = queue(seed, slots=(1, 2, 4), batch=(128, 512), concurrency=(1, 2, 4, 8), memory=True)
    return [concave(seed), near_ties(seed), kneed(seed), small, three]


@pytest.fixture(scope="module")
def counted() -> dict[float, Count]:
    """Everything, by noise."""
    found = {0.05: Count(), 0.10: Count()}
    for cv, count in found.items():
        for seed in SEEDS:
            for repeats in (3, 5):
                for system in systems(seed):
                    count.add(system, cv, repeats, seed)
    return found


def test_false_and_missed_members_are_rare(counted: dict[float, Count]) -> None:
    members = sum(count.members for count in counted.values())
    false = sum(count.false_members for count in counted.values())
    missed = sum(count.missed for count in counted.values())
    true = sum(count.true_members for count in counted.values())
    for cv, count in counted.items():
        print(f"noise {cv:.0%}: {count.words()}")  # noqa: T201 - for whoever asks: pytest -s
    assert members > 100
    assert false <= MOST_FALSE * members
    assert missed <= MOST_MISSED * true
    for count in counted.values():
        assert count.false_members <= MOST_FALSE * count.dominated
        assert count.missed <= MOST_MISSED * count.true_members


def test_a_group_that_holds_none_of_the_frontier_is_rare(counted: dict[float, Count]) -> None:
    groups, false = (sum(getattr(count, name) for count in counted.values()) for name in ("groups", "false_groups"))
    assert groups > 50
    assert false <= MOST_FALSE * groups


def test_a_single_run_is_wrong_ten_times_as_often(counted: dict[float, Count]) -> None:
    for count in counted.values():
        assert count.naive_false / count.naive_members > 0.1
        assert count.naive_false / count.naive_members > 5 * count.false_members / max(1, count.members)


def test_what_cannot_be_told_is_said_to_be_undecided(counted: dict[float, Count]) -> None:
    assert 0 < counted[0.05].undecided < counted[0.05].points
    assert counted[0.10].undecided > counted[0.05].undecided
