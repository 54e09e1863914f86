"""Replays the undo records of runs that died together with their watchdog: what `contextlab recover` does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from contextlab.lab.undo import steps
from contextlab.lab.undo.record import Contents, Record, boot_id, open_records
from contextlab.model import UnableError

WATCHDOG_MAY_TAKE_S = 3.0
"""A watchdog whose tool has just died tries for two seconds."""
OPENING_S = 10.0
"""A record without its first line is one that a run is about to begin, or one that never began."""
LOOK_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """One record and what became of it. `undone` and `left` say what was, and is, to be undone, the latest first;
    `by_hand`: the commands for what is left. `runs`: its tool is at work, so nothing was touched."""

    path: Path
    run: str
    target: str
    tool_pid: int
    runs: bool = False
    undone: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()


def recover(state: Path | None = None) -> Iterator[Recovered]:
    """Undo what dead runs left, one record after the other, and remove the records of which nothing is left."""
    for record in open_records(state):
        contents = record.contents
        if contents.tool_lives or _is_opening(record):
            yield _recovered(record, runs=True)
            continue
        chosen = contents.open_steps
        left = record.undo_open(by="recover")
        if chosen:
            numbers = sorted(chosen, reverse=True)
            yield _recovered(
                record,
                undone=tuple(steps.words(chosen[number]) for number in numbers if number not in left),
                left=tuple(left[number] for number in numbers if number in left),
                by_hand=tuple(steps.command(chosen[number]) for number in numbers if number in left),
            )


def left_open(state: Path | None = None) -> list[Contents]:
    """What dead runs left that is not undone, and that nobody is undoing now."""
    found = [record.contents for record in open_records(state)]
    return [one for one in found if _is_left(one) and not one.watchdog_lives]


def refuse_open(state: Path | None = None) -> None:
    """Refuse to begin while a dead run is not undone. A watchdog that is still at it is waited for.

    Raises UnableError naming the command that mends it.
    """
    until_s = time.monotonic() + WATCHDOG_MAY_TAKE_S
    while found := [record for record in open_records(state) if _is_left(record.contents)]:
        if time.monotonic() > until_s or not any(record.contents.watchdog_lives for record in found):
            first = found[0].contents
            raise UnableError(
                f"run {first.run} on {first.target} was killed (pid {first.tool[0]}) and is not undone: "
                + "; ".join(steps.words(step) for step in first.open_steps.values()),
                "contextlab recover",
            )
        time.sleep(LOOK_S)


def _is_left(contents: Contents) -> bool:
    """Whether there is something to undo and no tool that would."""
    same_boot = contents.boot == boot_id()
    due = [step for step in contents.open_steps.values() if same_boot or steps.outlives_boot(step)]
    return bool(due) and not contents.tool_lives


def _is_opening(record: Record) -> bool:
    try:
        return not record.contents.boot and time.time() - record.path.stat().st_mtime < OPENING_S
    except FileNotFoundError:
        return False


def _recovered(
    record: Record,
    *,
    runs: bool = False,
    undone: tuple[str, ...] = (),
    left: tuple[str, ...] = (),
    by_hand: tuple[str, ...] = (),
) -> Recovered:
    contents = record.contents
    return Recovered(
        path=record.path,
        run=contents.run,
        target=contents.target,
        tool_pid=contents.tool[0],
        runs=runs,
        undone=undone,
        left=left,
        by_hand=by_hand,
    )
