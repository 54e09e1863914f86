"""Takes out of a gate what this place was shown not to resolve."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from contextlab.analysis.gate.calibration import resolved
from contextlab.analysis.gate.fingerprint import likeness
from contextlab.analysis.gate.nouns import Fingerprint
from contextlab.analysis.gate.settings import Settings
from contextlab.lab.gate.baselines import noise_of
from contextlab.lab.gate.prints import machine, scenario
from contextlab.model import TargetSpec


def by_calibration(
    settings: Settings, spec: TargetSpec, seed: int, folder: Path
) -> tuple[Settings, str, tuple[str, ...]]:
    """(settings, the calibration's file, notes). A calibration of another machine, or of another load, is not used."""
    found = noise_of(spec.name, folder)
    if found is None:
        return settings, "", ()
    noise, path = found
    here = Fingerprint(machine=machine(), scenario=scenario(settings.load, seed))
    there = Fingerprint(machine=noise.fingerprint.machine, scenario=noise.fingerprint.scenario)
    if differs := likeness(there, here).hard:
        return settings, "", (f"the calibration {path} is not used: {differs[0]}",)
    metrics = resolved(settings.metrics, noise.calibration)
    plan = replace(settings.plan, unstable=settings.plan.unstable | noise.calibration.unstable)
    gone = [one.name for one, other in zip(settings.metrics, metrics, strict=True) if one.gating and not other.gating]
    notes = (f"not gated here, by {path}: {', '.join(gone)}",) if gone else ()
    return replace(settings, metrics=metrics, plan=plan), str(path), notes
