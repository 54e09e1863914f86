"""The tool's own proof: every fake misbehaves in one known way, and the tool names that way and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextlab.model import Outcome, Policy, Verdict
from contextlab.targets.fake import EXPECTED
from tests.command import Ran, contextlab

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

DEFAULT = Policy()
TIMEOUT_S = {"hangs": "2", "runs-away": "6", "shifts": "8"}
"""Time for each reply: `hangs` uses all of it, the endless ones must be seen to run past two windows in it."""


def overflow(name: str, folder: Path) -> Ran:
    """One whole run of every scenario against a fake."""
    options = ["--set", "token_delay_s=0.001", "--timeout", TIMEOUT_S.get(name, "10"), "--json"]
    return contextlab("overflow", f"fake:{name}", *options, cwd=folder)


def named(document: dict[str, object]) -> set[Outcome]:
    """What a run says of its target: the outcomes that failed, else what happened to a reply past the window."""
    findings = document["findings"]
    assert isinstance(findings, list)
    failed = {Outcome[finding["outcome"]] for finding in findings if finding["verdict"] == Verdict.FAIL.name}
    place = ("reply-past-window", "max-tokens-past")
    past = {Outcome[one["outcome"]] for one in findings if (one["scenario"], one["probe"]) == place}
    return failed or past


def is_past_the_window(finding: dict[str, str]) -> bool:
    """Whether the probe's prompt has more tokens than any fake's window: none of them may be said to have read it."""
    if finding["scenario"] == "token-blowup":
        return finding["probe"] != "prose"
    return finding["scenario"] == "prompt-too-long" and finding["probe"].endswith(("-full", "-one-over", "-twice"))


@pytest.mark.parametrize("name", EXPECTED)
def test_every_fake_is_named_by_its_own_outcome_and_no_other(name: str, tmp_path: Path) -> None:
    ran = overflow(name, tmp_path)
    document = ran.document
    assert named(document) == {EXPECTED[name]}
    allowed = EXPECTED[name] in (Outcome.REJECTED, Outcome.CAPPED)
    assert ran.code == (0 if allowed else 1), ran.err
    assert document["verdict"] == ("PASS" if allowed else "FAIL")
    unknown = [one for one in document["findings"] if one["verdict"] == Verdict.UNKNOWN.name]
    assert not unknown
    assert [one for one in document["findings"] if is_past_the_window(one) and one["outcome"] == Outcome.OK.name] == []


def test_the_policy_moves_the_line(tmp_path: Path) -> None:
    """What is allowed by name passes; what is named a failure fails."""
    scenario = ["--scenario", "reply-past-window", "--set", "token_delay_s=0.001", "--json"]
    allowed = contextlab("overflow", "fake:no-done", *scenario, "--allow", "CUT", cwd=tmp_path)
    assert (allowed.code, allowed.document["verdict"]) == (0, "PASS")
    refused = contextlab("overflow", "fake:caps", *scenario, "--fail-on", "CAPPED", cwd=tmp_path)
    assert (refused.code, refused.document["verdict"]) == (1, "FAIL")
    (tmp_path / "pyproject.toml").write_text('[tool.contextlab]\nallow = ["cut"]\n')
    configured = contextlab("overflow", "fake:no-done", *scenario, cwd=tmp_path)
    assert configured.code == 0
    overruled = contextlab("overflow", "fake:no-done", *scenario, "--fail-on", "CUT", cwd=tmp_path)
    assert overruled.code == 1


def test_replay_repeats_one_probe_and_compares(tmp_path: Path) -> None:
    """A recorded probe is run again from its record alone."""
    first = contextlab("overflow", "fake:drops-head", "--scenario", "prompt-too-long", "--json", cwd=tmp_path)
    again = contextlab("replay", first.document["run"], "--probe", "completions-whole-twice", cwd=tmp_path)
    assert again.code == 1
    assert "the same: TRUNCATED_HEAD" in again.out
