"""A load on a cache of two tiers played through in virtual time: what will happen to each request of a schedule. Pure.

    due request ─▶ local LRU ─▶ under way? ─▶ filter ─▶ breaker ─▶ Redis, unless it is out ─▶ the target's queue ─▶ kept

`coupled` says what is to be expected of a load; this says it of the requests that are really due, so that what was
measured can be held against it without chance in between. The target is a queue: `answer_s` seconds for one answer
alone, at most `num_slots` answers at a time, and together never faster than `abreast` of them (two processors that
share four streams are not four). Nothing here is the cache's own code.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from contextlab.analysis.coupled import Figures
from contextlab.deeds import Tier

LOCAL, REDIS, JOINED, ORIGIN = "local", "redis", "joined", "origin"
FITS = 24
LEAST_ABREAST = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What a schedule meets. `outages`: (start, end) of each time in which Redis serves nothing; `forgets`: it is empty
    afterwards; `wait_s`: what a vain ask of it takes. `patience_s`: when clients give up. All empty at time 0."""

    tier: Tier
    answer_s: float
    num_slots: int
    abreast: float
    outages: tuple[tuple[float, float], ...] = ()
    forgets: bool = True
    wait_s: float = 0.0
    patience_s: float = math.inf


@dataclass(slots=True)
class _Job:
    """One answer that the target owes: what is left of it, and when the last who wants it gives up."""

    key: int
    began_s: float
    left_s: float
    until_s: float


@dataclass(slots=True)
class Played:
    """What became of the requests: (when it was due, its key, which of the four ways), and the target's answers:
    (when it was whole, how long it took). `opened`: when the breaker opened; `open_s`: (from, to) not closed."""

    ways: list[tuple[float, int, str]] = field(default_factory=list)
    answers: list[tuple[float, float]] = field(default_factory=list)
    opened: list[float] = field(default_factory=list)
    open_s: list[tuple[float, float]] = field(default_factory=list)

    def mean_answer_s(self, until_s: float) -> float:
        """Seconds that an answer of the target took, of those that were whole by then; 0 where none was."""
        took = [took_s for at_s, took_s in self.answers if at_s <= until_s]
        return sum(took) / len(took) if took else 0.0

    def figures(self, start_s: float, length_s: float) -> Figures | None:
        """The figures of a window; None where nothing was due in it."""
        inside = [(key, way) for at_s, key, way in self.ways if start_s <= at_s < start_s + length_s]
        if not inside:
            return None
        ways = Counter(way for _, way in inside)
        num, num_keys = len(inside), len({key for key, _ in inside})
        return Figures(
            local=ways[LOCAL] / num,
            redis=ways[REDIS] / num,
            joined=ways[JOINED] / num,
            origin=ways[ORIGIN] / num,
            amplification=ways[ORIGIN] / num_keys,
            breaker_open_s=sum(max(0.0, to_s - max(from_s, start_s)) for from_s, to_s in self.open_s),
            breaker_openings=float(sum(at_s >= start_s for at_s in self.opened)),
            num_requests=float(num),
            num_keys=float(num_keys),
        )


def played(stage: Stage, schedule: Sequence[tuple[float, int]]) -> Played:
    """Play (due time, key) through, the earliest first."""
    return _Play(stage).run(schedule)


def abreast_of(stage: Stage, schedule: Sequence[tuple[float, int]], until_s: float, answer_s: float) -> float:
    """How many answers at a time the target is worth, from how long they took until a moment, on average.

    Between `LEAST_ABREAST` and its slots: the fewer, the longer the same answers wait for each other.
    """
    low, high = LEAST_ABREAST, float(stage.num_slots)
    due = [one for one in schedule if one[0] < until_s]
    for _ in range(FITS):
        middle = (low + high) / 2
        took_s = played(replace(stage, abreast=middle), due).mean_answer_s(until_s)
        low, high = (middle, high) if took_s > answer_s else (low, middle)
    return high


