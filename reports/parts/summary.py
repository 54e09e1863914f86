"""What a run comes to, read from its record: the figures and sentences that every writer shares.

Pure functions of `Run`, null-safe, because a run may have been killed before it had a header worth
the name. Nothing here knows about widths, colours or encodings; see `grouping` for its findings and
`headline` for its verdict in words.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from contextlab.experiment import Experiment
from contextlab.model import Layer, Limit, Run, UnableError, Verdict
from contextlab.reports.parts import grouping
from contextlab.reports.parts.wording import COUNTED_AS, clean, listed, num, value

KILLED = "the run was killed before it could finish"
INTERRUPT_CODES = frozenset({130, 143})
_ENDS = frozenset({"observed", "trial"})
_PROBE_KINDS = _ENDS | {"probe", "experiment"}


# ── how it ended ─────────────────────────────────────────────────────────────────────────────────


def command(run: Run) -> str:
    """The command that made the run; the first one that there was, where the record does not say."""
    return str(run.header.get("command") or "overflow")


def verdict(run: Run) -> Verdict:
    """The run's own verdict; UNKNOWN where it came to none, or did not come to its end and had found nothing bad."""
    stated = (run.end or {}).get("verdict")
    try:
        found = Verdict(stated)
    except ValueError:
        return Verdict.UNKNOWN
    return Verdict.UNKNOWN if found is Verdict.PASS and exit_status(run)["code"] not in (0, None) else found


def exit_status(run: Run) -> dict[str, Any]:
    """`code` (None where the run was killed), `reason` and `all`, as the end of the record gives them."""
    if run.end is None:
        return {"code": None, "reason": KILLED, "all": []}
    ended = run.end.get("exit") or {}
    return {"code": ended.get("code"), "reason": ended.get("reason") or "", "all": list(ended.get("all") or ())}


def tally_words(run: Run) -> str:
    """`41 probes: 7 failed, 2 unknown, 32 held`, and what was skipped; of a sweep, how much was measured."""
    if own := _own_tally(run):
        return own
    counts = grouping.tally(run)
    words = [f"{counts[each]} {COUNTED_AS[each]}" for each in sorted(Verdict, reverse=True) if counts[each]]
    total = grouping.num_probes(run)
    return (f"{total}: {', '.join(words)}" if words else total) + (f"; {len(run.skips)} skipped" if run.skips else "")


def _own_tally(run: Run) -> str:
    """How much a sweep or a gate measured; "" of every other run, and where the record does not say."""
    match command(run):
        case "pareto":
            from contextlab.reports.pareto import text

            return text.tally_words(run)
        case "gate":
            from contextlab.reports.gate import facts

            one, _ = facts.shown(run)
            return facts.tally(one) if one is not None else ""
    return ""


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


def target_facts(run: Run) -> list[str]:
    """What was tested: the target, its flavour and version, its model."""
    known = run.knowledge
    said = _said([target(run), *([f"{known.flavour} {known.version}", known.model] if known else [])])
    return list(dict.fromkeys(said))


def experiments(run: Run) -> dict[tuple[str, str], tuple[Experiment, str]]:
    """The chaos experiments that began and the path that each took; one that cannot be read is left out."""
    found: dict[tuple[str, str], tuple[Experiment, str]] = {}
    for record in run.records:
        if record.get("kind") == "experiment":
            with suppress(msgspec.ValidationError, KeyError):
                made = msgspec.convert(record["experiment"], Experiment)
                place = (str(record.get("scenario", "")), str(record.get("probe", "")))
                found[place] = (made, str(record.get("path", "")))
    return found


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
        tokens = finding.evidence.get(grouping.MEASURED)
        if finding.scenario == "find-limit" and isinstance(tokens, int) and not isinstance(tokens, bool):
            return tokens
    return None


def measured_words(run: Run) -> str:
    """`longest prompt read: 511 of 512 declared`: what find-limit measured beside the window; "" if it did not."""
    measured, declared = measured_tokens(run), window(run)
    if measured is None:
        return ""
    if declared is None:
        return f"longest prompt read: {measured} tokens, none declared"
    if measured > declared:
        return f"longest prompt read: {measured} tokens, more than the {declared} declared"
    only = "only " if measured < declared - 1 else ""  # (one token is the reply's)
    return f"longest prompt read: {only}{measured} of {declared} declared"


# ── where it comes from ──────────────────────────────────────────────────────────────────────────


def provenance(run: Run) -> dict[str, list[str]]:
    """What else it takes to repeat the run: what was set and allowed, when, with what, and where.

    The settings are left out where the command line names the target: what it does not set is a default.
    """
    header = run.header
    shown = (
        ""
        if command(run) == "gate" or shlex.quote(target(run)) in command_line(run)
        else " ".join(f"{name}={_setting(chosen)}" for name, chosen in _set(run))
    )
    seed = header.get("seed")
    facts = {
        "settings": [shown],
        "policy": _policy(header.get("policy")),
        "began": [str(header.get("started_at") or ""), f"seed {seed}" if seed is not None else ""],
        "versions": [f"{name} {version}" for name, version in _mapping(header.get("versions")).items()],
        "machine": _machine(_mapping(header.get("machine")), _mapping(_mapping(run.end).get("machine"))),
    }
    return {name: said for name, words in facts.items() if (said := _said(words))}


def command_line(run: Run) -> list[str]:
    """The command that made the run, in shell words; none where the record does not say."""
    argv = [str(word) for word in run.header.get("argv") or ()]
    if argv and re.search(r"(?:contextlab|\.py)$", argv[0]):  # the program itself
        argv = argv[1:]
    return shell_words("contextlab", *argv) if argv else []


