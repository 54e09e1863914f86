"""Runs for the page: each kind that the other samples make, one with exchanges, one that is very large."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from contextlab.experiment import Arrivals, Load
from contextlab.lab.journal import plain
from contextlab.model import Exchange, Message, Outcome, Request, Run, Usage, Verdict
from tests.reports import chaos_sample, gate_sample, pareto_sample, sample

SCRIPT = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>"
"""What a server may answer with; a page must show it and do nothing."""
RUNS: dict[str, Callable[[], Run]] = {
    **{
        f"overflow-{make.__name__}": make
        for make in (
            *(sample.failing, sample.held, sample.undecided, sample.killed, sample.interrupted),
            *(sample.empty, sample.bare, sample.hostile),
        )
    },
    **{
        f"chaos-{make.__name__}": make
        for make in (
            *(chaos_sample.loss, chaos_sample.null, chaos_sample.damaged, chaos_sample.undecided, chaos_sample.gate),
            *(chaos_sample.no_control, chaos_sample.killed, chaos_sample.empty, chaos_sample.beside),
            *(chaos_sample.tiered, chaos_sample.bare, chaos_sample.several, chaos_sample.hostile),
        )
    },
    **{
        f"gate-{make.__name__}": make
        for make in (
            *(gate_sample.regressed, gate_sample.ok, gate_sample.improved, gate_sample.inconclusive),
            *(gate_sample.contaminated, gate_sample.died, gate_sample.stored, gate_sample.not_comparable),
            *(gate_sample.killed, gate_sample.calibrated, gate_sample.hostile, gate_sample.empty),
            *(gate_sample.damaged, gate_sample.bare),
        )
    },
    **{
        f"pareto-{make.__name__}": make
        for make in (
            *(pareto_sample.whole, pareto_sample.decided, pareto_sample.infeasible, pareto_sample.once),
            *(pareto_sample.three, pareto_sample.killed, pareto_sample.interrupted, pareto_sample.invalid),
            *(pareto_sample.empty, pareto_sample.bare, pareto_sample.hostile),
        )
    },
}


def answered(reply: str = SCRIPT) -> Run:
    """A run whose failing probe has an exchange: a long prompt, and a reply that is `reply`."""
    made = sample.failing()
    place = ("kv-exhaustion", "together-2x250")
    words = "word " * 400
    request = Request(name="storm-1", messages=(Message(role="user", parts=(words, "END")),), reply_tokens=16)
    one = Exchange(
        request=request,
        prompt_tokens=250,
        sent_s=1.0,
        opened_s=1.1,
        token_s=(1.2, 1.25),
        ended_s=1.3,
        status=200,
        text=reply,
        finish_reason="stop",
        usage=Usage(prompt_tokens=250, completion_tokens=2),
        done=True,
    )
    return replace(made, exchanges={place: (one,)})


def large(num: int = 100_000, seconds: float = 50.0) -> Run:
    """A chaos run of so many requests in two arms, made as records at once: objects of our own would take a minute."""
    fault = replace(chaos_sample.LOSS, start_s=10.0, length_s=20.0)
    load = Load(arrivals=Arrivals(rate_per_s=num / 2 / seconds), duration_s=seconds, mix=chaos_sample.MIX)
    what = chaos_sample.experiment("loss-15%", fault, load=load)
    here = {"scenario": "packet-loss", "probe": what.name}
    told: list[Any] = [
        {"kind": "experiment", "at_s": 1.0, **here, "experiment": plain(what), "path": chaos_sample.LINK}
    ]
    rng = Random(7)
    for arm in ("control", "fault"):
        told.append({"kind": "arm", "at_s": 1.0, **here, "arm": arm, "zero_at_s": 1.0})
        for index in range(num // 2):
            due_s = round(seconds * index * 2 / num, 6)
            late_s = rng.uniform(0.2, 1.4) if arm == "fault" and 10 <= due_s < 30 and rng.random() < 0.3 else 0.0
            first_s = round(due_s + rng.uniform(0.035, 0.05) + late_s, 6)
            content_s = [round(first_s + 0.02 * place, 6) for place in range(6)]
            sent: dict[str, Any] = {
                "index": index,
                "mixed": index % 2,
                "due_s": due_s,
                "ending": "whole",
                "sent_s": round(due_s + 0.0004, 6),
                "content_s": content_s,
                "pieces": [" a"] * 6,
                "ended_s": round(content_s[-1] + 0.002, 6),
                "status": 200,
                "finish_reason": "length",
                "num_frames": 8,
                "num_done": 1,
            }
            told.append({"kind": "sample", "at_s": 1.0 + due_s, **here, "arm": arm, "sample": sent})
        told.append({"kind": "arm_end", "at_s": 60.0, **here, "arm": arm, "length_s": seconds + 2, "stopped": ""})
    told.append({"kind": "trial", "at_s": 61.0, **here, "references": [[[" a"] * 6]] * 2, "measured": {}})
    bad = chaos_sample.finding("packet-loss", what.name, Outcome.BOUND_BROKEN, Verdict.FAIL, "p90 ttft < 800ms")
    end = {"kind": "end", "at_s": 62.0, "verdict": "FAIL", "exit": {"code": 1, "reason": "1 finding is not allowed"}}
    return Run(
        path=chaos_sample.PATH,
        header=chaos_sample.HEADER,
        knowledge=sample.KNOWLEDGE,
        findings=(bad,),
        end=end,
        records=(chaos_sample.HEADER, *told, end),
    )
