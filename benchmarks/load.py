"""What a 16-event SSE request costs the client: ours, plain aiohttp, plain httpx, and on request guidellm and AIPerf.

    python benchmarks/load.py
    python benchmarks/load.py --peers guidellm,aiperf        # installs torch; takes long
    python benchmarks/load.py --streams 64 --repeats 7 --json load.json

One null server on one processor, every client in a process of its own on another. Clients take turns within each
repeat, ratios are taken within a repeat, and the smallest and the median of them are shown: other work on the machine
then hurts everybody alike. All CPU counts: for ours that of the worker, which parses and reports every event, and that
of the process which it reports to. `bare` is the floor: a protocol that reads, looks for the end, understands nothing.
What a whole tool costs beyond its start is the slope between a short and a long run.
Clients that are not ours get environments of their own, made with pip where they are not there yet.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contextlab.experiment import Arrivals, Ending, Load, Mixed, Pace
from contextlab.lab.calibrate import LEAST_ACHIEVED, MOST_LATENESS_S, gathered, measure, null_order, null_server
from contextlab.lab.load.dispatch import quantiles
from contextlab.lab.load.fleet import Fleet
from contextlab.lab.server import OwnedServer
from contextlab.model import Request

PEERS_SCRIPT = Path(__file__).with_name("load_peers.py")
PACKAGES = {
    "httpx": ("httpx==0.28.1", "uvloop==0.23.0"),
    "guidellm": ("torch==2.13.0", "guidellm==0.8.1"),
    "aiperf": ("aiperf==0.13.0",),
}
GOALS = {"aiohttp": 3.0, "httpx": 20.0}
"""How many times our CPU a request must cost elsewhere."""
PACED_DELAY_S = 0.01
RATE_PER_S = 200.0
FIRST_LEVEL_PER_S = 125.0
TRIES = 3
PEER_REQUESTS = (200, 1200)
CLIENT_CPU, SERVER_CPU = 0, 1
WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "seven", "wizards", "box")


@dataclass(frozen=True)
class Cost:
    """One client's pass: CPU and rate."""

    requests: int
    cpu_s: float
    wall_s: float
    lateness_s: tuple[float, ...] = ()

    @property
    def cpu_us(self) -> float:
        """CPU of a request in microseconds."""
        return self.cpu_s / max(1, self.requests) * 1e6

    @property
    def rate_per_s(self) -> float:
        """Requests per second."""
        return self.requests / self.wall_s


Client = Callable[[OwnedServer, int, float], Cost]
"""Runs so many streams for so many seconds."""


# ── the clients ──────────────────────────────────────────────────────────────────────────────────


def ours(folder: Path) -> Client:
    """Our worker process, with what it costs to receive its samples."""

    def run(server: OwnedServer, streams: int, duration_s: float) -> Cost:
        mix = (Mixed(request=Request(name="benchmark", messages=())),)
        arrivals = Arrivals(pace=Pace.CLOSED, concurrency=streams)
        load = Load(arrivals=arrivals, duration_s=duration_s, mix=mix, kept_connections=True)
        with Fleet(null_order(server.url, load), log=folder / "client.log") as fleet:
            began_s = time.process_time()
            samples, healths = gathered(fleet)
            receiving_s = time.process_time() - began_s
        if any(sample.ending is not Ending.WHOLE or len(sample.pieces) != 16 for sample in samples):
            raise RuntimeError("a reply was not whole")
        wall_s = max(sample.ended_s or 0.0 for sample in samples)
        return Cost(len(samples), sum(health.cpu_s for health in healths) + receiving_s, wall_s)

    return run


def plain(name: str, python: Path) -> Client:
    """A plain client of `load_peers.py`."""

    def run(server: OwnedServer, streams: int, duration_s: float) -> Cost:
        return peer(python, name, server, "--streams", str(streams), "--duration", str(duration_s))

    return run


