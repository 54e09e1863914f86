"""The loop of a gate with arms that answer at once: order, what is on record, what resumes, what is confirmed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from contextlab import registry
from contextlab.analysis.gate.nouns import METRICS, Host, Measure, Plan
from contextlab.analysis.gate.settings import Settings
from contextlab.analysis.gate.stored import GateBegins, Stored, read
from contextlab.lab.gate.arm import Arm
from contextlab.lab.gate.run import Gate
from contextlab.lab.interrupt import Interrupted
from contextlab.lab.journal import RECORD, read_run
from contextlab.lab.run import Options
from contextlab.model import Knowledge, Limits, Run, UsageError

KNOWN = Knowledge(flavour="fake", model="fake", limits=Limits(context_tokens=256))
NAMES = ("ttft_p50_s", "itl_p50_s", "e2e_p90_s")
BEGINS = GateBegins(
    base="fake:caps",
    candidate="fake:caps",
    settings=Settings(plan=Plan(blocks=7, max_blocks=9), metrics=METRICS[:3]),
)
Answers = Callable[[str, int], Measure]


def answer(times: float = 1.0, **facts: Any) -> Measure:
    """A launch that took so many times as long as usual."""
    values = dict.fromkeys(NAMES, 0.1 * times)
    return Measure(
        **{"metrics": values, "num_requests": 24, "exact": {"window_tokens": 256}, "control_s": 0.02, **facts}
    )


def wavering(arm: str, block: int) -> float:
    """Noise of 1 %, drawn without a generator."""
    return 1 + 0.01 * ((block * 7 + (arm == "base") * 3) % 5 - 2) / 2


@pytest.fixture
def arms(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `Arm.measure` gives, by ["answers"], and who was asked, ["asked"]."""
    state: dict[str, Any] = {"asked": [], "answers": lambda name, block: answer(wavering(name, block))}

    def measure(arm: Arm, block: int) -> Measure:
        state["asked"].append((block, arm.name))
        arm.known = KNOWN
        found = state["answers"](arm.name, block)
        assert isinstance(found, Measure)
        return found

    monkeypatch.setattr(Arm, "measure", measure)
    return state


def gate(folder: Path, begins: GateBegins = BEGINS, before: Run | None = None) -> tuple[int, Stored, Run]:
    """Run one to its end: (exit code, what is on record, the record)."""
    specs: Any = {name: registry.parse_target("fake:caps") for name in ("base", "candidate")}
    lab = Gate(specs, folder, Options(command="gate"), begins=begins, before=before)
    code = lab.run_gate()
    run = read_run(folder / "run.jsonl")
    stored = read(run.records)
    assert stored is not None
    return code, stored, run


def test_arms_take_turns_in_going_first(arms: dict[str, Any], tmp_path: Path) -> None:
    code, stored, _ = gate(tmp_path / "run")
    first = [name for place, (_, name) in enumerate(arms["asked"]) if place % 2 == 0]
    assert code == 0
    assert all(one != other for one, other in pairwise(first))
    assert [block.first for block in stored.blocks] == first
    drawn = {gate(tmp_path / f"run-{seed}", replace(BEGINS, seed=seed))[1].blocks[0].first for seed in range(6)}
    assert drawn == {"base", "candidate"}


def test_everything_is_on_record(arms: dict[str, Any], tmp_path: Path) -> None:
    code, stored, run = gate(tmp_path / "run")
    kinds = [record["kind"] for record in run.records]
    assert (code, len(stored.blocks)) == (0, 7)
    assert kinds.index("block") < kinds.index("fingerprint") < kinds.index("gate_result")
    assert set(stored.fingerprints) == {"base", "candidate"}
    assert stored.fingerprints["base"].scenario["num_requests"] == 24
    assert run.end is not None
    assert run.end["exit"]["code"] == 0
    assert {finding.probe for finding in run.findings} >= set(NAMES)


def test_what_is_flagged_is_measured_again_and_regressed(arms: dict[str, Any], tmp_path: Path) -> None:
    arms["answers"] = lambda name, block: answer((1.3 if name == "candidate" else 1.0) * wavering(name, block))
    code, stored, run = gate(tmp_path / "run")
    assert code == 1
    assert [block.number for block in stored.blocks] == list(range(1, 15))
    assert [block.confirming for block in stored.blocks] == [False] * 7 + [True] * 7
    assert run.end is not None
    assert "again in 7 fresh blocks" in run.end["exit"]["reason"]


def test_what_does_not_come_again_is_unconfirmed(arms: dict[str, Any], tmp_path: Path) -> None:
    arms["answers"] = lambda name, block: answer(
        (1.3 if name == "candidate" and block <= 7 else 1.0) * wavering(name, block)
    )
    code, stored, _ = gate(tmp_path / "run")
    assert code == 3
    assert stored.result is not None
    assert stored.result.verdict == "unconfirmed"


