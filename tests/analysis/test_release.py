"""What counts as freed in time, on readings made by hand; and what an arm cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis.cost import cost
from contextlab.analysis.release import MEMORY_SLACK_BYTES, WORDS, allowed, held, judge_release, orphans
from contextlab.deeds import Death, Reading
from contextlab.experiment import Arm, Experiment, FaultEvidence, GaugeSample, Landed, Placed, Sample, Trial
from contextlab.model import Gauges, Judgement, Outcome, ProcessEnd
from tests.analysis.trial_samples import KNOWN, LOAD, broken_off, whole

MIB = 1 << 20
BEFORE = {"busy_slots": 0.0, "descriptors": 7.0, "threads": 4.0, "rss_bytes": 100.0 * MIB, "root_started": 5.0}
LEFT = Placed(name="abort", start_s=5.0, length_s=5.0)
CROWD = FaultEvidence(name="abort", engine="crowd", landed=Landed(proven=True, why="9 replies left"))


def readings(
    *after: dict[str, float], before: dict[str, float] | None = None, end_s: float = 30.0
) -> tuple[Reading, ...]:
    """A baseline, and readings half a second apart from the arm's end on; what they do not name is as before."""
    first = BEFORE if before is None else before
    return (
        Reading(source="release", at_s=-0.3, values=first),
        Reading(source="process", at_s=1.0, values={"descriptors": 99.0}),
        *(
            Reading(source="release", at_s=end_s + 0.5 * number, values={**first, **values})
            for number, values in enumerate(after)
        ),
    )


def arm(*after: dict[str, float], **fields: Any) -> Arm:
    return Arm(**{"name": "fault", "length_s": 30.0, "readings": readings(*after), "evidence": (CROWD,), **fields})


def judged(
    fault: Arm | None, control: Arm | None = None, *, within_s: float | None = 2.0, **fields: Any
) -> list[Judgement]:
    experiment = Experiment(name="x", load=LOAD, faults=(LEFT,), release_within_s=within_s, **fields)
    return judge_release(Trial(experiment=experiment, knowledge=KNOWN, control=control, fault=fault))


def test_what_is_back_is_ok_with_its_time() -> None:
    [found] = judged(arm({"busy_slots": 3.0, "descriptors": 20.0}, {"busy_slots": 0.0, "descriptors": 20.0}, {}))
    assert found.outcome is Outcome.OK
    assert found.evidence["busy_slots_free_after_s"] == 0.5
    assert found.evidence["descriptors_free_after_s"] == 1.0
    assert found.evidence["threads_free_after_s"] == 0.0
    assert "1s" in found.why


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("busy_slots", 1.0, "1 slots busy (0 before)"),
        ("descriptors", 10.0, "10 file descriptors open (7 before, up to 9 is noise)"),
        ("threads", 7.0, "7 threads (4 before, up to 6 is noise)"),
        ("rss_bytes", 150.0 * MIB, "150.0 MiB of memory (100.0 MiB before, up to 116.0 MiB is noise)"),
    ],
)
def test_what_stays_is_named_with_how_much_and_how_long(name: str, value: float, words: str) -> None:
    [found] = judged(arm(*[{name: value}] * 5))
    assert found.outcome is Outcome.NOT_RELEASED
    assert found.why == f"not free 2s after the load: {words}"
    assert found.evidence[f"{name}_after"] == value
    assert found.evidence[f"{name}_free_after_s"] == "never"


def test_what_is_back_too_late_is_not_released() -> None:
    late = arm(*[{"busy_slots": 1.0}] * 6, {})
    assert judged(late, within_s=2.0)[0].outcome is Outcome.NOT_RELEASED
    assert judged(late, within_s=3.0)[0].outcome is Outcome.OK


def test_what_the_control_arm_kept_too_is_no_leak_but_a_slot_is() -> None:
    grown = {"rss_bytes": 150.0 * MIB, "threads": 30.0, "descriptors": 40.0}
    control = arm(grown, name="control", evidence=())
    assert judged(arm(grown), control)[0].outcome is Outcome.OK
    more = {**grown, "rss_bytes": 167.0 * MIB}
    assert "167.0 MiB" in judged(arm(more), control)[0].why
    busy = arm({"busy_slots": 1.0})
    assert judged(busy, replace(busy, name="control"))[0].outcome is Outcome.NOT_RELEASED


