"""What of a finding's evidence is told beside it: the rest stands in the block of its experiment already."""

from __future__ import annotations

from contextlab.analysis.grounds import key
from contextlab.experiment import Phase
from contextlab.model import Evidence, Run
from contextlab.reports.parts import summary

_PHASED = tuple(f"{phase}_" for phase in Phase)
_SHOWN = frozenset(
    {
        "load",
        "engine",
        "retransmitted_segments",
        "recovery_s",
        "recovery_window_s",
        "texts_not_compared",
        "gate_undecided",
    }
)


def own(run: Run, evidence: Evidence) -> Evidence:
    """The evidence of a finding without the numbers that stand in the block of its experiment."""
    if summary.command(run) != "chaos":
        return evidence
    faults = {fault.name for made, _ in summary.experiments(run).values() for fault in made.faults}
    prefixes = (*_PHASED, *(f"{key(name)}_" for name in faults))
    return {name: thing for name, thing in evidence.items() if name not in _SHOWN and not name.startswith(prefixes)}
