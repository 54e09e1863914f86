"""Every kind of server that we start, killed while streams are open: each stream ends in a state that has a name, none
passes for an answer, and the server comes back, timed, where its clients know it."""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from contextlab import registry
from contextlab.analysis.deaths import aftermaths, judge_deaths, settled
from contextlab.analysis.integrity import Integrity
from contextlab.analysis.replies import answered
from contextlab.deeds import Death
from contextlab.experiment import Arm, Arrivals, Ending, Experiment, Load, Placed, Sample, Trial
from contextlab.lab.journal import plain
from contextlab.model import Knowledge, Limits, ServerCommand
from contextlab.targets.gguf import smollm2_file
from tests.lab.host.killing import fleet, root, running, samples
from tests.lab.test_server import free_port

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
needs_llama = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None or smollm2_file() is None, reason="needs the extra `llama`"
)
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs the extra `hf`")
KILLS = [
    ("fake:caps", "KILL"),
    ("fake:caps", "TERM"),
    ("run:", "KILL"),
    pytest.param("smollm2", "KILL", marks=needs_llama),
    pytest.param("smollm2", "TERM", marks=needs_llama),
    pytest.param("hf:random/llama", "KILL", marks=needs_torch),
]
NUM_STREAMS, KILL_S = 4, 0.4


def command_of(target: str, mark: dict[str, str]) -> ServerCommand:
    if target == "run:":
        port = free_port()
        module = "contextlab.targets.servers.fake_server"
        argv = (sys.executable, "-m", module, "caps", "--port", str(port), "--token-delay-s", "0.01")
        return ServerCommand(argv=argv, url=f"http://127.0.0.1:{port}", env=mark)
    settings = ["token_delay_s=0.01"] if target.startswith("fake:") else []
    spec = registry.parse_target(target, settings)
    if registry.runs_in_child(spec):  # it is put behind a server of ours
        words = msgspec.json.encode(plain(spec)).decode()
        return ServerCommand(argv=(sys.executable, "-m", "contextlab.lab.chaos.host", words), env=mark)
    command = registry.server_command(spec)
    assert command is not None
    return replace(command, env=mark)


def trial(found: tuple[Sample, ...], deaths: list[Death]) -> Trial:
    load = Load(arrivals=Arrivals(), duration_s=1.0, mix=())
    kill = Placed(name="kill", start_s=KILL_S, length_s=0.2)
    return Trial(
        experiment=Experiment(name="x", load=load, faults=(kill,)),
        knowledge=Knowledge(flavour="", model="", limits=Limits()),
        fault=Arm(name="fault", length_s=30.0, samples=found, deaths=tuple(deaths)),
    )


@pytest.mark.parametrize(("target", "signal"), KILLS)
def test_killed_in_the_middle_of_streams(target: str, signal: str, mark: dict[str, str], tmp_path: Path) -> None:
    with running(command_of(target, mark), tmp_path) as lab:
        url, before = lab.server.url, root(lab.server)
        with fleet(lab, tmp_path, NUM_STREAMS, reply_tokens=120) as load:
            zero_s = load.start(time.monotonic() + 0.3)
            thread = threading.Thread(target=lambda: found.append(samples(load)))
            found: list[tuple[Sample, ...]] = []
            thread.start()
            evidence, _, deaths = lab.inflicted(f"kill:signal={signal}", 0.2, zero_s=zero_s, start_s=KILL_S)
            thread.join(30.0)
        assert evidence.landed.proven, evidence.landed.why
        assert lab.server.url == url
        assert root(lab.server).pid != before.pid
        assert len(deaths) == 2, "told when it died, and again when it answered"
        [death] = settled(deaths)
        assert death.ours
        assert death.ready_s is not None
        assert death.ready_s > 0

        seen = trial(found[0], deaths)
        [after] = aftermaths(seen)
        assert len(found[0]) == NUM_STREAMS
        early = sum(answered(one) and (one.ended_s or 0.0) < death.at_s for one in found[0])  # a small model is quick
        open_then = after.names.total() + after.in_time
        assert open_then <= NUM_STREAMS <= open_then + early
        assert after.names.total() >= 1
        assert set(after.names) <= {Integrity.RESET, Integrity.CUT, Integrity.HTTP_ERROR, Integrity.ERROR_FRAME}
        assert not any(answered(sample) for sample, _ in after.readings)
        assert list(judge_deaths(seen)) == []

        with fleet(lab, tmp_path, 1, reply_tokens=4) as load:
            load.start()
            [again] = samples(load)
        assert again.ending is Ending.WHOLE
        assert answered(again)