def test_a_death_ends_it_with_its_name(arms: dict[str, Any], tmp_path: Path) -> None:
    arms["answers"] = lambda name, block: (
        Measure(died="it ended by SIGSEGV under the load")
        if (name, block) == ("candidate", 3)
        else answer(wavering(name, block))
    )
    code, stored, run = gate(tmp_path / "run")
    assert code == 4
    assert len(stored.blocks) == 3
    assert run.end is not None
    assert run.end["exit"]["reason"] == "the candidate died in block 3: it ended by SIGSEGV under the load"


def test_a_busy_host_contaminates_and_a_trusted_one_does_not(arms: dict[str, Any], tmp_path: Path) -> None:
    busy = Host(others_cores=1.5, cpu_pressure=0.9)
    arms["answers"] = lambda name, block: answer(
        (1.3 if name == "candidate" else 1.0) * wavering(name, block), host=busy
    )
    code, stored, _ = gate(tmp_path / "run")
    assert (code, len(stored.blocks)) == (3, 3), "the other four could not mend it"
    assert stored.result is not None
    assert stored.result.verdict == "contaminated"
    assert gate(tmp_path / "trusted", replace(BEGINS, trusts_host=True))[0] == 1


def test_a_run_that_was_cut_goes_on_with_its_blocks(arms: dict[str, Any], tmp_path: Path) -> None:
    usual = arms["answers"]

    def cut(name: str, block: int) -> Measure:
        if block == 4:
            raise Interrupted(15)
        return usual(name, block)  # type: ignore[no-any-return]

    arms["answers"] = cut
    code, stored, run = gate(tmp_path / "run")
    assert (code, len(stored.blocks), stored.result) == (143, 3, None)
    arms["answers"], arms["asked"] = usual, []
    code, after, run = gate(tmp_path / "run", before=run)
    assert (code, len(after.blocks), after.num_attempts) == (0, 7, 2)
    assert after.blocks[:3] == stored.blocks
    assert {block for block, _ in arms["asked"]} == {4, 5, 6, 7}


def test_a_repetition_does_not_begin_anew(arms: dict[str, Any], tmp_path: Path) -> None:
    """What was decided stays decided: another attempt finds nothing more to measure."""
    arms["answers"] = lambda name, block: answer((1.3 if name == "candidate" else 1.0) * wavering(name, block))
    code, stored, run = gate(tmp_path / "run")
    arms["answers"], arms["asked"] = (lambda name, block: answer()), []
    again, after, run = gate(tmp_path / "run", before=run)
    assert (code, again, arms["asked"]) == (1, 1, [])
    assert after.blocks == stored.blocks
    assert len({finding.probe for finding in run.findings}) == len(run.findings)  # not those of both attempts


@pytest.mark.parametrize("change", [{"seed": 1}, {"base": "fake:well"}, {"settings": Settings()}])
def test_what_goes_on_is_what_was_begun(arms: dict[str, Any], tmp_path: Path, change: dict[str, Any]) -> None:
    _, _, run = gate(tmp_path / "run")
    with pytest.raises(UsageError, match=f"its {next(iter(change))} was another one"):
        gate(tmp_path / "run", replace(BEGINS, **change), before=run)


def test_a_calibration_stores_the_noise_and_gates_nothing(arms: dict[str, Any], tmp_path: Path) -> None:
    arms["answers"] = lambda name, block: answer(
        1.0,
        metrics={
            "ttft_p50_s": 0.1 * wavering(name, block),
            "itl_p50_s": 0.1 * (1 + 0.6 * ((block * 7 + (name == "base") * 3) % 5 - 2) / 2),
        },
    )
    begins = replace(BEGINS, calibrates=True, settings=replace(BEGINS.settings, plan=Plan(blocks=7, max_blocks=7)))
    code, stored, run = gate(tmp_path / "run", begins)
    assert code == 0
    assert stored.calibration is not None
    by_name = {noise.name: noise for noise in stored.calibration.metrics}
    assert (by_name["ttft_p50_s"].resolved, by_name["itl_p50_s"].resolved) == (True, False)
    assert {skip.probe for skip in run.skips} == {"itl_p50_s", "e2e_p90_s"}
    assert stored.result is None


def test_what_an_attempt_before_has_measured_is_known(arms: dict[str, Any], tmp_path: Path) -> None:
    _, _, run = gate(tmp_path / "run")
    specs: Any = {name: registry.parse_target("fake:caps") for name in ("base", "candidate")}
    lab = Gate(specs, tmp_path / "run", Options(command="gate"), begins=BEGINS, before=run)
    assert lab.run_gate() == 0
    assert set(lab.fingerprints) == {"base", "candidate"}


def test_a_damaged_record_is_not_gone_on_with(tmp_path: Path, arms: dict[str, Any]) -> None:
    gate(tmp_path / "run")
    with (tmp_path / "run" / RECORD).open("a", encoding="utf-8") as out:
        out.write('{"kind":"block","at_s":1.0,"block":{"number":"x"}}\n')
    kept, asked = (tmp_path / "run" / RECORD).read_bytes(), len(arms["asked"])
    with pytest.raises(UsageError, match="damaged"):
        gate(tmp_path / "run", before=read_run(tmp_path / "run" / RECORD))
    assert ((tmp_path / "run" / RECORD).read_bytes(), len(arms["asked"])) == (kept, asked)
