"""Where the record comes from, and how to make it again: command, seed, versions, machine, n per arm; pure."""

from __future__ import annotations

from collections import Counter

from contextlab.model import Run
from contextlab.reports.page.embedding import embedded
from contextlab.reports.page.section import Section
from contextlab.reports.parts import grouping, summary
from contextlab.reports.parts.wording import clean, num, value

_HOST = ("load", "pressure", "steal", "psi", "throttled")


def section(run: Run) -> Section:
    """Always there; a record without a header says so."""
    facts = {name: " · ".join(said) for name, said in summary.provenance(run).items()}
    machine = run.header.get("machine")
    if isinstance(machine, dict):
        facts["kernel"] = " · ".join(clean(str(machine[name])) for name in ("kernel", "tcp") if machine.get(name))
    if loads := _host(run):
        facts["host"] = loads
    facts["measured"] = ", ".join(_amounts(run))
    facts["record"] = clean(run.path)
    return Section(
        name="provenance",
        title="Provenance",
        facts={
            "command": summary.command_line(run),
            "facts": [(name, said) for name, said in facts.items() if said],
            "record": embedded(run),
        },
    )


def _host(run: Run) -> str:
    """How busy the machine was before and after, as far as the record tells."""
    said = []
    before, after = run.header.get("machine"), (run.end or {}).get("machine")
    for when, source in (("before", before), ("after", after)) if after is not None else ():
        if isinstance(source, dict):
            told = [f"{name} {value(each)}" for name, each in source.items() if name.startswith(_HOST)]
            said += [f"{when}: {', '.join(told)}"] if told else []
    return clean("; ".join(said))


def _amounts(run: Run) -> list[str]:
    """n: probes, exchanges, samples of each arm; of a sweep its measurements, of a gate its blocks."""
    arms: dict[str, int] = {}
    kinds = Counter(record.get("kind") for record in run.records)
    probed = summary.command(run) not in ("pareto", "gate")
    for record in run.records:
        if record.get("kind") == "sample":
            arm = clean(str(record.get("arm", "")))
            arms[arm] = arms.get(arm, 0) + 1
    exchanges = sum(map(len, run.exchanges.values()))
    return [
        *([grouping.num_probes(run)] if probed and grouping.verdicts(run) else []),
        *([num(exchanges, "exchange")] if exchanges else []),
        *(f"{num(count, 'request')} in the {arm} arm" for arm, count in arms.items()),
        *(num(kinds[kind], kind) for kind in ("measurement", "block") if kinds[kind]),
        num(len(run.records), "record"),
    ]
