"""What can be said of any probe, whatever its scenario: deaths, hangs, neighbours, leaks, refusals, ends; pure.

    common(probe, seen)  deaths ─▶ hangs ─▶ leaks ─▶ neighbours ─▶ aftermath      the lab asks this first
    read(exchange, …)    failure ─▶ missing end ─▶ empty ─▶ past the window ─▶ OK  scenarios build on this

A judgement rests on evidence: numbers of the exchange, the server's own words, the operating system's.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from contextlab.analysis.exchanges import (
    answered,
    completion_tokens,
    duration_s,
    evidence,
    prompt_tokens_read,
    still_flowing,
    timed_out,
    total_tokens,
)
from contextlab.analysis.quantities import count
from contextlab.analysis.signatures import Recognised, recognise, recognise_lines
from contextlab.model import (
    Evidence,
    Exchange,
    Judgement,
    Knowledge,
    Layer,
    Observation,
    Outcome,
    Probe,
    ProcessEnd,
)

CLEAR_STATUSES = frozenset({400, 413, 422})
"""HTTP statuses that say "your request cannot be served as it is"."""
EXACT_TOLERANCE_TOKENS = 3
"""Difference between our count and the target's that an exact count allows (a BOS here, a merged space there)."""
SLOPE_TOLERANCE_RATIO = 0.03
"""The same where the filler was counted by its slope."""
SLOPE_TOLERANCE_TOKENS = 6

ENDLESS_WINDOWS = 2
"""A reply of more than this many windows, with no end in sight, is one that never stops."""

FINAL = frozenset({Outcome.CRASHED, Outcome.HUNG, Outcome.LEAKED})
"""Outcomes after which what else the probe shows is their consequence, not a finding of its own."""


# ── the common judgements ────────────────────────────────────────────────────────────────────────


def common(probe: Probe, seen: Observation) -> list[Judgement]:
    """Everything that is judged the same way in every scenario; empty where nothing is wrong."""
    found = list(_deaths(seen))
    if not found:
        found += _hangs(seen)
    if not found:
        found += _leaks(seen)
    if not any(judgement.outcome in FINAL for judgement in found):
        found += _neighbours(seen)
        found += _aftermath(seen)
    return found


def _deaths(seen: Observation) -> Iterator[Judgement]:
    if seen.server is not None and seen.server.ended:
        yield _death("the server", seen.server, seen)
    elif seen.client.ended and not _orderly(seen.client):
        yield _death("the process of the probe", seen.client, seen)
    elif seen.server is None and seen.aftermath is not None and seen.aftermath.failure is not None:
        failure = seen.aftermath.failure
        if failure.where == "connect":
            words = f"nothing answers at the address any more: {failure.message}"
            yield Judgement(outcome=Outcome.CRASHED, why=words, evidence=evidence(seen.aftermath))
    if poisoned := _poisoned(seen):
        said = [one for one in recognise_lines(seen.client.stderr_tail) if one.kind == "position"]
        why = f"a check on the device failed, and with it all that this process could still do: {poisoned[:200]}"
        pairs = {"error": poisoned[:400], "last_words": said[-1].line[:300] if said else None}
        numbers = {key: value for key, value in pairs.items() if value is not None}
        layer = said[-1].layer if said else Layer.ENGINE
        yield Judgement(outcome=Outcome.CRASHED, why=why, layer=layer, evidence=numbers)


def _poisoned(seen: Observation) -> str:
    """The words of a failed check on a device, after which nothing more runs in the process; "" where none failed."""
    failures = (exchange.failure for _, exchange in _everybody(seen))
    words = [failure.message for failure in failures if failure is not None and failure.where == "exception"]
    words.append(str(seen.measured.get("error", "")))
    return next((text for text in words if (known := recognise(text)) is not None and known.kind == "dead"), "")


def _orderly(end: ProcessEnd) -> bool:
    return end.exit_code == 0 and not end.timed_out


def signal_behind(exit_code: int | None) -> str | None:
    """The signal that a shell reports as 128 + its number; None for any other exit code."""
    try:
        return signal.Signals((exit_code or 0) - 128).name
    except ValueError:
        return None


