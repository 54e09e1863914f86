"""Which blocks a busy machine spoilt, and when it spoilt them all."""

from __future__ import annotations

import pytest

from contextlab.analysis.gate.contention import contention
from contextlab.analysis.gate.nouns import Host
from tests.analysis.gate.arms import blocks, changed

TIMED = {"control_s": 1.0}
QUIET = blocks(base=TIMED, candidate=TIMED)


def test_a_quiet_machine_spoils_nothing() -> None:
    assert contention(QUIET).left_out == {}
    assert contention(QUIET).whole == ""
    assert contention(blocks()).left_out == {}, "what was not looked at is not held against it"
    assert contention([]).whole == ""
    within = Host(others_cores=0.2, cpu_pressure=0.08, steal=0.01, throttled=0)
    assert contention(changed(QUIET, range(1, 11), host=within)).left_out == {}


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (Host(others_cores=1.9), "others used 1.9 cores"),
        (Host(cpu_pressure=0.4), "waited for a CPU 40%"),
        (Host(steal=0.1), "the hypervisor took 10%"),
        (Host(throttled=3), "quota ran out 3 times"),
    ],
)
@pytest.mark.parametrize("arm", ["base", "candidate"])
def test_a_block_that_was_disturbed_is_left_out_alone(host: Host, words: str, arm: str) -> None:
    found = contention(changed(QUIET, (4,), arm, host=host))
    assert list(found.left_out) == [4]
    assert words in found.left_out[4]
    assert arm in found.left_out[4]
    assert found.whole == ""


def test_a_third_is_too_many() -> None:
    three, four = changed(QUIET, (1, 2, 3), host=Host(steal=0.2)), changed(QUIET, (1, 2, 3, 4), host=Host(steal=0.2))
    assert contention(three).whole == ""
    assert contention(four).whole.startswith("4 of 10 blocks; block 1: beside the candidate the hypervisor took")


def test_a_control_off_its_median_spoils_its_block() -> None:
    found = contention(changed(QUIET, (6,), control_s=1.2))
    assert list(found.left_out) == [6]
    assert "off its median of 1 s by +20%" in found.left_out[6]
    assert list(contention(changed(QUIET, (6,), control_s=0.8)).left_out) == [6]
    assert contention(changed(QUIET, (6,), control_s=1.1)).left_out == {}
    assert contention(changed(QUIET, (6,), control_s=0.0)).left_out == {}


def test_a_machine_that_is_slower_beside_one_arm_spoils_all() -> None:
    found = contention(changed(QUIET, range(1, 11), control_s=1.08))
    assert found.left_out == {}
    assert "+8% beside the candidate" in found.whole
    assert contention(changed(QUIET, range(1, 11), control_s=1.03)).whole == ""
    assert "beside the candidate" in contention(changed(QUIET, range(1, 11), "base", control_s=1.08)).whole
