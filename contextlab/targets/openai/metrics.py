"""The numbers that a server publishes at /metrics, in the text format of Prometheus."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from contextlab.targets.openai.loose_json import whole

_SAMPLE = re.compile(
    r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?[ \t]+([-+]?[\d.]+(?:[eE][-+]?\d+)?|[-+]?Inf|NaN)(?=\s|$)", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Metrics:
    """Samples in Prometheus' text format: (name, labels as text, value)."""

    samples: tuple[tuple[str, str, float], ...] = ()

    @classmethod
    def of(cls, page: str) -> Self:
        """The samples of a page; none if it is something else."""
        return cls(tuple((name, labels, float(value)) for name, labels, value in _SAMPLE.findall(page)))

    def count(self, name: str) -> int | None:
        """The sum over all engines, None if the name is not there."""
        values = [value for other, _, value in self.samples if other == name]
        return whole(sum(values)) if values else None

    def largest(self, name: str) -> float | None:
        """The largest value over all engines."""
        return max((value for other, _, value in self.samples if other == name), default=None)

    def labels(self, name: str) -> dict[str, str]:
        """The labels of the first sample of that name."""
        texts = (labels for other, labels, _ in self.samples if other == name)
        return dict(re.findall(r'(\w+)="([^"]*)"', next(texts, "")))
