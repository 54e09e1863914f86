"""The memory scenarios as a user runs them: real signals, real damage, a real kill, survived and named by the tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.memory_target import overflow

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]


def test_faults_are_survived_and_named(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    ran, found = overflow("memory-fault", tmp_path)
    assert (ran.code, ran.document["verdict"]) == (0, "PASS")
    outcomes = {name: [finding["outcome"] for finding in findings] for name, findings in found.items()}
    signals = {name: findings[0]["evidence"].get("signal") for name, findings in found.items()}
    assert outcomes == {
        "guard-page-read": ["CRASHED"],
        "guard-page-checked": ["REJECTED"],
        "arena-neighbour": ["NEIGHBOUR_CORRUPTED"],
        "arena-neighbour-checked": ["REJECTED"],
        "heap-overrun": ["CRASHED"],
        "guard-page-write": ["CRASHED"],
        "freed-storage": ["CRASHED"],
        "truncated-weights": ["CRASHED"],
    }
    assert {name: signal for name, signal in signals.items() if signal} == {
        "guard-page-read": "SIGSEGV",
        "heap-overrun": "SIGABRT",
        "guard-page-write": "SIGSEGV",
        "freed-storage": "SIGSEGV",
        "truncated-weights": "SIGBUS",
    }
    assert found["arena-neighbour"][0]["evidence"]["damaged_bytes"] == 64
    assert found["arena-neighbour-checked"][0]["evidence"]["damaged_bytes"] == 0
    assert "length=1025" in found["guard-page-checked"][0]["why"]
    assert "capacity=1024" in found["guard-page-checked"][0]["why"]


def test_stale_views_leak_crash_or_are_refused(tmp_path: Path) -> None:
    ran, found = overflow("stale-view", tmp_path)
    assert (ran.code, ran.document["verdict"]) == (0, "PASS")
    assert {name: findings[0]["outcome"] for name, findings in found.items()} == {
        "reused-unchecked": "LEAKED",
        "reused-generation": "REJECTED",
        "reused-released": "REJECTED",
        "unmapped-unchecked": "CRASHED",
        "unmapped-known": "REJECTED",
    }
    leak = found["reused-unchecked"][0]
    assert leak["evidence"]["leaked"] in leak["why"]
    assert found["unmapped-unchecked"][0]["evidence"]["signal"] == "SIGSEGV"


def test_attention_memory_foretells_the_kill(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    ran, found = overflow("attention-memory", tmp_path)
    assert ran.document["verdict"] == "PASS", ran.out
    eager, sdpa = (found[f"curve-{name}"][0]["evidence"] for name in ("eager", "sdpa"))
    assert 1.8 < eager["exponent"] < 2.1
    assert 0.85 < sdpa["exponent"] < 1.15
    for curve in (eager, sdpa):
        assert curve["exponent_low"] <= curve["exponent"] <= curve["exponent_high"]
    *_, (control, search) = found.values()
    assert control["probe"].startswith("limit-sdpa-")
    assert search["evidence"]["off_ratio"] <= 0.25
    assert search["evidence"]["survived_tokens"] < search["evidence"]["killed_tokens"]
    killed = found[f"limit-eager-{search['evidence']['killed_tokens']}"][0]
    if killed["outcome"] == "CRASHED":  # by a cgroup; a limit on the address space lets the allocator refuse
        assert (killed["evidence"]["signal"], killed["evidence"]["out_of_memory"]) == ("SIGKILL", True)
        assert killed["evidence"]["peak_memory_bytes"] <= search["evidence"]["limit_bytes"]
    else:
        assert killed["outcome"] == "REJECTED"
