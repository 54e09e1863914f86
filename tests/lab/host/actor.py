"""A tool that does to a process all that hands can, says DONE, and waits to be killed: `actor.py PID STATE`."""

import sys
import time
from pathlib import Path

from contextlab.deeds import Victim
from contextlab.experiment import Placed
from contextlab.lab.host.injector import Injector
from contextlab.lab.host.machine import TargetMachine
from contextlab.lab.undo.ledger import Ledger
from contextlab.lab.undo.steps import started_of

pid = int(sys.argv[1])
victim = Victim(pid=pid, started=started_of(pid) or 0)
with Ledger(run="actor", target="burner", state=Path(sys.argv[2])) as ledger:
    machine = TargetMachine(root=lambda: victim, ledger=ledger)
    placed = Placed(name="cpu", start_s=0.0, length_s=600.0)
    injector = Injector([(0, placed)], machine, seed=1)
    injector.start(time.monotonic() + 3600.0)
    hands = machine.hands(placed, injector)
    group = hands.group("cpu")
    if group is not None and group.version == 1:
        group.set("cpu.cfs_quota_us", "20000")
    helper = hands.helper([sys.executable, "-m", "contextlab.lab.host.hogs", "spin"])
    hands.pin(hands.processors())
    hands.stop()
    sys.stdout.write(f"DONE {helper.pid}\n")
    sys.stdout.flush()
    time.sleep(600.0)
