"""Packets are lost while the server has a part of a processor only: each makes the other's delays longer.

What the client gives up the server may still work on, with the little that it has; whether the two together break what
neither breaks alone is the question. So the bounds are those of each alone.
"""

from random import Random

from contextlab.analysis.loads import experiment, middle_third
from contextlab.experiment import Asked, ChaosPlan, ChaosScenario, Placed
from contextlab.model import Knowledge

RATE = 0.10
QUOTA_CPUS = 0.5


def plan(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    """Both at once, in the middle third."""
    start_s, length_s = middle_third(asked.duration_s)
    loss = Placed(name="loss", start_s=start_s, length_s=length_s, options={"rate": RATE})
    throttle = Placed(name="cpu", start_s=start_s, length_s=length_s, options={"quota": QUOTA_CPUS})
    yield experiment(f"loss-{RATE:.0%}-and-{QUOTA_CPUS * 1000:.0f}m", known, asked, loss, throttle)


SCENARIO = ChaosScenario(
    name="loss-and-throttle",
    summary="a tenth of all packets is lost while the server has half a processor",
    plan=plan,
    needs=("process",),
    order=160,
)
