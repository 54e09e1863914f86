"""The gate's verdict on blocks of two arms, and how many more blocks it takes; pure.

    blocks ─▶ contention: those that count ─▶ metrics, exact values, rates ─▶ reasons, each with an exit code ─▶ verdict

    1  a metric regressed, an exact value differs, more fail, over a budget    outranks
    4  a target died                                                          outranks
    5  nothing comparable, nothing that gates was measured                    outranks
    3  contaminated, unconfirmed, inconclusive, a metric not measured         outranks
    0  ok, improved

Looks at the data are few and fixed: after `plan.blocks`, and after `plan.max_blocks` where something was undecided.
`next_blocks` keeps to that whenever it is asked, so asking it after every block costs nothing. All blocks of a run
belong to it, also those of an attempt before: a repetition adds blocks, it does not begin anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from contextlab.analysis.gate.budgets import judge_budgets
from contextlab.analysis.gate.contention import MOST_LEFT_OUT, contention, hopeless
from contextlab.analysis.gate.exact import exact_differences, rates
from contextlab.analysis.gate.metrics import judge_metrics
from contextlab.analysis.gate.nouns import (
    METRICS,
    Block,
    Budget,
    BudgetResult,
    BudgetVerdict,
    ExactDifference,
    GateResult,
    GateVerdict,
    Likeness,
    Measure,
    Metric,
    MetricResult,
    MetricVerdict,
    More,
    Plan,
    RateResult,
)
from contextlab.analysis.quantities import count
from contextlab.model import UsageError

_WEIGHT = (1, 4, 5, 3, 0)
_ALIKE = Likeness()


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that speaks for an exit code, and what the run is called where it decides."""

    code: int
    verdict: GateVerdict
    words: str

    @property
    def weight(self) -> tuple[int, int]:
        """Where it stands: the weightiest first."""
        return _WEIGHT.index(self.code), list(GateVerdict).index(self.verdict)


def judge(
    blocks: Sequence[Block],
    metrics: Sequence[Metric] = METRICS,
    plan: Plan | None = None,
    likeness: Likeness = _ALIKE,
    budgets: Sequence[Budget] = (),
) -> GateResult:
    """The verdict on these blocks, in whatever order they come. `likeness`: of stored records (`fingerprint`).
    `budgets`: what the candidate must keep by itself.

    Raises UsageError where a block's number, or a metric's name, comes twice.
    """
    plan = plan or Plan()
    _check(blocks, metrics)
    if likeness.hard:
        words = f"not comparable: {'; '.join(likeness.hard)}"
        return _concluded(GateResult(likeness=likeness), [Reason(5, GateVerdict.NOT_COMPARABLE, words)])
    ordered = sorted(blocks, key=lambda block: block.number)
    found = contention(ordered)
    clean = [block for block in ordered if block.number not in found.left_out and _counts(block, plan)]
    first = [block for block in clean if not block.confirming]
    again = [block for block in clean if block.confirming]
    measured = judge_metrics(first, again, metrics, plan)
    if found.whole:
        measured = tuple(_doubted(one) for one in measured)
    exact, shares = exact_differences(clean, plan), rates(clean, plan)
    kept = judge_budgets(budgets, clean, plan, contaminated=bool(found.whole))
    advice = f"the baseline is not of the same place: {'; '.join(likeness.soft)}" if likeness.soft else ""
    reasons = [
        *_died(ordered),
        *_exact(exact),
        *_rates(shares, bool(found.whole)),
        *_metrics(measured, contaminated=bool(found.whole), advice=advice),
        *_budgets(kept, contaminated=bool(found.whole)),
        *_nothing(ordered, clean, measured, contaminated=bool(found.whole)),
    ]
    if found.whole:
        reasons.append(Reason(3, GateVerdict.CONTAMINATED, f"the machine was not quiet: {found.whole}"))
    result = GateResult(
        metrics=measured,
        exact=exact,
        rates=shares,
        budgets=kept,
        contaminated=found.whole,
        left_out=found.left_out,
        advice=advice,
        num_blocks=len(first),
        num_confirming=len(again),
        likeness=likeness,
    )
    return _concluded(result, reasons)


