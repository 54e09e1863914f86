"""The judges of the scenarios that stop and kill the server, on trials made by hand."""

from __future__ import annotations

from dataclasses import replace

from contextlab.deeds import Death, Deed
from contextlab.experiment import Arm, Ending, Experiment, Placed, Sample, Trial
from contextlab.model import Outcome, ProcessEnd
from contextlab.scenarios.chaos import kill_mid_stream, pause_and_resume
from tests.analysis.trial_samples import KNOWN, LOAD, REFERENCES, broken_off, late, timed_out, whole

PAUSE = Placed(name="pause", start_s=5.0, length_s=2.0)
KILL = Placed(name="kill", start_s=5.0, length_s=2.0)


def trial(fault: Placed, *samples: Sample, ready_s: float | None = 0.6) -> Trial:
    control = Arm(name="control", length_s=9.0, samples=tuple(whole(index, 0.1 * index) for index in range(20)))
    death = Death(at_s=5.01, end=ProcessEnd(signal="SIGKILL"), ours=True, ready_s=ready_s)
    arm = Arm(
        name="fault",
        length_s=9.0,
        samples=samples,
        deaths=(death,) if fault is KILL else (),
        deeds=(Deed(at_s=5.01, fault=fault.name, what="killed" if fault is KILL else "stopped"),),
    )
    experiment = Experiment(name="x", load=LOAD, faults=(fault,))
    return Trial(experiment=experiment, knowledge=KNOWN, control=control, fault=arm, references=REFERENCES)


def over_the_pause(index: int) -> Sample:
    """A stream that was silent for two seconds in its middle."""
    sample = late(whole(index, 4.9), 2.0)
    times = (*whole(index, 4.9).content_s[:2], *sample.content_s[2:])
    return replace(sample, content_s=times, first_byte_s=times[0])


def test_streams_that_go_on_after_a_pause() -> None:
    seen = trial(PAUSE, whole(0, 1.0), over_the_pause(1), over_the_pause(2), whole(3, 8.0))
    [found] = pause_and_resume.judge(seen.experiment, seen)
    assert found.outcome is Outcome.OK
    assert found.why == "all of 2 streams that it met went on; the longest silence was 2.02s"
    assert found.evidence == {"met": 2, "went_on": 2, "longest_silence_s": 2.02}


def test_a_stream_that_does_not_go_on_after_a_pause() -> None:
    seen = trial(PAUSE, over_the_pause(1), timed_out(whole(2, 4.9)))
    [found] = pause_and_resume.judge(seen.experiment, seen)
    assert found.outcome is Outcome.CUT
    assert found.why.startswith("1 of 2 streams")


def test_a_pause_that_meets_no_stream() -> None:
    seen = trial(PAUSE, whole(0, 1.0), whole(3, 8.0))
    assert [one.outcome for one in pause_and_resume.judge(seen.experiment, seen)] == [Outcome.UNKNOWN]
    assert list(pause_and_resume.judge(seen.experiment, replace(seen, fault=None))) == []


def test_open_streams_that_broke_off_with_the_server() -> None:
    broken = replace(broken_off(whole(1, 4.9), 2, Ending.RESET), ended_s=5.01)
    seen = trial(KILL, whole(0, 1.0), broken)
    [found] = kill_mid_stream.judge(seen.experiment, seen)
    assert found.outcome is Outcome.OK
    assert found.why == "1 request was under way: 1 RESET; it answered again after 600ms"


def test_a_kill_that_met_nobody() -> None:
    seen = trial(KILL, whole(0, 1.0))
    [found] = kill_mid_stream.judge(seen.experiment, seen)
    assert found.outcome is Outcome.UNKNOWN
    assert "nothing was under way" in found.why


def test_a_client_left_without_a_word_is_not_ok() -> None:
    """The common judges say what it is."""
    seen = trial(KILL, timed_out(whole(2, 4.9)))
    assert list(kill_mid_stream.judge(seen.experiment, seen)) == []
