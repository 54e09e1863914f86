"""A real llama.cpp server under a sweep: prompts that no cache has seen, and what a cache would have flattered."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import pytest

from contextlab import registry
from contextlab.analysis.frontier import Status
from contextlab.analysis.sweeps import Measurement
from contextlab.lab.sweep.evaluate import Evaluator, How
from contextlab.lab.sweep.plan import planned
from contextlab.targets.gguf import smollm2_file

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(200),
    pytest.mark.skipif(
        importlib.util.find_spec("xllamacpp") is None or smollm2_file() is None,
        reason="needs the extra `llama` and the model: pip install 'contextlab[llama]'; contextlab models add smollm2",
    ),
]


def measured(folder: Path, *, same_prompts: bool) -> Measurement:
    """One evaluation of one slot with prompts of about 96 tokens, after one that is thrown away."""
    spec = registry.parse_target("smollm2", ["kv_unified=false", "context=1024"])
    plan = planned(
        spec,
        axes=["slots=1"],
        fixed=["concurrency=1", "prompt_tokens=96", "reply_tokens=4"],
        goals=["up:tokens_per_s", "down:p50 ttft"],
        budget_s=60.0,
    )
    evaluator = Evaluator(
        spec=spec,
        sweep=plan.sweep,
        restarts=plan.restarts,
        how=How(measure_s=4.0, same_prompts=same_prompts, trust_host=True),
        folder=folder,
        began_s=time.monotonic(),
    )
    try:
        evaluator.evaluate(plan.configs[0], 0)
        return evaluator.evaluate(plan.configs[0], 1)
    finally:
        evaluator.close()


def test_a_prefix_cache_flatters_no_point(tmp_path: Path) -> None:
    """The same sweep with one prompt for all shows by how much it would: most of a prompt comes from the cache then."""
    fresh = measured(tmp_path, same_prompts=False)
    flattered = measured(tmp_path, same_prompts=True)
    assert fresh.status is Status.OK, fresh.why
    assert flattered.status is Status.OK, flattered.why
    assert float(fresh.facts["cached_share"] or 0.0) < 0.1
    assert float(flattered.facts["cached_share"] or 0.0) > 0.8
    by = float(fresh.values["p50 ttft"] or 0.0) / float(flattered.values["p50 ttft"] or 1.0)
    assert by > 2.0, f"a cached prompt's first token came only {by:.1f} times sooner"
    assert fresh.facts["window_tokens"] == 1024
