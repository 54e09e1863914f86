"""Opening a file that a user named: it has to be a regular file that can be read, and errors say which it is not."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from contextlab.capacity.fields import shown
from contextlab.model import UnableError


@contextmanager
def opened(name: str, next_step: str) -> Iterator[tuple[int, int]]:
    """Descriptor and size of a regular, readable file; `next_step` is the advice where `name` is no such thing."""
    try:
        # Looking before opening: opening a pipe would wait for its writer.
        if not stat.S_ISREG(os.stat(name).st_mode):
            what = "is a directory" if os.path.isdir(name) else "is no regular file"
            raise UnableError(f"{name}: {what}", next_step)
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise UnableError(f"{name}: there is no such file", "Check the path.") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UnableError(f"{shown(name)}: cannot be read: {reason}", "Check the path and its permissions.") from error
    try:
        yield descriptor, os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
