"""What is compared for equality, and shares of failures."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis.gate.exact import exact_differences, fisher, rates, unstable_names
from contextlab.analysis.gate.nouns import Block, Exact, ExactDifference, Plan, RateResult
from tests.analysis.gate.arms import blocks, changed

PLAN = Plan()
LOOK = Plan(max_blocks=10)


def with_values(base: Sequence[Exact | None], candidate: Sequence[Exact | None]) -> list[Block]:
    """Ten blocks whose prompts had so many tokens; None: not counted."""
    every = blocks()
    for arm, values in (("base", base), ("candidate", candidate)):
        for number, value in enumerate(values, start=1):
            every = changed(every, (number,), arm, exact={} if value is None else {"prompt_tokens": value})
    return every


def difference(base: Sequence[Exact | None], candidate: Sequence[Exact | None]) -> ExactDifference | None:
    """The one difference, if any."""
    found = exact_differences(with_values(base, candidate), PLAN)
    assert len(found) <= 1
    return found[0] if found else None


def test_equal_values_are_no_difference() -> None:
    assert difference([512] * 10, [512] * 10) is None


def test_another_value_gates() -> None:
    found = difference([512] * 10, [511] * 10)
    assert found is not None
    assert found.gating
    assert (found.base, found.candidate) == (((512, 10),), ((511, 10),))
    assert found.why == "512 in every block of the base, 511 in 10 of 10 of the candidate"
    twice = difference(["OK"] * 10, ["OK"] * 8 + ["CUT", "HUNG"])
    assert twice is not None
    assert twice.gating
    assert "CUT or HUNG in 2 of 10" in twice.why


def test_a_value_seen_once_stays_open() -> None:
    found = difference([512] * 10, [512] * 9 + [511])
    assert found is not None
    assert not found.gating
    assert "too few to tell" in found.why


def test_a_base_that_wavers_needs_more() -> None:
    assert difference(["OK"] * 8 + ["CUT"] * 2, ["OK"] * 7 + ["CUT"] * 3) is None, "no more than the base does itself"
    fails = difference(["OK"] * 9 + ["CUT"], ["CRASHED"] * 10)
    assert fails is not None
    assert fails.gating
    assert "all but 1 of 10" in fails.why
    random = difference(list(range(10)), list(range(10, 20)))
    assert random is not None
    assert not random.gating
    assert "seed" in random.why
    often = difference(["OK"] * 9 + ["CUT"], ["OK"] * 2 + ["CUT"] * 8)
    assert often is not None
    assert often.gating


def test_what_was_not_counted_stays_open() -> None:
    for base, candidate in (([512] * 10, [None] * 10), ([None] * 10, [512] * 10), ([512] * 10, [512] * 8 + [None] * 2)):
        found = difference(base, candidate)
        assert found is not None
        assert not found.gating
        assert "nothing to compare" in found.why


def test_names_that_waver_in_this_place_are_not_compared() -> None:
    every = with_values([512] * 10, [511] * 10)
    assert unstable_names(every) == {"prompt_tokens"}
    assert exact_differences(every, Plan(unstable=frozenset({"prompt_tokens"}))) == ()
    assert unstable_names(with_values([512] * 10, [512] * 10)) == frozenset()


def test_an_arm_that_is_not_there_or_died_is_not_compared() -> None:
    assert exact_differences([], PLAN) == ()
    dead = changed(with_values([512] * 10, [511] * 10), range(1, 11), died="killed")
    assert exact_differences(dead, PLAN) == ()


# ── shares ───────────────────────────────────────────────────────────────────────────────────────


def test_fisher_and_the_lady_tasting_tea() -> None:
    assert fisher(4, 4, 0, 4) == pytest.approx(1 / 70)
    assert fisher(3, 4, 1, 4) == pytest.approx(17 / 70)
    assert fisher(0, 4, 4, 4) == 1.0
    assert fisher(0, 0, 0, 0) == 1.0
    # A table worked out in many textbooks: 1 of 12 men and 9 of 12 women.
    assert fisher(9, 12, 1, 12) == pytest.approx(0.001379728, rel=1e-6)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_fisher_of_both_directions_covers_everything(count: int, rest: int, base: int, base_rest: int) -> None:
    one = fisher(count, count + rest, base, base + base_rest)
    other = fisher(rest, count + rest, base_rest, base + base_rest)  # the same table, of what did not fail
    assert 0 <= one <= 1
    assert one + other >= 1 - 1e-12
    if count and rest:
        assert one <= fisher(count - 1, count + rest, base + 1, base + 1 + base_rest) + 1e-12


def test_fisher_of_many_requests_is_quick_and_exact() -> None:
    assert fisher(40, 20_000, 10, 20_000) == pytest.approx(fisher(40, 20_001, 10, 20_001), rel=1e-2)
    with pytest.raises(ValueError, match="5 of 4"):
        fisher(5, 4, 0, 4)


def failed(every: list[Block], plan: Plan = LOOK) -> RateResult:
    """The share of failed requests."""
    return next(one for one in rates(every, plan) if one.name == "failed")


def test_more_failures_are_found() -> None:
    found = failed(changed(blocks(), range(1, 11), num_failed=4))
    assert (found.base_count, found.base_total, found.candidate_count, found.candidate_total) == (0, 1000, 40, 1000)
    assert found.risen
    assert found.blocks_risen == 10
    assert not failed(blocks()).risen
    assert not failed(changed(blocks(), range(1, 11), "base", num_failed=4)).risen
    truncated = rates(changed(blocks(), range(1, 11), num_truncated=4), LOOK)[1]
    assert (truncated.name, truncated.risen) == ("truncated", True)


def test_failures_of_one_launch_stay_open() -> None:
    found = failed(changed(blocks(), (4,), num_failed=40))
    assert (found.risen, found.doubtful) == (False, True)
    assert "in one block" in found.why
    assert failed(changed(blocks(), (4, 5), num_failed=20)).risen


def test_a_rise_that_does_not_matter_is_none() -> None:
    small = failed(changed(blocks(), range(1, 10), num_failed=1))
    assert small.p < 0.05
    assert (small.risen, small.doubtful) == (False, False)


def test_of_nothing_nothing_rose() -> None:
    assert failed([]).p == 1.0
    assert not failed([Block(number=1)]).risen
    unpaired = changed(blocks(), range(1, 11), num_failed=4)
    assert failed(unpaired, Plan(max_blocks=10, paired=False)).risen
