"""Packets are lost both ways, from 5 to 20 %: TCP sends them again, so nothing may be missing, only late.

What is found here is a client, a gateway or a target that takes lateness for an end: timeouts that are too short,
streams given up between two tokens, backlogs that do not go away.
"""

from random import Random

from contextlab.analysis.loads import experiment, middle_third
from contextlab.experiment import Asked, ChaosPlan, ChaosScenario, Placed
from contextlab.model import Knowledge

RATES = (0.05, 0.10, 0.15, 0.20)


def plan(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    """One experiment for each rate of loss; all share the control."""
    start_s, length_s = middle_third(asked.duration_s)
    for rate in RATES:
        loss = Placed(name="loss", start_s=start_s, length_s=length_s, options={"rate": rate})
        yield experiment(f"loss-{rate:.0%}", known, asked, loss)


SCENARIO = ChaosScenario(
    name="packet-loss", summary="5, 10, 15 and 20 % of all packets are lost, and sent again by TCP", plan=plan, order=10
)
