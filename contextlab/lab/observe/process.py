"""Looks at the target's process tree twice a second while a load runs.

A look costs 1 to 2 ms of processor time on a machine with a few hundred processes (finding the children is most of it),
0.3 % of one processor: some hundred times less than a load's client. It touches the target by nothing but /proc.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import psutil

from contextlab.deeds import Reading, Victim
from contextlab.lab.observe.watch import Watch

EVERY_S = 0.5
ENDING_S = 2.0


class ProcessWatch(Watch[Reading]):
    """A thread that reads the tree of `root` from now on while it is entered; times count from `zero_s`.

    `root` is asked each time, since the target may have been started again; while it is None nothing is read.
    `client_pids`: the processes of the load, whose processor time goes beside.
    """

    def __init__(
        self,
        root: Callable[[], Victim | None],
        zero_s: float,
        *,
        client_pids: Callable[[], Sequence[int]] = tuple,
    ) -> None:
        super().__init__("process", ending_s=ENDING_S)
        self._root, self._zero_s, self._client_pids = root, zero_s, client_pids
        self._sums = CpuSums()
        self._client_sums = CpuSums()

    def look(self) -> None:
        """Look at once, then every `EVERY_S`."""
        while True:
            self._look()
            if self.over.wait(EVERY_S):
                return

    def _look(self) -> None:
        at_s = round(time.monotonic() - self._zero_s, 3)
        root = self._root()
        processes = [] if root is None else living_tree(root.pid)
        values = tree_values(processes)
        if not values:
            return
        values["cpu_s"] = round(self._sums.add(processes), 3)
        clients = [one for pid in self._client_pids() for one in living_tree(pid)]
        values["client_cpu_s"] = round(self._client_sums.add(clients), 3)
        self.see(Reading(source="process", at_s=at_s, values=values))


class CpuSums:
    """Processor time of processes that come and go: who is gone keeps what was seen of it, so that it never falls."""

    def __init__(self) -> None:
        self._seen_s: dict[tuple[int, float], float] = {}

    def add(self, processes: Sequence[psutil.Process]) -> float:
        """Seconds of all that were ever added, as far as they were seen."""
        for process in processes:
            try:
                times = process.cpu_times()
                self._seen_s[process.pid, process.create_time()] = times.user + times.system
            except psutil.Error:
                continue
        return sum(self._seen_s.values())


def living_tree(pid: int) -> list[psutil.Process]:
    """The process and its descendants; none where it is gone."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []


def tree_values(processes: Sequence[psutil.Process]) -> dict[str, float]:
    """What a tree holds now: rss_bytes, threads, descriptors, sockets, processes. Empty where nothing of it lives.

    What this user may not see of another's process (descriptors, sockets) counts as 0.
    """
    found = dict.fromkeys(("rss_bytes", "threads", "descriptors", "sockets", "processes"), 0.0)
    for process in processes:
        try:
            with process.oneshot():
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                found["rss_bytes"] += process.memory_info().rss
                found["threads"] += process.num_threads()
                found["processes"] += 1
            found["descriptors"] += process.num_fds()
            found["sockets"] += len(process.net_connections(kind="all"))
        except psutil.Error:
            continue
    return found if found["processes"] else {}
