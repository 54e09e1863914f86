"""What the load client itself costs and how late it is: the same client as always, against a server that costs nothing.

What it shows is the floor of this machine today. Nothing is ever subtracted from a measurement.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import psutil

from contextlab.analysis.arrivals import schedule
from contextlab.experiment import Arrivals, Ending, GeneratorHealth, Load, Mixed, Pace, Sample
from contextlab.lab.load.dispatch import quantiles
from contextlab.lab.load.fleet import Fleet, LoadOrder, Prepared
from contextlab.lab.server import OwnedServer
from contextlab.model import Message, Request, ServerCommand

EVENTS = 16
MOST_LATENESS_S = 0.005
"""p99 of the lateness up to which a rate is sustained."""
LEAST_ACHIEVED = 0.99
SEARCH_FROM_PER_S = 500.0
LEVEL_S = 1.0
BUDGET_S = 15.0
TIMEOUT_S = 5.0
SERVER_SHARE = 0.85
"""CPU share of the null server from which it, not the client, may be what ends the search."""
PROMPT = "The quick brown fox jumps over the lazy dog."


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One pass at one rate. (p50, p99) of each time; `achieved_per_s` counts whole replies until the last one's end.

    `loop_lag_s` and `lateness_s` are the worst worker's. `server_cpu_share`: of one processor, while it lasted.
    """

    rate_per_s: float
    duration_s: float
    planned: int
    whole: int
    achieved_per_s: float
    ttft_s: tuple[float, float]
    e2e_s: tuple[float, float]
    lateness_s: tuple[float, float]
    loop_lag_s: tuple[float, float]
    cpu_s_per_request: float
    cpu_share: float
    server_cpu_share: float

    @property
    def sustained(self) -> bool:
        """Whether the client kept to the plan."""
        return not self.shortfall

    @property
    def shortfall(self) -> str:
        """Why it did not; "" if it did."""
        planned_per_s = self.planned / self.duration_s
        if self.achieved_per_s < LEAST_ACHIEVED * planned_per_s:
            return f"{self.achieved_per_s:.0f} of {planned_per_s:.0f} requests/s were achieved"
        if self.lateness_s[1] > MOST_LATENESS_S:
            return f"lateness p99 is {self.lateness_s[1] * 1e3:.1f} ms, above {MOST_LATENESS_S * 1e3:g} ms"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The floor at the asked rate, and the levels of the search for the highest rate of one worker.

    `highest_per_s` is None where not even the first level was sustained. `ended_by`: what ended the search.
    """

    workers: int
    duration_s: float
    at: Level
    levels: tuple[Level, ...]
    highest_per_s: float | None
    ended_by: str


def calibrate(
    rate_per_s: float, duration_s: float, workers: int = 1, progress: Callable[[str], None] = lambda text: None
) -> Calibration:
    """Measure against a null server of our own, started and ended here. Raises UnableError where it does not start."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="contextlab-") as name, null_server(Path(name) / "server.log") as server:
        log = Path(name) / "client.log"
        progress(f"{rate_per_s:g} requests/s for {duration_s:g} s")
        at = measure(server, log, rate_per_s, duration_s, workers=workers)
        levels: list[Level] = []
        highest, ended_by = (rate_per_s, "") if at.sustained and workers == 1 else (None, "")
        budget_s = max(BUDGET_S, duration_s + BUDGET_S / 2)
        for rate in _doubling(SEARCH_FROM_PER_S):
            if time.monotonic() - began_s > budget_s - 2 * LEVEL_S:
                ended_by = "the time for the search was up"
                break
            progress(f"one worker at {rate:g} requests/s")
            level = measure(server, log, rate, LEVEL_S)
            levels.append(level)
            if not level.sustained:
                ended_by = f"at {rate:g} requests/s {level.shortfall}"
                if level.server_cpu_share > SERVER_SHARE:
                    ended_by += (
                        f"; the null server used {level.server_cpu_share:.0%} of a processor and may be the limit"
                    )
                break
            highest = max(rate, highest or 0.0)
    return Calibration(
        workers=workers, duration_s=duration_s, at=at, levels=tuple(levels), highest_per_s=highest, ended_by=ended_by
    )


