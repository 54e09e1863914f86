"""The way from the clients to the target for one experiment: straight, over the link process, through a cache tier.

clients ─▶ [link process: faults on the wire] ─▶ [cache tier] ─▶ target
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from contextlab import registry
from contextlab.experiment import Experiment, Placed
from contextlab.lab.link.direct import Direct
from contextlab.lab.link.engines import choose_engine
from contextlab.lab.link.route import Route
from contextlab.lab.load.aim import speaks_tls, where
from contextlab.lab.tier.tier import RunningTier
from contextlab.model import TargetSpec, UnableError


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Where clients connect, and the cache tier behind that, if there is one."""

    route: Route | Direct
    tier: RunningTier | None = None


@contextmanager
def opened(
    experiment: Experiment, spec: TargetSpec, *, folder: Path, seed: int, allow_emulation: bool
) -> Iterator[Way]:
    """The way that an experiment needs, as long as it lasts. Raises UnableError where this machine or this target
    cannot have it."""
    wire = [placed for placed in experiment.faults if registry.plane_of(placed).on_wire]
    refuse_tls(spec, wire, has_tier=experiment.tier is not None)
    engine = choose_engine(wire, allow_emulation=allow_emulation)
    with ExitStack() as stack:
        upstream, tier = where(spec), None
        if experiment.tier is not None:
            tier = stack.enter_context(RunningTier(experiment.tier, upstream, folder=folder))
            upstream = tier.address
        route: Route | Direct
        if wire:
            route = stack.enter_context(Route(upstream, engine=engine, log=folder / "link.log", seed=seed))
        else:
            route = stack.enter_context(Direct(upstream))
        yield Way(route=route, tier=tier)


def refuse_tls(spec: TargetSpec, wire: Sequence[Placed], *, has_tier: bool) -> None:
    """Raise UnableError where faults on the wire or a cache tier would have to read what a target says over TLS."""
    if speaks_tls(spec) and (wire or has_tier):
        what = "faults on the wire need" if wire else "a cache tier needs"
        message = f"{spec.name}: {what} plain http, this target speaks TLS"
        raise UnableError(message, "test the server behind its TLS, on its own port")
