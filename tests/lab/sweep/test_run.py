"""The loop of a sweep on a machine made up here: what is measured next follows from the record, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from contextlab import registry
from contextlab.analysis import sweeps
from contextlab.analysis.frontier import Status
from contextlab.analysis.racing import Task
from contextlab.analysis.sweeps import Measurement, Sweep, result_of
from contextlab.lab.journal import RECORD, read_run
from contextlab.lab.run import Options
from contextlab.lab.sweep import run as sweeping
from contextlab.lab.sweep.evaluate import How
from contextlab.lab.sweep.plan import Planned, planned
from contextlab.lab.sweep.run import MOST_SPOILT, Sweeper, SweepOptions, race_of
from contextlab.model import Record, Settings, UnableError, UsageError
from contextlab.reports.pareto.live import Scope
from contextlab.reports.parts.summary import next_command

SPEC = registry.parse_target("fake:caps")
BUDGET_S = 300.0


@dataclass(slots=True)
class Machine:
    """What measures, and the clock that goes on meanwhile. `spoilt`: the first so many evaluations, and why."""

    now_s: float = 1000.0
    spoilt: tuple[int, str] = (0, "")
    slow: Settings = field(default_factory=dict)
    limits: list[float] = field(default_factory=list)
    num: int = 0

    def monotonic(self) -> float:
        """Seconds; a look takes a moment."""
        self.now_s += 0.001
        return self.now_s

    def evaluate(
        self, settings: Settings, block: int, *, baseline: bool = False, at_most_s: float = 0.0
    ) -> Measurement:
        """More slots are faster, more clients wait; the same block and setting give and cost the same again."""
        rng = Random(f"{sorted(settings.items())}:{block}")
        self.limits.append(at_most_s)
        self.num += 1
        began_s = self.now_s
        self.now_s += rng.uniform(5.0, 9.0)
        slots, clients = (int(str(settings[name])) for name in ("slots", "concurrency"))
        values = {
            "tokens_per_s": 10.0 * min(slots, clients) ** 0.7 * rng.gauss(1.0, 0.05),
            "p99 ttft": 0.2 * clients / slots * rng.gauss(1.0, 0.05),
        }
        found = Measurement(
            settings=settings, block=block, baseline=baseline, values=values, num_requests=9, began_s=began_s
        )
        if self.num <= self.spoilt[0]:
            return replace(found, status=Status.INVALID, why=self.spoilt[1], values={})
        if settings == self.slow:
            return replace(found, status=Status.INVALID, why="insufficient: 1 request", values={}, final=True)
        return found

    def close(self) -> None:
        """Nothing is open."""


def plan_of(budget_s: float = BUDGET_S) -> Planned:
    return planned(SPEC, axes=["slots=1,2,4", "concurrency=1,2,4,8"], budget_s=budget_s, seed=4)


def swept(
    folder: Path,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    *,
    resume: bool = False,
    search: str = "race",
    trust_host: bool = True,
) -> tuple[int, list[Measurement]]:
    """A sweep in this folder, new or gone on with; its exit code and all that is on record."""
    monkeypatch.setattr(sweeping, "time", SimpleNamespace(monotonic=machine.monotonic))
    monkeypatch.setattr(Sweeper, "_evaluator", lambda self: machine)
    options = SweepOptions(planned=plan_of(), how=How(trust_host=trust_host), search=search)
    before = read_run(folder / RECORD) if resume else None
    code = Sweeper(SPEC, folder, Options(command="pareto"), sweeping=options, before=before).run_sweep()
    return code, list(sweeps.read(read_run(folder / RECORD).records)[1])


def cut(folder: Path, other: Path, num: int) -> Path:
    """The record of a sweep that was killed right after so many measurements."""
    kept, seen = [], 0
    for line in (folder / RECORD).read_text(encoding="utf-8").splitlines(keepends=True):
        kept.append(line)
        seen += '"kind":"measurement"' in line
        if seen == num:
            break
    other.mkdir()
    (other / RECORD).write_text("".join(kept), encoding="utf-8")
    return other


def test_a_resume_that_is_refused_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swept(tmp_path / "whole", Machine(), monkeypatch)
    kept = (tmp_path / "whole" / RECORD).read_bytes()
    before = read_run(tmp_path / "whole" / RECORD)
    for axes, budget_s, says in (
        (["slots=1,2"], BUDGET_S, "repeat the words"),
        (["slots=1,2,4", "concurrency=1,2,4,8"], 2.0, "larger budget"),
    ):
        other = SweepOptions(planned=planned(SPEC, axes=axes, budget_s=budget_s, seed=4), how=How())
        with pytest.raises(UsageError) as caught:
            Sweeper(SPEC, tmp_path / "whole", Options(command="pareto"), sweeping=other, before=before)
        assert says in caught.value.next_step
    for spec, same, says in (
        (registry.parse_target("fake:rejects"), False, "target"),
        (SPEC, True, "prompts"),
    ):
        words = {"axes": ["slots=1,2,4", "concurrency=1,2,4,8"], "budget_s": BUDGET_S, "same_prompts": same}
        other = SweepOptions(planned=planned(spec, **words), how=How(same_prompts=same))  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=f"other words for: {says}$"):
            Sweeper(spec, tmp_path / "whole", Options(command="pareto"), sweeping=other, before=before)
    assert (tmp_path / "whole" / RECORD).read_bytes() == kept


@pytest.mark.parametrize("search", ["race", "optuna"])
def test_a_budget_that_reaches_for_nothing_is_refused(search: str) -> None:
    if search == "optuna":
        pytest.importorskip("optuna")
    with pytest.raises(UsageError, match=r"budget=2 s: .* takes about \d+ s"):
        race_of(SweepOptions(planned=plan_of(2.0), how=How(), search=search))


def test_a_damaged_record_is_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swept(tmp_path / "whole", Machine(), monkeypatch)
    with (tmp_path / "whole" / RECORD).open("a", encoding="utf-8") as out:
        out.write('{"kind":"measurement","at_s":1.0,"measurement":{"settings":{},"block":"x"}}\n')
    with pytest.raises(UsageError, match="damaged"):
        swept(tmp_path / "whole", Machine(), monkeypatch, resume=True)


@dataclass(slots=True)
class Leaving(Machine):
    """A server that is not ours, and is gone after some evaluations."""

    leaves_after: int = 0

    def evaluate(
        self, settings: Settings, block: int, *, baseline: bool = False, at_most_s: float = 0.0
    ) -> Measurement:
        """As any machine, until it is gone."""
        if self.num >= self.leaves_after:
            raise UnableError("GET http://127.0.0.1:9/v1/models: connection refused", "start it")
        return Machine.evaluate(self, settings, block, baseline=baseline, at_most_s=at_most_s)


def test_a_server_that_cannot_be_opened_speaks_against_no_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnableError):
        swept(tmp_path / "never", Leaving(), monkeypatch)
    assert (read_run(tmp_path / "never" / RECORD).end or {})["exit"]["code"] == 4
    code, measured = swept(tmp_path / "later", Leaving(leaves_after=20), monkeypatch)
    run = read_run(tmp_path / "later" / RECORD)
    assert code == 4
    assert len(measured) == 20
    assert {one.status for one in measured} == {Status.OK}
    assert [finding.outcome.name for finding in run.findings] == ["OK"]
    again = next_command(replace(run, header={"command": "pareto", "argv": ["pareto", "x"]}))
    assert again == ["contextlab", "pareto", "x", "--resume", run.path]


def shown(measurements: list[Measurement]) -> list[tuple[object, ...]]:
    return [(one.settings, one.block, one.baseline, one.values) for one in measurements]


@pytest.mark.parametrize("num", [1, 9, 20, 33])
@pytest.mark.parametrize("search", ["race", "optuna"])
def test_killed_and_resumed_it_measures_what_the_unbroken_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num: int, search: str
) -> None:
    if search == "optuna":
        pytest.importorskip("optuna")
    code, whole = swept(tmp_path / "whole", Machine(), monkeypatch, search=search)
    assert code == 0
    assert len(whole) > num
    resumed = swept(cut(tmp_path / "whole", tmp_path / "cut", num), Machine(), monkeypatch, resume=True, search=search)
    assert resumed[0] == 0
    assert shown(resumed[1]) == shown(whole)
    found = [sweeps.conclude(plan_of().sweep, measurements).frontier for measurements in (resumed[1], whole)]
    assert found[0].standings == found[1].standings


def test_what_is_measured_now_is_told_as_the_display_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Record] = []
    monkeypatch.setattr(sweeping, "time", SimpleNamespace(monotonic=Machine().monotonic))
    monkeypatch.setattr(Sweeper, "_evaluator", lambda self: Machine())
    options = SweepOptions(planned=plan_of(60.0), how=How(trust_host=True))
    Sweeper(SPEC, tmp_path / "run", Options(command="pareto"), told.append, sweeping=options).run_sweep()
    now = Scope(next(record for record in told if record["kind"] == "sweep"))
    for record in told:
        now.take(record)
        if record["kind"] == "progress":
            shown_settings = " ".join(f"{name}={value}" for name, value in record["settings"].items())
            assert now.heartbeat(1.0).startswith(f"block {record['block'] + 1}: {shown_settings}, ")
    assert any(record["kind"] == "progress" for record in told)


def test_each_next_task_is_what_a_race_told_the_record_so_far_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, whole = swept(tmp_path / "whole", Machine(), monkeypatch)
    options = SweepOptions(planned=plan_of(), how=How(trust_host=True))
    sweep: Sweep = options.planned.sweep
    for num in range(0, len(whole), 3):
        measurement = whole[num]
        race = race_of(options)
        race.tell([result_of(sweep, one) for one in whole[:num]])
        assert race.ask()[0] == Task(
            settings=measurement.settings, block=measurement.block, baseline=measurement.baseline
        )


def test_the_costs_on_record_are_all_the_time_there_was_and_the_budget_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine()
    began_s = machine.now_s
    _, measured = swept(tmp_path / "whole", machine, monkeypatch)
    spent_s = sum(one.cost_s for one in measured)
    assert spent_s == pytest.approx(machine.now_s - began_s, abs=0.2)
    assert 0.9 * BUDGET_S < spent_s <= BUDGET_S
    assert machine.limits[0] == pytest.approx(BUDGET_S, abs=0.1)
    assert machine.limits[-1] < 20.0


def test_a_setting_that_cannot_be_measured_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow: Settings = {"slots": 1, "concurrency": 8}
    _, measured = swept(tmp_path / "whole", Machine(slow=slow), monkeypatch)
    assert sum(one.settings == slow for one in measured) <= 1


@pytest.mark.parametrize(
    ("why", "says"),
    [
        ("the client was late: its loop lagged by 900 ms (p99)", "the client is starved"),
        ("the host was contended: others used 1.00 cores", "the host is contended"),
    ],
)
def test_a_starved_client_or_a_contended_host_ends_it_without_a_frontier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str, says: str
) -> None:
    code, measured = swept(tmp_path / "whole", Machine(spoilt=(99, why)), monkeypatch)
    assert code == 3
    assert len(measured) == MOST_SPOILT
    findings = [one for one in read_run(tmp_path / "whole" / RECORD).records if one["kind"] == "finding"]
    assert any(says in finding["why"] for finding in findings)
    assert not any(finding["outcome"] == "OK" for finding in findings)
    assert swept(tmp_path / "fewer", Machine(spoilt=(MOST_SPOILT - 1, why)), monkeypatch)[0] == 0
