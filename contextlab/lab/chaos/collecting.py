"""What comes in during a pass, written down as it comes; and the small computations around one. No processes here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from contextlab import registry
from contextlab.analysis.arrivals import schedule
from contextlab.analysis.integrity import references_of
from contextlab.deeds import Death, Deed, Reading
from contextlab.experiment import Arm, Due, Experiment, GaugeSample, GeneratorHealth, Placed, Sample
from contextlab.model import Request

MAX_VARIANTS = 6
"""So many different undisturbed texts of one request are kept; a target with more is not deterministic at all."""


def extra_schedule(dues: Sequence[Due], experiment: Experiment, seed: int) -> tuple[Due, ...]:
    """The schedule of the extra load, numbered after the main one."""
    extra = experiment.extra
    if extra is None:
        return ()
    num_main = len(experiment.load.mix)
    return tuple(
        Due(index=len(dues) + due.index, at_s=round(extra.start_s + due.at_s, 9), mixed=num_main + due.mixed)
        for due in schedule(extra.load, seed + 1)
    )


def filled(experiment: Experiment, requests: Sequence[Request]) -> Experiment:
    """The experiment with its requests as they are sent."""
    mix = [replace(mixed, request=request) for mixed, request in zip(experiment.mix, requests, strict=True)]
    num_main = len(experiment.load.mix)
    sent = replace(experiment, load=replace(experiment.load, mix=tuple(mix[:num_main])))
    if sent.extra is None:
        return sent
    extra = replace(sent.extra, load=replace(sent.extra.load, mix=tuple(mix[num_main:])))
    return replace(sent, extra=extra)


def moments(faults: Sequence[Placed]) -> list[tuple[float, str, bool]]:
    """(when, which, on or off) of every fault, in the order of time."""
    found = [(fault.start_s, registry.shown_fault(fault), True) for fault in faults]
    found += [(fault.end_s, registry.shown_fault(fault), False) for fault in faults]
    return sorted(found)


class Seen:
    """What has come in one pass; each thing is written down as it comes. Samples beyond `most` were not asked for."""

    def __init__(self, write: Callable[..., None], most: int | None = None) -> None:
        self.samples: list[Sample] = []
        self.generators: list[GeneratorHealth] = []
        self.gauges: list[GaugeSample] = []
        self.readings: list[Reading] = []
        self.deeds: list[Deed] = []
        self.deaths: list[Death] = []
        self._write, self._most = write, most

    def take(self, things: Sequence[Sample | GeneratorHealth]) -> None:
        """Samples and what the workers say of themselves."""
        for thing in things:
            if isinstance(thing, Sample):
                if self._most is not None and len(self.samples) >= self._most:
                    continue
                self.samples.append(thing)
                self._write("sample", sample=thing)
            else:
                self.generators.append(thing)
                self._write("generator", generator=thing)

    def take_gauges(self, gauges: Sequence[GaugeSample]) -> None:
        """Write down readings of the target's own gauges."""
        for gauge in gauges:
            self.gauges.append(gauge)
            self._write("gauge", gauge=gauge)

    def take_beside(self, things: Iterable[Reading | Deed | Death]) -> None:
        """What was read, done and ended beside the load."""
        for thing in things:
            match thing:
                case Reading():
                    self.readings.append(thing)
                    self._write("reading", reading=thing)
                case Deed():
                    self.deeds.append(thing)
                    self._write("deed", deed=thing)
                case Death():
                    self.deaths.append(thing)
                    self._write("death", death=thing)


def references(arms: Sequence[Arm], requests: Sequence[Request]) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """For each request the different texts that undisturbed arms gave to it, the most frequent first.

    Requests that ask the same (those of an extra load may) share them, whatever they are called.
    """
    asked = [replace(request, name="") for request in requests]
    first = [asked.index(one) for one in asked]
    samples = [replace(sample, mixed=first[sample.mixed]) for arm in arms for sample in arm.samples]
    found = references_of(samples, len(requests))
    return tuple(found[place][:MAX_VARIANTS] for place in first)
