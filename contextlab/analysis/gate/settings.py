"""What `[tool.contextlab.gate]` says, checked: how much is measured, margins, budgets, waivers; pure.

    blocks, max_blocks, confirm                      the plan
    requests, warmup, concurrency, prompt_tokens, …  the load
    [metrics.ttft_p50] margin = "5%" floor = "2ms" gating = true min_requests = 1
    [[budgets]]        expr = "ttft_p99 < 2s"  min_samples = 300
    [[waivers]]        metric = "itl_p50"  reason = "…"  expires = 2027-01-31

An unknown key is an error that names the likely one: a misspelt margin must not silently be the usual one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from difflib import get_close_matches
from typing import Any

from contextlab.analysis import quantities
from contextlab.analysis.gate.budgets import NAMES, metric_name, parse_budget
from contextlab.analysis.gate.load import EXACT_NAMES, GateLoad
from contextlab.analysis.gate.nouns import BLOCKS, MAX_BLOCKS, METRICS, Budget, Metric, Plan, Waiver
from contextlab.model import UsageError

PLAN_KEYS = ("blocks", "max_blocks", "confirm")
LOAD_KEYS = ("requests", "warmup", "concurrency", "prompt_tokens", "reply_tokens")
KEYS = (*PLAN_KEYS, *LOAD_KEYS, "metrics", "budgets", "waivers")
METRIC_KEYS = ("margin", "floor", "gating", "min_requests")
USUAL_MARGINS = {50: 0.05, 90: 0.10, 99: 0.20}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a gate measures and judges, as the project and the command line say."""

    plan: Plan = field(default_factory=Plan)
    load: GateLoad = field(default_factory=GateLoad)
    metrics: tuple[Metric, ...] = METRICS
    budgets: tuple[Budget, ...] = ()
    waivers: tuple[Waiver, ...] = ()

    @property
    def gated(self) -> tuple[Metric, ...]:
        """The metrics, of which those that are waived do not gate."""
        waived = {one.name for one in self.waivers}
        return tuple(replace(one, gating=False) if one.name in waived else one for one in self.metrics)


def read(table: Mapping[str, Any], where: str, today: date) -> Settings:
    """The settings of a `gate` table; `where` names it in errors. Raises UsageError naming the key and the rule."""
    _known(table, KEYS, where)
    blocks = _number(table, "blocks", BLOCKS, where)
    most = _number(table, "max_blocks", max(blocks, MAX_BLOCKS), where)
    load = {
        f"num_{name}" if name in ("requests", "warmup") else name: _number(table, name, 0, where)
        for name in LOAD_KEYS
        if name in table
    }
    budgets = tuple(_budget(one, where) for one in _tables(table, "budgets", where))
    waivers = tuple(_waiver(one, where, today) for one in _tables(table, "waivers", where))
    return Settings(
        plan=Plan(blocks=blocks, max_blocks=most, confirm=_truth(table, "confirm", True, where)),
        load=GateLoad(**load),
        metrics=_metrics(table.get("metrics", {}), where),
        budgets=budgets,
        waivers=waivers,
    )


def changed(settings: Settings, **said: Any) -> Settings:
    """The same with what the command line said (None: nothing). Fewer blocks than planned lower the most, too."""
    plan, load = settings.plan, settings.load
    blocks, most = said.get("blocks"), said.get("max_blocks")
    if blocks is not None or most is not None:
        first = plan.blocks if blocks is None else int(blocks)
        plan = replace(plan, blocks=first, max_blocks=max(first, plan.max_blocks) if most is None else int(most))
    if said.get("confirm") is not None:
        plan = replace(plan, confirm=bool(said["confirm"]))
    own = {name: value for name, value in said.items() if value is not None and name not in PLAN_KEYS}
    return replace(settings, plan=plan, load=replace(load, **own))


# ── parts ────────────────────────────────────────────────────────────────────────────────────────


