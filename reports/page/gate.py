"""The gate: what differs exactly, each metric against its margin, budgets, the blocks, what it rests on; pure."""

from __future__ import annotations

from typing import Any

from contextlab.analysis.gate.nouns import Block, MetricResult
from contextlab.model import Run, Verdict
from contextlab.reports.chaos.words import NONE
from contextlab.reports.charts.drawing import Table
from contextlab.reports.charts.forest import Effect, forest
from contextlab.reports.gate import facts as gate_facts
from contextlab.reports.gate.facts import Row, Shown, in_unit, shown_name
from contextlab.reports.page.section import Section
from contextlab.reports.parts import summary
from contextlab.reports.parts.wording import clean

_LOOKS = {Verdict.PASS: "held", Verdict.UNKNOWN: "unknown", Verdict.FAIL: "failed", None: ""}


def section(run: Run) -> Section:
    """The gate of a run, or why there is none."""
    one, damage = gate_facts.shown(run)
    if one is None:
        return Section(
            name="gate", title="Gate", empty=clean(damage) or f"No gate is on record: {summary.exit_words(run)}."
        )
    calibrates = one.stored.begins.calibrates
    rows = gate_facts.noises(one) if calibrates else one.metrics
    return Section(
        name="gate",
        title="Noise of a pair" if calibrates else "Gate",
        facts={
            "chart": None if calibrates else _chart(one),
            "tables": [
                (title, [_cells(row) for row in told])
                for title, told in (("Counted exactly", one.counted), ("Metrics", rows), ("Budgets", one.budgets))
                if told
            ],
            "change": "noise" if calibrates else "change",
            "blocks": _blocks(one),
            "facts": [(label, clean(words), None) for label, sentences in gate_facts.facts(one) for words in sentences],
        },
        empty="" if one.blocks or one.counted else f"No block was measured: {summary.exit_words(run)}.",
    )


def _cells(row: Row) -> dict[str, Any]:
    told = (row.base, row.candidate, row.change, row.margin, row.sees)
    return {
        "verdict": row.verdict,
        "name": clean(row.name),
        "word": clean(row.word),
        "cells": [clean(each) for each in told],
        "interval": clean(row.interval),
        "why": clean(row.why),
    }


def _chart(one: Shown) -> Any:
    results = {f"{shown_name(each.metric.name)} {_arrow(each)}": each for each in one.result.metrics}
    effects = [
        effect
        for row in one.metrics
        if (found := results.get(row.name)) is not None and (effect := _effect(row, found)) is not None
    ]
    says = "; ".join(f"{row.name} {row.change}, {row.word}" for row in one.metrics)
    heads = ("metric", "base", "candidate", "change", "interval", "margin", "verdict")
    rows = tuple(
        (row.name, row.base, row.candidate, row.change, row.interval or NONE, row.margin, row.word)
        for row in one.metrics
    )
    table = Table(heads=heads, rows=rows, numbers=frozenset(range(1, 6)))
    return forest(effects, f"{says}.", table, one.stored.begins.settings.plan.confidence)


def _arrow(one: MetricResult) -> str:
    return "↓" if one.metric.better == "less" else "↑"


def _effect(row: Row, one: MetricResult) -> Effect | None:
    """The change for the worse; None where nothing, or no interval, is known."""
    if not one.ratio or not one.low or not one.high:
        return None
    turned = one.metric.better == "more"
    ratio, low, high = (1 / each if turned else each for each in (one.ratio, one.low, one.high))
    ends = sorted((low - 1, high - 1))
    return Effect(
        name=row.name,
        word=row.word,
        worse=ratio - 1,
        low=ends[0],
        high=ends[1],
        margin=one.margin,
        look=_LOOKS[row.verdict],
    )


def _blocks(one: Shown) -> Table | None:
    """The value of every metric in every block: the replicates that the verdict rests on."""
    names = list(dict.fromkeys(each.metric.name for each in one.result.metrics))
    if not names or not one.blocks:
        return None
    heads = ("block", "first", "arm", *map(shown_name, names), "failed", "control")
    rows = tuple(
        row for block in one.blocks for arm in ("base", "candidate") if (row := _launch(block, arm, names)) is not None
    )
    return Table(heads=heads, rows=rows, numbers=frozenset(range(3, len(heads))))


def _launch(block: Block, arm: str, names: list[str]) -> tuple[str, ...] | None:
    seen = block.base if arm == "base" else block.candidate
    if seen is None:
        return None
    number = f"{block.number}" + (" (confirming)" if block.confirming else "")
    values = [in_unit(seen.metrics.get(name), name) for name in names]
    control = f"{seen.control_s * 1000:.0f} ms" if seen.control_s else NONE
    return (number, block.first, arm, *values, f"{seen.num_failed} of {seen.num_requests}", control)
