"""One evaluation, on a fake server: how long it takes is its own finding, and a client that stands still is no end."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contextlab import registry
from contextlab.analysis.frontier import Status
from contextlab.lab.load.fleet import Fleet
from contextlab.lab.sweep import evaluate as evaluating
from contextlab.lab.sweep.evaluate import Evaluator, How
from contextlab.lab.sweep.plan import planned
from contextlab.model import UnableError

pytestmark = [pytest.mark.process, pytest.mark.timeout(90)]


@contextmanager
def evaluator(folder: Path, *axes: str, measure_s: float = 0.5, fixed: tuple[str, ...] = ()) -> Iterator[Evaluator]:
    """An evaluator of a fake whose tokens take 10 ms each."""
    spec = registry.parse_target("fake:caps", ["token_delay_s=0.01", "slots=1"])
    plan = planned(spec, axes=list(axes), fixed=list(fixed), budget_s=60.0)
    one = Evaluator(
        spec=spec,
        sweep=plan.sweep,
        restarts=plan.restarts,
        how=How(measure_s=measure_s, trust_host=True),
        folder=folder,
        began_s=time.monotonic(),
    )
    try:
        yield one
    finally:
        one.close()


def test_a_level_is_measured_for_as_long_as_it_takes(tmp_path: Path) -> None:
    """Eight clients at one slot of about 0.16 s a request: until four that waited for all others have ended takes more
    than the steady part asked for, which a load of a fixed length never outlasts."""
    with evaluator(tmp_path, "concurrency=1,8", fixed=("reply_tokens=16",)) as one:
        alone, crowd = (one.evaluate({"concurrency": clients}, 0) for clients in (1, 8))
    assert (alone.status, crowd.status) == (Status.OK, Status.OK), (alone.why, crowd.why)
    assert float(crowd.facts["steady_s"] or 0) > 1.5 * float(alone.facts["steady_s"] or 0) >= 0.75
    assert float(crowd.values["p50 ttft"] or 0) > 4 * float(alone.values["p50 ttft"] or 0)
    rates = [float(found.values["tokens_per_s"] or 0) for found in (alone, crowd)]
    assert rates[1] == pytest.approx(rates[0], rel=0.35)  # one slot is as fast for eight as for one
    assert alone.facts["start_s"]
    assert crowd.facts["start_s"] is None
    assert one.num_servers == 1
    assert crowd.num_failed == 0


def beside(folder: Path, url: str) -> Evaluator:
    """An evaluator of a server that is not ours."""
    spec = registry.parse_target(url)
    plan = planned(spec, axes=["concurrency=1,2"], fixed=["reply_tokens=4"], budget_s=60.0)
    how = How(measure_s=0.1, trust_host=True)
    return Evaluator(
        spec=spec, sweep=plan.sweep, restarts=plan.restarts, how=how, folder=folder, began_s=time.monotonic()
    )


def test_a_server_that_is_not_ours_is_never_called_fresh(tmp_path: Path) -> None:
    with evaluator(tmp_path, "concurrency=1,2", measure_s=0.1, fixed=("reply_tokens=4",)) as ours:
        first = ours.evaluate({"concurrency": 1}, 0)
        assert first.facts["fresh_server"] is True
        assert ours.served is not None
        found = beside(tmp_path, str(ours.served.spec.url)).evaluate({"concurrency": 1}, 0)
    assert found.num_requests > 0
    assert (found.facts["fresh_server"], found.facts["start_s"]) == (None, None)


def test_a_server_that_is_not_there_is_no_setting_that_is_refused(tmp_path: Path) -> None:
    with socket.socket() as held:  # bound, and nobody listens
        held.bind(("127.0.0.1", 0))
        one = beside(tmp_path, f"http://127.0.0.1:{held.getsockname()[1]}")
        with pytest.raises(UnableError, match="refused"):
            one.evaluate({"concurrency": 1}, 0)


def test_another_server_starts_only_for_another_server_setting(tmp_path: Path) -> None:
    with evaluator(tmp_path, "slots=1,2", "concurrency=1,2", measure_s=0.1) as one:
        for slots, clients in ((1, 1), (1, 2), (2, 2), (2, 1)):
            assert one.evaluate({"slots": slots, "concurrency": clients}, 0).status is Status.OK
        assert one.num_servers == 2


def test_what_the_budget_cuts_short_is_no_rate(tmp_path: Path) -> None:
    with evaluator(tmp_path, "concurrency=1,8", measure_s=30.0, fixed=("reply_tokens=64",)) as one:
        found = one.evaluate({"concurrency": 8}, 0, at_most_s=1.0)
    assert found.status is Status.INVALID
    assert found.why.startswith("insufficient")
    assert found.final
    assert "tokens_per_s" not in found.values


def test_a_client_that_stands_still_does_not_hold_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Fleet.start

    def started_and_stopped(fleet: Fleet, zero_s: float | None = None) -> float:
        for pid in fleet.pids:
            os.kill(pid, signal.SIGSTOP)
        return real(fleet, zero_s)

    monkeypatch.setattr(evaluating, "STANDSTILL_S", 1.0)
    monkeypatch.setattr(Fleet, "start", started_and_stopped)
    with evaluator(tmp_path, "concurrency=1,2") as one:
        found = one.evaluate({"concurrency": 1}, 0, at_most_s=2.0)
    assert found.status is Status.INVALID
    assert found.why == "the client was lost: it stood still until it was ended"
    assert found.cost_s < 15


def test_a_client_that_dies_speaks_against_no_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Fleet.start

    def started_and_killed(fleet: Fleet, zero_s: float | None = None) -> float:
        at_s = real(fleet, zero_s)
        for pid in fleet.pids:
            os.kill(pid, signal.SIGKILL)
        return at_s

    monkeypatch.setattr(Fleet, "start", started_and_killed)
    with evaluator(tmp_path, "concurrency=1,2") as one:
        found = one.evaluate({"concurrency": 1}, 0)
    assert found.status is Status.INVALID
    assert found.why.startswith("the client was lost: a load worker died")
