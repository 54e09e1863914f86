"""Options of the test suite, and the order of its files."""

import os

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


LONGEST = (
    "scenarios/test_cache_outage_run",
    "scenarios/test_health_honesty",
    "engine/test_llama",
    "scenarios/test_fakes",
    "test_action",
    "cli/test_chaos",
    "cli/test_pareto",
    "reports/test_html_browser",
    "cli/test_bad_servers",
    "scenarios/test_memory_runs",
    "cli/test_bad_input",
    "cli/test_gate",
    "reports/test_html",
)
"""Files of tests that take half a minute and more."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, where workers take one file after the other: then they end at about the same time."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    name = item.nodeid.partition("::")[0].removeprefix("tests/").removesuffix(".py")
    if name in LONGEST:
        return LONGEST.index(name)
    return len(LONGEST) + (item.get_closest_marker("engine") is None)
