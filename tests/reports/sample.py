"""Runs made by hand, one for each kind of ending that a report has to show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from contextlab.model import (
    Evidence,
    Finding,
    Knowledge,
    Layer,
    Limit,
    Limits,
    Outcome,
    Probe,
    Record,
    Run,
    Skip,
    Verdict,
)

PATH = "runs/2026-11-29T160203-overflow-smollm2"

KNOWLEDGE = Knowledge(
    flavour="llama-server",
    version="b7126-0c1e5709",
    model="SmolLM2-135M-Instruct.Q4_1.gguf",
    limits=Limits(
        context_tokens=512,
        pool_tokens=512,
        num_slots=4,
        declared=(
            Limit(layer=Layer.POSITIONS, name="n_ctx_train", tokens=8192, source="/props and the GGUF metadata"),
            Limit(layer=Layer.KV_CACHE, name="n_ctx (all slots)", tokens=512, source="server log"),
            Limit(layer=Layer.ENGINE, name="n_ctx (slot)", tokens=512, source="/props"),
            Limit(layer=Layer.ENGINE, name="n_batch", tokens=2048, source="server log"),
            Limit(layer=Layer.TOKENIZER, name="model_max_length", tokens=None, source="not declared"),
        ),
    ),
    powers=frozenset({"counts-tokens", "chat", "completions", "health", "process", "log"}),
)

HEADER: dict[str, Any] = {
    "kind": "header",
    "at_s": 0.0,
    "schema": "contextlab.run/1",
    "command": "overflow",
    "argv": ["overflow", "smollm2", "--set", "context=512", "--set", "kv_unified=true", "--seed", "7"],
    "started_at": "2026-11-29T16:02:03+00:00",
    "seed": 7,
    "versions": {"python": "3.11.7", "contextlab": "0.1.0", "xllamacpp": "2026.10.11549"},
    "machine": {"system": "Linux", "processor": "x86_64", "cores": 2, "memory_bytes": 25276514304, "load": 0.415},
    "policy": {"allow": ["RUNAWAY"]},
    "target": {
        "name": "smollm2",
        "scheme": "gguf",
        "address": "/models/SmolLM2-135M-Instruct.Q4_1.gguf",
        "settings": {"context": 512, "slots": 4, "kv_unified": True, "context_shift": True, "threads": None},
    },
}


def finding(scenario: str, probe: str, outcome: Outcome, verdict: Verdict, why: str = "", **more: Any) -> Finding:
    """A finding with the parts that a test does not care about filled in."""
    return Finding(
        scenario=scenario, probe=probe, outcome=outcome, verdict=verdict, **{"layer": Layer.ENGINE, "why": why, **more}
    )


def run(*findings: Finding, code: int | None = 0, reason: str = "", records: tuple[Record, ...] = ()) -> Run:
    """A finished run with these findings; `code` None for one that was killed."""
    verdict = max((each.verdict for each in findings), default=Verdict.UNKNOWN)
    end = {"kind": "end", "at_s": 61.5, "verdict": verdict.name, "exit": {"code": code, "reason": reason, "all": []}}
    return Run(
        path=PATH,
        header=HEADER,
        knowledge=KNOWLEDGE,
        probes={(each.scenario, each.probe): Probe(name=each.probe, requests=()) for each in findings},
        findings=findings,
        end=None if code is None else end,
        records=(HEADER, *records, *([] if code is None else [end])),
    )


def passes(scenario: str, outcome: Outcome, *probes: str) -> list[Finding]:
    """Findings that pass, one a probe, with the server's words where it refused."""
    whys: dict[Outcome, tuple[str, Evidence]] = {
        Outcome.OK: ("answered: 8 tokens, finish_reason length", {"status": 200}),
        Outcome.CAPPED: ("the reply ended at the window after 24 tokens, finish_reason length", {"status": 200}),
        Outcome.REJECTED: (
            "refused with HTTP 400: request (512 tokens) exceeds the available context size (512 tokens)",
            {"status": 400, "error_type": "exceed_context_size_error"},
        ),
    }
    why, evidence = whys[outcome]
    return [finding(scenario, probe, outcome, Verdict.PASS, why, evidence=evidence) for probe in probes]


