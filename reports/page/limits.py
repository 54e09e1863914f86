"""Limits by layer as bars, the one that a request meets first marked; pure."""

from __future__ import annotations

from contextlab.model import Run
from contextlab.reports.charts import bars
from contextlab.reports.page.section import Section
from contextlab.reports.parts import summary
from contextlab.reports.parts.wording import clean


def section(run: Run) -> Section:
    """The bars, or why there are none."""
    found = [
        bars.Bar(
            layer=str(limit.layer),
            name=clean(limit.name),
            tokens=limit.tokens,
            source=clean(limit.source),
            look="binds" if summary.binds(limit, run) else "",
        )
        for limit in summary.limits(run)
    ]
    measured = summary.measured_tokens(run)
    if measured is not None:
        found.append(
            bars.Bar(
                layer="measured", name="longest prompt read", tokens=measured, source="find-limit", look="measured"
            )
        )
    facts = [words for words in (summary.pool_words(run), summary.measured_words(run)) if words]
    says = "; ".join([*(f"{bar.name} {bar.tokens}" for bar in found if bar.tokens is not None), *facts])
    return Section(
        name="limits",
        title="Limits",
        facts={"chart": bars.limits(found, summary.window(run), f"{says}.") if found else None, "facts": facts},
        empty="" if found else _why(run),
    )


def _why(run: Run) -> str:
    if run.knowledge is None:
        return f"No limit is on record, because the target was never opened: {summary.exit_words(run)}."
    return "The target declares no limit, in any layer."
