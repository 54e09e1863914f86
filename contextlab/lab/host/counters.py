"""What the kernel counts of the target's tree and of the load's clients, as sums that never fall.

A process or a group that is gone keeps what it had counted when we last looked. Linux only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from contextlab.deeds import Victim
from contextlab.lab.host import groups
from contextlab.lab.host.groups import Place
from contextlab.lab.host.tree import Counted, counted, ran
from contextlab.model import ProcessEnd

HOST_PRESSURE = Path("/proc/pressure")
CONTROLLERS = ("cpu", "memory")


class KernelCounts:
    """The counters of one target, by the names of `deeds.HostFault`; and `cpu_wait_s`, for which its threads were ready
    to run and did not (schedstat).

    `tree`: its processes now. `end`: how its main process ended, where it is ours and it did: a keeper removes a group
    before we can read there that the kernel killed for want of memory. PSI is the group's (version 2), else the host's.
    """

    def __init__(
        self,
        tree: Callable[[], Sequence[Counted]],
        client_pids: Callable[[], Sequence[int]],
        end: Callable[[], ProcessEnd | None],
    ) -> None:
        self._tree, self._client_pids, self._end = tree, client_pids, end
        self._lock = threading.Lock()
        self._cpu_s: dict[Victim, float] = {}
        self._client_cpu_s: dict[Victim, float] = {}
        self._wait_s: dict[Victim, float] = {}
        self._faults: dict[Victim, float] = {}
        self._groups: dict[tuple[str, Path], dict[str, float]] = {}
        self._current: dict[str, Place] = {}

    def watch(self, controller: str, place: Place) -> None:
        """The tree is in this group from now on."""
        with self._lock:
            if controller in CONTROLLERS:
                self._current[controller] = place
                self._read_group(controller)

    def look(self, found: Sequence[Counted] | None = None) -> dict[str, float]:
        """The sums as they are now; `found`: the tree, where it has just been looked at."""
        with self._lock:
            found = self._tree() if found is None else found
            for one in found:
                self._cpu_s[one.victim] = one.cpu_s
                self._faults[one.victim] = one.major_faults
                for thread in ran(one.victim.pid):
                    self._wait_s[thread.victim] = thread.wait_s
            for pid in self._client_pids():
                if (client := counted(pid)) is not None:
                    self._client_cpu_s[client.victim] = client.cpu_s
            sums = {
                "cpu_s": sum(self._cpu_s.values()),
                "cpu_wait_s": sum(self._wait_s.values()),
                "client_cpu_s": sum(self._client_cpu_s.values()),
                "major_faults": sum(self._faults.values()),
            }
            for controller in CONTROLLERS:
                place = groups.place_of(found[0].victim.pid, controller) if found else None
                if place is not None:
                    self._current[controller] = place
                self._read_group(controller)
                stalled_s = groups.stalled_s(HOST_PRESSURE / controller)
                if stalled_s is not None and not self._has_pressure(controller):
                    sums[f"{controller}_stall_s"] = stalled_s
            for counts in self._groups.values():
                for name, value in counts.items():
                    sums[name] = sums.get(name, 0.0) + value
            return sums

    def _has_pressure(self, controller: str) -> bool:
        return any(f"{controller}_stall_s" in counts for counts in self._groups.values())

    def _read_group(self, controller: str) -> None:
        place = self._current.get(controller)
        if place is None:
            return
        kept = self._groups.setdefault((controller, place.folder), {})
        counts = groups.counts(place, controller)
        if counts:
            kept.update(counts)
        elif controller == "memory" and not place.folder.exists():
            end = self._end()
            if end is not None and end.signal == "SIGKILL" and end.out_of_memory:
                kept["oom_kills"] = kept.get("oom_kills", 0.0) + 1
            del self._current[controller]  # told once
