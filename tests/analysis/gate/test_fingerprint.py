"""Which records can be compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contextlab.analysis.gate.fingerprint import likeness
from contextlab.analysis.gate.nouns import Fingerprint
from contextlab.model import UsageError

HERE = Fingerprint(
    machine={"cpu": "EPYC 7B13", "cores": 2, "memory_bytes": 8_300_000_000, "kernel": "6.1.0-18"},
    engine={"name": "llama.cpp", "version": "b4000"},
    model={"digest": "ab12", "quantisation": "Q8_0"},
    flags={"context": 2048},
    scenario={"digest": "77", "requests": 100, "contextlab": "0.1.0"},
)


def machine(**facts: str | int | None) -> Fingerprint:
    """The same, on another machine."""
    return replace(HERE, machine={**HERE.machine, **facts})


def test_the_same_is_alike() -> None:
    found = likeness(HERE, HERE)
    assert (found.hard, found.soft, found.tested) == ((), (), ())


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (machine(cpu="Xeon"), "machine.cpu: EPYC 7B13 in the baseline, Xeon now"),
        (machine(cores=4), "machine.cores: 2 in the baseline, 4 now"),
        (machine(memory_bytes=16_000_000_000), "machine.memory_bytes: "),
        (machine(kernel="5.15"), "machine.kernel: 6.1.0-18 in the baseline, 5.15 now"),
        (replace(HERE, engine={"name": "vllm", "version": "b4000"}), "engine.name: "),
        (replace(HERE, model={"digest": "cd34", "quantisation": "Q8_0"}), "model.digest: "),
        (replace(HERE, flags={}), "flags.context: 2048 in the baseline, not known now"),
        (replace(HERE, flags={"context": 2048, "batch": 64}), "flags.batch: not known in the baseline, 64 now"),
        (replace(HERE, scenario={**HERE.scenario, "requests": 50}), "scenario.requests: "),
    ],
)
def test_another_place_or_thing_is_not_comparable(other: Fingerprint, words: str) -> None:
    found = likeness(HERE, other)
    assert len(found.hard) == 1
    assert found.hard[0].startswith(words)
    assert found.soft == ()


@pytest.mark.parametrize(
    "other",
    [
        machine(kernel="6.8.2"),
        machine(cpu=None),
        replace(HERE, machine={key: value for key, value in HERE.machine.items() if key != "cores"}),
        replace(HERE, scenario={**HERE.scenario, "contextlab": "0.2.0"}),
    ],
)
def test_small_things_make_it_advice(other: Fingerprint) -> None:
    found = likeness(HERE, other)
    assert (len(found.soft), found.hard) == (1, ())
    assert (len(likeness(other, HERE).soft), likeness(other, HERE).hard) == (1, ())


def test_what_is_tested_may_differ() -> None:
    newer = replace(HERE, engine={"name": "llama.cpp", "version": "b5000"}, flags={"context": 4096})
    found = likeness(HERE, newer, ("engine", "flags.context"))
    assert (found.hard, found.soft, len(found.tested)) == ((), (), 2)
    assert len(likeness(HERE, newer, ("engine.version",)).hard) == 1
    with pytest.raises(UsageError, match="tested='engin'") as caught:
        likeness(HERE, newer, ("engin",))
    assert "engine" in caught.value.next_step
    with pytest.raises(UsageError, match="neither side has such a fact of its engine") as caught:
        likeness(HERE, HERE, ("engine.verson",))
    assert caught.value.next_step.startswith("did you mean engine.version?")


def test_memory_that_the_kernel_keeps_is_no_other_machine() -> None:
    assert likeness(HERE, machine(memory_bytes=8_200_000_000)).hard == ()