def next_command(run: Run) -> list[str]:
    """The one command worth running next, in shell words: repeat the worst probe, run again, or read it all.

    A chaos run is repeated whole: equal seeds give equal plans and faults. A sweep goes on
    where it left something open.
    """
    if command(run) == "pareto":
        return _next_sweep(run)
    if command(run) == "gate":
        return _next_gate(run)
    if command(run) == "chaos" and verdict(run) is not Verdict.PASS and (again := _again(run)):
        return again
    for wanted in (Verdict.FAIL, Verdict.UNKNOWN):
        for group in grouping.groups(run, wanted):
            if group.example in run.findings:
                return shell_words(
                    "contextlab", "replay", run.path, "--probe", _unique(run, group.example.probe, group)
                )
    if run.end is None or exit_status(run)["code"] in INTERRUPT_CODES or not run.findings:
        return _again(run) or shell_words("contextlab", command(run), target(run) or "--help")
    return shell_words("contextlab", "report", run.path, "--as", "json")


def _next_sweep(run: Run) -> list[str]:
    """Go on with a sweep that was cut or left something undecided; measure again where nothing could be used."""
    from contextlab.analysis.sweeps import GIVEN_UP
    from contextlab.reports.pareto import text as pareto

    argv = [str(word) for word in run.header.get("argv") or ()]
    given_up = any(one.probe == GIVEN_UP for one in run.findings)
    cut = run.end is None or exit_status(run)["code"] in (*INTERRUPT_CODES, UnableError.exit_code) or given_up
    if argv and pareto.is_whole(run) and not cut:
        return shell_words("contextlab", "report", run.path, "--as", "json")
    if not argv or not pareto.is_begun(run):
        return _again(run) or shell_words("contextlab", command(run), target(run) or "--help")
    return command_line(replace(run, header={**run.header, "argv": pareto.going_on(argv, run, cut=cut)}))


def _next_gate(run: Run) -> list[str]:
    """Go on with a gate that was cut; repeat one that could not tell; read one that could.

    What two stored records do not tell they never will: both are measured side by side instead.
    """
    from contextlab.reports.gate import facts

    argv = [str(word) for word in run.header.get("argv") or ()]
    cut = run.end is None or exit_status(run)["code"] in INTERRUPT_CODES
    if cut and argv and "--resume" not in argv:
        return command_line(replace(run, header={**run.header, "argv": [*argv, "--resume", run.path]}))
    stored, _ = facts.shown(run)
    if stored is not None and (begins := stored.stored.begins).stored and exit_status(run)["code"] in (3, 5):
        return shell_words("contextlab", "gate", "run", "--base", begins.base, "--candidate", begins.candidate)
    if argv and (cut or exit_status(run)["code"] in (3, 4, 5)):
        return _again(run)
    if exit_status(run)["code"] == 0 and stored is not None and not stored.stored.begins.stored:
        return shell_words("contextlab", "gate", "accept", run.path, "--reason", "TEXT")
    return shell_words("contextlab", "report", run.path, "--as", "json")


def _again(run: Run) -> list[str]:
    """The command line of a run, to be repeated in a folder of its own: that of the run is there already."""
    argv = [str(word) for word in run.header.get("argv") or ()]
    kept = []
    for place, word in enumerate(argv):
        after = argv[place - 1] if place else ""
        if word not in ("-o", "--output") and after not in ("-o", "--output") and not word.startswith("--output="):
            kept.append(word)
    return command_line(replace(run, header={**run.header, "argv": kept}))


def _unique(run: Run, probe: str, group: grouping.Group) -> str:
    """The probe as `replay` finds it: with its scenario where another one has a probe of that name."""
    same = [place for place in run.probes if place[1] == probe]
    return f"{group.example.scenario}/{probe}" if len(same) > 1 else probe


def shell_words(*texts: str) -> list[str]:
    """Shell words, quoted and cleaned."""
    return [clean(shlex.quote(text)) for text in texts]


def _said(words: Iterable[str]) -> list[str]:
    return [clean(word.strip()) for word in words if word.strip()]


def _set(run: Run) -> list[tuple[str, object]]:
    return [(name, chosen) for name, chosen in settings(run).items() if chosen is not None]


def _setting(chosen: object) -> str:
    """As the user writes it: `--set name=true`."""
    return str(chosen).lower() if isinstance(chosen, bool) else str(chosen)


def _policy(policy: object) -> list[str]:
    """`allows SHIFTED`, where the user, or the project, changed what passes."""
    said = {"allow": "allows", "fail_on": "fails on"}
    lists = {word: _mapping(policy).get(name) for name, word in said.items()}
    return [f"{word} {listed([str(name) for name in names])}" for word, names in lists.items() if names]


def _machine(machine: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """`Linux x86_64 · 2 cores · 23.5 GiB · load 0.42, then 1.3`."""
    cores, memory = (machine.get(name) for name in ("cores", "memory_bytes"))
    loads = [value(load) for one in (machine, after) if isinstance(load := one.get("load"), int | float)]
    return [
        " ".join(str(machine[name]) for name in ("system", "processor") if machine.get(name)),
        num(cores, "core") if isinstance(cores, int) else "",
        f"{memory / 2**30:.1f} GiB" if isinstance(memory, int) else "",
        f"load {', then '.join(loads)}" if loads else "",
    ]


def _mapping(thing: object) -> Mapping[str, Any]:
    return thing if isinstance(thing, Mapping) else {}


def _running(record: Mapping[str, Any]) -> str:
    if record["kind"] in _ENDS:
        return ""
    probe = record.get("probe")
    name = probe.get("name", "") if isinstance(probe, Mapping) else probe
    return f"{record.get('scenario', '')}/{name}"
