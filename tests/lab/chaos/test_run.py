"""What a chaos run makes of a scenario that cannot be planned."""

from __future__ import annotations

from pathlib import Path
from random import Random

from contextlab import registry
from contextlab.experiment import Asked, ChaosPlan, ChaosScenario
from contextlab.lab.chaos.run import ChaosLab, ChaosOptions
from contextlab.lab.journal import RECORD, read_run
from contextlab.lab.run import Options
from contextlab.model import Knowledge, Skip


def broken(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    yield Skip(scenario="broken", probe="first", reason="not today")
    raise ZeroDivisionError("of the plan")


def whole(known: Knowledge, asked: Asked, rng: Random) -> ChaosPlan:
    yield Skip(scenario="whole", probe="second", reason="nor this")


def test_a_plan_that_fails_is_unknown_and_the_run_goes_on(tmp_path: Path) -> None:
    lab = ChaosLab(
        registry.parse_target("fake:caps"),
        tmp_path / "run",
        Options(command="chaos"),
        chaos=ChaosOptions(asked=Asked()),
    )
    code = lab.run_chaos(
        [
            ChaosScenario(name=name, summary="", plan=plan, order=0)
            for name, plan in (("broken", broken), ("whole", whole))
        ]
    )
    run = read_run(tmp_path / "run" / RECORD)
    assert code == 3
    [found] = run.findings
    assert (found.scenario, found.outcome.name) == ("broken", "UNKNOWN")
    assert found.why == "the plan failed: ZeroDivisionError: of the plan"
    assert [skip.probe for skip in run.skips] == ["first", "second"]
