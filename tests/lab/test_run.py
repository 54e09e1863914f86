"""Whole runs: as a user starts them, as a user or the system ends them, and what is concluded from them."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextlab import registry
from contextlab.analysis.concluding import conclude, judge
from contextlab.analysis.foresight import patience
from contextlab.lab.journal import RECORD, Journal, plain, read_run
from contextlab.lab.replay import compare, recall
from contextlab.lab.run import Lab, Options
from contextlab.model import (
    FITS,
    SCHEMA,
    Exchange,
    Finding,
    Judgement,
    Knowledge,
    Layer,
    Limits,
    Message,
    NothingMeasured,
    Observation,
    Outcome,
    Plan,
    Policy,
    Probe,
    ProcessEnd,
    Record,
    Request,
    Run,
    Scenario,
    Skip,
    TargetSpec,
    UnableError,
    UsageError,
    Verdict,
)
from tests.lab import processes, toy_target
from tests.lab.processes import await_gone, cgroups, keepers, marked, until, words

MAIN = "import sys; sys.argv[0] = 'contextlab'; from contextlab.cli import main; main()"
WITHIN_S = 5.0
"""What the tool promises: so long after its own death nothing of it is left."""
TIMEOUT_S = 120.0


# ── whole runs, as a user starts them ────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Tool:
    """The command line in a folder of its own, with a mark on everything that it starts."""

    folder: Path
    mark: dict[str, str]

    def _arguments(self, words: Sequence[str]) -> dict[str, Any]:
        env = {**os.environ, **self.mark, "COLUMNS": "120", "NO_COLOR": "1"}
        return {"args": [sys.executable, "-c", MAIN, *words], "cwd": self.folder, "env": env, "text": True}

    def __call__(self, *words: str, before: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            **self._arguments(words), capture_output=True, check=False, timeout=TIMEOUT_S, preexec_fn=before
        )
        assert "Traceback" not in done.stderr
        assert marked(self.mark) == [], "it left something running"
        return done

    def started(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(**self._arguments(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    @property
    def record(self) -> Path:
        """The record of its only run."""
        [path] = (self.folder / "runs").glob(f"*/{RECORD}")
        return path


def new_tool(folder: Path) -> Iterator[Tool]:
    tool = Tool(folder, processes.new_mark())
    yield tool
    for process in marked(tool.mark):
        process.kill()


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[Tool]:
    yield from new_tool(tmp_path)


@dataclass(frozen=True, slots=True)
class Whole:
    """A run that came to its end."""

    tool: Tool
    done: subprocess.CompletedProcess[str]
    document: dict[str, Any]

    @property
    def outcomes(self) -> dict[str, str]:
        return {finding["probe"]: finding["outcome"] for finding in self.document["findings"]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    """`contextlab overflow fake:rejects -s prompt-too-long --json`, once for all tests that only look at it."""
    for tool in new_tool(tmp_path_factory.mktemp("whole")):
        done = tool("overflow", "fake:rejects", "-s", "prompt-too-long", "--json", "--seed", "7")
        yield Whole(tool, done, json.loads(done.stdout))


@pytest.mark.process
def test_a_whole_run_prints_one_document(whole: Whole) -> None:
    document = whole.document
    assert (whole.done.returncode, whole.done.stderr) == (0, "")
    assert set(document) >= {
        *("schema", "command", "target", "verdict", "exit", "limits", "findings", "skipped", "run", "seed")
    }
    assert (document["schema"], document["command"]) == ("contextlab.overflow/1", "overflow")
    assert (document["target"], document["verdict"], document["seed"]) == ("fake:rejects", "PASS", 7)
    assert document["exit"] == {
        "code": 0,
        "reason": "every outcome is allowed",
        "all": [[0, "every outcome is allowed"]],
    }
    assert document["limits"]["context_tokens"] == 256
    assert document["skipped"] == []
    for finding in document["findings"]:
        assert set(finding) >= {"scenario", "probe", "outcome", "verdict", "layer", "why", "evidence", "remedy"}
        assert finding["verdict"] == "PASS"


@pytest.mark.process
def test_every_probe_has_a_row(whole: Whole) -> None:
    run = read_run(whole.tool.record)
    assert [("prompt-too-long", probe) for probe in whole.outcomes] == list(run.probes)
    assert whole.outcomes["completions-stream-fits"] == "OK"
    assert whole.outcomes["completions-stream-full"] == "REJECTED"
    assert whole.outcomes["chat-whole-twice"] == "REJECTED"


@pytest.mark.process
def test_the_record_tells_how_the_run_was_made(whole: Whole) -> None:
    run = read_run(whole.tool.record)
    assert run.header["argv"] == ["overflow", "fake:rejects", "-s", "prompt-too-long", "--json", "--seed", "7"]
    assert run.header["seed"] == 7
    assert run.header["target"]["name"] == "fake:rejects"
    assert {"python", "contextlab"} <= set(run.header["versions"])
    assert run.header["machine"]["cores"] == os.cpu_count()
    kinds = [record["kind"] for record in run.records]
    assert (kinds[0], kinds[1], kinds[-1]) == ("header", "server", "end")
    assert [record["at_s"] for record in run.records] == sorted(record["at_s"] for record in run.records)
    exchanges = run.exchanges["prompt-too-long", "completions-stream-fits"]
    assert {exchange.request.name for exchange in exchanges} == {"neighbour", "ask:HEAD", "aftermath"}


@pytest.mark.process
def test_its_reports_say_the_same(whole: Whole) -> None:
    run = str(whole.tool.record.parent)
    assert json.loads(whole.tool("report", run, "--as", "json").stdout)["findings"] == whole.document["findings"]
    text = whole.tool("report", "latest")
    assert (text.returncode, text.stderr) == (0, "")
    assert "fake:rejects" in text.stdout


@pytest.mark.process
def test_replay_of_the_same_target(whole: Whole) -> None:
    done = whole.tool("replay", "latest", "--probe", "chat-whole-full", "--output", "again")
    assert "the same: REJECTED" in done.stdout
    assert "not the same" not in done.stdout
    assert done.returncode == 0
    again = read_run(whole.tool.folder / "again" / RECORD)
    before = read_run(whole.tool.record)
    assert again.header["command"] == "replay"
    assert again.probes["prompt-too-long", "chat-whole-full"] == before.probes["prompt-too-long", "chat-whole-full"]


@pytest.mark.process
def test_replay_of_a_target_that_has_changed(whole: Whole) -> None:
    """The record's header names another fake now: as if the server had been exchanged in the meantime."""
    changed = whole.tool.folder / "changed"
    changed.mkdir()
    header, _, rest = whole.tool.record.read_bytes().partition(b"\n")
    (changed / RECORD).write_bytes(header.replace(b'"rejects"', b'"rejects-500"') + b"\n" + rest)
    done = whole.tool("replay", "changed", "--probe", "chat-whole-full", "--output", "otherwise", "--json")
    assert "not the same: it was REJECTED, now it is REJECTED_BADLY" in done.stderr
    assert done.returncode == 1
    assert json.loads(done.stdout)["exit"]["code"] == 1


