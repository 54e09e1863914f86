"""What a server's own words say of its window: lines of a log, or an error's body, in; what happened and what to change
out; pure.

    lines ─▶ recognise ─▶ Sighting, one for each kind of message: how often, where first, its numbers, the remedy

Words alone: an engine that cuts in silence says none, so that nothing known is never "nothing happened".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from contextlab.analysis.remedies import remedy
from contextlab.analysis.signatures import KINDS, MAX_CHARS, Recognised, recognise
from contextlab.model import Layer, Outcome, Policy, Verdict

AS_OUTCOME: Mapping[str, Outcome] = {
    "overflow": Outcome.REJECTED,
    "capped": Outcome.CAPPED,
    "shift": Outcome.SHIFTED,
    "preempted": Outcome.DEGRADED,
    "position": Outcome.REJECTED_BADLY,
    "dead": Outcome.CRASHED,
    "out-of-memory": Outcome.CRASHED,
}
"""What a probe would call it, by kind; a prompt that was cut also by which end."""
_CUTS = {
    "head": Outcome.TRUNCATED_HEAD,
    "middle": Outcome.TRUNCATED_MIDDLE,
    "tail": Outcome.TRUNCATED_TAIL,
}
_ADVICE = {"pool": Outcome.NEIGHBOUR_ABORTED}
"""For kinds that are no outcome of one request: whose remedy fits."""
_HARMLESS = frozenset({Outcome.REJECTED, Outcome.CAPPED})
"""Said clearly, and so no failure, unless the policy says otherwise."""
_NOTED = frozenset({"adjusted", "not-overflow"})
"""Kinds that are no failure at the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One kind of message. `lines`: the numbers (from 1) of the first and the last line; `numbers` and `line` are of
    the first. `outcome`: what a probe would call it, None where words alone do not tell."""

    id: str
    engine: str
    kind: str
    layer: Layer
    means: str
    count: int
    lines: tuple[int, int]
    line: str
    verdict: Verdict
    outcome: Outcome | None = None
    numbers: Mapping[str, int] = field(default_factory=dict)
    lower_bound: bool = False
    remedy: str = ""

    @property
    def happened(self) -> str:
        """The kind as a sentence."""
        return KINDS[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A text, read. `engine`: whose words most of them are, or who was said to have written it; "" where nobody's."""

    engine: str
    num_lines: int
    sightings: tuple[Sighting, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst of the sightings'; UNKNOWN where nothing known was said."""
        return max((one.verdict for one in self.sightings), default=Verdict.UNKNOWN)

    @property
    def num_known(self) -> int:
        """How many lines say something known."""
        return sum(one.count for one in self.sightings)


def diagnose(lines: Iterable[str], *, engine: str = "", policy: Policy | None = None) -> Diagnosis:
    """Read a text line by line; where no line says anything known, its first `MAX_CHARS` as one message (a JSON body
    of many lines). Sightings come worst first, then in the order in which they were first seen.

    `engine`: one of `signatures.FLAVOURS`, whose words are tried first; "": whoever's they are.
    """
    firsts: dict[str, tuple[int, Recognised]] = {}
    counts: Counter[str] = Counter()
    last: dict[str, int] = {}
    head, num_chars, num_lines = list[str](), 0, 0
    for number, line in enumerate(lines, 1):
        num_lines = number
        if num_chars < MAX_CHARS:
            head.append(line)
            num_chars += len(line)
        if (said := recognise(line, flavour=engine or None)) is not None:
            firsts.setdefault(said.id, (number, said))
            counts[said.id] += 1
            last[said.id] = number
    if not firsts and (said := recognise("\n".join(head), flavour=engine or None)) is not None:
        firsts[said.id], counts[said.id], last[said.id] = (1, said), 1, num_lines
    whose = engine or _whose((said for _, said in firsts.values()), counts)
    policy = policy or Policy()
    sightings = [
        _sighting(said, whose, policy, counts[said.id], (number, last[said.id])) for number, said in firsts.values()
    ]
    sightings.sort(key=lambda one: (-one.verdict.rank, one.lines[0]))
    return Diagnosis(engine=whose, num_lines=num_lines, sightings=tuple(sightings))


def _whose(firsts: Iterable[Recognised], counts: Mapping[str, int]) -> str:
    """The engine that said most; "" where only nobody's words were found."""
    said: Counter[str] = Counter()
    for one in firsts:
        if one.engine != "other":
            said[one.engine] += counts[one.id]
    return said.most_common(1)[0][0] if said else ""


def _sighting(said: Recognised, whose: str, policy: Policy, count: int, lines: tuple[int, int]) -> Sighting:
    outcome = _CUTS.get(said.cut) if said.kind == "truncated" else AS_OUTCOME.get(said.kind)
    verdict = Verdict.FAIL if outcome is None else policy.verdict(outcome, _HARMLESS)
    if said.kind in _NOTED:
        verdict = Verdict.PASS
    advice = outcome or _ADVICE.get(said.kind)
    flavour = said.engine if said.engine != "other" else whose
    return Sighting(
        id=said.id,
        engine=said.engine,
        kind=said.kind,
        layer=said.layer,
        means=said.means,
        count=count,
        lines=lines,
        line=said.line,
        verdict=verdict,
        outcome=outcome,
        numbers=dict(said.numbers),
        lower_bound=said.lower_bound,
        remedy=""
        if advice is None
        else remedy(advice, flavour=flavour, layer=said.layer, evidence={"kind": said.kind}, signature=said.id),
    )
