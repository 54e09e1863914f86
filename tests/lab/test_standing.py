"""A lab that stays open: one server, scenarios when they are asked for, a record that ends however the caller ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from contextlab import registry
from contextlab.lab.journal import RECORD, read_run
from contextlab.lab.run import Options
from contextlab.lab.standing import StandingLab
from contextlab.model import Judgement, Knowledge, Observation, Outcome, Plan, Probe, Run, Scenario, UnableError

pytestmark = pytest.mark.process
SETTINGS = ("token_delay_s=0.001", "window=128")


def lab(folder: Path, name: str = "rejects") -> StandingLab:
    """A lab on a fake, not yet open."""
    return StandingLab(registry.parse_target(f"fake:{name}", SETTINGS), folder / "run", Options())


def record(folder: Path) -> Run:
    """What it has written."""
    return read_run(folder / "run" / RECORD)


def empty_prompt(known: Knowledge, rng: Random) -> Plan:
    """One probe without a request."""
    yield Probe(name="nothing")


def fine(probe: Probe, seen: Observation) -> Iterable[Judgement]:
    """Whatever it was."""
    return [Judgement(outcome=Outcome.OK, why="as it should be")]


SCENARIO = Scenario(name="small", summary="", plan=empty_prompt, judge=fine)


def broken_plan(known: Knowledge, rng: Random) -> Plan:
    """Fails after its first probe."""
    yield Probe(name="first")
    raise ValueError("no second probe")


def test_scenarios_are_run_when_asked_and_once(tmp_path: Path) -> None:
    with lab(tmp_path) as standing:
        assert standing.known.limits.context_tokens == 128
        assert "end" not in [line["kind"] for line in record(tmp_path).records]
        first = standing.ask(SCENARIO)
        assert standing.ask(SCENARIO) is first
        other = standing.ask(replace(SCENARIO, name="other"))
        lacking = standing.ask(replace(SCENARIO, name="lacking", needs=("wings",)))
    assert [each.probe.name for each in (*first, *other)] == ["nothing", "nothing"]
    assert [one.outcome for one in first[0].findings] == [Outcome.OK]
    assert lacking == []
    assert [skip.scenario for skip in standing.skips("lacking")] == ["lacking"]
    kinds = [line["kind"] for line in record(tmp_path).records]
    assert (kinds.count("server"), kinds.count("scenario"), kinds[-1]) == (1, 2, "end")


def test_a_plan_that_fails_is_an_unknown_probe_of_its_scenario(tmp_path: Path) -> None:
    with lab(tmp_path) as standing:
        asked = standing.ask(replace(SCENARIO, plan=broken_plan))
    assert [(each.probe.name, each.findings[0].outcome) for each in asked] == [
        ("first", Outcome.OK),
        ("plan", Outcome.UNKNOWN),
    ]


def test_an_exception_of_the_caller_ends_the_server_and_the_record(tmp_path: Path) -> None:
    servers = []

    def interrupted() -> None:
        with lab(tmp_path) as standing:
            standing.ask(SCENARIO)
            servers.append(standing._server)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    [server] = servers
    assert server is not None
    assert server.process.poll() is not None
    end = record(tmp_path).end
    assert end is not None
    assert end["exit"]["code"] == 130


def test_a_server_that_does_not_come_back_leaves_every_later_question_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(self: object) -> None:
        raise UnableError("it does not start again")

    monkeypatch.setattr("contextlab.lab.server.OwnedServer.restart", cannot)
    overflow = registry.choose_scenarios("overflow", ["prompt-too-long"])[0]
    with lab(tmp_path, "segfaults") as standing:
        with pytest.raises(UnableError, match="does not start again"):
            standing.ask(overflow)
        assert standing.ask(overflow) == []
        assert standing.ask(SCENARIO) == []
        assert {skip.reason for skip in standing.skips("small")} == {"it does not start again"}
    end = record(tmp_path).end
    assert end is not None
    assert end["exit"]["code"] == 1
    assert 4 in {code for code, _ in end["exit"]["all"]}


def test_a_target_that_cannot_be_opened_is_raised_and_recorded(tmp_path: Path) -> None:
    spec = registry.parse_target("http://127.0.0.1:9")
    with pytest.raises(UnableError), StandingLab(spec, tmp_path / "run", Options()):
        pytest.fail("it must not open")
    end = record(tmp_path).end
    assert end is not None
    assert end["exit"]["code"] == 4