def _metrics(table: object, where: str) -> tuple[Metric, ...]:
    if not isinstance(table, Mapping):
        raise UsageError(f"{where}: metrics={table!r}: must be a table", f"for example [{where}.metrics.ttft_p50]")
    found = {metric.name: metric for metric in METRICS}
    for said, facts in table.items():
        name = _named(said, where)
        place = f"{where}.metrics.{said}"
        if not isinstance(facts, Mapping):
            raise UsageError(f"{place}={facts!r}: must be a table", 'for example { margin = "5%" }')
        _known(facts, METRIC_KEYS, place)
        metric = found.get(name) or Metric(name=name, margin=USUAL_MARGINS[int(name.split("_p")[1][:2])])
        if "margin" in facts:
            metric = replace(metric, margin=_quantity(facts["margin"], quantities.share, f"{place}: margin"))
        if "floor" in facts:
            seconds = metric.unit == "s"
            floor = _quantity(facts["floor"], quantities.duration if seconds else float, f"{place}: floor")
            metric = replace(metric, floor=floor)
        found[name] = replace(
            metric,
            gating=_truth(facts, "gating", True, place),
            min_requests=_number(facts, "min_requests", metric.min_requests, place),
        )
    return tuple(found.values())


def _named(said: str, where: str) -> str:
    try:
        return metric_name(said, NAMES)
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", error.next_step) from None


def _budget(table: Mapping[str, Any], where: str) -> Budget:
    place = f"{where}.budgets"
    _known(table, ("expr", "min_samples"), place)
    expr = table.get("expr")
    if not isinstance(expr, str):
        raise UsageError(f"{place}: expr={expr!r}: must be a text", 'for example expr = "ttft_p99 < 2s"')
    samples = _number(table, "min_samples", 0, place) if "min_samples" in table else None
    return parse_budget(expr, samples)


def _waiver(table: Mapping[str, Any], where: str, today: date) -> Waiver:
    place = f"{where}.waivers"
    _known(table, ("metric", "reason", "expires"), place)
    said, reason, expires = table.get("metric"), table.get("reason"), table.get("expires")
    if not isinstance(said, str):
        raise UsageError(f"{place}: metric={said!r}: must name what is waived", 'for example metric = "itl_p50"')
    name = said if said in EXACT_NAMES else _waivable(said, place)
    if not isinstance(reason, str) or not reason.strip():
        raise UsageError(f"{place}: {said}: reason={reason!r}: a waiver says why", 'add reason = "…"')
    try:
        until = expires if isinstance(expires, date) else date.fromisoformat(str(expires))
    except ValueError:
        message = f"{place}: {said}: expires={expires!r}: must be a day"
        raise UsageError(message, "for example expires = 2027-01-31") from None
    if until < today:
        message = f"{place}: {said}: expires={until}: that day is over"
        raise UsageError(message, "mend what was waived, or decide anew and give it another day")
    return Waiver(name=name, reason=reason.strip(), expires=until.isoformat())


def _waivable(said: str, place: str) -> str:
    try:
        return metric_name(said)
    except UsageError as error:
        close = get_close_matches(said, EXACT_NAMES, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        exact = f"; exact values are {', '.join(EXACT_NAMES)}"
        raise UsageError(f"{place}: {error.message}", f"{hint}{error.next_step}{exact}") from None


def _known(table: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    for key in table:
        if key not in keys:
            close = get_close_matches(str(key), keys, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise UsageError(f"{where} has no key {key!r}", f"{hint}the keys are {', '.join(keys)}")


def _tables(table: Mapping[str, Any], name: str, where: str) -> list[Mapping[str, Any]]:
    found = table.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise UsageError(f"{where}: {name}={found!r}: must be a list of tables", f"write [[{where}.{name}]]")
    return list(found)


def _number(table: Mapping[str, Any], name: str, default: int, where: str) -> int:
    value = table.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{where}: {name}={value!r}: must be a whole number", f"for example {name} = 10")
    return value


def _truth(table: Mapping[str, Any], name: str, default: bool, where: str) -> bool:
    value = table.get(name, default)
    if not isinstance(value, bool):
        raise UsageError(f"{where}: {name}={value!r}: must be true or false", f"write {name} = true")
    return value


def _quantity(value: object, parse: Any, what: str) -> float:
    """A number as it is, or a text with its unit (`5%`, `2ms`)."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        return float(parse(str(value)))
    except ValueError as error:
        raise UsageError(f"{what}={value!r}: must be {error}", 'for example "5%" or "2ms"') from None