def measure(
    server: OwnedServer,
    log: Path,
    rate_per_s: float,
    duration_s: float,
    *,
    workers: int = 1,
    kept_connections: bool = False,
    cpus: Sequence[int] = (),
) -> Level:
    """One pass of a seeded Poisson load."""
    load = _load(Arrivals(pace=Pace.POISSON, rate_per_s=rate_per_s), duration_s, kept_connections)
    order = null_order(server.url, load)
    process = psutil.Process(server.process.pid)
    with Fleet(order, log=log, num_workers=workers, cpus=cpus) as fleet:
        before_s, began_s = _cpu_s(process), time.monotonic()
        samples, healths = gathered(fleet)
        server_cpu_s, wall_s = _cpu_s(process) - before_s, time.monotonic() - began_s
    return _level(rate_per_s, duration_s, samples, healths, server_cpu_s / wall_s)


def null_order(url: str, load: Load) -> LoadOrder:
    """The order of a load against a null server."""
    parts = urlsplit(url)
    body = {
        "model": "null",
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": EVENTS,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return LoadOrder(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or 80,
        requests=(Prepared(path="/v1/chat/completions", body=msgspec.json.encode(body)),),
        schedule=schedule(load, 1),
        duration_s=load.duration_s,
        concurrency=load.arrivals.concurrency,
        timeout_s=TIMEOUT_S,
        kept_connections=load.kept_connections,
        arm="calibrate",
    )


def gathered(fleet: Fleet) -> tuple[list[Sample], list[GeneratorHealth]]:
    """Start a fleet and wait for everything that it tells."""
    fleet.start()
    samples: list[Sample] = []
    healths: list[GeneratorHealth] = []
    while not fleet.finished:
        for seen in fleet.poll(0.5):
            if isinstance(seen, Sample):
                samples.append(seen)
            else:
                healths.append(seen)
    return samples, healths


def null_server(log: Path, *, events: int = EVENTS, event_delay_s: float = 0.0) -> OwnedServer:
    """A running null server of ours."""
    module = "contextlab.targets.servers.null_server"
    options = ("--events", str(events), "--event-delay-s", str(event_delay_s))
    return OwnedServer(ServerCommand(argv=(sys.executable, "-m", module, *options)), log=log)


def _load(arrivals: Arrivals, duration_s: float, kept_connections: bool) -> Load:
    request = Request(name="calibrate", messages=(Message(role="user", parts=(PROMPT,)),))
    mix = (Mixed(request=request),)
    return Load(arrivals=arrivals, duration_s=duration_s, mix=mix, kept_connections=kept_connections)


def _level(
    rate_per_s: float,
    duration_s: float,
    samples: Sequence[Sample],
    healths: Sequence[GeneratorHealth],
    server_cpu_share: float,
) -> Level:
    whole = [sample for sample in samples if sample.ending is Ending.WHOLE and sample.content_s]
    last_s = max([duration_s, *(sample.ended_s or 0.0 for sample in whole)])
    cpu_s = sum(health.cpu_s for health in healths)
    return Level(
        rate_per_s=rate_per_s,
        duration_s=duration_s,
        planned=len(samples),
        whole=len(whole),
        achieved_per_s=len(whole) / last_s,
        ttft_s=_ends([sample.content_s[0] - sample.due_s for sample in whole]),
        e2e_s=_ends([(sample.ended_s or 0.0) - sample.due_s for sample in whole]),
        lateness_s=_worst([health.lateness_s for health in healths]),
        loop_lag_s=_worst([health.loop_lag_s for health in healths]),
        cpu_s_per_request=cpu_s / max(1, len(samples)),
        cpu_share=max((health.cpu_s / health.wall_s for health in healths if health.wall_s), default=0.0),
        server_cpu_share=server_cpu_share,
    )


def _ends(values: Sequence[float]) -> tuple[float, float]:
    p50, _, p99, _ = quantiles(values)
    return p50, p99


def _worst(found: Sequence[tuple[float, float, float, float]]) -> tuple[float, float]:
    return max((one[0] for one in found), default=0.0), max((one[2] for one in found), default=0.0)


def _doubling(rate: float) -> Iterator[float]:
    while True:
        yield rate
        rate *= 2


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