def _death(what: str, end: ProcessEnd, seen: Observation) -> Judgement:
    """A death by signal, exit code or memory limit; the layer is what its last words speak of."""
    if end.timed_out:
        return Judgement(
            outcome=Outcome.HUNG,
            why=f"{what} did not end within its time and was killed",
            evidence={"last_event": end.last_event, "peak_memory_bytes": end.peak_memory_bytes},
        )
    signatures = recognise_lines((*end.stderr_tail, *seen.log_lines), flavour=seen.knowledge.flavour)
    words = next((one for one in reversed(signatures) if one.kind in ("dead", "out-of-memory", "position")), None)
    name = end.signal or signal_behind(end.exit_code)
    how = f"by {end.signal}" if end.signal else f"with exit code {end.exit_code}"
    if name and not end.signal:
        how += f" (128 + {name}: a shell stood between)"
    why = f"{what} died {how}"
    if end.out_of_memory:
        why += ": its memory limit was reached"
    elif words is not None:
        why += f": {words.line.strip()[:200]}"
    last_words = (
        words.line.strip()[:300] if words else next((line for line in reversed(end.stderr_tail) if line.strip()), None)
    )
    layer = words.layer if words else (Layer.ATTENTION if end.out_of_memory else Layer.ENGINE)
    pairs = {
        "signal": name,
        "exit_code": end.exit_code,
        "out_of_memory": end.out_of_memory,
        "peak_memory_bytes": end.peak_memory_bytes,
        "last_words": last_words,
        "last_event": end.last_event or seen.client.last_event or None,
    }
    return Judgement(
        outcome=Outcome.CRASHED,
        why=why,
        layer=layer,
        evidence={key: value for key, value in pairs.items() if value is not None},
    )


def _hangs(seen: Observation) -> Iterator[Judgement]:
    green = [look.healthy for look in seen.health if look.healthy is not None]
    health = f"; meanwhile its health was green in {sum(green)} of {len(green)} looks" if green else ""
    for what, exchange in _everybody(seen):
        if timed_out(exchange) and exchange.failure is not None and not still_flowing(exchange):
            pairs = {
                **evidence(exchange),
                "health_green": sum(green) if green else None,
                "health_looks": len(green) or None,
            }
            clean = {key: value for key, value in pairs.items() if value is not None}
            yield Judgement(outcome=Outcome.HUNG, why=f"{what}: {exchange.failure.message}{health}", evidence=clean)
            return


def _everybody(seen: Observation) -> Iterator[tuple[str, Exchange]]:
    for exchange in seen.exchanges:
        yield exchange.request.name, exchange
    if seen.neighbour is not None:
        yield "another client's request", seen.neighbour
    if seen.aftermath is not None:
        yield "a normal request afterwards", seen.aftermath


def _leaks(seen: Observation) -> Iterator[Judgement]:
    everybody = list(_everybody(seen))
    for what, exchange in everybody:
        own = "".join(message.text for message in exchange.request.messages)
        for _, other in everybody:
            secret = other.request.secret
            if secret and secret not in own and secret in exchange.text:
                yield Judgement(
                    outcome=Outcome.LEAKED,
                    why=f"{what} came back with another client's words: {secret!r}",
                    evidence={**evidence(exchange), "leaked": secret},
                )
                return


def _neighbours(seen: Observation) -> Iterator[Judgement]:
    beside, known = seen.neighbour, seen.knowledge
    if beside is None or timed_out(beside):
        return
    if not answered(beside):
        failure = beside.failure
        recognised = recognise(failure.message, flavour=known.flavour) if failure else None
        words = failure.message[:200] if failure else "its stream stopped without an end"
        where = f"after {count(len(beside.token_s), 'token')}" if beside.token_s else "before its first token"
        yield Judgement(
            outcome=Outcome.NEIGHBOUR_ABORTED,
            why=f"another client's small stream was ended {where}: {words}",
            layer=recognised.layer if recognised else Layer.ENGINE,
            evidence=evidence(beside),
        )
    elif known.neighbour_stable and beside.text != known.neighbour_text:
        again = [exchange for exchange in seen.neighbour_again if answered(exchange)]
        noisy = len(again) < len(seen.neighbour_again) or any(one.text != known.neighbour_text for one in again)
        same = _common_prefix(beside.text, known.neighbour_text)
        numbers: Evidence = {"expected": known.neighbour_text, "got": beside.text, "same_characters": same}
        if noisy or not again:
            why = "another client's answer changed, but it does not repeat undisturbed either: not proven"
            yield Judgement(outcome=Outcome.UNKNOWN, why=why, evidence=numbers)
        else:
            why = (
                f"another client's greedy answer changed from character {same} on; repeated undisturbed it is as before"
            )
            yield Judgement(outcome=Outcome.NEIGHBOUR_CORRUPTED, why=why, layer=Layer.KV_CACHE, evidence=numbers)


