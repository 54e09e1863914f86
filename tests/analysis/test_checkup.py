"""What a check-up comes to: grades, an exit code, and when a machine counts as noisy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contextlab.analysis.checkup import Check, Grade, Noise, exit_code, noise_checks, summary

QUIET = Noise(
    cores=4,
    load=0.3,
    others_cores=0.02,
    pressure=0.01,
    steal=0.0,
    throttled=0,
    slices_s=[0.016] * 40,
    governor="performance",
)


def check(grade: Grade, name: str = "x") -> Check:
    return Check(section="rights", name=name, grade=grade, detail="d")


def test_a_quiet_machine_is_well() -> None:
    found = noise_checks(QUIET)
    assert {one.grade for one in found} == {Grade.OK}
    assert all(one.fix == "" for one in found)
    assert summary(found) == "all is well"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("cores", {"cores": 1, "load": 0.1}),
        ("load", {"load": 3.5}),
        ("others", {"others_cores": 0.5}),
        ("pressure", {"pressure": 0.3}),
        ("steal", {"steal": 0.05}),
        ("throttling", {"throttled": 4}),
        ("steadiness", {"slices_s": [0.016] * 30 + [0.03] * 10}),
        ("governor", {"governor": "powersave"}),
    ],
)
def test_each_disturbance_is_a_warning_of_its_own_with_a_way_out(name: str, change: dict[str, Any]) -> None:
    found = noise_checks(replace(QUIET, **change))
    assert [one.name for one in found if one.grade is Grade.WARN] == [name]
    assert all(one.fix for one in found if one.grade is Grade.WARN)
    assert exit_code(found) == 0


def test_what_the_kernel_does_not_tell_is_no_warning() -> None:
    found = noise_checks(replace(QUIET, pressure=None, steal=None, throttled=None, slices_s=[], governor=""))
    assert [(one.name, one.grade) for one in found if one.grade is not Grade.OK] == [
        ("pressure", Grade.SKIP),
        ("steal", Grade.SKIP),
    ]


def test_the_summary_names_what_stops_a_run() -> None:
    assert summary([check(Grade.OK), check(Grade.WARN)]) == "1 warning, nothing that stops a run"
    bad = [check(Grade.FAIL, "records"), check(Grade.WARN), check(Grade.FAIL, "open")]
    assert summary(bad) == "a run cannot be made: records, open; 1 warning"
    assert exit_code(bad) == 4
    assert exit_code([check(Grade.SKIP)]) == 0


def test_a_quota_that_ran_out_once_is_told_in_the_singular() -> None:
    [one] = [one for one in noise_checks(replace(QUIET, throttled=1)) if one.name == "throttling"]
    assert one.detail.endswith("ran out 1 time")
