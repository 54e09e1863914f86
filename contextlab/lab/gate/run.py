"""The loop of a gate: a block of both arms, again, until the plan has enough; every block is on record at once.

    next_blocks ─▶ block: arm, arm (ABBA) ─▶ record ─▶ next_blocks ─▶ … ─▶ judge ─▶ gate_result, findings, end

A run that was cut off goes on with the blocks that it has: a repetition adds to them, it never begins anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec

from contextlab.analysis.gate.calibration import calibrate
from contextlab.analysis.gate.judging import next_blocks
from contextlab.analysis.gate.nouns import (
    ArmName,
    Block,
    Calibration,
    Fingerprint,
    GateResult,
    GateVerdict,
    Measure,
    MetricNoise,
)
from contextlab.analysis.gate.stored import (
    GATE,
    GateBegins,
    Stored,
    as_judged,
    concluded,
    findings,
    plan_of,
    read,
)
from contextlab.analysis.quantities import count
from contextlab.lab.gate.arm import Arm
from contextlab.lab.gate.prints import fingerprint
from contextlab.lab.run import Lab, Options
from contextlab.model import (
    Finding,
    Knowledge,
    Layer,
    Limits,
    Outcome,
    Record,
    Run,
    TargetSpec,
    UsageError,
    Verdict,
)

ARMS: tuple[ArmName, ArmName] = ("base", "candidate")
_VERDICTS = {0: Verdict.PASS, 1: Verdict.FAIL}


class Gate(Lab):
    """One gate, new or resumed (`before`: the record of the run that goes on). `notes`: what the user should know."""

    def __init__(
        self,
        specs: Mapping[ArmName, TargetSpec],
        folder: Path,
        options: Options,
        listener: Callable[[Record], None] = lambda record: None,
        *,
        begins: GateBegins,
        before: Run | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self._stored = _resumable(before, begins) if before is not None else None
        ended_s = max((float(one.get("at_s", 0.0)) for one in before.records), default=0.0) if before else None
        super().__init__(specs["candidate"], folder, options, listener, resumed_s=ended_s)
        self.begins = replace(begins, resumed=before is not None)
        self.result: GateResult | None = None
        self.calibration: Calibration | None = None
        self._reasons: Sequence[tuple[int, str]] = ()
        self._notes = notes
        self._arms = {
            name: Arm(
                name=name,
                spec=specs[name],
                load=begins.settings.load,
                seed=begins.seed,
                folder=folder,
                memory_limit_bytes=options.memory_limit_bytes,
                progress=self._say,
            )
            for name in ARMS
        }

    def run_gate(self) -> int:
        """Measure, judge, and return the exit code; errors as in `Lab.run`."""
        return self._session(lambda known: self._gate())

    @property
    def fingerprints(self) -> Mapping[ArmName, Fingerprint]:
        """Of the arms that have been measured, now or by an attempt before."""
        before = self._stored.fingerprints if self._stored is not None else {}
        now = {name: self._print(arm, arm.known) for name, arm in self._arms.items() if arm.known is not None}
        return {name: now.get(name) or before[name] for name in ARMS if name in now or name in before}

    @contextmanager
    def _serving(self) -> Iterator[None]:
        """Servers come and go with the blocks; none is there beforehand."""
        yield

    @contextmanager
    def _nursing(self) -> Iterator[None]:
        """No probe runs in a child."""
        yield

    def _open(self) -> Knowledge:
        return Knowledge(flavour="", model="", limits=Limits())

    def _say(self, text: str) -> None:
        self.listener({"kind": "progress", "text": text})

    def _gate(self) -> None:
        begins, settings = self.begins, self.begins.settings
        self._journal.append("gate", gate=begins)
        for note in self._notes:
            self._journal.append("note", text=note)
        if not self.begins.resumed and not all(arm.is_ours for arm in self._arms.values()):
            words = "a target that runs already is not started anew in every block, which is weaker: what one launch"
            self._journal.append("note", text=f"{words} has by chance, all blocks have")
        blocks = list(self._stored.blocks) if self._stored is not None else []
        known = set(self._stored.fingerprints) if self._stored is not None else set()
        plan = plan_of(settings)
        if begins.calibrates:  # noise takes no second look, and nothing to confirm
            plan = replace(plan, max_blocks=plan.blocks, confirm=False)
        while (more := next_blocks(as_judged(begins, blocks), settings.gated, plan)).num_blocks:
            number = max((block.number for block in blocks), default=0) + 1
            kind = "to confirm" if more.confirming else "block"
            self._say(f"{kind} {number}, {count(more.num_blocks, 'block')} to go ({more.why})")
            began_s = time.monotonic()
            block = self._block(number, confirming=more.confirming)
            self._journal.append("block", block=block, cost_s=round(time.monotonic() - began_s, 3))
            blocks.append(block)
            for name, arm in self._arms.items():
                if arm.known is not None and name not in known:
                    known.add(name)
                    self._journal.append(
                        "fingerprint", arm=name, fingerprint=self._print(arm, arm.known), known=arm.known
                    )
        self._conclude(blocks)

    def _block(self, number: int, *, confirming: bool) -> Block:
        """Both arms after each other; who goes first alternates (ABBA), and the first of all is drawn."""
        first = Random(f"gate:{self.begins.seed}:first").randrange(2)
        order = ARMS if (number - 1 + first) % 2 == 0 else ARMS[::-1]
        found: dict[str, Measure] = {}
        for name in order:
            found[name] = self._arms[name].measure(number)
            if found[name].died:
                break
        return Block(
            number=number,
            first=order[0],
            base=found.get("base"),
            candidate=found.get("candidate"),
            confirming=confirming,
        )

    def _print(self, arm: Arm, known: Knowledge) -> Fingerprint:
        return fingerprint(arm.spec, known, self.begins.settings.load, self.begins.seed)

    # ── what it comes to ──

    def _conclude(self, blocks: Sequence[Block]) -> None:
        result = concluded(self.begins, blocks)
        if self.begins.calibrates and result.verdict is not GateVerdict.DIED:
            self._calibrated(blocks)
            return
        self.result, self._reasons = result, result.reasons
        self._journal.append("gate_result", result=result)
        for finding in findings(result):
            self._found(finding)

    def _calibrated(self, blocks: Sequence[Block]) -> None:
        """Both arms are the same: what differs is this place's noise."""
        settings = self.begins.settings
        found = calibrate(as_judged(self.begins, blocks), settings.gated, plan_of(settings))
        self.calibration = found
        self._journal.append("calibration", calibration=found)
        for noise in found.metrics:
            if noise.resolved:
                self._found(_resolved(noise))
            else:
                self._journal.append("skip", scenario=GATE, probe=noise.name, reason=noise.why, text=_advice(noise))
        able = [noise.name for noise in found.metrics if noise.resolved]
        if found.contaminated:
            self._reasons = ((3, f"contaminated: {found.contaminated}"),)
        elif able:
            self._reasons = ((0, f"{len(able)} of {count(len(found.metrics), 'metric')} can be gated here"),)
        else:
            self._reasons = ((3, "no metric can be gated here"),)

    def _end(self, reasons: Mapping[int, str]) -> int:
        if reasons or not self._reasons:
            return super()._end(reasons)
        code, _ = self._reasons[0]
        return self._last_line(_VERDICTS.get(code, Verdict.UNKNOWN), code, self._reasons)


