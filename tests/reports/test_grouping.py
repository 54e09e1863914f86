"""How findings are arranged: one block a cause, one sample an outcome that passed, nothing counted twice."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from contextlab.model import Finding, Layer, Outcome, Skip, Verdict
from contextlab.reports.parts import grouping
from tests.reports import sample

ABORTED = "another client's small stream was ended after {} tokens: Context size has been exceeded."
REFUSED = "refused with HTTP 500: Context size has been exceeded."


def aborted(scenario: str, probe: str, why: str = ABORTED.format(3), **more: object) -> Finding:
    fields = {"layer": Layer.KV_CACHE, "remedy": "--no-kv-unified", **more}
    return sample.finding(scenario, probe, Outcome.NEIGHBOUR_ABORTED, Verdict.FAIL, why, **fields)


def grouped(*findings: Finding, wanted: Verdict = Verdict.FAIL) -> Sequence[grouping.Group]:
    return grouping.groups(sample.run(*findings), wanted)


def test_one_cause_is_one_group_whatever_scenario_showed_it() -> None:
    [group] = grouped(aborted("long", "a"), aborted("reply", "b"), aborted("long", "c"))
    assert group.probes == {"long": ("a", "c"), "reply": ("b",)}
    assert group.num_probes == 3


def test_outcome_layer_and_remedy_tell_causes_apart() -> None:
    one = aborted("s", "a")
    groups = grouped(one, aborted("s", "b", layer=Layer.ENGINE), aborted("s", "c", remedy="--parallel 1"))
    assert [group.example.probe for group in groups] == ["a", "b", "c"]


def test_worst_outcome_comes_first_then_what_most_probes_showed() -> None:
    crashed = sample.finding("s", "d", Outcome.CRASHED, Verdict.FAIL)
    engine = [aborted("s", probe, layer=Layer.ENGINE) for probe in "bc"]
    groups = grouped(aborted("s", "a"), *engine, crashed)
    assert [(str(group.example.outcome), group.num_probes) for group in groups] == [
        ("CRASHED", 1),
        ("NEIGHBOUR_ABORTED", 2),
        ("NEIGHBOUR_ABORTED", 1),
    ]


def test_reasons_are_counted_in_probes_without_their_numbers_and_the_most_frequent_is_the_example() -> None:
    [group] = grouped(
        aborted("s", "a", REFUSED),
        aborted("s", "b", ABORTED.format(3)),
        aborted("s", "b", ABORTED.format(5)),
        aborted("s", "c", ABORTED.format(17)),
    )
    assert [(reason.why, reason.num_probes) for reason in group.reasons] == [(ABORTED.format(3), 2), (REFUSED, 1)]
    assert group.example.probe == "b"


def test_one_token_is_no_other_reason_than_two() -> None:
    [group] = grouped(
        aborted("s", "a", "answered: 1 token"),
        aborted("s", "b", "answered: 2 tokens"),
    )
    assert [reason.num_probes for reason in group.reasons] == [2]


def test_words_before_the_same_words_are_no_other_reason() -> None:
    [group] = grouped(aborted("s", "turn-3", f"turn 3: {REFUSED}"), aborted("s", "a", REFUSED))
    assert [(reason.why, reason.num_probes) for reason in group.reasons] == [(REFUSED, 2)]


def test_a_probe_with_two_reasons_is_one_probe() -> None:
    [group] = grouped(aborted("s", "a"), aborted("s", "a", REFUSED))
    assert (group.num_probes, [reason.num_probes for reason in group.reasons]) == (1, [1, 1])


def test_verdicts_are_kept_apart() -> None:
    unknown = sample.finding("s", "u", Outcome.UNKNOWN, Verdict.UNKNOWN)
    [failed], [untold] = grouped(aborted("s", "a"), unknown), grouped(unknown, wanted=Verdict.UNKNOWN)
    assert (failed.example.probe, untold.example.probe) == ("a", "u")


def test_passed_names_each_outcome_with_the_reason_of_most_probes() -> None:
    row = grouping.passed(sample.failing())["prompt-too-long"]
    assert [(str(outcome), reason.num_probes) for outcome, reason in row.items()] == [("OK", 3), ("REJECTED", 4)]
    assert row[Outcome.REJECTED].example.evidence["error_type"] == "exceed_context_size_error"


def test_passed_lets_the_measured_limit_speak() -> None:
    reason = grouping.passed(sample.failing())["find-limit"][Outcome.OK]
    assert (reason.why, reason.num_probes) == ("the largest prompt that was read has 503 tokens", 9)


def test_passed_prefers_more_evidence_where_reasons_are_as_frequent() -> None:
    bare = sample.finding("s", "a", Outcome.OK, Verdict.PASS, "answered")
    proven = sample.finding("s", "b", Outcome.OK, Verdict.PASS, "read", evidence={"codes": 3})
    assert grouping.passed(sample.run(bare, proven))["s"][Outcome.OK].why == "read"


def test_passed_counts_what_the_matrix_counts() -> None:
    run = sample.failing()
    matrix = {
        scenario: {outcome: cell[Verdict.PASS] for outcome, cell in row.items() if Verdict.PASS in cell}
        for scenario, row in grouping.cells(run).items()
    }
    counts = {
        scenario: {outcome: reason.num_probes for outcome, reason in row.items()}
        for scenario, row in grouping.passed(run).items()
    }
    assert counts == matrix


def test_skips_share_a_reason() -> None:
    skips = [Skip(scenario="s", reason="no log", probe=probe) for probe in "ab"]
    run = sample.run()
    assert grouping.skipped(type(run)(path="", header={}, skips=(*skips, Skip(scenario="t", reason="no log")))) == {
        ("s", "no log"): ("a", "b"),
        ("t", "no log"): (),
    }


FINDINGS = st.lists(
    st.builds(
        sample.finding,
        st.sampled_from(["long", "reply"]),
        st.sampled_from("abc"),
        st.sampled_from([Outcome.OK, Outcome.CUT, Outcome.HUNG, Outcome.UNKNOWN]),
        st.sampled_from(Verdict),
        st.sampled_from(["", "x", "turn 1: x", "a: turn 2: x", "x 1", "x 2"]),
        layer=st.sampled_from([Layer.ENGINE, Layer.KV_CACHE]),
        remedy=st.sampled_from(["", "change it"]),
    )
)


@given(FINDINGS)
def test_every_finding_is_in_one_group_and_none_is_lost(found: list[Finding]) -> None:
    run = sample.run(*found)
    for wanted in Verdict:
        groups = grouping.groups(run, wanted)
        keys = [(group.example.outcome, group.example.layer, group.example.remedy) for group in groups]
        assert len(set(keys)) == len(keys)
        assert [outcome for outcome, *_ in keys] == sorted((outcome for outcome, *_ in keys), reverse=True)
        places = [
            (place, key)
            for group, key in zip(groups, keys, strict=True)
            for scenario, probes in group.probes.items()
            for place in ((scenario, probe) for probe in probes)
        ]
        shown = {
            (grouping.place(each), (each.outcome, each.layer, each.remedy)) for each in found if each.verdict is wanted
        }
        assert len(places) == len(set(places))
        assert set(places) == shown
        for group in groups:
            counts = [reason.num_probes for reason in group.reasons]
            assert counts == sorted(counts, reverse=True)
            assert max(counts) <= group.num_probes <= sum(counts)
            assert group.example in found