def peer(python: Path, name: str, server: OwnedServer, *options: str) -> Cost:
    """One pass of `load_peers.py`."""
    load = Load(arrivals=Arrivals(rate_per_s=1), duration_s=1, mix=(Mixed(request=Request(name="", messages=())),))
    body = null_order(server.url, load).requests[0].body.decode()
    words = [python, PEERS_SCRIPT, name, "--url", f"{server.url}/v1/chat/completions", "--body", body, *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr[-800:]}")
    seen = json.loads(done.stdout)
    if seen["whole"] != seen["requests"]:
        raise RuntimeError(f"{name}: {seen['whole']} of {seen['requests']} replies were whole")
    return Cost(seen["requests"], seen["cpu_s"], seen["wall_s"], tuple(seen["late"]))


def environment(name: str, folder: Path) -> Path | None:
    """The Python of an environment that has a package; None where pip cannot install it."""
    python = folder / name / "bin" / "python"
    if not python.exists():
        say(f"installing {' '.join(PACKAGES[name])} …")
        subprocess.run([sys.executable, "-m", "venv", folder / name], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", *PACKAGES[name]]
        if subprocess.run(pip, check=False).returncode:
            return None
    shown = subprocess.run([python, "-c", f"import {name}"], capture_output=True, check=False)
    return python if shown.returncode == 0 else None


# ── what is measured ─────────────────────────────────────────────────────────────────────────────


def costs(
    clients: Mapping[str, Client], server: OwnedServer, streams: int, duration_s: float, repeats: int
) -> dict[str, list[Cost]]:
    """Every client so many times, in turn; who begins changes from repeat to repeat."""
    found: dict[str, list[Cost]] = {name: [] for name in clients}
    names = list(clients)
    for repeat in range(repeats):
        for place in range(len(names)):
            name = names[(repeat + place) % len(names)]
            found[name].append(clients[name](server, streams, duration_s))
    return found


def cost_rows(found: Mapping[str, Sequence[Cost]]) -> dict[str, dict[str, float]]:
    """For each client: CPU of a request, rate, and how many times ours it costs, smallest and median."""
    rows = {}
    for name, passes in found.items():
        ratios = [one.cpu_us / own.cpu_us for one, own in zip(passes, found["ours"], strict=True)]
        rows[name] = {
            "cpu_us": statistics.median(one.cpu_us for one in passes),
            "cpu_us_least": min(one.cpu_us for one in passes),
            "per_s": statistics.median(one.rate_per_s for one in passes),
            "ratio_least": min(ratios),
            "ratio_median": statistics.median(ratios),
        }
    return rows


def open_loop(name: str, python: Path | None, server: OwnedServer, folder: Path, rate: float) -> dict[str, float]:
    """Lateness p99 and the achieved share of a Poisson load over kept connections, of a second or more."""
    duration_s = max(1.0, 300 / rate)
    if name == "ours" or python is None:
        level = measure(server, folder / "client.log", rate, duration_s, kept_connections=True)
        planned_per_s = level.planned / duration_s
        return {"lateness_p99_s": level.lateness_s[1], "achieved": min(1.0, level.achieved_per_s / planned_per_s)}
    seen = peer(python, name, server, "--rate", str(rate), "--duration", str(duration_s))
    # (its wall time holds a head start of 50 ms)
    return {
        "lateness_p99_s": quantiles(seen.lateness_s)[2],
        "achieved": min(1.0, duration_s / max(duration_s, seen.wall_s - 0.05)),
    }


def highest(name: str, python: Path | None, server: OwnedServer, folder: Path) -> dict[str, Any]:
    """The highest rates, by doubling, at which a client on one processor keeps up, and is in time as well.

    A level may be tried three times: another process on its processor for a moment makes any client late.
    """
    found: dict[str, Any] = {"keeps_up_to_per_s": 0.0, "in_time_to_per_s": 0.0, "why": ""}
    rate = FIRST_LEVEL_PER_S
    while True:
        keeps_up = False
        for _ in range(TRIES):
            before_s, began_s = server_cpu_s(server), time.monotonic()
            seen = open_loop(name, python, server, folder, rate)
            share = (server_cpu_s(server) - before_s) / (time.monotonic() - began_s)
            if seen["achieved"] >= LEAST_ACHIEVED:
                keeps_up = True
                found["keeps_up_to_per_s"] = rate
                if seen["lateness_p99_s"] <= MOST_LATENESS_S:
                    found["in_time_to_per_s"] = rate
                    break
        if not keeps_up:
            found["why"] = f"at {rate:g}/s {seen['achieved']:.0%}" + (
                f", server {share:.0%} busy" if share > 0.5 else ""
            )
            return found
        rate *= 2


def server_cpu_s(server: OwnedServer) -> float:
    """CPU that the server has used."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tool_cost(name: str, python: Path, server: OwnedServer, streams: int, folder: Path) -> Cost:
    """CPU and wall time of a whole tool between a short and a long run, start and end taken away."""
    make_inputs(folder)
    passes = []
    for requests in PEER_REQUESTS:
        words = tool_command(name, python, server.url, streams, requests, folder)
        before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run(words, capture_output=True, text=True, timeout=900, cwd=folder, check=False)
        wall_s, after = time.monotonic() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise RuntimeError(f"{name}: {(done.stdout + done.stderr)[-800:]}")
        passes.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s))
    (short_cpu_s, short_s), (long_cpu_s, long_s) = passes
    return Cost(PEER_REQUESTS[1] - PEER_REQUESTS[0], long_cpu_s - short_cpu_s, long_s - short_s)


def make_inputs(folder: Path) -> None:
    """Prompts, and a tokenizer of thirteen words: nothing can be downloaded here."""
    prompt = {"prompt": "the quick brown fox", "text": "the quick brown fox", "output_tokens_count": 16}
    (folder / "prompts.jsonl").write_text(f"{json.dumps(prompt)}\n" * PEER_REQUESTS[1])
    (folder / "tokenizer").mkdir(exist_ok=True)
    vocabulary = {word: place for place, word in enumerate(("[UNK]", *WORDS))}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    }
    (folder / "tokenizer" / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "model_max_length": 8192}
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(config))


def tool_command(name: str, python: Path, url: str, streams: int, requests: int, folder: Path) -> list[str]:
    """The command line of a tool for a closed loop."""
    program, prompts, tokenizer = str(python.with_name(name)), folder / "prompts.jsonl", folder / "tokenizer"
    if name == "guidellm":
        return [
            *(program, "run", "--disable-console"),
            *("--backend", f"kind=openai_http,target={url},model=bench"),
            *("--profile", f"kind=concurrent,streams={streams}"),
            *("--constraint", f"kind=max_requests,count={requests}"),
            *("--tokenizer", f"kind=huggingface_auto,model={tokenizer}"),
            *("--data", f"kind=json_file,path={prompts}"),
            *("--output", f"kind=json,path={folder / 'guidellm.json'}"),
        ]
    return [
        *(program, "profile", "-m", "bench", "--url", url, "--endpoint-type", "chat", "--streaming", "--ui", "none"),
        *("--concurrency", str(streams), "--request-count", str(requests)),
        *("--tokenizer", str(tokenizer), "--use-server-token-count"),
        *("--input-file", str(prompts), "--custom-dataset-type", "single_turn"),
        *("--output-artifact-dir", str(folder / f"aiperf-{streams}-{requests}")),
    ]


# ── the report ───────────────────────────────────────────────────────────────────────────────────


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def show_costs(title: str, rows: Mapping[str, Mapping[str, float]]) -> None:
    """A table of costs; goals are held against the median ratio."""
    say(f"\n{title}")
    say("  client    CPU µs/request   least  requests/s  × ours: least  median  goal")
    for name, row in rows.items():
        goal = GOALS.get(name)
        told = "" if goal is None else f"≥ {goal:g}: {'held' if row['ratio_median'] >= goal else 'MISSED'}"
        say(
            f"  {name:8} {row['cpu_us']:15.0f} {row['cpu_us_least']:7.0f} {row['per_s']:11.0f}"
            f" {row['ratio_least']:14.1f} {row['ratio_median']:7.1f}  {told}"
        )


def show_open_loop(pythons: Mapping[str, Path | None], server: OwnedServer, folder: Path) -> dict[str, Any]:
    """Lateness, and the highest rates on one processor."""
    most = f"{MOST_LATENESS_S * 1e3:g} ms"
    say(f"\nopen loop, Poisson, kept connections, one processor; in time: lateness p99 up to {most}")
    say(f"  client    lateness p99 at {RATE_PER_S:g}/s  keeps up to  in time to")
    found = {}
    for name, python in pythons.items():
        late_s = min(open_loop(name, python, server, folder, RATE_PER_S)["lateness_p99_s"] for _ in range(TRIES))
        row = found[name] = {"lateness_p99_s": late_s, **highest(name, python, server, folder)}
        rates = f"{row['keeps_up_to_per_s']:10g}/s {row['in_time_to_per_s']:9g}/s"
        say(f"  {name:8} {late_s * 1e3:20.2f} ms {rates}   ({row['why']})")
    return found


def show_tool(name: str, python: Path, server: OwnedServer, rows: Mapping[int, Any], folder: Path) -> dict[int, Any]:
    """What a whole tool costs at each number of streams, beside ours."""
    found = {}
    short, long = PEER_REQUESTS
    say(f"\n{name}: the slope between {short} and {long} requests, all its processes on one processor")
    for streams, row in rows.items():
        cost = tool_cost(name, python, server, streams, folder)
        ratio = cost.cpu_us / row["ours"]["cpu_us"]
        told = f"{cost.cpu_us:8.0f} µs/request, {ratio:5.0f} × ours, {cost.rate_per_s:5.0f} requests/s"
        say(f"  {streams:4} streams {told}")
        found[streams] = {"cpu_us": cost.cpu_us, "per_s": cost.rate_per_s, "ratio": ratio}
    return found


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, nargs="+", default=[8, 64, 256])
    parser.add_argument("--duration", type=float, default=1.5, help="seconds of a pass (%(default)s)")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peers", default="", help="whole tools to compare with as well: guidellm,aiperf")
    parser.add_argument("--environments", type=Path, default=Path(tempfile.gettempdir()) / "contextlab-peers")
    parser.add_argument("--json", type=Path, help="write everything to this file, too")
    options = parser.parse_args()
    options.environments.mkdir(exist_ok=True)
    os.sched_setaffinity(0, {CLIENT_CPU})  # the clients inherit it
    here = Path(sys.executable)
    pythons: dict[str, Path | None] = {"ours": None, "aiohttp": here}
    if python := environment("httpx", options.environments):
        pythons["httpx"] = python
    else:
        say("httpx: not installed")
    document: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="contextlab-") as name:
        folder = Path(name)
        clients = {one: ours(folder) if at is None else plain(one, at) for one, at in pythons.items()}
        clients["bare"] = plain("bare", here)
        with null_server(folder / "server.log") as server:
            os.sched_setaffinity(server.process.pid or 0, {SERVER_CPU})
            rows = document["streams"] = {}
            for streams in options.streams:
                rows[streams] = cost_rows(costs(clients, server, streams, options.duration, options.repeats))
                show_costs(f"{streams} streams, kept connections, a reply in one write", rows[streams])
            document["open_loop"] = show_open_loop(pythons, server, folder)
            for tool in filter(None, options.peers.split(",")):
                if python := environment(tool, options.environments):
                    document[tool] = show_tool(tool, python, server, rows, folder)
                else:
                    say(f"\n{tool}: not installed")
        with null_server(folder / "paced.log", event_delay_s=PACED_DELAY_S) as server:
            os.sched_setaffinity(server.process.pid or 0, {SERVER_CPU})
            paced = document["paced"] = cost_rows(costs(clients, server, 64, options.duration, options.repeats))
            show_costs(f"64 streams, each event a write of its own, {PACED_DELAY_S * 1e3:g} ms apart", paced)
    if options.json:
        options.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
