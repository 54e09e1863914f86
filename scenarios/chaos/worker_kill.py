"""One worker process of the server dies: the others should go on, or the server should end in order and say so.

What must not be is a server that stands there, answers its health check, and serves nobody. A server that ends of it
has crashed, for nobody killed that process.
"""

from random import Random

from contextlab.analysis.bounds import parse_bound
from contextlab.analysis.loads import experiment, middle_third
from contextlab.analysis.open_streams import open_at
from contextlab.experiment import Asked, ChaosPlan, ChaosScenario, Placed
from contextlab.model import Knowledge

HYPOTHESIS = ("errors < 1% after", "integrity = 100% after")


def plan(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    """One worker, with streams open when it dies."""
    start_s, length_s = middle_third(asked.duration_s)
    kill = Placed(name="kill-worker", start_s=start_s, length_s=length_s)
    hypothesis = asked.hypothesis or tuple(parse_bound(text) for text in HYPOTHESIS)
    extra = open_at(start_s, known, asked)
    yield experiment("one-worker", known, asked, kill, extra=extra, hypothesis=hypothesis, health=True)


SCENARIO = ChaosScenario(
    name="worker-kill",
    summary="one worker process of the server dies: does the server go on?",
    plan=plan,
    needs=("process", "workers"),
    order=140,
)
