"""What is counted is compared for equality: outcomes, statuses, counts of tokens, limits, and shares of failures; pure.

Both arms get the same requests in every block, so what they count must be the same. A value that the base itself does
not repeat proves little, and one that the candidate shows in a single block even less: that stays open, which is
neither a failure nor a pass.

Shares by Fisher's exact test (R. A. Fisher, "Statistical Methods for Research Workers", 1934, §21.02), one-sided, on
the requests of all blocks: of K failures in all, among N requests, `a` or more fall on the candidate's n with
probability Σ C(K, k) C(N − K, n − k) / C(N, n), k = a … min(K, n). Requests of one launch depend on each other, so a
rise must also be seen in two launches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import comb

from contextlab.analysis.gate.nouns import Block, Exact, ExactDifference, Measure, Plan, RateResult

NOT_THERE = "not measured"
MIN_SEEN = 2
"""Blocks in which a difference must be seen, where there are as many."""
MIN_RISE = 0.01
"""A share that rises by less is not held against the candidate."""


def arms(blocks: Sequence[Block]) -> tuple[list[Measure], list[Measure]]:
    """The measures of both arms that lived, in the order of the blocks."""
    base = [block.base for block in blocks if block.base is not None and not block.base.died]
    candidate = [block.candidate for block in blocks if block.candidate is not None and not block.candidate.died]
    return base, candidate


# ── equality ─────────────────────────────────────────────────────────────────────────────────────


def exact_differences(blocks: Sequence[Block], plan: Plan) -> tuple[ExactDifference, ...]:
    """What differs between the arms, by name; without `plan.unstable`, and without what differs as the base does."""
    base, candidate = arms(blocks)
    if not base or not candidate:
        return ()
    names = sorted({name for arm in (*base, *candidate) for name in arm.exact} - plan.unstable)
    found = (_difference(name, _values(base, name), _values(candidate, name), plan.alpha) for name in names)
    return tuple(one for one in found if one is not None)


def unstable_names(blocks: Sequence[Block]) -> frozenset[str]:
    """Of two arms that are the same: the names that do not have one value throughout."""
    both = [arm for side in arms(blocks) for arm in side]
    names = {name for arm in both for name in arm.exact}
    return frozenset(name for name in names if len(_values(both, name)) > 1)


def _values(measures: Sequence[Measure], name: str) -> Counter[Exact]:
    return Counter(measure.exact.get(name, NOT_THERE) for measure in measures)


def _difference(name: str, base: Counter[Exact], candidate: Counter[Exact], alpha: float) -> ExactDifference | None:
    if set(candidate) <= set(base) and len(base) == 1:
        return None
    usual = _ordered(base)[0][0]
    num_base, num_candidate = base.total(), candidate.total()
    odd_base, odd = num_base - base[usual], num_candidate - candidate[usual]
    gating, why = False, ""
    if usual == NOT_THERE or odd == candidate[NOT_THERE] > 0:
        why = f"measured in {num_base - base[NOT_THERE]} blocks of the base and "
        why += f"{num_candidate - candidate[NOT_THERE]} of the candidate: there is nothing to compare in the others"
    elif odd_base == 0:
        gating = odd >= min(MIN_SEEN, num_candidate)
        why = f"{usual} in every block of the base, {_others(usual, candidate)} in {odd} of {num_candidate}"
        why += " of the candidate" if gating else " of the candidate, which is too few to tell"
    elif fisher(odd, num_candidate, odd_base, num_base) < alpha:
        gating = True
        why = f"{usual} in all but {odd_base} of {num_base} blocks of the base, "
        why += f"{_others(usual, candidate)} in {odd} of {num_candidate} of the candidate"
    elif set(candidate) <= set(base):
        return None
    else:
        why = "the base itself does not repeat its value, so this cannot be told: fix the seed and the temperature"
    return ExactDifference(name=name, base=_ordered(base), candidate=_ordered(candidate), gating=gating, why=why)


def _ordered(values: Mapping[Exact, int]) -> tuple[tuple[Exact, int], ...]:
    return tuple(sorted(values.items(), key=lambda pair: (-pair[1], str(pair[0]))))


def _others(usual: Exact, values: Mapping[Exact, int]) -> str:
    others = [str(value) for value, _ in _ordered(values) if value != usual]
    return " or ".join(others[:3]) + (" or others" if len(others) > 3 else "")


# ── shares ───────────────────────────────────────────────────────────────────────────────────────


def fisher(count: int, total: int, base_count: int, base_total: int) -> float:
    """One-sided p of "not more of these than of the base", of `count` in `total` against `base_count` in `base_total`.

    Exact in whole numbers until the last division. Raises ValueError for a count that is not from 0 to its total.
    """
    if not 0 <= count <= total or not 0 <= base_count <= base_total:
        raise ValueError(f"{count} of {total}, {base_count} of {base_total}: a count is from 0 to its total")
    if count == 0:
        return 1.0
    failures, everyone = count + base_count, total + base_total
    term = comb(failures, count) * comb(everyone - failures, total - count)
    tail = 0
    for k in range(count, min(failures, total) + 1):
        tail += term
        term = term * (failures - k) * (total - k) // ((k + 1) * (everyone - failures - total + k + 1))
    return tail / comb(everyone, total)


def rates(blocks: Sequence[Block], plan: Plan) -> tuple[RateResult, ...]:
    """The shares of requests that failed, and whose prompt was truncated in silence."""
    return (
        _rate("failed", _pairs(blocks, "num_failed"), plan),
        _rate("truncated", _pairs(blocks, "num_truncated"), plan),
    )


Share = tuple[int, int]


def _pairs(blocks: Sequence[Block], name: str) -> list[tuple[Share, Share]]:
    """(count, total) of base and candidate by block; an arm that is not there has 0 of 0."""

    def share(arm: Measure | None) -> Share:
        return (0, 0) if arm is None or arm.died else (getattr(arm, name), arm.num_requests)

    return [(share(block.base), share(block.candidate)) for block in blocks]


def _rate(name: str, pairs: Sequence[tuple[Share, Share]], plan: Plan) -> RateResult:
    base_count, base_total = (sum(pair[0][i] for pair in pairs) for i in (0, 1))
    count, total = (sum(pair[1][i] for pair in pairs) for i in (0, 1))
    base_share = base_count / base_total if base_total else 0.0
    share = count / total if total else 0.0
    p = fisher(count, total, base_count, base_total)
    blocks_risen = sum(_risen(theirs, base_share if not plan.paired else _of(ours)) for ours, theirs in pairs)
    shown = bool(base_total and total) and p < plan.alpha and share - base_share > MIN_RISE
    risen = shown and blocks_risen >= min(MIN_SEEN, sum(1 for _, theirs in pairs if theirs[1]))
    why = f"{base_count} of {base_total} requests of the base, {count} of {total} of the candidate"
    if shown and not risen:
        why += ", all of the rise in one block"
    return RateResult(
        name=name,
        base_count=base_count,
        base_total=base_total,
        candidate_count=count,
        candidate_total=total,
        p=p,
        blocks_risen=blocks_risen,
        risen=risen,
        doubtful=shown and not risen,
        why=why,
    )


def _of(share: Share) -> float:
    return share[0] / share[1] if share[1] else 0.0


def _risen(share: Share, than: float) -> bool:
    return share[1] > 0 and _of(share) > than