def _common_prefix(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))


def _aftermath(seen: Observation) -> Iterator[Judgement]:
    after = seen.aftermath
    if after is not None and after.failure is not None and not timed_out(after):
        why = f"a normal request afterwards failed: {after.failure.message[:200]}"
        yield Judgement(outcome=Outcome.DEGRADED, why=why, evidence=evidence(after))


def aftermath_evidence(seen: Observation) -> dict[str, float]:
    """How long the normal request afterwards took, in seconds; empty where there was none."""
    took_s = duration_s(seen.aftermath) if seen.aftermath is not None and answered(seen.aftermath) else None
    return {} if took_s is None else {"aftermath_s": round(took_s, 3)}


# ── one exchange ─────────────────────────────────────────────────────────────────────────────────


def read(exchange: Exchange, known: Knowledge, *, accepted_tokens: int = 0, log_lines: Sequence[str] = ()) -> Judgement:
    """What one exchange shows by itself; which part of a prompt was read is for `analysis.ends`.

    `accepted_tokens`: the largest prompt that this target has accepted and read before, 0 if none is known.
    """
    if still_flowing(exchange):
        return _flowing(exchange, known, log_lines)
    if exchange.failure is not None:
        return _failed(exchange, known, accepted_tokens)
    numbers = evidence(exchange)
    if exchange.hung_up:
        return _ran_past(exchange, known, numbers)
    if not exchange.done or exchange.finish_reason is None:
        missing = "[DONE]" if exchange.finish_reason is not None else "a finish_reason"
        why = f"the reply stopped after {count(len(exchange.token_s), 'token')} without {missing}"
        return Judgement(outcome=Outcome.CUT, why=why, layer=Layer.GATEWAY, evidence=numbers)
    if not exchange.text and not (exchange.usage and exchange.usage.completion_tokens):
        why = f"success (finish_reason {exchange.finish_reason}) with nothing in it"
        return Judgement(outcome=Outcome.EMPTY, why=why, evidence=numbers)
    shifted = shift(exchange, known, accepted_tokens=accepted_tokens, log_lines=log_lines)
    if shifted is not None:
        return shifted
    if past := tokens_past_positions(exchange, known):
        beyond = f"{count(past, 'token')} past the model's positions"
        why = f"answered without an error, {beyond}: nothing says what that is worth"
        return Judgement(
            outcome=Outcome.UNKNOWN, why=why, layer=Layer.POSITIONS, evidence={**numbers, "tokens_past": past}
        )
    asked, got = exchange.request.reply_tokens, completion_tokens(exchange)
    if exchange.finish_reason == "length" and (asked is None or got < asked):
        why = f"the reply ended at the window after {count(got, 'token')}, finish_reason length"
        return Judgement(outcome=Outcome.CAPPED, why=why, evidence=numbers)
    why = f"answered: {count(got, 'token')}, finish_reason {exchange.finish_reason}"
    return Judgement(outcome=Outcome.OK, why=why, evidence=numbers)


def _flowing(exchange: Exchange, known: Knowledge, log_lines: Sequence[str]) -> Judgement:
    """A reply that was still coming when our patience ended: endless, or merely slow."""
    got, window, asked = completion_tokens(exchange), known.limits.context_tokens, exchange.request.reply_tokens
    numbers = {**evidence(exchange), "window_tokens": window}
    if (asked is not None and got > asked) or (window is not None and got > ENDLESS_WINDOWS * window):
        return _ran_past(exchange, known, numbers)
    slid = shift(exchange, known, log_lines=log_lines)
    if slid is not None:
        return slid
    why = f"still replying after {count(got, 'token')} when the time was up: give it more with --timeout"
    return Judgement(outcome=Outcome.UNKNOWN, why=why, evidence=numbers)


def _ran_past(exchange: Exchange, known: Knowledge, numbers: Evidence) -> Judgement:
    asked, got = exchange.request.reply_tokens, completion_tokens(exchange)
    limit = (
        f"max_tokens {asked}" if asked is not None else f"a window of {known.limits.context_tokens} and no max_tokens"
    )
    why = f"the reply still ran after {count(got, 'token')}, with {limit}; the client left"
    return Judgement(
        outcome=Outcome.RUNAWAY, why=why, evidence={**numbers, "window_tokens": known.limits.context_tokens}
    )


