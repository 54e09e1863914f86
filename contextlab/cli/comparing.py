"""`contextlab pareto --compare OLD NEW`: how the frontier moved between two recorded sweeps."""

from __future__ import annotations

from pathlib import Path

import msgspec

from contextlab.analysis import sweeps
from contextlab.analysis.tradeoffs import compare
from contextlab.cli.output import printing
from contextlab.lab.journal import find_run, read_run
from contextlab.model import NothingMeasured

EXITS = {"better": 0, "worse": 1, "not told apart": 3}


def compared(old: str, new: str, runs: Path, *, as_json: bool) -> int:
    """Print the comparison and return the exit code: 1 where the new frontier is worse for sure, 3 where it cannot be
    told, else 0. Both count against the old run's reference. Raises NothingMeasured where one has no sweep."""
    from contextlab.reports.json import write_document
    from contextlab.reports.pareto import json as pareto_json
    from contextlab.reports.pareto import text as pareto

    found = []
    for name in (old, new):
        run = read_run(find_run(name, runs))
        try:
            sweep, measurements, reference = sweeps.read(run.records)
        except msgspec.ValidationError as error:
            raise NothingMeasured(f"run={name!r}: damaged: {error}", "measure it again") from None
        if sweep is None:
            raise NothingMeasured(f"run={name!r}: holds no sweep", "name two runs of contextlab pareto")
        found.append((Path(run.path).name, sweeps.conclude(sweep, measurements, reference)))
    (old_name, before), (new_name, after) = found
    if before.reference is None:
        raise NothingMeasured(f"run={old!r}: nothing could be compared in it", "measure it again")
    result = compare(before.frontier, after.frontier, before.reference)
    goals = [goal.text for goal in before.sweep.goals]
    with printing() as out:
        if as_json:
            code = EXITS[result.verdict]
            document = {
                "schema": "contextlab.pareto/1",
                "command": "pareto",
                "exit": {"code": code, "reason": result.verdict},
                "comparison": pareto_json.comparison(old_name, new_name, result, goals),
            }
            write_document(document, out)
        else:
            out.write("\n".join(pareto.comparison_lines(old_name, new_name, result, goals)) + "\n")
    return EXITS[result.verdict]
