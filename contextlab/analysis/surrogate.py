"""A guess at settings that were never measured, from those that were; pure.

One Gaussian process an objective (Rasmussen and Williams 2006, algorithm 2.1) over the coordinates of a `Lattice`, its
kernel a sum of a main effect for each axis and one interaction of all; length and interaction are chosen by marginal
likelihood among a few. It only says where to look next: no conclusion rests on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from statistics import NormalDist, fmean
from typing import Any

from contextlab.analysis.frontier import best_of
from contextlab.analysis.noise import Noise, Vector

LENGTHS = (0.25, 0.5, 1.0, 3.0)
INTERACTIONS = (0.1, 0.4, 1.0)
LEAST_NOISE = 1e-3
SAMPLES = 48
USUAL_DEGREES = 4
"""What a guess of the noise is worth, in degrees of freedom."""


class Surrogate:
    """One objective: `fit` at construction, then `predict`. Coordinates are from 0 to 1; of words, 0 and 1 are equal
    or not.

    `noise`: variance of each value's error, in the values' unit squared.
    """

    def __init__(self, spots: Sequence[Vector], values: Sequence[float], noise: Sequence[float]) -> None:
        self._spots = list(spots)
        self._middle = fmean(values)
        self._scale = math.sqrt(fmean((value - self._middle) ** 2 for value in values)) or 1.0
        targets = [(value - self._middle) / self._scale for value in values]
        errors = [max(LEAST_NOISE, one / self._scale / self._scale) for one in noise]
        depth = len(spots[0])
        best = max(
            (
                self._fitted((length,) * depth, interaction, targets, errors)
                for length in LENGTHS[:3]
                for interaction in INTERACTIONS
            ),
            key=lambda fit: fit[0],
        )
        for axis in range(depth):
            lengths = best[3]
            for length in LENGTHS:
                if length != lengths[axis]:
                    other = self._fitted((*lengths[:axis], length, *lengths[axis + 1 :]), best[4], targets, errors)
                    best = max(best, other, key=lambda fit: fit[0])
        _, self._lower, self._half, self._lengths, self._interaction = best

    def _fitted(self, lengths: Vector, interaction: float, targets: Sequence[float], errors: Sequence[float]) -> Any:
        spots = self._spots
        lower = _cholesky(
            [
                [
                    _kernel(a, b, lengths, interaction) + (errors[i] if i == j else 0.0)
                    for j, b in enumerate(spots[: i + 1])
                ]
                for i, a in enumerate(spots)
            ]
        )
        half = _forward(lower, targets)
        likelihood = -0.5 * math.fsum(v * v for v in half) - math.fsum(math.log(row[-1]) for row in lower)
        return likelihood, lower, half, lengths, interaction

    def predict(self, spot: Vector) -> tuple[float, float]:
        """(mean, standard deviation) of the true value there."""
        across = _forward(
            self._lower, [_kernel(spot, other, self._lengths, self._interaction) for other in self._spots]
        )
        mean = math.fsum(a * b for a, b in zip(across, self._half, strict=True))
        variance = _kernel(spot, spot, self._lengths, self._interaction) - math.fsum(a * a for a in across)
        return self._middle + self._scale * mean, self._scale * math.sqrt(max(1e-12, variance))


def _kernel(one: Vector, other: Vector, lengths: Vector, interaction: float) -> float:
    """1 + the sum of Matérn 3/2 over the axes + their product."""
    total, product = 1.0, interaction
    for a, b, length in zip(one, other, lengths, strict=True):
        r = 1.7320508 * abs(a - b) / length
        part = (1.0 + r) * math.exp(-r)
        total += part
        product *= part
    return total + product


def _cholesky(matrix: Sequence[Sequence[float]]) -> list[list[float]]:
    """The lower triangle L with L·Lᵀ = the matrix (given by its lower triangle)."""
    lower: list[list[float]] = []
    for i, row in enumerate(matrix):
        own: list[float] = []
        for j in range(i):
            own.append((row[j] - sum(map(float.__mul__, own, lower[j]))) / lower[j][j])
        own.append(math.sqrt(max(1e-12, row[i] - sum(v * v for v in own))))
        lower.append(own)
    return lower


def _forward(lower: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """x with L·x = values."""
    found: list[float] = []
    for row, value in zip(lower, values, strict=True):
        found.append((value - sum(map(float.__mul__, found, row))) / row[-1])
    return found


def guesses(noise: Noise, spots: Sequence[Vector], usual: float) -> list[Surrogate]:
    """A surrogate of each objective from means with noise; where little is known of that, it is drawn to `usual`."""
    models = []
    for j in range(len(noise.means[0])):
        errors = []
        for deviation, degrees, count in zip(noise.deviations, noise.degrees, noise.counts, strict=True):
            seen = deviation[j] ** 2 * degrees[j] if degrees[j] else 0.0
            errors.append((seen + USUAL_DEGREES * usual**2) / (degrees[j] + USUAL_DEGREES) / count)
        models.append(Surrogate(spots, [mean[j] for mean in noise.means], errors))
    return models


def promising(
    models: Sequence[Surrogate],
    front: Sequence[Vector],
    others: Sequence[Vector],
    weights: Sequence[float],
    plain: Callable[[Vector], Vector],
    rng: Random,
) -> tuple[int, float]:
    """The place in `others` (spots) that would widen the frontier most (times its weight), and by how much.

    The gain is the expected maximin improvement (Svenson and Santner 2016): by how much a setting is ahead of the
    nearest point of the frontier in its best objective, if it is not dominated; in spans of the frontier. So it is
    large in gaps and at the ends. `plain` turns what the models say into the units of `front`, more being better.
    """
    spans = spans_of(front)
    normal = [NormalDist().inv_cdf((i + 0.5) / SAMPLES) for i in range(SAMPLES)]
    errors = list(zip(*(rng.sample(normal, SAMPLES) for _ in models), strict=True))
    found = []
    for place, (spot, weight) in enumerate(zip(others, weights, strict=True)):
        guess = [model.predict(spot) for model in models]
        samples = (plain(tuple(m + e * s for (m, s), e in zip(guess, error, strict=True))) for error in errors)
        gain = fmean(_ahead(sample, front, spans) for sample in samples)
        found.append((gain * weight, -place, gain))
    _, place, gain = max(found)
    return -place, gain


def thinned(vectors: Sequence[Vector], blur: Sequence[float]) -> list[int]:
    """Places of the vectors that seem to be the frontier, where differences up to `blur` cannot be told: without
    those of
    which another is as good but for the blur in everything, and clearly (3 times the blur) better in something."""
    kept: list[int] = []
    for i in sorted(best_of(vectors), key=lambda i: -sum(vectors[i])):
        if not any(
            all(a >= b - one for a, b, one in zip(vectors[k], vectors[i], blur, strict=True))
            and any(a >= b + 3 * one for a, b, one in zip(vectors[k], vectors[i], blur, strict=True))
            for k in kept
        ):
            kept.append(i)
    return kept


def spans_of(front: Sequence[Vector]) -> list[float]:
    """How far a frontier reaches in each objective; of a single point, the size of its values."""
    return [(max(column) - min(column)) or abs(column[0]) or 1.0 for column in zip(*front, strict=True)]


def net(front: Sequence[Vector], weights: Sequence[float], chosen: Sequence[int], apart: float) -> list[int]:
    """Places of the points that, with those `chosen` already, stand for all of a frontier; the most telling first.

    Always the one that is furthest ahead of those chosen (times its weight), until none is by more than `apart` of the
    frontier's spans; with none chosen, first the best of each objective.
    """
    if not front:
        return []
    spans = spans_of(front)
    found: list[int] = []
    if not chosen:
        found = list(dict.fromkeys(max(range(len(front)), key=lambda i: front[i][j]) for j in range(len(spans))))
    while len(found) + len(chosen) < len(front):
        known = [front[k] for k in (*chosen, *found)]
        ahead = {i: _ahead(front[i], known, spans) for i in range(len(front)) if i not in found and i not in chosen}
        ahead = {i: gain * weights[i] for i, gain in ahead.items() if gain > apart}
        if not ahead:
            break
        found.append(max(ahead, key=lambda i: ahead[i]))
    return found


def _ahead(vector: Vector, front: Sequence[Vector], spans: Sequence[float]) -> float:
    """By how much a vector is ahead of every point of the front in some objective; 0 where one dominates it."""
    least = math.inf
    for one in front:
        ahead = max((a - b) / span for a, b, span in zip(vector, one, spans, strict=True))
        if ahead <= 0:
            return 0.0
        least = min(least, ahead)
    return least
