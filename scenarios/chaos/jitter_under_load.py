"""Round trips of 50 to 800 ms under load: does only time grow, or do requests fail?

Three steady round trips, then one that swings between them. Half of each is added each way; packets that swing
overtake each other, and TCP puts them in order again.
"""

from random import Random

from contextlab.analysis.loads import experiment, middle_third
from contextlab.experiment import Asked, ChaosPlan, ChaosScenario, Placed
from contextlab.model import Knowledge

ROUND_TRIPS_S = (0.05, 0.2, 0.8)


def plan(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    """One experiment for each round trip, and one for all of them; all share the control."""
    start_s, length_s = middle_third(asked.duration_s)
    for round_trip_s in ROUND_TRIPS_S:
        delay = Placed(name="delay", start_s=start_s, length_s=length_s, options={"delay_s": round_trip_s / 2})
        yield experiment(f"rtt-{round_trip_s * 1000:.0f}ms", known, asked, delay)
    least_s, most_s = ROUND_TRIPS_S[0] / 2, ROUND_TRIPS_S[-1] / 2
    options = {"delay_s": round((least_s + most_s) / 2, 6), "jitter_s": round((most_s - least_s) / 2, 6)}
    jitter = Placed(name="jitter", start_s=start_s, length_s=length_s, options=options)
    yield experiment("rtt-50-to-800ms", known, asked, jitter)


SCENARIO = ChaosScenario(
    name="jitter-under-load", summary="round trips of 50 to 800 ms, steady and swinging", plan=plan, order=20
)
