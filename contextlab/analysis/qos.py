"""Who was served how well: each kind of request by phase, what was lost, for whom first, and whether that was said.

    served     came whole
    cut        had begun, or was torn down
    refused    turned away: a status that is no success, an error in place of an answer, nobody listening
    timed out  nobody answered while the client waited

A refusal is clear that says when to come again: 429 or 503 with Retry-After. Any other is mute: a client must guess.
Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from contextlab.analysis.phases import disturbances, in_control, split
from contextlab.analysis.quantiles import Distribution, Quantile
from contextlab.analysis.replies import answered, succeeded, ttft_s
from contextlab.experiment import Arm, Ending, Experiment, Phase, Sample, Trial

BUSY = frozenset({429, 503})
"""Statuses by which a server says that it is busy."""
RETRY_AFTER = "retry_after"
"""The field of a failure in which the load generator keeps the header of that name."""


class Fate(StrEnum):
    """What became of a request."""

    SERVED = "served whole"
    CUT = "cut"
    REFUSED = "refused"
    TIMED_OUT = "timed out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """How one kind of request was served in one phase. `num_clear`: refusals that said when to come again.

    `ttft_p50`: from when it was due, in seconds; what was not served counts as endless.
    """

    kind: str
    mixed: int
    phase: Phase
    fates: Mapping[Fate, int]
    num_clear: int
    ttft_p50: Quantile

    @property
    def n(self) -> int:
        """How many were asked."""
        return sum(self.fates.values())

    @property
    def share_served(self) -> float:
        """The share that came whole."""
        return self.fates.get(Fate.SERVED, 0) / self.n


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What was lost of one kind of request once the disturbance had begun: how many of how many, and when.

    `first_s`, `last_s`: when the first and the last of them were known to be lost, since the disturbance began.
    `first_fate` is what became of the first.
    """

    kind: str
    mixed: int
    num_lost: int
    n: int
    first_s: float
    last_s: float
    first_fate: Fate


def fate(sample: Sample) -> Fate:
    """What became of a request."""
    if answered(sample):
        return Fate.SERVED
    if sample.ending in (Ending.TIMEOUT, Ending.UNREACHED, Ending.UNSENT):
        return Fate.TIMED_OUT
    if sample.ending is Ending.REFUSED or (sample.status is not None and not succeeded(sample)):
        return Fate.REFUSED
    if sample.error_frames and not sample.content_s:
        return Fate.REFUSED
    return Fate.CUT


def is_clear(sample: Sample) -> bool:
    """Whether a refusal says that the server is busy, and when to come again."""
    failure = sample.failure
    return sample.status in BUSY and failure is not None and bool(failure.fields.get(RETRY_AFTER))


def qualities(trial: Trial) -> list[Quality]:
    """Every kind of request in every phase in which it was asked, in the order of the mix and of time."""
    found = [
        _quality(trial.experiment, mixed, phase, there)
        for phase, samples in _phases(trial).items()
        for mixed, there in _by_kind(samples).items()
    ]
    return sorted(found, key=lambda one: (one.mixed, list(Phase).index(one.phase)))


def losses(trial: Trial) -> list[Loss]:
    """Who lost what from the disturbance on, the one who lost first before the others."""
    arm = trial.fault
    if arm is None:
        return []
    begin_s = disturbances(trial.experiment)[0].start_s
    phases = _of_fault_arm(arm, trial.experiment)
    found = []
    for mixed, there in _by_kind([*phases[Phase.DURING], *phases[Phase.AFTER]]).items():
        lost = sorted((_lost_s(one, arm), one.index, what) for one in there if (what := fate(one)) is not Fate.SERVED)
        if lost:
            found.append(
                Loss(
                    kind=_name(trial.experiment, mixed),
                    mixed=mixed,
                    num_lost=len(lost),
                    n=len(there),
                    first_s=round(max(0.0, lost[0][0] - begin_s), 6),
                    last_s=round(max(0.0, lost[-1][0] - begin_s), 6),
                    first_fate=lost[0][2],
                )
            )
    return sorted(found, key=lambda one: (one.first_s, one.mixed))


def _phases(trial: Trial) -> dict[Phase, list[Sample]]:
    found: dict[Phase, list[Sample]] = {}
    if trial.control is not None:
        found[Phase.CONTROL] = in_control(trial.control, trial.experiment)
    if trial.fault is not None:
        found |= _of_fault_arm(trial.fault, trial.experiment)
    return found


def _of_fault_arm(arm: Arm, experiment: Experiment) -> dict[Phase, list[Sample]]:
    """The requests of the arm with the faults by phase; an extra load's too, whether or not it counts elsewhere."""
    return split(replace(arm, samples=(*arm.samples, *arm.uncounted)), experiment)


def _by_kind(samples: Iterable[Sample]) -> dict[int, list[Sample]]:
    found: dict[int, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.mixed, []).append(sample)
    return dict(sorted(found.items()))


def _quality(experiment: Experiment, mixed: int, phase: Phase, there: Sequence[Sample]) -> Quality:
    return Quality(
        kind=_name(experiment, mixed),
        mixed=mixed,
        phase=phase,
        fates=Counter(map(fate, there)),
        num_clear=sum(is_clear(one) and fate(one) is Fate.REFUSED for one in there),
        ttft_p50=Distribution([ttft_s(one)] for one in there).quantile(0.5),
    )


def _name(experiment: Experiment, mixed: int) -> str:
    """The name of a kind of request; those of an extra load say so where the main load has that name too."""
    mix, num_main = experiment.mix, len(experiment.load.mix)
    name = mix[mixed].request.name if mixed < len(mix) else f"request {mixed + 1}"
    twice = mixed >= num_main and name in [one.request.name for one in mix[:num_main]]
    return f"{name} (extra)" if twice else name


def _lost_s(sample: Sample, arm: Arm) -> float:
    """When its client knew that it was lost."""
    return arm.length_s if sample.ended_s is None else sample.ended_s
