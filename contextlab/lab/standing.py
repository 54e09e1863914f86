"""A lab that stays open: the target is opened once, and scenarios are run as they are asked for.

    with StandingLab(spec, folder, options) as lab:
        asked = lab.ask(scenario)          # probes and findings, now; a second time from memory

For callers with a loop of their own, such as a test suite. Signals are theirs too: an exception of any kind that passes
through ends what was begun, and the record says how far it came.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from contextlab.analysis.claims import Asked
from contextlab.lab.run import Lab, Options
from contextlab.model import (
    ContextlabError,
    Finding,
    Knowledge,
    Observation,
    Probe,
    Record,
    Scenario,
    Skip,
    TargetSpec,
)

INTERRUPTED = 130


class StandingLab(Lab):
    """One record of everything that was asked of one target while it was open."""

    known: Knowledge

    def __init__(
        self, spec: TargetSpec, folder: Path, options: Options, listener: Callable[[Record], None] = lambda record: None
    ) -> None:
        super().__init__(spec, folder, options, self._note_skip)
        self._outer = listener
        self._stack = ExitStack()
        self._reasons: dict[int, str] = {}
        self._asked: dict[str, list[Asked]] = {}
        self._skips: dict[str, list[Skip]] = {}

    def __enter__(self) -> StandingLab:
        """Start the server, if it is ours, and open the target. Raises UsageError, UnableError as `Lab.run` does."""
        self._stack.enter_context(self._journal)
        self._header()
        self._stack.callback(lambda: self._end(self._reasons))  # the last line, when nothing runs any more
        try:
            self._stack.enter_context(self._serving())
            self._stack.enter_context(self._nursing())
            self.known = self._open()
        except BaseException as error:
            self._ended_by(error)
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._ended_by(error)
        self._stack.close()

    def ask(self, scenario: Scenario) -> list[Asked]:
        """The probes of a scenario with what was found, in order; each scenario is run once.

        Raises UnableError where a server of ours does not come back after a probe; from then on nothing is run.
        """
        if scenario.name not in self._asked:
            asked: list[Asked] = []
            self._asked[scenario.name] = asked
            start = len(self.findings)
            try:
                self.known = self._run_scenario(scenario, self.known, ())
            except BaseException as error:
                del self._asked[scenario.name]  # it was not asked to its end
                if isinstance(error, ContextlabError):
                    self._gone = error.message
                self._ended_by(error)
                raise
            placed = {id(one) for each in asked for one in each.findings}
            loose = [one for one in self.findings[start:] if id(one) not in placed]  # its plan failed
            asked += [Asked(probe=Probe(name=one.probe), findings=(one,)) for one in loose]
        return self._asked[scenario.name]

    def skips(self, name: str) -> list[Skip]:
        """What of a scenario was not run, and why."""
        return self._skips.get(name, [])

    def _probe(self, scenario: Scenario, probe: Probe, known: Knowledge) -> tuple[Observation, list[Finding]]:
        seen, findings = super()._probe(scenario, probe, known)
        self._asked.setdefault(scenario.name, []).append(Asked(probe=probe, findings=tuple(findings)))
        return seen, findings

    def _note_skip(self, record: Record) -> None:
        if record["kind"] == "skip":
            skip = Skip(scenario=record["scenario"], probe=record.get("probe", ""), reason=record["reason"])
            self._skips.setdefault(skip.scenario, []).append(skip)
        self._outer(record)

    def _ended_by(self, error: BaseException) -> None:
        """Why the record ends before all was asked."""
        if isinstance(error, ContextlabError):
            self._reasons[error.exit_code] = error.message
        elif isinstance(error, Exception):
            self._reasons[ContextlabError.exit_code] = f"internal error: {type(error).__name__}: {error}"
        else:
            self._reasons[INTERRUPTED] = f"stopped by {type(error).__name__}"
