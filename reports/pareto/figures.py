"""What a report shows of a sweep, as numbers and rows, and how its amounts are written; pure.

    run.records ─▶ sweeps.read ─▶ sweeps.conclude ─▶ Shown: rows in the table's order, what is not compared, …

Concluding takes seconds where there are many settings, so it is done once for each run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from contextlab.analysis.axes import config_hash
from contextlab.analysis.bounds import RATES, SHARES
from contextlab.analysis.frontier import Direction, Interval, Membership, Standing, Status
from contextlab.analysis.replies import TIMES
from contextlab.analysis.sweeps import SWEEP, Concluded, Goal, Measurement, Sweep, conclude, read
from contextlab.analysis.tradeoffs import Slo
from contextlab.model import ContextlabError, Run, Settings
from contextlab.reports.chaos.words import NONE, number, percent
from contextlab.reports.parts.once import once
from contextlab.reports.parts.wording import clean, num, value

SIGNS = {Membership.MEMBER: "●", Membership.UNDECIDED: "◌", Membership.DOMINATED: "∙"}
KNEE, BEST = "K", "★"
KILLED = "the run was killed before it could tell"
_SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A setting that was compared. `place`: its number in the table. `by`: the number of the row that dominates it."""

    place: int
    key: str
    settings: Settings
    standing: Standing
    num_requests: int = 0
    num_failed: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    by: int | None = None
    is_knee: bool = False
    is_best: bool = False
    feasible: float | None = None

    @property
    def membership(self) -> Membership:
        """Whether it is on the frontier."""
        return self.standing.membership

    @property
    def n(self) -> int:
        """How many of its repeats count."""
        return len(self.standing.point.repeats)

    @property
    def sign(self) -> str:
        """What stands for it in the plot and beside its row."""
        return BEST if self.is_best else KNEE if self.is_knee else SIGNS[self.membership]


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Something that the search leaves undecided; `settings` None: of the search as a whole."""

    settings: Settings | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How the baseline changed over the run: relative change of one objective. Ends are infinite where not known."""

    objective: str
    change: Interval
    num_repeats: int

    @property
    def shown(self) -> bool:
        """Whether the interval excludes no change."""
        return self.change.low > 0 or self.change.high < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A sweep as far as it came. `rows`: members and undecided ones, then dominated ones, each best first goal first.

    `excluded`: what could not be compared. `drift`: None where the record has none. `whole`: it came to a conclusion.
    """

    concluded: Concluded
    rows: tuple[Row, ...]
    excluded: tuple[Standing, ...]
    undecided: tuple[Open, ...]
    drift: tuple[Drift, ...] | None
    whole: bool

    @property
    def sweep(self) -> Sweep:
        """What was asked."""
        return self.concluded.sweep

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """Everything that was measured, in order."""
        return self.concluded.measurements

    @property
    def used_s(self) -> float:
        """What the measurements took."""
        return math.fsum(one.cost_s for one in self.measurements)

    @property
    def best(self) -> Row | None:
        """The best setting that is proven to keep the SLOs."""
        return next((row for row in self.rows if row.is_best), None)

    def of(self, membership: Membership) -> tuple[Row, ...]:
        """The rows that stand so."""
        return tuple(row for row in self.rows if row.membership is membership)

    def named(self, settings: Settings) -> str:
        """`slots=2 concurrency=4`: what is not the same everywhere."""
        return settings_words(settings, self.sweep)


@once
def shown(run: Run) -> tuple[Shown | None, str]:
    """The sweep of a run, None where none began, and why it cannot be read, "" where it can."""
    try:
        sweep, measurements, reference = read(run.records)
        if sweep is None:
            return None, ""
        concluded = conclude(sweep, measurements, reference)
        told = [record for record in run.records if record.get("kind") == "undecided"]
        drift = _drift(told[-1].get("drift")) if told else None
        undecided = _open(told[-1].get("undecided")) if told else _untold(concluded)
        return of(concluded, undecided, drift, whole=any(one.scenario == SWEEP for one in run.findings)), ""
    except (msgspec.ValidationError, KeyError, TypeError, ValueError, ContextlabError) as error:
        return None, f"the record of the sweep is damaged: {error}"


def of(
    concluded: Concluded, undecided: Iterable[Open] = (), drift: tuple[Drift, ...] | None = (), *, whole: bool = True
) -> Shown:
    """What is shown of a concluded sweep."""
    standings = concluded.frontier.standings
    compared = [place for place, one in enumerate(standings) if one.membership is not Membership.EXCLUDED]
    sign = -1.0 if concluded.sweep.goals and concluded.sweep.goals[0].direction is Direction.UP else 1.0
    compared.sort(
        key=lambda place: (
            standings[place].membership is Membership.DOMINATED,
            sign * standings[place].values[0].value,
        )
    )
    keys = {standings[place].point.key: number for number, place in enumerate(compared, 1)}
    recommended, bent = concluded.recommended, concluded.knee
    best = recommended.standing.point.key if recommended and recommended.standing else None
    bend = config_hash(bent.settings) if bent else None
    counted: dict[str, list[Measurement]] = {}
    for one in concluded.measurements:
        counted.setdefault(one.key, []).append(one)
    rows = []
    for place in compared:
        standing = standings[place]
        key = standing.point.key
        failures: Counter[str] = Counter()
        for one in counted.get(key, ()):
            failures.update(one.failures)
        rows.append(
            Row(
                place=keys[key],
                key=key,
                settings=standing.point.settings,
                standing=standing,
                num_requests=sum(one.num_requests for one in counted.get(key, ())),
                num_failed=sum(one.num_failed for one in counted.get(key, ())),
                failures=failures,
                by=keys.get(config_hash(standing.by)) if standing.by is not None else None,
                is_knee=key == bend,
                is_best=key == best,
                feasible=recommended.feasible[place] if recommended else None,
            )
        )
    excluded = tuple(one for one in standings if one.membership is Membership.EXCLUDED)
    return Shown(
        concluded=concluded, rows=tuple(rows), excluded=excluded, undecided=tuple(undecided), drift=drift, whole=whole
    )


def _open(told: object) -> tuple[Open, ...]:
    return tuple(
        Open(
            settings=settings if isinstance(settings := one.get("settings"), Mapping) else None,
            why=str(one.get("why") or ""),
        )
        for one in (told if isinstance(told, list) else ())
        if isinstance(one, Mapping)
    )


def _untold(concluded: Concluded) -> tuple[Open, ...]:
    """The same of a run that ended before it said so."""
    undecided = concluded.frontier.of(Membership.UNDECIDED)
    return tuple(Open(settings=one.point.settings, why=KILLED) for one in undecided)


def _drift(told: object) -> tuple[Drift, ...]:
    found = []
    for one in told if isinstance(told, list) else ():
        change = one.get("change") if isinstance(one, Mapping) else None
        if isinstance(change, Mapping):
            value, low, high = (change.get(name) for name in ("value", "low", "high"))
            ends = Interval(
                value=math.nan if value is None else float(value),
                low=-math.inf if low is None else float(low),
                high=math.inf if high is None else float(high),
            )
            found.append(Drift(objective=str(one.get("objective")), change=ends, num_repeats=one.get("num_repeats", 0)))
    return tuple(found)


# ── settings ─────────────────────────────────────────────────────────────────────────────────────


def varied(sweep: Sweep) -> tuple[str, ...]:
    """The axes that have more than one value; all of them where none has."""
    names = tuple(axis.name for axis in sweep.axes if len(axis.values) > 1)
    return names or tuple(axis.name for axis in sweep.axes)


def settings_words(settings: Settings, sweep: Sweep) -> str:
    """`slots=2 concurrency=4`, without what is the same everywhere."""
    names = [name for name in varied(sweep) if name in settings] or list(settings)
    return " ".join(f"{clean(name)}={setting_value(settings[name])}" for name in names) or "the only setting"


def setting_value(thing: object) -> str:
    """A setting as the user writes it."""
    if isinstance(thing, bool):
        return str(thing).lower()
    return f"{thing:.12g}" if isinstance(thing, float) else value(thing)


def fixed_words(sweep: Sweep) -> list[str]:
    """What was the same everywhere: axes of one value, and what was set on the target."""
    said = {axis.name: axis.values[0] for axis in sweep.axes if axis.name not in varied(sweep) and axis.values}
    chosen = {name: thing for name, thing in sweep.fixed.items() if thing is not None and name not in said}
    return [f"{clean(name)}={setting_value(thing)}" for name, thing in {**said, **chosen}.items()]


# ── amounts ──────────────────────────────────────────────────────────────────────────────────────


def unit_of(goal: Goal) -> str:
    """The unit of a goal: its own, or what its metric is counted in."""
    return goal.unit or unit_of_metric(goal.metric)


def unit_of_metric(name: str) -> str:
    """The unit of a metric by its name, such as `p99 ttft`; "" where it has none."""
    metric = name.rpartition(" ")[2]
    if metric in TIMES or metric.endswith("_s"):
        return "tokens/s" if metric == "tokens_per_s" else "/s" if metric.endswith("_per_s") else "s"
    if metric in RATES:
        return "/s"
    if metric in SHARES or metric.endswith(("_share", "_ratio")):
        return "share"
    return "bytes" if metric.endswith("_bytes") or metric == "memory" else ""


def unit_named(name: str, sweep: Sweep) -> str:
    """The unit of what an SLO is about, a goal or not."""
    return next((unit_of(goal) for goal in sweep.goals if goal.text == name), unit_of_metric(name))


def scaled(unit: str, sizes: Iterable[float]) -> tuple[float, str]:
    """(factor, name): the unit in which amounts that small are written: `s` as `ms`, bytes as `MiB`, shares as `%`."""
    positive = [abs(size) for size in sizes if size and math.isfinite(size)]
    least = min(positive, default=0.0)
    match unit:
        case "s":
            return (1.0, "s") if least >= 0.9995 else (0.001, "ms")
        case "bytes" | "B":
            return next(((float(size), name) for size, name in _SIZES if least >= size), (1.0, "bytes"))
        case "share":
            return 0.01, "%"
    return 1.0, unit


def amount(size: float, unit: str) -> str:
    """`412 tokens/s`, `182 ms`, `1.53 GiB`, `2.5%`."""
    if unit == "share":
        return percent(size)
    factor, name = scaled(unit, [size])
    return f"{number(size / factor)}{'' if name.startswith('/') else ' '}{clean(name)}".rstrip()


def ends(one: Interval, unit: str, factor: float | None = None) -> str:
    """`398–427`: an interval in the unit of its value; "" where nothing is known of it."""
    if not (math.isfinite(one.low) or math.isfinite(one.high)):
        return ""
    factor = scaled(unit, [one.value])[0] if factor is None else factor
    if one.low < 0:  # "-3–-1" is no way to write an interval
        return f"{number(one.low / factor)} to {number(one.high / factor)}".replace("-", "−")
    return f"{number(one.low / factor)}–{number(one.high / factor)}"


def with_ends(one: Interval, unit: str) -> str:
    """`412 tokens/s (398–427)`."""
    told = ends(one, unit)
    return amount(one.value, unit) + (f" ({told})" if told else "")


def changed(one: Interval) -> str:
    """A relative change: `−3.1% (−5.0% to −1.2%)`."""
    told = f" ({signed(one.low)} to {signed(one.high)})" if math.isfinite(one.low) or math.isfinite(one.high) else ""
    return signed(one.value) + told


def signed(share: float) -> str:
    """`+8.2%`, `−3.1%`."""
    if math.isnan(share):
        return NONE
    if math.isinf(share):
        return "∞" if share > 0 else "−∞"
    words = f"{abs(share) * 100:.1f}"
    return f"{'' if words == '0.0' else '+' if share > 0 else '−'}{words}%"


def probability(share: float | None) -> str:
    """`0.98`; what is not sure never looks like it."""
    if share is None:
        return ""
    words = f"{share:.2f}"
    return ">0.99" if words == "1.00" and share < 1 else "<0.01" if words == "0.00" and share > 0 else words


def slo_words(sweep: Sweep) -> str:
    """`p99 ttft < 200ms and errors < 1%`."""
    return " and ".join(slo_text(slo, sweep) for slo in sweep.slos)


def slo_text(slo: Slo, sweep: Sweep) -> str:
    """An SLO as the user writes it: `p99 ttft < 200ms`."""
    unit = unit_named(slo.objective, sweep)
    factor, name = scaled(unit, [slo.limit])
    return f"{clean(slo.objective)} {clean(slo.op)} {slo.limit / factor:.6g}{clean(name)}"


def goal_names(sweep: Sweep) -> str:
    """`tokens_per_s and p99 ttft`."""
    names = [clean(goal.text) for goal in sweep.goals]
    return " and ".join([*([", ".join(names[:-1])] if names[:-1] else []), *names[-1:]])


def statuses(excluded: Sequence[Standing]) -> str:
    """`2 infeasible, 1 crashed`."""
    counts = Counter(one.point.status for one in excluded)
    return ", ".join(f"{counts[status]} {status}" for status in Status if counts[status])


def tally(one: Shown) -> str:
    """`58 measurements of 24 settings in 7 blocks; 3 infeasible`, and how many settings were never measured."""
    count = len(one.concluded.points)
    blocks = len({each.block for each in one.measurements})
    said = f"{num(len(one.measurements), 'measurement')} of {num(count, 'setting')}"
    said += f" in {num(blocks, 'block')}" if blocks else ""
    told = [statuses(one.excluded)] if one.excluded else []
    if never := one.sweep.num_configs - count:
        told += [f"{never} of {one.sweep.num_configs} settings never measured"] if never > 0 else []
    return "; ".join([said, *told])
