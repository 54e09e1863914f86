"""The chaos scenarios: every plan is one that can be run, and their own judges on trials made by hand."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from contextlab import registry
from contextlab.experiment import Arm, Asked, Ending, Experiment, Trial
from contextlab.model import Knowledge, Limits, Outcome
from contextlab.scenarios.chaos import cut_streams, overflow_under_load, packet_loss, pressure
from tests.analysis.trial_samples import KNOWN, LOAD, REFERENCES, broken_off, whole

TARGET = Knowledge(
    flavour="other",
    model="m",
    limits=Limits(context_tokens=512),
    powers=frozenset({"completions", "window"}),
    decode_tokens_per_s=50.0,
)

ASKED = Asked()


def experiments(name: str, asked: Asked = ASKED) -> list[Experiment]:
    """The plan of a scenario, as far as it goes without seeing anything."""
    scenario = registry.scenarios("chaos")[name]
    return [step for step in scenario.plan(TARGET, asked, Random(0)) if isinstance(step, Experiment)]


@pytest.mark.parametrize("name", registry.scenarios("chaos"))
@pytest.mark.parametrize("duration_s", [6.0, 30.0])
def test_every_experiment_can_be_run(name: str, duration_s: float) -> None:
    found = experiments(name, Asked(duration_s=duration_s))
    assert found
    assert len({one.name for one in found}) == len(found)
    for one in found:
        assert one.faults or one.extra is not None
        for placed in one.faults:
            text = registry.shown_fault(placed)
            assert registry.parse_fault(text, start_s=0.0, length_s=1.0) == placed
        assert all(0 <= start_s < end_s <= duration_s for start_s, end_s in one.windows)
        assert one.load.arrivals.rate_per_s > 0


def test_the_rates_and_round_trips_of_the_issue() -> None:
    rates = [one.faults[0].options["rate"] for one in experiments("packet-loss")]
    assert rates == list(packet_loss.RATES) == [0.05, 0.10, 0.15, 0.20]
    *steady, swinging = [one.faults[0] for one in experiments("jitter-under-load")]
    assert [float(placed.options["delay_s"] or 0) for placed in steady] == [0.025, 0.1, 0.4]
    mean_s, spread_s = (float(swinging.options[name] or 0) for name in ("delay_s", "jitter_s"))
    assert (2 * (mean_s - spread_s), 2 * (mean_s + spread_s)) == pytest.approx((0.05, 0.8))


def test_experiments_of_one_scenario_share_their_load() -> None:
    loads = {repr(one.load) for name in ("packet-loss", "cut-streams") for one in experiments(name)}
    assert len(loads) == 1


def trial(*samples: object, uncounted: tuple[object, ...] = ()) -> Trial:
    """A control of whole streams, and an arm with these."""
    control = Arm(name="control", length_s=9.0, samples=tuple(whole(index, 0.1 * index) for index in range(20)))
    fault = Arm(name="fault", length_s=9.0, samples=samples, uncounted=uncounted)  # type: ignore[arg-type]
    experiment = Experiment(name="x", load=LOAD)
    return Trial(experiment=experiment, knowledge=KNOWN, control=control, fault=fault, references=REFERENCES)


def test_a_cut_that_the_transport_shows_is_noticed() -> None:
    [found] = cut_streams.judge(Experiment(name="x", load=LOAD), trial(whole(0), broken_off(whole(1), 3, Ending.RESET)))
    assert found.outcome is Outcome.OK
    assert found.evidence["noticed by transport"] == 1


def test_a_damaged_stream_that_looks_whole_is_noticed_by_nobody() -> None:
    shorter = replace(whole(1), pieces=whole(1).pieces[:4] + whole(1).pieces[5:])
    [found] = cut_streams.judge(Experiment(name="x", load=LOAD), trial(whole(0), shorter))
    assert found.outcome is Outcome.STREAM_DAMAGED
    assert "1 of 1" in found.why


def test_over_long_prompts_must_be_refused_clearly() -> None:
    experiment = Experiment(name="too-long", load=LOAD)
    refused = replace(whole(50), status=400)
    assert list(overflow_under_load.judge(experiment, trial(whole(0), uncounted=(refused,)))) == []
    [found] = overflow_under_load.judge(experiment, trial(whole(0), uncounted=(refused, whole(51))))
    assert found.outcome is Outcome.REJECTED_BADLY
    assert found.evidence == {"over_long": 2, "refused_clearly": 1, "answered": 1}


def test_pressure_counts_what_was_answered_and_says_at_what_rate() -> None:
    sent = tuple(whole(index, 0.01 * index) for index in range(101))
    [found] = pressure.judge(Experiment(name="100-a-second", load=LOAD), trial(whole(0), uncounted=sent))
    assert found.outcome is Outcome.OK
    assert (found.evidence["sent"], found.evidence["answered"]) == (101, 101)
    assert float(found.evidence["sent_per_s"] or 0) == pytest.approx(100.0, rel=0.01)
