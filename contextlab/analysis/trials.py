"""Reads chaos trials out of a run's records; pure. A record that was cut anywhere gives what it holds up to there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from contextlab.deeds import Death, Deed, Reading
from contextlab.experiment import (
    Arm,
    Experiment,
    FaultEvidence,
    GaugeSample,
    GeneratorHealth,
    Sample,
    Trial,
)
from contextlab.model import Knowledge, Limits, ProcessEnd, Record

CONTROL, FAULT = "control", "fault"
"""The names of the two arms of a trial."""
T = TypeVar("T")
Place = tuple[str, str]
"""(scenario, experiment)."""


def trials(records: Iterable[Record], knowledge: Knowledge | None) -> dict[Place, Trial]:
    """The trials of a run in the order in which they began. An arm without its end lasts until its last sample.

    Raises msgspec.ValidationError where a record is not what it says it is.
    """
    known = knowledge or Knowledge(flavour="", model="", limits=Limits())
    begun: dict[Place, dict[str, Any]] = {}
    arms: dict[tuple[str, str, str], dict[str, Any]] = {}
    for record in records:
        place = (str(record.get("scenario", "")), str(record.get("probe", "")))
        arm = arms.get((*place, str(record.get("arm", ""))))
        match record.get("kind"):
            case "experiment":
                begun[place] = {
                    "experiment": msgspec.convert(record["experiment"], Experiment),
                    "path": str(record.get("path", "")),
                }
            case "arm" if record.get(
                "of"
            ):  # an earlier experiment of the scenario made it, with the same load and path
                shared = arms.get((place[0], str(record["of"]), str(record["arm"])))
                if shared is not None:
                    arms[(*place, str(record["arm"]))] = shared
            case "arm":
                arms[(*place, str(record["arm"]))] = {"name": str(record["arm"]), "length_s": 0.0}
            case "sample" if arm is not None:
                _add(arm, "samples", msgspec.convert(record["sample"], Sample))
            case "gauge" if arm is not None:
                _add(arm, "gauges", msgspec.convert(record["gauge"], GaugeSample))
            case "generator" if arm is not None:
                _add(arm, "generators", msgspec.convert(record["generator"], GeneratorHealth))
            case "reading" if arm is not None:
                _add(arm, "readings", msgspec.convert(record["reading"], Reading))
            case "deed" if arm is not None:
                _add(arm, "deeds", msgspec.convert(record["deed"], Deed))
            case "death" if arm is not None:
                _add(arm, "deaths", msgspec.convert(record["death"], Death))
            case "evidence" if arm is not None:
                _add(arm, "evidence", msgspec.convert(record["evidence"], FaultEvidence))
            case "as_sent" if arm is not None:
                arm["as_sent"] = frozenset(int(index) for index in record["indices"])
            case "arm_end" if arm is not None:
                arm["length_s"] = float(record["length_s"])
                arm["stopped"] = str(record.get("stopped", ""))
                if record.get("server") is not None:
                    arm["server"] = msgspec.convert(record["server"], ProcessEnd)
            case "trial" if place in begun:
                begun[place]["references"] = msgspec.convert(
                    record["references"], tuple[tuple[tuple[str, ...], ...], ...]
                )
                begun[place]["measured"] = dict(record.get("measured", {}))
    return {
        place: Trial(
            knowledge=known,
            control=_arm(arms, place, CONTROL, fields["experiment"]),
            fault=_arm(arms, place, FAULT, fields["experiment"]),
            **fields,
        )
        for place, fields in begun.items()
    }


def with_sent(samples: Iterable[Sample], indices: frozenset[int]) -> tuple[Sample, ...]:
    """The samples, each with whether its bytes are known to be those that the target sent."""
    return tuple(replace(sample, as_sent=sample.index in indices) for sample in samples)


def counted(experiment: Experiment, samples: Iterable[Sample]) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
    """(those that count, those of an extra load that does not), each in the order of their indices."""
    everything = sorted(samples, key=lambda sample: sample.index)
    if experiment.extra is None or experiment.extra.counts:
        return tuple(everything), ()
    num_main = len(experiment.load.mix)
    main = tuple(sample for sample in everything if sample.mixed < num_main)
    return main, tuple(sample for sample in everything if sample.mixed >= num_main)


def _add(arm: dict[str, Any], name: str, thing: object) -> None:
    arm.setdefault(name, []).append(thing)


def _arm(
    arms: Mapping[tuple[str, str, str], dict[str, Any]], place: Place, name: str, experiment: Experiment
) -> Arm | None:
    fields = arms.get((*place, name))
    if fields is None:
        return None
    lists: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    samples: tuple[Sample, ...] = lists.get("samples", ())
    if (sent := lists.pop("as_sent", None)) is not None:
        samples = with_sent(samples, sent)
    lists["samples"], lists["uncounted"] = counted(experiment, samples)
    if not lists["length_s"]:
        lists["length_s"] = max((sample.ended_s or sample.due_s for sample in samples), default=0.0)
    return Arm(**lists)
