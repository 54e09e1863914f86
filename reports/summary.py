"""What a run comes to, read from its record: the figures and sentences that every writer shares.

Pure functions of `Run`, null-safe, because a run may have been killed before it had a header worth
the name. Nothing here knows about widths, colours or encodings.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contextlab.model import Evidence, Finding, Layer, Limit, Outcome, Run, Verdict
from contextlab.reports.wording import COUNTED_AS, clean, listed, num

KILLED = "the run was killed before it could finish"
INTERRUPT_CODES = frozenset({130, 143})
_PROBE_KINDS = frozenset({"probe", "observed"})
_NUMBERS = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Findings that say the same of different probes; the numbers in `why` may differ."""

    findings: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        """The finding whose words and evidence stand for the group."""
        return self.findings[0]

    @property
    def probes(self) -> tuple[str, ...]:
        """The probes, in the order in which they ran, each once."""
        return tuple(dict.fromkeys(finding.probe for finding in self.findings))

    @property
    def evidence(self) -> Evidence:
        """That of the first finding, which is named where there are others."""
        return {"probe": self.first.probe, **self.first.evidence} if len(self.probes) > 1 else self.first.evidence


Cells = Mapping[str, Mapping[Outcome, Mapping[Verdict, int]]]
"""Scenario → outcome → verdict → number of probes; scenarios in the order in which they ran."""


# ── the run as a whole ───────────────────────────────────────────────────────────────────────────


def findings(run: Run) -> tuple[Finding, ...]:
    """The run's findings, and an UNKNOWN one for each probe that nobody came to judge."""
    judged = {(finding.scenario, finding.probe) for finding in run.findings}
    unjudged = (
        Finding(
            scenario=scenario,
            probe=probe,
            outcome=Outcome.UNKNOWN,
            verdict=Verdict.UNKNOWN,
            layer=Layer.ENGINE,
            why="the run ended before this probe was judged",
        )
        for scenario, probe in run.probes
        if (scenario, probe) not in judged
    )
    return (*run.findings, *unjudged)


def verdict(run: Run) -> Verdict:
    """The run's own verdict; UNKNOWN where it came to none."""
    stated = (run.end or {}).get("verdict")
    try:
        return Verdict(stated)
    except ValueError:
        return Verdict.UNKNOWN


def exit_status(run: Run) -> dict[str, Any]:
    """`code` (None where the run was killed), `reason` and `all`, as the end of the record gives them."""
    if run.end is None:
        return {"code": None, "reason": KILLED, "all": []}
    ended = run.end.get("exit") or {}
    return {"code": ended.get("code"), "reason": ended.get("reason") or "", "all": list(ended.get("all") or ())}


def headline_word(run: Run) -> str:
    """FAILED, HELD, UNKNOWN or INTERRUPTED."""
    if exit_status(run)["code"] in INTERRUPT_CODES:
        return "INTERRUPTED"
    return {Verdict.FAIL: "FAILED", Verdict.PASS: "HELD", Verdict.UNKNOWN: "UNKNOWN"}[verdict(run)]


def headline(run: Run) -> str:
    """The verdict in one sentence, without its first word."""
    where = f"at its window of {window(run)} tokens" if window(run) else "(window not known)"
    failed = _outcomes(run, Verdict.FAIL)
    so_far = f"; failed so far: {failed}" if failed else ""
    match headline_word(run):
        case "INTERRUPTED":
            return f"{subject(run)} was stopped after {num(len(_worst_by_probe(run)), 'probe')}{so_far}"
        case "FAILED":
            return f"{subject(run)} breaks {where}: {failed or exit_status(run)['reason']}"
        case "HELD":
            return f"{subject(run)} holds {where}: {_outcomes(run, Verdict.PASS)}"
    if run.end is None:
        return f"{subject(run)}: {KILLED}{so_far}"
    if not findings(run):
        return f"{subject(run)}: nothing was measured"
    unknown, probes = tally(run)[Verdict.UNKNOWN], num(len(_worst_by_probe(run)), "probe")
    if not unknown:
        return f"{subject(run)} {where}: {clean(str(exit_status(run)['reason'])) or 'no verdict is on record'}"
    return f"{unknown} of {probes} of {subject(run)} {where} could not be told"


def tally(run: Run) -> Counter[Verdict]:
    """Number of probes by the worst verdict that each of them got."""
    return Counter(_worst_by_probe(run).values())


