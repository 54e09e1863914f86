"""The pytest plugin: a test asks a target what `contextlab overflow` asks of it, and fails with what was found.

    def test_nothing_is_dropped_in_silence(contextlab):
        contextlab.assert_no_silent_truncation()

    pytest --contextlab-target smollm2

The target is opened once a session (a server of ours is started for it) and every scenario is run at most once, when a
test first needs it. Every pytest run in an environment that has contextlab loads this module: at its top it imports
nothing but pytest. Nothing here measures speed; that is the gate's, which needs the machine for itself.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from contextlab.analysis.claims import Asked, Decided
    from contextlab.lab.standing import StandingLab
    from contextlab.model import ContextlabError, Finding, Knowledge, Scenario

OPENED = pytest.StashKey[list[str]]()
"""A line for each target that was open, for the summary at the end."""
SENT = "contextlab_opened"
"""The same, from a worker of pytest-xdist to the process that shows the summary."""


# ── options ──────────────────────────────────────────────────────────────────────────────────────


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--contextlab-*`; what a project fixes once, it may write into pytest's settings instead."""
    group = parser.getgroup("contextlab", "contextlab: how an LLM server breaks at the edge of its context window")
    group.addoption(
        "--contextlab-target",
        metavar="TARGET",
        help="what the fixture `contextlab` opens: smollm2, gguf:FILE, a URL, run:'COMMAND', fake:NAME",
    )
    group.addoption(
        "--contextlab-set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the target; repeatable (contextlab scenarios settings TARGET lists them)",
    )
    group.addoption("--contextlab-at", metavar="URL", help="where a run: command will answer")
    group.addoption("--contextlab-seed", type=int, metavar="N", help="equal seeds give equal probes (default: 0)")
    group.addoption(
        "--contextlab-record",
        metavar="DIR",
        help="folder below which records are kept (default: pytest's own, of which it keeps the last three)",
    )
    group.addoption(
        "--contextlab-timeout",
        type=_seconds,
        metavar="SECONDS",
        help="time for each reply; by default scaled to the target's speed",
    )
    group.addoption(
        "--contextlab-unknown",
        choices=("fail", "skip"),
        default="fail",
        help="what becomes of a test whose question could not be answered (default: fail)",
    )
    group.addoption(
        "--contextlab-i-own-this", action="store_true", help="the target is not on this machine, and yours to test"
    )
    parser.addini("contextlab_target", "what the fixture `contextlab` opens where --contextlab-target says nothing")
    parser.addini("contextlab_settings", "its settings, NAME=VALUE a line; --contextlab-set wins", type="linelist")
    parser.addini("contextlab_record", "folder below which records are kept", default="")


def _seconds(text: str) -> float:
    """What --contextlab-timeout says."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.1 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a number of seconds between 0.1 and 86400")
    return value


def pytest_report_header(config: pytest.Config) -> str | None:
    """Which target is named; nothing where none is."""
    target = config.getoption("contextlab_target") or config.getini("contextlab_target")
    return f"contextlab: target {target}, seed {config.getoption('contextlab_seed') or 0}" if target else None


# ── fixtures ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="session")
def contextlab_target(pytestconfig: pytest.Config) -> str:
    """The target's name. Override it in a conftest.py where a fixture of yours starts the server: return its URL."""
    return str(pytestconfig.getoption("contextlab_target") or pytestconfig.getini("contextlab_target"))


@pytest.fixture(scope="session")
def contextlab(
    contextlab_target: str,
    pytestconfig: pytest.Config,
    tmp_path_factory: pytest.TempPathFactory,
    record_testsuite_property: Callable[[str, object], None],
) -> Iterator[Asserting]:
    """The target, open until the session ends. A target that cannot be opened is an error of each test, no failure."""
    from contextlab.model import ContextlabError

    if not contextlab_target:
        pytest.fail(
            "no target is named\nnext: pytest --contextlab-target smollm2, or contextlab_target in pytest's settings",
            pytrace=False,
        )
    kept = pytestconfig.getoption("contextlab_record") or pytestconfig.getini("contextlab_record")
    records = pytestconfig.invocation_params.dir / kept if kept else tmp_path_factory.mktemp("contextlab")
    try:
        lab = _lab(contextlab_target, records, pytestconfig)
        with lab:
            for name, value in (("target", lab.spec.name), ("record", lab.folder), ("model", lab.known.model)):
                record_testsuite_property(f"contextlab.{name}", str(value))
            asserting = Asserting(lab, skips=pytestconfig.getoption("contextlab_unknown") == "skip")
            yield asserting
            pytestconfig.stash.setdefault(OPENED, []).append(asserting.summary())
    except ContextlabError as error:
        raise _failure(error) from None


def _lab(target: str, records: Path, config: pytest.Config) -> StandingLab:
    """The lab that asks this target, not yet open. Raises UsageError where what is named cannot be meant, UnableError
    where records cannot be kept."""
    from contextlab.cli.session import Session, new_folder, policy
    from contextlab.lab.run import Options
    from contextlab.lab.standing import StandingLab
    from contextlab.model import UnableError

    try:
        records.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"--contextlab-record={records}: records cannot be written there: {error.strerror}"
        raise UnableError(message, "name a folder that can be written, or leave it out") from None
    session = Session(command="pytest", target=target, json=False, quiet=True, runs=records, output=None)
    assignments = [*config.getini("contextlab_settings"), *config.getoption("contextlab_set")]
    at, seed = config.getoption("contextlab_at"), config.getoption("contextlab_seed") or 0
    spec = session.parse(assignments, at=at, i_own_this=config.getoption("contextlab_i_own_this"))
    options = Options(
        seed=seed,
        policy=policy([], [], config.rootpath / "pyproject.toml"),
        patience_s=config.getoption("contextlab_timeout"),
        argv=("overflow", session.target, *_words(assignments, at), f"--seed={seed}"),
    )
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")  # workers may open the same target in the same second
    return StandingLab(spec, new_folder(records / worker, "pytest", session.target), options)


