"""The raw rows of a run for spreadsheets and data frames: one for each thing that was measured; pure.

overflow, replay   an exchange with the target
chaos              a request of the load, in both arms, those of extra loads too
pareto             an evaluation of a setting; its settings and values are columns of their own
gate               an arm of a block

Times are seconds since the run, or the arm, began; latencies count from when a request was sent. None: not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from contextlab.analysis import sweeps
from contextlab.analysis.gate import stored
from contextlab.analysis.trials import trials
from contextlab.experiment import Arm, Sample
from contextlab.model import Exchange, Run, Usage
from contextlab.reports.parts import summary

Cell = int | float | str | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A table: the names of its columns, and rows that are as long each. `damage`: why some of it cannot be read."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    damage: str = ""


def rows(run: Run) -> Rows:
    """The rows of a run in the order of the record; none where it measured nothing."""
    try:
        match summary.command(run):
            case "chaos":
                return _table(_EXCHANGE_COLUMNS, _samples(run))
            case "pareto":
                return _named(_measurements(run))
            case "gate":
                return _named(_blocks(run))
    except (msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
        return Rows(columns=_EXCHANGE_COLUMNS, rows=(), damage=f"the record is damaged: {error}")
    return _table(_EXCHANGE_COLUMNS, _exchanges(run))


_EXCHANGE_COLUMNS = (
    *("scenario", "probe", "arm", "request", "index", "due_s", "sent_s", "connected_s", "first_token_s", "ended_s"),
    *("ttft_s", "e2e_s", "num_events", "prompt_tokens", "completion_tokens", "evaluated_tokens", "truncated", "status"),
    *("finish_reason", "ending", "failed_where", "failure", "num_bytes", "counts"),
)


def _table(columns: tuple[str, ...], found: Iterator[tuple[Cell, ...]]) -> Rows:
    return Rows(columns=columns, rows=list(found))


def _named(found: Iterator[dict[str, Cell]]) -> Rows:
    """Rows of unlike names as one table: every name a column, in the order in which they come up."""
    every = list(found)
    columns = tuple(dict.fromkeys(name for row in every for name in row))
    return Rows(columns=columns, rows=[tuple(row.get(name) for name in columns) for row in every])


# ── exchanges and samples ────────────────────────────────────────────────────────────────────────


def _exchanges(run: Run) -> Iterator[tuple[Cell, ...]]:
    for (scenario, probe), found in run.exchanges.items():
        for index, one in enumerate(found):
            first = one.token_s[0] if one.token_s else None
            yield (
                *(scenario, probe, None, one.request.name, index),
                *(one.due_s, one.sent_s, one.connected_s, first, one.ended_s),
                *(_since(one.sent_s, first), _since(one.sent_s, one.ended_s), len(one.token_s)),
                one.prompt_tokens if one.prompt_tokens is not None else _usage(one.usage, "prompt_tokens"),
                *(_usage(one.usage, "completion_tokens"), _usage(one.usage, "evaluated_tokens")),
                *(one.usage.truncated if one.usage else None, one.status, one.finish_reason, _ending(one)),
                *(one.failure.where if one.failure else None, one.failure.message if one.failure else None),
                *(one.num_bytes, True),
            )


def _ending(one: Exchange) -> str:
    return "done" if one.done else "failed" if one.failure else "hung up" if one.hung_up else "cut"


def _samples(run: Run) -> Iterator[tuple[Cell, ...]]:
    for (scenario, probe), trial in trials(run.records, run.knowledge).items():
        names = [kind.request.name for kind in trial.experiment.mix]
        for arm in (trial.control, trial.fault):
            if arm is not None:
                yield from _arm(arm, (scenario, probe), names)


def _arm(arm: Arm, place: tuple[str, str], names: Sequence[str]) -> Iterator[tuple[Cell, ...]]:
    for counts, samples in ((True, arm.samples), (False, arm.uncounted)):
        for one in samples:
            first = one.content_s[0] if one.content_s else None
            name = names[one.mixed] if 0 <= one.mixed < len(names) else str(one.mixed)
            yield (
                *(*place, arm.name, name, one.index, one.due_s, one.sent_s, one.connected_s, first, one.ended_s),
                *(_since(one.sent_s, first), _since(one.sent_s, one.ended_s), len(one.content_s)),
                *(_usage(one.usage, "prompt_tokens"), _usage(one.usage, "completion_tokens")),
                *(_usage(one.usage, "evaluated_tokens"), one.usage.truncated if one.usage else None, one.status),
                *(one.finish_reason, str(one.ending), *_failure(one), one.num_bytes, counts),
            )


def _failure(one: Sample) -> tuple[str | None, str | None]:
    failure = one.failure or (one.error_frames[0] if one.error_frames else None)
    return (failure.where, failure.message) if failure else (None, None)


def _usage(usage: Usage | None, name: str) -> int | None:
    found = getattr(usage, name) if usage is not None else None
    return found if isinstance(found, int) else None


def _since(begin_s: float | None, end_s: float | None) -> float | None:
    return None if begin_s is None or end_s is None else round(end_s - begin_s, 6)


# ── evaluations and blocks ───────────────────────────────────────────────────────────────────────


def _measurements(run: Run) -> Iterator[dict[str, Cell]]:
    _, measurements, _ = sweeps.read(run.records)
    for one in measurements:
        yield {
            "block": one.block,
            "began_s": one.began_s,
            "cost_s": one.cost_s,
            "status": str(one.status),
            "why": one.why or None,
            "baseline": one.baseline,
            "num_requests": one.num_requests,
            "num_failed": one.num_failed,
            **{f"set_{name}": thing for name, thing in one.settings.items()},
            **dict(one.values.items()),
        }


def _blocks(run: Run) -> Iterator[dict[str, Cell]]:
    found = stored.read(run.records)
    for block in found.blocks if found is not None else ():
        for arm, one in (("base", block.base), ("candidate", block.candidate)):
            if one is not None:
                yield {
                    "block": block.number,
                    "arm": arm,
                    "first": block.first == arm,
                    "confirming": block.confirming,
                    "num_requests": one.num_requests,
                    "num_failed": one.num_failed,
                    "num_truncated": one.num_truncated,
                    "control_s": one.control_s,
                    "others_cores": one.host.others_cores,
                    "cpu_pressure": one.host.cpu_pressure,
                    "steal": one.host.steal,
                    "throttled": one.host.throttled,
                    "died": one.died or None,
                    **dict(one.metrics.items()),
                    **{f"exact_{name}": thing for name, thing in one.exact.items()},
                }