def tally_words(run: Run) -> str:
    """`41 probes: 7 failed, 2 unknown, 32 held`, and what was skipped."""
    counts = tally(run)
    words = [f"{counts[each]} {COUNTED_AS[each]}" for each in sorted(Verdict, reverse=True) if counts[each]]
    total = num(sum(counts.values()), "probe")
    return (f"{total}: {', '.join(words)}" if words else total) + (f"; {len(run.skips)} skipped" if run.skips else "")


def exit_words(run: Run) -> str:
    """`exit 1: a finding that is not allowed`."""
    status = exit_status(run)
    code, reason = status["code"], clean(str(status["reason"]))
    if code is None:
        return reason
    return f"exit {code}: {reason}" if reason else f"exit {code}"


def unfinished(run: Run) -> str:
    """`scenario/probe` of a probe that began and has no end in the record; "" if there is none."""
    running = ""
    for record in run.records:
        if record.get("kind") in _PROBE_KINDS:
            running = _running(record)
    return running


def notes(run: Run) -> tuple[str, ...]:
    """What the user should know, as the run noted it."""
    return tuple(str(record.get("text", "")) for record in run.records if record.get("kind") == "note")


# ── the target and its limits ────────────────────────────────────────────────────────────────────


def target(run: Run) -> str:
    """The target as the user named it; "" where the record does not say."""
    named = run.header.get("target")
    return str(named.get("name", "") if isinstance(named, Mapping) else named or "")


def settings(run: Run) -> dict[str, Any]:
    """What was set on the target."""
    named = run.header.get("target")
    return dict(named.get("settings") or {}) if isinstance(named, Mapping) else {}


def subject(run: Run) -> str:
    """`smollm2 (llama-server)`: the target, and what it turned out to be."""
    flavour = run.knowledge.flavour if run.knowledge else ""
    named = clean(target(run)) or "the target"
    return f"{named} ({clean(flavour)})" if flavour else named


def target_facts(run: Run) -> dict[str, list[str]]:
    """What was tested and how: the target, its flavour and version, its model; settings, seed, and when."""
    known = run.knowledge
    tested = [target(run), *([f"{known.flavour} {known.version}", known.model] if known else [])]
    chosen = " ".join(f"{name}={_setting(setting)}" for name, setting in settings(run).items() if setting is not None)
    seed, started = run.header.get("seed"), run.header.get("started_at")
    how = [chosen, f"seed {seed}" if seed is not None else "", str(started or "")]
    facts = {"target": tested, "run with": how}
    cleaned = {name: [clean(word.strip()) for word in words if word.strip()] for name, words in facts.items()}
    return {name: words for name, words in cleaned.items() if words}


def window(run: Run) -> int | None:
    """The window of one request, as the target says."""
    return run.knowledge.limits.context_tokens if run.knowledge else None


def limits(run: Run) -> tuple[Limit, ...]:
    """Every declared limit; the window alone where the target names no layer."""
    if run.knowledge is None:
        return ()
    if not run.knowledge.limits.declared and window(run) is not None:
        return (Limit(layer=Layer.ENGINE, name="window", tokens=window(run), source="the target"),)
    return run.knowledge.limits.declared


def binds(limit: Limit, run: Run) -> bool:
    """Whether this limit is the one that a request meets first: the window, or else the smallest number."""
    numbers = [each.tokens for each in limits(run) if each.tokens is not None]
    if limit.tokens is None:
        return False
    return limit.tokens == (window(run) if window(run) in numbers else min(numbers))


def pool_words(run: Run) -> str:
    """`4 slots share a KV cache of 2048 tokens`, as far as it is known."""
    if run.knowledge is None:
        return ""
    slots, pool = run.knowledge.limits.num_slots, run.knowledge.limits.pool_tokens
    if slots is None or pool is None:
        return f"a KV cache of {pool} tokens" if pool is not None else num(slots, "slot") if slots is not None else ""
    return f"{num(slots, 'slot')} {'has' if slots == 1 else 'share'} a KV cache of {pool} tokens"


def measured_tokens(run: Run) -> int | None:
    """The largest prompt that was really accepted and read, where a scenario measured it."""
    for finding in run.findings:
        tokens = finding.evidence.get("measured_tokens")
        if finding.scenario == "find-limit" and isinstance(tokens, int) and not isinstance(tokens, bool):
            return tokens
    return None


# ── findings, arranged ───────────────────────────────────────────────────────────────────────────


