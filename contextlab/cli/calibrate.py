"""`contextlab calibrate`."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contextlab.cli.options import Json, number
from contextlab.cli.output import printing, telling

if TYPE_CHECKING:
    from contextlab.lab.calibrate import Calibration, Level

SCHEMA = "contextlab.calibrate/1"
TARGET = "null server"
LAGGED = 3
EPILOG = """
Examples:
  contextlab calibrate
  contextlab calibrate --rate 2000 --duration 10s --json

Run it where the load will come from, and with nothing else running: what it shows is the floor of this machine now.

Exit 0: the load client kept to the plan. Exit 3: it did not, and no result at this rate means anything.
"""


def _seconds(text: str) -> float:
    """A duration: 5, 5s or 500ms."""
    for unit, factor in (("ms", 1e-3), ("s", 1.0), ("", 1.0)):
        if text.endswith(unit):
            value = number("float", low=0.2, high=600)(str(float(text.removesuffix(unit)) * factor))
            return float(value)
    raise ValueError(text)


def _duration(text: str) -> float:
    try:
        return _seconds(str(text).strip())
    except ValueError:
        raise typer.BadParameter(f"{text!r}: a number of seconds, such as 5s or 500ms") from None


def calibrate(
    rate: Annotated[
        float, typer.Option(parser=number("float", low=0.1, high=100_000), metavar="N", help="Requests per second.")
    ] = 200.0,
    duration: Annotated[float, typer.Option(parser=_duration, metavar="TIME", help="How long at that rate.")] = 5.0,
    workers: Annotated[
        int, typer.Option(parser=number("int", low=1, high=64), metavar="N", help="Processes that share the load.")
    ] = 1,
    json: Json = False,
) -> None:
    """Measure the load client itself against a server that costs nothing: the floor of every latency reported here."""
    from contextlab.lab import calibrate as lab
    from contextlab.reports.json import failure_document, write_document

    tell = sys.stderr.isatty() and not json
    with telling(partial(failure_document, "calibrate", TARGET) if json else None):
        found = lab.calibrate(
            rate, duration, workers, progress=lambda text: typer.echo(f"… {text}", err=True) if tell else None
        )
    with printing() as out:
        if json:
            write_document(document(found), out)
        else:
            out.writelines(f"{line}\n" for line in lines(found))
    raise typer.Exit(exit_code(found))


def exit_code(found: Calibration) -> int:
    """0 where the client kept to the plan at the asked rate."""
    return 0 if found.at.sustained else LAGGED


def lines(found: Calibration) -> list[str]:
    """The report, one fact a line."""
    at = found.at
    planned = f"{at.rate_per_s:g} requests/s (Poisson) for {found.duration_s:g} s, workers: {found.workers}"
    came = f"{at.whole} of {at.planned} replies whole, {at.achieved_per_s:.1f}/s"
    highest = "none of those tried" if found.highest_per_s is None else f"{found.highest_per_s:g} requests/s"
    return [
        f"target: {TARGET}, a reply of 16 events in one write, a connection for each request",
        f"plan: {planned}",
        f"achieved: {came}",
        f"TTFT floor, from due: p50 {_ms(at.ttft_s[0])}, p99 {_ms(at.ttft_s[1])}",
        f"end to end floor, from due: p50 {_ms(at.e2e_s[0])}, p99 {_ms(at.e2e_s[1])}",
        f"dispatch lateness: p50 {_ms(at.lateness_s[0])}, p99 {_ms(at.lateness_s[1])}",
        f"event loop lag: p50 {_ms(at.loop_lag_s[0])}, p99 {_ms(at.loop_lag_s[1])}",
        f"CPU of the client: {at.cpu_s_per_request * 1e6:.0f} µs a request, {at.cpu_share:.0%} of a processor",
        f"highest rate of one worker: {highest}" + (f"; {found.ended_by}" if found.ended_by else ""),
        f"tried: {', '.join(_tried(level) for level in found.levels) or 'nothing, for want of time'}",
        f"exit {exit_code(found)}: {_reason(found)}",
    ]


def document(found: Calibration) -> dict[str, Any]:
    """The JSON document. Times are in seconds."""
    from dataclasses import asdict

    def level(one: Level) -> dict[str, Any]:
        pairs = {
            name: dict(zip(("p50", "p99"), value, strict=True)) if isinstance(value, tuple) else value
            for name, value in asdict(one).items()
        }
        return {**pairs, "sustained": one.sustained, "shortfall": one.shortfall}

    return {
        "schema": SCHEMA,
        "command": "calibrate",
        "target": TARGET,
        "verdict": "PASS" if found.at.sustained else "UNKNOWN",
        "exit": {"code": exit_code(found), "reason": _reason(found), "all": []},
        "workers": found.workers,
        "duration_s": found.duration_s,
        "floor": level(found.at),
        "highest_per_s": found.highest_per_s,
        "search": {"levels": [level(one) for one in found.levels], "ended_by": found.ended_by},
    }


def _reason(found: Calibration) -> str:
    return found.at.shortfall or "the client kept to the plan"


def _tried(level: Level) -> str:
    return f"{level.rate_per_s:g}/s {'held' if level.sustained else 'not'} (lateness p99 {_ms(level.lateness_s[1])})"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"