# ── runs that are ended from outside ─────────────────────────────────────────────────────────────

HANGS = ("overflow", "fake:hangs", "-s", "prompt-too-long", "--timeout", "60", "--set", "token_delay_s=0")
MIDDLE = b'"probe":"chat-whole-full","exchange":"ask:HEAD"'


@pytest.fixture
def in_the_middle(tool: Tool) -> Iterator[subprocess.Popen[str]]:
    """A run that has sent a request which its target will never answer."""
    with tool.started(*HANGS) as running:
        until(lambda: list(tool.folder.glob(f"runs/*/{RECORD}")), "the record", TIMEOUT_S)
        until(lambda: MIDDLE in tool.record.read_bytes() or running.poll() is not None, "the probe", TIMEOUT_S)
        assert running.poll() is None
        yield running
        running.kill()


@pytest.mark.process
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_asked_to_stop(
    tool: Tool, in_the_middle: subprocess.Popen[str], number: signal.Signals, code: int
) -> None:
    groups = cgroups(keepers(tool.mark))
    in_the_middle.send_signal(number)
    out, err = in_the_middle.communicate(timeout=TIMEOUT_S)
    assert in_the_middle.returncode == code
    assert marked(tool.mark) == []
    assert [path for path in groups if path.exists()] == []
    assert "Traceback" not in out + err
    run = read_run(tool.record)
    assert run.end is not None
    assert run.end["exit"]["code"] == code
    assert run.end["exit"]["reason"] == f"stopped by {number.name}"
    assert "fake:hangs" in out, "what was found until then is reported"


