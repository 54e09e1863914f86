"""The whole check-up, section by section, as each is done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from contextlab.analysis.checkup import Check, noise_checks
from contextlab.lab.checkup import environment, gpu, rights, target
from contextlab.lab.checkup.noise import noise
from contextlab.lab.run import Options
from contextlab.model import TargetSpec


def checkup(runs: Path, spec: TargetSpec | None, options: Options) -> Iterator[Check]:
    """Every check, in the order of `SECTIONS`. The machine's noise is looked at before a target is started."""
    yield from environment.checks(runs)
    yield from rights.checks()
    yield from noise_checks(noise())
    yield from gpu.checks()
    if spec is not None:
        yield from target.checks(spec, options)
