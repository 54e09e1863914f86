"""The keeper and the process it keeps, with real processes: how they end, and that nothing outlives its owner."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from contextlab.lab import keeper
from contextlab.lab.process import KEEPER, KeptProcess, default_memory_limit_bytes
from contextlab.model import ProcessEnd
from tests.lab import processes
from tests.lab.processes import await_gone, cgroups, keepers, marked, until

pytestmark = pytest.mark.process

MIB = 1 << 20
WITHIN_S = 5.0
"""What the tool promises: so long after its own death nothing of it is left."""
SLEEP = ("sleep", "600")
IGNORES_SIGTERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""
ESCAPES = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
for _ in range(2):          # what daemons do: fork, leave the session, fork, leave it again
    if os.fork():
        os._exit(0) if _ else time.sleep(600)
    os.setsid()
print("escaped", os.getpid(), flush=True)
time.sleep(600)
"""
"""Two generations: the first stays, its grandchild is an orphan in a session of its own that ignores what it can."""
TOOL = """
import sys, time
from pathlib import Path
from contextlab.lab.process import KeptProcess
kept = KeptProcess(sys.argv[3:], log=Path(sys.argv[1]), memory_limit_bytes=int(sys.argv[2]), grace_s=60.0)
print(kept.pid, kept.memory_limit, flush=True)
time.sleep(600)
"""


def python(code: str, *words: str) -> list[str]:
    """A small program."""
    return [sys.executable, "-S", "-c", code, *words]


def shell(code: str) -> list[str]:
    return ["/bin/sh", "-c", code]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


Keep = Callable[..., KeptProcess]


@pytest.fixture
def keep(log: Path, mark: dict[str, str]) -> Iterator[Keep]:
    """Start kept processes that are closed at the end of the test."""
    kept: list[KeptProcess] = []

    def start(argv: Sequence[str], **options: object) -> KeptProcess:
        kept.append(KeptProcess(argv, log=log, env=mark, **options))  # type: ignore[arg-type]
        return kept[-1]

    yield start
    for one in kept:
        one.close()


def ended(process: KeptProcess) -> ProcessEnd:
    """How it ended, once it has."""
    end = process.wait(processes.PATIENCE_S)
    assert end is not None
    return end


def said(log: Path, words: str) -> bool:
    return log.exists() and words in log.read_text(encoding="utf-8")


# ── how it ended ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("code", [0, 1, 3, 126, 255])
def test_exit_code(keep: Keep, code: int) -> None:
    end = ended(keep(shell(f"exit {code}")))
    assert (end.exit_code, end.signal, end.timed_out) == (code, None, False)
    assert end.ended


def deadly_signals() -> list[int]:
    harmless = {"SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGWINCH"}
    named = [number for number in signal.Signals if number.name not in harmless and number < signal.SIGRTMIN]
    return [*named, signal.SIGRTMIN, signal.SIGRTMIN + 5, signal.SIGRTMAX]


def test_every_deadly_signal_by_its_name(log: Path, mark: dict[str, str]) -> None:
    """Also those that the keeper, or Python, ignores for itself: the kept process starts with none ignored."""
    running = {number: KeptProcess(shell(f"kill -{number} $$"), log=log, env=mark) for number in deadly_signals()}
    assert len(running) > 20
    found = {}
    for number, process in running.items():
        end = ended(process)
        process.close()
        found[number] = (end.exit_code, end.signal)
    names = {number: keeper.signal_name(number) for number in running}
    assert found == {number: (None, name) for number, name in names.items()}
    assert {"SIGHUP", "SIGINT", "SIGKILL", "SIGPIPE", "SIGSEGV", "SIGABRT", "SIGXFSZ"} <= set(names.values())


def test_names_of_signals() -> None:
    assert keeper.signal_name(signal.SIGSEGV) == "SIGSEGV"
    assert keeper.signal_name(signal.SIGRTMIN) == "SIGRTMIN"
    assert keeper.signal_name(signal.SIGRTMIN + 5) == "SIGRTMIN+5"
    assert keeper.signal_name(signal.SIGRTMAX) == "SIGRTMAX"
    assert keeper.signal_name(33) == "SIG33"


def test_a_crash_leaves_no_core_file(keep: Keep, tmp_path: Path) -> None:
    end = ended(keep(shell("ulimit -c; kill -SEGV $$"), cwd=tmp_path))
    assert end.signal == "SIGSEGV"
    assert end.stderr_tail[0] == "0"
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_command_that_does_not_exist(keep: Keep) -> None:
    end = ended(keep(["/no/such/command", "--port", "0"]))
    assert end.exit_code == 127
    assert end.stderr_tail == ("cannot start /no/such/command: [Errno 2] No such file or directory",)


