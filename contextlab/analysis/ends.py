"""Which end of a prompt was read: from the codes that come back, and from what the target says it evaluated; pure.

    counts short, head lost, tail kept ─▶ HEAD dropped        counts short, both kept  ─▶ MIDDLE dropped
    counts short, head kept, tail lost ─▶ TAIL dropped        counts short, all lost   ─▶ TAIL dropped: the question,
                                                               which stands at the very end, went with it
Counts are the stronger evidence: a weak model forgets a code that it did read. So with full counts a lost code
means something only beyond the declared window, and only where a control prompt brought that code back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from contextlab.analysis.exchanges import answered, evidence, prompt_tokens_read
from contextlab.analysis.judging import read, shortfall_tokens, worst
from contextlab.analysis.prompts import PLACES
from contextlab.model import Exchange, Judgement, Knowledge, Layer, Outcome, Probe

KEEPS_HEAD = frozenset({"sglang"})
"""Flavours that, where they cut in silence, are known to keep the head; the others keep the tail."""


def recalled(exchanges: Sequence[Exchange]) -> dict[str, bool]:
    """For each place that was asked for and answered: whether its code came back."""
    return {
        exchange.request.name.rpartition(":")[2]: exchange.request.expects in exchange.text
        for exchange in exchanges
        if exchange.request.expects and answered(exchange)
    }


def control(probe: Probe) -> dict[str, bool]:
    """The places whose code came back from a prompt well inside the window (`about` holds "control_HEAD": 1 …)."""
    return {place: bool(probe.about.get(f"control_{place}", 0)) for place in PLACES}


def about_control(recall: Mapping[str, bool]) -> dict[str, int]:
    """A control's result, for the `about` of later probes."""
    return {f"control_{place}": int(kept) for place, kept in recall.items()}


def judge_reading(probe: Probe, exchanges: Sequence[Exchange], known: Knowledge) -> Judgement:
    """The judgement of a marked prompt that was asked for one, two or three of its codes."""
    accepted = int(probe.about.get("accepted_tokens", 0))
    readings = [read(exchange, known, accepted_tokens=accepted) for exchange in exchanges]
    bad = worst(reading for reading in readings if reading.outcome not in (Outcome.OK, Outcome.CAPPED))
    if bad is not None:
        return _past_positions(probe, exchanges, bad) if bad.evidence.get("tokens_past") else bad
    cut = _cut(probe, exchanges, known)
    if cut is not None:
        return cut
    last = readings[-1]
    kept = recalled(exchanges)
    if prompt_tokens_read(exchanges[-1]) is None and not any(kept.values()):
        why = f"{last.why}, but nothing tells whether the prompt was read: no counts, and no code came back"
        return Judgement(outcome=Outcome.UNKNOWN, why=why, evidence={**last.evidence, **_codes(kept)})
    words = ", ".join(f"{place} {'came back' if back else 'did not come back'}" for place, back in kept.items())
    return Judgement(
        outcome=last.outcome,
        why=f"{last.why}; {_basis(exchanges)}{'; codes: ' + words if words else ''}",
        layer=last.layer,
        evidence={**last.evidence, **_codes(kept), "evidence_used": _basis(exchanges)},
    )


def _past_positions(probe: Probe, exchanges: Sequence[Exchange], judged: Judgement) -> Judgement:
    """An answer past the model's positions: worse than inside them, if codes that came back there do not any more."""
    kept = recalled(exchanges)
    lost = [place for place, back in control(probe).items() if back and kept.get(place) is False]
    numbers = {**judged.evidence, **_codes(kept)}
    if lost:
        why = f"{judged.why}; of the codes that came back inside them, {', '.join(lost)} did not any more"
        return replace(judged, outcome=Outcome.DEGRADED, why=why, evidence=numbers)
    return replace(judged, evidence=numbers)


def _basis(exchanges: Sequence[Exchange]) -> str:
    read_tokens = prompt_tokens_read(exchanges[-1])
    if read_tokens is None:
        return "judged by the codes alone"
    sent = exchanges[-1].prompt_tokens
    return f"it says it read {read_tokens} of {sent} prompt tokens" if sent else f"it says it read {read_tokens} tokens"


def _codes(kept: Mapping[str, bool]) -> dict[str, bool]:
    return {f"code_{place.lower()}": back for place, back in kept.items()}


def _cut(probe: Probe, exchanges: Sequence[Exchange], known: Knowledge) -> Judgement | None:
    """A prompt that was not read whole, and which part is missing."""
    missing = max(shortfall_tokens(exchange) for exchange in exchanges)
    kept = recalled(exchanges)
    reliable = {place for place, back in control(probe).items() if back}
    numbers = {**evidence(exchanges[-1]), **_codes(kept), "reliable_codes": " ".join(sorted(reliable)) or "none"}
    if missing:
        outcome, basis = _end_of(kept, reliable, known)
        why = f"{missing} prompt tokens were not read, in silence; {basis}"
        return Judgement(outcome=outcome, why=why, layer=Layer.GATEWAY, evidence={**numbers, "missing_tokens": missing})
    window, sent = known.limits.context_tokens, exchanges[-1].prompt_tokens
    if window is None or sent is None or sent <= window:
        return None
    lost = {place for place, back in kept.items() if not back and place in reliable}
    if not lost or len(kept) < len(PLACES):
        return None
    outcome, basis = _end_of(kept, reliable, known)
    why = f"the prompt is past the window of {window}, was answered, and {basis}"
    return Judgement(outcome=outcome, why=why, layer=Layer.GATEWAY, evidence=numbers)


def _end_of(kept: Mapping[str, bool], reliable: set[str], known: Knowledge) -> tuple[Outcome, str]:
    """Which end is gone, and how that is known."""
    head, tail = kept.get("HEAD"), kept.get("TAIL")
    if head and tail:
        return Outcome.TRUNCATED_MIDDLE, "the codes of head and tail came back, so the middle is gone"
    if tail and "HEAD" in reliable:
        return Outcome.TRUNCATED_HEAD, "the code of the tail came back, that of the head did not"
    if head and "TAIL" in reliable:
        return Outcome.TRUNCATED_TAIL, "the code of the head came back, that of the tail did not"
    if kept and reliable & set(kept):
        return Outcome.TRUNCATED_TAIL, "no code came back: the question, at the very end, is gone"
    if known.flavour in KEEPS_HEAD:
        return (
            Outcome.TRUNCATED_TAIL,
            f"this model repeats no code, so the end is inferred from what {known.flavour} does",
        )
    return (
        Outcome.TRUNCATED_HEAD,
        "this model repeats no code, so that it is the head is inferred from what servers usually do",
    )
