"""The head of the page: the verdict in one sentence, what it rests on, and what to do next; pure."""

from __future__ import annotations

from contextlab.model import Run, Verdict
from contextlab.reports.page.section import Section
from contextlab.reports.parts import grouping, headline, summary
from contextlab.reports.parts.wording import clean, quote

_OPEN = ("UNKNOWN", "INTERRUPTED")
"""Words of a run that has no verdict, whatever it had found until then."""
MOST_REMEDIES = 3


def section(run: Run) -> Section:
    """Always there, whatever the record holds."""
    code, said = summary.exit_status(run)["code"], headline.tells_exit(run)
    stopped_in = summary.unfinished(run)
    remedies = [clean(group.example.remedy) for group in grouping.groups(run, Verdict.FAIL) if group.example.remedy]
    return Section(
        name="top",
        title="",
        facts={
            "word": headline.word(run),
            "verdict": Verdict.UNKNOWN if headline.word(run) in _OPEN else summary.verdict(run),
            "sentence": headline.sentence(run),
            "tally": summary.tally_words(run),
            "exit": f"exit {code}" if said and run.end is not None else summary.exit_words(run),
            "stopped_in": stopped_in,
            "notes": [quote(note) for note in summary.notes(run)],
            "target": summary.target_facts(run),
            "remedies": list(dict.fromkeys(remedies))[:MOST_REMEDIES],
            "next": summary.next_command(run),
        },
    )


def title(run: Run) -> str:
    """The page's title: `FAILED · overflow smollm2`."""
    return " · ".join(part for part in (headline.word(run), f"{summary.command(run)} {summary.target(run)}") if part)
