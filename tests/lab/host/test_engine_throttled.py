"""A real llama.cpp server under a quota: busy, it is held to it; idle, nothing is proven."""

from __future__ import annotations

import importlib.util
import threading
from pathlib import Path

import pytest

from contextlab import registry
from contextlab.model import ServerCommand
from contextlab.targets.gguf import smollm2_file
from tests.lab.host import killing
from tests.lab.host.benches import needs_groups

pytestmark = [
    pytest.mark.engine,
    pytest.mark.alone,
    needs_groups,
    pytest.mark.skipif(
        importlib.util.find_spec("xllamacpp") is None or smollm2_file() is None,
        reason="llama.cpp or the model of smollm2 is not installed",
    ),
]


def command(mark: dict[str, str]) -> ServerCommand:
    """The server of smollm2."""
    found = registry.server_command(registry.parse_target("smollm2", []))
    assert found is not None
    return ServerCommand(argv=found.argv, env={**found.env, **mark}, ready_timeout_s=60.0)


def test_a_quota_holds_the_server_and_proves_nothing_where_it_is_idle(mark: dict[str, str], tmp_path: Path) -> None:
    with killing.running(command(mark), tmp_path) as lab:
        idle, _, _ = lab.inflicted("cpu:quota=200m", 1.0)
        far, _, _ = lab.inflicted("memory:limit=4GB", 1.0)
        assert (idle.landed.proven, far.landed.proven) == (False, False), (idle.landed.why, far.landed.why)
        over = threading.Event()

        def ask() -> None:
            while not over.is_set():
                killing.Stream(lab.server.url).end()

        client = threading.Thread(target=ask)
        client.start()
        try:
            busy, _, _ = lab.inflicted("cpu:quota=200m", 4.0)
        finally:
            over.set()
            client.join()
        assert busy.landed.proven is True, busy.landed.why
        assert busy.kernel["cpu_s"] / busy.kernel["wall_s"] == pytest.approx(0.2, abs=0.05)
        assert busy.tally["busy_threads"] == 1
