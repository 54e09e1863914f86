"""What the process of misbehaving clients is told, and what it tells. One JSON object a line, both ways.

Down: CrowdOrder, then `CrowdGo`, perhaps `CrowdGo(stop=True)`. Up: `CrowdTold`: ready, or an error; then the evidence.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from contextlab.experiment import FaultEvidence, Placed
from contextlab.lab.load.order import LoadOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbered:
    """A placed fault with its place in the experiment."""

    number: int
    placed: Placed


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdOrder:
    """The client faults of one arm. `order`: where they connect and what the load sends (its schedule is not theirs).

    `namespace_pid`: the process whose network namespace is entered first; None: the host's own.
    """

    order: LoadOrder
    faults: tuple[Numbered, ...]
    seed: int
    namespace_pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdGo:
    """When the arm begins, or that it is over."""

    zero_s: float = 0.0
    stop: bool = False


class CrowdTold(msgspec.Struct, omit_defaults=True):
    """One line of the crowd. `evidence`: what each fault did, by its number; nothing comes after it."""

    ready: bool = False
    evidence: dict[int, FaultEvidence] | None = None
    error: str = ""
    next_step: str = ""