def test_a_command_that_may_not_be_executed(keep: Keep, tmp_path: Path) -> None:
    end = ended(keep([str(tmp_path)]))
    assert end.exit_code == 127
    assert "Permission denied" in end.stderr_tail[-1]


def test_running_is_not_an_end(keep: Keep) -> None:
    process = keep(SLEEP)
    assert process.poll() is None
    assert process.wait(0.05) is None
    assert process.pid is not None
    assert psutil.Process(process.pid).cmdline() == list(SLEEP)


def test_a_stopped_process_has_not_ended(keep: Keep) -> None:
    process = keep(SLEEP, grace_s=0.2)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    assert process.wait(0.1) is None
    assert process.stop().signal == "SIGKILL"


# ── memory ───────────────────────────────────────────────────────────────────────────────────────

ALLOCATES = "import sys; x = b'x' * int(sys.argv[1]); print(len(x), flush=True)"


def test_peak_memory(keep: Keep) -> None:
    peaks = [ended(keep(python(ALLOCATES, str(size)))).peak_memory_bytes for size in (1, 96 * MIB)]
    assert all(peaks)
    small, large = (peak or 0 for peak in peaks)
    assert 96 * MIB < large < 160 * MIB
    assert large - small > 80 * MIB


def test_memory_of_the_whole_tree_now(keep: Keep, log: Path) -> None:
    code = "import os, time; x = b'x' * (64 << 20); os.fork(); x = b'y' * (64 << 20); print('there', flush=True)"
    process = keep(python(f"{code}; time.sleep(600)"))
    until(lambda: log.read_text(encoding="utf-8").count("there") == 2, "both processes")
    assert (process.memory_bytes() or 0) > 128 * MIB
    process.kill()
    assert process.memory_bytes() is None


def test_the_memory_cgroup_kills_and_proves_it(keep: Keep) -> None:
    process = keep(python(ALLOCATES, str(512 * MIB)), memory_limit_bytes=64 * MIB)
    if process.memory_limit != "cgroup":
        pytest.skip(f"no memory cgroup can be made here (the limit is an {process.memory_limit})")
    end = ended(process)
    assert (end.exit_code, end.signal, end.out_of_memory) == (None, "SIGKILL", True)
    assert 60 * MIB < (end.peak_memory_bytes or 0) <= 65 * MIB


def test_a_cgroup_that_killed_nobody_says_so(keep: Keep) -> None:
    process = keep(shell("kill -KILL $$"), memory_limit_bytes=64 * MIB)
    end = ended(process)
    assert end.signal == "SIGKILL"
    assert end.out_of_memory is (False if process.memory_limit == "cgroup" else None)


def test_without_a_cgroup_the_address_space_is_limited(tmp_path: Path) -> None:
    """The same script, told to do without: Python then says MemoryError, which counts as evidence."""
    facts = keep_by_hand(
        python(ALLOCATES, str(1024 * MIB)), log=tmp_path / "log", memory_limit_bytes=512 * MIB, use_cgroup=0
    )
    assert facts["limit"] == "rlimit"
    assert (facts["exit_code"], facts["signal"], facts["num_memory_kills"]) == (1, None, None)
    assert "MemoryError" in (tmp_path / "log").read_text(encoding="utf-8")


def keep_by_hand(argv: Sequence[str], *, log: Path, **config: int) -> dict[str, object]:
    """Everything that a keeper reports of a command, without `KeptProcess` around it."""
    life, life_end = os.pipe()
    status, status_end = os.pipe()
    text = json.dumps({"life_fd": life, "status_fd": status_end, **config})
    with (
        log.open("wb") as sink,
        subprocess.Popen(
            [sys.executable, "-I", "-S", str(KEEPER), text, "--", *argv],
            stdout=sink,
            stderr=sink,
            pass_fds=(life, status_end),
        ),
    ):
        os.close(life)
        os.close(status_end)
        with os.fdopen(status, encoding="utf-8") as lines:
            facts = [json.loads(line) for line in lines]
    os.close(life_end)
    return {name: value for fact in facts for name, value in fact.items()}


def test_the_words_of_an_allocator_are_evidence(keep: Keep) -> None:
    end = ended(keep(shell("echo 'Traceback …'; echo MemoryError; exit 1")))
    assert (end.exit_code, end.out_of_memory) == (1, True)


def test_what_stood_in_the_log_before_is_not_evidence(keep: Keep, log: Path) -> None:
    """The log of a server goes on when it is started again; the words of its first life are not its last."""
    log.write_text("MemoryError\n", encoding="utf-8")
    end = ended(keep(shell("echo 'segmentation fault'; kill -SEGV $$")))
    assert end.signal == "SIGSEGV"
    assert end.out_of_memory is None
    assert end.stderr_tail == ("segmentation fault",)