@pytest.mark.process
def test_a_run_that_is_killed(tool: Tool, in_the_middle: subprocess.Popen[str]) -> None:
    """SIGKILL in the middle of a probe: nothing of ours is left, and what was seen is on record."""
    groups = cgroups(keepers(tool.mark))
    assert len(marked(tool.mark)) >= 6, "the tool, two keepers, the server, the nursery and the child"
    in_the_middle.kill()
    in_the_middle.wait()
    await_gone(tool.mark, WITHIN_S)
    assert [path for path in groups if path.exists()] == []
    run = read_run(tool.record)
    assert run.end is None
    assert [finding.probe for finding in run.findings] == ["chat-whole-control", "chat-whole-fits"]
    [neighbour, asked] = run.exchanges["prompt-too-long", "chat-whole-full"]
    assert neighbour.request.name == "neighbour"
    assert (asked.request.name, asked.done, asked.failure, asked.token_s) == ("ask:HEAD", False, None, ())
    for form in ("terminal", "json", "jsonl"):
        done = tool("report", "latest", "--as", form)
        assert (done.returncode, done.stderr) == (0, "")
        assert "chat-whole-control" in done.stdout or form == "terminal"
        assert "fake:hangs" in done.stdout


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_while_its_server_starts(tool: Tool, number: signal.Signals) -> None:
    with tool.started("overflow", "run:sleep 600", "--at", f"http://127.0.0.1:{free_port()}") as running:
        until(
            lambda: any("sleep" in "".join(words(process)[:1]) for process in marked(tool.mark)),
            "the server",
            TIMEOUT_S,
        )
        running.send_signal(number)
        running.communicate(timeout=TIMEOUT_S)
        assert running.returncode == (130 if number is signal.SIGINT else -number)
        await_gone(tool.mark, WITHIN_S)
    end = read_run(tool.record).end
    assert (end is None) is (number is signal.SIGKILL)


def free_port() -> int:
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


# ── runs that cannot go on ───────────────────────────────────────────────────────────────────────


@pytest.mark.process
def test_a_disk_that_fills_up(tool: Tool) -> None:
    """A limit on the size of files stands for it: the write fails in the middle of a line."""

    def before() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = tool("overflow", "fake:rejects", "-s", "after-the-storm", before=before)
    assert done.returncode == 4
    assert f"cannot write the run record {Path('runs') / tool.record.parent.name / RECORD}" in done.stderr
    assert "contextlab report" in done.stderr
    assert tool.record.stat().st_size == 20_000
    report = tool("report", "latest")
    assert (report.returncode, report.stderr) == (0, "")


@pytest.mark.process
def test_a_folder_that_cannot_be_written(tool: Tool) -> None:
    done = tool("overflow", "fake:rejects", "--runs", "/proc/contextlab", "--json")
    assert done.returncode == 4
    assert "cannot write a run record to /proc/contextlab" in done.stderr
    assert json.loads(done.stdout)["exit"]["code"] == 4


ONCE = """test -e once && { echo "no second time"; exit 9; }; touch once
exec "$0" -m contextlab.targets.servers.fake_server aborts --token-delay-s 0 --port $1"""


