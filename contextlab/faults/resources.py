"""What the faults on processors and memory share: amounts that are a part of something, and what was used. No fault."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from contextlab.analysis import quantities
from contextlab.experiment import Landed
from contextlab.model import UsageError

HOGS = (sys.executable, "-m", "contextlab.lab.host.hogs")
"""The command of the helpers that take processor time or memory."""
UNIT_BYTES = 1 << 20
NO_GROUP = (
    "run as root, or start the server in a control group of this user: systemd-run --user --scope -p Delegate=yes"
)


def amount_of(name: str, text: str, whole_bytes: float) -> int:
    """Bytes: a part of the whole, which may be more than all of it (`80%`, `110%`), or a size (`512MB`).

    Raises UsageError naming the value and the rule.
    """
    number = text.strip().removesuffix("%")
    try:
        size = quantities.size(number)  # of percents too: both are a number that is finite and not below 0
        if number == text.strip():
            return int(size)
        return int(float(number) / 100 * whole_bytes)
    except ValueError:
        raise UsageError(
            f"{name}={text!r}: must be a part such as 80%, or a size such as 512MB", f"for example {name}=80%"
        ) from None


def in_mib(size_bytes: float) -> str:
    """`105 MiB`."""
    return f"{size_bytes / UNIT_BYTES:.0f} MiB"


def used_cpus(kernel: Mapping[str, float]) -> float | None:
    """How many processors the target used on average; None where that was not counted."""
    if "cpu_s" not in kernel or not kernel.get("wall_s"):
        return None
    return kernel["cpu_s"] / kernel["wall_s"]


def nothing_asked(words: str) -> Landed:
    """As its options stand it does nothing."""
    return Landed(proven=None, why=f"{words} asks for nothing")
