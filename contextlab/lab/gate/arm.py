"""One arm in one block: a fresh process, warmed up, under the block's requests, then probed; its Measure.

    control ─▶ start ─▶ warm-up, load ─▶ probes ─▶ end ─▶ control

What goes wrong is in the measure (`died`); only what the user must mend is raised. A target that is not ours to start
is measured as it runs, with other words at the head of each prompt in every block: its caches stay warm.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from contextlab import registry
from contextlab.analysis.gate import load as loads
from contextlab.analysis.gate.load import GateLoad
from contextlab.analysis.gate.nouns import ArmName, Exact, Measure
from contextlab.analysis.judging import signal_behind
from contextlab.analysis.replies import answered
from contextlab.experiment import Due, Sample
from contextlab.lab.gate import probing, quiet
from contextlab.lab.load.aim import aimed
from contextlab.lab.load.fleet import Fleet
from contextlab.lab.server import OwnedServer, served_at, serving_command, silence
from contextlab.model import Knowledge, ProcessEnd, ServerCommand, TargetSpec, UnableError
from contextlab.targets.http import url_of

LONGEST_S = 3600.0
"""Of the load of one launch."""
HOPELESS = 4
"""Of so many requests (at least two of each client) that have all failed, more will not tell more."""
POLL_S = 0.05
HEAD_START_S = 0.1
DEATH_WAIT_S = 0.5
STANDSTILL_S = 5.0


@dataclass(slots=True)
class Arm:
    """One side of the comparison. `known`: what the target says of itself, from its first launch on."""

    name: ArmName
    spec: TargetSpec
    load: GateLoad
    seed: int
    folder: Path
    memory_limit_bytes: int | None = None
    progress: Callable[[str], None] = lambda text: None
    known: Knowledge | None = None
    _command: ServerCommand | None = field(init=False)

    def __post_init__(self) -> None:
        self._command = serving_command(self.spec)

    @property
    def is_ours(self) -> bool:
        """Whether each launch is a fresh process."""
        return self._command is not None

    def measure(self, block: int) -> Measure:
        """Launch, load, probe, end. Raises UsageError for what the user must mend, UnableError where our own client
        fails."""
        before = quiet.control()
        if self._command is None:
            if why := silence(url_of(self.spec)):
                return Measure(died=f"nothing answers at its address: {why}")
            return self._measured(self.spec, None, block, before)
        try:
            server = OwnedServer(
                self._command,
                log=self.folder / f"{self.name}.log",
                memory_limit_bytes=self.memory_limit_bytes,
                progress=self.progress,
            )
        except UnableError as error:
            return Measure(died=f"it could not be started: {_first_line(error.message)}")
        with server:
            return self._measured(served_at(self.spec, server.url), server, block, before)

    def _measured(self, spec: TargetSpec, server: OwnedServer | None, block: int, control: quiet.Controlled) -> Measure:
        try:
            self.known = known = asyncio.run(_ask(spec))
            begun = quiet.look()
            samples = self._loaded(spec, known, server, block)
            ended = quiet.look()
            counted = loads.counted(self.load, samples)
            num_answered = sum(map(answered, counted))
            died = _death(server, "under the load", in_doubt=num_answered < self.load.num_requests)
            exact: Mapping[str, Exact] = {}
            if not died:
                exact = asyncio.run(probing.facts(spec, seed=self.seed, timeout_s=self.load.timeout_s))
                lost = any(exact.get(f"{probe}.status") == "none" for probe in ("fits", "over"))
                died = _death(server, "at the prompts at the edge of its window", in_doubt=lost)
        except UnableError as error:
            died = (
                _death(server, "before it was measured", in_doubt=True)
                or f"it could not be measured: {_first_line(error.message)}"
            )
            return Measure(died=died)
        if server is not None:
            server.close()
        controls = control, quiet.control()
        if not died and not num_answered:
            died = f"it answered none of {len(samples)} requests{_why(samples)}"
        return Measure(
            metrics={} if died else loads.metrics(counted),
            num_requests=self.load.num_requests,
            num_failed=self.load.num_requests - num_answered,
            num_truncated=loads.num_truncated(counted),
            exact={} if died else {**loads.exact(counted), **exact},
            control_s=round(quiet.usual_s(*controls), 9),
            host=quiet.host(begun, ended, controls, sees_others=server is not None),
            died=died,
        )

    def _loaded(self, spec: TargetSpec, known: Knowledge, server: OwnedServer | None, block: int) -> list[Sample]:
        """Send the load; every request that counts is among the samples, unless the time was up or the server died."""
        salt = "" if server is not None else f"{block}:{self.name}"
        requests = loads.requests(self.load, known, self.seed, salt)
        order = aimed(
            spec,
            known,
            requests,
            schedule=tuple(Due(index=index, at_s=0.0, mixed=index) for index in range(len(requests))),
            concurrency=self.load.concurrency,
            duration_s=LONGEST_S,
            timeout_s=self.load.timeout_s,
            drain_s=0.0,
            arm=f"gate-{self.name}",
        )
        samples: list[Sample] = []
        with Fleet(order, log=self.folder / "client.log") as fleet:
            until_s = fleet.start(time.monotonic() + HEAD_START_S) + LONGEST_S + STANDSTILL_S
            stopped = False
            while not fleet.finished and time.monotonic() < until_s:
                samples += [one for one in fleet.poll(POLL_S) if isinstance(one, Sample)]
                gone = server is not None and server.process.poll() is not None
                if not stopped and (gone or self._hopeless(samples) or loads.done(self.load, samples)):
                    until_s, stopped = time.monotonic() + STANDSTILL_S, True
                    fleet.stop()
        return samples

    def _hopeless(self, samples: Sequence[Sample]) -> bool:
        return len(samples) >= max(HOPELESS, 2 * self.load.concurrency) and not any(map(answered, samples))


async def _ask(spec: TargetSpec) -> Knowledge:
    """What a server says of itself, without a request to its model."""
    async with registry.open_target(spec) as target:
        return target.knowledge


def _death(server: OwnedServer | None, when: str, *, in_doubt: bool) -> str:
    """How a server of ours ended by itself; "" while it runs. `in_doubt`: something failed, and a connection breaks a
    moment before its server is dead and reaped."""
    end = server.process.wait(DEATH_WAIT_S if in_doubt else 0.0) if server is not None else None
    return f"it ended by {_how(end)} {when}" if end is not None else ""


def _how(end: ProcessEnd) -> str:
    name = end.signal or signal_behind(end.exit_code)
    words = name or f"exit code {end.exit_code}"
    return f"{words} (out of memory)" if end.out_of_memory else words


def _why(samples: list[Sample]) -> str:
    words = next((one.failure.message for one in samples if one.failure is not None), "")
    return f": {_first_line(words)}" if words else ""


def _first_line(text: str) -> str:
    return text.strip().split("\n")[0][:200]
