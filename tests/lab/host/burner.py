"""A process tree to do things to: `burner.py WORD…`, each word a thing that it does.

burn: uses a processor.  child: a child burns too.  threads N: N threads sleep.  grow MIB: takes so much memory, and
as much again for each line that comes.  It says READY when it has begun, and stays until it is killed.
"""

import sys
import threading
import time


def burn() -> None:
    """Use a processor for good."""
    while True:
        pass


def grow(num_mib: int) -> bytearray:
    """Memory that was written to."""
    held = bytearray(num_mib << 20)
    held[::4096] = b"x" * len(range(0, len(held), 4096))
    return held


def main(words: list[str]) -> None:
    """Do what the words say."""
    if "child" in words:
        import subprocess

        subprocess.Popen([sys.executable, __file__, "burn"])
    for _ in range(int(words[words.index("threads") + 1]) if "threads" in words else 0):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    held = [grow(int(words[words.index("grow") + 1]))] if "grow" in words else []
    sys.stdout.write("READY\n")
    sys.stdout.flush()
    if "burn" in words:
        burn()
    for _line in sys.stdin:
        held.append(grow(len(held[0]) >> 20))
    time.sleep(600)


main(sys.argv[1:])
