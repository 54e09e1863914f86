"""What became of each kind of request, who lost first, and which refusals say when to come again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis.qos import Fate, fate, is_clear, losses, qualities
from contextlab.experiment import Ending, Extra, Phase, Sample, Trial
from contextlab.model import Failure
from tests.analysis.trial_samples import (
    LOAD,
    broken_off,
    changed,
    during,
    experiment,
    refused,
    steady,
    timed_out,
    trial,
    unavailable,
    unsent,
    whole,
    with_arm,
)

ERROR = Failure(where="stream", message="overloaded")


def busy(sample: Sample, after: str = "2") -> Sample:
    """Refused with 429, and told when to come again."""
    told = unavailable(sample, 429)
    assert told.failure is not None
    return replace(told, failure=replace(told.failure, fields={"retry_after": after}))


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (whole(), Fate.SERVED),
        (replace(whole(), ending=Ending.RESET), Fate.SERVED),  # after its end
        (broken_off(whole(), 3), Fate.CUT),
        (broken_off(whole(), 3, Ending.RESET), Fate.CUT),
        (broken_off(whole(), 0, Ending.RESET), Fate.CUT),
        (replace(broken_off(whole(), 3), error_frames=(ERROR,)), Fate.CUT),
        (replace(broken_off(whole(), 0, Ending.WHOLE), error_frames=(ERROR,)), Fate.REFUSED),
        (refused(whole()), Fate.REFUSED),
        (unavailable(whole()), Fate.REFUSED),
        (unavailable(whole(), 500), Fate.REFUSED),
        (busy(whole()), Fate.REFUSED),
        (timed_out(whole()), Fate.TIMED_OUT),
        (broken_off(whole(), 2, Ending.TIMEOUT), Fate.TIMED_OUT),
        (replace(timed_out(whole()), ending=Ending.UNREACHED), Fate.TIMED_OUT),
        (unsent(whole()), Fate.TIMED_OUT),
    ],
)
def test_fates(sample: Sample, expected: Fate) -> None:
    assert fate(sample) is expected


@pytest.mark.parametrize(
    ("sample", "clear"),
    [
        (busy(whole()), True),
        (replace(busy(whole()), status=503), True),
        (replace(busy(whole()), status=500), False),
        (busy(whole(), ""), False),
        (unavailable(whole()), False),
        (refused(whole()), False),
    ],
)
def test_a_refusal_is_clear_that_says_busy_and_when(sample: Sample, clear: bool) -> None:
    assert is_clear(sample) is clear


def test_each_kind_is_counted_in_each_phase() -> None:
    """Of the first kind all are cut during the fault, of the second every other is told to come again."""

    def change(sample: Sample) -> Sample:
        if sample.mixed == 0:
            return broken_off(sample, 2)
        return busy(sample) if sample.index % 4 == 1 else sample

    found = {(one.kind, one.phase): one for one in qualities(trial(during(change)))}
    assert list(found) == [(kind, phase) for kind in ("count", "boil") for phase in Phase]
    cut, turned_away = found["count", Phase.DURING], found["boil", Phase.DURING]
    assert cut.fates[Fate.CUT] > 95
    assert cut.share_served < 0.05
    assert turned_away.fates[Fate.REFUSED] == turned_away.num_clear == 50
    assert turned_away.share_served == pytest.approx(0.5, abs=0.02)
    assert 0.04 < found["boil", Phase.CONTROL].ttft_p50.value < 0.06
    undisturbed = [one for one in found.values() if one.phase is not Phase.DURING]
    assert all(set(one.fates) == {Fate.SERVED} and one.num_clear == 0 for one in undisturbed)


def test_who_lost_first_stands_first() -> None:
    def change(sample: Sample) -> Sample:
        if sample.mixed == 1 and sample.due_s >= 12.0:
            return timed_out(sample, after_s=5.0)
        return refused(sample) if sample.mixed == 0 and sample.due_s >= 18.0 else sample

    first, second = losses(trial(during(change)))
    assert (first.kind, first.first_fate, second.kind, second.first_fate) == (
        "boil",
        Fate.TIMED_OUT,
        "count",
        Fate.REFUSED,
    )
    assert first.first_s == pytest.approx(7.0, abs=0.2)  # due 2 s into the fault, given up 5 s later
    assert second.first_s == pytest.approx(8.0, abs=0.2)
    assert first.last_s > second.last_s
    assert 0 < first.num_lost < first.n


def test_nothing_lost_is_no_loss() -> None:
    assert losses(trial()) == []
    assert losses(replace(trial(), fault=None)) == []
    early = changed(steady(seed=2), 3.0, 6.0, refused)
    assert losses(trial(early)) == []  # it was before the fault, and is no doing of it


def test_an_extra_load_that_does_not_count_elsewhere_counts_here() -> None:
    extra = Extra(load=replace(LOAD, duration_s=3.0), start_s=10.0, counts=False)
    more = tuple(replace(busy(whole(1000 + place, 10.1 + place / 10)), mixed=2 + place % 2) for place in range(20))
    made = Trial(
        experiment=experiment(extra=extra), knowledge=trial().knowledge, fault=with_arm(steady(seed=2), uncounted=more)
    )
    found = {one.kind: one for one in qualities(made) if one.mixed >= 2}
    assert set(found) == {"count (extra)", "boil (extra)"}
    assert all(one.num_clear == one.n == 10 and one.ttft_p50.value == float("inf") for one in found.values())


@given(st.lists(st.sampled_from([whole, refused, timed_out, unavailable, unsent, busy]), max_size=40))
def test_every_request_has_one_fate(kinds: list[object]) -> None:
    made = [whole(place, 10.0 + place / 10, mixed=place % 2) for place in range(len(kinds))]
    samples = [one if kind is whole else kind(one) for one, kind in zip(made, kinds, strict=True)]  # type: ignore[operator]
    found = qualities(replace(trial(), control=None, fault=with_arm(samples, length_s=30.0)))
    counted = sum((Counter(one.fates) for one in found), Counter[Fate]())
    assert counted == Counter(map(fate, samples))
    lost = losses(replace(trial(), control=None, fault=with_arm(samples, length_s=30.0)))
    assert sum(one.num_lost for one in lost) == counted.total() - counted[Fate.SERVED]
