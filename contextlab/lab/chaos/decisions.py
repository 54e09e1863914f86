"""What the seed decides, written down before a fault acts: equal seeds give equal decisions, byte for byte.

For packets: what becomes of the first packets of each direction, whatever they hold and whenever they come. For
streams: which requests of the schedule are hit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from contextlab import registry
from contextlab.analysis.loads import rng_of
from contextlab.experiment import Direction, Due, Piece, Placed, Plane, WireFault

NUM_PACKETS = 2000
SPACING_S = 0.01
"""Far enough apart for no queue to form: what a full queue drops is not the seed's decision."""
PACKET = bytes([0x45]) + bytes(99)
SHOWN = 16


def decisions(faults: Sequence[Placed], dues: Sequence[Due], seed: int) -> list[dict[str, Any]]:
    """For each fault: its name, the digest of all its decisions, and the first ones in words that can be read."""
    return [_decided(number, placed, dues, seed) for number, placed in enumerate(faults)]


def _decided(number: int, placed: Placed, dues: Sequence[Due], seed: int) -> dict[str, Any]:
    if not registry.plane_of(placed).on_wire:  # it acts by the clock, and draws as it goes
        name = registry.shown_fault(placed)
        return {"name": name, "sha256": hashlib.sha256(f"{name}:{seed}:{number}".encode()).hexdigest()}
    fault = registry.wire_fault(placed)
    if fault.PLANE is Plane.PACKET:
        made = {
            direction.value: _packets(fault, number, direction, seed)
            for direction in Direction
            if fault.touches(direction)
        }
        first: Any = {
            name: [n for n, fate in enumerate(fates) if fate != [0.0]][:SHOWN] for name, fates in made.items()
        }
        told = {"name": registry.shown_fault(placed), "packets_touched_first": first}
    else:
        hit = [due.index for due in dues if fault.hits(rng_of(seed, number, due.index, "hits"))]
        made = {"requests": hit}  # type: ignore[dict-item]
        told = {"name": registry.shown_fault(placed), "requests_hit": len(hit), "requests_hit_first": hit[:SHOWN]}
    return {**told, "sha256": hashlib.sha256(msgspec.json.encode(made)).hexdigest()}


def _packets(fault: WireFault, number: int, direction: Direction, seed: int) -> list[list[float]]:
    """For each of the first packets, how much later each of its copies is due, in seconds; [] where it is dropped."""
    stage = fault.stage(rng_of(seed, number, direction.value), direction)
    fates = []
    for index in range(NUM_PACKETS):
        at_s = index * SPACING_S
        fates.append([round(piece.at_s - at_s, 6) for piece in stage.feed(Piece(at_s=at_s, data=PACKET))])
    return fates
