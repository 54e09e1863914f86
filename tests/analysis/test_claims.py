"""What a test asserts of a target: broken, open or held, from findings that are written down here."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from contextlab.analysis.claims import Asked, Decided, held, not_truncated, past_window, refuses, told
from contextlab.model import FITS, Finding, Knowledge, Layer, Limits, Outcome, Policy, Probe, Skip

WINDOW = 256
COUNTS = frozenset({"counts-tokens", "window"})
KNOWN = Knowledge(flavour="", model="m", limits=Limits(context_tokens=WINDOW), powers=COUNTS)
NO_WINDOW = Knowledge(flavour="", model="m", limits=Limits(), powers=frozenset({"counts-tokens"}))
LOST = ["TRUNCATED_HEAD", "TRUNCATED_MIDDLE", "TRUNCATED_TAIL", "SHIFTED"]


def asked(*outcomes: Mapping[int, str], policy: Policy | None = None) -> list[Asked]:
    """One probe for each mapping of its size to an outcome."""
    found = []
    for number, one in enumerate(outcomes):
        [(size, name)] = one.items()
        probe = Probe(name=f"probe-{number}", about={"size_tokens": size})
        found.append(Asked(probe=probe, findings=(finding(name, probe.name, policy),)))
    return found


def finding(name: str, probe: str = "probe-0", policy: Policy | None = None) -> Finding:
    """A finding as the lab would make it."""
    outcome = Outcome[name]
    verdict = (policy or Policy()).verdict(outcome, FITS | {Outcome.REJECTED})
    return Finding(
        scenario="s", probe=probe, outcome=outcome, verdict=verdict, layer=Layer.ENGINE, why=f"why {name}", remedy="fix"
    )


@pytest.mark.parametrize("name", LOST)
def test_one_prompt_that_lost_a_part_breaks_the_claim(name: str) -> None:
    decided = not_truncated(asked({100: "OK"}, {257: name}, {512: "REJECTED"}), KNOWN)
    assert decided.holds is False
    assert decided.why.startswith("1 of 3 probes lost")
    assert [one.outcome.name for one in decided.findings] == [name]


@pytest.mark.parametrize("name", ["CRASHED", "HUNG", "UNKNOWN", "CUT", "EMPTY", "DEGRADED", "RUNAWAY"])
def test_what_cannot_be_told_leaves_the_claim_open(name: str) -> None:
    assert not_truncated(asked({100: "OK"}, {257: name}, {512: "REJECTED"}), KNOWN).holds is None


def test_one_of_one_is_said_as_people_say_it() -> None:
    assert not_truncated(asked({257: "SHIFTED"}), KNOWN).why.startswith("1 of 1 probe lost")
    assert refuses(asked({257: "CRASHED"}), KNOWN).why == "1 of 1 prompt longer than the window was not refused clearly"
    two = refuses(asked({257: "CRASHED"}, {300: "OK"}), KNOWN)
    assert two.why == "2 of 2 prompts longer than the window were not refused clearly"


def test_a_loss_outranks_what_could_not_be_told() -> None:
    assert not_truncated(asked({257: "CRASHED"}, {512: "TRUNCATED_TAIL"}), KNOWN).holds is False


def test_prompts_that_fit_alone_show_nothing() -> None:
    decided = not_truncated(asked({100: "OK"}, {256: "OK"}), KNOWN, [Skip(scenario="s", reason="too large")])
    assert decided == Decided(holds=None, why="no prompt went past the window: too large")
    assert not_truncated([], KNOWN).holds is None
    assert not_truncated([], NO_WINDOW).holds is None


@pytest.mark.parametrize("name", ["OK", "CAPPED", "REJECTED", "REJECTED_BADLY"])
def test_a_prompt_that_is_read_or_refused_is_no_silent_loss(name: str) -> None:
    assert not_truncated(asked({100: "OK"}, {257: name}), KNOWN).holds is True


def test_without_a_window_the_prompts_that_were_tried_are_what_is_claimed() -> None:
    assert not_truncated(asked({100: "OK"}, {32768: "OK"}), NO_WINDOW).holds is True


def test_what_the_policy_allows_is_no_loss() -> None:
    allowing = Policy(allow=frozenset({Outcome.SHIFTED}))
    assert not_truncated(asked({257: "SHIFTED"}, policy=allowing), KNOWN).holds is True


@pytest.mark.parametrize(
    ("outcomes", "holds"),
    [
        ([{100: "OK"}, {257: "REJECTED"}], True),
        ([{256: "OK"}, {257: "REJECTED"}, {512: "REJECTED"}], True),
        ([{257: "REJECTED"}, {512: "OK"}], False),
        ([{257: "REJECTED_BADLY"}], False),
        ([{257: "CRASHED"}], False),
        ([{257: "UNKNOWN"}, {512: "REJECTED"}], None),
        ([{257: "UNKNOWN"}, {512: "TRUNCATED_HEAD"}], False),
        ([{256: "REJECTED"}], None),
        ([], None),
    ],
)
def test_refusing_is_asked_of_every_prompt_past_the_window(outcomes: list[dict[int, str]], holds: bool | None) -> None:
    assert refuses(asked(*outcomes), KNOWN).holds is holds
    assert refuses(asked(*outcomes), NO_WINDOW).holds is None


def test_where_tokens_are_not_counted_exactly_the_edge_is_left_out() -> None:
    inexact = Knowledge(
        flavour="", model="m", limits=KNOWN.limits, powers=frozenset({"window"}), tokens_per_word=1.3
    )  # 2 + 256 // 100 tokens either way
    sizes = [260, 261]
    assert [one.probe.about["size_tokens"] for one in past_window(asked({260: "OK"}, {261: "OK"}), inexact)] == [261]
    assert [one.probe.about["size_tokens"] for one in past_window(asked({260: "OK"}, {261: "OK"}), KNOWN)] == sizes


def test_held_by_probe_by_policy_or_by_name() -> None:
    none: frozenset[Outcome] = frozenset()
    assert held(asked({1: "OK"}, {2: "REJECTED"}), none).holds is True
    assert held(asked({1: "OK"}, {2: "HUNG"}), none).holds is False
    assert held(asked({1: "OK"}, {2: "UNKNOWN"}), none).holds is None
    assert held(asked({1: "HUNG"}, {2: "UNKNOWN"}), none).holds is False
    assert held(asked({1: "HUNG"}, {2: "OK"}), frozenset({Outcome.HUNG})).holds is True
    assert held(asked({1: "UNKNOWN"}), frozenset({Outcome.UNKNOWN})).holds is True
    assert held([], none, [Skip(scenario="s", reason="no window"), Skip(scenario="s", reason="no window")]) == Decided(
        holds=None, why="no probe was run: no window"
    )


def test_a_message_shows_one_of_a_kind_the_worst_first_and_where_the_rest_is() -> None:
    decided = held(asked(*[{1: "HUNG"}] * 3, {2: "EMPTY"}, {3: "CRASHED"}), frozenset())
    lines = told("fake:x", decided, "runs/1").splitlines()
    assert lines[0] == "fake:x: broken: 5 of 5 probes ended in a way that is not allowed"
    assert [line.split()[0] for line in lines[1:7:2]] == ["CRASHED", "HUNG", "EMPTY"]
    assert lines[2] == "    change: fix"
    assert lines[-2:] == ["  and 2 more", "  next: contextlab report runs/1"]