def failing() -> Run:
    """A run that shows every part of a report."""
    unified = (
        "Start llama-server with --no-kv-unified (here: --set kv_unified=false), so that a slot can only fill its "
        "own share of the KV cache, or raise --ctx-size to slots × the longest conversation."
    )
    aborted: Evidence = {
        "status": 500,
        "error_type": "server_error",
        "server_says": "Context size has been exceeded.",
        "neighbour_tokens_before": 64,
        "neighbour_tokens_beside": 17,
        "log_line": "srv  send_error: task id = 41, error: Context size has been exceeded.",
    }
    shifted: Evidence = {
        "window_tokens": 512,
        "n_keep": 1,
        "n_discard": 255,
        "lost_ratio": 0.498046875,
        "finish_reason": "stop",
        "log_line": "slot update_slots: id 0 | task 12 | slot context shift, n_keep = 1, n_left = 510, n_discard = 255",
    }
    aborted_beside = "another client's small stream was ended after 3 tokens: Context size has been exceeded."
    largest = "the largest prompt that was read has 503 tokens"
    edge: Evidence = {"status": 200, "measured_tokens": 503}
    limit = finding("find-limit", "bisect-9", Outcome.OK, Verdict.PASS, largest, evidence=edge)
    found = [
        limit,
        *passes("find-limit", Outcome.OK, *(f"bisect-{size}" for size in range(1, 9))),
        *passes("prompt-too-long", Outcome.OK, "chat-511", "completions-511", "chat-511-stream"),
        *passes("prompt-too-long", Outcome.REJECTED, "chat-512", "completions-512", "chat-513", "chat-1024"),
        finding(
            "reply-past-window",
            "no-max-tokens",
            Outcome.SHIFTED,
            Verdict.FAIL,
            "the reply ran on past token 512; the first 255 of 510 tokens, the instructions among them, were dropped",
            layer=Layer.KV_CACHE,
            evidence=shifted,
            remedy="Start llama-server without --context-shift (here: --set context_shift=false): it then ends the "
            "reply at the window and says so with finish_reason length.",
        ),
        finding(
            "reply-past-window",
            "reply-1024",
            Outcome.NEIGHBOUR_ABORTED,
            Verdict.FAIL,
            aborted_beside,
            layer=Layer.KV_CACHE,
            evidence=aborted,
            remedy=unified,
        ),
        *passes("reply-past-window", Outcome.CAPPED, "reply-513", "reply-1024"),
        *passes("conversation-growth", Outcome.REJECTED, "turn-9"),
        *passes("conversation-growth", Outcome.OK, *(f"turn-{turn}" for turn in range(1, 9))),
        *(
            finding(
                "kv-exhaustion",
                probe,
                Outcome.NEIGHBOUR_ABORTED,
                Verdict.FAIL,
                f"a small stream beside {probe[9:10]} others ended with HTTP 500 after {tokens} of 64 tokens",
                layer=Layer.KV_CACHE,
                evidence=aborted,
                remedy=unified,
            )
            for probe, tokens in (("together-2x250", 17), ("together-3x170", 9), ("together-4x128", 22))
        ),
        finding(
            "kv-exhaustion",
            "one-over-the-pool",
            Outcome.UNKNOWN,
            Verdict.UNKNOWN,
            "the neighbour's answer differs from run to run, so nothing can be said about this one",
            evidence={"neighbour_stable": False, "ttft_s": 0.0418, "memory_bytes": None},
        ),
        *passes("kv-exhaustion", Outcome.OK, "together-2x100"),
        finding(
            "token-blowup",
            "emoji",
            Outcome.REJECTED_BADLY,
            Verdict.FAIL,
            "a prompt of 600 characters was refused with the status of a server's own error",
            layer=Layer.TOKENIZER,
            evidence={"status": 500, "num_characters": 600, "prompt_tokens": 1480, "tokens_per_character": 2.4667},
            remedy="Count tokens with /tokenize before sending; characters / 4 is 9.9 times too few here.",
        ),
        *passes("token-blowup", Outcome.REJECTED, "cjk", "base64", "combining-marks", "whitespace"),
        *passes("after-the-storm", Outcome.OK, "same-answer", "slots-free"),
    ]
    note = {"kind": "note", "at_s": 1.2, "text": "asked for context=500, the server rounded it up to 512"}
    skips = (
        Skip(scenario="after-the-storm", probe="memory-back", reason="the target does not say what memory it holds"),
        Skip(scenario="preemption", reason="needs gauges: llama-server was started without --metrics"),
    )
    made = run(*found, code=1, reason="5 findings are not allowed", records=(note,))
    return replace(made, skips=skips)


