"""A disk that is full, read-only or slow: what the target's writes then do, what proves it, and that all comes back."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from contextlab.lab.host import disks
from contextlab.lab.host.groups import Place
from contextlab.lab.undo import steps
from contextlab.lab.undo.ledger import Ledger
from contextlab.lab.undo.steps import Step
from contextlab.model import UnableError, UsageError
from tests.lab.host.benches import needs_groups, running
from tests.lab.processes import until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache directory with a file in it, and with a name that means something among mount options."""
    folder = tmp_path / "cache, with: odd \\ name"
    folder.mkdir()
    (folder / "kept").write_text("before")
    return folder


def mounts(folder: Path) -> int:
    return steps.num_mounts(str(folder))


def test_a_write_that_is_over_before_anybody_looks_is_none_the_less_told(
    mark: dict[str, str], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(mark, tmp_path) as one:
        hands = one.hands()
        monkeypatch.setattr(steps, "started_of", lambda pid: None)  # as of a process that has ended
        assert hands.try_write(str(cache), 10_000)[0] == ""
        assert (cache / "kept").read_text() == "before"


@needs_root
def test_a_full_disk_shows_its_files_and_takes_only_what_is_free(
    mark: dict[str, str], cache: Path, tmp_path: Path
) -> None:
    cache.chmod(0o750)
    with running(mark, tmp_path) as one:
        hands = one.hands()
        hands.overmount(str(cache), free_bytes=8192)
        assert (cache / "kept").read_text() == "before"
        assert cache.stat().st_mode & 0o7777 == 0o750
        (cache / "fits").write_bytes(b"x" * 8192)
        (cache / "fits").unlink()
        with pytest.raises(OSError, match="No space left"):
            (cache / "too much").write_bytes(b"x" * 8193)
        with pytest.raises(OSError, match="No space left"), (cache / "kept").open("a") as file:
            file.write("x" * 8193)
        assert hands.try_write(str(cache), 10_000)[0] == "ENOSPC"
        hands.undo()
        assert mounts(cache) == 0
        assert [path.name for path in cache.iterdir()] == ["kept"]
        assert (cache / "kept").read_text() == "before"
        assert hands.try_write(str(cache), 10_000)[0] == ""
        assert not list(Path(tempfile.gettempdir()).glob(f"contextlab-disk-{os.getpid()}-*"))


@needs_root
@pytest.mark.parametrize("free", [0, 1])
def test_what_is_free_is_counted_in_whole_pages(mark: dict[str, str], cache: Path, tmp_path: Path, free: int) -> None:
    with running(mark, tmp_path) as one:
        hands = one.hands()
        hands.overmount(str(cache), free_bytes=free)
        assert hands.try_write(str(cache), free * disks.PAGE_BYTES)[0] == ""
        assert hands.try_write(str(cache), free * disks.PAGE_BYTES + 1)[0] == "ENOSPC"
        hands.undo()


@needs_root
@pytest.mark.parametrize(("what", "error"), [("full", "ENOSPC"), ("read-only", "EROFS")])
def test_it_is_proven_by_writes_that_are_refused(mark: dict[str, str], tmp_path: Path, what: str, error: str) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    with running(mark, tmp_path) as one:
        evidence, deeds = one.inflicted(f"disk:what={what},dir={folder}", 0.7)
        assert evidence.landed.proven
        assert error in evidence.landed.why
        assert evidence.tally["refused"] == evidence.tally["tried"] > 0
        assert [(deed.what, dict(deed.about)) for deed in deeds] == [(what, {"dir": str(folder)})]
        assert list(folder.iterdir()) == []
        (folder / "again").write_text("it takes everything again")


@needs_groups
@pytest.mark.alone
def test_a_slow_disk_takes_as_long_as_its_limit_says(mark: dict[str, str], tmp_path: Path) -> None:
    try:
        disks.device_of(str(tmp_path))
    except UnableError as error:
        pytest.skip(error.message)
    with running(mark, tmp_path) as one:
        evidence, _ = one.inflicted(f"disk:what=slow,dir={tmp_path},limit=2MB/s", 1.5)
        assert evidence.landed.proven, evidence.landed.why
        assert evidence.tally["waited_s"] / evidence.tally["tried"] >= 0.4
        until(lambda: one.hands().try_write(str(tmp_path), 1_000_000)[1] < 0.4, "the disk to be as fast as before", 5.0)


@pytest.mark.parametrize(
    ("version", "before", "after", "undo"),
    [
        (2, "", "8:0 rbps=5000 wbps=5000", "8:0 rbps=max wbps=max riops=max wiops=max"),
        (2, "8:0 rbps=9 wbps=max\n8:1 rbps=1 wbps=1\n", "8:0 rbps=5000 wbps=5000", "8:0 rbps=9 wbps=max"),
        (1, "", "8:0 5000", "8:0 0"),
        (1, "8:0 7\n", "8:0 5000", "8:0 7"),
    ],
)
def test_the_limit_that_was_there_is_what_the_undo_writes(
    tmp_path: Path, version: int, before: str, after: str, undo: str
) -> None:
    names = ["io.max"] if version == 2 else [f"blkio.throttle.{what}_bps_device" for what in ("read", "write")]
    for name in names:
        (tmp_path / name).write_text(before)
    recorded: list[Step] = []
    disks.limit(Place(version=version, folder=tmp_path, mount=tmp_path), "8:0", 5000, recorded.append)
    assert recorded == [steps.lift(str(tmp_path / name), "8:0", undo) for name in names]
    assert [(tmp_path / name).read_text() for name in names] == [after] * len(names)


@pytest.mark.parametrize(
    ("folder", "why"),
    [("/", "which others need"), ("/var", "which others need"), ("/etc", "which others need"), ("/no/such", "no such")],
)
def test_no_folder_is_covered_that_others_need(folder: str, why: str) -> None:
    with pytest.raises((UsageError, UnableError), match=why):
        disks.coverable(folder, os.getpid())


def test_a_folder_that_holds_the_undo_records_is_not_covered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTLAB_STATE", str(tmp_path / "inside" / "state"))
    with pytest.raises(UsageError, match="inside/state lies there"):
        disks.coverable(str(tmp_path), os.getpid())


@needs_root
def test_a_folder_above_another_mount_is_not_covered(cache: Path, tmp_path: Path) -> None:
    (cache / "below").mkdir()
    with Ledger(run="r", target="t", state=tmp_path / "state") as ledger:

        def record(step: Step) -> None:
            ledger.add(step, lease_s=60)

        disks.make_read_only(str(cache / "below"), record)
        assert mounts(cache / "below") == 1
        with pytest.raises(UnableError, match="mounted below it"):
            disks.coverable(str(cache), os.getpid())
    assert mounts(cache / "below") == 0


def test_what_lies_in_memory_has_no_disk_to_slow_down() -> None:
    with pytest.raises(UnableError, match="lies on no disk"):
        disks.device_of("/dev/shm" if os.path.isdir("/dev/shm") else "/proc")
