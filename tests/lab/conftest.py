"""What the tests of the lab share."""

from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

from tests.lab import processes
from tests.lab.processes import marked


@pytest.fixture
def mark() -> Iterator[dict[str, str]]:
    """A mark for everything the test starts; nothing of it may be left at its end."""
    one = processes.new_mark()
    yield one
    left = marked(one)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    assert left == []
