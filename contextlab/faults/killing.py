"""What the faults share that end processes of the target: which signal, and what is counted and noted. No fault.

`killed`: processes that were seen to end; `restarted`: how often the server answered again; `down_s`: how long it was
gone, from each death until it answered, summed.
"""

from __future__ import annotations

from typing import Any

from contextlab.deeds import Hands, Victim
from contextlab.experiment import option
from contextlab.model import UnableError

SIGNALS = ("KILL", "TERM", "INT", "QUIT", "ABRT", "SEGV")


def signal_option() -> Any:
    """The field `signal` of a fault that kills."""
    words = "of which signal it dies: TERM and INT ask for an orderly end, the others are a crash"
    return option("KILL", words, kind="text", choices=SIGNALS)


def processes(hands: Hands) -> tuple[Victim, ...]:
    """The target's processes, its main one first. Raises UnableError where it runs none."""
    tree = hands.tree()
    if not tree:
        raise UnableError("the target has no process that runs: it ended before the fault could act")
    return tree


def kill(hands: Hands, victim: Victim, signal: str) -> None:
    """End one process and see it end."""
    hands.kill(victim, signal=f"SIG{signal}")
    hands.tally["killed"] = hands.tally.get("killed", 0.0) + 1
    hands.note("killed", pid=victim.pid, process=victim.name, signal=f"SIG{signal}")


def restart(hands: Hands) -> None:
    """Start the server again and see it answer."""
    ready_s = hands.restart()
    hands.tally["restarted"] = hands.tally.get("restarted", 0.0) + 1
    hands.tally["down_s"] = hands.tally.get("down_s", 0.0) + ready_s
    hands.note("restarted", ready_s=ready_s)
