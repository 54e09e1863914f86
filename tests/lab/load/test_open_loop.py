"""The load goes on whatever the target does: pauses, late clients, early ends, kept connections, several workers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from contextlab.analysis.arrivals import schedule
from contextlab.experiment import Arrivals, Ending, GeneratorHealth, Load, Mixed, Pace, Sample
from contextlab.lab.load.dispatch import quantiles
from contextlab.lab.load.fleet import Fleet
from contextlab.model import Request, UnableError
from tests.lab.load import loads
from tests.lab.load.loads import Came
from tests.lab.load.scripted import Scripted
from tests.lab.processes import until

pytestmark = pytest.mark.process

FULL_SIZE = "CONTEXTLAB_FULL_PAUSE"
"""Set it to run the pause at its full size: 10 s at 20 requests/s, in 14 s."""
SLOW_S = 0.1


def paused(server: Scripted, *, rate: float, pause_s: float, folder: Path, concurrency: int = 0) -> Came:
    """A constant load on a server that stands still from a quarter of a second on."""
    duration_s = 0.25 + pause_s + 0.25
    pace = Pace.CLOSED if concurrency else Pace.CONSTANT
    arrivals = Arrivals(pace=pace, rate_per_s=rate, concurrency=concurrency)
    load = Load(arrivals=arrivals, duration_s=duration_s, mix=(Mixed(request=Request(name="one", messages=())),))
    one = loads.order(
        server.port,
        ["/pausing"],
        schedule=schedule(load, 1),
        duration_s=duration_s,
        concurrency=concurrency,
        timeout_s=pause_s + 10,
    )
    with Fleet(one, log=folder / "client.log") as fleet:
        zero_s = fleet.start()
        server.pause_s = (zero_s + 0.25, zero_s + 0.25 + pause_s)
        return loads.gathered(fleet)


def late_s(sample: Sample) -> float:
    """When its first content came, counted from when it was due."""
    return sample.content_s[0] - sample.due_s


@pytest.mark.calm
def test_a_pause_of_the_target_hurts_every_request_that_was_due_in_it(tmp_path: Path) -> None:
    """Ten seconds at 20 requests/s, or a second at 200: about 200 bad samples, where a closed loop of 4 sees 4."""
    pause_s, rate = (10.0, 20.0) if os.environ.get(FULL_SIZE) else (1.0, 200.0)
    with Scripted() as server:
        came = paused(server, rate=rate, pause_s=pause_s, folder=tmp_path)
        closed = paused(server, rate=rate, pause_s=pause_s, folder=tmp_path, concurrency=4)
    assert {sample.ending for sample in came.samples} == {Ending.WHOLE}
    assert len(came.samples) == round(rate * (0.5 + pause_s))
    hurt = [sample for sample in came.samples if 0.25 <= sample.due_s < 0.25 + pause_s - SLOW_S]
    assert abs(len(hurt) - rate * (pause_s - SLOW_S)) <= 2
    assert all(late_s(sample) > SLOW_S for sample in hurt)
    assert (
        abs(sum(map(late_s, hurt)) / len(hurt) - (pause_s + SLOW_S) / 2) < 0.25 * pause_s
    )  # as long as the rest of it
    assert sum(late_s(sample) > 0.9 * pause_s for sample in closed.samples) == 4
    assert len(closed.samples) > 4 * 4


@pytest.mark.calm
def test_a_client_that_stood_still_says_so(tmp_path: Path) -> None:
    with Scripted() as server:
        one = loads.order(server.port, ["/whole"], times=[number / 100 for number in range(80)])
        with Fleet(one, log=tmp_path / "client.log") as fleet:
            zero_s = fleet.start()
            time.sleep(max(0.0, zero_s + 0.2 - time.monotonic()))
            (pid,) = fleet.pids
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.4)
            os.kill(pid, signal.SIGCONT)
            came = loads.gathered(fleet)
    (health,) = came.healths
    assert {sample.ending for sample in came.samples} == {Ending.WHOLE}
    assert health.num_requests == len(came.samples) == 80
    assert health.lateness_s[3] > 0.35
    assert health.lateness_s[1] > 0.1  # about half of the requests were due while it stood
    assert health.loop_lag_s[3] > 0.35
    assert health.loop_lag_s[2] > 0.2  # the ticks that it slept through count, not only the one that woke it
    late = [sample for sample in came.samples if (sample.sent_s or 0) - sample.due_s > 0.1]
    assert 20 < len(late) < 50


def test_two_workers_send_exactly_what_the_seed_says(tmp_path: Path) -> None:
    mix = tuple(Mixed(request=Request(name=name, messages=())) for name in ("one", "two"))
    load = Load(arrivals=Arrivals(rate_per_s=150), duration_s=0.3, mix=mix)

    with Scripted() as server:
        one = loads.order(server.port, ["/whole", "/json"], schedule=schedule(load, 7), duration_s=0.3)
        came = loads.run(one, tmp_path, num_workers=2)
    assert sorted(health.worker for health in came.healths) == [0, 1]
    assert sum(health.num_requests for health in came.healths) == len(came.samples)
    sent = [(sample.index, sample.due_s, sample.mixed) for sample in came.samples]
    assert sent == [(due.index, round(due.at_s, 6), due.mixed) for due in schedule(load, 7)]


def test_stopping_early_gives_up_what_is_under_way_and_says_what_was_not_sent(tmp_path: Path) -> None:
    with Scripted() as server:
        one = loads.order(server.port, ["/whole", "/silent"], times=[0.0, 0.0, 60.0, 61.0], timeout_s=90.0)
        with Fleet(one, log=tmp_path / "client.log") as fleet:
            fleet.start()

            def stop(came: Came) -> None:
                if came.samples:
                    fleet.stop()

            came = loads.gathered(fleet, stop)
    endings = [sample.ending for sample in came.samples]
    assert endings == [Ending.WHOLE, Ending.TIMEOUT, Ending.UNSENT, Ending.UNSENT]
    assert came.samples[1].failure is not None
    assert came.samples[1].failure.message == "the arm was stopped"
    assert came.samples[2].sent_s is came.samples[2].ended_s is None
    assert came.healths[0].num_requests == 2


def test_stopping_before_the_beginning_sends_nothing(tmp_path: Path) -> None:
    with Fleet(loads.order(1, times=[0.0, 1.0]), log=tmp_path / "client.log") as fleet:
        fleet.stop()
        came = loads.gathered(fleet)
    assert [sample.ending for sample in came.samples] == [Ending.UNSENT] * 2
    assert came.healths[0].num_requests == 0


def test_the_end_of_the_drain_ends_the_arm(tmp_path: Path) -> None:
    with Scripted() as server:
        one = loads.order(server.port, ["/stalls"], times=[0.0, 0.1], timeout_s=90.0, drain_s=0.3)
        came = loads.run(one, tmp_path)
    for sample in came.samples:
        assert sample.ending is Ending.TIMEOUT
        assert sample.failure is not None
        assert "the arm was over" in sample.failure.message
        assert 0.3 < (sample.ended_s or 0) < 5.0


def test_kept_connections_are_used_again(tmp_path: Path) -> None:
    """That others are not is seen where every path is asked for once: each request there closes its own."""
    with Scripted() as server:
        times = [0.05 * number for number in range(6)]
        kept = loads.run(loads.order(server.port, ["/whole"], times=times, kept_connections=True), tmp_path)
    assert server.num_connections == 1
    assert {sample.ending for sample in kept.samples} == {Ending.WHOLE}
    assert all(sample.connected_s == sample.sent_s for sample in kept.samples[1:])
    assert not any(b"Connection: close" in head for head in server.heads)


def test_a_closed_loop_begins_a_request_when_another_has_ended(tmp_path: Path) -> None:
    with Scripted() as server:
        one = loads.order(
            server.port, ["/pausing"], times=[0.0] * 5, duration_s=0.5, concurrency=3, kept_connections=True
        )
        came = loads.run(one, tmp_path, num_workers=2)
        assert server.num_connections == 3
    assert [sample.index for sample in came.samples][:5] == [0, 1, 2, 3, 4]
    assert len({sample.index for sample in came.samples}) == len(came.samples) > 10  # the schedule of 5 began anew
    ends = {sample.ended_s for sample in came.samples}
    later = [sample for sample in came.samples if sample.due_s > 0]
    assert len(later) == len(came.samples) - 3
    assert all(sample.due_s in ends for sample in later)
    assert all(sample.due_s < 0.5 for sample in came.samples)
    assert [health.lateness_s for health in came.healths] == [(0.0, 0.0, 0.0, 0.0)] * 2


def test_a_closed_loop_does_not_hammer_a_target_that_refuses(tmp_path: Path) -> None:
    with Scripted() as server:
        port = server.port
    came = loads.run(loads.order(port, times=[0.0], duration_s=0.5, concurrency=2), tmp_path)
    assert {sample.ending for sample in came.samples} == {Ending.REFUSED}
    assert 4 <= len(came.samples) <= 22


def test_a_worker_that_dies_is_an_error_with_its_log(tmp_path: Path) -> None:
    one = loads.order(1, times=[60.0])
    with Fleet(one, log=tmp_path / "client.log") as fleet:
        fleet.start()
        os.kill(fleet.pids[0], signal.SIGKILL)
        with pytest.raises(UnableError, match=r"a load worker died \(SIGKILL\)"):
            loads.gathered(fleet)


def test_workers_end_when_the_fleet_is_closed(
    mark: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in mark.items():
        monkeypatch.setenv(name, value)
    with Fleet(loads.order(1, times=[60.0]), log=tmp_path / "client.log", num_workers=2) as fleet:
        fleet.start()
        pids = fleet.pids
        fleet._workers[0].sock.close()  # the tool has gone, as far as this one can see
        until(lambda: not Path(f"/proc/{pids[0]}").exists(), "the end of a worker whose socket was closed")
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_health_has_quantiles_by_rank() -> None:
    assert quantiles([]) == (0.0, 0.0, 0.0, 0.0)
    assert quantiles([float(number) for number in range(100)]) == (50.0, 90.0, 99.0, 99.0)
    assert quantiles([2.0, 1.0]) == (2.0, 2.0, 2.0, 2.0)
    assert GeneratorHealth(worker=0, num_requests=0, cpu_s=0, wall_s=0).lateness_s == quantiles([])