def cells(run: Run) -> Cells:
    """The outcomes matrix, in numbers of probes; a probe with two outcomes counts under both."""
    matrix: dict[str, dict[Outcome, dict[Verdict, int]]] = {}
    seen: set[tuple[str, str, Outcome, Verdict]] = set()
    for finding in findings(run):
        key = (finding.scenario, finding.probe, finding.outcome, finding.verdict)
        if key not in seen:
            seen.add(key)
            cell = matrix.setdefault(finding.scenario, {}).setdefault(finding.outcome, {})
            cell[finding.verdict] = cell.get(finding.verdict, 0) + 1
    return matrix


def outcomes(matrix: Cells) -> tuple[Outcome, ...]:
    """The outcomes that occurred, in the order of `Outcome`."""
    return tuple(sorted({outcome for row in matrix.values() for outcome in row}))


def worst(row: Mapping[Outcome, Mapping[Verdict, int]]) -> Verdict:
    """The worst verdict of a scenario's row."""
    return max((each for cell in row.values() for each in cell), default=Verdict.UNKNOWN)


def groups(run: Run, wanted: Verdict) -> tuple[Group, ...]:
    """Findings of that verdict, worst outcome first, those that say the same thing together."""
    alike: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings(run):
        if finding.verdict is wanted:
            why = _NUMBERS.sub("#", finding.why)
            key = (finding.scenario, finding.outcome, finding.layer, why, finding.remedy)
            alike.setdefault(key, []).append(finding)
    found = [Group(findings=tuple(members)) for members in alike.values()]
    return tuple(sorted(found, key=lambda group: group.first.outcome, reverse=True))


def passed_words(run: Run) -> dict[str, str]:
    """Scenario → `8 probes: 3 OK, 5 REJECTED`, of the probes that did nothing worse."""
    by_probe = _worst_by_probe(run)
    passed: dict[str, list[Finding]] = {}
    for finding in findings(run):
        if by_probe[finding.scenario, finding.probe] is Verdict.PASS:
            passed.setdefault(finding.scenario, []).append(finding)
    return {scenario: _passed(found) for scenario, found in passed.items()}


def skipped(run: Run) -> dict[tuple[str, str], tuple[str, ...]]:
    """(scenario, reason) → the probes skipped for it; no probes where it is the whole scenario."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for skip in run.skips:
        probes = (skip.probe,) if skip.probe else ()
        found[skip.scenario, skip.reason] = (*found.get((skip.scenario, skip.reason), ()), *probes)
    return found


def next_command(run: Run) -> list[str]:
    """The one command worth running next, in shell words: repeat the worst probe, run again, or read it all."""
    for wanted in (Verdict.FAIL, Verdict.UNKNOWN):
        for group in groups(run, wanted):
            if group.first in run.findings:
                return _words("contextlab", "replay", run.path, "--probe", group.first.probe)
    if run.end is None or exit_status(run)["code"] in INTERRUPT_CODES or not run.findings:
        return _same_again(run)
    return _words("contextlab", "report", run.path, "--as", "json")


def _same_again(run: Run) -> list[str]:
    argv = [str(word) for word in run.header.get("argv") or ()]
    if argv and re.search(r"(?:contextlab|\.py)$", argv[0]):  # the program itself
        argv = argv[1:]
    return _words("contextlab", *(argv or [str(run.header.get("command") or "overflow"), target(run) or "--help"]))


def _words(*texts: str) -> list[str]:
    return [clean(shlex.quote(text)) for text in texts]


def _setting(chosen: object) -> str:
    """As the user writes it: `--set name=true`."""
    return str(chosen).lower() if isinstance(chosen, bool) else str(chosen)


def _running(record: Mapping[str, Any]) -> str:
    if record["kind"] == "observed":
        return ""
    probe = record.get("probe")
    name = probe.get("name", "") if isinstance(probe, Mapping) else probe
    return f"{record.get('scenario', '')}/{name}"


def _worst_by_probe(run: Run) -> dict[tuple[str, str], Verdict]:
    by_probe: dict[tuple[str, str], Verdict] = {}
    for finding in findings(run):
        key = (finding.scenario, finding.probe)
        by_probe[key] = max(by_probe.get(key, Verdict.PASS), finding.verdict)
    return by_probe


def _outcomes(run: Run, wanted: Verdict) -> str:
    found = {finding.outcome for finding in findings(run) if finding.verdict is wanted}
    return listed([str(outcome) for outcome in sorted(found, reverse=wanted is Verdict.FAIL)])


def _passed(found: Sequence[Finding]) -> str:
    shown = {(finding.outcome, finding.probe) for finding in found}
    counts = sorted(Counter(outcome for outcome, _ in shown).items())
    probes = len({probe for _, probe in shown})
    return f"{num(probes, 'probe')}: {', '.join(f'{count} {outcome}' for outcome, count in counts)}"
