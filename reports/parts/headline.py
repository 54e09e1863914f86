"""The verdict of a run in one word and one sentence, as a person would say it; pure.

Only `overflow` claims something about the window, and only `chaos` about faults. Every other command, also one that
is not known here, is told in words that hold whatever it did.
"""

from __future__ import annotations

from contextlab.model import Outcome, Run, Verdict
from contextlab.reports.chaos.words import EMULATED, fault_words, is_emulated, load_words
from contextlab.reports.parts import grouping, summary
from contextlab.reports.parts.wording import clean, listed, quote

_HELD = {
    Outcome.OK: "prompts are answered and read whole",
    Outcome.REJECTED: "too much is refused clearly",
    Outcome.CAPPED: "replies end at it and say so",
}


MAX_NAMED = 3
"""So many faults stand in the sentence, and how many more there are."""


def word(run: Run) -> str:
    """FAILED, HELD, UNKNOWN or INTERRUPTED; a sweep that came to an end has MEASURED."""
    if summary.exit_status(run)["code"] in summary.INTERRUPT_CODES:
        return "INTERRUPTED"
    if gated := _gated(run):
        return gated[0]
    held = "MEASURED" if _swept(run) else "HELD"
    return {Verdict.FAIL: "FAILED", Verdict.PASS: held, Verdict.UNKNOWN: "UNKNOWN"}[summary.verdict(run)]


def sentence(run: Run) -> str:
    """What happened, without the word."""
    if gated := _gated(run):
        return gated[1]
    what = summary.subject(run)
    failed = names(run, Verdict.FAIL)
    so_far = f"; failed so far: {failed}" if failed else ""
    if found := _swept(run):
        return _sweep(run, f"{what}: {found}", so_far)
    match word(run):
        case "INTERRUPTED":
            return f"{what} was stopped after {grouping.num_probes(run)}{so_far}"
        case "FAILED":
            return f"{_saying(run, 'breaks', 'failed')}: {failed or _reason(run)}"
        case "HELD" if summary.command(run) == "overflow":
            return f"{_saying(run, 'holds', 'held')}: {_held(run)}"
        case "HELD" if summary.command(run) == "chaos":
            return f"{_saying(run, 'holds', 'held')}: {_bounds(run) or names(run, Verdict.PASS)}"
        case "HELD":
            return f"{_saying(run, 'holds', 'held')}: {names(run, Verdict.PASS)}"
    if run.end is None:
        return f"{what}: {summary.KILLED}{so_far}"
    if not grouping.findings(run):
        return f"{what}: nothing was measured"
    where = f" {_where(run)}" if summary.command(run) == "overflow" else ""
    if (experiments := _under(run, Verdict.UNKNOWN)) and len(grouping.verdicts(run)) == 1:
        return f"whether {what} holds {experiments} could not be told: {_first_reason(run)}"
    if unknown := grouping.tally(run)[Verdict.UNKNOWN]:
        return f"{unknown} of {grouping.num_probes(run)} of {what}{where} could not be told"
    return f"{what}{where}: {_reason(run) or 'no verdict is on record'}"


def tells_exit(run: Run) -> bool:
    """Whether the word says already why the run ended with its exit code, and there is no other reason."""
    status = summary.exit_status(run)
    if _gated(run):
        return status["code"] not in summary.INTERRUPT_CODES
    return len(status["all"]) <= 1 and {"FAILED": 1, "HELD": 0, "MEASURED": 0}.get(word(run)) == status["code"]


def names(run: Run, wanted: Verdict) -> str:
    """The outcomes with that verdict, the worst first where they failed."""
    found = {finding.outcome for finding in grouping.findings(run) if finding.verdict is wanted}
    return listed([str(outcome) for outcome in sorted(found, reverse=wanted is Verdict.FAIL)])


def _saying(run: Run, at_the_window: str, anyhow: str) -> str:
    """The subject and what it does, as far as the command lets us say."""
    what = summary.subject(run)
    match summary.command(run):
        case "overflow":
            return f"{what} {at_the_window} {_where(run)}"
        case "chaos" if under := _under(run, Verdict.FAIL if anyhow == "failed" else Verdict.PASS):
            return f"{what} {at_the_window} {under}"
        case "replay":
            places = [f"{scenario}/{probe}" for scenario, probe in grouping.verdicts(run)]
            probe = clean(places[0]) if len(places) == 1 else grouping.num_probes(run)
            return f"{probe} of {what}, repeated"
    return f"{what} {anyhow}"


def _gated(run: Run) -> tuple[str, str] | None:
    """The word and the sentence of a gate; None of every other run."""
    if summary.command(run) != "gate":
        return None
    from contextlab.reports.gate import facts

    one, _ = facts.shown(run)
    return (facts.word(one), facts.sentence(one)) if one is not None else None


def _swept(run: Run) -> str:
    """What a sweep found; "" of every other run."""
    if summary.command(run) != "pareto":
        return ""
    from contextlab.reports.pareto import text

    return text.words(run)


def _sweep(run: Run, found: str, so_far: str) -> str:
    match word(run):
        case "INTERRUPTED":
            return f"{found} (stopped before its end){so_far}"
        case "FAILED":
            failed = names(run, Verdict.FAIL)
            return f"{found}; failed: {failed}" if failed else found
    return f"{found} ({summary.KILLED}){so_far}" if run.end is None else found


def _under(run: Run, wanted: Verdict) -> str:
    """`under loss 15%, loss 20%`: the faults, or loads, of the experiments with that verdict; "" if there are none.

    One whose disturbance is an extra load is named: its usual load does not tell it from another.
    """
    verdicts, said = grouping.verdicts(run), []
    for place, (experiment, path) in summary.experiments(run).items():
        if verdicts.get(place) is wanted:
            load = load_words(experiment.load) if experiment.extra is None else clean("/".join(place))
            words = [fault_words(fault, 1) for fault in experiment.faults] or [load]
            said.append(" with ".join(words) + (f" ({EMULATED})" if is_emulated(path) else ""))
    return f"under {listed(list(dict.fromkeys(said)), MAX_NAMED)}" if said else ""


def _bounds(run: Run) -> str:
    """The bounds that held, where every experiment had the same."""
    found = {tuple(bound.text for bound in made.hypothesis) for made, _ in summary.experiments(run).values()}
    return listed(found.pop()) if len(found) == 1 else ""


def _first_reason(run: Run) -> str:
    return next(quote(finding.why) for finding in grouping.findings(run) if finding.verdict is Verdict.UNKNOWN)


def _where(run: Run) -> str:
    window = summary.window(run)
    return f"at its window of {window} tokens" if window else "(window not known)"


def _held(run: Run) -> str:
    """`…, too much is refused clearly (REJECTED)`; what passed only by permission is named as that."""
    found = sorted({finding.outcome for finding in grouping.findings(run) if finding.verdict is Verdict.PASS})
    said = [f"{_HELD[outcome]} ({outcome})" for outcome in found if outcome in _HELD]
    return ", ".join([*said, *(f"{outcome} is allowed" for outcome in found if outcome not in _HELD)])


def _reason(run: Run) -> str:
    return clean(str(summary.exit_status(run)["reason"]))
