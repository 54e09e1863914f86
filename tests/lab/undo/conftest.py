"""Every test here keeps its undo records in a folder of its own."""

from pathlib import Path

import pytest


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder, also for what is started from here."""
    folder = tmp_path / "state"
    monkeypatch.setenv("CONTEXTLAB_STATE", str(folder))
    return folder
