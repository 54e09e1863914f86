"""What a test asserts of a target, decided from probes and their findings; pure.

A claim ends in one of three ways: it holds, it is broken, or it is open, because what would show it was not seen.
Open is never a pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from contextlab.analysis.prompts import slack_tokens
from contextlab.analysis.quantities import count
from contextlab.model import Finding, Knowledge, Outcome, Probe, Skip, Verdict

LOST = frozenset({Outcome.TRUNCATED_HEAD, Outcome.TRUNCATED_MIDDLE, Outcome.TRUNCATED_TAIL, Outcome.SHIFTED})
"""A part of the prompt was dropped, and nobody was told."""
READ_OR_TOLD = frozenset({Outcome.OK, Outcome.CAPPED, Outcome.REJECTED, Outcome.REJECTED_BADLY})
"""The prompt was read whole, or the client learned that it was not; a bad refusal is one, too."""
NUM_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One probe that was run, and what was found of it."""

    probe: Probe
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A claim, decided. `holds` None: open. `why` in a sentence; `findings`: what it rests on, the worst first."""

    holds: bool | None
    why: str
    findings: tuple[Finding, ...] = ()


def not_truncated(asked: Sequence[Asked], known: Knowledge, skips: Sequence[Skip] = ()) -> Decided:
    """No prompt lost a part in silence, shown on prompts past the window as well as inside it.

    An outcome that the policy allows is no loss. Open where a probe ended otherwise (it hung, crashed, was cut or
    empty), and where nothing went past a declared window; without one, the prompts that were tried are what is claimed.
    """
    lost = _worst(one for each in asked for one in each.findings if one.outcome in LOST and one.verdict is Verdict.FAIL)
    if lost:
        return Decided(holds=False, why=f"{_of(lost, asked)} lost a part of the prompt in silence", findings=lost)
    dark = [each for each in asked if not any(one.outcome in READ_OR_TOLD | LOST for one in each.findings)]
    if dark:
        found = _worst(one for each in dark for one in each.findings)
        why = f"{_share(len(dark), len(asked), 'probe')} ended so that nobody can tell whether the prompt was read"
        return Decided(holds=None, why=why, findings=found)
    if not asked or (known.limits.context_tokens is not None and not past_window(asked, known)):
        return _not_measured("no prompt went past the window", skips)
    return Decided(holds=True, why=f"{len(asked)} probes were read whole or refused")


def refuses(asked: Sequence[Asked], known: Knowledge, skips: Sequence[Skip] = ()) -> Decided:
    """Every prompt that is longer than the declared window is refused clearly, before anything is generated."""
    past = past_window(asked, known)
    if not past:
        return _not_measured("no prompt went past a declared window", skips)
    other = [each for each in past if not any(one.outcome is Outcome.REJECTED for one in each.findings)]
    found = _worst(one for each in other for one in each.findings)
    if not other:
        return Decided(holds=True, why=f"{len(past)} prompts longer than the window were refused")
    unseen = all(one.outcome is Outcome.UNKNOWN for one in found)
    were = "was" if len(other) == 1 else "were"
    why = f"{_share(len(other), len(past), 'prompt')} longer than the window {were} not refused clearly"
    return Decided(holds=None if unseen else False, why=why, findings=found)


def held(asked: Sequence[Asked], allow: frozenset[Outcome], skips: Sequence[Skip] = ()) -> Decided:
    """Every outcome is one that the probes, the policy, or `allow` permit."""
    failed = _worst(
        one for each in asked for one in each.findings if one.verdict is not Verdict.PASS and one.outcome not in allow
    )
    broken = tuple(one for one in failed if one.verdict is Verdict.FAIL)
    if broken:
        return Decided(holds=False, why=f"{_of(broken, asked)} ended in a way that is not allowed", findings=failed)
    if failed:
        return Decided(holds=None, why=f"the outcome of {_of(failed, asked)} could not be told", findings=failed)
    if not asked:
        return _not_measured("no probe was run", skips)
    return Decided(holds=True, why=f"{len(asked)} probes ended as they may")


def past_window(asked: Sequence[Asked], known: Knowledge) -> list[Asked]:
    """The probes whose prompt is longer than the declared window for certain; none where no window is declared."""
    window = known.limits.context_tokens
    if window is None:
        return []
    most = window + slack_tokens(known)
    return [each for each in asked if isinstance(size := each.probe.about.get("size_tokens"), int) and size > most]


def shown(finding: Finding) -> str:
    """A finding as a test's failure tells it: outcome, place and reason on one line, the remedy on the next."""
    text = f"  {finding.outcome.name}  {finding.scenario} · {finding.probe}: {finding.why}"
    return text + (f"\n    change: {finding.remedy}" if finding.remedy else "")


def told(target: str, decided: Decided, record: str) -> str:
    """The message of a claim that does not hold: what, the worst findings, and where the rest is."""
    word = "not told" if decided.holds is None else "broken"
    lines = [f"{target}: {word}: {decided.why}"]
    seen: set[tuple[Outcome, str]] = set()
    for finding in decided.findings:  # one of a kind says it; the record has them all
        if (finding.outcome, finding.remedy) not in seen and len(seen) < NUM_SHOWN:
            seen.add((finding.outcome, finding.remedy))
            lines.append(shown(finding))
    if (more := len(decided.findings) - len(seen)) > 0:
        lines.append(f"  and {more} more")
    return "\n".join([*lines, f"  next: contextlab report {record}"])


def _worst(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda one: one.outcome.rank, reverse=True))


def _of(findings: Sequence[Finding], asked: Sequence[Asked]) -> str:
    places = {(one.scenario, one.probe) for one in findings}
    return _share(len(places), len(asked), "probe")


def _share(number: int, total: int, noun: str) -> str:
    """`1 of 1 prompt`, `3 of 8 prompts`."""
    return f"{number} of {count(total, noun)}"


def _not_measured(why: str, skips: Sequence[Skip]) -> Decided:
    reasons = "; ".join(dict.fromkeys(skip.reason for skip in skips))
    return Decided(holds=None, why=why + (f": {reasons}" if reasons else ""))
