"""What the scenarios that look inside a model have in common: lengths, a memory limit, the words of an error; pure."""

from __future__ import annotations

from contextlab.analysis.judging import raised
from contextlab.model import Evidence, Judgement, Knowledge, Layer, Observation

MEMORY_LIMIT_BYTES = 3 << 30
"""Enough for the library and a small model; a probe that wants more is a finding."""
ORDINARY_TOKENS = 128
"""The length to work with where a model declares none."""


def memory_limit_bytes(known: Knowledge) -> int:
    """The memory that a probe may use: twice what the model took when it was opened, or that of a small one."""
    opened = known.gauges.memory_bytes if known.gauges is not None else None
    return max(MEMORY_LIMIT_BYTES, 2 * (opened or 0))


def positions_tokens(known: Knowledge) -> int:
    """The positions that the model declares, RoPE scaling included; an ordinary length where it declares none."""
    ranges = [limit.tokens for limit in known.limits.declared if limit.layer is Layer.POSITIONS and limit.tokens]
    return max(ranges, default=known.limits.context_tokens or ORDINARY_TOKENS)


def has_range(known: Knowledge) -> bool:
    """Whether the model's positions end somewhere: not those of ALiBi."""
    return any(limit.layer is Layer.POSITIONS and limit.tokens for limit in known.limits.declared)


def error_of(seen: Observation, **numbers: int | float | str | bool | None) -> Judgement | None:
    """The judgement of the error that a task met with; None where it met none."""
    if "error_type" not in seen.measured:
        return None
    about: Evidence = {**seen.measured, **numbers}
    return raised(str(seen.measured["error_type"]), str(seen.measured.get("error", "")), seen.knowledge, about)
