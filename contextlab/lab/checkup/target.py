"""A target, opened as a run would open it, and closed again: what it is, and what can be found out about it."""

from __future__ import annotations

import shlex
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from contextlab import registry
from contextlab.analysis.checkup import Check, Grade
from contextlab.analysis.foresight import lack
from contextlab.lab.provenance import without_secrets
from contextlab.lab.run import Options
from contextlab.lab.standing import StandingLab
from contextlab.model import ContextlabError, Knowledge, TargetSpec


def checks(spec: TargetSpec, options: Options) -> Iterator[Check]:
    """What opening it tells. A server of ours is started for it, and ended."""
    with tempfile.TemporaryDirectory(prefix="contextlab-") as folder:
        try:
            with StandingLab(spec, Path(folder) / "run", options) as lab:
                yield from known_checks(lab.known)
        except ContextlabError as error:
            words = " · ".join(line.strip() for line in error.message.splitlines() if line.strip())
            kept = f"a run keeps the whole log: contextlab overflow {shlex.quote(without_secrets(spec.name))}"
            yield _made("open", Grade.FAIL, words, kept if folder in error.next_step else error.next_step)


def known_checks(known: Knowledge) -> Iterator[Check]:
    """What its knowledge comes to."""
    who = " ".join(part for part in (known.flavour, known.version) if part) or "a server of an unknown kind"
    yield _made("open", Grade.OK, f"{who}, model {known.model or 'not named'}")
    window = known.limits.context_tokens
    if window is not None:
        yield _made("window", Grade.OK, f"{window} tokens for each request")
    else:
        fix = "--set window=TOKENS says it; without that find-limit looks for it"
        yield _made("window", Grade.WARN, "it does not tell its window", fix)
    if "counts-tokens" in known.powers:
        yield _made("tokens", Grade.OK, "it counts tokens itself")
    else:
        detail = f"it does not count tokens: {known.tokens_per_word:.2f} a word, as measured"
        yield _made("tokens", Grade.WARN, detail, "probes keep a margin; one with /tokenize is probed to the token")
    yield _speed(known)
    if known.neighbour_stable:
        yield _made("neighbours", Grade.OK, "equal requests get equal answers, alone and beside others")
    elif "serves-many" in known.powers:
        detail = f"answers beside others cannot be compared: {known.neighbour_note or 'they differ by themselves'}"
        yield _made(
            "neighbours", Grade.WARN, detail, "a temperature of 0 and a fixed seed are sent; see the server's own"
        )
    for kind, scenarios in (("overflow", registry.scenarios("overflow")), ("chaos", registry.scenarios("chaos"))):
        yield _scenarios(kind, {name: lack(one, known) for name, one in scenarios.items()})


def _speed(known: Knowledge) -> Check:
    read, wrote = known.prefill_tokens_per_s, known.decode_tokens_per_s
    said = [f"{speed:.0f} tokens/s {what}" for speed, what in ((read, "read"), (wrote, "written")) if speed]
    return _made("speed", Grade.OK if said else Grade.SKIP, ", ".join(said) or "not measured")


def _scenarios(kind: str, lacks: Mapping[str, str]) -> Check:
    """`12 of 14 scenarios can run; …: it has no gauges`."""
    missing = {name: why for name, why in lacks.items() if why}
    words = f"{len(lacks) - len(missing)} of {len(lacks)} scenarios can run"
    for why, count in Counter(missing.values()).most_common():
        names = [name for name, said in missing.items() if said == why]
        words += f"; {', '.join(names[:3])}{f' and {count - 3} more' if count > 3 else ''}: {why}"
    grade = Grade.OK if len(missing) < len(lacks) else Grade.WARN
    return _made(kind, grade, words)


def _made(name: str, grade: Grade, detail: str, fix: str = "") -> Check:
    return Check(section="target", name=name, grade=grade, detail=detail, fix=fix)
