"""What an arm cost: tokens generated, delivered and used, requests sent again; and which share was for nothing; pure.

    generated ⊇ delivered ⊇ used        of the load, and of misbehaving clients

A token is *delivered* when a client has read it, and *used* when the answer that it belongs to came whole. An event of
a stream counts as one token. Generated is what the target's own counter says where it has one, at least what usage and
delivery prove; some servers do not count what they generated for requests that were given up, so it is a lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass

from contextlab.analysis.release import CROWD, SOURCE
from contextlab.analysis.replies import answered
from contextlab.experiment import Arm, Ending
from contextlab.model import Evidence

COUNTER = "generated_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Tokens and requests of one arm. `counted`: the target's own counter was read."""

    generated_tokens: int
    delivered_tokens: int
    used_tokens: int
    requests: int
    requests_repeated: int
    counted: bool

    @property
    def wasted_share(self) -> float | None:
        """Part of what was generated that nobody used, at least; None where nothing was generated."""
        return 1.0 - self.used_tokens / self.generated_tokens if self.generated_tokens else None

    @property
    def amplification(self) -> float | None:
        """Requests that the target got for each thing that was asked; None where nothing was asked."""
        asked = self.requests - self.requests_repeated
        return self.requests / asked if asked else None

    @property
    def numbers(self) -> Evidence:
        """The same, by name, for evidence."""
        found: dict[str, int | float | str | bool | None] = {
            "tokens_generated": self.generated_tokens,
            "tokens_delivered": self.delivered_tokens,
            "tokens_used": self.used_tokens,
            "requests": self.requests,
            "requests_repeated": self.requests_repeated,
        }
        if self.wasted_share is not None:
            found["wasted_share"] = round(self.wasted_share, 4)
        if self.amplification is not None:
            found["amplification"] = round(self.amplification, 4)
        return found


def cost(arm: Arm) -> Cost:
    """The cost of an arm, of its whole load and of its misbehaving clients."""
    generated = delivered = used = 0
    samples = [sample for sample in (*arm.samples, *arm.uncounted) if sample.ending is not Ending.UNSENT]
    for sample in samples:
        told = (sample.usage.completion_tokens or 0) if sample.usage is not None else 0
        read = max(told, len(sample.pieces)) if answered(sample) else len(sample.pieces)
        generated += max(told, read)
        delivered += read
        used += read if answered(sample) else 0
    requests, repeated = len(samples), 0
    for one in (one for one in arm.evidence if one.engine == CROWD):
        events, in_answers = (int(one.tally.get(name, 0)) for name in ("events", "events_in_answers"))
        whole = max(in_answers, int(one.tally.get("tokens_in_answers", 0)))
        delivered += events - in_answers + whole
        generated += events - in_answers + whole
        used += whole
        requests += int(one.tally.get("requests", 0))
        repeated += int(one.tally.get("requests_repeated", 0))
    counted = _counted(arm)
    return Cost(
        generated_tokens=max(generated, counted or 0),
        delivered_tokens=delivered,
        used_tokens=used,
        requests=requests,
        requests_repeated=repeated,
        counted=counted is not None,
    )


def _counted(arm: Arm) -> int | None:
    """By how much the target's own counter grew over the arm."""
    values = [one.values[COUNTER] for one in arm.readings if one.source == SOURCE and COUNTER in one.values]
    return int(values[-1] - values[0]) if len(values) > 1 and values[-1] >= values[0] else None
