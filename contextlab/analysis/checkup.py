"""The nouns of a check-up: what was looked at before a run, whether it will do, and what mends it; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from contextlab.analysis.gate.contention import MOST_OTHERS_CORES, MOST_PRESSURE, MOST_STEAL
from contextlab.analysis.quantities import count

MOST_LOAD = 0.7
"""Load of one minute, of each core."""
MOST_SPREAD = 0.15
"""How much longer the slow slices of the fixed work (90th percentile) may take than the fast ones (25th)."""
FEWEST_CORES = 2
SECTIONS = ("environment", "rights", "noise", "gpu", "target")
CANNOT = 4


class Grade(StrEnum):
    """What a check came to. `SKIP`: it does not apply here, or its part is not installed."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at. `fix`: the next step, where it is not OK."""

    section: str
    name: str
    grade: Grade
    detail: str
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How busy the machine is. `load` of one minute; shares (0 to 1) of the time that was looked at; None: not told.

    `slices_s`: times of pieces of the same fixed work.
    """

    cores: int
    load: float
    others_cores: float
    pressure: float | None
    steal: float | None
    throttled: int | None
    slices_s: Sequence[float]
    governor: str = ""


def exit_code(checks: Iterable[Check]) -> int:
    """0, warnings included; 4 where something stops a run."""
    return CANNOT if any(one.grade is Grade.FAIL for one in checks) else 0


def summary(checks: Sequence[Check]) -> str:
    """`2 warnings, nothing that stops a run`."""
    counts = Counter(one.grade for one in checks)
    warnings = count(counts[Grade.WARN], "warning")
    if counts[Grade.FAIL]:
        stops = ", ".join(one.name for one in checks if one.grade is Grade.FAIL)
        return f"a run cannot be made: {stops}" + (f"; {warnings}" if counts[Grade.WARN] else "")
    return f"{warnings}, nothing that stops a run" if counts[Grade.WARN] else "all is well"


def noise_checks(seen: Noise) -> list[Check]:
    """Whether times that are measured here now mean something. Thresholds: those of the gate."""
    busy = "stop what else runs, or measure elsewhere: a gate calls such a run contaminated"
    found = [
        _check("cores", seen.cores >= FEWEST_CORES, f"{seen.cores}", "a load and its target need a core each"),
        _check(
            "load", seen.load <= MOST_LOAD * seen.cores, f"{seen.load:.2f} in the last minute, {seen.cores} cores", busy
        ),
        _check(
            "others", seen.others_cores <= MOST_OTHERS_CORES, f"other processes use {seen.others_cores:.2f} cores", busy
        ),
        _told("pressure", seen.pressure, MOST_PRESSURE, "something waited for a CPU {:.1%} of the time (PSI)", busy),
        _told(
            "steal",
            seen.steal,
            MOST_STEAL,
            "the hypervisor took {:.1%} of the CPU time",
            "this is a shared host: measure at another time, or with more blocks",
        ),
    ]
    if seen.throttled is not None:
        words = f"this process's own CPU quota ran out {count(seen.throttled, 'time')}"
        found.append(_check("throttling", not seen.throttled, words, "raise the CPU limit of this container"))
    if seen.slices_s:
        found.append(_steadiness(seen.slices_s))
    if seen.governor:
        found.append(
            _check(
                "governor",
                seen.governor == "performance",
                f"CPU frequency is governed by {seen.governor}",
                "cpupower frequency-set --governor performance, while measuring",
            )
        )
    return found


def _steadiness(slices_s: Sequence[float]) -> Check:
    ordered = sorted(slices_s)
    fast, slow = ordered[len(ordered) // 4], ordered[min(len(ordered) - 1, int(len(ordered) * 0.9))]
    spread = slow / fast - 1
    words = f"the same work takes {fast * 1e3:.1f} ms, a tenth of the time {spread:.0%} longer"
    fix = "expect wide intervals: more blocks (--blocks), more repeats, longer phases"
    return _check("steadiness", spread <= MOST_SPREAD, words, fix)


def _told(name: str, share: float | None, most: float, words: str, fix: str) -> Check:
    if share is None:
        return Check(section="noise", name=name, grade=Grade.SKIP, detail="this kernel does not tell it")
    return _check(name, share <= most, words.format(share), fix)


def _check(name: str, good: bool, detail: str, fix: str) -> Check:
    grade = Grade.OK if good else Grade.WARN
    return Check(section="noise", name=name, grade=grade, detail=detail, fix="" if good else fix)