@pytest.mark.process
def test_a_finding_does_not_hide_behind_a_server_that_does_not_come_back(tool: Tool) -> None:
    """The overflow killed the server, which is what the tool is for; that it cannot be restarted is a detail."""
    (tool.folder / "once.sh").write_text(ONCE, encoding="utf-8")
    port = free_port()
    words = ("overflow", f"run:sh -c '. ./once.sh' {sys.executable} {port}", "--at", f"http://127.0.0.1:{port}")
    done = tool(*words, "-s", "prompt-too-long", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == document["exit"]["code"] == 1
    assert [code for code, _ in document["exit"]["all"]] == [1, 4]
    assert document["findings"][-1]["outcome"] == "CRASHED"
    assert document["findings"][-1]["evidence"]["signal"] == "SIGABRT"
    [note] = (note for note in document["notes"] if "ended early" in note)
    assert "the server ended before it was ready: exit code 9" in note
    assert "no second time" in note


# ── runs in this process, against a target that needs no server ──────────────────────────────────


def probe(name: str, *, allowed: frozenset[Outcome] = FITS, seed: int = 0) -> Probe:
    request = Request(
        name=toy_target.ASKED, messages=(Message(role="prompt", parts=(f"Say {seed}.",)),), words_seed=seed
    )
    return Probe(name=name, requests=(request,), allowed=allowed, neighbour=False)


def fine(probe: Probe, seen: Observation) -> Iterable[Judgement]:
    yield Judgement(outcome=Outcome.OK, why="as it should be")


def scenario(
    name: str,
    plan: Callable[[Knowledge, Random], Plan] = lambda known, rng: plan_of(probe("only")),
    judge: Callable[[Probe, Observation], Iterable[Judgement]] = fine,
    **options: Any,
) -> Scenario:
    return Scenario(name=name, summary=f"about {name}", plan=plan, judge=judge, **options)


def plan_of(*steps: Probe | Skip) -> Plan:
    yield from steps


@dataclass(frozen=True, slots=True)
class Labs:
    """Runs labs against toys, each in a folder of its own."""

    folder: Path

    def __call__(self, address: str, *scenarios: Scenario, **options: Any) -> tuple[int, Run]:
        lab = self.lab(address, **options)
        return lab.run(scenarios), read_run(lab.folder / RECORD)

    def lab(self, address: str, listener: Callable[[Record], None] = lambda record: None, **options: Any) -> Lab:
        folder = self.folder / f"run-{len(list(self.folder.iterdir()))}"
        return Lab(toy_target.spec(address), folder, Options(**options), listener)


@pytest.fixture
def labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Labs]:
    monkeypatch.setenv("PYTHONPATH", toy_target.installed(tmp_path / "toy"))
    monkeypatch.syspath_prepend(tmp_path / "toy")
    # A toy may be forked as well as any HTTP target: it has no threads and no device, and so a run is quicker.
    monkeypatch.setattr(registry, "runs_in_child", lambda spec: False)
    mark = processes.new_mark()
    monkeypatch.setenv(processes.MARK, mark[processes.MARK])
    (tmp_path / "runs").mkdir()
    yield Labs(tmp_path / "runs")
    left = marked(mark)
    for process in left:
        process.kill()
    assert left == []