def test_a_control_that_shrank_excuses_nothing() -> None:
    control = arm({"descriptors": 1.0}, name="control")
    assert judged(arm({"descriptors": 10.0}), control)[0].outcome is Outcome.NOT_RELEASED


def test_it_is_judged_only_where_it_is_asked_and_there_is_something_to_judge() -> None:
    leaking = arm({"busy_slots": 1.0})
    assert judged(leaking, within_s=None) == []
    assert judged(None) == []
    assert judged(replace(leaking, server=ProcessEnd(signal="SIGSEGV"))) == []
    [nothing] = judged(arm(readings=()))
    assert nothing.outcome is Outcome.UNKNOWN
    assert "no gauges" in nothing.why


def test_a_target_that_is_silent_afterwards_is_not_well() -> None:
    before, *after = arm({}, {}).readings
    mute = [
        replace(one, values={key: value for key, value in one.values.items() if key != "busy_slots"}) for one in after
    ]
    [found] = judged(arm(readings=(before, *mute)))
    assert found.outcome is Outcome.UNKNOWN
    assert "nothing told of slots after the load" in found.why
    [gone] = judged(arm(readings=(before,)))
    assert (gone.outcome, "memory" in gone.why) == (Outcome.UNKNOWN, True)


def test_another_process_is_not_compared() -> None:
    death = Death(at_s=6.0, end=ProcessEnd(signal="SIGKILL"), ours=True)
    [found] = judged(arm({"root_started": 9.0, "busy_slots": 1.0}, deaths=(death,)))
    assert found.outcome is Outcome.UNKNOWN
    assert "another one" in found.why


@given(
    st.dictionaries(st.sampled_from(sorted(WORDS)), st.floats(0, 1e12)),
    st.sampled_from(sorted(WORDS)),
    st.floats(0, 1e9),
)
def test_more_held_is_never_judged_better(before: dict[str, float], name: str, more: float) -> None:
    less_held, more_held = (
        held(Arm(name="f", length_s=1.0, readings=readings({name: value}, before=before)))
        for value in (before.get(name, 0.0), before.get(name, 0.0) + more)
    )
    assert [one.name for one in less_held] == [one for one in WORDS if one in before]
    assert all(one.after_s == 0.0 for one in less_held)
    assert sum(one.after_s is None for one in more_held) <= 1
    if name in before:
        is_kept = any(one.after_s is None for one in more_held)
        assert is_kept is (before[name] + more > allowed(name, before[name]))


def test_memory_has_room_in_proportion() -> None:
    assert allowed("rss_bytes", 0.0) == MEMORY_SLACK_BYTES
    assert allowed("rss_bytes", 1000.0 * MIB) == pytest.approx(1100.0 * MIB)
    assert allowed("busy_slots", 3.0, noise=9.0) == 3.0
    assert allowed("threads", 3.0, noise=9.0) == 14.0


# ── slots busy for nobody, while the load goes on ────────────────────────────────────────────────


def streaming(*samples: Sample, busy: dict[float, int]) -> Arm:
    gauges = tuple(GaugeSample(at_s=at_s, gauges=Gauges(busy_slots=value)) for at_s, value in busy.items())
    return arm({}, samples=samples, gauges=gauges)


NEIGHBOUR = tuple(replace(whole(number), sent_s=float(number), ended_s=number + 0.99) for number in range(30))
"""One stream after the other, always one at a time."""
EXPERIMENT = Experiment(name="x", load=LOAD, faults=(LEFT,), release_within_s=2.0)


