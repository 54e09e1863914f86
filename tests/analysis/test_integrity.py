"""Each misbehaviour of a stream has its own name; the same text always passes, however it was cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from contextlab.analysis.alignment import SAME, differences
from contextlab.analysis.integrity import (
    DAMAGE,
    Integrity,
    Norms,
    Noticed,
    Reading,
    admissible,
    judge,
    judge_all,
    norms,
    references_of,
)
from contextlab.experiment import Ending, Sample
from contextlab.model import Failure, Usage
from tests.analysis.trial_samples import (
    OTHER,
    PIECES,
    REFERENCES,
    broken_off,
    refused,
    timed_out,
    unavailable,
    unsent,
    whole,
    with_text,
)

ERROR = Failure(where="stream", message="engine error")
EVENTS = st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=12)
FEW = st.lists(st.sampled_from(["a", "b", "ab", " "]), min_size=1, max_size=12)
"""Events that repeat each other, for the ambiguous cases."""


def read(sample: Sample, usual: Norms | None = None) -> Reading:
    return judge(sample, REFERENCES, usual or Norms())


def without(number: int, pieces: Sequence[str] = PIECES) -> tuple[str, ...]:
    return (*pieces[:number], *pieces[number + 1 :])


def doubled(number: int, pieces: Sequence[str] = PIECES) -> tuple[str, ...]:
    return (*pieces[: number + 1], *pieces[number:])


def altered(number: int, text: str, pieces: Sequence[str] = PIECES) -> tuple[str, ...]:
    return (*pieces[:number], text, *pieces[number + 1 :])


ALL = whole()
LAST = len(PIECES)

# ── one name for each ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("sample", "name", "where", "noticed"),
    [
        (ALL, Integrity.INTACT, "", Noticed.NOTHING),
        (whole(num_frames=0, num_done=0), Integrity.INTACT, "", Noticed.NOTHING),
        (unsent(ALL), Integrity.UNSENT, "", Noticed.NOTHING),
        (refused(ALL), Integrity.REFUSED, "before the answer", Noticed.TRANSPORT),
        (replace(refused(ALL), ending=Ending.UNREACHED), Integrity.UNREACHED, "before the answer", Noticed.TRANSPORT),
        (replace(refused(ALL), ending=Ending.GARBLED), Integrity.GARBLED, "before the answer", Noticed.TRANSPORT),
        (replace(refused(ALL), ending=Ending.RESET), Integrity.RESET, "before the answer", Noticed.TRANSPORT),
        (replace(refused(ALL), ending=Ending.FIN), Integrity.CUT, "before the answer", Noticed.TRANSPORT),
        (unavailable(ALL), Integrity.HTTP_ERROR, "HTTP 503", Noticed.PROTOCOL),
        (timed_out(ALL), Integrity.TIMED_OUT_BEFORE_FIRST, "before the answer", Noticed.TIMEOUT),
        (
            broken_off(ALL, 0, Ending.TIMEOUT, after_s=5.0),
            Integrity.TIMED_OUT_BEFORE_FIRST,
            "before its first content",
            Noticed.TIMEOUT,
        ),
        (broken_off(ALL, 0), Integrity.CUT, "before its first content", Noticed.TRANSPORT),
        (broken_off(ALL, 4), Integrity.CUT, "after event 3", Noticed.TRANSPORT),
        (broken_off(ALL, LAST), Integrity.CUT, "before finish_reason", Noticed.TRANSPORT),
        (whole(ending=Ending.FIN, num_done=0), Integrity.CUT, "before [DONE]", Noticed.TRANSPORT),
        (whole(ending=Ending.FIN), Integrity.CUT, "after [DONE]", Noticed.TRANSPORT),
        (broken_off(ALL, 4, Ending.WHOLE), Integrity.CUT, "after event 3", Noticed.PROTOCOL),
        (broken_off(ALL, 4, Ending.RESET), Integrity.RESET, "after event 3", Noticed.TRANSPORT),
        (whole(ending=Ending.RESET, num_done=0), Integrity.RESET, "before [DONE]", Noticed.TRANSPORT),
        (broken_off(ALL, 4, Ending.TIMEOUT, after_s=5.0), Integrity.HALF_OPEN, "after event 3", Noticed.TIMEOUT),
        (
            broken_off(ALL, LAST, Ending.TIMEOUT, after_s=5.0),
            Integrity.HALF_OPEN,
            "before finish_reason",
            Noticed.TIMEOUT,
        ),
        (broken_off(ALL, 4, Ending.TIMEOUT, after_s=0.1), Integrity.TIMED_OUT, "after event 3", Noticed.TIMEOUT),
        (with_text(ALL, without(3)), Integrity.MISSING, "from event 3", Noticed.NOBODY),
        (with_text(ALL, PIECES[:-2]), Integrity.MISSING, "from event 7", Noticed.NOBODY),
        (with_text(ALL, ()), Integrity.MISSING, "from event 0", Noticed.NOBODY),
        (with_text(ALL, doubled(3)), Integrity.DUPLICATED, "from event 4", Noticed.NOBODY),
        (with_text(ALL, altered(3, " fuor")), Integrity.CORRUPTED, "from event 3", Noticed.NOBODY),
        (whole(num_bad_json=1), Integrity.CORRUPTED, "in its framing", Noticed.PROTOCOL),
        (whole(num_bad_utf8=1), Integrity.CORRUPTED, "in its framing", Noticed.PROTOCOL),
        (broken_off(ALL, 4, Ending.GARBLED), Integrity.CORRUPTED, "in its framing", Noticed.TRANSPORT),
        (whole(reply_ids=("a", "b")), Integrity.FOREIGN, "more than one reply id", Noticed.NOBODY),
        (with_text(ALL, OTHER), Integrity.FOREIGN, "from event 0", Noticed.NOBODY),
        (with_text(ALL, altered(3, " hundred degrees")), Integrity.FOREIGN, "from event 3", Noticed.NOBODY),
        (
            whole(num_done=0, error_frames=(ERROR,), finish_reason=None),
            Integrity.ERROR_FRAME,
            "before finish_reason",
            Noticed.PROTOCOL,
        ),
        (whole(error_frames=(ERROR,), finish_reason=None), Integrity.ERROR_FRAME, "after [DONE]", Noticed.PROTOCOL),
        (whole(error_frames=(ERROR,)), Integrity.TWO_TERMINALS, "at its end", Noticed.PROTOCOL),
        (whole(num_done=2), Integrity.TWO_TERMINALS, "at its end", Noticed.PROTOCOL),
        (whole(num_done=0), Integrity.NO_TERMINAL, "before [DONE]", Noticed.PROTOCOL),
        (whole(finish_reason=None), Integrity.NO_TERMINAL, "after [DONE]", Noticed.PROTOCOL),
        (whole(finish_reason=None, num_done=0), Integrity.NO_TERMINAL, "before finish_reason", Noticed.PROTOCOL),
        (whole(open_after_end_s=2.0, ended_s=2.25), Integrity.OPEN_AFTER_END, "at its end", Noticed.TIMEOUT),
        (whole(ending=Ending.TIMEOUT, ended_s=5.0), Integrity.OPEN_AFTER_END, "at its end", Noticed.TIMEOUT),
        (whole(open_after_end_s=0.01), Integrity.INTACT, "", Noticed.NOTHING),
        (whole(itl_s=0.7), Integrity.STALLED, "0.7 s without content", Noticed.TIMEOUT),
        (whole(ended_s=3.21), Integrity.STALLED, "3 s without content", Noticed.TIMEOUT),
    ],
)
def test_a_stream_has_one_name(sample: Sample, name: Integrity, where: str, noticed: Noticed) -> None:
    found = read(sample)
    assert (found.name, found.where, found.noticed) == (name, where, noticed)
    assert found.name in found.seen


def test_what_is_damage_and_what_is_not() -> None:
    assert read(broken_off(ALL, 4)).damaged
    assert read(with_text(ALL, without(3))).damaged
    assert not read(refused(ALL)).damaged  # nothing began
    assert not read(replace(refused(ALL), ending=Ending.RESET)).damaged
    assert not read(whole(error_frames=(ERROR,), finish_reason=None)).damaged  # the target's own word
    assert not read(whole(itl_s=0.7)).damaged  # late, and whole
    assert not read(whole(ending=Ending.FIN)).damaged  # everything had come
    assert read(whole(ending=Ending.FIN)).whole
    assert read(whole(ending=Ending.FIN, num_done=0)).damaged
    assert not read(broken_off(ALL, 4, Ending.TIMEOUT, after_s=0.1)).damaged  # we gave up on what still came


def test_wrong_text_outweighs_a_missing_end_and_both_are_seen() -> None:
    sample = broken_off(with_text(ALL, without(2)), 6, Ending.RESET)
    found = read(sample)
    assert found.name is Integrity.MISSING
    assert {Integrity.MISSING, Integrity.RESET} <= found.seen
    assert found.noticed is Noticed.TRANSPORT


def test_a_done_after_an_error_frame_is_no_success() -> None:
    found = read(whole(error_frames=(ERROR,), finish_reason=None, num_done=1))
    assert found.name is Integrity.ERROR_FRAME
    assert not found.whole


def test_a_stall_is_measured_against_the_control() -> None:
    slow = norms([whole(index, itl_s=0.3) for index in range(10)])
    assert slow.stall_s == pytest.approx(1.5)
    assert read(whole(itl_s=0.7), slow).name is Integrity.INTACT
    assert norms([]).stall_s == 0.5
    patient = norms([whole(open_after_end_s=1.5)])
    assert read(whole(open_after_end_s=2.0, ended_s=2.25), patient).name is Integrity.INTACT


def test_stalled_and_then_timed_out_shows_both() -> None:
    stalled = whole(itl_s=0.9)
    found = read(broken_off(stalled, 5, Ending.TIMEOUT, after_s=0.2))
    assert found.name is Integrity.TIMED_OUT
    assert Integrity.STALLED in found.seen


def test_usage_must_be_what_the_same_text_had() -> None:
    usual = norms([whole(index) for index in range(5)])
    assert read(whole(), usual).name is Integrity.INTACT
    for usage in (Usage(completion_tokens=4), Usage(), None):
        found = read(whole(usage=usage), usual)
        assert (found.name, found.damaged, found.noticed) == (Integrity.USAGE_WRONG, True, Noticed.NOBODY)
    both = read(whole(num_done=2, usage=None), usual)
    assert both.seen == {Integrity.TWO_TERMINALS, Integrity.USAGE_WRONG}
    assert read(whole(usage=None), norms([whole(usage=None)])).name is Integrity.INTACT
    assert read(with_text(whole(usage=Usage(completion_tokens=3)), without(1)), usual).name is Integrity.MISSING


# ── references ───────────────────────────────────────────────────────────────────────────────────


def test_each_of_several_variants_is_admissible() -> None:
    variants = (PIECES, (*PIECES[:5], " and", " so", " on"))
    for pieces in variants:
        assert judge(with_text(ALL, pieces), (variants,)).name is Integrity.INTACT
    assert judge(with_text(ALL, without(2)), (variants,)).name is Integrity.MISSING


def test_a_text_unlike_several_variants_to_its_end_may_be_one_more() -> None:
    variants = (PIECES, (*PIECES[:5], " and", " so", " on"))
    found = judge(with_text(ALL, (*PIECES[:3], " V", " VI", " VII")), (variants,))
    assert (found.name, found.compared, found.where) == (Integrity.INTACT, False, "text not compared")
    alone = judge(with_text(ALL, (*PIECES[:3], " V", " VI", " VII")), (variants[:1],))
    assert alone.name is Integrity.CORRUPTED


def test_more_than_three_variants_are_not_compared() -> None:
    variants = tuple((*PIECES[:3], f" {number}") for number in range(4))
    found = judge(with_text(ALL, ["what", "ever"]), (variants,))
    assert (found.name, found.compared) == (Integrity.INTACT, False)
    assert judge(broken_off(ALL, 3), (variants,)).name is Integrity.CUT
    assert not judge(ALL, ()).compared


def test_the_same_text_in_other_events_is_no_other_variant() -> None:
    regrouped = (PIECES, ("".join(PIECES[:4]), *PIECES[4:]), ("".join(PIECES),), (*PIECES[:-2], "".join(PIECES[-2:])))
    assert admissible(regrouped) == (PIECES,)
    found = judge_all([with_text(ALL, without(3))], (regrouped,))
    assert found[0].name is Integrity.MISSING


def test_damage_in_the_control_is_no_variant() -> None:
    assert admissible((PIECES, without(3), doubled(2))) == (PIECES,)
    assert admissible((PIECES, (*PIECES[:5], " and", " so"))) == (PIECES, (*PIECES[:5], " and", " so"))
    assert len(admissible((PIECES, PIECES[:-1]))) == 2  # some do stop earlier


def test_references_come_from_whole_answers() -> None:
    samples = [whole(0), whole(1), with_text(whole(2), altered(0, "Uno")), broken_off(whole(3), 2), whole(4, mixed=1)]
    assert references_of(samples, 3) == ((PIECES, altered(0, "Uno")), (OTHER,), ())


# ── properties ───────────────────────────────────────────────────────────────────────────────────


def named(pieces: Sequence[str], events: Sequence[str]) -> Integrity:
    return judge(with_text(ALL, pieces), ((tuple(events),),)).name


@given(EVENTS | FEW, st.randoms(use_true_random=False))
def test_any_cut_of_the_same_text_is_intact(events: list[str], rng: Random) -> None:
    text = "".join(events)
    edges = sorted({0, len(text), *(rng.randint(0, len(text)) for _ in range(rng.randint(0, 8)))})
    pieces = [text[begin:end] for begin, end in pairwise(edges)]
    assert named(pieces, events) is Integrity.INTACT


@given(EVENTS | FEW, st.data())
@example(["a", "a", "a"], None)
def test_one_event_dropped_is_missing(events: list[str], data: st.DataObject | None) -> None:
    number = 1 if data is None else data.draw(st.integers(0, len(events) - 1))
    assert named(without(number, events), events) is Integrity.MISSING


@given(EVENTS | FEW, st.data())
@example(["a", "a", "a"], None)
def test_one_event_doubled_is_duplicated(events: list[str], data: st.DataObject | None) -> None:
    number = 1 if data is None else data.draw(st.integers(0, len(events) - 1))
    assert named(doubled(number, events), events) is Integrity.DUPLICATED


@given(EVENTS | FEW, st.text(min_size=1, max_size=4), st.data())
def test_one_event_altered_is_corrupted(events: list[str], text: str, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(events) - 1))
    pieces = altered(number, text, events)
    assume("".join(pieces) != "".join(events))
    assume(not "".join(events).startswith("".join(pieces)))  # a beginning of the text cannot be told from lost events
    assert named(pieces, events) is Integrity.CORRUPTED


@given(EVENTS | FEW, st.data())
def test_a_beginning_that_ends_cleanly_lost_events_and_one_that_does_not_was_cut(
    events: list[str], data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, len(events) - 1))
    assert named(events[:number], events) is Integrity.MISSING
    for ending, name in ((Ending.WHOLE, Integrity.CUT), (Ending.FIN, Integrity.CUT), (Ending.RESET, Integrity.RESET)):
        cut = broken_off(with_text(ALL, events), number, ending)
        assert judge(cut, ((tuple(events),),)).name is name


@settings(max_examples=60)
@given(st.lists(st.sampled_from("abcdefgh"), min_size=6, max_size=30), st.data())
def test_several_damages_are_all_seen(events: list[str], data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(events) - 1), min_size=1, max_size=3, unique=True))
    kinds = [data.draw(st.sampled_from(["drop", "double", "alter"])) for _ in places]
    pieces = list(events)
    for place, kind in sorted(zip(places, kinds, strict=True), reverse=True):
        pieces[place : place + 1] = {"drop": [], "double": [pieces[place]] * 2, "alter": ["#"]}[kind]
    found = judge(with_text(ALL, pieces), ((tuple(events),),))
    if pieces == events:
        return
    assert found.damaged or "".join(pieces) == "".join(events)
    if "#" in pieces:
        assert Integrity.CORRUPTED in found.seen
    if set(kinds) == {"drop"}:
        assert found.seen == {Integrity.MISSING}


@given(
    st.sampled_from(Ending),
    st.sampled_from([None, 200, 404, 500]),
    st.integers(0, 3),
    st.sampled_from([None, "stop"]),
    st.integers(0, 2),
    st.integers(0, 1),
    EVENTS,
)
def test_every_stream_has_a_name_and_an_intact_one_is_whole(
    ending: Ending, status: int | None, events: int, finish: str | None, done: int, errors: int, pieces: list[str]
) -> None:
    sample = with_text(ALL, pieces)
    sample = replace(
        broken_off(sample, min(events, len(pieces)), ending),
        status=status,
        finish_reason=finish,
        num_done=done,
        error_frames=(ERROR,) * errors,
    )
    for references in ((), ((tuple(pieces),),)):
        found = judge(sample, references)
        assert found.name in found.seen
        if found.name is Integrity.INTACT:
            assert found.whole
            assert found.noticed is Noticed.NOTHING
        if found.whole:
            assert not found.damaged
        if found.damaged:
            assert found.name in DAMAGE


# ── alignment ────────────────────────────────────────────────────────────────────────────────────


def test_the_same_events_differ_in_nothing() -> None:
    assert differences(PIECES, PIECES) == SAME
    assert differences(["".join(PIECES)], PIECES) == SAME


def test_what_differs_is_counted() -> None:
    two_lost = differences((*PIECES[:2], *PIECES[3:6], *PIECES[7:]), PIECES)
    assert (two_lost.lost, two_lost.cost, two_lost.first) == (2, 2, 2)
    twice = differences((*PIECES[:3], *PIECES[1:3], *PIECES[3:]), PIECES)
    assert (twice.repeated, twice.added) == (2, ())
    strange = differences((*PIECES[:3], "???", *PIECES[3:]), PIECES)
    assert (strange.added, strange.repeated) == (("???",), 0)
    both = differences((*PIECES[:2], PIECES[1], PIECES[2], "X", *PIECES[4:]), PIECES)
    assert (both.repeated, both.changed) == (1, ((PIECES[3], "X"),))


def test_damage_and_other_events_at_once_is_found_by_its_text() -> None:
    text = "".join(without(4))
    found = differences([text[:7], text[7:]], PIECES)
    assert (found.lost, found.added, found.changed) == (1, (), ())
    doubled_text = "".join(doubled(4))
    assert differences([doubled_text[:9], doubled_text[9:]], PIECES).repeated == 1


def test_long_streams_are_aligned_in_a_band() -> None:
    rng = Random(4)
    events = [rng.choice("abcdefghij") + str(number % 7) for number in range(3000)]
    pieces = [event for number, event in enumerate(events) if number % 500 != 250]
    found = differences(pieces, events)
    assert (found.lost, found.cost) == (6, 6)
    assert differences(events[:1000] + ["x"] * 1000, events).cost > 900


def test_another_text_that_the_target_itself_sent_is_no_damage() -> None:
    other = whole(pieces=altered(4, " fourteen"))
    assert read(other).name is Integrity.CORRUPTED
    reading = read(replace(other, as_sent=True))
    assert (reading.name, reading.noticed, reading.damaged) == (Integrity.VARIED, Noticed.NOTHING, False)
    assert read(replace(other, as_sent=False)).name is Integrity.CORRUPTED


def test_text_of_another_request_is_foreign_whoever_sent_it() -> None:
    assert read(replace(whole(pieces=OTHER), as_sent=True)).name is Integrity.FOREIGN


def test_a_varied_stream_that_is_cut_is_cut() -> None:
    cut = replace(
        whole(pieces=altered(2, " nine")[:5]), as_sent=True, ending=Ending.FIN, finish_reason=None, num_done=0
    )
    assert read(cut).name is Integrity.CUT
    assert Integrity.VARIED in read(cut).seen