def test_what_ends_a_run_early_is_one_line_beside_what_was_found(labs: Labs, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise UnableError("it is gone", "start it")

    monkeypatch.setattr(Lab, "_recover", gone)
    code, run = labs("answers", scenario("good"))
    assert code == 4
    [note] = [record["text"] for record in run.records if record["kind"] == "note" and "early" in record["text"]]
    assert note == "the run ended early: it is gone; next: start it"


def nested(known: Knowledge, rng: Random) -> Plan:
    seen = yield probe("first")
    assert seen is not None
    yield from plan_of(probe("second"), probe("third"))


def no_steps(known: Knowledge, rng: Random) -> Plan:
    rng.random()
    return plan_of()


def seeded(known: Knowledge, rng: Random) -> Plan:
    yield probe(f"drawn-{rng.randrange(1 << 20)}", seed=rng.randrange(1 << 20))


@pytest.mark.process
def test_equal_seeds_equal_probes(labs: Labs) -> None:
    """Whatever else differs between two runs: the time, the folder, and what ran before in the same run."""
    _, first = labs("answers", scenario("seeded", seeded), seed=1)
    _, again = labs("answers", scenario("other", no_steps), scenario("seeded", seeded), seed=1)
    _, other = labs("answers", scenario("seeded", seeded), seed=2)
    [one], [two], [three] = (
        [plain(probe) for (name, _), probe in run.probes.items() if name == "seeded"] for run in (first, again, other)
    )
    assert one == two
    assert one["name"] != three["name"]
    assert one["requests"] != three["requests"]


DRAWN = ("find-limit", "prompt-too-long", "reply-past-window", "conversation-growth", "token-blowup", "kv-exhaustion")
"""Scenarios whose texts are drawn from the seed."""


@pytest.mark.parametrize("name", list(registry.scenarios("overflow")))
def test_plans_depend_on_the_seed_alone(name: str) -> None:
    limits = Limits(context_tokens=512, pool_tokens=2048, num_slots=4)
    powers = frozenset({"completions", "chat", "counts-tokens", "window", "serves-many", "gauges", "health"})
    known = Knowledge(flavour="toy", model="toy", limits=limits, powers=powers)

    def steps(seed: int) -> list[object]:
        return [plain(step) for step in registry.scenarios("overflow")[name].plan(known, Random(seed))]

    assert steps(1) == steps(1) != []
    if name in DRAWN:
        assert steps(1) != steps(2)


@pytest.mark.process
def test_what_raises_is_unknown_and_never_a_pass(labs: Labs) -> None:
    def broken_judge(probe: Probe, seen: Observation) -> Iterable[Judgement]:
        yield Judgement(outcome=Outcome.OK, why="so far so good")
        raise ZeroDivisionError("of the judge")

    def broken_plan(known: Knowledge, rng: Random) -> Plan:
        yield probe("first")
        raise ZeroDivisionError("of the plan")

    def no_plan(known: Knowledge, rng: Random) -> Plan:
        raise ZeroDivisionError("at once")

    code, run = labs(
        "answers",
        scenario("good"),
        scenario("judge-raises", judge=broken_judge),
        scenario("plan-raises", broken_plan),
        scenario("no-plan", no_plan),
        scenario("silent", judge=lambda probe, seen: ()),
        scenario("nested", nested),
        scenario("needy", needs=("telepathy", "window")),
    )
    found = [(finding.scenario, finding.probe, finding.outcome.name, finding.why) for finding in run.findings]
    assert found == [
        ("good", "only", "OK", "as it should be"),
        ("judge-raises", "only", "OK", "so far so good"),
        ("judge-raises", "only", "UNKNOWN", "the judge failed: ZeroDivisionError: of the judge"),
        ("plan-raises", "first", "OK", "as it should be"),
        ("plan-raises", "plan", "UNKNOWN", "the plan failed: ZeroDivisionError: of the plan"),
        ("no-plan", "plan", "UNKNOWN", "the plan failed: ZeroDivisionError: at once"),
        ("silent", "only", "UNKNOWN", "the scenario did not judge this probe"),
        ("nested", "first", "OK", "as it should be"),
        ("nested", "second", "OK", "as it should be"),
        ("nested", "third", "OK", "as it should be"),
    ]
    assert [(skip.scenario, skip.reason) for skip in run.skips] == [("needy", "the target lacks telepathy")]
    assert code == 3
    assert run.end is not None
    assert (run.end["verdict"], run.end["exit"]["code"]) == ("UNKNOWN", 3)
    for name in ("json", "terminal"):
        with (labs.folder / name).open("w", encoding="utf-8") as out:
            registry.choose_writer(name)(run, out)


@pytest.mark.process
def test_a_scenario_is_left_after_so_many_crashes(labs: Labs) -> None:
    def crashes(known: Knowledge, rng: Random) -> Plan:
        return plan_of(*(probe(f"probe-{number}") for number in range(5)))

    code, run = labs("dies:1", scenario("first", crashes), scenario("second"), max_repeats=2)
    assert [(finding.scenario, finding.probe) for finding in run.findings] == [
        ("first", "probe-0"),
        ("first", "probe-1"),
        ("second", "only"),
    ]
    assert {finding.outcome for finding in run.findings} == {Outcome.CRASHED}
    assert [(skip.probe, skip.reason) for skip in run.skips] == [
        (f"probe-{number}", "CRASHED 2 times in this scenario already") for number in (2, 3, 4)
    ]
    assert code == 1
    finding = run.findings[0]
    assert finding.evidence["signal"] == "SIGSEGV"
    assert str(finding.evidence["last_event"]).startswith("token of ask")
    assert finding.evidence["last_words"] == "these are my last words"


@pytest.mark.process
def test_a_hanging_probe_ends_at_its_patience(labs: Labs) -> None:
    code, run = labs("hangs:2", scenario("hanging"), patience_s=0.5)
    [finding] = run.findings
    assert (finding.outcome, finding.verdict, code) == (Outcome.HUNG, Verdict.FAIL, 1)
    assert "waited 0.5 s" in finding.why
    [asked, aftermath] = run.exchanges["hanging", "only"]
    assert (len(asked.token_s), aftermath.done) == (2, True)


@pytest.mark.process
def test_the_policy_moves_the_line(labs: Labs) -> None:
    code, run = labs("dies:1", scenario("s"), policy=Policy(allow=frozenset({Outcome.CRASHED})))
    assert (code, [finding.verdict for finding in run.findings]) == (0, [Verdict.PASS])
    assert run.header["policy"] == {"allow": ["CRASHED"]}


@pytest.mark.process
def test_a_target_that_cannot_be_opened(labs: Labs) -> None:
    lab = labs.lab("sings")
    with pytest.raises(UsageError, match="there is no such toy"):
        lab.run([scenario("s")])
    run = read_run(lab.folder / RECORD)
    assert run.findings == ()
    assert run.end is not None
    assert run.end["exit"] == {
        "code": 2,
        "reason": "toy='sings': there is no such toy",
        "all": [[2, "toy='sings': there is no such toy"]],
    }


@pytest.mark.process
def test_an_error_of_ours_is_the_end_of_the_record(labs: Labs) -> None:
    """It is raised, for the command line to show; the record must not look as if the tool had been killed."""

    def listener(record: Record) -> None:
        if record["kind"] == "probe":
            raise ZeroDivisionError("of ours")

    lab = labs.lab("answers", listener)
    with pytest.raises(ZeroDivisionError):
        lab.run([scenario("s")])
    end = read_run(lab.folder / RECORD).end
    assert end is not None
    assert end["exit"]["code"] == 70
    assert end["exit"]["reason"] == "internal error: ZeroDivisionError: of ours"


@pytest.mark.process
def test_a_plan_sees_what_came_of_its_probes(labs: Labs) -> None:
    told: list[object] = []

    def looks(known: Knowledge, rng: Random) -> Plan:
        seen = yield probe("first")
        assert seen is not None
        told.append(seen.exchanges[0].text)
        told.append((yield Skip(scenario="looks", probe="second", reason="not today")))
        told.append(known.tokens_per_word)

    _, run = labs("answers", scenario("looks", looks))
    assert told == ["".join(toy_target.REPLY), None, 1.0]
    assert run.skips == (Skip(scenario="looks", probe="second", reason="not today"),)


# ── what is concluded ────────────────────────────────────────────────────────────────────────────


def finding(verdict: Verdict, outcome: Outcome = Outcome.CUT) -> Finding:
    return Finding(scenario="s", probe="p", outcome=outcome, verdict=verdict, layer=Layer.ENGINE, why="")


PASS, FAIL, DARK = (finding(verdict) for verdict in (Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN))
CODES = (2, 4, 5, 6, 70, 130, 143)


@pytest.mark.parametrize(
    ("findings", "reasons", "verdict", "codes"),
    [
        ([], {}, "UNKNOWN", [5]),
        ([], {4: "x"}, "UNKNOWN", [4]),
        ([PASS], {}, "PASS", [0]),
        ([PASS, PASS], {}, "PASS", [0]),
        ([PASS, DARK], {}, "UNKNOWN", [3]),
        ([PASS, DARK, FAIL], {}, "FAIL", [1, 3]),
        ([FAIL], {4: "x"}, "FAIL", [1, 4]),
        ([FAIL, DARK], {4: "x", 5: "y"}, "FAIL", [1, 4, 5, 3]),
        ([DARK], {4: "x"}, "UNKNOWN", [4, 3]),
        ([FAIL], {6: "x"}, "FAIL", [6, 1]),
        ([FAIL], {70: "x"}, "FAIL", [70, 1]),
        ([FAIL], {130: "x"}, "FAIL", [130, 1]),
        ([FAIL, DARK], {143: "x"}, "FAIL", [143, 1, 3]),
        ([PASS], {130: "x"}, "PASS", [130]),
    ],
)
def test_the_exit_code(findings: list[Finding], reasons: dict[int, str], verdict: str, codes: list[int]) -> None:
    found, code, every = conclude(findings, reasons)
    assert (found.name, code, [one for one, _ in every]) == (verdict, codes[0], codes)


def test_the_exit_says_what_could_not_be_told() -> None:
    assert conclude([DARK], {})[2] == [(3, "1 probe whose outcome could not be told")]
    assert conclude([DARK], {}, "experiment")[2] == [(3, "1 experiment whose outcome could not be told")]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.builds(finding, st.sampled_from(Verdict), st.sampled_from(Outcome)), max_size=6),
    st.dictionaries(st.sampled_from(CODES), st.text(max_size=5), max_size=3),
)
def test_a_failure_never_hides(findings: list[Finding], reasons: dict[int, str]) -> None:
    verdict, code, every = conclude(findings, reasons)
    codes = [one for one, _ in every]
    assert code == codes[0]
    assert len(set(codes)) == len(codes)
    assert set(reasons) <= set(codes), "every reason is told"
    assert all(dict(every)[one] == words for one, words in reasons.items())
    failed = any(finding.verdict is Verdict.FAIL for finding in findings)
    assert (1 in codes) is failed
    assert (code in (0, 3, 4, 5)) <= (not failed)
    assert (code == 0) is (not reasons and {finding.verdict for finding in findings} == {Verdict.PASS})
    assert verdict is max((finding.verdict for finding in findings), default=Verdict.UNKNOWN)
    assert conclude(findings[::-1], reasons)[:2] == (verdict, code)


