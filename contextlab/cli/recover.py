"""`contextlab recover`: undo what killed runs left on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from contextlab.cli.options import Json
from contextlab.cli.output import printing

if TYPE_CHECKING:
    from contextlab.lab.undo.recovery import Recovered

EPILOG = """
Examples:
  contextlab recover
  contextlab recover --json
"""


def recover(json: Json = False) -> None:
    """Undo what a run left behind that was killed together with its watchdog: stopped processes, limits, mounts.

    What running ones have done stays. Exit code 6 where something could not be undone.
    """
    from contextlab.lab.undo.ledger import UndoFailedError
    from contextlab.lab.undo.recovery import recover as replay
    from contextlab.reports.json import write_document

    found = []
    with printing() as out:
        for one in replay():
            found.append(one)
            if not json:
                out.write(_words(one))
                out.flush()
        code = UndoFailedError.exit_code if any(one.left for one in found) else 0
        if json:
            document = {"schema": "contextlab.recover/1", "command": "recover", "exit": {"code": code}}
            write_document(document | {"records": [_fields(one) for one in found]}, out)
        elif not found:
            out.write("nothing to undo\n")
    raise typer.Exit(code)


def _words(one: Recovered) -> str:
    """What became of one record, for a person."""
    head = f"{one.run} on {one.target} (pid {one.tool_pid}): "
    if one.runs:
        return head + "is running, left alone\n"
    lines = [head + ("not undone, the record stays" if one.left else "undone")]
    lines += [f"  undone: {what}" for what in one.undone]
    lines += [f"  left:   {why}\n          by hand: {how}" for why, how in zip(one.left, one.by_hand, strict=True)]
    return "\n".join(lines) + "\n"


def _fields(one: Recovered) -> dict[str, Any]:
    """The same as data."""
    return {
        "record": str(one.path),
        "run": one.run,
        "target": one.target,
        "pid": one.tool_pid,
        "running": one.runs,
        "undone": list(one.undone),
        "left": [{"what": why, "by_hand": how} for why, how in zip(one.left, one.by_hand, strict=True)],
    }