def next_blocks(blocks: Sequence[Block], metrics: Sequence[Metric] = METRICS, plan: Plan | None = None) -> More:
    """How many more blocks to run after these, and of which kind; 0: done. Raises as `judge` does."""
    plan = plan or Plan()
    _check(blocks, metrics)
    first = [block for block in blocks if not block.confirming]
    again = [block for block in blocks if block.confirming]
    if (death := next(_died(blocks), None)) is not None:
        return More(num_blocks=0, why=death.words)
    if len(first) < plan.blocks:
        if hopeless(first, plan.blocks):
            return More(num_blocks=0, why=f"the machine is not quiet: {contention(first).whole}")
        return More(num_blocks=plan.blocks - len(first), why="as planned")
    found = contention(blocks)
    if found.whole:
        return More(num_blocks=0, why=f"the machine is not quiet: {found.whole}")
    clean = [block for block in blocks if block.number not in found.left_out and _counts(block, plan)]
    num_first, num_again = (sum(block.confirming is kind for block in clean) for kind in (False, True))
    wanted = plan.blocks if num_first <= plan.blocks else plan.max_blocks
    if not again and num_first < wanted:
        return _up_to(wanted, num_first, len(first), confirming=False)
    result = judge(first, metrics, plan)  # what was flagged is not looked at again before all fresh blocks are there
    if result.exit_code == 1:
        return More(num_blocks=0, why=result.reasons[0][1])
    gating = [one for one in result.metrics if one.gating]
    flagged = [one.metric.name for one in gating if one.verdict is MetricVerdict.UNCONFIRMED]
    if flagged and plan.confirm:
        if num_again >= plan.blocks:
            return More(num_blocks=0, why="the fresh blocks have been run")
        more = _up_to(plan.blocks, num_again, len(again), confirming=True)
        return replace(more, why=f"to see {', '.join(flagged)} again") if more.num_blocks else more
    open_things = [one.metric.name for one in gating if one.verdict is MetricVerdict.INCONCLUSIVE]
    open_things += [one.name for one in result.exact] + [one.name for one in result.rates if one.doubtful]
    if open_things and not again and num_first < plan.max_blocks:
        more = _up_to(plan.max_blocks, num_first, len(first), confirming=False)
        return replace(more, why=f"undecided: {', '.join(open_things)}") if more.num_blocks else more
    return More(num_blocks=0, why="decided" if not open_things else "all blocks of the plan have been run")


def _up_to(wanted: int, counting: int, run: int, *, confirming: bool) -> More:
    """As many as are missing; none where so many that were run do not count that more would not help."""
    if run - counting > MOST_LEFT_OUT * wanted:
        return More(num_blocks=0, confirming=confirming, why=f"{run - counting} of {count(run, 'block')} do not count")
    why = "as planned" if run == counting else f"in place of {count(run - counting, 'block')} that cannot be used"
    return More(num_blocks=wanted - counting, confirming=confirming, why=why)


# ── parts ────────────────────────────────────────────────────────────────────────────────────────


def _check(blocks: Sequence[Block], metrics: Sequence[Metric]) -> None:
    numbers = [block.number for block in blocks]
    if len(set(numbers)) < len(numbers):
        twice = next(number for number in sorted(numbers) if numbers.count(number) > 1)
        message = f"block={twice}: comes twice, and a measurement counts once"
        raise UsageError(message, "give each record once, and number blocks through")
    names = [metric.name for metric in metrics]
    if len(set(names)) < len(names):
        twice_named = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"metric={twice_named}: comes twice", "give each metric once")


def _counts(block: Block, plan: Plan) -> bool:
    """Whether there is something to compare: both arms of a pair, or any arm of a stored record."""
    lived = [_lived(block.base), _lived(block.candidate)]
    return all(lived) if plan.paired else any(lived)


def _lived(arm: Measure | None) -> bool:
    return arm is not None and not arm.died


def _doubted(one: MetricResult) -> MetricResult:
    """The same numbers, of which nothing is concluded."""
    if one.verdict is MetricVerdict.NOT_MEASURED:
        return one
    return replace(one, verdict=MetricVerdict.INCONCLUSIVE, why="contaminated", blocks_to_decide=None)


