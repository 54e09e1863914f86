"""The whole of it: a real Redis is refused in the middle of a load, and all comes as the model says; guards are worth
their while in the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.command import contextlab
from tests.lab.tier.tiers import needs_redis

pytestmark = [pytest.mark.process, pytest.mark.calm, pytest.mark.timeout(200), needs_redis]

OPTIONS = ("--scenario", "cache-outage", "--set", "token_delay_s=0.02", "--duration", "12s", "--json")


def said(document: dict[str, Any], probe: str, words: str) -> dict[str, Any]:
    """The one finding of an experiment that speaks of something."""
    [found] = [one for one in document["findings"] if one["probe"] == probe and words in one["why"]]
    return dict(found)


def test_an_outage_comes_as_foretold_and_guards_spare_the_target(tmp_path: Path) -> None:
    document = contextlab("chaos", "fake:caps", *OPTIONS, cwd=tmp_path).document
    guarded = said(document, "redis-gone", "the cache behaves as foretold")["evidence"]
    bare = said(document, "redis-gone-without-guards", "the cache behaves as foretold")["evidence"]
    for numbers in (guarded, bare):
        for name in ("local", "redis", "origin", "amplification"):
            apart = abs(numbers[f"during_{name}"] - numbers[f"during_{name}_foretold"])
            assert apart <= numbers[f"during_{name}_tolerance"], name
        assert numbers["during_redis"] == pytest.approx(0.0, abs=0.05)
    assert guarded["during_breaker_open_s"] > 2.0
    assert guarded["during_breaker_openings"] >= 1
    assert bare["during_amplification"] > guarded["during_amplification"]
    assert said(document, "redis-gone-without-guards", "origin requests for each key")["outcome"] == "OK"
