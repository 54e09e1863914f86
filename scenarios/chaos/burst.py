"""Ten times the load for five seconds: how far does the backlog grow, and is it gone again afterwards?

Nobody gives up while they wait (the clients' patience is long), so that a queue shows as time and not as errors.
"""

from dataclasses import replace
from random import Random

from contextlab.analysis.bounds import parse_bound
from contextlab.analysis.loads import experiment, usual_load
from contextlab.experiment import Arrivals, Asked, ChaosPlan, ChaosScenario, Extra, Pace
from contextlab.model import Knowledge

FACTOR, BURST_S = 10.0, 5.0
PATIENCE_S = 60.0
HYPOTHESIS = ("errors < 1%", "integrity = 100%")


def plan(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    """The usual load, and nine times as much on top of it for a while."""
    load = replace(usual_load(known, asked), timeout_s=asked.timeout_s or PATIENCE_S)
    length_s = min(BURST_S, load.duration_s / 4)
    more = Arrivals(pace=Pace.POISSON, rate_per_s=(FACTOR - 1) * load.arrivals.rate_per_s)
    extra = Extra(load=replace(load, arrivals=more, duration_s=length_s), start_s=round(load.duration_s / 4, 3))
    hypothesis = asked.hypothesis or tuple(parse_bound(text) for text in HYPOTHESIS)
    yield experiment("burst-10x", known, asked, load=load, extra=extra, hypothesis=hypothesis)


SCENARIO = ChaosScenario(name="burst", summary="ten times the load for five seconds", plan=plan, order=50)
