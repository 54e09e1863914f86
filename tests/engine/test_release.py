"""Clients leave a real llama.cpp server: whose slot is free again, and whose is not; and that no look of ours did it.

a stream that leaves                                     its slot is free in time
an answer in one piece, nothing else happening           its slot is free in time
an answer in one piece, while another client streams     generated to its last token, for nobody
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from contextlab import registry
from contextlab.analysis import loads
from contextlab.analysis.cost import cost
from contextlab.analysis.release import held, judge_release, orphans
from contextlab.deeds import Victim
from contextlab.experiment import Arm, Arrivals, Due, Ending, Experiment, Load, Pace, Sample, Trial
from contextlab.lab.crowd.crowd import Crowd
from contextlab.lab.load.aim import aimed
from contextlab.lab.load.fleet import Fleet
from contextlab.lab.observe.gauges import GaugeWatch
from contextlab.lab.observe.release import ReleaseWatch
from contextlab.lab.server import OwnedServer
from contextlab.lab.undo.steps import started_of
from contextlab.model import Knowledge, Outcome, TargetSpec
from contextlab.targets.gguf import smollm2_file

pytestmark = [
    pytest.mark.engine,
    pytest.mark.alone,
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        importlib.util.find_spec("xllamacpp") is None or smollm2_file() is None,
        reason="needs the extra `llama` and the model: pip install 'contextlab[llama]'; contextlab models add smollm2",
    ),
]

LEAVE_AT_S = 0.5
LEFT_TOKENS, NEIGHBOUR_TOKENS = 120, 8
"""The neighbour's replies are short, so that in the log they can be told from those that were left."""
WITHIN_S, ORPHANED_S = 2.0, 1.0
LONGEST_S = 60.0
"""How long the neighbour may stream until what was left is at its end; a busy machine says five words a second."""
HEAD_START_S = 0.2
LOOKS = [True, False]