OBSERVED = Observation(exchanges=(), knowledge=toy_target.known())


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (replace(OBSERVED, client_note="the window is too small"), "the probe could not be made: the window"),
        (OBSERVED, "nothing was seen: no request was sent"),
        (replace(OBSERVED, client=ProcessEnd(exit_code=0, stderr_tail=("a", "b"))), "nothing was seen: b"),
    ],
)
def test_a_probe_that_told_nothing_is_unknown(seen: Observation, words: str) -> None:
    [judgement] = judge(scenario("s"), probe("p"), seen)
    assert judgement.outcome is Outcome.UNKNOWN
    assert words in judgement.why


def test_a_common_judgement_that_raises_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(probe: Probe, seen: Observation) -> list[Judgement]:
        raise ZeroDivisionError("common")

    monkeypatch.setattr("contextlab.analysis.concluding.common", broken)
    [judgement] = judge(scenario("s"), probe("p"), OBSERVED)
    assert (judgement.outcome, judgement.why) == (
        Outcome.UNKNOWN,
        "it could not be judged: ZeroDivisionError: common",
    )


def test_after_a_death_the_scenario_is_not_asked() -> None:
    def never(probe: Probe, seen: Observation) -> Iterable[Judgement]:
        raise AssertionError

    seen = replace(OBSERVED, exchanges=(Exchange(request=probe("p").requests[0]),), server=ProcessEnd(signal="SIGSEGV"))
    assert [one.outcome for one in judge(scenario("s", judge=never), probe("p"), seen)] == [Outcome.CRASHED]


