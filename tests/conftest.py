"""Options of the test suite."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `pytest --update-golden` write the expected reports anew, to be read in the diff."""
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing")
