"""How sure a share or a difference is: intervals for what was counted or measured a few times; pure."""

from __future__ import annotations

import math
from statistics import NormalDist

from contextlab.analysis.growth import t_quantile

CONFIDENCE = 0.95


def share_interval(successes: int, total: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Low and high end of a share that was seen `successes` times of `total`: Wilson's score interval.

    Honest for few trials and for shares near 0 and 1. Of no trials at all it says 0 to 1.
    """
    if not 0 <= successes <= total:
        raise ValueError(f"successes={successes}: must be from 0 to total={total}")
    if total == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, weight = successes / total, 1 + z * z / total
    middle = (share + z * z / (2 * total)) / weight
    reach = z / weight * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def mean_interval(mean: float, deviation: float, count: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Low and high end of a mean of `count` measurements with this sample standard deviation: Student's t.

    Of fewer than two measurements it says that nothing is known.
    """
    if count < 2:
        return -math.inf, math.inf
    reach = t_quantile((1 + confidence) / 2, count - 1) * deviation / math.sqrt(count)
    return mean - reach, mean + reach
