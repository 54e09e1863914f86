"""The scenario of health that lies: what it plans, and that a liar is found out where it lies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from contextlab.experiment import Asked, Experiment
from contextlab.model import Knowledge, Limits, Skip
from contextlab.scenarios.chaos.health_honesty import SCENARIO, plan
from contextlab.targets.fake import EXPECTED_UNDER_FAULTS
from tests.command import contextlab

KNOWN = Knowledge(
    flavour="other",
    model="m",
    limits=Limits(),
    powers=frozenset({"completions", "health", "process"}),
    decode_tokens_per_s=50.0,
)


def test_everything_looks_at_health_and_the_pause_comes_last() -> None:
    steps = [step for step in plan(KNOWN, Asked(), Random(0)) if isinstance(step, Experiment)]
    assert [step.name for step in steps] == ["overload", "kill", "pause"]
    assert all(step.health and step.hypothesis == () for step in steps)
    assert len({repr(step.load) for step in steps}) == 1
    assert SCENARIO.needs == ("health",)


def test_a_process_that_is_not_ours_is_only_overrun() -> None:
    foreign = replace(KNOWN, powers=frozenset({"completions", "health"}))
    overload, *skipped = plan(foreign, Asked(), Random(0))
    assert isinstance(overload, Experiment)
    assert [step.probe for step in skipped if isinstance(step, Skip)] == ["kill", "pause"]


@pytest.mark.process
@pytest.mark.calm
@pytest.mark.timeout(120)
def test_a_liar_is_named_where_it_lies_and_nowhere_else(tmp_path: Path) -> None:
    """Overrun and killed it is honest; a pause leaves it stuck, and green."""
    asked = ["--duration", "6s", "--rate", "4", "--timeout", "1s", "--json"]
    ran = contextlab("chaos", "fake:says-well", "--scenario", SCENARIO.name, *asked, cwd=tmp_path)
    findings = ran.document["findings"]
    named = {one["probe"] for one in findings if one["outcome"] == EXPECTED_UNDER_FAULTS["says-well"].name}
    assert named == {"pause"}, ran.out + ran.err
    assert ran.code == 1
