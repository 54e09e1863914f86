"""Deaths by our own hand: what became of open streams, what must not be, how a process died; on trials made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextlab.analysis.asked import num_under_way, with_asked
from contextlab.analysis.deaths import aftermaths, how_it_ended, judge_deaths, settled
from contextlab.analysis.integrity import Integrity
from contextlab.analysis.loads import usual_load
from contextlab.analysis.open_streams import NUM_STREAMS, open_at
from contextlab.deeds import Death
from contextlab.experiment import Arm, Asked, Ending, Experiment, FaultEvidence, Landed, Placed, Sample, Trial
from contextlab.model import Knowledge, Limits, Outcome, ProcessEnd
from tests.analysis.trial_samples import (
    KNOWN,
    LOAD,
    PIECES,
    REFERENCES,
    broken_off,
    outcomes,
    refused,
    steady,
    timed_out,
    unavailable,
    unsent,
    whole,
    with_text,
)

KILLED = ProcessEnd(signal="SIGKILL", out_of_memory=False)
AT_S = 10.1
KILL = Placed(name="kill", start_s=10.0, length_s=5.0)


def trial(
    *samples: Sample, deaths: tuple[Death, ...] | None = None, fault: Placed = KILL, uncounted: tuple[Sample, ...] = ()
) -> Trial:
    told = (Death(at_s=AT_S, end=KILLED, ours=True, ready_s=0.7),) if deaths is None else deaths
    arm = Arm(name="fault", length_s=30.0, samples=samples, uncounted=uncounted, deaths=told)
    control = Arm(name="control", length_s=30.0, samples=steady())
    experiment = Experiment(name="x", load=LOAD, faults=(fault,))
    return Trial(experiment=experiment, knowledge=KNOWN, control=control, fault=arm, references=REFERENCES)


def open_stream(index: int, ending: Ending = Ending.RESET, events: int = 3) -> Sample:
    """A stream that began before the death and broke off just then."""
    return replace(broken_off(whole(index, AT_S - 0.1), events, ending), ended_s=AT_S - 0.002)


# ── what became of open streams ──────────────────────────────────────────────────────────────────


def test_every_stream_that_was_open_has_a_name_and_none_is_an_answer() -> None:
    samples = (
        whole(0, 5.0),  # long over
        open_stream(1),
        open_stream(2, Ending.FIN),
        replace(unavailable(whole(3, AT_S - 0.05), 502), ended_s=AT_S + 0.01),  # a gateway says so
        replace(broken_off(whole(4, AT_S - 0.02), 0, Ending.RESET), ended_s=AT_S, status=None, first_byte_s=None),
        refused(whole(5, AT_S + 0.3)),  # came later
        whole(6, AT_S + 2.0),
        unsent(whole(7, 12.0)),
    )
    [found] = aftermaths(trial(*samples))
    assert [sample.index for sample, _ in found.readings] == [1, 2, 3, 4]
    assert found.names == {Integrity.RESET: 2, Integrity.CUT: 1, Integrity.HTTP_ERROR: 1}
    assert found.endings == {Ending.RESET: 2, Ending.FIN: 1, Ending.WHOLE: 1}
    assert (found.hanging, found.mistaken, found.in_time) == (0, 0, 0)
    assert found.words == "4 requests were under way: 2 RESET, 1 CUT, 1 HTTP_ERROR; it answered again after 700ms"
    assert found.evidence["ready_s"] == 0.7
    slow = replace(found, death=replace(found.death, ready_s=2.221724))
    assert slow.words.endswith("; it answered again after 2.22s")
    assert found.evidence["seen_reset"] == found.evidence["transport_reset"] == 2
    assert list(judge_deaths(trial(*samples))) == []


def test_a_stream_that_was_whole_in_time_lost_nothing() -> None:
    """Its last words had left before the death, or an orderly end let it finish."""
    last_moment = whole(1, AT_S - 0.25)
    assert last_moment.ended_s is not None
    assert AT_S - 0.1 < last_moment.ended_s < AT_S
    [found] = aftermaths(trial(last_moment, whole(2, AT_S - 0.1), open_stream(3)))
    assert (found.in_time, len(found.readings)) == (2, 1)


def test_an_orderly_end_takes_time_and_breaks_streams_long_before_it() -> None:
    slow = Death(at_s=AT_S + 2.0, end=ProcessEnd(exit_code=0), ours=True, took_s=2.0)
    samples = (
        open_stream(1, Ending.FIN),
        whole(2, AT_S - 0.1),
        replace(unavailable(whole(3, AT_S + 1.0), 503), ended_s=AT_S + 1.01),  # it still spoke
        refused(whole(4, AT_S + 1.5)),
        refused(whole(5, AT_S - 0.1)),  # this one had a queue to wait in, and nobody took it out
    )
    [found] = aftermaths(trial(*samples, deaths=(slow,)))
    assert [sample.index for sample, _ in found.readings] == [1, 3]
    assert found.in_time == 1


def test_streams_of_an_extra_load_that_does_not_count_are_looked_at_too() -> None:
    [found] = aftermaths(trial(open_stream(1), uncounted=(open_stream(2),)))
    assert len(found.readings) == 2


def test_half_an_answer_that_passes_for_a_whole_one() -> None:
    half = replace(with_text(whole(1, AT_S - 0.1), PIECES[:3]), ended_s=AT_S + 0.01)
    [found] = judge_deaths(trial(half, open_stream(2)))
    assert found.outcome is Outcome.STREAM_DAMAGED
    assert found.why.startswith("1 of 2 requests that were under way when the server was killed pass for whole answers")
    assert found.evidence["count"] == 1


@pytest.mark.parametrize(
    "hanging",
    [
        replace(broken_off(whole(1, AT_S - 0.1), 3, Ending.TIMEOUT), ended_s=AT_S + 4.9),
        timed_out(whole(1, AT_S - 0.1)),
    ],
    ids=["in its middle", "before its first byte"],
)
def test_a_client_that_nobody_told_anything(hanging: Sample) -> None:
    [found] = judge_deaths(trial(hanging, open_stream(2)))
    assert found.outcome is Outcome.HUNG
    assert found.why.startswith("1 of 2 requests")
    assert "without a word" in found.why


# ── deaths and returns ───────────────────────────────────────────────────────────────────────────


def test_a_death_that_is_told_twice_is_one() -> None:
    first = Death(at_s=AT_S, end=KILLED, ours=True)
    second = replace(first, ready_s=0.7)
    other = replace(first, at_s=20.0)
    assert settled([first, second, other]) == (second, other)
    assert len(aftermaths(trial(deaths=(first, second)))) == 1


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("kill", {}, [Outcome.NOT_RECOVERED]),
        ("crash-loop", {}, [Outcome.NOT_RECOVERED]),
        ("kill", {"restart": False}, []),
        ("pause", {}, []),
    ],
)
def test_one_that_was_started_again_must_answer(name: str, options: dict[str, bool], expected: list[Outcome]) -> None:
    dead = Death(at_s=AT_S, end=KILLED, ours=True)
    found = list(judge_deaths(trial(deaths=(dead,), fault=replace(KILL, name=name, options=options))))
    assert outcomes(found) == expected
    if found:
        assert "did not answer again after it had been killed by SIGKILL, which somebody sent" in found[0].why


def test_a_death_that_is_not_ours_is_for_others_to_judge() -> None:
    assert aftermaths(trial(open_stream(1), deaths=(Death(at_s=AT_S, end=KILLED, ours=False),))) == ()
    assert aftermaths(replace(trial(), fault=None)) == ()


ENDS = {
    "its control group counted it, at a peak of 64 MiB": ProcessEnd(
        signal="SIGKILL", out_of_memory=True, peak_memory_bytes=64 << 20
    ),
    "which somebody sent: its control group counted no kill": KILLED,
    "not known: no control group counted": ProcessEnd(signal="SIGKILL"),
    "ended by SIGABRT, out of memory by its own words": ProcessEnd(signal="SIGABRT", out_of_memory=True),
    "ended by SIGSEGV": ProcessEnd(signal="SIGSEGV", out_of_memory=False),
    "ended with exit code 0": ProcessEnd(exit_code=0),
}


@pytest.mark.parametrize("words", ENDS)
def test_words_of_an_end(words: str) -> None:
    assert words in how_it_ended(ENDS[words])
    assert len({how_it_ended(end) for end in ENDS.values()}) == len(ENDS)


# ── whether anybody asked ────────────────────────────────────────────────────────────────────────


def evidence(engine: str, proven: bool | None = True) -> FaultEvidence:
    return FaultEvidence(name="pause", engine=engine, landed=Landed(proven=proven, why="it stood still"))


def test_a_pause_that_met_no_request_is_not_proven() -> None:
    idle = (whole(0, 5.0), whole(1, 20.0), unsent(whole(2, 11.0)))
    [found] = with_asked([evidence("host")], [KILL], idle)
    assert found.landed == Landed(proven=False, why="no request was under way while it acted; it stood still")
    for samples in ((*idle, whole(3, 9.9)), (*idle, whole(3, 14.9)), (whole(3, 12.0),)):
        assert with_asked([evidence("host")], [KILL], samples) == (evidence("host"),)


@pytest.mark.parametrize("one", [evidence("relay"), evidence("host", None), evidence("host", False)])
def test_what_was_not_proven_or_is_no_host_fault_stays(one: FaultEvidence) -> None:
    assert with_asked([one], [KILL], ()) == (one,)


@given(start_s=st.floats(0, 20), length_s=st.floats(0.1, 20), due_s=st.floats(0, 40), lasts_s=st.floats(0.01, 10))
def test_a_request_is_under_way_exactly_where_its_time_and_the_faults_meet(
    start_s: float, length_s: float, due_s: float, lasts_s: float
) -> None:
    placed = Placed(name="pause", start_s=start_s, length_s=length_s)
    sample = Sample(index=0, mixed=0, due_s=due_s, ending=Ending.WHOLE, sent_s=due_s, ended_s=due_s + lasts_s)
    meets = max(start_s, due_s) < min(placed.end_s, due_s + lasts_s)
    assert num_under_way(placed, [sample]) == int(meets)


# ── streams that are open at a moment ────────────────────────────────────────────────────────────


@given(
    speed=st.floats(0.1, 5000) | st.none(),
    window=st.integers(64, 1 << 17) | st.none(),
    duration_s=st.floats(3, 600),
)
def test_streams_are_open_at_the_moment_by_the_targets_own_speed(
    speed: float | None, window: int | None, duration_s: float
) -> None:
    known = Knowledge(flavour="other", model="m", limits=Limits(context_tokens=window), decode_tokens_per_s=speed)
    asked, at_s = Asked(duration_s=duration_s), duration_s / 3
    extra = open_at(at_s, known, asked)
    assert extra.counts
    assert extra.start_s >= 0
    assert extra.start_s + extra.load.duration_s == pytest.approx(at_s, abs=1e-5)
    assert len(extra.load.arrivals.trace_s) == NUM_STREAMS
    assert max(extra.load.arrivals.trace_s) < extra.load.duration_s
    assert extra.load.timeout_s == usual_load(known, asked).timeout_s
    tokens = extra.load.mix[0].request.reply_tokens
    assert tokens is not None
    assert window is None or tokens <= window
    if speed is not None:  # each would still be speaking then
        assert all(extra.start_s + due_s + tokens / speed > at_s for due_s in extra.load.arrivals.trace_s)
