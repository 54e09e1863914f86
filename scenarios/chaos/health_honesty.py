"""Does the health endpoint say what the answers say, while the server is overrun, killed, or paused?

Whoever sends requests to several servers goes by their health. One that is green while nothing comes keeps requests
that another could answer; one that is red while it answers is taken out, or restarted, for nothing. Where an experiment
looks at health, `contextlab.analysis.honesty` judges it, as here.
"""

from dataclasses import replace
from random import Random

from contextlab.analysis.loads import experiment, middle_third, usual_load
from contextlab.experiment import Arrivals, Asked, ChaosPlan, ChaosScenario, Extra, Pace, Placed
from contextlab.model import Knowledge, Skip

NAME = "health-honesty"
OVERLOAD, OVERLOAD_S, PATIENCE_S = 20.0, 5.0, 5.0
"""So many times the usual load, for so long at most, by clients that give up after so long."""


def plan(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    """Far too many requests, a kill with a restart, and a pause; each beside the usual load, which is not judged.

    The pause comes last: a server that it leaves stuck would spoil what comes after it.
    """
    start_s, length_s = middle_third(asked.duration_s)
    load = usual_load(known, asked)
    many = replace(
        load,
        arrivals=Arrivals(pace=Pace.POISSON, rate_per_s=OVERLOAD * load.arrivals.rate_per_s),
        duration_s=min(OVERLOAD_S, round(asked.duration_s / 4, 3)),
        timeout_s=asked.timeout_s or PATIENCE_S,
    )
    extra = Extra(load=many, start_s=start_s, counts=False)
    yield experiment("overload", known, asked, load=load, extra=extra, hypothesis=(), health=True)
    for name in ("kill", "pause"):
        if "process" in known.powers:
            placed = Placed(name=name, start_s=start_s, length_s=length_s)
            yield experiment(name, known, asked, placed, hypothesis=(), health=True)
        else:
            yield Skip(scenario=NAME, probe=name, reason="the target's process is not ours")


SCENARIO = ChaosScenario(
    name=NAME,
    summary="does the health endpoint say what the answers say, while the server is overrun, killed or paused?",
    plan=plan,
    needs=("health",),
    order=150,
)
