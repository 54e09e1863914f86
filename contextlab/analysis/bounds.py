"""Bounds of the steady state as people write them, and back; pure. Whether one holds is for `checks`.

    [p99|median|mean|max] METRIC OP VALUE [PHASE…]          p99 ttft < 800ms        errors < 1%       backlog < 50
    [p90|median|mean|max] METRIC OP FACTORx PHASE [PHASE…]  p90 ttft < 3x before during

In a `Bound`, a quantile of 0.5 is the median, 1.0 the max, and None of a metric that is a time its mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from contextlab.analysis import quantities
from contextlab.analysis.load_metrics import COUNTED
from contextlab.analysis.replies import TIMES
from contextlab.experiment import Bound, Phase
from contextlab.model import UsageError

METRICS = tuple(name for name in (*TIMES, *COUNTED) if name != "connect")
SHARES = frozenset({"errors", "integrity"})
RATES = frozenset({"goodput", "throughput", "tokens_per_s"})
EXACT = frozenset({"errors", "integrity", "backlog"})
"""Metrics that can be asked to equal a value: what is counted, not what is measured."""
OPS = ("<", "<=", ">", ">=", "=")
STATISTICS = {"median": 0.5, "max": 1.0, "mean": None}
HELD_PHASES = frozenset({Phase.BEFORE, Phase.DURING, Phase.AFTER})
"""Where a bound must hold that names no phase; before the faults that includes the control arm."""
COMPARED_PHASES = frozenset({Phase.DURING, Phase.AFTER})
"""The same for a bound that compares with a phase without faults."""
REFERENCES = (Phase.CONTROL, Phase.BEFORE)
_FORM = "for example 'p99 ttft < 800ms', 'errors < 1%' or 'p90 ttft < 3x before during'"
_PARTS = re.compile(r"(?P<what>[^<>=!~]*)(?P<op>[<>=!~]+)(?P<rest>.*)", re.DOTALL)
_NUMBER = r"[0-9]{1,12}(?:\.[0-9]*)?|\.[0-9]+"
_PERCENTILE = re.compile(r"p([0-9]{1,3}(?:\.[0-9]+)?)")
_FACTOR = re.compile(rf"({_NUMBER})\s*[x×](?=\s|$)\s*(\S*)\s*")
_VALUE = re.compile(r"(\S+)\s*")
_FILLERS = frozenset({"and", "in", "of", "the"})
_UNITS = {"backlog": ("requests",), "tokens_per_s": ("tokens/s", "tok/s", "/s")}
_UNITS_OF_RATES = ("req/s", "rps", "/s")


def parse_bound(text: str) -> Bound:
    """The bound that a text says. Raises UsageError naming the value, the rule and the next step."""
    said = " ".join(text.split())
    parts = _PARTS.fullmatch(said)
    if parts is None:
        raise UsageError(f"bound {said!r}: compares nothing: it needs one of {' '.join(OPS)}", _FORM)
    quantile, metric = _subject(parts["what"].lower(), said)
    op, rest = parts["op"], parts["rest"].strip().lower()
    if op not in OPS:
        hint = {"==": "=", "=<": "<=", "=>": ">=", "<>": "<"}.get(op)
        raise UsageError(f"bound {said!r}: {op!r} is no comparison", _did_you_mean(hint, OPS))
    if op == "=" and metric not in EXACT:
        raise UsageError(f"bound {said!r}: a measured {metric} never equals a number", "compare with < <= > or >=")
    against: Phase | None = None
    if factor := _FACTOR.match(rest):
        value, against = float(factor[1]), _reference(factor[2], said)
        rest = rest[factor.end() :]
    elif found := _VALUE.match(rest):
        word, rest = _glued(found[1], rest[found.end() :])
        value = _value(metric, word, said)
    else:
        raise UsageError(f"bound {said!r}: a value is missing after {op}", _FORM)
    phases = _phases(rest, said) or (COMPARED_PHASES if against else HELD_PHASES)
    if against in phases:
        raise UsageError(f"bound {said!r}: compares {against} with itself", "name another phase, or none")
    return Bound(text=said, metric=metric, op=op, value=value, quantile=quantile, against=against, phases=phases)


def parse_bounds(texts: Iterable[str]) -> tuple[Bound, ...]:
    """The bounds of several texts."""
    return tuple(parse_bound(text) for text in texts)


def parse_stop(text: str) -> Bound:
    """A condition that is watched while the load runs and ends it when it is met: `errors > 50%`. Raises UsageError as
    `parse_bound`, and where it compares phases or names one: at that moment there are none."""
    bound = parse_bound(text)
    if bound.against is not None or bound.phases != HELD_PHASES:
        message = f"stop condition {bound.text!r}: it is watched all the time and knows no phases"
        raise UsageError(message, "give it a plain value, for example 'errors > 50%'")
    return bound


# ── parts ────────────────────────────────────────────────────────────────────────────────────────


def _subject(words: str, said: str) -> tuple[float | None, str]:
    """(quantile, metric) of what stands before the comparison."""
    names = words.replace("-", "_").split()
    if not names or len(names) > 2:
        raise UsageError(f"bound {said!r}: before the comparison stands a metric, or a percentile and one", _FORM)
    metric = names[-1]
    if metric not in METRICS:
        if len(names) == 1 and (metric in STATISTICS or _PERCENTILE.fullmatch(metric)):
            raise UsageError(f"bound {said!r}: {metric} of what?", f"the metrics are {', '.join(METRICS)}")
        message = f"bound {said!r}: there is no metric {metric!r}"
        raise UsageError(message, _did_you_mean(_close(metric, METRICS), METRICS, "the metrics are"))
    if metric in TIMES:
        if len(names) == 1:
            message = f"bound {said!r}: {metric} is a time of every request, so say which of them"
            raise UsageError(message, f"for example p50 {metric}, p99 {metric}, mean {metric} or max {metric}")
        return _statistic(names[0], said), metric
    if len(names) == 2:
        example = said.partition(" ")[2] if " " in said else said
        raise UsageError(f"bound {said!r}: {metric} is one number and has no {names[0]}", f"write {example!r}")
    return None, metric


def _statistic(word: str, said: str) -> float | None:
    if word in STATISTICS:
        return STATISTICS[word]
    if found := _PERCENTILE.fullmatch(word):
        percent = float(found[1])
        if 0 < percent < 100:
            return round(percent / 100, 9)
        digits, hint = found[1], "p50, or p1" if percent == 0 else "max"
        if percent > 100 and digits.isdigit():
            hint = f"p{digits[:2]}.{digits[2:]}"
        message = f"bound {said!r}: {word}: a percentile is above p0 and below p100"
        raise UsageError(message, f"did you mean {hint}?")
    known = ("p50", "p90", "p99", *STATISTICS)
    raise UsageError(f"bound {said!r}: there is no statistic {word!r}", _did_you_mean(_close(word, known), known))


def _reference(word: str, said: str) -> Phase:
    if word in [str(phase) for phase in REFERENCES]:
        return Phase(word)
    names = [str(phase) for phase in REFERENCES]
    what = f"{word!r} is no phase without faults" if word else "a factor of what?"
    raise UsageError(f"bound {said!r}: {what}", _did_you_mean(_close(word, names), names, "compare with"))


def _glued(word: str, rest: str) -> tuple[str, str]:
    """A value and its unit as one word, also where a space stands between them, and what is left."""
    unit, _, after = rest.partition(" ")
    phases = [*(str(phase) for phase in Phase), *_FILLERS]
    if re.fullmatch(_NUMBER, word) and unit and unit.rstrip(",") not in phases and not _close(unit, phases):
        return word + unit, after
    return word, rest


def _value(metric: str, word: str, said: str) -> float:
    """The number that a word gives, in the unit of the metric."""
    try:
        if metric in TIMES:
            if re.fullmatch(_NUMBER, word) and float(word) > 0:
                message = f"bound {said!r}: {word} what?"
                raise UsageError(message, f"say the unit: {word}ms or {word}s")
            return quantities.duration(word)
        if metric in SHARES:
            if metric == "errors" and word == "1":
                raise UsageError(f"bound {said!r}: 1 is all of them", "write 1%, or 100%")
            return quantities.share(word)
        units = _UNITS.get(metric, _UNITS_OF_RATES)
        number = next((word.removesuffix(unit) for unit in units if word.endswith(unit)), word)
        if not re.fullmatch(_NUMBER, number):
            raise ValueError(f"a number, if you like with {' or '.join(units)}")
        return float(number)
    except ValueError as error:
        hint = f"did you mean {word}%?" if metric in SHARES and re.fullmatch(_NUMBER, word) else _FORM
        raise UsageError(f"bound {said!r}: {word!r} must be {error}", hint) from None


def _phases(rest: str, said: str) -> frozenset[Phase]:
    names, found = [str(phase) for phase in Phase], set()
    for word in rest.replace(",", " ").split():
        if word in _FILLERS:
            continue
        if word not in names:
            message = f"bound {said!r}: {word!r} is no phase"
            raise UsageError(message, _did_you_mean(_close(word, names), names, "the phases are"))
        found.add(Phase(word))
    return frozenset(found)


def _close(word: str, names: Sequence[str]) -> str | None:
    return next(iter(get_close_matches(word, names, n=1)), None)


def _did_you_mean(name: str | None, names: Iterable[str], lead: str = "choose from") -> str:
    return f"{f'did you mean {name}? ' if name else ''}{lead} {', '.join(names)}"


# ── words ────────────────────────────────────────────────────────────────────────────────────────


def subject_of(bound: Bound) -> str:
    """`p99 ttft`, `mean itl`, `errors`."""
    if bound.metric not in TIMES:
        return bound.metric
    names = {0.5: "p50", 1.0: "max", None: "mean"}
    return f"{names.get(bound.quantile) or f'p{(bound.quantile or 0) * 100:.6g}'} {bound.metric}"


def shown(bound: Bound, value: float | None, *, factor: bool = False) -> str:
    """A value of a bound's metric as people read it; "> all" where so many requests never got there."""
    if value is None or value != value:
        return "–"
    if value == float("inf"):
        return "> all"
    if factor:
        return f"{value:.3g}x"
    if bound.metric in TIMES:
        return quantities.shown_seconds(float(f"{value:.4g}"))
    if bound.metric in SHARES:
        return f"{value * 100:.4g}%"
    return f"{value:.4g}{'/s' if bound.metric in RATES else ''}"


DEFAULT_HYPOTHESIS = parse_bounds(("errors < 1%", "integrity = 100%", "backlog < 50"))
"""The steady state where nobody says otherwise."""
RECOVERY = parse_bounds(("p90 ttft < 2x before after",))
"""What must hold after the last fault besides the hypothesis, for the steady state to be called back."""