def _words(assignments: Sequence[str], at: str | None) -> list[str]:
    """The settings and the address of a target, as `contextlab overflow` takes them."""
    from contextlab.lab.provenance import without_secrets

    return [*(f"--set={word}" for word in assignments), *([f"--at={without_secrets(at)}"] if at else [])]


# ── what a test holds ────────────────────────────────────────────────────────────────────────────


class Asserting:
    """The target as a test sees it. Assertions run what they need, once a session; what is not told fails them too."""

    def __init__(self, lab: StandingLab, *, skips: bool) -> None:
        self._lab = lab
        self._skips = skips

    @property
    def url(self) -> str:
        """Where the target answers: that of a server of ours, else its address; no URL where it has none."""
        return self._lab.spec.url or self._lab.spec.address

    @property
    def knowledge(self) -> Knowledge:
        """What the target says of itself: model, limits, powers."""
        return self._lab.known

    @property
    def record(self) -> Path:
        """The folder of the record, for `contextlab report`."""
        return self._lab.folder

    def assert_no_silent_truncation(self) -> None:
        """No prompt lost a part without the client being told, inside the window and past it.

        By `prompt-too-long`; by `find-limit` where the target declares no window.
        """
        __tracebackhide__ = True
        from contextlab.analysis.claims import not_truncated

        name = "prompt-too-long" if "window" in self.knowledge.powers else "find-limit"
        asked = self._ask(name)
        self._settle(not_truncated(asked, self.knowledge, self._lab.skips(name)))

    def assert_refuses_overflow(self) -> None:
        """Every prompt that is longer than the declared window is refused clearly: the right status, before a token."""
        __tracebackhide__ = True
        from contextlab.analysis.claims import refuses

        asked = self._ask("prompt-too-long")
        self._settle(refuses(asked, self.knowledge, self._lab.skips("prompt-too-long")))

    def assert_held(self, scenario: str, *, allow: tuple[str, ...] = ()) -> tuple[Finding, ...]:
        """Every outcome of a scenario is allowed: by its probes, by `[tool.contextlab]`, or by name in `allow`.

        Returns its findings. `contextlab scenarios list` names the scenarios.
        """
        __tracebackhide__ = True
        from contextlab.analysis.claims import held

        allowed = frozenset(_outcome(name) for name in allow)
        asked = self._ask(scenario)
        self._settle(held(asked, allowed, self._lab.skips(scenario)))
        return tuple(finding for each in asked for finding in each.findings)

    def summary(self) -> str:
        """One line: the target, what was found of it, and where the record is."""
        from collections import Counter

        from contextlab.model import Verdict

        bad = Counter(one.outcome.name for one in self._lab.findings if one.verdict is not Verdict.PASS)
        found = ", ".join(f"{name} x{times}" for name, times in sorted(bad.items())) or "every outcome is allowed"
        found = found if self._lab.findings else "nothing was asked of it"
        return f"{self._lab.spec.name}: {found}; contextlab report {self.record}"

    def _ask(self, name: str) -> list[Asked]:
        __tracebackhide__ = True
        from contextlab.model import ContextlabError

        try:
            return self._lab.ask(_scenario(name))
        except ContextlabError as error:
            raise _failure(error) from None

    def _settle(self, decided: Decided) -> None:
        """Return where a claim holds; else fail, or skip what could not be told if that is wanted."""
        __tracebackhide__ = True
        from contextlab.analysis.claims import told

        if decided.holds:
            return
        message = told(self._lab.spec.name, decided, str(self.record))
        if decided.holds is None and self._skips:
            pytest.skip(message)
        pytest.fail(message, pytrace=False)


def _scenario(name: str) -> Scenario:
    from contextlab import registry
    from contextlab.model import UsageError

    if name not in registry.scenarios("overflow") and name in registry.scenarios("chaos"):
        raise UsageError(
            f"scenario={name!r}: is one of chaos, which takes a load and time", f"contextlab chaos -s {name}"
        )
    return registry.choose_scenarios("overflow", [name])[0]


def _outcome(name: str) -> Any:
    __tracebackhide__ = True
    from contextlab.model import Outcome, UsageError

    if name.upper() not in Outcome.__members__:
        raise _failure(
            UsageError(f"allow={name!r}: there is no such outcome", f"outcomes: {', '.join(Outcome.__members__)}")
        )
    return Outcome[name.upper()]


def _failure(error: ContextlabError) -> BaseException:
    """What pytest shows in the words of an error of ours, without a traceback."""
    words = error.message + (f"\nnext: {error.next_step}" if error.next_step else "")
    return pytest.fail.Exception(words, pytrace=False)


# ── the summary ──────────────────────────────────────────────────────────────────────────────────


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker hands its lines on; the fixtures of the session are over by now."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[SENT] = session.config.stash.get(OPENED, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker has ended: its lines are shown with ours."""
    node.config.stash.setdefault(OPENED, []).extend(getattr(node, "workeroutput", {}).get(SENT, []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Each target that was open, and where its record is."""
    if lines := config.stash.get(OPENED, []):
        terminalreporter.section("contextlab")
        for line in lines:
            terminalreporter.line(line)
