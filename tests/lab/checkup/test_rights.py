"""What this user may do: each answer follows from what is there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from contextlab.analysis.checkup import Check, Grade
from contextlab.lab.checkup import rights
from contextlab.lab.host import groups
from contextlab.lab.host.groups import Place
from contextlab.lab.link import engines
from contextlab.model import UnableError

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


def found() -> dict[str, Check]:
    return {one.name: one for one in rights.checks()}


@linux
def test_every_right_is_looked_at() -> None:
    checks = found()
    assert set(checks) == {"cpu group", "memory group", "packets", "disks", "profiles", "redis"}
    assert all(one.fix for one in checks.values() if one.grade is Grade.WARN)


def test_elsewhere_there_is_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert [(one.name, one.grade) for one in rights.checks()] == [("faults", Grade.SKIP)]


@linux
def test_without_rights_each_says_what_would_give_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_redis() -> str:
        raise UnableError("there is no redis-server", "apt install redis-server")

    scope = tmp_path / "ptrace_scope"
    scope.write_text("1\n")
    monkeypatch.setattr(rights, "_PTRACE_SCOPE", scope)
    monkeypatch.setattr(rights, "has_capability", lambda bit: False)
    monkeypatch.setattr(groups, "place_of", lambda pid, controller: None)
    monkeypatch.setattr(engines, "why_no_packet_link", lambda: "no /dev/net/tun\nand more")
    monkeypatch.setattr(rights, "redis_server", no_redis)
    checks = found()
    assert {name for name, one in checks.items() if one.grade is Grade.WARN} == {
        "cpu group", "memory group", "packets", "disks", "profiles",
    }  # fmt: skip
    assert checks["packets"].detail == "no packet link: no /dev/net/tun"
    assert "delegated" in checks["cpu group"].fix
    assert checks["profiles"].fix.endswith("kernel.yama.ptrace_scope=0")
    assert (checks["redis"].grade, checks["redis"].fix) == (Grade.SKIP, "apt install redis-server")


@linux
@pytest.mark.parametrize(("version", "writes_to"), [(1, "home"), (2, "")])
def test_a_group_is_made_below_in_version_1_and_beside_in_version_2(
    version: int, writes_to: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = Place(version=version, folder=tmp_path / "home", mount=tmp_path)
    asked: list[Path] = []
    monkeypatch.setattr(groups, "place_of", lambda pid, controller: place)

    def may(path: Path, mode: int) -> bool:
        asked.append(path)
        return True

    monkeypatch.setattr(os, "access", may)
    assert found()["cpu group"].detail == f"version {version}, for cpu:quota"
    assert asked[0] == tmp_path / writes_to


def test_capabilities_are_bits(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tx\nCapEff:\t0000000000200000\n")
    assert rights.has_capability(rights.CAP_SYS_ADMIN, status)
    assert not rights.has_capability(rights.CAP_SYS_PTRACE, status)
    assert not rights.has_capability(rights.CAP_SYS_ADMIN, tmp_path / "nowhere")
