"""The verdict of a run, its exit code and reasons, and how many more blocks it takes."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextlab.analysis.gate.judging import judge, next_blocks
from contextlab.analysis.gate.nouns import (
    METRICS,
    Block,
    GateResult,
    GateVerdict,
    Host,
    Likeness,
    Measure,
    Metric,
    MetricVerdict,
    More,
    Plan,
)
from contextlab.lab.journal import plain
from contextlab.model import UsageError
from tests.analysis.gate.arms import SPEED, STEADY, TTFT, blocks, changed, measure

ONE = (TTFT,)
LOUD = tuple(8 * off for off in STEADY)
FRESH: dict[str, Any] = {"start": 11, "confirming": True}
BUSY = Host(others_cores=2.0)
EXACT = {"exact": {"prompt_tokens": 512}}


def test_equal_arms_pass() -> None:
    found = judge(blocks(), ONE)
    assert (found.verdict, found.exit_code) == (GateVerdict.OK, 0)
    assert found.reasons == ((0, "nothing is worse by more than its margin, as shown"),)
    assert (found.num_blocks, found.num_confirming) == (10, 0)


def test_better_is_improved() -> None:
    found = judge(blocks(0.8), ONE)
    assert (found.verdict, found.exit_code) == (GateVerdict.IMPROVED, 0)


def test_worse_fails_only_when_it_is_confirmed() -> None:
    once, twice = judge(blocks(1.2), ONE), judge([*blocks(1.2), *blocks(1.2, **FRESH)], ONE)
    assert (once.verdict, once.exit_code) == (GateVerdict.UNCONFIRMED, 3)
    assert (twice.verdict, twice.exit_code) == (GateVerdict.REGRESSED, 1)
    assert (twice.num_blocks, twice.num_confirming) == (10, 10)
    assert twice.reasons[0][1].startswith("ttft_p50_s regressed: worse by more than the margin, and again")
    gone = judge([*blocks(1.2), *blocks(1.0, **FRESH)], ONE)
    assert (gone.verdict, gone.exit_code) == (GateVerdict.UNCONFIRMED, 3)


def test_undecided_is_neither() -> None:
    found = judge(blocks(noise=LOUD), ONE)
    assert (found.verdict, found.exit_code) == (GateVerdict.INCONCLUSIVE, 3)


def test_a_metric_that_does_not_gate_decides_nothing() -> None:
    found = judge([*blocks(1.2), *blocks(1.2, **FRESH)], [replace(TTFT, gating=False)])
    assert found.exit_code == 5, "then nothing gates"
    with_exact = judge(blocks(1.2, base=EXACT, candidate=EXACT), [replace(TTFT, gating=False)])
    assert (with_exact.verdict, with_exact.exit_code) == (GateVerdict.OK, 0)


# ── what is counted ──────────────────────────────────────────────────────────────────────────────


def test_an_exact_difference_fails() -> None:
    found = judge(blocks(base=EXACT, candidate={"exact": {"prompt_tokens": 510}}), ONE)
    assert (found.verdict, found.exit_code) == (GateVerdict.REGRESSED, 1)
    assert found.reasons[0][1].startswith("prompt_tokens differs: 512 in every block of the base")
    once = judge(changed(blocks(base=EXACT, candidate=EXACT), (3,), exact={"prompt_tokens": 510}), ONE)
    assert (once.verdict, once.exit_code) == (GateVerdict.INCONCLUSIVE, 3)


def test_more_failures_outrank_more_speed() -> None:
    found = judge(blocks(0.5, candidate={"num_failed": 6}), ONE)
    assert (found.verdict, found.exit_code) == (GateVerdict.REGRESSED, 1)
    assert found.metrics[0].verdict is MetricVerdict.IMPROVED
    assert "more requests failed: 0 of 1000 requests of the base, 60 of 1000" in found.reasons[0][1]
    launch = judge(changed(blocks(0.5), (2,), num_failed=60), ONE)
    assert (launch.verdict, launch.exit_code) == (GateVerdict.INCONCLUSIVE, 3)


# ── what cannot be told ──────────────────────────────────────────────────────────────────────────


def test_a_death_is_no_regression_and_no_pass() -> None:
    found = judge(changed(blocks(), (5,), died="SIGKILL"), ONE)
    assert (found.verdict, found.exit_code) == (GateVerdict.DIED, 4)
    assert found.reasons[0] == (4, "the candidate died in block 5: SIGKILL")
    everywhere = judge(changed(blocks(), range(1, 11), died="exit 1"), ONE)
    assert everywhere.exit_code == 4
    assert everywhere.metrics[0].verdict is MetricVerdict.NOT_MEASURED
    worse = judge(changed([*blocks(1.5), *blocks(1.5, **FRESH)], (5,), "base", died="SIGKILL"), ONE)
    assert worse.exit_code == 1, "a confirmed regression does not hide behind it"


def test_nothing_is_no_pass() -> None:
    for nothing in ([], [Block(number=1)], changed(blocks(), range(1, 11), metrics={"itl_p50_s": 1.0})):
        found = judge(nothing, ONE)
        assert (found.verdict, found.exit_code) == (GateVerdict.NOT_MEASURED, 5)
    some = judge(blocks(), [TTFT, SPEED])
    assert (some.verdict, some.exit_code) == (GateVerdict.NOT_MEASURED, 3)
    assert some.reasons[0][1] == "tokens_per_s not measured: measured in 0 of 10 blocks"


def test_a_percentile_that_takes_more_requests_does_not_stand_in_the_way() -> None:
    both = blocks()
    found = judge(both, [TTFT, Metric(name="ttft_p99_s", margin=0.2, min_requests=300)])
    assert (found.verdict, found.exit_code) == (GateVerdict.OK, 0)
    assert found.metrics[1].verdict is MetricVerdict.NOT_MEASURED


def test_a_contended_machine_fails_nobody() -> None:
    worse = [*blocks(2.0, candidate={"num_failed": 9}), *blocks(2.0, **FRESH)]
    found = judge(changed(worse, range(1, 21), host=BUSY), ONE)
    assert (found.verdict, found.exit_code) == (GateVerdict.CONTAMINATED, 3)
    assert "20 of 20 blocks; block 1: beside the candidate others used 2.0 cores" in found.contaminated
    assert len(found.left_out) == 20
    half = judge(changed(worse, range(1, 11), host=BUSY), ONE)
    assert (half.verdict, half.exit_code) == (GateVerdict.CONTAMINATED, 3)
    assert half.metrics[0].verdict is not MetricVerdict.REGRESSED


def test_nor_does_it_hide_what_quiet_blocks_count() -> None:
    every = blocks(base=EXACT, candidate={"exact": {"prompt_tokens": 510}, "num_failed": 9})
    found = judge(changed(every, range(1, 6), host=BUSY), ONE)
    assert found.contaminated
    assert found.exit_code == 1
    assert [words.partition(":")[0] for code, words in found.reasons if code == 1] == ["prompt_tokens differs"]
    assert any(code == 3 and "more requests failed, perhaps" in words for code, words in found.reasons)


def test_one_busy_block_is_left_out_and_said() -> None:
    found = judge(changed(blocks(), (4,), host=BUSY, metrics={"ttft_p50_s": 9.0}), ONE)
    assert (found.verdict, found.num_blocks) == (GateVerdict.OK, 9)
    assert list(found.left_out) == [4]


# ── stored records ───────────────────────────────────────────────────────────────────────────────


def test_records_of_another_place_are_not_compared() -> None:
    found = judge(blocks(2.0), ONE, likeness=Likeness(hard=("machine.cpu: A in the baseline, B now",)))
    assert (found.verdict, found.exit_code) == (GateVerdict.NOT_COMPARABLE, 5)
    assert found.metrics == ()
    assert "machine.cpu" in found.reasons[0][1]


def test_records_of_nearly_the_same_place_give_advice() -> None:
    plan, soft = Plan(confirm=False, paired=False), Likeness(soft=("machine.kernel: 6.1 in the baseline, 6.8 now",))
    assert judge(blocks(1.2), ONE, plan).exit_code == 1
    found = judge(blocks(1.2), ONE, plan, soft)
    assert (found.verdict, found.exit_code) == (GateVerdict.UNCONFIRMED, 3)
    assert found.metrics[0].verdict is MetricVerdict.REGRESSED
    assert "machine.kernel" in found.advice
    exact = blocks(base=EXACT, candidate={"exact": {"prompt_tokens": 510}})
    assert judge(exact, ONE, plan, soft).exit_code == 1, "what is counted does not depend on the kernel"


# ── how many more ────────────────────────────────────────────────────────────────────────────────


def test_first_the_plan_is_fulfilled() -> None:
    assert next_blocks([], ONE) == More(num_blocks=10, why="as planned")
    assert next_blocks(blocks(1.5)[:4], ONE).num_blocks == 6, "nobody looks before"
    assert next_blocks(blocks(), ONE) == More(num_blocks=0, why="decided")


def test_the_undecided_is_extended_once() -> None:
    more = next_blocks(blocks(noise=LOUD), ONE)
    assert (more.num_blocks, more.confirming, more.why) == (10, False, "undecided: ttft_p50_s")
    twelve = [*blocks(noise=LOUD), *blocks(noise=LOUD[:2], start=11)]
    assert next_blocks(twelve, ONE).num_blocks == 8, "nobody looks between"
    twenty = [*blocks(noise=LOUD), *blocks(noise=LOUD, start=11)]
    assert next_blocks(twenty, ONE).num_blocks == 0
    assert next_blocks(blocks(noise=LOUD), ONE, Plan(max_blocks=10)).num_blocks == 0
    once = changed(blocks(base=EXACT, candidate=EXACT), (3,), exact={"prompt_tokens": 510})
    assert next_blocks(once, ONE).why == "undecided: prompt_tokens"
    failing = changed(blocks(), (2,), num_failed=60)
    assert next_blocks(failing, ONE).why == "undecided: failed"


def test_the_flagged_is_confirmed() -> None:
    more = next_blocks(blocks(1.3), ONE)
    assert (more.num_blocks, more.confirming, more.why) == (10, True, "to see ttft_p50_s again")
    assert next_blocks([*blocks(1.3), *blocks(1.3, **FRESH)[:3]], ONE).num_blocks == 7
    for again in (1.0, 1.3):
        assert next_blocks([*blocks(1.3), *blocks(again, **FRESH)], ONE).num_blocks == 0
    assert next_blocks(blocks(1.3), ONE, Plan(confirm=False)).num_blocks == 0


def test_what_cannot_get_better_is_not_measured_longer() -> None:
    assert next_blocks(changed(blocks()[:3], (2,), died="SIGKILL"), ONE).why == "the candidate died in block 2: SIGKILL"
    busy = next_blocks(changed(blocks(), range(1, 6), host=BUSY), ONE)
    assert busy.num_blocks == 0
    assert "not quiet" in busy.why
    differs = blocks(base=EXACT, candidate={"exact": {"prompt_tokens": 510}})
    assert "prompt_tokens differs" in next_blocks(differs, ONE).why
    halves = [replace(block, candidate=None) for block in blocks()]
    assert next_blocks(halves, ONE).num_blocks == 0


def test_on_a_machine_that_is_not_quiet_the_rest_is_not_measured() -> None:
    three, four = (changed(blocks()[:number], range(1, 6), host=BUSY) for number in (3, 4))
    assert next_blocks(three, ONE) == More(num_blocks=7, why="as planned")
    assert next_blocks(four, ONE).num_blocks == 0
    assert "not quiet: 4 of 4 blocks; block 1" in next_blocks(four, ONE).why
    assert judge(four, ONE).verdict is GateVerdict.CONTAMINATED
    slower = changed(blocks()[:4], (1, 2), control_s=9.0)
    assert next_blocks(slower, ONE).num_blocks == 6, "the control's median is known at the end only"


def test_a_block_that_was_disturbed_is_replaced() -> None:
    more = next_blocks(changed(blocks(1.3), (2, 7), host=BUSY), ONE)
    assert (more.num_blocks, more.confirming) == (2, False)
    assert more.why == "in place of 2 blocks that cannot be used"
    fresh = next_blocks([*blocks(1.3), *changed(blocks(1.3, **FRESH), (12,), host=BUSY)], ONE)
    assert (fresh.num_blocks, fresh.confirming) == (1, True)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.booleans())
def test_every_run_ends(seed: int, one_at_a_time: bool) -> None:
    """Whatever is measured, the plan is at an end some time, however many blocks are run between two questions."""
    random = Random(seed)
    done: list[Block] = []
    for number in range(1, 100):
        more = next_blocks(done, METRICS)
        if more.num_blocks == 0:
            break
        places = range(1 if one_at_a_time else more.num_blocks)
        done += [odd_block(random, 1000 * number + place, more.confirming) for place in places]
    assert next_blocks(done, METRICS).num_blocks == 0
    assert sum(not block.confirming for block in done) <= 30
    assert sum(block.confirming for block in done) <= 20
    assert judge(done, METRICS).exit_code in (0, 1, 3, 4, 5)


def odd_block(random: Random, number: int, confirming: bool) -> Block:
    """Anything that a run can bring."""

    def arm() -> Measure | None:
        if random.random() < 0.02:
            return None
        names = ("ttft_p50_s", "itl_p50_s", "e2e_p90_s", "tokens_per_s")
        return measure(
            {name: random.lognormvariate(0, 0.1) for name in names if random.random() > 0.01},
            num_failed=int(random.random() < 0.1),
            exact={"status": 200 if random.random() < 0.99 else 503},
            host=Host(others_cores=2.0 if random.random() < 0.03 else 0.0),
            control_s=random.lognormvariate(0, 0.03),
            died="SIGKILL" if random.random() < 0.002 else "",
        )

    return Block(number=number, base=arm(), candidate=arm(), confirming=confirming)


def test_blocks_and_verdicts_survive_a_record() -> None:
    differs = blocks(1.2, base=EXACT, candidate={"exact": {"prompt_tokens": 510}, "control_s": 1.0})
    every = [*changed(differs, (4,), host=BUSY, died="SIGKILL"), Block(number=11, confirming=True, first="candidate")]
    assert msgspec.convert(json.loads(json.dumps(plain(every))), list[Block], strict=False) == every
    verdict = judge(every)
    assert msgspec.convert(json.loads(json.dumps(plain(verdict))), GateResult, strict=False) == verdict


def test_what_comes_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="block=1: comes twice"):
        judge([*blocks(), *blocks()], ONE)
    with pytest.raises(UsageError, match="metric=ttft_p50_s: comes twice"):
        next_blocks(blocks(), [TTFT, TTFT])