def test_patience_follows_the_speed_of_the_target() -> None:
    known = replace(toy_target.known(), prefill_tokens_per_s=100.0, decode_tokens_per_s=10.0)
    slow = replace(known, prefill_tokens_per_s=1.0, decode_tokens_per_s=0.5)
    request = Request(name="a", messages=(), size_tokens=1000, reply_tokens=50)
    one = Probe(name="p", requests=(request,))
    four = Probe(name="p", requests=(request,) * 4)
    endless = Probe(name="p", requests=(replace(request, reply_tokens=None),))
    assert patience(Probe(name="p"), known) >= 10.0
    assert patience(one, known) == patience(four, known) > (10 + 5)
    assert patience(replace(four, parallel=True), known) > 3 * (patience(one, known) - 10)
    assert patience(one, slow) > 50 * patience(one, known) > 0
    assert patience(endless, known) > patience(one, known)


# ── replay ───────────────────────────────────────────────────────────────────────────────────────


def record_of(folder: Path, *probes: tuple[str, str, Outcome], **header: object) -> Run:
    """A record with these probes: (scenario, probe, outcome)."""
    target = {"target": TargetSpec(name="fake:rejects", scheme="fake", address="rejects")}
    with Journal(folder, lambda: 0.0) as journal:
        journal.append("header", **{"schema": SCHEMA, "policy": Policy(), **target, **header})
        for name, probe_name, outcome in probes:
            journal.append("probe", scenario=name, probe=Probe(name=probe_name))
            found = replace(finding(Verdict.PASS, outcome), scenario=name, probe=probe_name)
            journal.append("finding", **plain(found))
    return read_run(folder / RECORD)


