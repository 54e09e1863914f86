"""A target opened for a check-up, and a machine looked at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from contextlab import registry
from contextlab.analysis.checkup import SECTIONS, Check, Grade
from contextlab.lab.checkup import noise, target
from contextlab.lab.checkup.checkup import checkup
from contextlab.lab.run import Options
from contextlab.model import Knowledge, Limits

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]


def opened(name: str, *settings: str) -> dict[str, Check]:
    spec = registry.parse_target(name, list(settings))
    return {one.name: one for one in target.checks(spec, Options())}


def test_a_target_tells_what_can_be_found_out_about_it() -> None:
    checks = opened("fake:rejects")
    assert checks["open"].grade is Grade.OK
    assert checks["window"].detail == "256 tokens for each request"
    assert checks["tokens"].detail == "it does not count tokens: 1.00 a word, as measured"
    assert "scenarios can run" in checks["overflow"].detail
    assert "scenarios can run" in checks["chaos"].detail


def test_one_that_cannot_be_opened_stops_a_run() -> None:
    [only] = opened("http://127.0.0.1:9").values()
    assert (only.name, only.grade) == ("open", Grade.FAIL)
    assert only.fix


def test_a_server_that_ends_is_told_in_its_words_and_no_folder_is_named_that_is_gone() -> None:
    spec = registry.parse_target("run:sh -c 'echo boom; exit 3'", at="http://127.0.0.1:9")
    [only] = target.checks(spec, Options())
    assert only.grade is Grade.FAIL
    assert only.detail == "the server ended before it was ready: exit code 3 · boom"
    assert only.fix.startswith("a run keeps the whole log: contextlab overflow ")


def test_what_a_target_does_not_tell_is_a_warning() -> None:
    checks = {one.name: one for one in target.known_checks(Knowledge(flavour="", model="", limits=Limits()))}
    assert checks["window"].grade is Grade.WARN
    assert checks["tokens"].grade is Grade.WARN
    assert "the target declares no window" in checks["overflow"].detail
    assert checks["speed"].grade is Grade.SKIP


def test_the_machine_is_looked_at_for_two_seconds() -> None:
    seen = noise.noise()
    assert seen.cores == os.cpu_count()
    assert seen.others_cores >= 0
    assert seen.steal is not None
    assert 0 <= seen.steal <= 1
    assert len(seen.slices_s) >= 20


def test_sections_come_in_their_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(noise, "LOOK_S", 0.01)
    sections = [one.section for one in checkup(tmp_path, registry.parse_target("fake:rejects"), Options())]
    assert list(dict.fromkeys(sections)) == list(SECTIONS)
