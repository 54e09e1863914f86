"""Judges what a death by our own hand did to those who were served at that moment, and names how a process died; pure.

    open streams ─▶ each ends in a state that has a name ─▶ none of them may pass for an answer ─▶ STREAM_DAMAGED
                                                         ─▶ none may be left without a word     ─▶ HUNG
    the server, started again ─▶ it answers                                                     ─▶ else NOT_RECOVERED

A death by our hand is no finding by itself. How a stream ends is the transport's word (`Ending`) and what the client
can make of it (`Integrity`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from contextlab.analysis.grounds import Value, key, shown
from contextlab.analysis.integrity import Integrity, Reading, judge_all, norms
from contextlab.analysis.quantities import shown_seconds
from contextlab.analysis.replies import answered
from contextlab.deeds import Death
from contextlab.experiment import Ending, Experiment, Sample, Trial
from contextlab.model import Evidence, Judgement, Layer, Outcome, ProcessEnd

HANGING = frozenset({Integrity.HALF_OPEN, Integrity.TIMED_OUT, Integrity.TIMED_OUT_BEFORE_FIRST})
"""Nobody told the client: it waited until its own time was up."""
BEFORE_S = 0.1
"""A client's clock and ours differ in when they notice: what ended so little before the signal may have ended of it."""
NEVER_SERVED = frozenset({Ending.REFUSED, Ending.UNREACHED, Ending.UNSENT})
"""Requests that no process had taken in; those that are refused while the server is away say so by themselves."""
RESTARTING = frozenset({"kill", "crash-loop"})
"""The faults that start the server again, unless their option `restart` says no."""


# ── how a process died ───────────────────────────────────────────────────────────────────────────


def how_it_ended(end: ProcessEnd) -> str:
    """How a process ended, for a person. An out-of-memory kill is SIGKILL too: only what its group counted tells them
    apart (`ProcessEnd.out_of_memory`)."""
    peak = f", at a peak of {end.peak_memory_bytes / 2**20:.0f} MiB" if end.peak_memory_bytes else ""
    if end.signal == "SIGKILL":
        if end.out_of_memory:
            return f"killed by the kernel for want of memory: its control group counted it{peak}"
        if end.out_of_memory is False:
            return "killed by SIGKILL, which somebody sent: its control group counted no kill for want of memory"
        return "killed by SIGKILL; whether for want of memory is not known: no control group counted"
    how = f"ended by {end.signal}" if end.signal else f"ended with exit code {end.exit_code}"
    return f"{how}, out of memory by its own words{peak}" if end.out_of_memory else how


def settled(deaths: Iterable[Death]) -> tuple[Death, ...]:
    """Each death once: when the server answers again it is told a second time, with how long that took."""
    return tuple({death.at_s: death for death in deaths}.values())


# ── what it did to others ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """What became of the requests that were under way when the server was killed, or were taken in while it was dying.

    `in_time` of them came whole all the same, as an orderly end lets them: they lost nothing.
    """

    death: Death
    readings: tuple[tuple[Sample, Reading], ...]
    in_time: int = 0

    @property
    def names(self) -> Counter[Integrity]:
        """How many ended in which way, as the client can tell."""
        return Counter(reading.name for _, reading in self.readings)

    @property
    def endings(self) -> Counter[Ending]:
        """The same, as the transport told it."""
        return Counter(sample.ending for sample, _ in self.readings)

    @property
    def hanging(self) -> int:
        """Whose clients heard nothing until their own time was up."""
        return sum(reading.name in HANGING for _, reading in self.readings)

    @property
    def mistaken(self) -> int:
        """That pass for an answer and are none: a proper end, and text that is missing."""
        return sum(answered(sample) for sample, _ in self.readings)

    @property
    def words(self) -> str:
        """`5 requests were under way: 4 RESET, 1 CUT; it answered again after 700ms`."""
        ended = ", ".join(f"{count} {name.name}" for name, count in self.names.most_common())
        num = len(self.readings)
        opened = f"{num} request{'s were' if num != 1 else ' was'} under way{': ' if ended else ''}{ended}"
        ready_s = self.death.ready_s
        return opened + ("" if ready_s is None else f"; it answered again after {shown_seconds(round(ready_s, 2))}")

    @property
    def evidence(self) -> Evidence:
        """The same as numbers."""
        facts: dict[str, Value] = {
            "death_at_s": shown(self.death.at_s),
            "signal": self.death.end.signal,
            "exit_code": self.death.end.exit_code,
            "out_of_memory": self.death.end.out_of_memory,
            "ready_s": None if self.death.ready_s is None else shown(self.death.ready_s),
            "broken_off": len(self.readings),
            "came_whole": self.in_time,
        }
        facts |= {f"seen_{key(name)}": count for name, count in self.names.most_common()}
        facts |= {f"transport_{key(name)}": count for name, count in self.endings.most_common()}
        return {name: value for name, value in facts.items() if value is not None}


def aftermaths(trial: Trial) -> tuple[Aftermath, ...]:
    """One for each death by our hand in the arm with the faults, in their order."""
    arm = trial.fault
    ours = [death for death in settled(arm.deaths) if death.ours] if arm is not None else []
    if arm is None or not ours:
        return ()
    usual = norms(trial.control.samples) if trial.control is not None else norms(())
    samples = [*arm.samples, *arm.uncounted]
    readings = judge_all(samples, trial.references, usual)
    found = []
    for death in ours:
        there = [(sample, readings[sample.index]) for sample in samples if _was_open(sample, death)]
        broken = tuple(one for one in there if not _came_whole(*one))
        found.append(Aftermath(death=death, readings=broken, in_time=len(there) - len(broken)))
    return tuple(found)


def judge_deaths(trial: Trial) -> Iterator[Judgement]:
    """What is wrong after deaths by our hand; nothing where each stream said that it was over, and it came back."""
    found = aftermaths(trial)
    for outcome, count, what in (
        (
            Outcome.STREAM_DAMAGED,
            sum(one.mistaken for one in found),
            "pass for whole answers, with finish_reason and [DONE], and are none",
        ),
        (
            Outcome.HUNG,
            sum(one.hanging for one in found),
            "were left without a word: their clients waited until their own time was up",
        ),
    ):
        if count:
            total = sum(len(one.readings) for one in found)
            why = f"{count} of {total} requests that were under way when the server was killed {what}"
            facts = max(found, key=lambda one: (one.mistaken, one.hanging)).evidence
            yield Judgement(outcome=outcome, why=why, layer=Layer.GATEWAY, evidence={**facts, "count": count})
    for one in found:
        if one.death.ready_s is None and _was_to_come_back(one.death, trial.experiment):
            why = f"the server did not answer again after it had been {how_it_ended(one.death.end)}"
            yield Judgement(outcome=Outcome.NOT_RECOVERED, why=why, layer=Layer.ENGINE, evidence=one.evidence)


def _was_open(sample: Sample, death: Death) -> bool:
    if sample.sent_s is None or sample.sent_s > death.at_s or sample.ending in NEVER_SERVED:
        return False
    return sample.ended_s is None or sample.ended_s >= death.at_s - death.took_s - BEFORE_S


def _came_whole(sample: Sample, reading: Reading) -> bool:
    return answered(sample) and Integrity.MISSING not in reading.seen


def _was_to_come_back(death: Death, experiment: Experiment) -> bool:
    return any(
        placed.name in RESTARTING and placed.options.get("restart", True) and placed.start_s <= death.at_s
        for placed in experiment.faults
    )
