"""One run on one target at a time, and none while an earlier one is not undone.

The lock is the kernel's (flock): it is gone with the process that holds it, however that ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contextlab.lab.undo.record import state_folder
from contextlab.lab.undo.recovery import refuse_open
from contextlab.model import UnableError, UsageError

__all__ = ["hold", "refuse_open"]


@contextmanager
def hold(target_key: str, state: Path | None = None) -> Iterator[None]:
    """Be the only run on a target while inside; `target_key` names it, such as 127.0.0.1:8000.

    Raises UsageError with the other run's process id where there is one, UnableError where no lock can be kept.
    """
    path = (state or state_folder()) / "locks" / f"{hashlib.sha256(target_key.encode()).hexdigest()[:16]}.lock"
    try:
        path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        fd = _locked(path, target_key)
    except OSError as error:
        message = f"the lock {path} cannot be kept: {error.strerror or error}"
        raise UnableError(message, "name a folder that can be written: CONTEXTLAB_STATE=DIR") from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(fd)


def _locked(path: Path, target_key: str) -> int:
    """The lock file, locked, with our process id in it. Raises UsageError where another has it, OSError."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.pread(fd, 32, 0).decode(errors="replace").strip() or "that is just beginning"
            os.close(fd)
            raise UsageError(
                f"target={target_key!r}: another run is at work on it, process {other}",
                "wait until it has ended, or name another target",
            ) from None
        if os.fstat(fd).st_nlink:  # else its last holder removed it between our two calls
            os.truncate(fd, 0)
            os.pwrite(fd, str(os.getpid()).encode(), 0)
            return fd
        os.close(fd)