def test_without_a_limit_nothing_is_limited(keep: Keep) -> None:
    process = keep(shell("ulimit -v"))
    assert ended(process).stderr_tail == ("unlimited",)
    assert process.memory_limit == "none"


def test_the_default_limit_keeps_the_machine_alive() -> None:
    available = psutil.virtual_memory().available
    assert 0.5 * available < default_memory_limit_bytes() < 0.9 * available


# ── nothing is left ──────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def escaped(keep: Keep, log: Path, mark: dict[str, str]) -> KeptProcess:
    """A kept process with a descendant that did all it could to get away."""
    process = keep(python(ESCAPES), memory_limit_bytes=512 * MIB, grace_s=0.3)
    until(lambda: said(log, "escaped"), "the descendant")
    until(lambda: len(marked(mark)) == 3, "the keeper, the kept process, and its descendant to be all that runs")
    return process


def runaway(log: Path) -> int:
    """Process id of the descendant."""
    found = re.search(r"escaped (\d+)", log.read_text(encoding="utf-8"))
    assert found is not None
    return int(found[1])


def test_the_descendant_is_in_a_session_of_its_own(escaped: KeptProcess, log: Path) -> None:
    assert escaped.pid is not None
    assert os.getsid(runaway(log)) != os.getsid(escaped.pid) != os.getsid(0)


@pytest.mark.parametrize("how", ["stop", "kill", "close"])
def test_descendants_end_with_the_process(escaped: KeptProcess, mark: dict[str, str], how: str) -> None:
    groups = cgroups(keepers(mark))
    assert bool(groups) is (escaped.memory_limit == "cgroup")
    getattr(escaped, how)()
    escaped.close()
    assert marked(mark) == []
    assert [path for path in groups if path.exists()] == []


def test_descendants_end_when_the_process_ends_by_itself(escaped: KeptProcess, mark: dict[str, str]) -> None:
    assert escaped.pid is not None
    os.kill(escaped.pid, signal.SIGSEGV)
    assert ended(escaped).signal == "SIGSEGV"
    escaped.close()
    assert marked(mark) == []


@pytest.mark.parametrize("code", [IGNORES_SIGTERM, ESCAPES], ids=["deaf", "escapes"])
def test_nothing_outlives_a_killed_tool(log: Path, mark: dict[str, str], code: str) -> None:
    """SIGKILL leaves the tool no time for anything: its keeper alone must see to it."""
    with subprocess.Popen(
        [sys.executable, "-c", TOOL, str(log), str(512 * MIB), *python(code)],
        env={**os.environ, **mark},
        stdout=subprocess.PIPE,
        text=True,
    ) as tool:
        assert tool.stdout is not None
        pid, limit = tool.stdout.readline().split()
        until(lambda: said(log, "deaf") or said(log, "escaped"), "the kept process")
        mine = keepers(mark)
        groups = cgroups(mine)
        assert len(mine) == 1
        assert bool(groups) is (limit == "cgroup")
        assert psutil.pid_exists(int(pid))
        tool.kill()
        await_gone(mark, WITHIN_S)
        assert [path for path in groups if path.exists()] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_keeper_does_not_end_of_what_ends_the_tool(keep: Keep, mark: dict[str, str], number: int) -> None:
    """A Ctrl-C goes to everybody in the terminal; the tree is the tool's to stop, in its order."""
    process = keep(SLEEP)
    [mine] = keepers(mark)
    os.kill(mine, number)
    assert process.wait(0.2) is None
    assert os.getsid(mine) == mine


def test_the_process_dies_with_its_keeper(keep: Keep, mark: dict[str, str]) -> None:
    process = keep(shell("sleep 600 & sleep 600"))
    until(lambda: len(marked(mark)) == 4, "the keeper, the shell and two sleeps")
    [mine] = keepers(mark)
    os.kill(mine, signal.SIGKILL)
    assert ended(process).signal == "SIGKILL"
    await_gone(mark, WITHIN_S)


def test_the_next_keeper_sweeps_the_group_of_a_killed_one(keep: Keep, mark: dict[str, str]) -> None:
    process = keep(SLEEP, memory_limit_bytes=512 * MIB)
    if process.memory_limit != "cgroup":
        pytest.skip(f"no memory cgroup can be made here (the limit is an {process.memory_limit})")
    [mine] = keepers(mark)
    [group] = cgroups([mine])
    os.kill(mine, signal.SIGKILL)
    ended(process)
    process.close()
    await_gone(mark, WITHIN_S)
    ended(keep(shell("exit 0"), memory_limit_bytes=512 * MIB))
    assert not group.exists()


# ── stopping ─────────────────────────────────────────────────────────────────────────────────────

