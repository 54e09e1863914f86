"""Whether a health endpoint says what the answers say: seconds of false green and of false red; pure.

    health   ──green──┼─?─┼──red──       looks of one kind that agree: so it was in between; that differ: nobody knows
    answers  ──yes─┼─?─┼────no────
    false green      └─?─┴─?┘            what is known, and what is possible beside it, are the ends of the interval

A server counts as answering where one token came within the deadline, and also where streams of the load went on:
one that is merely busy is no liar. The deadline is taken from what the same token takes in the control arm. A look at
health that is not answered within it counts as red: whoever watches a server by it waits no longer.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from contextlab.analysis.quantities import shown_seconds
from contextlab.deeds import Reading
from contextlab.experiment import Arm, Trial
from contextlab.model import Evidence, Judgement, Layer, Outcome

THRESHOLD_S = 1.0
"""A health endpoint may be wrong for so long in an arm before it is called a liar."""
DEADLINE_FLOOR_S, DEADLINE_RATIO = 1.0, 10.0
"""One token may take so long, and so many times longer than the slowest one that came undisturbed."""
UNDISTURBED_S = 1.0
"""What one token is taken to need where no control arm shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lie:
    """How long health and answers contradicted each other in an arm, in seconds.

    `low_s` is known; up to `high_s` is possible, because looks are some time apart. `longest_s` of what is known
    lasted without a break, the first of it began at `since_s` (None: there was none).
    """

    low_s: float = 0.0
    high_s: float = 0.0
    longest_s: float = 0.0
    since_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Honesty:
    """What an arm shows of its health endpoint. `num_health`, `num_completions`: looks that count; `every_s`: how far
    apart looks of one kind are, at most by their median."""

    arm: str
    false_green: Lie
    false_red: Lie
    deadline_s: float
    num_health: int
    num_completions: int
    every_s: float

    @property
    def enough(self) -> bool:
        """Whether there were looks of both kinds to compare."""
        return self.num_health > 1 and self.num_completions > 1


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A part of the time in which something held (True), did not (False), or may have (None)."""

    start_s: float
    end_s: float
    state: bool | None


# ── what is measured ─────────────────────────────────────────────────────────────────────────────


def deadline_s(control: Arm | None) -> float:
    """How long one token may take, from those that came in the control arm."""
    times = [look.values["completion_s"] for look in _looks(control, "completed") if look.values["completed"] > 0]
    return max(DEADLINE_FLOOR_S, DEADLINE_RATIO * max(times, default=UNDISTURBED_S))


def honesty(arm: Arm | None, within_s: float) -> Honesty | None:
    """What the looks of an arm show; `within_s` is the deadline. None where nobody looked."""
    looks = {name: _looks(arm, name) for name in ("green", "completed")}
    if arm is None or not any(looks.values()):
        return None
    content_s = sorted(at_s for one in (*arm.samples, *arm.uncounted) for at_s in one.content_s)
    green = _states(list(_marks(looks["green"], "green", "health_s", within_s)))
    tokens = _states(list(_marks(looks["completed"], "completed", "completion_s", within_s)))
    answers = list(_unless_busy(tokens, content_s, within_s))
    apart = sorted(later.at_s - earlier.at_s for earlier, later in pairwise(looks["green"]))
    return Honesty(
        arm=arm.name,
        false_green=_lie(green, answers),
        false_red=_lie(answers, green),
        deadline_s=round(within_s, 6),
        num_health=len(looks["green"]),
        num_completions=len(looks["completed"]),
        every_s=round(apart[len(apart) // 2], 6) if apart else 0.0,
    )


def of_trial(trial: Trial) -> list[Honesty]:
    """The same of each arm in which somebody looked, the control first."""
    within_s = deadline_s(trial.control)
    found = (honesty(arm, within_s) for arm in (trial.control, trial.fault))
    return [one for one in found if one is not None]


def _looks(arm: Arm | None, name: str) -> list[Reading]:
    """The looks of a kind in the order of time; one that was told several times, while it was open, as it ended."""
    found: dict[float, Reading] = {}
    for one in arm.readings if arm is not None else ():
        if one.source == "health" and name in one.values:
            found[one.at_s] = one
    return [found[at_s] for at_s in sorted(found)]


def _marks(looks: Iterable[Reading], name: str, took: str, within_s: float) -> Iterator[_Stretch]:
    """What each look shows: it held at the moment of a good answer, it did not all the time of waiting for another.

    A good answer that came too late was being worked on before it came: nothing is known of the last `within_s` then.
    A look that was still open at the end, or when it was given up, shows nothing unless it is past the deadline.
    """
    for look in looks:
        took_s, held = look.values[took], look.values[name] > 0
        end_s = look.at_s + took_s
        if held and took_s <= within_s:
            yield _Stretch(end_s, end_s, True)
        elif held:
            yield _Stretch(look.at_s, end_s - within_s, False)
            yield _Stretch(end_s, end_s, True)
        elif took_s > within_s or not look.values.get("open"):
            yield _Stretch(look.at_s, end_s, False)


def _states(marks: Sequence[_Stretch]) -> list[_Stretch]:
    """The time from the first mark to the last, without gaps; equal neighbours are one."""
    found: list[_Stretch] = []
    for place, mark in enumerate(marks):
        if place:
            before = marks[place - 1]
            agree = before.state if before.state == mark.state else None
            found.append(_Stretch(before.end_s, max(before.end_s, mark.start_s), agree))
        found.append(mark)
    return _merged(found)


def _merged(stretches: Iterable[_Stretch]) -> list[_Stretch]:
    found: list[_Stretch] = []
    for one in stretches:
        if one.end_s <= one.start_s:
            continue
        if found and found[-1].state == one.state and found[-1].end_s >= one.start_s:
            found[-1] = _Stretch(found[-1].start_s, one.end_s, one.state)
        else:
            found.append(one)
    return found


def _unless_busy(answers: Sequence[_Stretch], content_s: Sequence[float], within_s: float) -> Iterator[_Stretch]:
    """Where no token came for us but streams of the load went on, with gaps within the deadline, it was answering."""
    for one in answers:
        inside = content_s[bisect_left(content_s, one.start_s) : bisect_right(content_s, one.end_s)]
        if one.state is not False or not inside:
            yield one
            continue
        parts = pairwise((one.start_s, *inside, one.end_s))
        yield from _merged(_Stretch(begin, end, end - begin <= within_s) for begin, end in parts)


def _lie(said: Sequence[_Stretch], done: Sequence[_Stretch]) -> Lie:
    """How long `said` held while `done` did not.

    Only where that is known for a while does what is merely possible around it count: two signals that change
    together are never seen to change in the same instant.
    """
    edges = sorted({edge for one in (*said, *done) for edge in (one.start_s, one.end_s)})
    runs: list[list[_Stretch]] = [[]]
    for begin, end in pairwise(edges):
        one, other = _at(said, begin, end), _at(done, begin, end)
        if one is None or other is None or one.state is False or other.state is True:
            runs.append([])
        else:
            runs[-1].append(_Stretch(begin, end, bool(one.state) and other.state is False))
    seen = [run for run in runs if any(part.state for part in run)]
    known = _merged(part for run in seen for part in run if part.state)
    return Lie(
        low_s=_length_s(known),
        high_s=_length_s(part for run in seen for part in run),
        longest_s=max((_length_s([one]) for one in known), default=0.0),
        since_s=round(known[0].start_s, 3) if known else None,
    )


def _length_s(stretches: Iterable[_Stretch]) -> float:
    return round(sum(one.end_s - one.start_s for one in stretches), 3)


def _at(stretches: Sequence[_Stretch], begin: float, end: float) -> _Stretch | None:
    """The stretch that covers this time; None outside of all that was seen."""
    return next((one for one in stretches if one.start_s <= begin and end <= one.end_s), None)


# ── what is judged ───────────────────────────────────────────────────────────────────────────────


def judgements(trial: Trial, threshold_s: float = THRESHOLD_S) -> list[Judgement]:
    """HEALTH_LIED where health and answers are known to have contradicted each other for longer than the threshold."""
    seen = [one for one in of_trial(trial) if one.enough]
    if not seen:
        why = "nobody knows whether the health endpoint told the truth: too few looks came back"
        return [Judgement(outcome=Outcome.UNKNOWN, why=why, layer=Layer.ENGINE)]
    lies = [(one, words, lie) for one in seen for words, lie in _named(one)]
    facts = evidence(seen)
    found = [
        Judgement(outcome=Outcome.HEALTH_LIED, why=f"{lie_words(lie, words)}, in the {one.arm} arm", evidence=facts)
        for one, words, lie in lies
        if lie.low_s > threshold_s
    ]
    if found:
        return found
    open_ones = [
        f"{lie_words(lie, words)}, in the {one.arm} arm" for one, words, lie in lies if lie.high_s > threshold_s
    ]
    if open_ones:
        allowed = f"looks are {shown_seconds(seen[-1].every_s)} apart, {shown_seconds(threshold_s)} are allowed"
        why = f"nobody knows whether the health endpoint lied for too long: {'; '.join(open_ones)}; {allowed}"
        return [Judgement(outcome=Outcome.UNKNOWN, why=why, layer=Layer.ENGINE, evidence=facts)]
    looks = sum(one.num_health + one.num_completions for one in seen)
    why = f"the health endpoint said what the answers said: {looks} looks, wrong for less than "
    why += shown_seconds(threshold_s)
    return [Judgement(outcome=Outcome.OK, why=why, layer=Layer.ENGINE, evidence=facts)]


def _named(one: Honesty) -> tuple[tuple[str, Lie], ...]:
    return (
        ("health was green and nothing was completed", one.false_green),
        ("health was not green and tokens came", one.false_red),
    )


def lie_words(lie: Lie, words: str) -> str:
    """`health was green and nothing was completed for 8.2s to 9.1s, 8.2s of it without a break from 10.3s on`."""
    span = shown_seconds(lie.low_s) + ("" if lie.high_s == lie.low_s else f" to {shown_seconds(lie.high_s)}")
    since = "" if lie.since_s is None else f", the longest stretch {shown_seconds(lie.longest_s)}"
    return f"{words} for {span}{since}" + ("" if lie.since_s is None else f", first at {shown_seconds(lie.since_s)}")


def evidence(seen: Iterable[Honesty]) -> Evidence:
    """The numbers of each arm, by name."""
    return {
        f"{one.arm}_{name}": value
        for one in seen
        for name, value in {
            "false_green_s": one.false_green.low_s,
            "false_green_at_most_s": one.false_green.high_s,
            "false_green_longest_s": one.false_green.longest_s,
            "false_red_s": one.false_red.low_s,
            "false_red_at_most_s": one.false_red.high_s,
            "health_looks": one.num_health,
            "token_looks": one.num_completions,
            "token_deadline_s": one.deadline_s,
        }.items()
    }