def held() -> Run:
    """Nothing to complain about."""
    found = [
        *passes("prompt-too-long", Outcome.OK, "chat-511", "completions-511"),
        *passes("prompt-too-long", Outcome.REJECTED, "chat-512", "chat-1024"),
        *passes("reply-past-window", Outcome.CAPPED, "reply-513"),
    ]
    return run(*found, code=0, reason="every outcome is allowed")


def undecided() -> Run:
    """Nothing failed, and one probe could not be told."""
    unknown = finding("find-limit", "bisect-1", Outcome.UNKNOWN, Verdict.UNKNOWN, "no evidence either way")
    return run(*held().findings, unknown, code=3, reason="an outcome could not be told")


def killed() -> Run:
    """Killed with SIGKILL while its second probe ran."""
    first = finding("prompt-too-long", "chat-511", Outcome.CUT, Verdict.FAIL, "the stream has no end", remedy="None.")
    records: tuple[Record, ...] = (
        {"kind": "scenario", "at_s": 2.0, "name": "prompt-too-long", "summary": "…", "num": 1},
        {"kind": "probe", "at_s": 2.1, "scenario": "prompt-too-long", "probe": "chat-511", "plan": {}},
        {"kind": "observed", "at_s": 3.1, "scenario": "prompt-too-long", "probe": "chat-511"},
        {"kind": "probe", "at_s": 3.2, "scenario": "prompt-too-long", "probe": "chat-512", "plan": {}},
    )
    made = run(first, code=None, records=records)
    return replace(made, probes={**made.probes, ("prompt-too-long", "chat-512"): Probe(name="chat-512", requests=())})


def interrupted() -> Run:
    """Stopped with Ctrl-C after its first scenario."""
    return run(*held().findings, code=130, reason="interrupted by the user")


def empty() -> Run:
    """Ended before anything could be measured."""
    end = {"kind": "end", "at_s": 0.4, "verdict": "UNKNOWN", "exit": {"code": 5, "reason": "no scenario can run here"}}
    skip = Skip(scenario="kv-exhaustion", reason="needs completions, which the target does not answer")
    return Run(path=PATH, header=HEADER, skips=(skip,), end=end, records=(HEADER, end))


def bare() -> Run:
    """A record cut off before its header said anything."""
    return Run(path=PATH, header={})


HOSTILE = (
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 [bold]markup[/bold] :smile: \r\n\t"  # what a terminal or a report may act on
    "\x00\x7f\x9b2J \u202eesrever\u2028 \ud800 🙂 表"  # what it may choke on
)
"""What a target may say: colour, a window title, markup, line ends, a C1 control, reversed text, half a character."""


def hostile(text: str = HOSTILE) -> Run:
    """A run in which everything that comes from outside is `text`."""
    bad = finding(text, text, Outcome.LEAKED, Verdict.FAIL, text, evidence={text: text, "reply": text}, remedy=text)
    knowledge = replace(
        KNOWLEDGE,
        flavour=text,
        model=text,
        version=text,
        limits=Limits(context_tokens=9, declared=(Limit(layer=Layer.ENGINE, name=text, tokens=9, source=text),)),
    )
    made = run(bad, code=1, reason=text, records=({"kind": "note", "at_s": 1.0, "text": text},))
    header = {**HEADER, "target": {"name": text, "settings": {text: text}}, "started_at": text}
    return replace(
        made, path=text, header=header, knowledge=knowledge, skips=(Skip(scenario=text, probe=text, reason=text),)
    )
