"""Whether two records were made in the same place and of the same thing; pure.

    hard     another machine, model, engine, flag or request: a ratio of the two says nothing of a change
    soft     another minor kernel, another contextlab, a fact that one side does not know: the ratio is advice
    tested   what the comparison is about, and so may differ

Measured elsewhere: a machine that is 5 % faster in one session alone gives false alarms in 27 % of comparisons, and in
11 % with a margin of 5 %. That is why a stored baseline counts only where all of this agrees.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from contextlab.analysis.gate.nouns import Facts, Fingerprint, Likeness
from contextlab.model import UsageError

PARTS = ("machine", "engine", "model", "flags", "scenario")
WHOLE = frozenset({"flags", "scenario"})
"""Parts of which every fact is known: one that is missing is another one."""
SOFT = frozenset({"machine.hz", "machine.microcode", "machine.virtualisation", "scenario.contextlab"})
KERNEL = "machine.kernel"
"""Soft within one major version."""
SAME_MEMORY = 0.05
"""Memory sizes closer than this are one size: kernels keep more or less of it for themselves."""


def likeness(base: Fingerprint, candidate: Fingerprint, tested: Collection[str] = ()) -> Likeness:
    """How they differ. `tested`: parts (`engine`) or facts (`engine.version`, `flags.batch`) that are meant to differ.

    Raises UsageError for a name in `tested` that is no part, and no fact that either side has.
    """
    for name in tested:
        if name.partition(".")[0] not in PARTS:
            close = get_close_matches(name, PARTS, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise UsageError(f"tested={name!r}: is no part of a fingerprint", f"{hint}the parts are {', '.join(PARTS)}")
        part, dot, fact = name.partition(".")
        known = sorted({*getattr(base, part), *getattr(candidate, part)})
        if dot and fact not in known:
            close = get_close_matches(fact, known, n=1)
            hint = f"did you mean {part}.{close[0]}? " if close else ""
            facts = f"its facts are {', '.join(known)}" if known else f"nothing of {part} is on record"
            raise UsageError(f"tested={name!r}: neither side has such a fact of its {part}", f"{hint}{facts}")
    hard: list[str] = []
    soft: list[str] = []
    meant: list[str] = []
    for part in PARTS:
        ours: Facts = getattr(base, part)
        theirs: Facts = getattr(candidate, part)
        for key in sorted({*ours, *theirs}):
            name, one, other = f"{part}.{key}", ours.get(key), theirs.get(key)
            if _same(key, one, other):
                continue
            said = f"{name}: {_shown(one)} in the baseline, {_shown(other)} now"
            if part in tested or name in tested:
                meant.append(said)
            elif _is_soft(name, one, other):
                soft.append(said)
            else:
                hard.append(said)
    return Likeness(hard=tuple(hard), soft=tuple(soft), tested=tuple(meant))


def _same(key: str, one: object, other: object) -> bool:
    if key == "memory_bytes" and isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other) <= SAME_MEMORY * max(one, other)
    return one == other


def _is_soft(name: str, one: object, other: object) -> bool:
    if name in SOFT:
        return True
    if one is None or other is None:
        return name.partition(".")[0] not in WHOLE
    return name == KERNEL and str(one).partition(".")[0] == str(other).partition(".")[0]


def _shown(value: object) -> str:
    return "not known" if value is None else str(value)