def shift(
    exchange: Exchange, known: Knowledge, *, accepted_tokens: int = 0, log_lines: Sequence[str] = ()
) -> Judgement | None:
    """The judgement SHIFTED where prompt and reply together outgrew the window; None where they did not.

    Not where a prompt as large as the window was read, now or before: then the target has more room than it says.
    """
    window, total = known.limits.context_tokens, total_tokens(exchange)
    if window is None or total is None or accepted_tokens > window or total - completion_tokens(exchange) >= window:
        return None
    if exchange.usage is not None and exchange.usage.truncated is False:  # its own word that nothing was dropped
        return None
    if total <= window + (0 if exchange.usage and exchange.exact else SLOPE_TOLERANCE_TOKENS):
        return None
    shifts = [one for one in recognise_lines(log_lines, flavour=known.flavour) if one.kind == "shift"]
    numbers = {**evidence(exchange), "window_tokens": window, "total_tokens": total}
    if shifts:
        keep, discard = shifts[0].numbers.get("n_keep", 0), shifts[0].numbers.get("n_discard", 0)
        lost = f"{len(shifts)} times, each dropped the {discard} oldest tokens after the first {keep}"
        numbers |= {
            "num_shifts": len(shifts),
            "n_keep": keep,
            "n_discard": discard,
            "log": shifts[0].line.strip()[:200],
        }
    else:
        lost = f"at least the {total - window} oldest tokens are gone"
    why = f"prompt and reply make {total} tokens in a window of {window}: it slid; lost: {lost}"
    return Judgement(outcome=Outcome.SHIFTED, why=why, layer=Layer.KV_CACHE, evidence=numbers)


def tokens_past_positions(exchange: Exchange, known: Knowledge) -> int:
    """How many tokens were read past the positions that the model declares; 0 for none, or where it cannot be told.

    Only of a target that says that it drops nothing. The last token of a reply is not read any more.
    """
    total = total_tokens(exchange)
    ranges = [limit.tokens for limit in known.limits.declared if limit.layer is Layer.POSITIONS and limit.tokens]
    if known.limits.context_tokens is None or total is None or not ranges:
        return 0
    if exchange.usage is None or exchange.usage.truncated is not False:
        return 0
    return max(0, total - min(1, completion_tokens(exchange)) - max(ranges))


def raised(error_type: str, message: str, known: Knowledge, numbers: Evidence) -> Judgement:
    """What an exception of a library shows, by its words: a refusal that names the length, or a failure of its own."""
    recognised = recognise(f"{error_type}: {message}", flavour=known.flavour)
    kind = recognised.kind if recognised else ""
    layer = recognised.layer if recognised else Layer.ENGINE
    about = {**numbers, **(recognised.numbers if recognised else {}), **({"kind": kind} if kind else {})}
    words = f"{error_type}: {message[:200]}"
    if kind == "dead":
        return Judgement(outcome=Outcome.CRASHED, why=f"the process can do nothing more: {words}", evidence=about)
    if kind == "not-overflow":
        why = f"refused for another reason than the window: {words}"
        return Judgement(outcome=Outcome.UNKNOWN, why=why, layer=layer, evidence=about)
    if kind in ("overflow", "pool"):
        return Judgement(outcome=Outcome.REJECTED, why=f"refused in words: {words}", layer=layer, evidence=about)
    means = f" ({recognised.means})" if recognised else ""
    why = f"no refusal, but an exception from inside the library: {words}{means}"
    return Judgement(outcome=Outcome.REJECTED_BADLY, why=why, layer=layer, evidence=about)


