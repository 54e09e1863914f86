"""The server gets 200 thousandths of a processor: slower it may be, but no stream may be lost, and it must come back.

An engine sees every processor whatever its quota. Two threads that wait for each other at every layer then lose far
more than a thread that is alone: where the number of threads can be set, the same throttle with two is shown against
the first, to be known before somebody sets it. That is a comparison, and nothing that the target must stand.
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from contextlab.analysis.bounds import parse_bound
from contextlab.analysis.loads import experiment, middle_third
from contextlab.experiment import HELD, Arm, Asked, ChaosPlan, ChaosScenario, Experiment, Placed, Trial
from contextlab.model import Judgement, Knowledge, Layer, Outcome, Skip

QUOTA_CPUS = 0.2
HYPOTHESIS = ("errors < 1% after", "integrity = 100%")
TWO = 2
COLLAPSE = 0.5
"""It counts as a collapse if less than this part of the speed is left."""
ALLOWED_TO_TWO = HELD | {
    Outcome.DEGRADED,
    Outcome.BOUND_BROKEN,
    Outcome.NOT_RECOVERED,
    Outcome.STREAM_DAMAGED,
    Outcome.CUT,
    Outcome.UNKNOWN,
}
BY_ITSELF = "by_itself_tokens_per_s"


def plan(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    """The target as it is, then with two threads, if that is another thing; the second is told the first's speed."""
    start_s, length_s = middle_third(asked.duration_s)
    throttle = Placed(name="cpu", start_s=start_s, length_s=length_s, options={"quota": QUOTA_CPUS})
    hypothesis = asked.hypothesis or tuple(parse_bound(text) for text in HYPOTHESIS)
    alone = experiment("200m", known, asked, throttle, hypothesis=hypothesis)
    seen = yield alone
    if "threads" not in known.powers:
        return
    name = f"200m-with-{TWO}-threads"
    speed, num_busy = tokens_per_s(seen), busy_threads(seen)
    if seen is not None and (not speed or num_busy >= TWO):
        had = "nothing was read from it" if not speed else f"{num_busy:.0f} threads were busy in it as it is"
        yield Skip(scenario="cpu-throttle", probe=name, reason=f"there is nothing to compare with: {had}")
        return
    about = {BY_ITSELF: round(speed, 3), "by_itself_threads": num_busy}
    yield replace(alone, name=name, settings={"threads": TWO}, about=about, allowed=ALLOWED_TO_TWO)


def tokens_per_s(trial: Trial | None) -> float:
    """Tokens a second that came while the fault acted; 0 where nothing was seen."""
    arm = None if trial is None else trial.fault
    if trial is None or arm is None:
        return 0.0
    [fault] = trial.experiment.faults
    came = sum(fault.start_s <= at_s < fault.end_s for sample in arm.samples for at_s in sample.content_s)
    return came / fault.length_s


def busy_threads(trial: Trial | None) -> float:
    """How many threads worked while the fault acted."""
    arm: Arm | None = None if trial is None else trial.fault
    return max((one.tally.get("busy_threads", 0.0) for one in arm.evidence), default=0.0) if arm is not None else 0.0


def judge(experiment: Experiment, trial: Trial) -> Iterable[Judgement]:
    """What two threads made of the same throttle."""
    before = float(experiment.about.get(BY_ITSELF, 0.0))
    if trial.fault is None or not before:
        return
    speed = tokens_per_s(trial)
    evidence = {BY_ITSELF: before, "tokens_per_s": round(speed, 3), "busy_threads": busy_threads(trial)}
    why = f"{TWO} threads gave {speed:.1f} tokens/s under {QUOTA_CPUS:g} CPUs, and {before:.1f} as it is by itself"
    collapsed = speed < COLLAPSE * before
    yield Judgement(
        outcome=Outcome.DEGRADED if collapsed else Outcome.OK, why=why, layer=Layer.ENGINE, evidence=evidence
    )


SCENARIO = ChaosScenario(
    name="cpu-throttle",
    summary="a fifth of a processor is left to the server; two engine threads against one",
    plan=plan,
    judge=judge,
    needs=("process",),
    order=150,
)