def _resolved(noise: MetricNoise) -> Finding:
    effect = f"{noise.smallest_effect:.1%}" if noise.smallest_effect is not None else "nothing"
    sigma = f"{noise.sigma:.1%}" if noise.sigma is not None else "unknown"
    return Finding(
        scenario=GATE,
        probe=noise.name,
        outcome=Outcome.OK,
        verdict=Verdict.PASS,
        layer=Layer.ENGINE,
        why=f"noise of a pair {sigma}: a full gate would find {effect}",
        evidence={"num_blocks": noise.num_blocks},
    )


def _advice(noise: MetricNoise) -> str:
    if noise.margin_needed is not None:
        return f"a margin of {noise.margin_needed:.0%} would do"
    return f"{noise.blocks_needed} blocks would do" if noise.blocks_needed is not None else ""


def _resumable(run: Run, begins: GateBegins) -> Stored:
    """What the run that goes on has measured. Raises UsageError where it is damaged, gated something else, or
    otherwise."""
    try:
        stored = read(run.records)
    except msgspec.ValidationError as error:
        raise UsageError(f"--resume {run.path}: damaged: {error}", "run the command anew, without --resume") from None
    if stored is None:
        raise UsageError(f"--resume {run.path}: holds no gate", "name a run of contextlab gate run")
    was = stored.begins
    for name in ("base", "candidate", "seed", "settings", "calibrates"):
        if getattr(was, name) != getattr(begins, name):
            message = f"--resume {run.path}: its {name} was another one"
            raise UsageError(message, "repeat the words of that run's command; a plan is fixed before the first block")
    return stored
