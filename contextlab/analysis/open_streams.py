"""A few long streams on top of a load that are open at one moment, so that a fault then has streams to meet; pure."""

from __future__ import annotations

import math

from contextlab.analysis.loads import usual_load, usual_mix
from contextlab.experiment import Arrivals, Asked, Extra, Load, Pace
from contextlab.model import Knowledge

NUM_STREAMS = 4
STREAM_S = 1.5
"""A stream should last about so long by the target's own speed; a fast target speaks to `MOST_TOKENS`."""
LEAST_TOKENS, MOST_TOKENS = 16, 256
WINDOW_SHARE, POOL_SHARE = 0.5, 0.2
"""A reply takes at most these parts of a request's window, and of a KV pool that the streams share with others."""
SPREAD = 0.8
"""They begin evenly over this part of their length before the moment, so that each is met at another place."""


def open_at(at_s: float, known: Knowledge, asked: Asked) -> Extra:
    """The extra load: it begins before the moment and is over, as far as its sending goes, when that comes."""
    speed = known.decode_tokens_per_s or LEAST_TOKENS / STREAM_S
    rooms = ((known.limits.context_tokens, WINDOW_SHARE), (known.limits.pool_tokens, POOL_SHARE))
    most = min([MOST_TOKENS, *(int(share * room) for room, share in rooms if room)])
    tokens = max(1, min(most, max(LEAST_TOKENS, math.ceil(speed * STREAM_S))))
    lead_s = round(min(at_s / 2, SPREAD * tokens / speed), 6)
    trace_s = tuple(round(lead_s * number / NUM_STREAMS, 6) for number in range(NUM_STREAMS))
    load = Load(
        arrivals=Arrivals(pace=Pace.REPLAY, trace_s=trace_s),
        duration_s=lead_s,
        mix=usual_mix(known, tokens),
        timeout_s=usual_load(known, asked).timeout_s,
    )
    return Extra(load=load, start_s=round(at_s - lead_s, 6))