PROBES = (
    ("find-limit", "control", Outcome.OK),
    ("prompt-too-long", "control", Outcome.OK),
    ("prompt-too-long", "twice", Outcome.REJECTED),
    ("of-yesterday", "old", Outcome.OK),
)


def test_recall(tmp_path: Path) -> None:
    run = record_of(tmp_path / "run", *PROBES)
    memory = recall(run, "twice")
    assert (memory.scenario.name, memory.probe.name, memory.outcomes) == (
        "prompt-too-long",
        "twice",
        frozenset({Outcome.REJECTED}),
    )
    assert memory.spec == TargetSpec(name="fake:rejects", scheme="fake", address="rejects")
    assert recall(run, "find-limit/control").scenario.name == "find-limit"
    assert recall(run, "prompt-too-long/control").scenario.name == "prompt-too-long"


@pytest.mark.parametrize(
    ("name", "message", "next_step"),
    [
        ("thrice", "the record holds no such probe", "find-limit/control, prompt-too-long/control"),
        ("find-limit/twice", "the record holds no such probe", "prompt-too-long/twice"),
        ("", "the record holds no such probe", "prompt-too-long/twice"),
        ("control", "more than one probe has that name", "find-limit/control, prompt-too-long/control"),
        ("old", "scenario='of-yesterday': it is not installed here", "install"),
    ],
)
def test_recall_of_what_is_not_there(tmp_path: Path, name: str, message: str, next_step: str) -> None:
    with pytest.raises(UsageError) as caught:
        recall(record_of(tmp_path / "run", *PROBES), name)
    assert message in caught.value.message
    assert next_step in caught.value.next_step


@pytest.mark.parametrize("header", [{"target": None}, {"target": {"name": 1}}, {"policy": {"allow": ["WHATEVER"]}}])
def test_recall_from_a_damaged_header(tmp_path: Path, header: dict[str, object]) -> None:
    with pytest.raises(NothingMeasured, match="its header is damaged"):
        recall(record_of(tmp_path / "run", *PROBES, **header), "twice")


def test_recall_from_a_run_that_came_to_nothing(tmp_path: Path) -> None:
    with pytest.raises(NothingMeasured, match="the record holds no probe"):
        recall(record_of(tmp_path / "run"), "twice")


@pytest.mark.parametrize(
    ("now", "code", "expected", "words"),
    [
        (Outcome.REJECTED, 0, 0, "the same: REJECTED"),
        (Outcome.REJECTED, 1, 1, "the same: REJECTED"),
        (Outcome.OK, 0, 3, "not the same: it was REJECTED, now it is OK"),
        (Outcome.CRASHED, 1, 1, "not the same: it was REJECTED, now it is CRASHED"),
        (Outcome.UNKNOWN, 3, 3, "not the same: it was REJECTED, now it is UNKNOWN"),
        (None, 5, 3, "not the same: it was REJECTED, now it is nothing"),
        (None, 4, 4, "not the same: it was REJECTED, now it is nothing"),
        (None, 130, 130, "not the same: it was REJECTED, now it is nothing"),
    ],
)
def test_compare(tmp_path: Path, now: Outcome | None, code: int, expected: int, words: str) -> None:
    memory = recall(record_of(tmp_path / "run", *PROBES), "twice")
    again = record_of(tmp_path / "again", *([] if now is None else [("prompt-too-long", "twice", now)]))
    assert compare(memory, again, code) == (expected, words)