@dataclass(frozen=True, slots=True)
class Bench:
    """A llama.cpp server with a slot for each: the neighbour, who leaves, and who comes after them."""

    spec: TargetSpec
    known: Knowledge
    server: OwnedServer
    folder: Path

    @property
    def root(self) -> Victim:
        """Its process."""
        pid = self.server.process.pid
        assert pid is not None
        return Victim(pid=pid, started=started_of(pid) or 0)

    def lines(self, start_bytes: int) -> list[str]:
        """What it logged since."""
        return self.server.process.log_lines(start_bytes)

    def arm(self, fault: str, *, neighbour: bool, looks: bool) -> tuple[Experiment, Arm, list[str]]:
        """Let a client leave, alone, or beside a neighbour that streams until what was left is generated to its end.

        `looks`: ask the server's gauges, as a run does. Returns what it did, what was seen, and what the server logged.
        """
        mix = loads.usual_mix(self.known, NEIGHBOUR_TOKENS)[:1]
        load = Load(arrivals=Arrivals(pace=Pace.CLOSED, concurrency=1), duration_s=LONGEST_S, mix=mix)
        placed = registry.parse_fault(f"{fault}@0s+{LEAVE_AT_S + 0.1}s", start_s=0.0, length_s=1.0)
        order = aimed(
            self.spec,
            self.known,
            [mix[0].request],
            schedule=(Due(index=0, at_s=0.0, mixed=0),),
            concurrency=1,
            duration_s=LONGEST_S,
            timeout_s=30.0,
        )
        log, samples = self.folder / "client.log", list[Sample]()
        start_bytes = self.server.process.log_size_bytes()
        with contextlib.ExitStack() as stack:
            crowd = stack.enter_context(Crowd([(0, placed)], order, seed=0, log=log))
            fleet = stack.enter_context(Fleet(order, log=log)) if neighbour else None
            zero_s = time.monotonic() + HEAD_START_S
            silent = replace(self.known, powers=self.known.powers - {"gauges"})
            known = self.known if looks else silent
            watch = ReleaseWatch(self.spec, known, zero_s, root=lambda: self.root, within_s=WITHIN_S)
            stack.enter_context(watch)
            crowd.start(zero_s)
            with GaugeWatch(self.spec, known, zero_s) as gauging:
                if fleet is not None:
                    fleet.start(zero_s)
                while fleet is not None and not fleet.finished:
                    samples += [thing for thing in fleet.poll(0.2) if isinstance(thing, Sample)]
                    if ran_to_the_end(self.lines(start_bytes)):
                        fleet.stop()
                time.sleep(max(0.0, zero_s + LEAVE_AT_S + 0.2 - time.monotonic()))
                crowd.finish()
            watch.wait()
            arm = Arm(
                name="fault",
                length_s=time.monotonic() - zero_s,
                samples=tuple(samples),
                evidence=tuple(crowd.evidence().values()),
                gauges=tuple(gauging.taken()),
                readings=tuple(watch.taken()),
            )
        assert arm.evidence[0].landed.proven is True, arm.evidence
        within_s = ORPHANED_S if neighbour else WITHIN_S
        experiment = Experiment(name="leaving", load=load, faults=(placed,), release_within_s=within_s)
        return experiment, arm, self.lines(start_bytes)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The server, started once."""
    folder = tmp_path_factory.mktemp("release")
    spec = registry.parse_target("smollm2", ["kv_unified=false", "slots=4", "context=2048"])
    command = registry.server_command(spec)
    assert command is not None
    with OwnedServer(command, log=folder / "server.log") as server:
        spec = replace(spec, url=server.url)
        yield Bench(spec, asyncio.run(_learnt(spec)), server, folder)


async def _learnt(spec: TargetSpec) -> Knowledge:
    async with registry.open_target(spec) as target:
        return target.knowledge


def ran_to_the_end(lines: list[str]) -> int:
    """How many requests of those that were left the server generated to their last token, by its own log."""
    return sum(re.search(rf"  eval time = .* / +{LEFT_TOKENS} tokens", line) is not None for line in lines)


def cancelled(lines: list[str]) -> int:
    """How many requests it gave up, by its own log."""
    return sum("cancel task" in line for line in lines)


@pytest.mark.parametrize("looks", LOOKS, ids=["looking", "not looking"])
@pytest.mark.parametrize("close", ["fin", "reset"])
def test_a_stream_that_leaves_frees_its_slot_in_time(bench: Bench, close: str, looks: bool) -> None:
    fault = f"abort:at=event:1,clients=1,close={close},reply_tokens={LEFT_TOKENS}"
    experiment, arm, log = bench.arm(fault, neighbour=False, looks=looks)
    assert ran_to_the_end(log) == 0
    assert cancelled(log) >= 1
    assert all(one.after_s is not None for one in held(arm)), held(arm)
    assert ("busy_slots" in {one.name for one in held(arm)}) is looks
    [found] = judge_release(Trial(experiment=experiment, knowledge=bench.known, fault=arm))
    assert found.outcome is Outcome.OK


def test_an_answer_in_one_piece_that_nobody_waits_for_is_given_up_where_nothing_else_happens(bench: Bench) -> None:
    fault = f"abort:stream=false,clients=1,wait={LEAVE_AT_S}s,reply_tokens={LEFT_TOKENS}"
    _, arm, log = bench.arm(fault, neighbour=False, looks=False)
    time.sleep(1.0)
    assert ran_to_the_end(bench.lines(0)) == 0
    assert arm.evidence[0].tally["aborted"] >= 1
    assert "launch_slot" in " ".join(log)


@pytest.mark.parametrize("looks", LOOKS, ids=["looking", "not looking"])
def test_beside_a_stream_it_is_generated_to_the_last_token(bench: Bench, looks: bool) -> None:
    """The slot is seen to be busy for nobody; without any look the server's log tells the same."""
    fault = f"abort:stream=false,clients=1,wait={LEAVE_AT_S}s,reply_tokens={LEFT_TOKENS}"
    experiment, arm, log = bench.arm(fault, neighbour=True, looks=looks)
    assert ran_to_the_end(log) >= 1, "it was given up"
    whole = [sample for sample in arm.samples if sample.ending is Ending.WHOLE]
    assert len({sample.pieces for sample in whole}) == 1, "the neighbour's text changed"
    assert len(whole[0].pieces) == NEIGHBOUR_TOKENS
    stray = orphans(experiment, arm)
    if not looks:
        assert stray is None  # nobody asked
        assert arm.gauges == ()
        return
    assert stray is not None
    assert stray.most in (1, 2)  # who left, and who came after them
    assert stray.last_s > ORPHANED_S
    found = judge_release(Trial(experiment=experiment, knowledge=bench.known, fault=arm))
    assert found[0].outcome is Outcome.NOT_RELEASED
    assert "busy for nobody" in found[0].why
    spent = cost(arm)
    assert spent.counted
    assert spent.generated_tokens - spent.used_tokens >= LEFT_TOKENS