def test_a_slot_beyond_the_loads_own_is_an_orphans() -> None:
    fault = streaming(*NEIGHBOUR, busy={8.0: 4, 12.5: 4, 14.5: 3, 16.5: 1})
    found = orphans(EXPERIMENT, fault)
    assert found is not None
    assert (found.most, found.first_s, found.last_s) == (2, 2.5, 4.5)  # where one ends and one begins, two may be busy
    [stray] = [one for one in judged(fault) if one.outcome is Outcome.NOT_RELEASED]
    assert "2 slots were busy for nobody, up to 4.5s after the last of the clients had left (allowed: 2s)" in stray.why
    assert stray.evidence["orphans"] == 2


def test_no_slot_is_an_orphans_as_long_as_somebody_may_be_in_it() -> None:
    assert orphans(EXPERIMENT, streaming(*NEIGHBOUR, busy={12.5: 2, 14.5: 1, 16.5: 0})) is None
    assert orphans(EXPERIMENT, streaming(*NEIGHBOUR, busy={11.9: 9})) is None  # too early to tell
    waiting = replace(whole(99), sent_s=11.0, ended_s=None)
    assert orphans(EXPERIMENT, streaming(*NEIGHBOUR, waiting, busy={12.5: 3})) is None
    given_up = replace(broken_off(whole(99), 3), sent_s=10.0, ended_s=11.0)
    assert orphans(EXPERIMENT, streaming(*NEIGHBOUR, given_up, busy={12.5: 3})) is None
    assert orphans(EXPERIMENT, streaming(*NEIGHBOUR, given_up, busy={14.5: 3})) is not None
    looked = replace(EXPERIMENT, health=True)
    assert orphans(looked, streaming(*NEIGHBOUR, busy={12.5: 3})) is None


def test_without_misbehaving_clients_nobody_is_an_orphan() -> None:
    fault = streaming(*NEIGHBOUR, busy={12.5: 9})
    assert orphans(EXPERIMENT, replace(fault, evidence=())) is None
    assert orphans(replace(EXPERIMENT, release_within_s=None), fault) is None


# ── cost ─────────────────────────────────────────────────────────────────────────────────────────


def test_whole_answers_are_used_and_broken_ones_are_not() -> None:
    spent = cost(Arm(name="fault", length_s=1.0, samples=(whole(0), broken_off(whole(1), 4))))
    assert (spent.generated_tokens, spent.delivered_tokens, spent.used_tokens) == (13, 13, 9)
    assert spent.wasted_share == pytest.approx(4 / 13)
    assert (spent.requests, spent.requests_repeated, spent.amplification) == (2, 0, 1.0)
    assert not spent.counted


def test_clients_that_leave_and_ask_again_cost_too() -> None:
    tally = {
        "events": 30.0,
        "events_in_answers": 10.0,
        "tokens_in_answers": 12.0,
        "requests": 8.0,
        "requests_repeated": 5.0,
    }
    stormy = replace(CROWD, tally=tally)
    wire = FaultEvidence(name="cut", engine="relay", tally=tally)
    spent = cost(Arm(name="fault", length_s=1.0, samples=(whole(0),), evidence=(stormy, wire)))
    assert (spent.delivered_tokens, spent.used_tokens) == (9 + 20 + 12, 9 + 12)
    assert (spent.requests, spent.requests_repeated) == (9, 5)
    assert spent.amplification == pytest.approx(9 / 4)
    assert spent.numbers["tokens_used"] == 21


def test_the_targets_own_counter_knows_what_nobody_saw() -> None:
    before = {**BEFORE, "generated_tokens": 100.0}
    counted = cost(
        Arm(
            name="fault",
            length_s=1.0,
            samples=(whole(0),),
            readings=readings({"generated_tokens": 160.0}, before=before),
        )
    )
    assert (counted.generated_tokens, counted.used_tokens, counted.counted) == (60, 9, True)
    assert counted.wasted_share == pytest.approx(51 / 60)
    low = cost(
        Arm(name="f", length_s=1.0, samples=(whole(0),), readings=readings({"generated_tokens": 101.0}, before=before))
    )
    assert low.generated_tokens == 9  # it leaves out what it gave up: what came is the least


def test_an_arm_in_which_nothing_happened_has_no_share() -> None:
    nothing = cost(Arm(name="fault", length_s=1.0))
    assert (nothing.wasted_share, nothing.amplification) == (None, None)