OBEYS = """
import signal, sys, time
def obey(number, frame):
    print("told", flush=True)
    time.sleep(0.2)
    sys.exit(7)
signal.signal(signal.SIGTERM, obey)
print("up", flush=True)
time.sleep(600)
"""


def test_stop_lets_a_process_end_in_its_own_way(keep: Keep, log: Path) -> None:
    process = keep(python(OBEYS))
    until(lambda: said(log, "up"), "its start")
    end = process.stop()
    assert (end.exit_code, end.signal, end.timed_out) == (7, None, False)
    assert end.stderr_tail == ("up", "told"), "told once: many servers take a second time as an order to drop all"


def test_stop_forces_what_does_not_listen(keep: Keep, log: Path) -> None:
    process = keep(python(IGNORES_SIGTERM), grace_s=0.5)
    until(lambda: said(log, "deaf"), "its start")
    began_s = time.monotonic()
    end = process.stop()
    assert (end.exit_code, end.signal) == (None, "SIGKILL")
    assert time.monotonic() - began_s >= 0.5, "its grace"


def test_kill_and_its_reason(keep: Keep) -> None:
    late, early = keep(SLEEP), keep(SLEEP)
    assert late.kill(timed_out=True) == late.poll()
    assert (ended(late).signal, ended(late).timed_out) == ("SIGKILL", True)
    assert (early.kill().signal, ended(early).timed_out) == ("SIGKILL", False)


def test_whoever_has_ended_cannot_be_late(keep: Keep) -> None:
    process = keep(shell("exit 3"))
    ended(process)
    end = process.kill(timed_out=True)
    assert (end.exit_code, end.timed_out) == (3, False)
    assert process.stop() == end


def test_closing_twice_touches_nothing_of_others(keep: Keep) -> None:
    process = keep(SLEEP)
    process.close()
    pipes = [os.pipe() for _ in range(4)]  # these now have the numbers that were just given back
    process.close()
    process.stop()
    assert process.poll() == process.kill()
    for read_end, write_end in pipes:
        os.write(write_end, b"whole")
        assert os.read(read_end, 8) == b"whole"
        os.close(read_end)
        os.close(write_end)


# ── what goes in and what comes out ──────────────────────────────────────────────────────────────


def test_the_log_keeps_both_streams_and_goes_on(keep: Keep, log: Path) -> None:
    first = keep(shell("echo out; echo err >&2"))
    assert ended(first).stderr_tail == ("out", "err")
    size = first.log_size_bytes()
    second = keep(shell("echo again"))
    assert ended(second).stderr_tail == ("again",)
    assert log.read_text(encoding="utf-8") == "out\nerr\nagain\n"
    assert second.log_lines(size) == ["again"]
    assert second.log_lines() == ["out", "err", "again"]


def test_a_huge_log_is_read_from_its_end(keep: Keep) -> None:
    process = keep(shell("yes 0123456789 | head -n 100000; echo last"))
    end = ended(process)
    assert len(end.stderr_tail) == 40
    assert end.stderr_tail[-2:] == ("0123456789", "last")
    lines = process.log_lines(max_bytes=1000)
    assert 80 < len(lines) < 100
    assert lines[-1] == "last"


def test_what_is_no_text_is_kept_readable(keep: Keep) -> None:
    assert ended(keep(shell(r"printf '\377\376 caf\303\251\n'"))).stderr_tail == ("�� café",)


def test_environment_folder_and_closed_input(keep: Keep, tmp_path: Path, mark: dict[str, str]) -> None:
    process = keep(shell(f"pwd; cat; echo ${processes.MARK}"), cwd=tmp_path)
    assert ended(process).stderr_tail == (str(tmp_path), mark[processes.MARK])


def test_its_input_is_a_pipe_where_one_is_asked_for(keep: Keep) -> None:
    process = keep(["cat"], stdin=subprocess.PIPE)
    process.stdin.write(b"an order\n")
    process.stdin.close()
    assert ended(process).stderr_tail == ("an order",)


def test_descriptors_reach_the_process_and_nobody_else(keep: Keep) -> None:
    """Whoever reads the other end sees its end when the process ends, though the keeper lives on."""
    read_end, write_end = os.pipe()
    code = f"import os, time; os.write({write_end}, b'event'); os.close({write_end}); time.sleep(600)"
    process = keep(python(code), pass_fds=(write_end,))
    with os.fdopen(read_end, "rb") as events:
        assert events.read() == b"event"
    assert process.poll() is None


def test_the_process_inherits_no_pipe_of_the_tool(keep: Keep) -> None:
    names = ended(keep(shell("ls /proc/self/fd"))).stderr_tail
    assert set(names) <= {"0", "1", "2", "3"}, "3 is the folder that ls reads"
