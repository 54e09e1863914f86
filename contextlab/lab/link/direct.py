"""No way at all: the clients go straight to the target. What `Route` is where there is something to do on the way."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from contextlab.experiment import FaultEvidence, Placed, Sample


class Direct:
    """A route without a link process; it takes no faults."""

    engine = "direct"
    namespace_pid: int | None = None

    def __init__(self, upstream: tuple[str, int]) -> None:
        self.address = upstream

    def arm(self, faults: Sequence[Placed], zero_s: float) -> None:
        """There is nothing to arm. Raises ValueError where a fault is asked for."""
        if faults:
            raise ValueError("a direct route takes no faults")

    def evidence(self) -> list[FaultEvidence]:
        """None, for there are no faults."""
        return []

    def as_sent(self, samples: Sequence[Sample]) -> frozenset[int]:
        """All of them: nothing stands between."""
        return frozenset(sample.index for sample in samples)

    def counters(self) -> dict[str, float]:
        """None, for nothing is counted."""
        return {}

    def cpu_s(self) -> float:
        """It costs nothing."""
        return 0.0

    def close(self) -> None:
        """There is nothing to close."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
