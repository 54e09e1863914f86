"""Gates made by hand, as records that the lab would write: one run for each verdict that a report shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from contextlab.analysis.gate.budgets import parse_budget
from contextlab.analysis.gate.calibration import calibrate
from contextlab.analysis.gate.nouns import Block, Fingerprint, Host, Likeness, Measure, Plan, Waiver
from contextlab.analysis.gate.settings import Settings
from contextlab.analysis.gate.stored import GateBegins, concluded, findings, plan_of, side_by_side
from contextlab.lab.journal import plain
from contextlab.model import Record, Run, Verdict
from tests.reports import sample

PATH = "runs/20261129-160203-gate-smollm2"
BASE, CANDIDATE = "smollm2", "smollm2 --set threads=2"
HEADER: dict[str, Any] = {
    **sample.HEADER,
    "command": "gate",
    "argv": ["gate", "run", "--base", BASE, "--candidate", CANDIDATE],
    "policy": {},
}
NOISE = (0.99, 1.004, 1.0, 1.012, 0.994, 1.013, 0.997, 1.007, 0.99, 1.002)
EXACT = {
    "window_tokens": 512,
    "fits.outcome": "OK",
    "fits.status": 200,
    "over.outcome": "REJECTED",
    "over.status": 400,
    "load.reply_tokens": 24,
}
PRINT = Fingerprint(machine={"cpu": "one"}, engine={"name": "llama-server"}, scenario={"requests": "abc"})
BEGINS = GateBegins(base=BASE, candidate=CANDIDATE)


def measure(place: int, times: float = 1.0, **facts: Any) -> Measure:
    """A launch that took so many times as long as usual."""
    slow = times * NOISE[place % len(NOISE)]
    values = {
        "ttft_p50_s": 0.123 * slow,
        "ttft_p90_s": 0.151 * slow,
        "ttft_p99_s": 0.2 * slow,
        "itl_p50_s": 0.0182,
        "e2e_p50_s": 0.6 * slow,
        "e2e_p90_s": 0.71 * slow,
        "e2e_p99_s": 0.9 * slow,
        "tokens_per_s": 41.0 / slow,
    }
    host = Host(others_cores=0.02 + place * 0.001, cpu_pressure=0.01, steal=0.0, throttled=0)
    return Measure(
        **{
            "metrics": values,
            "num_requests": 24,
            "exact": EXACT,
            "control_s": 0.0251 + place * 1e-5,
            "host": host,
            **facts,
        }
    )


def blocks(times: float = 1.0, *, start: int = 1, confirming: bool = False, **candidate: Any) -> list[Block]:
    """Ten blocks of which the candidate takes so many times as long."""
    return [
        Block(
            number=start + place,
            first="base" if place % 2 else "candidate",
            base=measure(place),
            candidate=measure(place + 3, times, **candidate),
            confirming=confirming,
        )
        for place in range(len(NOISE))
    ]


def run(begins: GateBegins, every: Sequence[Block], *more: Record, whole: bool = True, likeness: Any = None) -> Run:
    """A record of these blocks, with the result and the end if it is `whole`."""
    found: list[dict[str, Any]] = [
        {"kind": "gate", "at_s": 0.0, "gate": plain(begins)},
        {"kind": "fingerprint", "at_s": 1.0, "arm": "base", "fingerprint": plain(PRINT)},
        {"kind": "fingerprint", "at_s": 1.0, "arm": "candidate", "fingerprint": plain(PRINT)},
        *({"kind": "block", "at_s": 2.0, "block": plain(block), "cost_s": 9.0} for block in every),
        *map(dict, more),
    ]
    end = None
    judged: list[Any] = []
    if whole:
        result = concluded(begins, every, likeness)
        judged = findings(result)
        found.append({"kind": "gate_result", "at_s": 200.0, "result": plain(result)})
        verdict = {0: Verdict.PASS, 1: Verdict.FAIL}.get(result.exit_code, Verdict.UNKNOWN)
        reasons = [list(one) for one in result.reasons]
        end = {"code": result.exit_code, "reason": result.reasons[0][1], "all": reasons}
        end = {"kind": "end", "at_s": 200.0, "verdict": verdict.name, "exit": end}
        found.append(end)
    records = ({**HEADER, "kind": "header", "at_s": 0.0}, *found)
    return Run(path=PATH, header=HEADER, findings=tuple(judged), end=end, records=records)


def regressed() -> Run:
    """Slower, confirmed, and another answer over the window; one block was disturbed."""
    exact = {**EXACT, "over.outcome": "TRUNCATED_HEAD", "over.status": 200}
    every = blocks(1.15, exact=exact)
    noisy = every[2]
    assert noisy.base is not None
    every[2] = replace(noisy, base=replace(noisy.base, host=Host(others_cores=1.2)))
    every += blocks(1.15, start=11, confirming=True, exact=exact)
    return run(BEGINS, [*every, replace(blocks()[0], number=21, candidate=measure(3, 1.15, exact=exact))])


def ok() -> Run:
    """Shown to be no worse; a budget is kept, another was not measured, something is waived."""
    settings = Settings(
        budgets=(parse_budget("ttft_p50 < 200ms"),),
        waivers=(Waiver(name="itl_p50_s", reason="the new sampler, see #12", expires="2027-01-31"),),
    )
    return run(replace(BEGINS, settings=settings), blocks())


def improved() -> Run:
    """Faster."""
    return run(BEGINS, blocks(0.8))


def inconclusive() -> Run:
    """Near the margin, of a run of one look."""
    settings = Settings(plan=Plan(blocks=10, max_blocks=10), budgets=(parse_budget("ttft_p50 < 129ms"),))
    return run(replace(BEGINS, settings=settings), blocks(1.05))


def contaminated() -> Run:
    """Four blocks of ten beside busy loops."""
    noisy = blocks(1.5, host=Host(others_cores=1.7, cpu_pressure=0.8))
    return run(BEGINS, [*noisy[:4], *blocks(1.5)[4:]])


def died() -> Run:
    """The candidate crashed in the third block."""
    every = blocks()[:3]
    every[2] = replace(every[2], candidate=Measure(died="it ended by SIGSEGV under the load"))
    return run(BEGINS, every)


def stored() -> Run:
    """Two records of two sessions."""
    settings = Settings(plan=Plan(blocks=10, max_blocks=10, paired=False, confirm=False))
    every = side_by_side([measure(place) for place in range(10)], [measure(place + 3) for place in range(10)])
    return run(replace(BEGINS, settings=settings, stored=True), every)


def not_comparable() -> Run:
    """Two records of two machines."""
    settings = Settings(plan=Plan(blocks=10, max_blocks=10, paired=False, confirm=False))
    every = side_by_side([measure(0)], [measure(1)])
    alike = Likeness(hard=("machine.cpu: one in the baseline, two now",))
    return run(replace(BEGINS, settings=settings, stored=True), every, likeness=alike)


def killed() -> Run:
    """Cut off after four blocks."""
    return run(BEGINS, blocks()[:4], whole=False)


def calibrated() -> Run:
    """A target against itself; one metric cannot be resolved."""
    begins = replace(BEGINS, candidate=BASE, calibrates=True)
    every = blocks()
    for place, block in enumerate(every):
        assert block.candidate is not None
        wild = {**block.candidate.metrics, "itl_p50_s": 0.0182 * (1 + 0.4 * (place % 3 - 1))}
        every[place] = replace(block, candidate=replace(block.candidate, metrics=wild))
    found = calibrate(every, begins.settings.gated, plan_of(begins.settings))
    record = {"kind": "calibration", "at_s": 200.0, "calibration": plain(found)}
    made = run(begins, every, record, whole=False)
    end = {"kind": "end", "at_s": 200.0, "verdict": "PASS", "exit": {"code": 0, "reason": "stored", "all": []}}
    return replace(made, end=end, records=(*made.records, end))


def hostile() -> Run:
    """A target whose words move cursors."""
    exact = {**EXACT, "fits.outcome": "\x1b[2J\x1b]0;x\x07[bold]OK[/]\n| <b>"}
    return run(replace(BEGINS, candidate="fake:\x1b[31mred\u202e"), blocks(exact=exact))


def empty() -> Run:
    """It had begun, and nothing more."""
    return run(BEGINS, (), whole=False)


def damaged() -> Run:
    """A block that is none."""
    return run(BEGINS, (), {"kind": "block", "at_s": 1.0, "block": {"number": "one"}}, whole=False)


def bare() -> Run:
    """A header and no gate."""
    return Run(path=PATH, header=HEADER)