def _failed(exchange: Exchange, known: Knowledge, accepted_tokens: int) -> Judgement:
    failure = exchange.failure
    assert failure is not None  # noqa: S101 - the caller looked
    numbers = {**evidence(exchange), **{f"server_{key}": value for key, value in failure.fields.items()}}
    match failure.where:
        case "timeout":
            return Judgement(outcome=Outcome.HUNG, why=failure.message or "no answer in time", evidence=numbers)
        case "transport" | "connect":
            why = f"the connection broke after {count(len(exchange.token_s), 'token')}: {failure.message}"
            return Judgement(outcome=Outcome.CUT, why=why, layer=Layer.GATEWAY, evidence=numbers)
        case "protocol":
            why = f"the answer is not what the API promises: {failure.message}"
            return Judgement(outcome=Outcome.REJECTED_BADLY, why=why, layer=Layer.GATEWAY, evidence=numbers)
        case "exception":
            judged = raised(failure.error_type, failure.message, known, numbers)
            when = f"after {count(len(exchange.token_s), 'token')} of the reply: " if exchange.token_s else ""
            return replace(judged, why=f"{when}{judged.why}")
    recognised = recognise(
        f"{failure.error_type}: {failure.message}" if failure.error_type else failure.message, flavour=known.flavour
    )
    layer = recognised.layer if recognised else Layer.ENGINE
    if recognised is not None and recognised.kind == "not-overflow":
        why = f"refused for another reason than the window: {failure.message[:200]}"
        return Judgement(outcome=Outcome.UNKNOWN, why=why, layer=Layer.GATEWAY, evidence=numbers)
    if failure.where == "stream":
        when = f"after {count(len(exchange.token_s), 'token')}" if exchange.token_s else "instead of an answer"
        why = f"an error inside HTTP {exchange.status}, {when}: {failure.message[:200]}"
        return Judgement(outcome=Outcome.REJECTED_BADLY, why=why, layer=layer, evidence=numbers)
    status = failure.status or 0
    if status in (401, 403, 404, 405, 408, 429, 503):
        why = f"refused with HTTP {status} for another reason: {failure.message[:200]}"
        return Judgement(outcome=Outcome.UNKNOWN, why=why, layer=Layer.GATEWAY, evidence=numbers)
    if status not in CLEAR_STATUSES:
        why = f"refused with HTTP {status}, which says that the server failed: {failure.message[:200]}"
        return Judgement(outcome=Outcome.REJECTED_BADLY, why=why, layer=layer, evidence=numbers)
    if recognised is None or recognised.kind not in ("overflow", "pool"):
        why = f"refused with HTTP {status}, without saying that the window is too small: {failure.message[:200]}"
        return Judgement(outcome=Outcome.REJECTED_BADLY, why=why, layer=layer, evidence=numbers)
    wrong = _wrong_numbers(exchange, recognised, accepted_tokens)
    if wrong:
        return Judgement(
            outcome=Outcome.REJECTED_BADLY, why=wrong, layer=layer, evidence={**numbers, **recognised.numbers}
        )
    why = f"refused with HTTP {status}: {failure.message[:200]}"
    return Judgement(outcome=Outcome.REJECTED, why=why, layer=layer, evidence={**numbers, **recognised.numbers})


def _wrong_numbers(exchange: Exchange, recognised: Recognised, accepted_tokens: int) -> str:
    """What is wrong with the numbers that a refusal quotes, in words; "" where they hold."""
    limit, quoted = recognised.numbers.get("limit_tokens"), recognised.numbers.get("prompt_tokens")
    if limit is not None and limit < accepted_tokens:
        return f"the refusal quotes a limit of {limit} tokens, but a prompt of {accepted_tokens} was accepted and read"
    sent = exchange.prompt_tokens
    if quoted is None or sent is None or recognised.lower_bound:
        return ""
    if abs(quoted - sent) > tolerance_tokens(exchange):
        return f"the refusal counts {quoted} prompt tokens, but {sent} were sent"
    return ""


def tolerance_tokens(exchange: Exchange) -> int:
    """How far the target's count may be from ours before it means something."""
    if exchange.exact:
        return EXACT_TOLERANCE_TOKENS
    return SLOPE_TOLERANCE_TOKENS + int((exchange.prompt_tokens or 0) * SLOPE_TOLERANCE_RATIO)


def worst(judgements: Iterable[Judgement]) -> Judgement | None:
    """The judgement with the worst outcome."""
    return max(judgements, key=lambda judgement: judgement.outcome.rank, default=None)


def shortfall_tokens(exchange: Exchange) -> int:
    """How many prompt tokens the target says it did not read; 0 inside the tolerance, or where it does not say."""
    read_tokens, sent = prompt_tokens_read(exchange), exchange.prompt_tokens
    if read_tokens is None or sent is None:
        return 0
    missing = sent - read_tokens
    return missing if missing > tolerance_tokens(exchange) else 0
