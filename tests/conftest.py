"""Options of the test suite, and who may run beside whom."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# What is tested is what comes out, not how soon: a new machine, or a busy one, must not fail a property.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` writes the expected reports anew, to be read in the diff; `--soak N` is for a patient night."""
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing")
    parser.addoption(
        "--soak", type=int, default=1, metavar="N", help="tests that kill at random do so N times as often"
    )


# ── two workers (`make test`) ────────────────────────────────────────────────────────────────────


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, where workers take one file after the other: then they end at about the same time."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: item.get_closest_marker("engine") is None)


class Stage:
    """Where the tests of all workers of one run take place: together, or one alone.

    Everybody passes the gate first, and who is to be alone holds it while the others leave: nobody waits for long.
    """

    def __init__(self, run: str) -> None:
        self._paths = [Path(tempfile.gettempdir()) / f"contextlab-tests-{run}.{name}" for name in ("gate", "stage")]
        self._gate, self._stage = (path.open("ab") for path in self._paths)

    @contextmanager
    def taken(self, *, alone: bool) -> Iterator[None]:
        """Be there, alone or not; waits until that is possible."""
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._stage, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._stage, fcntl.LOCK_UN)

    def close(self) -> None:
        """Leave no file behind; who has them open still has them."""
        for file, path in zip((self._gate, self._stage), self._paths, strict=True):
            file.close()
            with suppress(OSError):
                path.unlink()


STAGE = pytest.StashKey[Stage]()


def pytest_configure(config: pytest.Config) -> None:
    """One stage for the workers of a run; without workers there is nobody to wait for."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        config.stash[STAGE] = Stage(os.environ["PYTEST_XDIST_TESTRUNUID"])


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the stage."""
    if (stage := config.stash.get(STAGE, None)) is not None:
        stage.close()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Fixtures, test and all: alone where it says so. Waiting does not count as the test's time."""
    stage = item.config.stash.get(STAGE, None)
    if stage is None:
        return (yield)
    with stage.taken(alone=item.get_closest_marker("alone") is not None):
        return (yield)
