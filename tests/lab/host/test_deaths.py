"""Deaths by our own hand on real servers: how each ends, that it comes back where its clients know it, who is told."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from contextlab.analysis.deaths import how_it_ended
from contextlab.deeds import Death, Victim
from contextlab.lab.host.deaths import Deaths
from contextlab.lab.server import OwnedServer
from contextlab.model import ServerCommand, UnableError
from tests.lab.host.killing import Stream, fake, root, running
from tests.lab.processes import marked, until, words
from tests.lab.test_server import http_server, script

pytestmark = pytest.mark.process
LIMIT_BYTES = 128 << 20


# ── the same address again ───────────────────────────────────────────────────────────────────────


def test_a_stream_of_its_second_life_comes_whole(mark: dict[str, str], tmp_path: Path) -> None:
    with running(fake(mark, "token_delay_s=0"), tmp_path) as lab:
        injector = lab.injector()
        for _ in range(3):
            lab.deaths.kill([root(lab.server)], "SIGSEGV", injector)
            lab.deaths.restart(injector)
        assert Stream(lab.server.url).end() == "whole"
        assert lab.server.num_starts == 4
        assert {one.end.signal for one in injector.taken() if isinstance(one, Death)} == {"SIGSEGV"}


def test_one_that_comes_back_elsewhere_is_not_taken_for_restarted(mark: dict[str, str], tmp_path: Path) -> None:
    with running(http_server(mark), tmp_path) as lab:
        injector = lab.injector()
        lab.deaths.kill([root(lab.server)], "SIGTERM", injector)
        with pytest.raises(UnableError, match=r"came back at .* and not at .*CONTEXTLAB_PORT"):
            lab.deaths.restart(injector)
        assert injector.expects_death, "its clients have nobody to talk to"


# ── who must not be killed, and who does not die ─────────────────────────────────────────────────


def test_a_server_that_is_not_ours_is_not_killed(mark: dict[str, str], tmp_path: Path) -> None:
    with running(fake(mark), tmp_path) as lab:
        foreign, injector = Deaths(None, lambda: None), lab.injector()
        with pytest.raises(UnableError, match="nothing would start it again"):
            foreign.kill([root(lab.server)], "SIGKILL", injector)
        with pytest.raises(UnableError, match="contextlab did not start it"):
            foreign.restart(injector)
        assert lab.server.process.poll() is None
        assert not injector.expects_death


def test_another_process_under_its_number_is_not_killed(mark: dict[str, str], tmp_path: Path) -> None:
    with running(fake(mark), tmp_path) as lab:
        one = root(lab.server)
        with pytest.raises(UnableError, match=f"process {one.pid} of the target had ended"):
            lab.deaths.kill([Victim(pid=one.pid, started=one.started + 1)], "SIGKILL", lab.injector())
        assert lab.server.process.poll() is None


def test_a_server_that_ignores_the_signal(
    mark: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("contextlab.lab.host.deaths.END_WAIT_S", 0.2)
    with running(fake(mark, name="caps"), tmp_path) as lab:
        one = psutil.Process(root(lab.server).pid)
        one.suspend()  # what stands still obeys nothing but SIGKILL
        with pytest.raises(UnableError, match=r"did not end within 0\.2 s of SIGTERM"):
            lab.deaths.kill([root(lab.server)], "SIGTERM", lab.injector())
        one.resume()


# ── a restart in one thread while another looks on ───────────────────────────────────────────────


def test_who_looks_on_meanwhile_never_sees_a_foreign_end(mark: dict[str, str], tmp_path: Path) -> None:
    """Pipes are closed and opened again under the same numbers while another thread polls."""
    with running(fake(mark), tmp_path) as lab:
        injector, over, errors = lab.injector(), threading.Event(), list[BaseException]()

        def look() -> None:
            try:
                while not over.is_set():
                    process = lab.server.process
                    end = process.poll() or process.wait(0.001)
                    assert end is None or end.signal == "SIGKILL", end
                    assert end is None or injector.expects_death or lab.server.process is not process
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            lab.deaths.kill([root(lab.server)], "SIGKILL", injector)
            lab.deaths.restart(injector)
        over.set()
        for thread in threads:
            thread.join(10.0)
        assert not errors, errors
        assert lab.server.num_starts == 4


def test_closing_ends_a_start_that_is_under_way(mark: dict[str, str], tmp_path: Path) -> None:
    once = tmp_path / "once"
    command = fake(mark)
    slow = script(mark, f'test -e {once} && sleep 600; touch {once}; exec "$@"')
    command = ServerCommand(argv=(*slow.argv, "sh", *command.argv), env=mark)
    caught: list[BaseException] = []
    server = OwnedServer(command, log=tmp_path / "server.log")

    def restart() -> None:
        try:
            server.restart()
        except UnableError as error:
            caught.append(error)

    thread = threading.Thread(target=restart)
    thread.start()
    until(lambda: len([one for one in marked(mark) if "sleep" in words(one)]) == 1, "its second start")
    began_s = time.monotonic()
    server.close()
    thread.join(10.0)
    assert time.monotonic() - began_s < 5.0
    assert [str(one) for one in caught] == ["the server was closed before it was ready"]


# ── which SIGKILL was it? ────────────────────────────────────────────────────────────────────────


def test_an_out_of_memory_kill_is_told_from_any_other_sigkill(mark: dict[str, str], tmp_path: Path) -> None:
    """Both end with SIGKILL, and neither says a word: only the control group knows."""
    command = replace(fake(mark, name="eats-memory"), memory_limit_bytes=LIMIT_BYTES)
    with running(command, tmp_path) as lab:
        if lab.server.process.memory_limit != "cgroup":
            pytest.skip("needs the right to make a memory cgroup")
        injector = lab.injector()
        lab.deaths.kill([root(lab.server)], "SIGKILL", injector)
        lab.deaths.restart(injector)
        by_hand = next(one.end for one in injector.taken() if isinstance(one, Death))
        assert Stream(lab.server.url, prompt="word " * 2000).end() != "whole"
        of_memory = lab.server.process.wait(20.0)
        assert not injector.expects_death, "this one is not by our hand"
    assert of_memory is not None
    assert (by_hand.signal, by_hand.out_of_memory) == ("SIGKILL", False)
    assert (of_memory.signal, of_memory.out_of_memory) == ("SIGKILL", True)
    assert "somebody sent" in how_it_ended(by_hand)
    assert "want of memory: its control group counted it" in how_it_ended(of_memory)
    assert (of_memory.peak_memory_bytes or 0) <= LIMIT_BYTES
