"""Replies arrive in slices of a few bytes, cut inside characters and inside `data:`: a reader must not notice.

TCP owes nobody whole lines. A parser that decodes each read by itself, or looks for `data:` at its beginning, breaks
here and nowhere in the laboratory.
"""

from random import Random

from contextlab.analysis.loads import experiment, middle_third
from contextlab.experiment import Asked, ChaosPlan, ChaosScenario, Placed
from contextlab.model import Knowledge

SLICES_BYTES = (1, 7)
PAUSE_S = 0.0002
"""Without a pause the kernel hands several slices over at once."""


def plan(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    """One experiment for each size of slice."""
    start_s, length_s = middle_third(asked.duration_s)
    for size_bytes in SLICES_BYTES:
        options = {"size_bytes": size_bytes, "pause_s": PAUSE_S}
        slices = Placed(name="slice", start_s=start_s, length_s=length_s, options=options)
        yield experiment(f"slices-of-{size_bytes}", known, asked, slices)


SCENARIO = ChaosScenario(
    name="slicing", summary="streams come in slices of a few bytes, cut anywhere", plan=plan, order=40
)
