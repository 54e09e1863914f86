"""What becomes of what a child told about its batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextlab.analysis.frontier import Status
from contextlab.analysis.sweeps import Sweep
from contextlab.lab.isolate import ChildRun
from contextlab.lab.sweep import batches
from contextlab.model import TargetSpec

ERROR = {"error_type": "IndexError", "error": "index out of range in self", "failed_in": "reply of warm-up 0"}


@pytest.mark.parametrize(
    ("positions", "says"),
    [
        (128, ": 128 + 32 tokens are past its 128 positions; --load prompt_tokens=N and reply_tokens=N are theirs"),
        (160, ""),
        (None, ""),
    ],
)
def test_an_error_past_the_models_positions_is_put_down_to_them(
    positions: int | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts: dict[str, Any] = {"prompt_tokens": 128, "reply_tokens": 32, "positions": positions}
    lines = [{"kind": "measured", "measured": told} for told in (facts, ERROR)]
    monkeypatch.setattr(batches, "run_child", lambda *_, **__: ChildRun(lines=lines))
    spec = TargetSpec(name="hf:random/gpt2", scheme="hf", address="random/gpt2")
    evaluator = batches.BatchEvaluator(
        spec=spec, sweep=Sweep(axes=(), goals=()), restarts=frozenset(), folder=tmp_path, began_s=0.0
    )
    measured = evaluator.evaluate({"batch": 2}, 0)
    assert measured.status is Status.INFEASIBLE
    assert measured.why == f"IndexError: index out of range in self (in reply of warm-up 0){says}"
