"""Options of the test suite."""

import pytest
from hypothesis import HealthCheck, settings

# What is tested is what comes out, not how soon: a new machine, or a busy one, must not fail a property.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `pytest --update-golden` write the expected reports anew, to be read in the diff."""
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing")