def _died(blocks: Iterable[Block]) -> Iterator[Reason]:
    for block in blocks:
        for name, arm in (("base", block.base), ("candidate", block.candidate)):
            if arm is not None and arm.died:
                yield Reason(4, GateVerdict.DIED, f"the {name} died in block {block.number}: {arm.died}")


def _exact(differences: Iterable[ExactDifference]) -> Iterator[Reason]:
    for one in differences:
        words = f"{one.name} differs: {one.why}" if one.gating else f"{one.name} is not settled: {one.why}"
        if one.gating:
            yield Reason(1, GateVerdict.REGRESSED, words)
        else:
            yield Reason(3, GateVerdict.INCONCLUSIVE, words)


def _rates(shares: Iterable[RateResult], contaminated: bool) -> Iterator[Reason]:
    for one in shares:
        if one.risen and not contaminated:
            yield Reason(1, GateVerdict.REGRESSED, f"more requests {one.name}: {one.why}")
        elif one.risen or one.doubtful:
            yield Reason(3, GateVerdict.INCONCLUSIVE, f"more requests {one.name}, perhaps: {one.why}")


def _metrics(results: Iterable[MetricResult], *, contaminated: bool, advice: str) -> Iterator[Reason]:
    for one in results:
        if not one.gating:
            continue
        words = f"{one.metric.name} {one.verdict}: {one.why}"
        match one.verdict:
            case MetricVerdict.REGRESSED if advice:
                yield Reason(3, GateVerdict.UNCONFIRMED, f"{words}; but {advice}")
            case MetricVerdict.REGRESSED:
                yield Reason(1, GateVerdict.REGRESSED, words)
            case MetricVerdict.UNCONFIRMED:
                yield Reason(3, GateVerdict.UNCONFIRMED, words)
            case MetricVerdict.INCONCLUSIVE if not contaminated:
                yield Reason(3, GateVerdict.INCONCLUSIVE, words)
            case MetricVerdict.NOT_MEASURED if not contaminated:
                yield Reason(3, GateVerdict.NOT_MEASURED, words)
            case MetricVerdict.IMPROVED:
                yield Reason(0, GateVerdict.IMPROVED, words)


def _budgets(results: Iterable[BudgetResult], *, contaminated: bool) -> Iterator[Reason]:
    for one in results:
        words = f"budget {one.budget.text} {one.verdict}: {one.why}"
        match one.verdict:
            case BudgetVerdict.BROKEN:
                yield Reason(1, GateVerdict.OVER_BUDGET, words)
            case BudgetVerdict.NOT_MEASURED:
                yield Reason(3, GateVerdict.NOT_MEASURED, words)
            case BudgetVerdict.OPEN if not contaminated:
                yield Reason(3, GateVerdict.INCONCLUSIVE, words)


def _nothing(
    blocks: Sequence[Block], clean: Sequence[Block], results: Sequence[MetricResult], *, contaminated: bool
) -> Iterator[Reason]:
    """Where nothing gates: no block, no metric that was measured and no exact value."""
    if not blocks:
        yield Reason(5, GateVerdict.NOT_MEASURED, "there is no block")
        return
    gating = [one for one in results if one.gating]
    compared = any(one.verdict is not MetricVerdict.NOT_MEASURED for one in gating)
    exact = any(arm.exact for block in clean for arm in (block.base, block.candidate) if arm is not None)
    if not contaminated and not compared and (gating or not exact):
        yield Reason(5, GateVerdict.NOT_MEASURED, "no metric that gates was measured in both arms")


def _concluded(result: GateResult, reasons: Iterable[Reason]) -> GateResult:
    """The result with its verdict, from the weightiest reason."""
    ordered = sorted(reasons, key=lambda reason: reason.weight)
    if not ordered:
        ordered = [Reason(0, GateVerdict.OK, "nothing is worse by more than its margin, as shown")]
    return replace(
        result,
        verdict=ordered[0].verdict,
        exit_code=ordered[0].code,
        reasons=tuple((reason.code, reason.words) for reason in ordered),
    )