class _Play:
    """The state of one play."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.seen = stage, Played()
        self._local: OrderedDict[int, None] = OrderedDict()
        self._redis: set[int] = set()
        self._written: set[int] = set()
        self._jobs: list[_Job] = []
        self._failures = 0
        self._opened_s: float | None = None
        self._open_since_s: float | None = None
        self._forgotten = 0

    def run(self, schedule: Sequence[tuple[float, int]]) -> Played:
        """All of it, until nothing is owed any more."""
        numbers = count()
        waiting = [(at_s, next(numbers), key, False) for at_s, key in sorted(schedule)]
        heapq.heapify(waiting)
        now_s = 0.0
        while waiting or self._jobs:
            next_s = waiting[0][0] if waiting else math.inf
            step_s = min(next_s - now_s, self._until_whole_s(), self._until_given_up_s(now_s))
            self._work(step_s)
            now_s += step_s
            self._finish(now_s)
            if waiting and waiting[0][0] <= now_s:
                at_s, _, key, asked = heapq.heappop(waiting)
                if asked:
                    self._jobs.append(_Job(key, at_s, self.stage.answer_s, at_s + self.stage.patience_s))
                elif (wait_s := self._due(at_s, key)) is not None:
                    heapq.heappush(waiting, (at_s + wait_s, next(numbers), key, True))
        if self._open_since_s is not None:
            self.seen.open_s.append((self._open_since_s, now_s))
        return self.seen

    # ── the target ──

    def _pace(self) -> float:
        """How fast each answer comes that has a slot, 1 is alone."""
        busy = min(len(self._jobs), self.stage.num_slots)
        return min(1.0, self.stage.abreast / busy) if busy else 1.0

    def _until_whole_s(self) -> float:
        working = self._jobs[: self.stage.num_slots]
        return min((job.left_s for job in working), default=math.inf) / self._pace()

    def _until_given_up_s(self, now_s: float) -> float:
        return max(0.0, min((job.until_s for job in self._jobs), default=math.inf) - now_s)

    def _work(self, step_s: float) -> None:
        done_s = step_s * self._pace()
        for job in self._jobs[: self.stage.num_slots]:
            job.left_s -= done_s

    def _finish(self, now_s: float) -> None:
        whole = [job for job in self._jobs if job.left_s <= 1e-9]
        self._jobs = [job for job in self._jobs if job.left_s > 1e-9 and job.until_s > now_s]
        for job in whole:
            self.seen.answers.append((now_s, now_s - job.began_s))
            self._keep(job.key)
            self._written.add(job.key)
            if self._asked(now_s):
                self._redis.add(job.key)

    # ── the cache ──

    def _due(self, at_s: float, key: int) -> float | None:
        """A request is due: how long it waits for Redis before it is the target's; None where it is answered."""
        guards = self.stage.tier.guards
        joins = next((job for job in self._jobs if job.key == key), None) if guards else None
        wait_s: float | None = None
        if key in self._local:
            self._local.move_to_end(key)
            way = LOCAL
        elif joins is not None:
            joins.until_s = max(joins.until_s, at_s + self.stage.patience_s)
            way = JOINED
        elif guards and key not in self._written:
            way, wait_s = ORIGIN, 0.0
        elif self._asked(at_s):
            way, wait_s = (REDIS, None) if key in self._redis else (ORIGIN, 0.0)
            if way == REDIS:
                self._keep(key)
        else:
            way, wait_s = ORIGIN, 0.0 if self._opened_s is not None and guards else self.stage.wait_s
        self.seen.ways.append((at_s, key, way))
        return wait_s

    def _keep(self, key: int) -> None:
        self._local[key] = None
        self._local.move_to_end(key)
        if len(self._local) > self.stage.tier.local_entries:
            self._local.popitem(last=False)

    # ── Redis and its breaker ──

    def _asked(self, now_s: float) -> bool:
        """Whether an ask of Redis is served now."""
        tier = self.stage.tier
        if tier.guards and self._opened_s is not None and now_s < self._opened_s + tier.breaker_reset_s:
            return False
        begun = sum(start_s <= now_s for start_s, _ in self.stage.outages)
        if begun > self._forgotten and self.stage.forgets:
            self._redis.clear()
        self._forgotten = begun
        if any(start_s <= now_s < end_s for start_s, end_s in self.stage.outages):
            self._failed(now_s)
            return False
        self._failures, self._opened_s = 0, None
        if self._open_since_s is not None:
            self.seen.open_s.append((self._open_since_s, now_s))
            self._open_since_s = None
        return True

    def _failed(self, now_s: float) -> None:
        self._failures += 1
        if not self.stage.tier.guards or (self._opened_s is None and self._failures < self.stage.tier.breaker_failures):
            return
        self.seen.opened.append(now_s)
        self._opened_s = now_s
        if self._open_since_s is None:
            self._open_since_s = now_s
