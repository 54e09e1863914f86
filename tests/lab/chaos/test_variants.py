"""A server of ours that has other settings for a while."""

from __future__ import annotations

from pathlib import Path

from contextlab import registry
from contextlab.lab.chaos.variants import powers_of, served_with
from contextlab.lab.server import OwnedServer
from contextlab.model import ServerCommand


def test_it_is_started_with_them_and_then_with_its_own(mark: dict[str, str], tmp_path: Path) -> None:
    spec = registry.parse_target("fake:caps", ["token_delay_s=0.01"])
    command = registry.server_command(spec)
    assert command is not None
    own = ServerCommand(argv=command.argv, env={**command.env, **mark})
    starts: list[tuple[str, bool]] = []
    with OwnedServer(own, log=tmp_path / "server.log") as server:

        def noted(one: OwnedServer) -> None:
            starts.append((one.url, one.command is own))

        url = server.url
        with served_with(server, spec, {"token_delay_s": 0.01}, noted):
            assert server.num_starts == 1
        with served_with(server, spec, {"token_delay_s": 0.02}, noted):
            assert "0.02" in " ".join(server.command.argv)
        assert server.num_starts == 3
    assert starts == [(url, False), (url, True)]


def test_where_there_is_no_server_of_ours_nothing_happens() -> None:
    spec = registry.parse_target("http://127.0.0.1:1", [])
    with served_with(None, spec, {"threads": 2}, lambda server: None):
        pass


def test_whose_threads_can_be_set() -> None:
    assert powers_of(registry.parse_target("smollm2", [])) == {"threads"}
    assert powers_of(registry.parse_target("http://127.0.0.1:1", [])) == frozenset()
