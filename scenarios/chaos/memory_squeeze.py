"""The server's memory becomes scarce: by another process in its group, then by a limit below what it uses.

Crowded, it must live: the other process is the first that the kernel kills. Squeezed, it loses what it maps from files
and reads it again from the disk; where it has nothing of that kind the kernel kills it, which is allowed here, and told
from any other SIGKILL by what its group counted.
"""

from collections.abc import Iterable
from random import Random

from contextlab.analysis.bounds import parse_bound
from contextlab.analysis.deaths import how_it_ended
from contextlab.analysis.loads import experiment, middle_third
from contextlab.experiment import HELD, Asked, ChaosPlan, ChaosScenario, Experiment, Placed, Trial
from contextlab.model import Judgement, Knowledge, Outcome, Skip

LIMIT = "80%"
HYPOTHESIS = ("errors < 1% after", "integrity = 100%")
BALLOON_AFTER_S = 0.5
"""The limit that the balloon fills must stand first."""
ALLOWED_TO_SQUEEZED = HELD | {Outcome.CRASHED, Outcome.BOUND_BROKEN, Outcome.NOT_RECOVERED}


def plan(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    """Both with the same load and the same control."""
    start_s, length_s = middle_third(asked.duration_s)
    hypothesis = asked.hypothesis or tuple(parse_bound(text) for text in HYPOTHESIS)
    held_bytes = None if known.gauges is None else known.gauges.memory_bytes
    if held_bytes:
        limit = Placed(name="memory", start_s=start_s, length_s=length_s, options={"limit": f"{held_bytes >> 20}MiB"})
        later_s = min(BALLOON_AFTER_S, length_s / 4)
        options = {"size": "100%", "of": "group"}
        balloon = Placed(
            name="balloon", start_s=start_s + later_s, length_s=round(length_s - 2 * later_s, 3), options=options
        )
        yield experiment("crowded", known, asked, limit, balloon, hypothesis=hypothesis)
    else:
        yield Skip(scenario="memory-squeeze", probe="crowded", reason="nobody knows how much memory the target uses")
    squeeze = Placed(name="memory", start_s=start_s, length_s=length_s, options={"limit": LIMIT})
    yield experiment("squeezed", known, asked, squeeze, hypothesis=hypothesis, allowed=ALLOWED_TO_SQUEEZED)


def judge(experiment: Experiment, trial: Trial) -> Iterable[Judgement]:
    """Whether it was the want of memory that it died of; that it died is judged for every experiment."""
    end = None if trial.fault is None else trial.fault.server
    if end is None or not end.ended or end.out_of_memory:
        return
    evidence = {"signal": end.signal, "out_of_memory": end.out_of_memory, "peak_memory_bytes": end.peak_memory_bytes}
    why = f"it died, and not for want of memory that anybody counted: {how_it_ended(end)}"
    yield Judgement(outcome=Outcome.UNKNOWN, why=why, evidence=evidence)


SCENARIO = ChaosScenario(
    name="memory-squeeze",
    summary="another process crowds the server's memory, then a limit takes of what it uses",
    plan=plan,
    judge=judge,
    needs=("process",),
    order=170,
)
