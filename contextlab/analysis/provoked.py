"""Tasks that break something on purpose: did it break as foretold, was it refused, or did nothing show? Pure.

A probe foretells its end in `about`: "signal" (the process must die by it) or "refusal" (a check must refuse, with
an error of this name). It allows exactly the outcome that is foretold, so that

    foretold and seen               ─▶ allowed: PASS
    foretold death, another or none ─▶ UNKNOWN: the demonstration failed, which says nothing about the target
    foretold refusal, let through   ─▶ OK, which is not allowed: FAIL, the check does not hold
"""

from __future__ import annotations

from contextlab.model import Evidence, Judgement, Layer, Observation, Outcome, Probe


def as_foretold(probe: Probe, seen: Observation, *, layer: Layer = Layer.KV_CACHE) -> Judgement | None:
    """What such a task shows; None where it died as foretold, of which the common judgements have told."""
    end, measured = seen.client, seen.measured
    signal, refusal = str(probe.about.get("signal", "")), str(probe.about.get("refusal", ""))
    if end.signal or end.exit_code:
        if end.signal == signal:
            return None
        how = f"by {end.signal}" if end.signal else f"with exit code {end.exit_code}"
        why = f"the process died {how}, where {signal or 'no death'} was to show"
        return Judgement(outcome=Outcome.UNKNOWN, why=why, layer=layer, evidence=measured)
    error = str(measured.get("error_type", ""))
    if error and error == refusal:
        why = f"refused by its check before anything happened: {measured.get('error', '')}"
        return Judgement(outcome=Outcome.REJECTED, why=why, layer=layer, evidence=measured)
    if error:
        return task_failed(measured, layer)
    if refusal:
        why = f"the check let it through, {refusal} was to refuse it"
        return Judgement(outcome=Outcome.OK, why=why, layer=layer, evidence=measured)
    why = f"it was done, and nothing showed; {signal or 'damage'} was to show"
    return Judgement(outcome=Outcome.UNKNOWN, why=why, layer=layer, evidence=measured)


def task_failed(measured: Evidence, layer: Layer) -> Judgement:
    """A task that ended in an error that nobody foretold."""
    why = f"the task could not be carried out: {measured.get('error_type')}: {measured.get('error')}"
    return Judgement(outcome=Outcome.UNKNOWN, why=why[:400], layer=layer, evidence=measured)
